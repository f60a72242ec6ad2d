"""Deposits in the simulator: ingest's own steps, storage and inventory, where any process may die at any moment.

Objects are in memory, and every change of them is a point at which anything may happen; so is every call of the inventory. The web is a
table of files. Storage is the OCFL storage itself, over those objects. Working folders are real, and go with their host.

What must hold, besides what holds for all machines:

    a job has one ARK, for ever, and no two objects have the same
    a completed job's bytes are in storage, and in the inventory, once: one version for each job that stored
    no batch is reported while a job of it is open, and its report counts what is there
    what storage holds is sound, once what was interrupted has been recovered
    whoever is to be called was called before a job is Completed; what was mailed is Sent
    EZID was told of one ARK for each deposit, and never of one that belongs to somebody else

Not simulated: containers, assemblies, rebuilding and ingest's own duties; their crashes are tested beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from waybill import config, index
from waybill.apps.ingest import submission
from waybill.apps.ingest.application import shaped
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.profile import Callback, Mail, Minter, Profile, to_document
from waybill.apps.ingest.simulation.around import KEPT_SHOULDER, SETTINGS, Registry, SimulatedDepot, SimulatedOutfit, Web
from waybill.apps.ingest.storage import OcflStorage
from waybill.apps.ingest.storage.sources import WorkingSources
from waybill.apps.ingest.submission import Submission, Type
from waybill.machine import Machine
from waybill.notify import letter_machine
from waybill.record import Change, Record, Ref, Store
from waybill.rules import Machines
from waybill.sim.ledger import Entry, Violation
from waybill.sim.objects import MemoryObjects, WholeMemoryObjects
from waybill.sim.scenario import Scenario
from waybill.sim.world import Porous, World, current
from waybill.step import Context, Done, New, Outcome

PROFILE, CALLED, KEPT = "p", "called", "kept"  # by EZID
RECEIVER = "http://receiver.test"
OWNER = "ark:/99999/owner"


def _sent(letter: Record, ctx: Context) -> Outcome:
    current().meet_trouble("the mail server")
    current().happen("letter", letter.id)
    return Done()


class Deposits(Scenario):
    name = "deposits"
    doc = "Ingest's own steps: batches of deposits into storage and inventory, with crashes between any two writes."
    real_files: ClassVar[bool] = True
    sound: ClassVar[bool] = False  # a late worker may publish its files over ours, which is noticed and tried again

    def __init__(self, world: World) -> None:
        super().__init__(world)
        clock = world.simulation.hub
        kind = self.rng.choice((MemoryObjects, WholeMemoryObjects))  # a new object is written in order, or as one folder
        self.store = kind(lambda: clock.now, world.point)
        self.web = Web(world)
        self.registry = Registry(world)
        self.index = index.open_index("sqlite:///:memory:")
        self.catalogue = Inventory(self.index)
        mail = {"mail.url": "smtp://127.0.0.1:25", "mail.sender": "waybill@example.org"}
        self.settings = config.load(env={}, overrides={"data": Path("unused"), **mail})
        letters = letter_machine(self.settings.mail)
        letters.steps["Waiting"] = _sent
        self.tables = (*shaped(SETTINGS), letters)
        self.known = Machines.of(self.tables)
        self.outfits: dict[str, SimulatedOutfit] = {}
        self.arks: dict[Ref, str] = {}
        self.bytes: dict[str, bytes] = {}  # by name, of the files that were submitted
        self.rows: dict[str, int] = {}  # objects, by batch
        self.completed = 0

    def machines(self) -> tuple[Machine, ...]:
        return self.tables

    def marks(self) -> tuple[str, ...]:
        return (f"collections/{PROFILE}",)

    def objects(self) -> MemoryObjects:
        return self.store

    def outfit(self, kind: str) -> SimulatedOutfit:
        """Of the process that asks: what it has drawn ahead goes with it."""
        here = self.world.simulation.stage.here()
        if here.name not in self.outfits:
            clock = self.world.simulation.hub
            depot = SimulatedDepot(self.settings, here.host, self.world.simulation.root_of(here.host), self.store, self.known)
            porous = Porous(self.world, self.catalogue, "inventory")
            made = SimulatedOutfit(depot, self.web, self.registry, porous, lambda: datetime.fromtimestamp(clock.now, UTC))
            self.outfits[here.name] = made
        return self.outfits[here.name]

    # --- what is asked for

    def submissions(self) -> Iterator[New]:
        rng = self.rng
        mail = Mail(to=("jane@example.org",))
        for profile in (
            Profile(name=PROFILE, owner=OWNER, mail=mail),
            Profile(name=CALLED, owner=OWNER, mail=mail, callback=Callback(url=RECEIVER)),
            Profile(name=KEPT, owner=OWNER, mail=mail, minter=Minter(url=f"https://ezid.test/shoulder/ark:/99999/{KEPT_SHOULDER}")),
        ):
            yield New("profile", {"profile": to_document(profile)}, id=profile.name, request=f"profile {profile.name}")
        for n in range(rng.choice((1, 1, 2, 3))):
            yield self._batch(f"b{n}", rng.choice((1, 1, 2, 4)))

    def _batch(self, name: str, jobs: int) -> New:
        rng = self.rng
        rows = []
        self.rows[f"bid-{name}"] = jobs
        for n in range(jobs):
            file = f"{name}-{n}.txt"
            url = f"http://web.test/{file}"
            self.bytes[file] = file.encode() * rng.choice((1, 50))
            if rng.random() > 0.1:
                self.web.files[url] = self.bytes[file]
            local = rng.choice(("", "", "loc-1", f"loc-{name}-{n}"))
            rows.append(f"{url} | | | | | {file} | | {local} | | a title | ")
        profile = rng.choice((PROFILE, PROFILE, CALLED, KEPT))
        said: dict[str, Any] = {"profile": profile, "batch_id": f"bid-{name}", "title": "a title", "checked": True}
        if jobs == 1 and rng.random() < 0.5:
            asked = Submission(url=f"http://web.test/{name}-0.txt", type=Type.FILE, filename=f"{name}-0.txt", **said)
        else:
            kind = "mrt-single-file-batch-manifest"
            head = ["#%checkm_0.7", f"#%profile | http://uc3.cdlib.org/registry/ingest/manifest/{kind}"]
            broken = rng.random() < 0.05
            text = "\n".join([*head, *(["nonsense"] if broken else rows), "#%eof", ""])
            self.web.files[f"http://web.test/{name}.checkm"] = text.encode()
            asked = Submission(url=f"http://web.test/{name}.checkm", type=Type.FILES, filename=f"{name}.checkm", **said)
        return New("batch", {"submission": asked.document()}, request=f"bid-{name}")

    # --- what must hold

    def changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        if record is None:
            return
        if record.kind == "job" and "identifiers" in change.docs:
            self._named(record)
        reported = record.kind == "batch" and change.event == "done" and record.state in ("Completed", "Failed")
        if reported and self.world.simulation.ledger.open_children.get(record.ref):
            raise Violation(f"{record.ref} is reported while jobs of it are open")

    def _named(self, job: Record) -> None:
        ark = job.docs["identifiers"].get("primary_id") or ""
        before = self.arks.get(job.ref, "")
        if before and ark != before and before not in self.registry.strangers:
            raise Violation(f"{job.ref} had the ARK {before}, and has {ark or 'none'} now")
        if ark:
            self.arks[job.ref] = ark

    def finished(self, store: Store) -> Iterator[str]:
        storage = OcflStorage(self.store, "ocfl", WorkingSources(Path("unused"), self.store), algorithm="sha256", threads=1)
        jobs = list(_all(store, "job"))
        for cursor, done in storage.recover_all(-1e9):
            if done.trouble:
                yield f"the object at {cursor} cannot be recovered: {done.trouble}"
        owners: dict[str, list[Record]] = {}
        for job in jobs:
            if ark := self.arks.get(job.ref):
                owners.setdefault(ark, []).append(job)
        for job in jobs:
            if job.state == "Completed" and self.arks.get(job.ref) != job.docs["stored"]["object"]:
                yield f"{job.ref} is stored as {job.docs['stored']['object']}, and its ARK is {self.arks.get(job.ref, 'unknown')}"
        if not self.world.simulation.ledger.gone:  # what was removed may be submitted again, and is another object then
            yield from self._requests(storage)
        self.completed = sum(job.state == "Completed" for job in jobs)
        for job in jobs:
            yield from self._told(job)
        for letter in _all(store, "letter"):
            if letter.state == "Sent" and not self.world.count("letter", letter.id):
                yield f"{letter.ref} is Sent, and was not mailed"
        for ark, those in owners.items():
            yield from self._object(storage, ark, those)
        for batch in _all(store, "batch"):
            yield from self._report(store, batch)

    def _told(self, job: Record) -> Iterator[str]:
        """Receivers and EZID know of what is Completed."""
        if job.state != "Completed":
            return
        said = submission.of_job(job)
        if said.profile == CALLED and not self.world.count("callback", f"{RECEIVER}/mc/{said.job_id}"):
            yield f"{job.ref} is Completed, and nobody was called"
        minted = job.docs.get("minted", {}).get("ark")
        if said.profile == KEPT and minted and not str(self.registry.known.get(minted, "")).startswith(said.job_id):
            yield f"{job.ref} has the ARK {minted}, which EZID keeps for {self.registry.known.get(minted, 'nobody')}"

    def _requests(self, storage: OcflStorage) -> Iterator[str]:
        """One deposit is one version of one object."""
        seen: dict[str, str] = {}
        for _, ark in storage.objects():
            for version in storage.versions(ark):
                if seen.setdefault(version.request, f"{ark} v{version.number}") != f"{ark} v{version.number}":
                    yield f"the deposit {version.request} is {seen[version.request]} and {ark} v{version.number}"
        named: dict[str, str] = {}
        for ark, request in self.registry.known.items():
            if ark not in self.registry.strangers and named.setdefault(request, ark) != ark:
                yield f"EZID keeps {named[request]} and {ark} for the deposit {request}"

    def _object(self, storage: OcflStorage, ark: str, jobs: Sequence[Record]) -> Iterator[str]:
        local = {tuple(job.docs["identifiers"].get("local_id") or ()) for job in jobs}
        if len(jobs) > 1 and () in local:
            yield f"{ark} was given to {', '.join(str(job.ref) for job in jobs)}, which have nothing to do with each other"
        done = [job for job in jobs if job.state == "Completed"]
        requests = [version.request for version in storage.versions(ark)] if done else []
        if len(requests) != len(set(requests)):
            yield f"{ark} has two versions of one request: {requests}"
        deposits = sum(1 + job.docs.get("restarted", {}).get("count", 0) for job in jobs)
        if len(requests) > deposits and not self.world.simulation.ledger.gone:
            yield f"{ark} has {len(requests)} versions of {deposits} deposits"
        for job in done:
            stored = job.docs["stored"]
            if stored["request"] not in requests:
                yield f"{job.ref} is Completed, and storage has no version of it"
                continue
            name = job.docs["configuration"]["filename"]
            with storage.open(ark, f"producer/{name}", stored["version"]) as body:
                if body.read() != self.bytes[name]:
                    yield f"{job.ref}: the bytes of {name} in storage are not those that were submitted"
            if self.catalogue.stored(ark, stored["version"]) is None:
                yield f"{job.ref} is Completed, and the inventory does not know version {stored['version']} of {ark}"
        for finding in storage.verify(ark) if done else ():
            yield f"{ark}: {finding.words}"

    def _report(self, store: Store, batch: Record) -> Iterator[str]:
        made = sum(store.tally("job", parent=batch.ref).values())
        if made > self.rows[batch.docs["submission"]["batchID"]]:
            yield f"{batch.ref} has {made} jobs, and {self.rows[batch.docs['submission']['batchID']]} objects"
        if batch.state not in ("Completed", "Failed"):
            return
        if (report := batch.docs.get("status-report")) is None:
            yield f"{batch.ref} is {batch.state} without a report"
        elif batch.state == "Completed" and "counts" in report:
            tally = store.tally("job", parent=batch.ref)
            found = {"completed": tally.get("Completed", 0), "failed": tally.get("Failed", 0), "deleted": tally.get("Deleted", 0)}
            if {name: report["counts"].get(name, 0) for name in found} != found:
                yield f"{batch.ref} reports {report['counts']}, and there are {tally}"


def _all(store: Store, kind: str) -> Iterator[Record]:
    after: int | None = None
    while True:
        page = store.find(kind, after=after, limit=200, docs=True)
        yield from page.records
        if page.after is None:
            return
        after = page.after
