"""Importing: entries of Merritt's old queues become batches with jobs, and assemblies.

    survey     every entry is read once: which batch it belongs to, and whether anything of that batch is still to be done
    batch      made as Held, so that it cannot end before its last job is there; Completed, if nothing of it is left to be done
    jobs       made as its children, each in the state in which its entry was
    release    the batch goes on, and waits for its jobs like any other
    assembly   made by itself

The old queues are only read. Each record is made by a request that follows from its entry, so that an import that was
broken off, or is run a second time, makes only what is missing. Of a batch nothing but the names of its entries is kept
in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from waybill.apps.ingest import submission
from waybill.apps.ingest.becoming import Becoming
from waybill.apps.ingest.imported import Imported
from waybill.apps.ingest.legacy import Described, Entry, LegacyError, decode, describe
from waybill.apps.ingest.legacy.sources import Source
from waybill.engine import Engine
from waybill.record import Exists, NotFound, Record, StoreError, Unavailable, Unknown
from waybill.rules import Refused
from waybill.step import New

PORTION = 100  # records made in one round trip
WHY = "from an old queue"
HELD = "It is held until all its entries are imported and its collection is open."
_OVER = ("Completed", "Deleted")
_PAYLOAD = ("payload_url",)  # of a batch, from which jobs would be made a second time

Progress = Callable[[int, int], None]  # so many of so many entries


class _Batch(msgspec.Struct):
    """A batch as the survey finds it: the entries that become its jobs."""

    paths: list[str] = []
    over: bool = True  # nothing of it is left to be done
    name: str = ""  # its batchID here
    jobs: int = 0  # that are made for it


def import_entries(
    engine: Engine, source: Source, *, who: str, dry_run: bool = False, progress: Progress = lambda done, total: None
) -> Imported:
    """Make what the entries of a source stand for. Safe to repeat; an entry that cannot be used is told of and stops
    no other.
    """
    return _Import(engine, source, who, dry_run, progress).run()


class _Import:
    def __init__(self, engine: Engine, source: Source, who: str, dry_run: bool, progress: Progress) -> None:
        self._engine, self._source, self._who, self._dry_run, self._progress = engine, source, who, dry_run, progress
        self._report = Imported(dry_run=dry_run)
        self._began = engine.store.now()  # what was made before this was made by an earlier import
        self._done = 0
        self._becoming = Becoming(engine)

    def run(self) -> Imported:
        batches, assemblies = self._survey()
        for uuid, batch in batches.items():
            self._import_batch(uuid, batch)
        for portion in _portions(assemblies):
            self._make(self._described(portion), self._becoming.assembly)
            self._step(len(portion))
        return self._report

    # --- reading

    def _survey(self) -> tuple[dict[str, _Batch], list[str]]:
        batches: dict[str, _Batch] = {}
        assemblies: list[str] = []
        for path in self._source.paths():
            self._report.entries += 1
            found = self._read(path)
            if found is None:
                self._step(1)
            elif found[1].kind == "job":
                batch = batches.setdefault(found[1].batch, _Batch())
                batch.paths.append(path)
                batch.over = batch.over and found[1].state in _OVER
            else:
                assemblies.append(path)
        return batches, assemblies

    def _read(self, path: str) -> tuple[Entry, Described] | None:
        data = self._source.read(path)
        if data is None:
            self._report.gone += 1
            return None
        try:
            entry = decode(path, data)
            return entry, describe(entry)
        except LegacyError as error:
            self._report.refuse(path, str(error))
            return None

    def _described(self, paths: Sequence[str]) -> list[tuple[str, Entry, Described]]:
        found = ((path, self._read(path)) for path in paths)
        return [(path, *each) for path, each in found if each is not None]

    # --- making

    def _import_batch(self, uuid: str, found: _Batch) -> None:
        found = self._named(uuid, found)
        batch: Record | None = None
        whole = True
        for portion in _portions(found.paths):
            entries = self._described(portion)
            if entries and batch is None and not self._dry_run:
                batch = self._make_batch(found, entries[0])
                if batch is None:  # every entry of it is answered with the reason
                    self._step(len(found.paths))
                    return
            parent = batch
            # called at once
            whole = (
                self._make(entries, lambda entry, told: self._becoming.job(entry, told, found.name, parent)) and whole  # noqa: B023
            )
            self._step(len(portion))
        if self._dry_run:
            self._report.count("batch", self._known(found.name) is not None)
        elif batch is not None and whole:
            self._release(found.name, batch)

    def _named(self, uuid: str, found: _Batch) -> _Batch:
        """The same under the batchID that takes its new entries. Safe to repeat: a batch that is not over is gone on
        with.

        A batch that is over reports no more. What has come into the old queue since then becomes another: its batchID,
        and a number.
        """
        plain = replace(found, name=uuid, jobs=len(found.paths))
        name, number, last = uuid, 1, self._known(uuid)
        if found.over or last is None or last.state not in _OVER:
            return plain
        while (known := self._known(name)) is not None and known.state in _OVER:
            last, number, name = known, number + 1, f"{uuid}.{number + 1}"
        if known is not None:
            return replace(found, name=name, jobs=len(found.paths))
        every = (told for portion in _portions(found.paths) for _, _, told in self._described(portion))
        new = [told.state for told in every if not self._is_there("job", told.request)]
        if not new:
            return plain
        self._report.remark(
            uuid, [f"{last.ref} is {last.state} and reports no more: what is new of it becomes the batch {name}."]
        )
        return replace(found, name=name, jobs=len(new), over=all(state in _OVER for state in new))

    def _make_batch(self, found: _Batch, first: tuple[str, Entry, Described]) -> Record | None:
        """Safe to repeat: a batchID makes one batch, whoever asks."""
        path, _, told = first
        given = {key: value for key, value in told.submission.items() if key not in _PAYLOAD}
        said = self._becoming.placed(given | {"batchID": found.name})
        document = {**submission.read(said).document(), **said}
        # With all its jobs made here, whoever works on it has none to make.
        docs = {"submission": document, "spawned": {"count": found.jobs, "whole": True, "jobs": found.jobs}}
        owner = submission.read(said).submitter
        state, message = ("Completed", "") if found.over else ("Held", HELD)
        new = New("batch", docs, state=state, message=message, owner=owner, priority=told.priority, request=found.name)
        why = f"{found.jobs} entries of old queues, the first of them {path}"
        try:
            batch = self._engine.submit(new, who=self._who, why=why)
        except (Exists, Unknown):
            batch = self._engine.store.requested("batch", found.name)  # another service has made it
        except (Refused, StoreError) as error:
            if isinstance(error, Unavailable):
                raise
            for each in found.paths:
                self._report.refuse(each, f"Its batch {found.name} cannot be made: {error}")
            return None
        self._report.count("batch", batch.created < self._began)
        return batch

    def _known(self, name: str) -> Record | None:
        try:
            return self._engine.store.requested("batch", name)
        except NotFound:
            return None

    def _release(self, uuid: str, made: Record) -> None:
        """It goes on, unless somebody has done something with it since it was made here."""
        lines = self._engine.store.history("batch", made.id)
        if self._engine.store.get(*made.ref).state != "Held" or [line.event for line in lines] != ["submit"]:
            return
        try:
            self._engine.act(made.ref, "release", who=self._who, why="all its jobs are imported")
        except Refused as refusal:
            self._report.remark(uuid, [f"{made.ref} stays held: {refusal}"])

    def _make(self, entries: Sequence[tuple[str, Entry, Described]], new_of: Callable[[Entry, Described], New]) -> bool:
        """Whether all of them are there now."""
        news = []
        for path, entry, told in entries:
            self._report.remark(path, told.remarks)
            news.append(new_of(entry, told))
            name = f"{news[-1].kind} {told.state}"
            self._report.states[name] = self._report.states.get(name, 0) + 1
        if self._dry_run:
            for new in news:
                self._report.count(new.kind, self._is_there(new.kind, new.request or ""))
            return True
        whole = True
        answers = self._engine.submit_each(news, who=self._who, why=WHY)
        for (path, _, _), new, answer in zip(entries, news, answers, strict=True):
            if isinstance(answer, Unknown):
                answer = self._engine.submit_each([new], who=self._who, why=WHY)[0]
            if isinstance(answer, Record):
                self._report.count(new.kind, answer.created < self._began)
            elif isinstance(answer, Unavailable):
                raise answer
            else:
                whole = False
                self._report.refuse(path, str(answer))
        return whole

    def _is_there(self, kind: str, request: str) -> bool:
        try:
            self._engine.store.requested(kind, request)
        except NotFound:
            return False
        return True

    def _step(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._report.entries)


def _portions(paths: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(paths)
    while portion := list(islice(rest, PORTION)):
        yield portion
