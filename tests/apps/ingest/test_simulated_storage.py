"""Storage in the simulator, behind a service of its own, and with content that falls ill: bugs that are planted
there are found.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.simulation.stories import problems
from waybill.apps.ingest.duties import staged
from waybill.apps.ingest.simulation import Assemblies, Deposits, deposits
from waybill.apps.ingest.simulation.illness import Illness
from waybill.apps.ingest.storage import Deposit, Stored, counter, healing, holding, recovery, wire, writing
from waybill.duties import leftovers
from waybill.objects.streams import portions
from waybill.sim.scenario import Scenario
from waybill.sim.simulation import Simulation

Patch = pytest.MonkeyPatch
assembling = importlib.import_module("waybill.apps.ingest.steps.assembling")
depositing = importlib.import_module("waybill.apps.ingest.steps.depositing")


def elsewhere(patch: Patch) -> None:
    patch.setattr(deposits, "ELSEWHERE", 1.0)


def ill(patch: Patch) -> None:
    patch.setattr(deposits, "ILL", 1.0)


# --- what must happen, if breaking no rule is to mean anything


def test_a_service_elsewhere_stores(monkeypatch: Patch) -> None:
    """Also after its processes died, requests came twice, and answers were lost."""
    elsewhere(monkeypatch)
    done, met = 0, set[str]()
    answer = importlib.import_module("waybill.apps.ingest.simulation.elsewhere").answer

    def noted(counter: Any, verb: str, *rest: Any) -> Any:
        told = answer(counter, verb, *rest)
        met.add(f"{verb} {told.status}")
        return told

    monkeypatch.setattr("waybill.apps.ingest.simulation.elsewhere.answer", noted)
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
        simulation = Simulation(seed, Deposits, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, Deposits)
        done += simulation.scenario.completed > 0
        if met >= wanted and count >= 40:
            break
    assert done > 0.4 * count
    assert met >= wanted


def test_what_is_ill_is_healed(monkeypatch: Patch) -> None:
    ill(monkeypatch)
    healed = 0
    for seed in range(40):
        simulation = Simulation(seed, Deposits, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, Deposits)
        healed += simulation.scenario.illness.healed() > 0
    assert healed > 5


# --- bugs of a service elsewhere


def each_post_makes_a_version(patch: Patch) -> None:
    elsewhere(patch)
    numbers = itertools.count()

    def anew(self: Any, object_id: str, request: str, data: Iterator[bytes]) -> Stored:
        lines = wire.split_lines(data)
        head, place = wire.read_head(next(lines)), counter.place_of(object_id, request)
        told = {name: getattr(head, name) for name in head.__struct_fields__}
        stored: Stored = self.storage.write(
            Deposit(object=object_id, request=f"{request} {next(numbers)}", files=self._files(lines, place), **told)
        )
        return stored

    patch.setattr(counter.Counter, "write", anew)


def what_is_staged_is_not_cleared(patch: Patch) -> None:
    elsewhere(patch)
    patch.setattr(counter.Staged, "clear", lambda self, place: None)


def what_was_sent_and_given_up_stays(patch: Patch) -> None:
    elsewhere(patch)
    patch.setattr(staged.Staged, "left", lambda duty, hand, newest: False)


def what_was_staged_goes_too_early(patch: Patch) -> None:
    """A process of the service that dies over it has lost what was sent."""
    elsewhere(patch)
    plain = counter.Counter.write

    def hasty(self: Any, object_id: str, request: str, data: Iterator[bytes]) -> Stored:
        for info in list(self.staged._objects.list(counter.place_of(object_id, request)))[1:]:
            self.staged._objects.delete(info.name)
        return plain(self, object_id, request, data)

    patch.setattr(counter.Counter, "write", hasty)


def whoever_is_late_writes_over_what_is_there(patch: Patch) -> None:
    elsewhere(patch)

    def blind(objects: Any, name: str, data: Any, size: int, sha256: str, etag: str | None) -> None:
        holding.put_checked(objects, name, data, size, sha256)

    patch.setattr(holding, "put_guarded", blind)
    patch.setattr(counter.Busy, "alone", lambda self, object_id: _nobody())
    patch.setattr(deposits, "CROWDED", 1.0)


class _nobody:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


# --- of uploads part by part


def parts_are_not_swept(patch: Patch) -> None:
    patch.setattr(leftovers.Leftovers, "check", lambda duty, hand: iter(()))


def an_upload_that_failed_is_not_aborted(patch: Patch) -> None:
    def kept(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        upload = objects.upload(name, keep=True)
        for number, part in enumerate(assembling._parts(archive, 200), 1):
            upload.part(number, part)
        return upload.complete()

    patch.setattr(assembling, "_keep", kept)


def an_archive_that_broke_off_is_completed(patch: Patch) -> None:
    def completed(objects: Any, name: str, archive: Iterator[bytes], content: int, parts: Any) -> Any:
        upload = objects.upload(name)
        try:
            for number, part in enumerate(assembling._parts(archive, 200), 1):
                upload.part(number, part)
        except assembling.Unfit:
            pass
        return upload.complete()

    patch.setattr(assembling, "_keep", completed)


# --- of healing


def nothing_is_healed(patch: Patch) -> None:
    ill(patch)
    patch.setattr(writing, "heal", lambda *args, **options: [])


def storage_is_not_told_what_is_damaged(patch: Patch) -> None:
    ill(patch)
    plain = depositing.stored
    outfits = depositing.outfit_of

    class Unaware:
        def __init__(self, outfit: Any) -> None:
            self._outfit = outfit

        def __getattr__(self, name: str) -> Any:
            return getattr(self._outfit, name)

        @property
        def inventory(self) -> Any:
            return Blind(self._outfit.inventory)

    class Blind:
        def __init__(self, inventory: Any) -> None:
            self._inventory = inventory

        def __getattr__(self, name: str) -> Any:
            return (lambda ark: []) if name == "damaged_of" else getattr(self._inventory, name)

    def unaware(ctx: Any, deposit: Deposit) -> Any:
        patch.setattr(depositing, "outfit_of", lambda ctx: Unaware(outfits(ctx)))
        try:
            return plain(ctx, deposit)
        finally:
            patch.setattr(depositing, "outfit_of", outfits)

    patch.setattr(depositing, "stored", unaware)


def a_damaged_file_goes_before_the_right_one_is_there(patch: Patch) -> None:
    ill(patch)

    def hasty(objects: Any, root: str, sources: Any, *, contents: Any, damaged: Any, **more: Any) -> list[str]:
        for content in contents:
            if content.place in damaged:
                objects.delete(f"{root}/{content.place}")
        return healing.heal(objects, root, sources, contents=contents, damaged=damaged, **more)

    patch.setattr(writing, "heal", hasty)


def a_damaged_file_is_replaced_by_half_of_it(patch: Patch) -> None:
    ill(patch)

    def half(
        objects: Any, root: str, sources: Any, *, contents: Any, damaged: Any, files: Any, check: Any
    ) -> list[str]:
        brought = {wanted.sha256: wanted for wanted in files.values() if wanted.source}
        for content in contents:
            if content.place in damaged and content.sha256 in brought:
                with sources(brought[content.sha256].source) as data:
                    body = b"".join(portions(data))
                objects.put(f"{root}/{content.place}", body[: len(body) // 2])
        return []

    patch.setattr(writing, "heal", half)


def a_recovery_removes_what_is_needed(patch: Patch) -> None:
    plain = recovery.remove_below
    patch.setattr(
        writing,
        "remove_below",
        lambda objects, root, needless: plain(objects, root, lambda name, info: "content/" in name),
    )
    patch.setattr(deposits, "CROWDED", 1.0)


def illness_is_seen_by_nobody(patch: Patch) -> None:
    """Not a bug of the system: what falls ill must be found by the audit at the end."""
    ill(patch)
    patch.setattr(Illness, "sick", lambda self: {})


BUGS: dict[Callable[[Patch], None], tuple[type[Scenario], Sequence[str]]] = {
    each_post_makes_a_version: (Deposits, ("versions of", "no version of it")),
    what_is_staged_is_not_cleared: (Deposits, ("is staged still",)),
    what_was_sent_and_given_up_stays: (Deposits, ("stays with the other service",)),
    what_was_staged_goes_too_early: (Deposits, ("had sent all",)),
    whoever_is_late_writes_over_what_is_there: (Deposits, ("",)),
    parts_are_not_swept: (Deposits, ("nobody finishes them",)),
    an_upload_that_failed_is_not_aborted: (Assemblies, ("nobody has died",)),
    an_archive_that_broke_off_is_completed: (Assemblies, ("its archive is",)),
    nothing_is_healed: (Deposits, ("is damaged still",)),
    storage_is_not_told_what_is_damaged: (Deposits, ("is damaged still",)),
    a_damaged_file_goes_before_the_right_one_is_there: (Deposits, ("a version needs it",)),
    a_damaged_file_is_replaced_by_half_of_it: (Deposits, ("are not what it is called",)),
    a_recovery_removes_what_is_needed: (Deposits, ("a version needs it",)),
    illness_is_seen_by_nobody: (Deposits, ("an audit says otherwise", "not those that were submitted")),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    scenario, words = BUGS[plant]
    found = (any(each in problem for each in words) for problem in problems(scenario, "model", range(400)))
    assert any(found), f"{plant.__name__} was not found"
