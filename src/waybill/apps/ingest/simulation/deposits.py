"""Deposits in the simulator: ingest's own steps, duties, storage and inventory, where any process may die at any
moment.

Files and containers come by URL from a web that is a table, or are uploaded by the service itself. Working folders are
real, and go with their host. Some update what is there. Now and then everything is recorded again from storage. What is
stored may be a state of its own, storage a service of its own (elsewhere.py), and recording may be left to another
service, which does so now and then. Content at rest may fall ill (illness.py); then deposits bring the same bytes again
and again.

What must hold, besides what holds for all machines:

    a job has one ARK, for ever, and no two objects have the same no batch is reported while a job of it is open, and
    its report counts what is there an upload that is needed is not removed, nor a list or a report whose record is
    there, nor the folder of a job at work and all that stored.py, illness.py, rebuilding.py and upkeep.py look at
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from waybill.apps.ingest import service
from waybill.apps.ingest.application import shaped
from waybill.apps.ingest.duties.papers import whose
from waybill.apps.ingest.duties.payloads import ENDED
from waybill.apps.ingest.profile import Callback, Mail, Minter, Profile, to_document
from waybill.apps.ingest.service.receiving import PAYLOADS, SCHEME
from waybill.apps.ingest.simulation import containers, upkeep
from waybill.apps.ingest.simulation.amending import Amendment
from waybill.apps.ingest.simulation.around import KEPT_SHOULDER, SimulatedOutfit, Surroundings
from waybill.apps.ingest.simulation.rebuilding import Rebuilds
from waybill.apps.ingest.simulation.stored import CALLED, KEPT, PROFILE, RECEIVER, Judge, each
from waybill.apps.ingest.storage.http import Away
from waybill.apps.ingest.submission import Submission, Type, of_batch
from waybill.duties import Duty
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Change, NotFound, Record, Ref, Store
from waybill.rules import Refused
from waybill.sim.audit import restless
from waybill.sim.ledger import Entry, Violation
from waybill.sim.objects import MemoryObjects
from waybill.sim.scenario import Errand, Scenario
from waybill.sim.world import World
from waybill.step import New

OWNER = "ark:/99999/owner"
CROWDED = 0.2  # how likely all deposits are versions of one object, which is recorded again all the time
UPDATES = 0.5  # how likely a deposit is an update then, which keeps what it does not replace or delete
ELSEWHERE = 0.2  # how likely storage is another service
ILL = 0.2  # how likely content at rest falls ill


class Deposits(Scenario):
    name = "deposits"
    doc = "Ingest's own steps and duties: batches of files and containers into storage and inventory, with crashes between any two writes."
    real_files: ClassVar[bool] = True
    aims: ClassVar[tuple[str, ...]] = (
        "progress",
        "before put",
        "after put",
        "before put ocfl",
        "before put ingest/staged",
        "before part",
        "before asking POST",
        "after asking",
        "before inventory",
        "after inventory",
        "before inventory.lower_head",
        "before fetching",
    )
    sound: ClassVar[bool] = False  # a late worker may publish its files over ours, which is noticed and tried again

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.outside = self.rng.random() < 0.1
        settings = {"storing": self.rng.random() < 0.3, "outside": ["Recording"] if self.outside else []}
        self.around = Surroundings(world, shaped, settings, self._guard, elsewhere=self.rng.random() < ELSEWHERE)
        self.illness, self.ill = self.around.illness, self.rng.random() < ILL
        self.judge = Judge(self.around)
        self.rebuilds = Rebuilds(self.around)
        self.arks = self.judge.arks
        self.crowded = self.rng.random() < (0.8 if self.ill else CROWDED)
        self.kept = {} if self.rng.random() < 0.7 else {"batch.Completed": 5.0}
        self.around.objects.put(upkeep.LEFT, b"left")

    @property
    def completed(self) -> int:
        """How many jobs were, at the end."""
        return self.judge.completed

    def machines(self) -> tuple[Machine, ...]:
        return self.around.tables

    def marks(self) -> tuple[str, ...]:
        return (f"collections/{PROFILE}",)

    def objects(self) -> MemoryObjects:
        return self.around.objects

    def outfit(self, kind: str) -> SimulatedOutfit:
        return self.around.outfit()

    def duties(self) -> tuple[Duty, ...]:
        return upkeep.some(self.rng, (*upkeep.STORAGE, *upkeep.PLACES))

    def retention(self) -> Mapping[str, float]:
        return self.kept

    # --- what is asked for

    def submissions(self) -> Iterator[New]:
        rng = self.rng
        mail = Mail(to=("jane@example.org",))
        for profile in (
            Profile(name=PROFILE, owner=OWNER, mail=mail),
            Profile(name=CALLED, owner=OWNER, mail=mail, callback=Callback(url=RECEIVER)),
            Profile(
                name=KEPT,
                owner=OWNER,
                mail=mail,
                minter=Minter(url=f"https://ezid.test/shoulder/ark:/99999/{KEPT_SHOULDER}"),
            ),
        ):
            yield New("profile", {"profile": to_document(profile)}, id=profile.name, request=f"profile {profile.name}")
        for n in range(rng.choice((1, 1, 2, 3))):
            yield self._batch(f"b{n}", rng.choice((1, 1, 2, 4)))

    def errands(self) -> Iterator[Errand]:
        for n in range(self.rng.choice((2, 4) if self.ill else (0, 0, 1, 2))):
            data = self._payload(f"u{n}", not self.ill and self.rng.random() < 0.6)
            if self.ill:
                yield self.illness.strike
                yield partial(self._patiently, self.illness.look)
            yield partial(self._upload, self._said_of(f"u{n}", data[0]), data[1])
        for _ in range(6 if self.crowded else self.rng.choice((0, 0, 1, 2))):
            yield partial(self._patiently, self.rebuilds.ask)
        if self.crowded and self.rng.random() < UPDATES:
            file, body = self._payload("u9", packed=False)
            yield partial(
                self._patiently, partial(self._amend, Amendment(self.around, self._said_of("u9", file), self.rng), body)
            )
        if self.outside:
            yield self._record_elsewhere

    def _said_of(self, name: str, file: str) -> Submission:
        """What an upload says of itself."""
        self.judge.rows[f"bid-{name}"] = 1
        return Submission(
            profile=PROFILE,
            url="",
            filename=file,
            batch_id=f"bid-{name}",
            title="a title",
            local_ids=("loc-1",) if self.crowded else (),
            update=self.crowded and self.rng.random() < UPDATES,
        )

    def _payload(self, name: str, packed: bool) -> tuple[str, bytes]:
        """The name and the bytes of a file, or of a container; what is to become of it is noted."""
        if packed:
            box = containers.draw(self.rng, name)
            self.judge.expected[box.name] = box.files
            return box.name, box.data
        data = (self.rng.choice("ab") if self.ill else name).encode() * self.rng.choice((1, 50))
        self.judge.expected[f"{name}.txt"] = {f"producer/{name}.txt": data}
        return f"{name}.txt", data

    def _batch(self, name: str, jobs: int) -> New:
        rng, web = self.rng, self.around.web.files
        packed = not self.ill and rng.random() < 0.4
        rows = []
        self.judge.rows[f"bid-{name}"] = jobs
        for n in range(jobs):
            file, data = self._payload(f"{name}-{n}", packed)
            url = f"http://web.test/{file}"
            if rng.random() > 0.1:
                web[url] = data
            local = f"loc-1; loc-{name}-{n}" if self.crowded else rng.choice(("", "", "loc-1", f"loc-{name}-{n}"))
            rows.append(f"{url} | | | | | {file} | | {local} | | a title | ")
        profile = rng.choice((PROFILE, PROFILE, CALLED, KEPT))
        update = self.crowded and rng.random() < UPDATES
        said: dict[str, Any] = {
            "profile": profile,
            "batch_id": f"bid-{name}",
            "title": "a title",
            "checked": True,
            "update": update,
        }
        if jobs == 1 and rng.random() < 0.5:
            listed = ("loc-1",) if self.crowded else ()
            asked = Submission(
                url=url, type=Type.CONTAINER if packed else Type.FILE, filename=file, local_ids=listed, **said
            )
        else:
            kind = "mrt-container-batch-manifest" if packed else "mrt-single-file-batch-manifest"
            head = ["#%checkm_0.7", f"#%profile | http://uc3.cdlib.org/registry/ingest/manifest/{kind}"]
            broken = rng.random() < 0.05
            text = "\n".join([*head, *(["nonsense"] if broken else rows), "#%eof", ""])
            web[f"http://web.test/{name}.checkm"] = text.encode()
            listing = Type.CONTAINERS if packed else Type.FILES
            asked = Submission(url=f"http://web.test/{name}.checkm", type=listing, filename=f"{name}.checkm", **said)
        return New("batch", {"submission": asked.document()}, request=f"bid-{name}")

    # --- what people do

    def _upload(self, said: Submission, data: bytes, engine: Engine) -> None:
        """What the form does: whoever crashed uploads again, and submits under the same batchID."""
        for _ in range(10):
            try:
                service.submit(engine, self.around.outfit(), said, [data], who="depositor")
                return
            except service.Missing:  # its profile is not there yet
                self.world.simulation.pass_time(1.0)

    def _amend(self, amendment: Amendment, data: bytes, engine: Engine) -> None:
        amendment.ask(lambda said: self._upload(said, data, engine))

    def _patiently(self, errand: Errand, engine: Engine) -> None:
        """What needs storage is done again when storage is there."""
        while True:
            try:
                return errand(engine)
            except Away:
                self.world.simulation.pass_time(2.0)

    def _record_elsewhere(self, engine: Engine) -> None:
        """Another service records what waits for it, until nothing more can come."""
        while True:
            self.world.simulation.pass_time(3.0)
            for job in engine.store.find("job", state="Recording").records:
                try:
                    engine.act(job.ref, "finish-recording", who="recorder")
                except Refused:
                    continue
            if not self._is_awaited():
                return

    def _is_awaited(self) -> bool:
        """Whether a job may come to the other service, or is there."""
        simulation = self.world.simulation
        moving = any(entry.ref.kind in ("batch", "job") for entry in restless(simulation.ledger))
        return moving or not simulation.healed or bool(simulation.observer.find("job", state="Recording").records)

    # --- what must hold

    def changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        if problem := upkeep.gone_astray(change):
            raise Violation(problem)
        if record is None:
            return
        self.rebuilds.changed(record)
        if record.kind == "job" and "identifiers" in change.docs:
            self._named(record)
        if record.kind == "letter" and (record.request or "").startswith("audit/"):
            text = record.docs["letter"]["text"]
            if not any(ill.ark in text and ill.place in text for ill in self.illness.fallen.values()):
                raise Violation(f"an audit tells of damage, and there is none: {text}")
        if record.kind == "job" and change.event == "fail" and "have not come" in change.why:
            raise Violation(f"{record.ref} fails, and had sent all that it says is missing: {change.why}")
        reported = record.kind == "batch" and change.event == "done" and record.state in ("Completed", "Failed")
        if reported and self.world.simulation.ledger.open_children.get(record.ref):
            raise Violation(f"{record.ref} is reported while jobs of it are open")

    def _named(self, job: Record) -> None:
        ark = job.docs["identifiers"].get("primary_id") or ""
        before = self.arks.get(job.ref, "")
        if before and ark != before and before not in self.around.registry.strangers:
            raise Violation(f"{job.ref} had the ARK {before}, and has {ark or 'none'} now")
        if ark:
            self.arks[job.ref] = ark

    def _guard(self, name: str, data: bytes | None) -> None:
        """What somebody needs does not go."""
        store = self.world.simulation.observer
        if name.startswith(f"{PAYLOADS}/"):
            for batch in each(store, "batch"):
                if of_batch(batch).url == f"{SCHEME}{name}" and batch.state not in ENDED:
                    raise Violation(f"{name} is removed, and {batch.ref} is {batch.state} and needs it")
        elif (ref := whose(name)) is not None and _is_there(store, ref):
            raise Violation(f"{name} is removed, and {ref} is there")

    def finished(self, store: Store) -> Iterator[str]:
        yield from self.judge.stored(store)
        yield from self.rebuilds.differences()
        yield from upkeep.folders(self.around, store)
        yield from upkeep.staged_in_peace(self.around)
        yield from upkeep.long_after(self.around, store, *upkeep.KEPT)
        yield from upkeep.compared(self.around, store, self.illness.sick())
        yield from self._left(store)

    def _left(self, store: Store) -> Iterator[str]:
        """What nobody needs, and is there when everything is long over."""
        batches = list(each(store, "batch"))
        yield from (
            f"{batch.ref} is {batch.state} when everything is long over" for batch in batches if batch.state in ENDED
        )
        needed = {of_batch(batch).url for batch in batches}
        yield from upkeep.left_of_uploads(self.around)
        if self.around.elsewhere is not None:
            yield from (f"{info.name} stays with the other service" for info in self.around.kept.list("ingest"))
        for info in self.around.objects.list("ingest"):
            ref = whose(info.name)
            if info.name == upkeep.LEFT or (ref is not None and not _is_there(store, ref)):
                yield f"{info.name} stays, and nobody needs it"
            elif info.name.startswith(f"{PAYLOADS}/") and f"{SCHEME}{info.name}" not in needed:
                yield f"the upload {info.name} stays, and no batch needs it"


def _is_there(store: Store, ref: Ref) -> bool:
    try:
        store.get(*ref)
    except NotFound:
        return False
    return True
