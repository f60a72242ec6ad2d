"""Running: fixes what it reads, makes the parts, waits for them, and publishes what they made.

    its sources are fixed in the catalogue: what is published after that is another generation
    all of them empty: empty lots of its sinks, and nothing runs, unless the arc says so
    parts are made, each with a manifest of its entries
    all settled: a failed one makes it partial; else the remains of failed attempts are gone, its lots are published
    together, and the commit that ends it has the runs that these start

It may run twice at any point: parts have names, a lot is published once by each run, and the catalogue says what is done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain, islice

from msgspec.structs import replace

from waybill.apps.lots.arc_states import refresh_arc_state
from waybill.apps.lots.attempt_data import remove_attempt_data
from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration, title_of_dataset
from waybill.apps.lots.gates import decide_completion, decide_start
from waybill.apps.lots.lot_events import make_lot_event
from waybill.apps.lots.lot_manifests import ChildManifest, LotManifest, LotManifestWriter, iter_entries
from waybill.apps.lots.machine import (
    PART,
    RUN,
    PartAttempts,
    PartDocument,
    RunDocument,
    RunSources,
    SinkPart,
    run_id_of,
)
from waybill.apps.lots.naming import ARC_STATES, ManifestState
from waybill.apps.lots.publishing import (
    LotPublication,
    PublishedLot,
    find_arc,
    find_starts,
    iter_source_lots,
    publish_lots,
    read_dataset,
)
from waybill.apps.lots.resources import LotsResources, resources_of
from waybill.apps.lots.run_parts import PartPlanner, digest_workload
from waybill.apps.lots.units import Lot, format_instant
from waybill.events import Event
from waybill.record import Record, Ref
from waybill.step import Act, Done, New, Outcome, SpawnedChildren, StepContext, Wait

MAX_READS = 10
PAGE_SIZE = 100  # parts
MadeParts = tuple[tuple[PartDocument, tuple[SinkPart, ...]], ...]  # what each part left in the sinks
INLINE_ENTRIES = 1000  # of one part: a lot of so few has no child manifests


def run_step(run: Record, ctx: StepContext) -> Outcome:
    resources, about = resources_of(ctx), run.document(RunDocument)
    found = find_arc(ctx.get, about.arc)
    if found is None:
        return Done(to="Superseded", message="Its arc has ended.")
    with resources.open_catalogue() as tables:
        this = _RunningLot(run, ctx, resources, tables, about, found[0])
        spawned = run.find_document(SpawnedChildren)
        return this.finish() if spawned is not None and spawned.whole else this.begin()


class _RunningLot:
    def __init__(self, run: Record, ctx: StepContext, resources: LotsResources, tables: LotTables, about: RunDocument,
                 arc: ArcDeclaration) -> None:  # fmt: skip
        self._run, self._ctx, self._resources, self._tables = run, ctx, resources, tables
        self._about, self._arc, self._lot = about, arc, about.parsed_lot
        self._objects = resources.objects
        self._at = format_instant(datetime.fromtimestamp(ctx.now(), UTC))

    def _dataset(self, id: str) -> DatasetDeclaration:
        return read_dataset(self._ctx.get, id).document(DatasetDeclaration)

    # --- beginning

    def begin(self) -> Outcome:
        newest = self._tables.find_run(self._arc.id, self._lot)
        if newest is not None and newest.generation > self._about.generation:
            return Done(to="Superseded", message=f"Generation {newest.generation} has taken its place.")
        sources = self._run.find_document(RunSources)
        if sources is None:
            sources = self._fix_sources()
            if sources is None:
                return Wait(1.0, "Its sources are published again and again.")
            older = self._clean_older()
            if older:
                self._ctx.save((sources,), acts=older)
        # before a lot runs for the first time it has no name; later any may be there
        is_first = newest is not None and (newest.generation, newest.state) == (1, "waiting")
        previous = () if is_first else ARC_STATES
        refresh_arc_state(self._objects, self._tables, self._arc, self._lot, previous=previous)
        states = self._read_states(sources)
        state: ManifestState = "complete" if "complete" in states or sources.absent else "empty"
        if decide_start(None, state, self._arc.on_empty) == "propagate":
            return self._publish((), sources, "All its sources are empty.")
        datasets = {source.role: self._dataset(source.dataset) for source in self._arc.sources}
        planner = PartPlanner(
            self._objects, self._resources.locations, self._arc, self._run.id, self._about, sources, datasets
        )
        parts = (New(PART.name, (part,), id=f"{self._run.id}:p{part.number}") for part in planner.iter_parts())
        first = list(islice(parts, PAGE_SIZE + 1))
        if len(first) <= PAGE_SIZE:  # few parts: what it reads and all of them are one commit
            self._ctx.spawn(first, (sources, SpawnedChildren(len(first), True)))
        else:
            self._ctx.save((sources,))
            self._ctx.spawn_each(chain(first, parts))
        return Wait(0)

    def _fix_sources(self) -> RunSources | None:
        for _ in range(MAX_READS):
            read, absent, generations, count = [], [], dict[str, int](), 0
            for role, dataset, lot, row in iter_source_lots(self._tables, self._arc, self._lot):
                if row is None:
                    absent.append(f"{title_of_dataset(dataset)} {lot}")
                else:
                    read.append((role, str(lot), row.generation, row.manifest))
                    generations[f"{role} {lot}"] = row.generation
                    count += row.generation
            if self._tables.begin_run(self._arc.id, self._lot, self._about.generation, count, generations, at=self._at):
                return RunSources(tuple(read), tuple(absent), digest_workload(self._arc))
        return None

    def _read_states(self, sources: RunSources) -> set[str]:
        """The state is in the name of a manifest."""
        return {"empty" if "/state=empty/" in manifest else "complete" for _, _, _, manifest in sources.read}

    def _clean_older(self) -> tuple[Act, ...]:
        """Runs of older generations that failed have left data that nobody needs: they are cleaned when this one is done."""
        acts = []
        for generation in range(max(1, self._about.generation - 20), self._about.generation):
            row = self._tables.find_run(self._arc.id, self._lot, generation)
            if row is not None and row.state == "partial":
                acts.append(
                    Act(
                        Ref(RUN.name, run_id_of(self._arc.id, self._lot, generation)),
                        "clean",
                        {},
                        "a newer generation runs",
                    )
                )
        return tuple(acts)

    # --- ending

    def finish(self) -> Outcome:
        sources = self._run.document(RunSources)
        parts = [
            (record.document(PartDocument), record.state, record.document(PartAttempts))
            for record in _iter_parts(self._ctx, self._run.ref)
        ]
        failed = [(part, attempts) for part, state, attempts in parts if state != "Complete"]
        if decide_completion(["complete"] * len(parts), failed=bool(failed)) != "complete":
            first = failed[0][1].last
            message = f"{len(failed)} of {len(parts)} parts failed: {first.message if first is not None else 'no attempt was made'}"
            self._tables.change_run(
                self._arc.id, self._lot, self._about.generation, state="partial", at=self._at, message=message[:500]
            )
            refresh_arc_state(self._objects, self._tables, self._arc, self._lot)
            return Done(to="Partial", message=message)
        for part, _, attempts in parts:
            self._verify_remains(part, attempts)
        made = tuple((part, attempts.last.sinks) for part, _, attempts in parts if attempts.last is not None)
        return self._publish(made, sources, "")

    def _verify_remains(self, part: PartDocument, attempts: PartAttempts) -> None:
        """Nothing is published before all that failed attempts wrote is gone, theirs too who did not know that they had lost."""
        for attempt in attempts.attempts[:-1]:
            for sink in self._arc.sinks:
                remove_attempt_data(
                    self._objects,
                    self._resources.locations,
                    self._dataset(sink.dataset),
                    self._lot,
                    attempt.id,
                    comment=attempt.message,
                    at=self._at,
                )

    def _publish(self, made: MadeParts, sources: RunSources, message: str) -> Outcome:
        publications = [
            LotPublication(
                dataset := self._dataset(sink.dataset), self._lot, self._run.id, self._make_builder(sink.role, dataset, made, sources)
            )
            for sink in self._arc.sinks
        ]  # fmt: skip
        published = publish_lots(
            self._objects, self._tables, publications, at=self._at,
            finish=lambda: self._tables.change_run(
                self._arc.id, self._lot, self._about.generation, state="complete", at=self._at, message=message,
                shown=None if made else "empty",
            ),
        )  # fmt: skip
        refresh_arc_state(self._objects, self._tables, self._arc, self._lot, previous=("running",))
        return self._announce(published, message)

    def _make_builder(
        self, role: str, dataset: DatasetDeclaration, made: MadeParts, sources: RunSources
    ) -> Callable[[int, str], LotManifest]:
        return lambda generation, folder: self._build_manifest(role, dataset.id, generation, folder, made, sources)

    def _build_manifest(
        self, role: str, dataset_id: str, generation: int, folder: str,
        made: MadeParts, sources: RunSources,
    ) -> LotManifest:  # fmt: skip
        head = LotManifest(
            "complete", None, str(self._lot), dataset=title_of_dataset(dataset_id), generation=generation, created=self._at,
            absent=sources.absent,
        )  # fmt: skip
        writer = LotManifestWriter(self._objects, folder, head)
        parts = [(part, sink) for part, sinks in made for sink in sinks if sink.role == role and sink.count]
        for part, sink in parts:
            if len(parts) == 1 and sink.count <= INLINE_ENTRIES:
                writer.add_all(iter_entries(self._objects, sink.manifest))
            else:
                writer.add_child(
                    ChildManifest(sink.manifest, sink.count, sink.bytes, sink.sha256 or None, part.partition or None)
                )
        manifest = writer.build()
        return manifest if manifest.count else replace(manifest, state="empty")

    def _announce(self, published: list[PublishedLot], message: str) -> Outcome:
        runs: list[New] = []
        wakes: list[Ref] = []
        events: list[Event] = []
        for each in published:
            starts = find_starts(self._ctx.get, self._tables, each.dataset.id, [each.lot], at=self._at)
            runs += starts.runs
            wakes += starts.wakes
            events.append(make_lot_event(self._resources, each))
        if self._arc.strict:
            following = self._tables.find_run(self._arc.id, self._lot.next)
            if following is not None and following.state == "waiting":
                wakes.append(Ref(RUN.name, run_id_of(self._arc.id, self._lot.next, following.generation)))
        return Done(spawn=tuple(runs), wakes=tuple(wakes), events=tuple(events), message=message)


def _iter_parts(ctx: StepContext, run: Ref) -> list[Record]:
    """All parts, in the order of their numbers. Their documents are small; there are at most some thousand."""
    found: list[Record] = []
    after: int | None = None
    while True:
        page = ctx.find(PART.name, parent=run, after=after, limit=200, documents=True)
        found += page.records
        if page.after is None:
            return sorted(found, key=lambda part: part.document(PartDocument).number)
        after = page.after


def lot_of(run: Record) -> Lot:
    return run.document(RunDocument).parsed_lot
