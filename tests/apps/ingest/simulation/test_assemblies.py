"""Assemblies in the simulator: many seeds pass, and bugs that are planted in packing, asking and expiry are found."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.budget import Budget
from tests.simulation.seed_problems import find_seed_problems, start_at
from waybill.apps.ingest import documents
from waybill.apps.ingest.access import archives, orders, tokens
from waybill.apps.ingest.maintenance import assembly_expiry, audit
from waybill.apps.ingest.simulation import AssemblyScenario
from waybill.apps.ingest.steps.access import pending, processing
from waybill.apps.ingest.storage import StorageFinding
from waybill.record import Change, Record
from waybill.sim.invariant_checker import InvariantChecker
from waybill.sim.simulation import Simulation

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("slice_", range(4))
def test_seeds_on_the_model(slice_: int, budget: Budget) -> None:
    count = budget.pick(small=80, long=8_000) // 4
    assert list(find_seed_problems(AssemblyScenario, "model", range(slice_ * count, (slice_ + 1) * count))) == []


def test_seeds_on_sqlite(budget: Budget) -> None:
    assert (
        list(find_seed_problems(AssemblyScenario, "sqlite", range(10_000, 10_000 + budget.pick(small=15, long=1_000))))
        == []
    )


def test_assemblies_are_fetched() -> None:
    """What nobody ever fetches breaks no rule."""
    done = 0
    for seed in range(30):
        simulation = Simulation(seed, AssemblyScenario, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, AssemblyScenario)
        done += simulation.scenario.fetch_count > 0
    assert done > 5


def test_everything_that_can_become_of_them_does(monkeypatch: Patch) -> None:
    seen: set[tuple[str, str, str, str]] = set()
    check_change = InvariantChecker._check_change

    def note(checker: InvariantChecker, change: Change, record: Record | None) -> None:
        by = "maintenance" if change.who.startswith("maintenance") else ""
        seen.add((change.before.state if change.before else "", change.cause, record.state if record else "", by))
        check_change(checker, change, record)

    monkeypatch.setattr(InvariantChecker, "_check_change", note)
    assert list(find_seed_problems(AssemblyScenario, "model", range(1000, 1120))) == []
    assert seen >= {
        ("Pending", "done", "Processing", ""),
        ("Processing", "done", "Completed", ""),
        ("Processing", "fail", "Failed", ""),
        ("Failed", "requeue", "Pending", ""),
        ("Completed", "delete", "Deleted", ""),
        ("Completed", "delete", "Deleted", "maintenance"),
        ("Failed", "delete", "Deleted", "maintenance"),
        ("Deleted", "remove", "", "maintenance"),
        ("Completed", "remove", "", ""),
    }


# --- bugs


def a_truncated_archive_is_stored(patch: Patch) -> None:
    def half(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        data = b"".join(archive)
        return objects.put(name, data[: len(data) // 2])

    patch.setattr(processing, "store_container", half)


def it_is_ready_before_its_archive_is_written(patch: Patch) -> None:
    kept: list[tuple[str, bytes]] = []

    def later(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        for before, data in kept:
            objects.put(before, data)
        kept[:] = [(name, b"".join(archive))]
        return objects.put(f"{name}.unfinished", kept[0][1])

    patch.setattr(processing, "store_container", later)


def bytes_are_not_verified(patch: Patch) -> None:
    def believed(self: Any, stored: Any, entry: Any) -> Iterator[bytes]:
        with self._storage.read(stored.object, str(entry.extra.get("place", ""))) as body:
            yield from body

    patch.setattr(archives.ArchiveContents, "_read", believed)


def the_newest_version_is_packed(patch: Patch) -> None:
    plain = archives.ArchiveContents._find_version
    patch.setattr(archives.ArchiveContents, "_find_version", lambda self, ark, number: plain(self, ark, 0))


def the_list_of_names_is_forgotten(patch: Patch) -> None:
    patch.setattr(documents.AssemblyOrder, "read_file_names", lambda order, objects: None)


def a_file_is_left_out(patch: Patch) -> None:
    plain = archives.ArchiveContents._iter_entries
    patch.setattr(
        archives.ArchiveContents, "_iter_entries", lambda self, stored: itertools.islice(plain(self, stored), 2)
    )


def pending_writes_no_pointer(patch: Patch) -> None:
    """The process of the request may have died before it did."""
    patch.setattr(pending, "tokens", SimpleNamespace(**{**vars(tokens), "write_pointer": lambda objects, record: None}))


def an_expired_assembly_is_returned_again(patch: Patch) -> None:
    patch.setattr(orders, "is_alive", lambda record, now, keep: True)


def files_stay_when_the_record_goes(patch: Patch) -> None:
    patch.setattr(tokens, "remove_files", lambda objects, place: 0)


def everything_ready_is_deleted(patch: Patch) -> None:
    patch.setattr(assembly_expiry, "_is_expired", lambda record, now, keep: True)


def nothing_expires(patch: Patch) -> None:
    patch.setattr(assembly_expiry, "_is_expired", lambda record, now, keep: False)


def files_go_before_it_is_deleted(patch: Patch) -> None:
    plain = assembly_expiry.AssemblyExpiryRoutine.repair

    def hasty(routine: Any, context: Any, finding: Any) -> bool:
        if finding.ref is not None:
            tokens.remove_files(
                assembly_expiry._resources_of(context).objects,
                tokens.place_of(tokens.token_of(context.store.get(*finding.ref))),
            )
        return plain(routine, context, finding)

    patch.setattr(assembly_expiry.AssemblyExpiryRoutine, "repair", hasty)
    patch.setattr(assembly_expiry, "_is_expired", lambda record, now, keep: record.state == "Completed")


def strays_are_not_found(patch: Patch) -> None:
    patch.setattr(assembly_expiry.AssemblyExpiryRoutine, "_find_strays", lambda routine, context: iter(()))


def an_audit_reads_nothing(patch: Patch) -> None:
    def unread(resources: Any, rows: Any) -> Iterator[Any]:
        for row in rows:
            yield row, None

    patch.setattr(audit, "_read_all", unread)


def an_audit_reports_intact_content_as_damaged(patch: Patch) -> None:
    plain = audit._read_all

    def wary(resources: Any, rows: Any) -> Iterator[Any]:
        for row, finding in plain(resources, rows):
            odd = (
                StorageFinding(kind="changed", place=row["place"], message="It looks odd.")
                if row["size"] == 22
                else None
            )
            yield row, finding or odd

    patch.setattr(audit, "_read_all", wary)


BUGS: dict[Callable[[Patch], None], str] = {
    a_truncated_archive_is_stored: "its archive is",
    it_is_ready_before_its_archive_is_written: "its archive does not exist",
    bytes_are_not_verified: "its archive is not what was requested",
    the_newest_version_is_packed: "its archive is not what was requested",
    the_list_of_names_is_forgotten: "its archive is not what was requested",
    a_file_is_left_out: "its archive is not what was requested",
    pending_writes_no_pointer: "its token does not lead to it",
    an_expired_assembly_is_returned_again: "a request returns",
    files_stay_when_the_record_goes: "exists long after the end",
    everything_ready_is_deleted: "deleted before it has expired",
    nothing_expires: "long after the end",
    files_go_before_it_is_deleted: "it is Completed and has not expired",
    strays_are_not_found: "exists long after the end",
    an_audit_reads_nothing: "no audit says so",
    an_audit_reports_intact_content_as_damaged: "an audit says otherwise",
}
FIRST_SEEDS: dict[Callable[[Patch], None], int] = {  # where many seeds do not show it
    bytes_are_not_verified: 9,
    pending_writes_no_pointer: 87,
    an_expired_assembly_is_returned_again: 120,
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch, budget: Budget) -> None:
    plant(monkeypatch)
    seeds = start_at(budget.pick(small=FIRST_SEEDS.get(plant, 0), long=0), 300)
    assert any(BUGS[plant] in problem for problem in find_seed_problems(AssemblyScenario, "model", seeds)), (
        f"{plant.__name__} was not found"
    )
