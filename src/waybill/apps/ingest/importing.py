"""Importing: entries of Merritt's old queues become batches with jobs, and assemblies.

    survey     every entry is read once: which batch it belongs to, and whether anything of that batch is still to be done
    batch      made as Held, so that it cannot end before its last job is there; Completed, if nothing of it is left to be done
    jobs       made as its children, each in the state in which its entry was
    release    the batch goes on, and waits for its jobs like any other
    assembly   made by itself

The old queues are only read. Each record is made by a request that follows from its entry, so that an import that was broken off, or is
run a second time, makes only what is missing. Of a batch nothing but the names of its entries is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.apps.ingest import mnemonics, submission
from waybill.apps.ingest.legacy import Described, Entry, LegacyError, decode, describe
from waybill.apps.ingest.legacy.sources import Source
from waybill.apps.ingest.profile import BadProfile, Profile, from_document
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Exists, NotFound, Record, StoreError, Unavailable, Unknown
from waybill.rules import Refused, bad_id
from waybill.step import New

PORTION = 100  # records made in one round trip
WHY = "from an old queue"
HELD = "It is held until all its entries are imported and its collection is open."
KEPT = 100  # refusals and remarks of a report
_OVER = ("Completed", "Deleted")
_PAYLOAD = ("payload_url",)  # of a batch, from which jobs would be made a second time

Progress = Callable[[int, int], None]  # so many of so many entries


class Note(msgspec.Struct, frozen=True):
    """What is to be said of one entry."""

    path: str
    words: str


class Imported(msgspec.Struct):
    """What came of an import. Of refusals and remarks the first are kept, and all are counted."""

    dry_run: bool = False
    entries: int = 0
    made: dict[str, int] = {}  # kind -> how many; in a dry run: would be made
    there: int = 0  # entries whose record was made by an earlier import
    states: dict[str, int] = {}  # "job Estimating" -> how many entries
    refused: int = 0
    refusals: list[Note] = []
    remarked: int = 0
    remarks: list[Note] = []
    gone: int = 0  # entries that were taken out of their queue meanwhile

    def refuse(self, path: str, words: str) -> None:
        self.refused += 1
        if len(self.refusals) < KEPT:
            self.refusals.append(Note(path, words))

    def remark(self, path: str, words: Iterable[str]) -> None:
        for each in words:
            self.remarked += 1
            if len(self.remarks) < KEPT:
                self.remarks.append(Note(path, each))

    def count(self, kind: str, repeated: bool) -> None:
        if repeated:
            self.there += 1
        else:
            self.made[kind] = self.made.get(kind, 0) + 1


class _Batch(msgspec.Struct):
    """A batch as the survey finds it: the entries that become its jobs."""

    paths: list[str] = []
    over: bool = True  # nothing of it is left to be done
    name: str = ""  # its batchID here
    jobs: int = 0  # that are made for it


def import_entries(
    engine: Engine, source: Source, *, who: str, dry_run: bool = False, progress: Progress = lambda done, total: None
) -> Imported:
    """Make what the entries of a source stand for. Safe to repeat; an entry that cannot be used is told of and stops no other."""
    return _Import(engine, source, who, dry_run, progress).run()


class _Import:
    def __init__(self, engine: Engine, source: Source, who: str, dry_run: bool, progress: Progress) -> None:
        self._engine, self._source, self._who, self._dry_run, self._progress = engine, source, who, dry_run, progress
        self._report = Imported(dry_run=dry_run)
        self._began = engine.store.now()  # what was made before this was made by an earlier import
        self._done = 0
        self._collections: dict[str, list[str]] = {}  # by the name of the profile

    def run(self) -> Imported:
        batches, assemblies = self._survey()
        for uuid, batch in batches.items():
            self._import_batch(uuid, batch)
        for portion in _portions(assemblies):
            self._make(self._described(portion), self._assembly)
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
            whole = self._make(entries, lambda entry, told: self._job(entry, told, found.name, parent)) and whole  # noqa: B023 - called at once
            self._step(len(portion))
        if self._dry_run:
            self._report.count("batch", self._known(found.name) is not None)
        elif batch is not None and whole:
            self._release(found.name, batch)

    def _named(self, uuid: str, found: _Batch) -> _Batch:
        """The same under the batchID that takes its new entries. Safe to repeat: a batch that is not over is gone on with.

        A batch that is over reports no more. What has come into the old queue since then becomes another: its batchID, and a number.
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
        self._report.remark(uuid, [f"{last.ref} is {last.state} and reports no more: what is new of it becomes the batch {name}."])
        return replace(found, name=name, jobs=len(new), over=all(state in _OVER for state in new))

    def _make_batch(self, found: _Batch, first: tuple[str, Entry, Described]) -> Record | None:
        """Safe to repeat: a batchID makes one batch, whoever asks."""
        path, _, told = first
        said = self._placed({key: value for key, value in told.submission.items() if key not in _PAYLOAD} | {"batchID": found.name})
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

    def _job(self, entry: Entry, told: Described, batch_id: str, batch: Record | None) -> New:
        said = self._placed({**told.configuration, "batchID": batch_id})
        if entry.written is not None and not said.get("submissionDate"):
            said["submissionDate"] = entry.written.isoformat(timespec="seconds")
        documents = {
            "configuration": {**submission.read(said).document(), **said},  # in both vocabularies
            "identifiers": told.identifiers,
            "metadata": {**told.metadata, "erc_where": told.identifiers.get("primary_id", "")},
            **({"inventory": told.inventory} if told.inventory else {}),
        }
        machine = self._engine.machines["job"]
        return New(
            "job", documents, state=told.state, owner=submission.read(said).submitter, priority=told.priority, request=told.request,
            last_done=_last_done(machine, told), message=told.message, parent=batch.ref if batch is not None else None,
        )  # fmt: skip

    def _assembly(self, entry: Entry, told: Described) -> New:
        kind = "access-large" if told.large else "access-small"
        last = _last_done(self._engine.machines[kind], told)
        return New(
            kind, {"token": told.token}, state=told.state, priority=told.priority, request=told.request, last_done=last,
            message=told.message,
        )  # fmt: skip

    def _placed(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """With the collections by which it is held, where its profile is known here."""
        name = submission.read(said).profile
        if name not in self._collections:
            self._collections[name] = list(self._mnemonics(name))
        return {**said, "collections": self._collections[name]} if self._collections[name] and not said.get("collections") else {**said}

    def _mnemonics(self, profile: str) -> tuple[str, ...]:
        try:
            known = self._engine.store.get("profile", profile) if profile and bad_id(profile) is None else None
            return mnemonics.of(from_document(Profile, known.docs.get("profile")), self._arks) if known is not None else ()
        except (NotFound, BadProfile):
            return ()

    @cached_property
    def _arks(self) -> dict[str, str]:
        return mnemonics.by_ark(self._engine.store.find)

    def _step(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._report.entries)


def _last_done(machine: Machine, told: Described) -> str | None:
    """What resume goes on after: the table decides, in which there may be a state between those that the old queues knew."""
    over = told.state if told.state not in ("Failed", "Deleted", "Held") else told.path[-2] if len(told.path) > 1 else ""
    state = machine.state(over)
    return machine.before(over, told.last_done or None) if state is not None and state.then is not None else told.last_done or None


def _portions(paths: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(paths)
    while portion := list(islice(rest, PORTION)):
        yield portion
