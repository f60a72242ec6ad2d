"""The machine of jobs: one object of a deposit, from queued to stored, recorded and announced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from waybill.apps.ingest import submission
from waybill.apps.ingest.machine.holding import PATIENT, PAUSE, collection_is_open, gates
from waybill.apps.ingest.signatures import unsigned
from waybill.machine import (
    RESUME,
    Action,
    Document,
    Folder,
    Keys,
    Machine,
    MachineError,
    State,
    action,
    end,
    rest,
    work,
)
from waybill.record import NotFound, Record, Store

LIVE = "Pending Estimating Provisioning Downloading Processing Storing Recording Notify"


# --- what guards ask


def can_be_mended(job: Record, store: Store) -> str | None:
    refusal = job.docs.get("refusal")
    if refusal and refusal.get("final"):
        return f"{refusal['reason']} This cannot be resumed: submit it again."
    return goes_with_its_batch(job, store)


def can_be_released(job: Record, store: Store) -> str | None:
    return collection_is_open(job, store) or goes_with_its_batch(job, store)


def goes_with_its_batch(job: Record, store: Store) -> str | None:
    """A job of a deleted batch would be stored and recorded, and its record removed: nobody would ever hear of it."""
    try:
        batch = store.get(*job.parent) if job.parent is not None else None
    except NotFound:
        return None
    deleted = batch is not None and batch.state == "Deleted"
    return "Its batch was deleted, and it goes with it: submit it again." if deleted else None


def batch_is_over(job: Record, store: Store) -> bool:
    """Whether no report will follow in which the depositor could hear of the job.

    After one that failed there may be another.
    """
    if job.parent is None:
        return True
    try:
        return store.get(*job.parent).state in ("Completed", "Deleted")
    except NotFound:
        return True


# --- what is known from documents


def _arks(job: Record) -> Iterable[str]:
    ark = submission.of_job(job).primary_id
    return [ark] if ark else []


def _local_ids(job: Record) -> Iterable[str]:
    said = submission.of_job(job)
    return [f"{local}_{said.owner}" for local in said.local_ids]


def _job_folder(job: Record) -> tuple[str, ...]:
    said = submission.of_job(job)
    batch = job.parent.id if job.parent else ""
    return (submission.folder_name(said.batch_id, batch), submission.folder_name(said.job_id, job.id))


# --- the table


def _job_states(storing: bool) -> Iterable[State]:
    yield work("Pending", "Estimating", "Waiting to begin. A wrong digest or a corrupt manifest fails here for good.", holds="Held",
               backoff=PATIENT, tries=5)  # fmt: skip
    yield rest("Held", "Its collection is on hold, or an operator held it.")
    yield work(
        "Estimating", "Provisioning", "Each URL is asked for its size. This never fails.", fails=None, backoff=PATIENT
    )
    yield work("Provisioning", "Downloading", "Waits until the working disk has room for it.", every=30.0, leaves_files=True,
               backoff=PATIENT, tries=10)  # fmt: skip
    yield work("Downloading", "Processing", "Each file is fetched into the working folder and checked.", leaves_files=True,
               remakes="Provisioning", backoff=PATIENT, tries=5)  # fmt: skip
    after = "Storing" if storing else "Recording"
    yield work("Processing", after, "Its identifier is found or minted, it is described, and handed to storage.", leaves_files=True,
               remakes="Provisioning", needs=("localid", "storage"), backoff=PATIENT, tries=8)  # fmt: skip
    if storing:
        yield work("Storing", "Recording", "Storage writes a version of it and reads it back.", leaves_files=True, remakes="Provisioning",
                   needs=("localid", "storage"), backoff=PATIENT, tries=8)  # fmt: skip
    yield work(
        "Recording",
        "Notify",
        "It is entered into the inventory.",
        needs=("localid", "inventory"),
        backoff=PATIENT,
        tries=8,
    )
    yield work("Notify", "Completed", "Whoever the profile names is called.", backoff=PATIENT, tries=4)
    yield rest("Failed", "A step gave up; resume goes on after the last one that was done.", settled=True)
    yield end("Completed", "Stored, recorded and announced.")
    yield end("Deleted", "Given up by an operator; the report counts it, and it is removed with its batch.")


def _left_outside(state: State) -> State:
    """The same place in the table, where nobody here works: another service does, and leads the record on."""
    # Nor are its keys held here meanwhile: that service takes the same locks itself.
    doc = f"{state.doc} Another service does this."
    return dataclasses.replace(state, sort="rest", doc=doc, remakes=None, leaves_files=False, needs=())


def job_machine(storing: bool, outside: Iterable[str]) -> Machine:
    left = tuple(outside)
    states = tuple(_left_outside(s) if s.name in left else s for s in _job_states(storing))
    works = {s.name for s in states if s.then is not None}
    if unknown := sorted(set(left) - works):
        raise MachineError(
            f"{unknown[0]} cannot be left to another service; these states can: {', '.join(sorted(works))}."
        )
    live = " ".join(name for name in LIVE.split() if name in works)
    return Machine(
        name="job",
        plural="jobs",
        prefix="jid",
        parent="batch",
        made_by="its batch: POST /api/v1/ingest/batches, or `waybill ingest submit`",
        doc="One object of a deposit, from queued to stored, recorded and announced.",
        queue=PAUSE,
        gates=gates,
        folder=Folder("queue", _job_folder),
        begins=("Held", "Estimating", "Recording", "Failed", "Completed", "Deleted"),
        states=states,
        actions=(
            action("hold", "Pending", "Held", "Do not begin it yet.", claimed="wait"),
            action("release", "Held", "Pending", "Let it go on.", guard=can_be_released),
            action("resume", "Failed", RESUME, "Go on after the last step that was done.", guard=can_be_mended),
            action("restart", "Failed", "Estimating", "Begin again, with a new download.", guard=can_be_mended, writes=_restarted),
            action("fail", live, "Failed", "Stop it now, whatever it does.", claimed="wait", confirm="What it does now is given up."),
            action("delete", "Failed Held", "Deleted", "Give it up and remove its working folder.",
                   confirm="Its batch is not completed: the depositor will not hear of this job any more.", unless=batch_is_over),
            *_finishes(s for s in states if s.name in left),
        ),
        keys=(
            Keys("localid", "One job at a time looks up or mints for a local id of an owner.", of=_local_ids),
            Keys("storage", "One writer for an object in storage.", of=_arks),
            Keys("inventory", "One writer for an object in the inventory.", of=_arks),
        ),
        documents=(
            Document("configuration", "service", "What was submitted, in the words of the services that share the tree.", v=None,
                     shown=unsigned),
            Document("identifiers", "step", "Its ARK and its local ids.", v=None),
            Document("owner", "step", "Whose its local ids are, by its profile, where another service submitted it."),
            Document("collections", "step", "The collections by which it is held, by its profile, where another service submitted it."),
            Document("minted", "step", "The ARK that was minted for it and is registered with EZID."),
            Document("metadata", "step", "Who, what, when and where.", v=None),
            Document("space_needed", "step", "Bytes that it needs on the working disk; -1: unknown.", v=None),
            Document("store", "step", "What storage is asked to write.", v=None, shown=unsigned),
            Document("inventory", "step", "The manifest from which the inventory is written.", v=None, shown=unsigned),
            Document("files", "step", "Where the list of its files lies, before they were fetched.", shown=unsigned),
            Document("room", "step", "Since when it waits for room, and what was said about it."),
            Document("downloaded", "step", "Where the list of its files lies, as they were fetched."),
            Document("stored", "step", "What storage answered."),
            Document("warnings", "step", "What is worth knowing of the version that was stored: damaged files that it keeps."),
            Document("called", "step", "What the callback answered."),
            Document("refusal", "step", "Why it failed for good, with all reasons."),
            Document("restarted", "service", "How often it was begun again."),
        ),
    )  # fmt: skip


def _restarted(job: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"restarted": {"count": job.docs.get("restarted", {}).get("count", 0) + 1}}


def _finishes(left: Iterable[State]) -> Iterable[Action]:
    for state in left:
        assert state.then is not None
        yield action(
            f"finish-{state.name.lower()}",
            state.name,
            state.then,
            f"Another service has done {state.name}.",
            writes=_told_by_others,
        )


def _told_by_others(job: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: body for name, body in args.items() if name in ("inventory", "store", "identifiers")}
