"""The disk space of a job, from the estimate to the last file.

    space_needed_of          the bytes that a job needs, as Estimating or a later step has written them
    reserve_space            reserves them (disk_space.py). If there are not enough, stale reservations are removed, the space hook is
                             run if its time has come, and the reservation is tried once more; then the job waits
    OfferedSizes             adds up what servers announce when files are fetched, before anything is written
    wait_for_full_disk       others fill the disk: fetched files stay, and the job waits for what is missing
    wait_for_offered_size    servers announce more than was estimated: nothing of that is written; the job waits for that much
    wait_for_outgrown_job    more arrived than was announced: the job gives back all it has, so that others can continue, and waits for
                             twice as much

A job that needs more than the disk has fails, or waits for a larger disk: it never fits, and the administrators get mail
once. They also get mail about a job that has waited very long: it would fit, but what fills the disk may stay. A job
that has waited longer than `patience` keeps nothing reserved.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from waybill.apps.ingest import names, priority
from waybill.apps.ingest.disk_space import DISK_FULL_MESSAGE, SpaceDecision
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.job_refusal import SubmissionRefused
from waybill.apps.ingest.machine.job import SPACE_STATES
from waybill.apps.ingest.resources import IngestResources, resources_of
from waybill.notify import make_mail
from waybill.record import Record, RecordNotFound, Store
from waybill.step import New, StepContext, Wait
from waybill.transfer import DownloadResult

HOOK_TIMEOUT = 120.0
HOOK_POLL_SECONDS = 0.25
_MAX_LINE_BYTES = 500
_JOBS_PER_READ = 100


# --- how much a job needs


def space_needed_of(job: Record) -> int | None:
    """The bytes that the job needs on the disk; None if unknown, which is written as 0 or -1."""
    needed = job.documents.get("space_needed")
    return needed if isinstance(needed, int) and needed > 0 else None


def cleared_space_documents(job: Record) -> dict[str, Any]:
    """Removes the document `disk_space`, for a step that has its reservation and no longer waits."""
    return {"disk_space": None} if "disk_space" in job.documents else {}


def to_space_needed(total: int) -> int:
    """The value of `space_needed`: at least one byte, since 0 means "unknown"."""
    return max(1, total)


def adjust_job_priority(
    job: Record, files: dict[str, Any] | None, needed: int, large_job_bytes: int
) -> tuple[int | None, dict[str, Any]]:
    """The new priority, if it changes, and the document `files` that remembers the first one."""
    if files is None:
        return None, {}  # the first priority cannot be remembered, so it is not changed
    remembered = files.get("priority") or {}
    first = remembered["first"] if remembered.get("last") == job.priority else job.priority
    last = priority.adjust_for_size(first, needed, large_job_bytes)
    if last == job.priority:
        return None, {}
    return last, {"files": {**files, "priority": {"first": first, "last": last}}}


# --- reserving space


def reserve_space(
    job: Record, ctx: StepContext, need: int | None, *, have: int = 0, documents: Mapping[str, Any] | None = None
) -> Wait | None:
    """Reserve `need` bytes, of which `have` are on the disk already. Returns None if they are granted, otherwise the
    Wait to return, which writes `documents`.

    Safe to repeat: a job has one reservation, and reserving the same twice is reserving it once.
    """
    resources = resources_of(ctx)
    decision = resources.space_reservations.reserve(job.id, need, ctx.now(), have=have)
    if not decision.granted and _free_more_space(ctx, resources, decision):
        decision = resources.space_reservations.reserve(job.id, need, ctx.now(), have=have)
    if decision.granted:
        return None
    space_document = {"since": decision.waiting_since, "message": decision.reason, "never_fits": decision.never_fits}
    if decision.never_fits:
        alert_never_fits(job, ctx, space_document)
    elif ctx.now() - decision.waiting_since > resources.settings.disk_space.alert_after:
        space_document["late"] = True
        _alert_late(job, ctx, space_document)
    return wait_for_space(ctx.record, ctx, space_document, documents)


def alert_never_fits(
    job: Record, ctx: StepContext, space_document: dict[str, Any], documents: Mapping[str, Any] | None = None
) -> None:
    """Mail the administrators once: in one commit with the document that says so."""
    if not job.documents.get("disk_space", {}).get("never_fits"):
        ctx.spawn(
            _build_alert_mail(resources_of(ctx), job, space_document["message"], ctx.now()),
            {**(documents or {}), "disk_space": space_document},
        )


def _alert_late(job: Record, ctx: StepContext, space_document: dict[str, Any]) -> None:
    """Mail them about a job that would fit and still gets no space: it may never get it, and nobody would notice."""
    if not job.documents.get("disk_space", {}).get("late"):
        waited = (ctx.now() - space_document["since"]) / 3600
        subject = (
            f"has waited {waited:,.0f} hours for space on the working disk of {resources_of(ctx).environment.host}"
        )
        ctx.spawn(
            _build_alert_mail(
                resources_of(ctx), job, space_document["message"], ctx.now(), subject=subject, key="disk space late"
            ),
            {"disk_space": space_document},
        )


def wait_for_space(
    job: Record, ctx: StepContext, space_document: dict[str, Any], documents: Mapping[str, Any] | None = None
) -> Wait:
    changed = {} if job.documents.get("disk_space") == space_document else {"disk_space": space_document}
    return Wait(
        resources_of(ctx).settings.disk_space.poll_interval, space_document["message"], {**(documents or {}), **changed}
    )


def _free_more_space(ctx: StepContext, resources: IngestResources, decision: SpaceDecision) -> bool:
    """Remove stale reservations and run the hook; whether that may have freed space."""
    removed = resources.space_reservations.remove_stale(lambda ids: _find_active_jobs(ctx, ids), ctx.now())
    hook_is_due = resources.space_reservations.claim_hook_run(ctx.now())
    if hook_is_due:
        run_space_hook(ctx, resources, decision.missing_bytes)
    return bool(removed) or hook_is_due


def _find_active_jobs(ctx: StepContext, ids: Sequence[str]) -> set[str]:
    """The jobs among these that are in a state that needs space, on this host."""

    here = ("", resources_of(ctx).environment.host)

    def read_jobs(page: Sequence[str], store: Store) -> set[str]:
        found = set()
        for id in page:
            try:
                job = store.get("job", id)
            except RecordNotFound:
                continue  # it was removed
            if job.state in SPACE_STATES and job.host in here:
                found.add(id)
        return found

    alive: set[str] = set()
    for start in range(0, len(ids), _JOBS_PER_READ):
        alive |= ctx.run_on_store(partial(read_jobs, ids[start : start + _JOBS_PER_READ]))
    return alive


def _build_alert_mail(
    resources: IngestResources, job: Record, reason: str, at: float, *, subject: str = "", key: str = "disk space"
) -> Sequence[New]:
    """Mail to the administrators, if there are any."""
    if not resources.settings.notifications.admins:
        return ()
    subject = f"Job {job.id} {subject or f'can never fit on the working disk of {resources.environment.host}'}"
    return (
        make_mail(
            to=resources.settings.notifications.admins,
            subject=subject,
            text=f"Job {job.id}: {reason}",
            key=f"{job.ref} {key}",
            at=at,
        ),
    )


# --- too little space while files are fetched


class OfferedSizes:
    """The sizes that servers have announced for one job in one attempt; used from several threads."""

    def __init__(self, ctx: StepContext, job: str, granted_bytes: int) -> None:
        """`granted_bytes`: bytes that are reserved for the job."""
        self._ctx, self._job, self.granted_bytes = ctx, job, granted_bytes
        self._space_reservations = resources_of(ctx).space_reservations
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()
        self.total_bytes = 0
        self.bytes_on_disk = 0  # written so far
        self.is_refused = False

    def accept_size(self, name: str, size: int) -> bool:
        """Whether a file of this size may be fetched; called again for another try of the same file."""
        with self._lock:
            self.total_bytes += size - self._sizes.get(name, 0)
            self._sizes[name] = size
            if self.total_bytes > self.granted_bytes and not self.is_refused:
                self.is_refused = not self._space_reservations.reserve(
                    self._job, self.total_bytes, self._ctx.now(), have=self.bytes_on_disk
                ).granted
                self.granted_bytes = self.granted_bytes if self.is_refused else self.total_bytes
            return not self.is_refused


def release_after_patience(job: Record, ctx: StepContext) -> None:
    """Give back what a job has that waited too long. Safe to repeat: files of earlier attempts only save time."""
    resources = resources_of(ctx)
    since = job.documents.get("disk_space", {}).get("since", ctx.now())
    if ctx.now() - since > resources.settings.disk_space.patience:
        remove_earlier_attempts(ctx)
        resources.space_reservations.release_granted(job.id)


def remove_earlier_attempts(ctx: StepContext) -> None:
    for folder in ctx.list_earlier_folders():
        if int(folder.name) < ctx.claim_version:
            _remove_folder(ctx, folder)


def _remove_folder(ctx: StepContext, folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:  # a late worker still writes there; it is removed with the job's folder
        ctx.log.info("%s could not be removed: %s", folder, error.strerror or error)


def wait_for_full_disk(job: Record, ctx: StepContext) -> Wait:
    """Something else fills the disk: fetched files stay, and the download resumes when there is space for the rest."""
    resources_of(ctx).space_reservations.withdraw(job.id, space_needed_of(job), ctx.now())
    release_after_patience(job, ctx)
    since = job.documents.get("disk_space", {}).get("since", ctx.now())
    return wait_for_space(job, ctx, {"since": since, "message": DISK_FULL_MESSAGE, "never_fits": False})


def wait_for_outgrown_job(
    job: Record, ctx: StepContext, rows: list[ManifestRow], on_disk: int, failures: list[DownloadResult]
) -> Wait:
    """More arrived than was announced, and there is no space for the rest.

    If the final size is unknown, the job waits for twice as much.
    """
    reservations, promised = resources_of(ctx).space_reservations, sum(row.size or 0 for row in rows)
    need = promised if promised > on_disk and all(row.size is not None for row in rows) else max(promised, 2 * on_disk)
    # Safe to repeat: a second run starts with nothing, and ends in the same way or better.
    remove_earlier_attempts(ctx)
    _remove_folder(ctx, ctx.workdir)
    capacity = reservations.get_capacity()
    if need > capacity:
        sentence = f"It can never fit: {on_disk:,} bytes were fetched, more are to come, and the working disk has {capacity:,} at most."
        _refuse_oversized(job, ctx, sentence, need, failures)
    reservations.withdraw(job.id, need, ctx.now(), exceeds_estimate=True)
    sentence = (
        f"It needs more space than reserved: {on_disk:,} bytes were fetched, and the working disk is full. "
        f"It waits for {need:,} to be free."
    )
    return wait_for_space(
        job, ctx, {"since": ctx.now(), "message": sentence, "never_fits": False}, {"space_needed": need}
    )


def wait_for_offered_size(job: Record, ctx: StepContext, need: int, failures: list[DownloadResult]) -> Wait:
    """The servers announce more than was estimated, and there is no space for it: nothing of that was written.

    Fetched files stay.
    """
    reservations = resources_of(ctx).space_reservations
    capacity = reservations.get_capacity()
    if need > capacity:
        sentence = f"It can never fit: the servers offer {need:,} bytes, and the working disk has {capacity:,} at most."
        _refuse_oversized(job, ctx, sentence, need, failures)
    reservations.withdraw(job.id, need, ctx.now())
    release_after_patience(job, ctx)
    sentence = f"It waits for disk space: the servers offer {need:,} bytes, more than was estimated, and there is not enough space now."
    since = job.documents.get("disk_space", {}).get("since", ctx.now())
    return wait_for_space(job, ctx, {"since": since, "message": sentence, "never_fits": False}, {"space_needed": need})


def _refuse_oversized(
    job: Record, ctx: StepContext, sentence: str, need: int, failures: list[DownloadResult]
) -> NoReturn:
    alert_never_fits(job, ctx, {"since": ctx.now(), "message": sentence, "never_fits": True}, {"space_needed": need})
    reasons = [
        f"{names.quote_text(each.name)}: {sentence}" for each in failures if each.tries
    ]  # of those that were being fetched
    raise SubmissionRefused(f"{sentence} Give it a larger disk, then resume.", reasons, is_final=False)


# --- the space hook: a command of the operator that may free space on the working disk


def run_space_hook(ctx: StepContext, resources: IngestResources, missing_bytes: int) -> None:
    """Run the hook, and log its first line. Safe to repeat: it is run again anyway while jobs wait."""
    command = resources.settings.disk_space.hook
    variables = {
        "WAYBILL_DISK_SPACE_NEEDED": str(missing_bytes),  # bytes in addition to those that are free
        "WAYBILL_DISK_SPACE_FOLDER": str(resources.environment.config.work.root),
        "WAYBILL_DISK_SPACE_JOB": ctx.record.id,
    }
    # The command does not get Waybill's own variables, some of which are secrets.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=inherited | variables,
            start_new_session=True,
        )
    except OSError as error:
        ctx.log.warning("the space hook cannot be run: %s", error.strerror or error)
        return
    with process:
        try:
            first_line = _read_first_line(ctx, process)
            code = process.poll()
        finally:
            _kill_process_group(process)
    ctx.log.info("the space hook %s: %s", "was killed" if code is None else f"exited with {code}", first_line)


def _read_first_line(ctx: StepContext, process: subprocess.Popen[bytes]) -> str:
    """The first line of its output, when it has ended, or timed out, or this step must stop."""
    assert process.stdout is not None
    output, until = b"", time.monotonic() + HOOK_TIMEOUT
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < until and not ctx.stop:
            if waiting.get_map() and waiting.select(HOOK_POLL_SECONDS):
                chunk = os.read(process.stdout.fileno(), 65536)
                output = (output + chunk)[:_MAX_LINE_BYTES]
                if not chunk:
                    waiting.unregister(process.stdout)
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(0 if waiting.get_map() else HOOK_POLL_SECONDS)
                break  # a process that it left behind may keep the pipe open
    return output.decode(errors="replace").strip().partition("\n")[0]


def _kill_process_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the hook with all processes that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
