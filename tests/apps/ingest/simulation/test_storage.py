"""Storage in the simulator, behind a service of its own and with damaged content: planted bugs are found."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from tests.budget import Budget
from tests.simulation.seed_problems import find_seed_problems, start_at
from waybill.apps.ingest import object_versions
from waybill.apps.ingest.maintenance import unneeded_objects
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.simulation import AssemblyScenario, DepositScenario, deposits, storage_service
from waybill.apps.ingest.simulation.injected_faults import InjectedFaults
from waybill.apps.ingest.steps.access import processing
from waybill.apps.ingest.storage import (
    Deposit,
    StoredVersion,
    http_server,
    ocfl_integrity,
    ocfl_object,
    protocol,
    version_files,
    version_writer,
)
from waybill.apps.ingest.storage.protocol import StorageDamaged
from waybill.files.containers import packer
from waybill.files.staged_content import StagedContent
from waybill.maintenance import temporary_files
from waybill.objects.streams import iter_chunks
from waybill.sim.scenario import Scenario
from waybill.sim.simulation import Simulation

Patch = pytest.MonkeyPatch


def use_storage_service(patch: Patch) -> None:
    patch.setattr(deposits, "REMOTE_STORAGE_CHANCE", 1.0)


def inject_faults(patch: Patch) -> None:
    patch.setattr(deposits, "FAULT_CHANCE", 1.0)


# --- what must happen, if breaking no rule is to mean anything


def test_a_storage_service_stores(monkeypatch: Patch) -> None:
    """Also after its processes died, requests came twice, and answers were lost."""
    use_storage_service(monkeypatch)
    done, met = 0, set[str]()
    answer_request = storage_service.answer_request

    def note(backend: Any, verb: str, *rest: Any) -> Any:
        answer = answer_request(backend, verb, *rest)
        met.add(f"{verb} {answer.status}")
        return answer

    monkeypatch.setattr(storage_service, "answer_request", note)
    wanted = {
        "PUT staged 201",
        "PUT staged 200",
        "POST versions 200",
        "POST versions 409",
        "GET request 200",
        "GET request 404",
    }
    seeds = range(140, 640)  # two that write the same object at once come in one of seventy
    for count, seed in enumerate(seeds, start=1):
        simulation = Simulation(seed, DepositScenario, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, DepositScenario)
        done += simulation.scenario.completed_count > 0
        if met >= wanted and count >= 40:
            break
    assert done > 0.4 * count
    assert met >= wanted


def test_damaged_content_is_restored(monkeypatch: Patch) -> None:
    inject_faults(monkeypatch)
    healed = 0
    for seed in range(40):
        simulation = Simulation(seed, DepositScenario, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, DepositScenario)
        healed += simulation.scenario.faults.count_repaired() > 0
    assert healed > 5


# --- bugs of a service elsewhere


def each_post_makes_a_version(patch: Patch) -> None:
    use_storage_service(patch)
    numbers = itertools.count()

    def anew(self: Any, object_id: str, request: str, data: Iterator[bytes]) -> StoredVersion:
        lines = protocol.split_lines(data)
        head, place = protocol.decode_head(next(lines)), http_server.staging_place_of(object_id, request)
        fields = {name: getattr(head, name) for name in head.__struct_fields__}
        stored: StoredVersion = self.storage.write(
            Deposit(
                object=object_id, request=f"{request} {next(numbers)}", files=self._decode_files(lines, place), **fields
            )
        )
        return stored

    patch.setattr(http_server.DepositReceiver, "write", anew)


def what_is_staged_is_not_cleared(patch: Patch) -> None:
    use_storage_service(patch)
    patch.setattr(StagedContent, "clear", lambda self, place: None)


def what_was_sent_and_given_up_stays(patch: Patch) -> None:
    use_storage_service(patch)
    patch.setattr(unneeded_objects.StagingRemovalRoutine, "is_old", lambda routine, context, newest: False)


def what_was_staged_goes_too_early(patch: Patch) -> None:
    """A process of the service that dies over it has lost what was sent."""
    use_storage_service(patch)
    plain = http_server.DepositReceiver.write

    def hasty(self: Any, object_id: str, request: str, data: Iterator[bytes]) -> StoredVersion:
        for info in list(self.staged_content._objects.list(http_server.staging_place_of(object_id, request)))[1:]:
            self.staged_content._objects.delete(info.name)
        return plain(self, object_id, request, data)

    patch.setattr(http_server.DepositReceiver, "write", hasty)


def whoever_is_late_writes_over_what_is_there(patch: Patch) -> None:
    use_storage_service(patch)

    def blind(objects: Any, name: str, data: Any, size: int, sha256: str, etag: str | None) -> None:
        ocfl_object.put_checked(objects, name, data, size, sha256)

    patch.setattr(ocfl_object, "put_conditionally", blind)
    patch.setattr(http_server.ObjectWriteLocks, "lock_object", lambda self, object_id: nullcontext())
    patch.setattr(deposits, "CROWDED_CHANCE", 1.0)


# --- of uploads part by part


def parts_are_not_swept(patch: Patch) -> None:
    patch.setattr(temporary_files.TemporaryFileRoutine, "check", lambda routine, context: iter(()))


def an_upload_that_failed_is_not_aborted(patch: Patch) -> None:
    def kept(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        upload = objects.upload(name, keep=True)
        for number, part in enumerate(packer._split_parts(archive, 200), 1):
            upload.put_part(number, part)
        return upload.complete()

    patch.setattr(processing, "store_container", kept)


def an_archive_that_broke_off_is_completed(patch: Patch) -> None:
    def completed(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        upload = objects.upload(name)
        try:
            for number, part in enumerate(packer._split_parts(archive, 200), 1):
                upload.put_part(number, part)
        except StorageDamaged:
            pass
        return upload.complete()

    patch.setattr(processing, "store_container", completed)


# --- of healing


def nothing_is_restored(patch: Patch) -> None:
    inject_faults(patch)
    patch.setattr(version_writer, "rewrite_damaged", lambda *args, **options: [])


def storage_is_not_told_what_is_damaged(patch: Patch) -> None:
    inject_faults(patch)
    plain = object_versions.store_deposit

    class Unaware:
        def __init__(self, resources: Any) -> None:
            self._resources = resources

        def __getattr__(self, name: str) -> Any:
            return getattr(self._resources, name)

        @property
        def inventory(self) -> Any:
            return Blind(self._resources.inventory)

    class Blind:
        def __init__(self, inventory: Any) -> None:
            self._inventory = inventory

        def __getattr__(self, name: str) -> Any:
            return (lambda ark: []) if name == "list_damaged_of" else getattr(self._inventory, name)

    def unaware(ctx: Any, deposit: Deposit) -> Any:
        patch.setattr(object_versions, "resources_of", lambda ctx: Unaware(resources_of(ctx)))
        try:
            return plain(ctx, deposit)
        finally:
            patch.setattr(object_versions, "resources_of", resources_of)

    patch.setattr(object_versions, "store_deposit", unaware)


def a_damaged_file_goes_before_the_right_one_is_there(patch: Patch) -> None:
    inject_faults(patch)

    def hasty(objects: Any, root: str, sources: Any, *, contents: Any, damaged_places: Any, **more: Any) -> list[str]:
        for content in contents:
            if content.place in damaged_places:
                objects.delete(f"{root}/{content.place}")
        return version_files.rewrite_damaged(
            objects, root, sources, contents=contents, damaged_places=damaged_places, **more
        )

    patch.setattr(version_writer, "rewrite_damaged", hasty)


def a_damaged_file_is_replaced_by_half_of_it(patch: Patch) -> None:
    inject_faults(patch)

    def half(
        objects: Any, root: str, sources: Any, *, contents: Any, damaged_places: Any, files: Any, check: Any
    ) -> list[str]:
        brought = {wanted.sha256: wanted for wanted in files.values() if wanted.source}
        for content in contents:
            if content.place in damaged_places and content.sha256 in brought:
                with sources(brought[content.sha256].source) as data:
                    body = b"".join(iter_chunks(data))
                objects.put(f"{root}/{content.place}", body[: len(body) // 2])
        return []

    patch.setattr(version_writer, "rewrite_damaged", half)


def a_recovery_removes_what_is_needed(patch: Patch) -> None:
    plain = ocfl_integrity.remove_below
    patch.setattr(
        version_writer,
        "remove_below",
        lambda objects, root, needless: plain(objects, root, lambda name, info: "content/" in name),
    )
    patch.setattr(deposits, "CROWDED_CHANCE", 1.0)


def injected_faults_are_unknown(patch: Patch) -> None:
    """Not a bug of the system: the audit at the end must find the damage."""
    inject_faults(patch)
    patch.setattr(InjectedFaults, "find_damaged", lambda self: {})


BUGS: dict[Callable[[Patch], None], tuple[type[Scenario], Sequence[str]]] = {
    each_post_makes_a_version: (DepositScenario, ("versions of", "no version of it")),
    what_is_staged_is_not_cleared: (DepositScenario, ("is still staged",)),
    what_was_sent_and_given_up_stays: (DepositScenario, ("is left at the storage service",)),
    what_was_staged_goes_too_early: (DepositScenario, ("although it has sent",)),
    whoever_is_late_writes_over_what_is_there: (DepositScenario, ("",)),
    parts_are_not_swept: (DepositScenario, ("nobody finishes them",)),
    an_upload_that_failed_is_not_aborted: (AssemblyScenario, ("no process has died",)),
    an_archive_that_broke_off_is_completed: (AssemblyScenario, ("its archive is",)),
    nothing_is_restored: (DepositScenario, ("is still damaged",)),
    storage_is_not_told_what_is_damaged: (DepositScenario, ("is still damaged",)),
    a_damaged_file_goes_before_the_right_one_is_there: (DepositScenario, ("a version needs it",)),
    a_damaged_file_is_replaced_by_half_of_it: (DepositScenario, ("bytes of another digest",)),
    a_recovery_removes_what_is_needed: (DepositScenario, ("a version needs it",)),
    injected_faults_are_unknown: (DepositScenario, ("an audit says otherwise", "not those that were submitted")),
}
FIRST_SEEDS: dict[Callable[[Patch], None], int] = {  # where many seeds do not show it
    what_was_sent_and_given_up_stays: 65,
    whoever_is_late_writes_over_what_is_there: 256,
    parts_are_not_swept: 84,
    an_upload_that_failed_is_not_aborted: 9,
    storage_is_not_told_what_is_damaged: 43,
    a_recovery_removes_what_is_needed: 47,
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch, budget: Budget) -> None:
    plant(monkeypatch)
    seeds = start_at(budget.pick(small=FIRST_SEEDS.get(plant, 0), long=0), 400)
    scenario, words = BUGS[plant]
    found = (any(each in problem for each in words) for problem in find_seed_problems(scenario, "model", seeds))
    assert any(found), f"{plant.__name__} was not found"
