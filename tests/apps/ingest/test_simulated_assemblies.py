"""Assemblies in the simulator: many seeds pass, and bugs that are planted in packing, asking and expiry are found."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.budget import Budget
from tests.simulation.stories import problems
from waybill.apps.ingest.access import asking, contents, tokens
from waybill.apps.ingest.duties import audit, expiry
from waybill.apps.ingest.simulation import Assemblies
from waybill.record import Change, Record
from waybill.sim.ledger import Ledger
from waybill.sim.simulation import Simulation

Patch = pytest.MonkeyPatch
assembling = importlib.import_module("waybill.apps.ingest.steps.assembling")


@pytest.mark.parametrize("slice_", range(4))
def test_seeds_on_the_model(slice_: int, budget: Budget) -> None:
    count = budget.pick(small=80, long=8_000) // 4
    assert list(problems(Assemblies, "model", range(slice_ * count, (slice_ + 1) * count))) == []


def test_seeds_on_sqlite(budget: Budget) -> None:
    assert list(problems(Assemblies, "sqlite", range(10_000, 10_000 + budget.pick(small=15, long=1_000)))) == []


def test_assemblies_are_fetched() -> None:
    """What nobody ever fetches breaks no rule."""
    done = 0
    for seed in range(30):
        simulation = Simulation(seed, Assemblies, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, Assemblies)
        done += simulation.scenario.fetched > 0
    assert done > 5


def test_everything_that_can_become_of_them_does(monkeypatch: Patch) -> None:
    seen: set[tuple[str, str, str, str]] = set()
    changed = Ledger._changed

    def note(ledger: Ledger, change: Change, record: Record | None) -> None:
        by = "duty" if change.who.startswith("duty") else ""
        seen.add((change.before.state if change.before else "", change.event, record.state if record else "", by))
        changed(ledger, change, record)

    monkeypatch.setattr(Ledger, "_changed", note)
    assert list(problems(Assemblies, "model", range(1000, 1120))) == []
    assert seen >= {
        ("Pending", "done", "Processing", ""),
        ("Processing", "done", "Completed", ""),
        ("Processing", "fail", "Failed", ""),
        ("Failed", "requeue", "Pending", ""),
        ("Completed", "delete", "Deleted", ""),
        ("Completed", "delete", "Deleted", "duty"),
        ("Failed", "delete", "Deleted", "duty"),
        ("Deleted", "remove", "", "duty"),
        ("Completed", "remove", "", ""),
    }


# --- bugs


def an_archive_is_kept_though_it_broke_off(patch: Patch) -> None:
    def half(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        data = b"".join(archive)
        return objects.put(name, data[: len(data) // 2])

    patch.setattr(assembling, "_keep", half)


def it_is_ready_before_its_archive_is_written(patch: Patch) -> None:
    kept: list[tuple[str, bytes]] = []

    def later(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        for before, data in kept:
            objects.put(before, data)
        kept[:] = [(name, b"".join(archive))]
        return objects.put(f"{name}.unfinished", kept[0][1])

    patch.setattr(assembling, "_keep", later)


def bytes_are_not_verified(patch: Patch) -> None:
    def believed(self: Any, stored: Any, entry: Any) -> Iterator[bytes]:
        with self._storage.read(stored.object, str(entry.extra.get("place", ""))) as body:
            yield from body

    patch.setattr(contents.Contents, "_read", believed)


def the_newest_version_is_packed(patch: Patch) -> None:
    plain = contents.Contents._stored
    patch.setattr(contents.Contents, "_stored", lambda self, ark, number: plain(self, ark, 0))


def the_list_of_names_is_forgotten(patch: Patch) -> None:
    patch.setattr(assembling.Order, "named", lambda order, objects: None)


def a_file_is_left_out(patch: Patch) -> None:
    plain = contents.Contents._entries
    patch.setattr(contents.Contents, "_entries", lambda self, stored: itertools.islice(plain(self, stored), 2))


def pending_does_not_lead_the_token(patch: Patch) -> None:
    """Whoever asked may have died before he did it."""
    patch.setattr(assembling, "tokens", SimpleNamespace(**{**vars(tokens), "point": lambda objects, record: None}))


def what_is_over_is_handed_out_again(patch: Patch) -> None:
    patch.setattr(asking, "is_alive", lambda record, now, keep: True)


def files_stay_when_the_record_goes(patch: Patch) -> None:
    patch.setattr(expiry.tokens, "remove_all", lambda objects, place: 0)


def everything_ready_is_deleted(patch: Patch) -> None:
    patch.setattr(expiry, "_is_over", lambda record, now, keep: True)


def nothing_is_ever_over(patch: Patch) -> None:
    patch.setattr(expiry, "_is_over", lambda record, now, keep: False)


def files_go_before_it_is_deleted(patch: Patch) -> None:
    plain = expiry.Expiry.mend

    def hasty(duty: Any, hand: Any, finding: Any) -> bool:
        if finding.ref is not None:
            tokens.remove_all(
                expiry._outfit(hand).objects, tokens.place_of(tokens.token_of(hand.store.get(*finding.ref)))
            )
        return plain(duty, hand, finding)

    patch.setattr(expiry.Expiry, "mend", hasty)
    patch.setattr(expiry, "_is_over", lambda record, now, keep: record.state == "Completed")


def strays_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(expiry.Expiry, "_strays", lambda duty, hand: iter(()))


def an_audit_reads_nothing(patch: Patch) -> None:
    def unread(outfit: Any, rows: Any) -> Iterator[Any]:
        for row in rows:
            yield row, None

    patch.setattr(audit, "_read_all", unread)


def an_audit_takes_sound_content_for_damage(patch: Patch) -> None:
    plain = audit._read_all

    def wary(outfit: Any, rows: Any) -> Iterator[Any]:
        for row, finding in plain(outfit, rows):
            odd = audit.Damage(kind="changed", place=row["place"], words="It looks odd.") if row["size"] == 22 else None
            yield row, finding or odd

    patch.setattr(audit, "_read_all", wary)


BUGS: dict[Callable[[Patch], None], str] = {
    an_archive_is_kept_though_it_broke_off: "its archive is",
    it_is_ready_before_its_archive_is_written: "its archive is not there",
    bytes_are_not_verified: "its archive is not what was asked for",
    the_newest_version_is_packed: "its archive is not what was asked for",
    the_list_of_names_is_forgotten: "its archive is not what was asked for",
    a_file_is_left_out: "its archive is not what was asked for",
    pending_does_not_lead_the_token: "its token does not lead to it",
    what_is_over_is_handed_out_again: "whoever asks is answered",
    files_stay_when_the_record_goes: "stays when everything is long over",
    everything_ready_is_deleted: "is deleted as expired, and has not",
    nothing_is_ever_over: "when everything is long over",
    files_go_before_it_is_deleted: "it is Completed and has not expired",
    strays_are_not_looked_for: "stays when everything is long over",
    an_audit_reads_nothing: "no audit says so",
    an_audit_takes_sound_content_for_damage: "an audit says otherwise",
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert any(BUGS[plant] in problem for problem in problems(Assemblies, "model", range(300))), (
        f"{plant.__name__} was not found"
    )
