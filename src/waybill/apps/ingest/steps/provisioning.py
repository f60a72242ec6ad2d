"""Provisioning: a job waits until the working disk has room for it, and then has that room for itself.

    0. If a row above it in its manifest is under way for the same object, it waits for that (`turns.py`).
    1. It asks the ledger (`room.py`). Granted: it goes on.
    2. Refused: entries of jobs that need no room any more are removed, a command that may provide more is run, if there is one and its
       time has come; and it asks once more.
    3. Still refused: it waits, without a claim, and says for what. All that wait look again in each round.

A job that can never fit says so, tells the administrators once, and waits for a larger disk. They are told too of one
that has waited very long: it would fit, and what fills the disk may stay there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from waybill.apps.ingest.outfit import Outfit, outfit_of
from waybill.apps.ingest.room import DISK_IS_FULL, Answer, unless_full
from waybill.apps.ingest.steps.hook import run_hook
from waybill.apps.ingest.steps.turns import awaited
from waybill.notify import letter
from waybill.record import NotFound, Record, Store
from waybill.step import Context, Done, New, Outcome, Wait

_ROOM_IS_FOR = ("Provisioning", "Downloading")
_PORTION = 100


def provisioning(job: Record, ctx: Context) -> Outcome:
    if (turn := awaited(job, ctx)) is not None:
        return turn
    with unless_full():
        waits = ask(job, ctx, needed(job))
        if not waits:
            ctx.make_folder()  # safe to repeat: the job has one
        return waits or Done(unasked(job))
    since = job.docs.get("room", {}).get("since", ctx.now())
    return waiting(job, ctx, {"since": since, "said": DISK_IS_FULL, "never": False})


def needed(job: Record) -> int | None:
    """What the job needs on the disk, as far as anybody knows; 0 and -1 are "unknown"."""
    said = job.docs.get("space_needed")
    return said if isinstance(said, int) and said > 0 else None


def unasked(job: Record) -> dict[str, Any]:
    """For a step that has its room: nothing is to be said about waiting any more."""
    return {"room": None} if "room" in job.docs else {}


def ask(
    job: Record, ctx: Context, need: int | None, *, have: int = 0, docs: Mapping[str, Any] | None = None
) -> Wait | None:
    """Room for so many bytes, of which `have` are there; None: granted. Else what to answer; `docs` are written with
    it.

    Safe to repeat: the entry in the ledger is the job's own, and asking twice for the same is asking once.
    """
    outfit = outfit_of(ctx)
    answer = outfit.room.admit(job.id, need, ctx.now(), have=have)
    if not answer.granted and _more_is_free(ctx, outfit, answer):
        answer = outfit.room.admit(job.id, need, ctx.now(), have=have)
    if answer.granted:
        return None
    said = {"since": answer.since, "said": answer.reason, "never": answer.never}
    if answer.never:
        tell_never(job, ctx, said)
    elif ctx.now() - answer.since > outfit.settings.room.alert:
        said["late"] = True
        _tell_late(job, ctx, said)
    return waiting(ctx.record, ctx, said, docs)


def tell_never(job: Record, ctx: Context, said: dict[str, Any], docs: Mapping[str, Any] | None = None) -> None:
    """The administrators, once: in one commit with the document that says so."""
    if not job.docs.get("room", {}).get("never"):
        ctx.spawn(_letters(outfit_of(ctx), job, said["said"], ctx.now()), {**(docs or {}), "room": said})


def _tell_late(job: Record, ctx: Context, said: dict[str, Any]) -> None:
    """The same for one that fits and finds no room all the same: perhaps it never will, and nobody would know."""
    if not job.docs.get("room", {}).get("late"):
        waited = (ctx.now() - said["since"]) / 3600
        subject = f"has waited {waited:,.0f} hours for room on the working disk of {outfit_of(ctx).depot.host}"
        ctx.spawn(
            _letters(outfit_of(ctx), job, said["said"], ctx.now(), subject=subject, key="room late"), {"room": said}
        )


def waiting(job: Record, ctx: Context, said: dict[str, Any], docs: Mapping[str, Any] | None = None) -> Wait:
    changed = {} if job.docs.get("room") == said else {"room": said}
    return Wait(outfit_of(ctx).settings.room.every, said["said"], {**(docs or {}), **changed})


def _more_is_free(ctx: Context, outfit: Outfit, answer: Answer) -> bool:
    """Whether something was done that may have freed room."""
    swept = outfit.room.sweep(lambda ids: _still(ctx, ids), ctx.now())
    hooked = outfit.room.hook_is_due(ctx.now())
    if hooked:
        run_hook(ctx, outfit, answer.missing)
    return bool(swept) or hooked


def _still(ctx: Context, ids: Sequence[str]) -> set[str]:
    """Which of these jobs are where room is needed."""

    here = ("", outfit_of(ctx).depot.host)

    def look(some: Sequence[str], store: Store) -> set[str]:
        found = set()
        for id in some:
            try:
                job = store.get("job", id)
            except NotFound:
                continue  # it was removed
            if job.state in _ROOM_IS_FOR and job.host in here:
                found.add(id)
        return found

    alive: set[str] = set()
    for start in range(0, len(ids), _PORTION):
        alive |= ctx.call(partial(look, ids[start : start + _PORTION]))
    return alive


def _letters(
    outfit: Outfit, job: Record, reason: str, at: float, *, subject: str = "", key: str = "room"
) -> Sequence[New]:
    """To the administrators, if there are any."""
    if not outfit.settings.tell.admins:
        return ()
    subject = f"Job {job.id} {subject or f'can never fit on the working disk of {outfit.depot.host}'}"
    return (
        letter(
            to=outfit.settings.tell.admins,
            subject=subject,
            text=f"Job {job.id}: {reason}",
            key=f"{job.ref} {key}",
            at=at,
        ),
    )
