"""Assemblies in the simulator: objects at rest are asked for, packed, fetched, deleted and expire, where any process
may die at any moment.

What must hold, besides what holds for all machines:

    an assembly is Completed when its archive is there, with exactly what was asked for; and from then on until it
    expires or is deleted whoever asks is answered with one that is under way or ready, and its token leads to it
    whoever has a token gets that archive, whole, or hears that there is none; the duty deletes only what has expired
    nothing is packed from damaged content: the assembly fails, and says what is damaged; of sound objects none fails an
    audit finds what is damaged, and nothing else when everything is long over, every assembly that was ready or had
    failed is gone, with all its files
"""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

from waybill.apps.ingest import lists
from waybill.apps.ingest.access import Order, Wanted, ask, order_of, tokens
from waybill.apps.ingest.access.order import ALL, Content, Form
from waybill.apps.ingest.application import shaped
from waybill.apps.ingest.simulation import upkeep
from waybill.apps.ingest.simulation.around import SimulatedOutfit, Surroundings
from waybill.apps.ingest.simulation.holdings import Holdings
from waybill.apps.ingest.simulation.stored import each
from waybill.duties import Duty
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.objects import NotFound
from waybill.record import Change, Record, Ref, Store
from waybill.sim.ledger import Entry, Violation
from waybill.sim.objects import MemoryObjects
from waybill.sim.scenario import Errand, Scenario
from waybill.sim.world import World
from waybill.step import New

FORMS: tuple[Form, ...] = ("zip", "zip-stored", "tar", "tar.gz")
CONTENTS: tuple[Content, ...] = ("full", "producer")
LIVING = ("Pending", "Processing", "Completed")
NAMED = (("producer/a.txt",), ("producer/a.txt", "producer/d/b.txt"), ("system/mrt-erc.txt",))


