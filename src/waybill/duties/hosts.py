"""Records whose working files lie on a host that is gone: back to the state that makes the files again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill import rules
from waybill.duties.duty import Hand, ref_of
from waybill.record import Committed, Finding, Group, NotFound, Record
from waybill.rules import calls


@dataclass(frozen=True)
class Hosts:
    grace: float = 600.0  # seconds without a session before a host counts as gone: a restart is no loss
    name: str = "hosts"
    doc: str = "Leads records on whose host, and working files, are gone."
    every: float = 60.0
    per_host: bool = False
    routine: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        now = hand.store.now()
        live = {s.host for s in hand.store.sessions()}
        missing: dict[str, float] = {h: at for h, at in hand.memory.get("missing", {}).items() if h not in live}
        # a host that is not among the missing was there a moment ago
        watched = now - hand.memory.get("at", 0.0) < self.grace
        hand.memory["missing"] = missing
        if not hand.thorough:  # a look by hand is no watching
            hand.memory["at"] = now
        for machine in hand.machines.values():
            for state in machine.states:
                if not state.works or machine.name == calls.DUTY:
                    continue
                for record in _bound(hand, machine.name, state.name):
                    if record.host in live:
                        continue
                    if hand.thorough and not watched and record.host not in (*missing, hand.host):
                        since = record.updated  # nobody has watched the hosts: it has not moved since then, at least
                    else:
                        since = missing.setdefault(record.host, now)
                    if now - since >= self.grace:
                        target = state.remakes or state.name
                        problem = f"{record.ref} has its working files on {record.host}, which has had no worker for {self.grace:.0f} s."
                        yield Finding(
                            "host gone", str(record.ref), problem, f"go back to {target}, on any host", ref=record.ref
                        )

    def mend(self, hand: Hand, finding: Finding) -> bool:
        ref = ref_of(finding)
        try:
            record = hand.store.get(*ref)
        except NotFound:
            return False
        if record.session is not None or not record.host or record.host in {s.host for s in hand.store.sessions()}:
            return False
        # Safe to repeat: fenced by the version just read.
        change = rules.remake(hand.machines[ref.kind], record, hand.who)
        return isinstance(hand.store.commit([Group((change,))])[0], Committed)


def _bound(hand: Hand, kind: str, state: str) -> Iterator[Record]:
    if not hand.machines[kind].binds_files():
        return
    after: int | None = None
    while True:
        page = hand.store.find(kind, state=state, after=after, limit=500)
        yield from (r for r in page.records if r.host and r.session is None)
        if page.after is None:
            return
        after = page.after
