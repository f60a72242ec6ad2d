"""The machines of ingest: a batch is one submission, a job one object of it, an assembly what a user asked to get back.

    batch   Pending -> Processing (its jobs are made, and done) -> Reporting -> Completed, or Failed -> UpdateReporting -> ...
    job     Pending -> Estimating -> Provisioning -> Downloading -> Processing -> (Storing ->) Recording -> Notify -> Completed
    access  Pending -> Processing -> Completed

States have the names that Merritt's services write, because they may share the tree. `tables` makes the machines as the settings want
them: with `storing`, storing is a state of its own; a state in `outside` is left to another service, which leads the record on.

Profiles, collections and minters are records too: what holds for deposits has a history as deposits have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from waybill.apps.ingest import submission
from waybill.apps.ingest.locks import lock_machine
from waybill.apps.ingest.profile import BadProfile, Collection, Profile, changed
from waybill.apps.ingest.rebuilding import rebuild_machine
from waybill.machine import (
    RESUME,
    STAY,
    Action,
    Backoff,
    Document,
    Folder,
    Keys,
    Machine,
    MachineError,
    State,
    action,
    end,
    join,
    rest,
    work,
)
from waybill.record import NotFound, Record, Store
from waybill.rules import Refused

DAY = 86400.0
PAUSE = "queue/ingest"
_LIVE = "Pending Estimating Provisioning Downloading Processing Storing Recording Notify"
_PATIENT = Backoff(5, 2, 300)


# --- what guards ask


def collection_is_open(record: Record, store: Store) -> str | None:
    held = sorted(set(_gates(record)) & set(store.marks()))
    return f"It is still on hold: {', '.join(held)} is set. Release that first." if held else None


def can_be_mended(job: Record, store: Store) -> str | None:
    refusal = job.docs.get("refusal")
    return f"{refusal['reason']} This cannot be resumed: submit it again." if refusal and refusal.get("final") else None


def nothing_was_drawn(minter: Record, store: Store) -> str | None:
    """A counter that is gone would begin again, and give the ARKs of some objects to others."""
    used = minter.docs.get("numbers", {}).get("next", 0)
    return f"{used} numbers of {minter.id} were drawn, so it must go on counting. Give profiles another shoulder instead." if used else None


def batch_is_over(job: Record, store: Store) -> bool:
    """Whether the depositor has had the report: then nobody waits to hear of the job."""
    if job.parent is None:
        return True
    try:
        return not store.get(*job.parent).open
    except NotFound:
        return True


def no_job_runs(batch: Record, store: Store) -> str | None:
    tally = store.tally("job", parent=batch.ref)
    running = {state: count for state, count in tally.items() if count and state in _LIVE.split()}
    said = ", ".join(f"{count} {state}" for state, count in running.items())
    return f"Jobs of it are at work: {said}. Wait for them, or fail them first." if running else None


# --- what is known from documents


def _gates(record: Record) -> Iterable[str]:
    said = submission.of_batch(record) if record.kind == "batch" else submission.of_job(record)
    return [f"collections/{name}" for name in dict.fromkeys((*said.collections, said.profile)) if name]


def _arks(job: Record) -> Iterable[str]:
    ark = submission.of_job(job).primary_id
    return [ark] if ark else []


def _local_ids(job: Record) -> Iterable[str]:
    said = submission.of_job(job)
    return [f"{local}_{said.owner}" for local in said.local_ids]


def _batch_folder(batch: Record) -> tuple[str, ...]:
    return (submission.folder_name(submission.of_batch(batch).batch_id, batch.id),)


def _job_folder(job: Record) -> tuple[str, ...]:
    said = submission.of_job(job)
    batch = job.parent.id if job.parent else ""
    return (submission.folder_name(said.batch_id, batch), submission.folder_name(said.job_id, job.id))


# --- batch


def _batch() -> Machine:
    return Machine(
        name="batch",
        plural="batches",
        prefix="bid",
        made_by="POST /api/v1/ingest/batches",
        doc="One submission: a job for each object of it, and a report when all have settled.",
        queue=PAUSE,
        gates=_gates,
        folder=Folder("queue", _batch_folder),
        begins=("Held", "Processing", "Completed"),
        states=(
            work("Pending", "Processing", "Submitted; its payload has not been looked at.", fails=None, holds="Held", backoff=_PATIENT),
            rest("Held", "Its collection is on hold; an operator releases it when that is over."),
            join("Processing", "Reporting", "Its jobs are made, one for each object, and go their way.", opens="spawned"),
            join("Reporting", "Completed", "Every job has settled: the depositor is told what became of them.", also=["Failed"],
                 opens="spawned"),
            rest("Failed", "A job failed, or the payload could not be read; an operator mends, and has the rest reported.", settled=True),
            join("UpdateReporting", "Completed", "The depositor is told what has changed since the last report.", also=["Failed"]),
            end("Completed", "Reported: everything in it was stored, recorded and announced, or deleted.", keep=30 * DAY),
            end("Deleted", "Given up by an operator; it is removed with its jobs.", keep=0.0),
        ),
        actions=(
            action("hold", "Pending", "Held", "Do not begin it yet.", claimed="wait"),
            action("release", "Held", "Pending", "Let it go on.", guard=collection_is_open),
            action("report", "Failed", "UpdateReporting", "Mending has ended: tell the depositor what has changed."),
            action("delete", "Failed Held", "Deleted", "Remove it with its jobs and their working folders.", guard=no_job_runs,
                   confirm="The depositor will not be told, and its jobs go with it."),
        ),
        documents=(
            Document("submission", "service", "What was submitted, in the words of the services that share the tree.", v=None),
            Document("plan", "step", "Where the list of its objects lies, and how many there are."),
            Document("spawned", "step", "How many of its jobs have been made."),
            Document("trouble", "step", "Why no jobs could be made of it, with line numbers."),
            Document("status-report", "step", "The last report: counts, the first ids, and where all of them are listed.", v=None),
        ),
    )  # fmt: skip


# --- job


def _job_states(storing: bool) -> Iterable[State]:
    yield work("Pending", "Estimating", "Waiting to begin. A wrong digest or a corrupt manifest fails here for good.", holds="Held",
               backoff=_PATIENT, tries=5)  # fmt: skip
    yield rest("Held", "Its collection is on hold, or an operator held it.")
    yield work("Estimating", "Provisioning", "Each URL is asked for its size. This never fails.", fails=None, backoff=_PATIENT)
    yield work("Provisioning", "Downloading", "Waits until the working disk has room for it.", every=30.0, leaves_files=True,
               backoff=_PATIENT, tries=10)  # fmt: skip
    yield work("Downloading", "Processing", "Each file is fetched into the working folder and checked.", leaves_files=True,
               remakes="Provisioning", backoff=_PATIENT)  # fmt: skip
    after = "Storing" if storing else "Recording"
    yield work("Processing", after, "Its identifier is found or minted, it is described, and handed to storage.", leaves_files=True,
               remakes="Provisioning", needs=("localid", "storage"), backoff=_PATIENT)  # fmt: skip
    if storing:
        yield work("Storing", "Recording", "Storage writes a version of it and reads it back.", leaves_files=True, remakes="Provisioning",
                   needs=("localid", "storage"), backoff=_PATIENT)  # fmt: skip
    yield work("Recording", "Notify", "It is entered into the inventory.", needs=("localid", "inventory"), backoff=_PATIENT, tries=5)
    yield work("Notify", "Completed", "Whoever the profile names is called.", backoff=_PATIENT, tries=4)
    yield rest("Failed", "A step gave up; resume goes on after the last one that was done.", settled=True)
    yield end("Completed", "Stored, recorded and announced.")
    yield end("Deleted", "Given up by an operator; the report counts it, and it is removed with its batch.")


def _left_outside(state: State) -> State:
    """The same place in the table, where nobody here works: another service does, and leads the record on."""
    # Nor are its keys held here meanwhile: that service takes the same locks itself.
    doc = f"{state.doc} Another service does this."
    return dataclasses.replace(state, sort="rest", doc=doc, remakes=None, leaves_files=False, needs=())


def _job(storing: bool, outside: Iterable[str]) -> Machine:
    left = tuple(outside)
    states = tuple(_left_outside(s) if s.name in left else s for s in _job_states(storing))
    works = {s.name for s in states if s.then is not None}
    if unknown := sorted(set(left) - works):
        raise MachineError(f"{unknown[0]} cannot be left to another service; these states can: {', '.join(sorted(works))}.")
    live = " ".join(name for name in _LIVE.split() if name in works)
    return Machine(
        name="job",
        plural="jobs",
        prefix="jid",
        parent="batch",
        doc="One object of a deposit, from queued to stored, recorded and announced.",
        queue=PAUSE,
        gates=_gates,
        folder=Folder("queue", _job_folder),
        begins=("Held", "Estimating", "Recording", "Failed", "Completed", "Deleted"),
        states=states,
        actions=(
            action("hold", "Pending", "Held", "Do not begin it yet.", claimed="wait"),
            action("release", "Held", "Pending", "Let it go on.", guard=collection_is_open),
            action("resume", "Failed", RESUME, "Go on after the last step that was done.", guard=can_be_mended),
            action("restart", "Failed", "Estimating", "Begin again, with a new download.", guard=can_be_mended, writes=_restarted),
            action("fail", live, "Failed", "Stop it now, whatever it does.", claimed="wait", confirm="What it does now is given up."),
            action("delete", "Failed Held", "Deleted", "Give it up and remove its working folder.",
                   confirm="Its batch has not been reported, and the depositor will not hear of this job.", unless=batch_is_over),
            *_finishes(s for s in states if s.name in left),
        ),
        keys=(
            Keys("localid", "One job at a time looks up or mints for a local id of an owner.", of=_local_ids),
            Keys("storage", "One writer for an object in storage.", of=_arks),
            Keys("inventory", "One writer for an object in the inventory.", of=_arks),
        ),
        documents=(
            Document("configuration", "service", "What was submitted, in the words of the services that share the tree.", v=None),
            Document("identifiers", "step", "Its ARK and its local ids.", v=None),
            Document("minted", "step", "The ARK that was minted for it and is registered with EZID."),
            Document("metadata", "step", "Who, what, when and where.", v=None),
            Document("space_needed", "step", "Bytes that it needs on the working disk; -1: unknown.", v=None),
            Document("store", "step", "What storage is asked to write.", v=None),
            Document("inventory", "step", "The manifest from which the inventory is written.", v=None),
            Document("files", "step", "Where the list of its files lies, before they were fetched."),
            Document("room", "step", "Since when it waits for room, and what was said about it."),
            Document("downloaded", "step", "Where the list of its files lies, as they were fetched."),
            Document("stored", "step", "What storage answered."),
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
            f"finish-{state.name.lower()}", state.name, state.then, f"Another service has done {state.name}.", writes=_told_by_others
        )


def _told_by_others(job: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: body for name, body in args.items() if name in ("inventory", "store", "identifiers")}


# --- access


def _access(size: str) -> Machine:
    return Machine(
        name=f"access-{size}",
        plural=f"{size} assemblies",
        prefix="qid",
        doc=f"A {size} assembly: an object, or a part of it, packed for a user who asked for it.",
        queue=f"queue/access{size.capitalize()}",
        begins=("Processing", "Completed", "Failed", "Deleted"),
        states=(
            work("Pending", "Processing", "Asked for; it waits for its turn.", fails=None, backoff=_PATIENT),
            work("Processing", "Completed", "It is being packed.", backoff=_PATIENT),
            rest("Completed", "Ready to be fetched until it expires.", settled=True),
            rest("Failed", "It could not be packed.", settled=True),
            end("Deleted", "Expired or given up; its file is removed with it."),
        ),
        actions=(
            action("requeue", "Failed", "Pending", "Try again."),
            action("delete", "Failed Completed", "Deleted", "Remove it; its URL stops working."),
        ),
        documents=(
            Document("token", "step", "The token, the URL and when it is ready, in the words of the services that share the tree.", v=None,
                     secret=("token", "url")),
            Document("order", "service", "What was asked for."),
            Document("packed", "step", "The file that was made."),
        ),
    )


# --- what holds for deposits


def _kept(type: type[Profile | Collection], plural: str, doc: str, secret: tuple[str, ...] = ()) -> Machine:
    """Something that people write and change, and that deposits refer to."""
    name = body = type.__name__.lower()

    def rewritten(record: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return {body: changed(type, record.id, record.docs.get(body), dict(args))}
        except BadProfile as error:
            raise Refused(str(error)) from None

    return Machine(
        name=name,
        plural=plural,
        doc=doc,
        made_by=f"PUT /api/v1/ingest/{plural}/NAME",
        states=(
            rest("Active", "In force."),
            rest("Retired", "No longer to be named by new deposits; those under way go on."),
            end("Deleted", "Removed.", keep=0.0),
        ),
        actions=(
            action("change", "Active", STAY, f"Write another {body}.", writes=rewritten, role="admin"),
            action("retire", "Active", "Retired", "Let no new deposit name it.", role="admin"),
            action("restore", "Retired", "Active", "Let deposits name it again.", role="admin"),
            action("delete", "Retired", "Deleted", "Remove it.", confirm="What names it can no longer be worked on.", role="admin"),
        ),
        documents=(Document(body, "service", doc, v=None, secret=secret),),
    )


def _draw(minter: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The next numbers are the asker's: from the old `next` up to the new one."""
    before = minter.docs.get("numbers", {"next": 0})
    return {"numbers": {**before, "next": before["next"] + max(1, min(1000, int(args.get("count", 1))))}}


def _minter() -> Machine:
    return Machine(
        name="minter",
        plural="minters",
        doc="Counts the ARKs of one shoulder. Numbers are drawn in portions; one that was drawn and not used is never used.",
        states=(rest("Active", "Numbers can be drawn."), end("Closed", "No number was ever drawn.")),
        actions=(
            action("draw", "Active", STAY, "Take the next numbers.", writes=_draw, role="admin"),
            action("close", "Active", "Closed", "Give up a shoulder that was never used.", guard=nothing_was_drawn, role="admin"),
        ),
        documents=(Document("numbers", "service", "The next number.", v=1),),
    )


def tables(*, storing: bool = False, outside: Iterable[str] = ()) -> tuple[Machine, ...]:
    """The machines, without their steps."""
    return (
        _batch(), _job(storing, outside), _access("small"), _access("large"),
        _kept(Profile, "profiles", "What holds for every deposit of a kind.", secret=("callback.password",)),
        _kept(Collection, "collections", "Objects that belong together, and are put on hold together."),
        _minter(), rebuild_machine(), lock_machine(),
    )  # fmt: skip

