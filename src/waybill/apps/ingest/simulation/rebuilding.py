"""Rebuilding in the simulator: the inventory is recorded again while deposits go on, and must tell the same as
storage at the end.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from waybill.apps.ingest.inventory.about import About
from waybill.apps.ingest.rebuilding import KIND, arks_of, order, portions
from waybill.apps.ingest.storage import MANIFEST, NotStored, OcflStorage, Stored
from waybill.engine import Engine
from waybill.record import Record
from waybill.sim.ledger import Violation

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.around import Surroundings


class Rebuilds:
    """Asked for now and then; before some of them the inventory has lost files, which the rebuild must bring back."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.recorded: dict[str, dict[int, None]] = {}  # by object: versions that jobs have recorded
        # objects that lost files, and which rebuild brings them back: empty, if nobody knows
        self.torn: dict[str, str] = {}

    def ask(self, engine: Engine) -> None:
        """What `waybill ingest rebuild --all` does."""
        outfit, world = self.around.outfit(), self.around.world
        for portion in portions(outfit.storage, most=2):
            torn = [ark for ark in portion.arks if world.chance(0.3) and self._tear(ark)]
            if portion.arks:
                asked = engine.submit(order(portion.arks, owner="rebuilder"), who="rebuilder")
                self.torn.update(dict.fromkeys(torn, asked.id))

    def _tear(self, ark: str) -> bool:
        inventory = self.around.catalogue
        if not (versions := inventory.versions(ark)):
            return False
        self.torn[ark] = ""
        return bool(inventory.shelf.execute("forget_files", ark=ark, number=versions[-1]["number"], portion=1))

    def changed(self, record: Record) -> None:
        if record.kind == "job" and record.state == "Notify":
            stored = record.docs["stored"]
            self.recorded.setdefault(stored["object"], {})[stored["version"]] = None
            self._is_known(stored["object"])
        if record.kind == KIND and record.state == "Completed":
            arks = arks_of(record)
            for ark in arks:
                if self.torn.get(ark) == record.id:
                    del self.torn[ark]
                self._is_known(ark)
            for problem in self.differences(arks):
                raise Violation(f"{record.ref} is Completed, and {problem}")

    def _is_known(self, ark: str) -> None:
        """What was recorded once is there from then on, whoever records it again."""
        for number in self.recorded.get(ark, ()):
            if self.around.catalogue.stored(ark, number) is None:
                raise Violation(f"the inventory had version {number} of {ark}, and has it no more")

    def differences(self, arks: Container[str] | None = None) -> Iterator[str]:
        """Where the inventory does not say what storage says; of these objects, or of all."""
        inventory, storage = self.around.catalogue, self.around.storage()
        for row in inventory.search(most=1000).rows:
            if arks is not None and row["ark"] not in arks:
                continue
            ark, numbers = row["ark"], [version["number"] for version in inventory.versions(row["ark"])]
            if numbers and row["head"] != max(numbers):
                yield f"the newest version of {ark} in the inventory is {max(numbers)}, and it says {row['head']}"
            for number in numbers:
                try:
                    stored = storage.stored(ark, number)
                except NotStored:
                    yield f"the inventory has version {number} of {ark}, and storage has not"
                    continue
                if inventory.stored(ark, number) != stored:
                    yield f"the inventory knows version {number} of {ark} otherwise than storage"
                elif ark not in self.torn:
                    yield from self._files(storage, stored)
                yield from self._local_ids(storage, stored)

    def _local_ids(self, storage: OcflStorage, stored: Stored) -> Iterator[str]:
        """Each leads to its object: a deposit that does not find it would make a second one."""
        with storage.manifest(stored) as reader:
            about = About.of(reader.header)
        for local in about.local_ids:
            if (found := self.around.catalogue.ark_of(about.owner, local)) != stored.object:
                yield f"the local id {local} of {stored.object} leads to {found or 'nothing'}"

    def _files(self, storage: OcflStorage, stored: Stored) -> Iterator[str]:
        page = self.around.catalogue.files(stored.object, stored.version, most=1000)
        found = {row["path"]: (row["place"], row["sha256"]) for row in page.rows}
        with storage.manifest(stored) as reader:
            told = {entry.uri: (entry.extra["place"], entry.sha256) for entry in reader}
        if found != {**told, MANIFEST: (stored.place, stored.sha256)}:
            lost, version = sorted(set(told) - set(found)), f"version {stored.version} of {stored.object}"
            yield f"the inventory has {len(found)} files of {version}; storage has others, such as {lost[:3]}"
