"""Illness in the simulator: content at rest changes by itself, or is gone, and deposits that bring the same bytes
heal it.

What must hold:

    content that a version has is never deleted, and never replaced by anything but the bytes that its name says
    a write that knows of damage, and brings the bytes, leaves them whole: whoever dies over it, the next one does it
    whatever is wrong at the end fell ill, and was not brought again since
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from waybill.apps.ingest.duties.audit import audit_some
from waybill.apps.ingest.storage import MANIFEST, Deposit, OcflStorage, Stored, Unsound
from waybill.apps.ingest.storage.holding import load
from waybill.apps.ingest.storage.root import Root
from waybill.engine import Engine
from waybill.objects import NotFound
from waybill.sim.ledger import Violation

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.around import Surroundings

LONG_AGO = 5.0  # seconds; longer than a step that nothing holds up


class Ill(NamedTuple):
    ark: str
    place: str
    times: int  # so often, by now


class Illness:
    def __init__(self, around: Surroundings) -> None:
        self.around, self.rng = around, around.world.rng
        self.fallen: dict[str, Ill] = {}  # by the name of the object, whether healed or not
        self._root = Root(around.kept, "ocfl")
        self._writers: dict[str, int] = {}  # writes under way, by object
        self._entered: dict[str, int] = {}  # and how many there ever were

    # --- what goes wrong, and who looks

    def strike(self, engine: Engine) -> None:
        """Some content that is recorded changes, or goes."""
        catalogue, rng, objects = self.around.catalogue, self.rng, self.around.kept
        rows = catalogue.search(most=100).rows
        if not rows:
            return
        ark = rng.choice(rows)["ark"]
        numbers = [version["number"] for version in catalogue.versions(ark)]
        files = (
            [row for row in catalogue.files(ark, rng.choice(numbers), most=1000).rows if row["path"] != MANIFEST]
            if numbers
            else []
        )
        if not files:
            return
        place = rng.choice(files)["place"]
        name = self.name_of(ark, place)
        if self.is_wrong(name):
            return
        with objects.get(name) as body:
            data = body.read()
        self.fallen[name] = Ill(ark, place, self.fallen[name].times + 1 if name in self.fallen else 1)
        objects.spoil(name, rng.choice((data[:-1] + b"?", b"", None)))
        self.around.world.simulation.note(f"{place} of {ark} falls ill")

    def look(self, engine: Engine) -> None:
        """What `waybill ingest audit --all` does."""
        audit_some(self.around.outfit(), engine, before=engine.store.now() + 1.0, most=1000, who="auditor")

    # --- what must hold

    def name_of(self, ark: str, place: str) -> str:
        return f"{self._root.place(ark)}/{place}"

    def is_wrong(self, name: str) -> bool:
        try:
            with self.around.kept.get(name) as body:
                return hashlib.sha256(body.read()).hexdigest() != name.rpartition("/")[2]
        except NotFound:
            return True

    def sick(self) -> dict[tuple[str, str], None]:
        """What is damaged now, by object and place."""
        return {(ill.ark, ill.place): None for name, ill in self.fallen.items() if self.is_wrong(name)}

    def healed(self) -> int:
        """How much that fell ill is whole again."""
        return len(self.fallen) - len(self.sick())

    def guard(self, name: str, data: bytes | None) -> None:
        """Something in storage is to be replaced, or to go."""
        root, content, sha256 = name.rpartition("/content/")
        if not content or not name.startswith("ocfl/"):
            return
        root, _, version = root.rpartition("/")
        if data is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise Violation(f"{name} is replaced by bytes that are not what it is called")
        if data is None and self._needed(root, f"{version}/content/{sha256}"):
            raise Violation(f"{name} goes, and a version needs it")

    def _needed(self, root: str, place: str) -> bool:
        try:
            held = load(self.around.kept, root)
        except Unsound:
            return False
        return held is not None and any(place in places for places in held.inventory.manifest.values())

    def _noted(self, ark: str) -> Iterator[str]:
        """What an audit has noted, so long ago that whoever writes now must know of it: in calm weather nobody is
        late.
        """
        simulation = self.around.world.simulation
        if simulation.profile.weather == "calm" and self.fallen:
            for row in self.around.catalogue.damaged_of(ark):
                if datetime.fromisoformat(row["audited"]).timestamp() < simulation.hub.now - LONG_AGO:
                    yield str(row["place"])

    @contextmanager
    def writing(self, storage: OcflStorage, deposit: Deposit, made: Sequence[Stored]) -> Iterator[None]:
        """A write that knows of damage, was alone, and has made its version: nothing that it brought is damaged any
        more.
        """
        ark = deposit.object
        known = [self.name_of(ark, place) for place in (*deposit.damaged, *self._noted(ark))]
        ill = {name: self.fallen[name].times for name in known if name in self.fallen and self.is_wrong(name)}
        before = storage.look(ark, deposit.request)
        self._writers[ark] = self._writers.get(ark, 0) + 1
        alone, count = self._writers[ark] == 1, self._entered.get(ark, 0) + 1
        self._entered[ark] = count
        try:
            yield
        finally:
            self._writers[ark] -= 1
        if not ill or before is not None or not alone or self._entered[ark] != count or deposit.mode != "add":
            return
        with storage.manifest(made[0]) as reader:
            for entry in reader:
                name = self.name_of(ark, str(entry.extra["place"]))
                if name in ill and self.fallen[name].times == ill[name] and self.is_wrong(name):
                    raise Violation(
                        f"{entry.uri} of {ark} was known to be damaged, was brought again, and is damaged still"
                    )
