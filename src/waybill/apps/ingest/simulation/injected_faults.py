"""Injected faults: stored content is changed or removed, and restored by deposits that bring the same bytes.

Invariants:

    content of a version is never deleted, and only replaced by the bytes of its digest
    a write that knows of damage and brings the bytes restores them; after a crash the next write does
    all damage at the end was injected, and its bytes were not brought again since
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from waybill.apps.ingest.maintenance.audit import audit_next
from waybill.apps.ingest.storage import MANIFEST_PATH, Deposit, OcflStorage, StorageDamaged, StoredVersion
from waybill.apps.ingest.storage.ocfl_object import load_object
from waybill.apps.ingest.storage.ocfl_storage import OcflRoot
from waybill.engine import Engine
from waybill.objects import ObjectNotFound
from waybill.sim.invariant_checker import InvariantViolation

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.services import SimulatedServices

RECORDED_AGE = 5.0  # seconds; longer than an undisturbed step takes


class InjectedFault(NamedTuple):
    ark: str
    place: str
    occurrences: int


class InjectedFaults:
    def __init__(self, services: SimulatedServices) -> None:
        self.services, self.rng = services, services.world.rng
        self.injected: dict[str, InjectedFault] = {}  # by object name, restored or not
        self._root = OcflRoot(services.storage_objects, "ocfl")
        self._writers: dict[str, int] = {}  # running writes, by object
        self._write_counts: dict[str, int] = {}  # all writes, by object

    def damage_content(self, engine: Engine) -> None:
        """Change or remove some recorded content."""
        catalogue, rng, objects = self.services.inventory, self.rng, self.services.storage_objects
        rows = catalogue.search(limit=100).rows
        if not rows:
            return
        ark = rng.choice(rows)["ark"]
        numbers = [version["number"] for version in catalogue.list_versions(ark)]
        files = (
            [
                row
                for row in catalogue.list_files(ark, rng.choice(numbers), limit=1000).rows
                if row["path"] != MANIFEST_PATH
            ]
            if numbers
            else []
        )
        if not files:
            return
        place = rng.choice(files)["place"]
        name = self.name_of(ark, place)
        if self.is_damaged(name):
            return
        with objects.get(name) as body:
            data = body.read()
        self.injected[name] = InjectedFault(
            ark, place, self.injected[name].occurrences + 1 if name in self.injected else 1
        )
        objects.corrupt_object(name, rng.choice((data[:-1] + b"?", b"", None)))
        self.services.world.simulation.note(f"{place} of {ark} is damaged")

    def audit_everything(self, engine: Engine) -> None:
        """Audit everything, as `waybill ingest audit --all` does."""
        audit_next(self.services.get_resources(), engine, before=engine.store.now() + 1.0, limit=1000, who="auditor")

    def name_of(self, ark: str, place: str) -> str:
        return f"{self._root.place_of(ark)}/{place}"

    def is_damaged(self, name: str) -> bool:
        try:
            with self.services.storage_objects.get(name) as body:
                return hashlib.sha256(body.read()).hexdigest() != name.rpartition("/")[2]
        except ObjectNotFound:
            return True

    def find_damaged(self) -> dict[tuple[str, str], None]:
        """Return what is damaged now, by object and place."""
        return {(fault.ark, fault.place): None for name, fault in self.injected.items() if self.is_damaged(name)}

    def count_repaired(self) -> int:
        """Return how much damaged content is restored."""
        return len(self.injected) - len(self.find_damaged())

    def check_replacement(self, name: str, data: bytes | None) -> None:
        """Check an object of storage that is about to be replaced or removed."""
        root, content, sha256 = name.rpartition("/content/")
        if not content or not name.startswith("ocfl/"):
            return
        root, _, version = root.rpartition("/")
        if data is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise InvariantViolation(f"{name} is replaced by bytes of another digest")
        if data is None and self._is_needed(root, f"{version}/content/{sha256}"):
            raise InvariantViolation(f"{name} is removed, and a version needs it")

    def _is_needed(self, root: str, place: str) -> bool:
        try:
            stored_object = load_object(self.services.storage_objects, root)
        except StorageDamaged:
            return False
        return stored_object is not None and any(
            place in places for places in stored_object.inventory.manifest.values()
        )

    def _iter_recorded(self, ark: str) -> Iterator[str]:
        """Yield damage that was recorded long enough ago for a writer to know it; without injected crashes nobody is late."""
        simulation = self.services.world.simulation
        if simulation.profile.fault_mix == "none" and self.injected:
            for row in self.services.inventory.list_damaged_of(ark):
                if datetime.fromisoformat(row["audited"]).timestamp() < simulation.scheduler.now - RECORDED_AGE:
                    yield str(row["place"])

    @contextmanager
    def check_write(self, storage: OcflStorage, deposit: Deposit, written: Sequence[StoredVersion]) -> Iterator[None]:
        """Check that nothing is damaged that a write brought, if it knew of the damage and was the only writer."""
        ark = deposit.object
        known = [self.name_of(ark, place) for place in (*deposit.damaged_places, *self._iter_recorded(ark))]
        damaged = {
            name: self.injected[name].occurrences for name in known if name in self.injected and self.is_damaged(name)
        }
        before = storage.find_by_request(ark, deposit.request)
        self._writers[ark] = self._writers.get(ark, 0) + 1
        is_alone, count = self._writers[ark] == 1, self._write_counts.get(ark, 0) + 1
        self._write_counts[ark] = count
        try:
            yield
        finally:
            self._writers[ark] -= 1
        if (
            not damaged
            or before is not None
            or not is_alone
            or self._write_counts[ark] != count
            or deposit.mode != "add"
        ):
            return
        with storage.open_manifest(written[0]) as reader:
            for entry in reader:
                name = self.name_of(ark, str(entry.extra["place"]))
                if name in damaged and self.injected[name].occurrences == damaged[name] and self.is_damaged(name):
                    raise InvariantViolation(
                        f"{entry.uri} of {ark} was known to be damaged, was brought again, and is still damaged"
                    )