class Assemblies(Scenario):
    name = "assemblies"
    doc = "Ingest's assemblies: objects packed for people who ask, fetched while all goes wrong, deleted and expired."
    real_files: ClassVar[bool] = True
    aims: ClassVar[tuple[str, ...]] = (
        "progress",
        "before put ingest",
        "after put ingest",
        "before part",
        "before delete",
        "after delete",
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.served: dict[str, tuple[Ref, float]] = {}  # archives of completed assemblies: whose, and until when
        self.tokens: dict[str, None] = {}  # that people were given
        self.fetched = 0
        keep = self.rng.choice((10.0, 30.0, 600.0))
        self.around = Surroundings(world, _tables, {"access": {"small": 2000, "keep": keep, "pace": 1000}}, self._guard)
        self.holdings = Holdings(self.around)

    def machines(self) -> tuple[Machine, ...]:
        return self.around.tables

    def submissions(self) -> Iterator[New]:
        yield from ()

    def objects(self) -> MemoryObjects:
        return self.around.objects

    def outfit(self, kind: str) -> SimulatedOutfit:
        return self.around.outfit()

    def duties(self) -> tuple[Duty, ...]:
        return (*upkeep.some(self.rng, upkeep.STORAGE), upkeep.EXPIRY)

    # --- what people do

    def errands(self) -> Iterator[Errand]:
        rng, arks = self.rng, list(self.holdings.versions)
        unwell = rng.random() < 0.3
        for _ in range(rng.choice((3, 6, 10))):
            ask, grow = self._ask_of(rng.choice(arks)), partial(self._grow, rng.choice(arks))
            yield rng.choices((ask, self._fetch, self._act, grow, self._leave_alone), (6, 5, 2, 1, 2))[0]
            if unwell and rng.random() < 0.4:
                yield self._heal if rng.random() < 0.4 else partial(self._fall_ill, rng.choice(arks))

    def _ask_of(self, ark: str) -> Errand:
        rng = self.rng
        files: tuple[str, ...] = rng.choice(NAMED) if rng.random() < 0.3 else ()
        version = rng.choice((None, 1)) if files else rng.choice((None, 1, ALL))
        form, content = rng.choice(FORMS), rng.choice(CONTENTS)
        return partial(
            self._ask, Wanted(object=ark, version=version, form=form, content=content, files=files), rng.choice("ab")
        )

    def _ask(self, wanted: Wanted, owner: str, engine: Engine) -> None:
        began = engine.store.now()
        record, fresh = ask(engine, self.around.outfit(), wanted, owner=owner)
        over = record.state not in LIVING or (record.state == "Completed" and record.docs["packed"]["expires"] < began)
        if over and not fresh:
            raise Violation(f"whoever asks is answered with {record.ref}, which is {record.state} or has expired")
        self.tokens[tokens.token_of(record)] = None

    def _fetch(self, engine: Engine) -> None:
        """What the route does for whoever shows a token."""
        simulation, objects = self.world.simulation, self.around.objects
        for token in self.tokens:
            record = tokens.find(engine.store, objects, token)
            if record is None or record.state != "Completed" or record.docs["packed"]["expires"] < engine.store.now():
                continue
            try:
                with objects.get(record.docs["packed"]["name"]) as body:
                    data = body.read()
            except NotFound:
                now = simulation.ledger.entries.get(record.ref)
                if (
                    now is not None
                    and now.state == "Completed"
                    and record.docs["packed"]["expires"] >= simulation.hub.now
                ):
                    raise Violation(f"{record.ref} is Completed, has not expired, and cannot be fetched") from None
                continue
            self.fetched += 1
            if problem := self._differs(record, data):
                raise Violation(f"{record.ref} is fetched, and {problem}")

    def _leave_alone(self, engine: Engine) -> None:
        """Nobody comes for a while: some expire."""
        self.world.simulation.pass_time(self.rng.random() * 40.0)

    def _act(self, engine: Engine) -> None:
        """What has failed is let try again; what is ready is sometimes deleted."""
        for kind in tokens.KINDS:
            for record in engine.store.find(kind, state="Failed").records:
                engine.act(record.ref, "requeue", who="visitor")
            for record in engine.store.find(kind, state="Completed").records:
                if self.world.chance(0.5):
                    engine.act(record.ref, "delete", who="visitor", confirmed=True)

    def _grow(self, ark: str, engine: Engine) -> None:
        if not any(where == ark for where, _ in self.holdings.damaged):
            self.holdings.add(ark, self.around.outfit().inventory)

    def _fall_ill(self, ark: str, engine: Engine) -> None:
        self.holdings.damage(ark)

    def _heal(self, engine: Engine) -> None:
        self.holdings.restore()

    # --- what must hold

    def changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        if record is None or record.kind not in tokens.KINDS:
            return
        if change.event == "done" and record.state == "Completed":
            packed = record.docs["packed"]
            self.served[packed["name"]] = (record.ref, packed["expires"])
            if problem := self._looked(record):
                raise Violation(f"{record.ref} is Completed, and {problem}")
        if change.who == f"duty {upkeep.EXPIRY.name}" and record.state == "Deleted" and change.before is not None:
            self._expired(change.before)
        order = order_of(record)
        if change.event == "fail" and record.state == "Failed" and order is not None:
            if order.object not in self.holdings.ever:
                raise Violation(f"{record.ref} fails, and nothing is wrong with {order.object}: {change.why}")
            if order.object not in change.why:
                raise Violation(f"{record.ref} fails, and does not say what is damaged: {change.why}")

    def _expired(self, before: Record) -> None:
        """The duty deletes what is over, and nothing else."""
        keep = self.around.outfit().settings.access.keep
        over = before.docs["packed"]["expires"] if before.state == "Completed" else before.updated + keep
        if over >= self.world.simulation.hub.now:
            raise Violation(f"{before.ref} is {before.state}, is deleted as expired, and has not")

    def _guard(self, name: str, data: bytes | None) -> None:
        """What can be fetched stays as it is."""
        simulation = self.world.simulation
        ref, expires = self.served.get(name, (None, 0.0))
        entry = simulation.ledger.entries.get(ref) if ref is not None else None
        if entry is not None and entry.state == "Completed" and expires >= simulation.hub.now:
            raise Violation(f"the archive of {ref} goes, or is replaced, and it is Completed and has not expired")

    def _looked(self, record: Record) -> str | None:
        try:
            with self.around.objects.get(record.docs["packed"]["name"]) as body:
                return self._differs(record, body.read())
        except NotFound:
            return "its archive is not there"

    def _differs(self, record: Record, data: bytes) -> str | None:
        """What is wrong with an archive; None: it is what was asked for."""
        order = order_of(record)
        assert order is not None
        try:
            found = unpacked(order, data)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, OSError) as error:
            return f"its archive is broken: {error}"
        named = frozenset(lists.each(self.around.objects, order.files, str)) if order.files is not None else None
        for wanted in self.holdings.members(order, named):
            if found.keys() == wanted.keys() and all(body in (None, found[name]) for name, body in wanted.items()):
                return None
        return f"its archive is not what was asked for: it has {sorted(found)}"

    def finished(self, store: Store) -> Iterator[str]:
        now = self.world.simulation.hub.now
        for kind in tokens.KINDS:
            for record in each(store, kind):
                if record.state == "Completed" and record.docs["packed"]["expires"] >= now:
                    if problem := self._looked(record):
                        yield f"{record.ref} is Completed, and {problem}"
                    if tokens.find(store, self.around.objects, tokens.token_of(record)) is None:
                        yield f"{record.ref} is Completed, and its token does not lead to it"
        yield from upkeep.folders(self.around, store)
        yield from upkeep.staged_in_peace(self.around)
        yield from upkeep.long_after(self.around, store, upkeep.EXPIRY)
        for kind in tokens.KINDS:
            yield from (f"{record.ref} is {record.state} when everything is long over" for record in each(store, kind))
        yield from (f"{info.name} stays when everything is long over" for info in self.around.objects.list(tokens.ROOT))
        yield from upkeep.left_of_uploads(self.around)
        yield from upkeep.compared(self.around, store, self.holdings.damaged)


def _tables(settings: Any) -> tuple[Machine, ...]:
    return tuple(machine for machine in shaped(settings) if machine.name in tokens.KINDS)


def unpacked(order: Order, data: bytes) -> dict[str, bytes]:
    if order.form.startswith("zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {info.filename: archive.read(info) for info in archive.infolist()}
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz" if order.form == "tar.gz" else "r:") as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
    return found
