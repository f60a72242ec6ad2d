"""A request: one operation on a migration, stage by stage.

    PUT, MIGRATE  PUT_START -> PUT_PACKING -> PUT_PENDING -> PUTTING -> VERIFY_PENDING -> VERIFY_GETTING -> VERIFYING
                  -> PUT_TIDY -> PUT_COMPLETED
    GET           GET_START -> GET_PENDING -> GETTING -> GET_UNPACKING -> GET_RESTORE -> GET_TIDY -> GET_COMPLETED
    DELETE        DELETE_START -> DELETE_PENDING -> DELETING -> DELETE_TIDY -> DELETE_COMPLETED
    MOVE          MOVE_START -> MOVING -> MOVE_VERIFYING -> MOVE_TIDY -> MOVE_COMPLETED

PUT, DELETE and MOVE own the lock of their migration alone, GETs share it. A DELETE, in the commit that creates it, stops
every other request of its migration; it then waits for the lock, so nothing of them is at work when it begins. Once the
PUT_TIDY of a MIGRATE has begun it is not stopped, and the DELETE waits for its end.

A PUT that fails gives owner and mode back first; when it is resumed, the stage that it failed in finds that (`Released`)
and leads to PUT_START, where the files are locked and compared again. What was uploaded and has not changed is kept.

Stages are compared by their place in a flow, `has_passed`, never by a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from waybill.apps.archive.machine.documents import (
    Cancelled,
    DeleteRequest,
    Failing,
    GetPlan,
    GetRequest,
    MoveCharge,
    MoveRequest,
    Notice,
    Progress,
    PutAttempts,
    Released,
    RequestDocument,
    RequestReport,
)
from waybill.apps.archive.machine.migration import MIGRATION, UNDELETE_ACTIONS, scope_of_workspace
from waybill.machine import RESUME, Backoff, Document, LockFamily, Machine, State, action, end, rest, work
from waybill.record import Documents, Record, Ref, Store
from waybill.step import Act

DAY = 86400.0
KEEP = 90 * DAY  # of requests that have ended; the history of a migration stays longer
SYSTEM_TRIES = 12  # transient errors in a row, with growing pauses: about an hour
BACKOFF = Backoff(2, 2, 900)
_UNLIMITED = (
    10**9
)  # for the engine: the stages count themselves, because they give back what they took before they fail
LOCK = "migration"

PUT_FLOW = (
    "PUT_START", "PUT_PACKING", "PUT_PENDING", "PUTTING", "VERIFY_PENDING", "VERIFY_GETTING", "VERIFYING", "PUT_TIDY", "PUT_COMPLETED",
)  # fmt: skip
GET_FLOW = ("GET_START", "GET_PENDING", "GETTING", "GET_UNPACKING", "GET_RESTORE", "GET_TIDY", "GET_COMPLETED")
DELETE_FLOW = ("DELETE_START", "DELETE_PENDING", "DELETING", "DELETE_TIDY", "DELETE_COMPLETED")
MOVE_FLOW = ("MOVE_START", "MOVING", "MOVE_VERIFYING", "MOVE_TIDY", "MOVE_COMPLETED")
FLOWS = {"PUT": PUT_FLOW, "MIGRATE": PUT_FLOW, "GET": GET_FLOW, "DELETE": DELETE_FLOW, "MOVE": MOVE_FLOW}
_FLOW_OF_STATE = {state: flow for flow in (PUT_FLOW, GET_FLOW, DELETE_FLOW, MOVE_FLOW) for state in flow}
STOPPABLE = (*PUT_FLOW[:-1], *GET_FLOW[:-1], *MOVE_FLOW[:-1], "FAILED")


def has_passed(state: str, stage: str) -> bool:
    """Whether a request in `state` has done the work of `stage`. A request at rest is compared by the stage it rests from."""
    flow = _FLOW_OF_STATE[stage]
    return state in flow and flow.index(state) > flow.index(stage)


def stage_of(record: Record) -> str:
    """The stage of a request; of one that rests, the stage where it would go on."""
    return record.state if record.state in _FLOW_OF_STATE else REQUEST.find_resume_state(record.last_done)


def migration_ref(record: Record) -> Ref:
    return Ref(MIGRATION.name, record.document(RequestDocument).migration)


def _lock_names(record: Record) -> Iterator[str]:
    yield record.document(RequestDocument).migration


def _is_put(record: Record) -> bool:
    return record.document(RequestDocument).kind in ("PUT", "MIGRATE")


def _put_stage(name: str, to: str, description: str, *, poll_interval: float = 5.0, again: bool = True) -> State:
    return work(
        name, to=to, description=description, or_to=("PUT_START",) if again else (), on_fail="FAILED", max_tries=_UNLIMITED,
        backoff=BACKOFF, poll_interval=poll_interval, locks=(LOCK,),
    )  # fmt: skip


def _stage(
    name: str, to: str, description: str, *, shared: bool = False, or_to: tuple[str, ...] = (), poll_interval: float = 5.0,
    on_fail: str | None = "FAILED",
) -> State:  # fmt: skip
    return work(
        name, to=to, description=description, or_to=or_to, on_fail=on_fail, max_tries=_UNLIMITED, backoff=BACKOFF,
        poll_interval=poll_interval, locks=() if shared else (LOCK,), shared_locks=(LOCK,) if shared else (),
    )  # fmt: skip


def _refuse_stop(record: Record, store: Store) -> str | None:
    if record.state == "PUT_TIDY" and record.document(RequestDocument).kind == "MIGRATE":
        return f"{record.ref} is removing the originals; it is waited for."
    return None


def _refuse_resume(record: Record, store: Store) -> str | None:
    """A stopped request goes on only when its migration is no longer being deleted."""
    if record.state != "STOPPED":
        return None
    found = store.get_many((migration_ref(record),)).get(migration_ref(record))
    if found is None or found.state in ("DELETING", "DELETED"):
        return f"{record.ref} was stopped by a DELETE of its migration; undelete that first."
    return None


def _refuse_undelete(record: Record, store: Store) -> str | None:
    for each in record.document(DeleteRequest).stopped:
        found = store.get_many((Ref(REQUEST.name, each.id),)).get(Ref(REQUEST.name, each.id))
        if found is not None and found.session is not None:
            return f"A worker is just stopping request {each.id}; try again in a moment."
    return None


def _refuse_cancel(record: Record, store: Store) -> str | None:
    if record.document(RequestDocument).kind != "GET":
        return f"{record.ref} is no GET; `waybill archive cancel` cleans up after any request."
    return None


def _refuse_cancel_move(record: Record, store: Store) -> str | None:
    if record.document(RequestDocument).kind != "MOVE":
        return f"{record.ref} is no MOVE; `waybill archive cancel` cleans up after any request."
    return None


def _resume(record: Record, args: Mapping[str, Any]) -> Documents:
    return {"failing": None}


def _acts_of_resume(record: Record, args: Mapping[str, Any]) -> Iterator[Act]:
    """The migration of a failed PUT is on disk again; one that a DELETE had stopped is brought back by the undelete."""
    if record.state == "FAILED" and _is_put(record):
        yield Act(migration_ref(record), "retry")


def _acts_of_undelete(record: Record, args: Mapping[str, Any]) -> Iterator[Act]:
    asked = record.document(DeleteRequest)
    yield Act(migration_ref(record), UNDELETE_ACTIONS[asked.migration_state])
    for each in asked.stopped:
        if each.state in PUT_FLOW:
            yield Act(Ref(REQUEST.name, each.id), "go_on", why="the DELETE was taken back")
        elif each.state == "FAILED":
            yield Act(Ref(REQUEST.name, each.id), "fail_again", why="the DELETE was taken back")


def _cancel(record: Record, args: Mapping[str, Any]) -> Documents:
    return {"cancelled": Cancelled(str(args.get("why", ""))[:2000]), "failing": None}


REQUEST = Machine(
    name="archive-request", plural="archive-requests", parent=MIGRATION.name,
    description="One operation on a migration.", made_by="waybill archive, or its API",
    scope_of=lambda record: scope_of_workspace(record.document(RequestDocument).workspace),
    steps="waybill.apps.archive.steps.request",
    states=(
        _put_stage("PUT_START", "PUT_PACKING", "Locks and lists the files, plans archives, reserves the quota.", again=False),
        _put_stage("PUT_PACKING", "PUT_PENDING", "Fixes the bytes of every archive; makes them, where the storage wants whole files."),
        _put_stage("PUT_PENDING", "PUTTING", "Opens an upload batch on the storage."),
        _put_stage("PUTTING", "VERIFY_PENDING", "Sends archive after archive, then waits until the storage has them."),
        _put_stage("VERIFY_PENDING", "VERIFY_GETTING", "Opens a download batch, to read everything back."),
        _put_stage("VERIFY_GETTING", "VERIFYING", "Reads every archive back from the storage."),
        _put_stage("VERIFYING", "PUT_TIDY", "Compares sizes and digests; then the migration is on storage."),
        _stage("PUT_TIDY", "PUT_COMPLETED", "Gives owner and mode back, or removes the originals.", on_fail=None),
        end("PUT_COMPLETED", keep=KEEP, description="The files are on storage."),
        _stage("GET_START", "GET_PENDING", "Makes the target, and chooses what is restored.", shared=True),
        _stage("GET_PENDING", "GETTING", "Opens a download batch on the storage.", shared=True),
        _stage("GETTING", "GET_UNPACKING", "Waits until the storage can give the archives, and reads them.", shared=True),
        _stage("GET_UNPACKING", "GET_RESTORE", "Checks each archive's digest, and unpacks it into the target.", shared=True),
        _stage("GET_RESTORE", "GET_TIDY", "Gives the files their owners, modes, times and attributes.", shared=True),
        _stage("GET_TIDY", "GET_COMPLETED", "Removes what was staged.", shared=True, or_to=("STOPPED",)),
        end("GET_COMPLETED", keep=KEEP, description="The files are restored."),
        _stage("DELETE_START", "DELETE_PENDING", "Waits until its grace ends, with nothing of the migration at work.", poll_interval=60),
        _stage("DELETE_PENDING", "DELETING", "Opens a delete batch on the storage.", or_to=("DELETE_TIDY",)),
        _stage("DELETING", "DELETE_TIDY", "Deletes archive after archive, then waits until the storage has done it."),
        _stage("DELETE_TIDY", "DELETE_COMPLETED", "Removes container and staging; gives owner, mode and quota back."),
        end("DELETE_COMPLETED", keep=KEEP, description="Nothing of the migration is left on the storage."),
        _stage("MOVE_START", "MOVING", "Reserves the quota of the other storage."),
        _stage("MOVING", "MOVE_VERIFYING", "Copies archive after archive."),
        _stage("MOVE_VERIFYING", "MOVE_TIDY", "Reads the copies back and compares them."),
        _stage("MOVE_TIDY", "MOVE_COMPLETED", "Removes the old copy; of a cancelled MOVE the new one.", or_to=("STOPPED",)),
        end("MOVE_COMPLETED", keep=KEEP, description="The files are on the other storage."),
        rest("FAILED", description="It gave up, and says why: resume it, or cancel it."),
        rest("STOPPED", settled=True, keep=KEEP, description="A DELETE of its migration ended it, or it was cancelled."),
        end("UNDELETED", keep=KEEP, description="The DELETE was taken back before it began."),
    ),
    initial_states=("GET_START", "DELETE_START", "MOVE_START"),
    actions=(
        action("resume", "FAILED STOPPED", RESUME, "Go on where it stopped.", role="submitter", guard=_refuse_resume,
               writes=_resume, acts=_acts_of_resume),
        action("stop", " ".join(STOPPABLE), "STOPPED", "A DELETE ends it.", role="admin", when_claimed="wait", guard=_refuse_stop),
        action("go_on", "STOPPED", RESUME, "The DELETE that stopped it is taken back.", role="admin"),
        action("fail_again", "STOPPED", "FAILED", "It had failed before it was stopped.", role="admin"),
        action("cancel", " ".join((*GET_FLOW[:-2], "FAILED")), "GET_TIDY", "End a GET and remove what it staged.", role="submitter",
               when_claimed="wait", guard=_refuse_cancel, writes=_cancel),
        action("cancel_move", " ".join((*MOVE_FLOW[:-2], "FAILED")), "MOVE_TIDY", "End a MOVE and remove the copies that it made.",
               role="submitter", when_claimed="wait", guard=_refuse_cancel_move, writes=_cancel),
        action("undelete", "DELETE_START", "UNDELETED", "Keep the migration.", role="submitter", when_claimed="wait",
               guard=_refuse_undelete, acts=_acts_of_undelete),
    ),
    locks=(LockFamily(LOCK, "One PUT, MOVE or DELETE of a migration, or any number of GETs.", names_of=_lock_names),),
    documents=(
        Document("request", RequestDocument, "service", "Who wants what of which migration."),
        Document("get", GetRequest, "service", "What is restored, and where."),
        Document("delete", DeleteRequest, "service", "When it begins, and what an undelete brings back."),
        Document("move", MoveRequest, "service", "Where to."),
        Document("move_charge", MoveCharge, "step", "What it has reserved on the other storage."),
        Document("notice", Notice, "service", "Who is told by mail."),
        Document("plan", GetPlan, "step", "Which archives a GET needs."),
        Document("attempts", PutAttempts, "step", "How often it began anew because a file changed."),
        Document("progress", Progress, "step", "Which archives are done in this stage."),
        Document("released", Released, "step", "The files have their owner and mode back."),
        Document("failing", Failing, "step", "Why it fails, while it gives back what it took."),
        Document("cancelled", Cancelled, "service", "Why it was cancelled."),
        Document("report", RequestReport, "step", "What became of single files."),
    ),
)  # fmt: skip
