"""Keys of records that have ended: an end state needs none, and whoever waits for such a key would wait for ever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from waybill.duties.duty import Hand, ref_of
from waybill.record import Change, Committed, Finding, Group, NotFound, Record, Ref


@dataclass(frozen=True)
class Keys:
    name: str = "keys"
    doc: str = "Lets go of keys that a record still holds though it has ended."
    every: float = 3600.0
    per_host: bool = False
    routine: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        after = ""
        while held := hand.store.held_keys(after=after):
            for name, holder in held:
                record = _ended(hand, holder) if holder is not None else None
                if record is not None and name in record.keys:  # read after the key was: not if it has just let go
                    problem = f"{record.ref} has ended ({record.state}) and holds the key {name}."
                    yield Finding("key of what has ended", name, problem, "let go of it", ref=record.ref)
            if hand.stop():
                return
            after = held[-1].name

    def mend(self, hand: Hand, finding: Finding) -> bool:
        record = _ended(hand, ref_of(finding))
        if record is None or finding.where not in record.keys:
            return False
        # Safe to repeat: fenced by the version just read.
        freed = Change(record, replace(record, keys=()), "free", hand.who, "what has ended holds no keys")
        return isinstance(hand.store.commit([Group((freed,))])[0], Committed)


def _ended(hand: Hand, ref: Ref) -> Record | None:
    if ref.kind not in hand.machines:
        return None
    try:
        record = hand.store.get(*ref)
    except NotFound:
        return None
    state = hand.machines[ref.kind].state(record.state)
    return record if state is not None and state.sort == "end" and record.session is None else None
