"""The machine of jobs: one object of a deposit, from queued to stored, recorded and announced.

Read from the table, for the rest of ingest: JOB (its states by what they mean), UNRECORDED_STATES, STORING_STATE and
RECORDING_STATE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from waybill.apps.ingest.documents import (
    CallbackAnswer,
    DownloadedFiles,
    InventoryRequest,
    JobRestarts,
    JobWarnings,
    MintedArk,
    PayloadFiles,
    Refusal,
    SpaceNeeded,
    StoreRequest,
)
from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.machine.holds import (
    COLLECTION_HOLD_PREFIX,
    PATIENT_BACKOFF,
    PAUSE_HOLD,
    check_collection_is_open,
    hold_names_of,
    scope_of,
)
from waybill.apps.ingest.machine.state_names import StateNames
from waybill.apps.ingest.storage import StoredVersion
from waybill.apps.ingest.submission import (
    DepositCollections,
    DepositOwner,
    JobConfiguration,
    JobIdentifiers,
    JobMetadata,
    Submission,
    choose_folder_name,
    parse_texts,
)
from waybill.disk_space import SPACE_DOCUMENT
from waybill.machine import (
    RESUME,
    Action,
    Document,
    LockFamily,
    Machine,
    MachineError,
    State,
    WorkingFolder,
    action,
    end,
    rest,
    work,
)
from waybill.masking import mask_document
from waybill.record import Record, RecordNotFound, Store

# --- the states


def _build_states(storing_state: bool) -> tuple[State, ...]:
    """`storing_state`: Storing is a separate state; otherwise Processing does its work too."""
    patient = partial(work, backoff=PATIENT_BACKOFF)
    with_files = partial(patient, leaves_files=True)
    storing = with_files("Storing", to="Recording", description="Storage writes a version of it and reads it back.",
                         on_host_lost="Provisioning", locks=("localid", "storage"), max_tries=8)  # fmt: skip
    return (
        patient("Pending", to="Estimating", description="Waiting to start. A wrong digest or a corrupt manifest fails here for good.",
                on_hold="Held", max_tries=5),
        rest("Held", description="Its collection is on hold, or an operator held it."),
        patient("Estimating", to="Provisioning", description="The server of each file is asked for its size. This never fails.",
                on_fail=None),
        with_files("Provisioning", to="Downloading", description="Waits until disk space is reserved for it.", reserves_space=True,
                   poll_interval=30.0, max_tries=10),
        with_files("Downloading", to="Processing", description="Each file is fetched into the working folder and checked.",
                   reserves_space=True, on_host_lost="Provisioning", max_tries=5),
        with_files("Processing", to="Storing" if storing_state else "Recording",
                   description="Its identifier is found or minted, it is described, and handed to storage.",
                   on_host_lost="Provisioning", locks=("localid", "storage"), max_tries=8),
        *((storing,) if storing_state else ()),
        patient("Recording", to="Notify", description="It is entered into the inventory.", locks=("localid", "inventory"), max_tries=8),
        patient("Notify", to="Completed", description="The callback of the profile is called.", max_tries=4),
        end("Completed", description="Stored, recorded and announced."),
        end("Deleted", description="Given up by an operator; the report counts it, and it is removed with its batch."),
    )  # fmt: skip


_TABLE = {state.name: state for state in _build_states(storing_state=True)}  # with every state that the settings allow
JOB = StateNames.from_states(_TABLE.values())
# where a job is not yet in the inventory: the last live state comes after that
UNRECORDED_STATES = JOB.live[:-1]
STORING_STATE = next(
    name for name in JOB.live if name not in {state.name for state in _build_states(storing_state=False)}
)
RECORDING_STATE = next(name for name in JOB.live if "inventory" in _TABLE[name].locks)


# --- guards


def check_can_resume(job: Record, store: Store) -> str | None:
    refusal = job.find_document(Refusal)
    if refusal is not None and refusal.final:
        return f"{refusal.reason} This cannot be resumed: submit it again."
    return check_batch_not_deleted(job, store)


def check_can_release(job: Record, store: Store) -> str | None:
    return check_collection_is_open(job, store) or check_batch_not_deleted(job, store)


def check_batch_not_deleted(job: Record, store: Store) -> str | None:
    """A job of a deleted batch would be stored and recorded, and then removed with the batch: no report would name it."""
    try:
        batch = store.get(*job.parent) if job.parent is not None else None
    except RecordNotFound:
        return None
    deleted = batch is not None and batch.state == BATCH.deleted
    return "Its batch was deleted, and it is removed with the batch: submit it again." if deleted else None


def is_batch_over(job: Record, store: Store) -> bool:
    """Whether no further report can name the job. After a batch has failed another report may follow."""
    if job.parent is None:
        return True
    try:
        return store.get(*job.parent).state in BATCH.ended
    except RecordNotFound:
        return True


# --- lock names and the working folder, from the documents


def _arks_of(job: Record) -> Iterable[str]:
    ark = Submission.from_job(job).primary_id
    return [ark] if ark else []


def _local_ids_of(job: Record) -> Iterable[str]:
    submission = Submission.from_job(job)
    return [f"{local}_{submission.owner}" for local in submission.local_ids]


def _folder_of_job(job: Record) -> tuple[str, ...]:
    submission = Submission.from_job(job)
    batch = job.parent.id if job.parent else ""
    return (choose_folder_name(submission.batch_id, batch), choose_folder_name(submission.job_id, job.id))


# --- the machine


def _make_external(state: State) -> State:
    """The same place in the table, without a step: another service does the work and moves the record on."""
    # The record owns no locks meanwhile: that service takes the same locks itself.
    description = f"{state.description} Another service does this."
    return dataclasses.replace(
        state, type="rest", description=description, on_host_lost=None, leaves_files=False, locks=()
    )


def build_job_machine(storing_state: bool, external_states: Iterable[str]) -> Machine:
    external = tuple(external_states)
    states = tuple(_make_external(s) if s.name in external else s for s in _build_states(storing_state))
    works = {s.name for s in states if s.to is not None}
    if unknown := sorted(set(external) - works):
        raise MachineError(
            f"external_states names {unknown[0]}, which cannot be left to another service; these states can: {', '.join(sorted(works))}."
        )
    live = " ".join(name for name in JOB.live if name in works)
    return Machine(
        name="job",
        plural="jobs",
        prefix="jid",
        parent="batch",
        steps="waybill.apps.ingest.steps.job",
        made_by="its batch: POST /api/v1/ingest/batches, or `waybill ingest submit`",
        description="One object of a deposit, from queued to stored, recorded and announced.",
        queue=PAUSE_HOLD,
        hold_names=hold_names_of,
        scope_of=scope_of,
        hold_prefixes=(COLLECTION_HOLD_PREFIX,),
        folder=WorkingFolder("queue", _folder_of_job),
        initial_states=("Held", "Estimating", "Recording", "Failed", "Completed", "Deleted"),
        states=states,
        actions=(
            action("hold", "Pending", "Held", "Do not start it yet.", when_claimed="wait"),
            action("release", "Held", "Pending", "Let it continue.", guard=check_can_release),
            action("resume", "Failed", RESUME, "Continue after the last step that was done.", guard=check_can_resume),
            action("restart", "Failed", "Estimating", "Start again, with a new download.", guard=check_can_resume, writes=_count_restart),
            action("fail", live, "Failed", "Stop it now, in any state.", when_claimed="wait", confirm="Its present step is given up."),
            action("delete", "Failed Held", "Deleted", "Give it up and remove its working folder.",
                   confirm="Its batch is not completed: no report will name this job any more.", skip_confirm=is_batch_over),
            *_build_finish_actions(s for s in states if s.name in external),
        ),
        locks=(
            LockFamily("localid", "One job at a time looks up or mints for a local id of an owner.", names_of=_local_ids_of),
            LockFamily("storage", "One writer for an object in storage.", names_of=_arks_of),
            LockFamily("inventory", "One writer for an object in the inventory.", names_of=_arks_of),
        ),
        documents=(
            Document("configuration", JobConfiguration, "service",
                     "What was submitted, in the vocabulary of the services that share the tree.", v=None,
                     parse=JobConfiguration.parse, render=JobConfiguration.render, redact=mask_document),
            Document("identifiers", JobIdentifiers, "step", "Its ARK and its local ids.", v=None, parse=JobIdentifiers.parse),
            Document("owner", DepositOwner, "step", "The owner of its local ids, from its profile, if another service submitted it."),
            Document("collections", DepositCollections, "step",
                     "The collections that can hold it, from its profile, if another service submitted it."),
            Document("minted", MintedArk, "step", "The ARK that was minted for it, to be registered with EZID."),
            Document("metadata", JobMetadata, "step", "Who, what, when and where.", v=None, parse=parse_texts(JobMetadata)),
            Document("space_needed", SpaceNeeded, "step", "Bytes that it needs on the working disk; -1: unknown.", v=None,
                     parse=SpaceNeeded.parse, render=SpaceNeeded.render),
            Document("store", StoreRequest, "step", "What storage is asked to write.", v=None, parse=parse_texts(StoreRequest),
                     redact=mask_document),
            Document("inventory", InventoryRequest, "step", "The manifest from which the inventory is written.", v=None,
                     parse=parse_texts(InventoryRequest), redact=mask_document),
            Document("files", PayloadFiles, "step", "Where the list of the files to fetch is.", redact=mask_document),
            SPACE_DOCUMENT,
            Document("downloaded", DownloadedFiles, "step", "Where the list of the fetched files is."),
            Document("stored", StoredVersion, "step", "What storage answered."),
            Document("warnings", JobWarnings, "step", "Warnings about the stored version: damaged files that it keeps."),
            Document("callback", CallbackAnswer, "step", "What the callback answered."),
            Document("refusal", Refusal, "step", "Why the submission was refused, with all reasons."),
            Document("restarts", JobRestarts, "service", "How often it was started again."),
        ),
    )  # fmt: skip


def _count_restart(job: Record, args: Mapping[str, Any]) -> tuple[JobRestarts]:
    restarts = job.find_document(JobRestarts) or JobRestarts(0)
    return (JobRestarts(restarts.count + 1),)


def _build_finish_actions(external: Iterable[State]) -> Iterable[Action]:
    for state in external:
        assert state.to is not None
        yield action(
            f"finish-{state.name.lower()}",
            state.name,
            state.to,
            f"Another service has done {state.name}.",
            writes=_accept_foreign_documents,
        )


def _accept_foreign_documents(job: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: body for name, body in args.items() if name in ("inventory", "store", "identifiers")}
