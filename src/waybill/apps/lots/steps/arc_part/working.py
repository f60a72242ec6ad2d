"""Working: one attempt of a part after the other, until one does its work or no retry is left.

    attempts that a crash interrupted are listed, and their data removed
    a new attempt is written down, with the folders that it will write to, before it writes anything
    the workload runs; what it leaves in its sinks is uploaded into those folders, and listed in manifests
    it failed: what it wrote is listed and removed; it is tried again after a pause, or the part is partial

Every attempt has folders of its own, so nothing that a run of this step did can be in the way of another.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.machine import PartAttempt, PartAttempts, PartDocument
from waybill.apps.lots.part_attempts import (
    ATTEMPTS_PREFIX,
    list_failed_attempt,
    new_attempt,
    remove_failed_attempts,
    with_attempt,
)
from waybill.apps.lots.publishing import find_arc, read_dataset
from waybill.apps.lots.resources import LotsResources, resources_of
from waybill.apps.lots.run_parts import digest_workload
from waybill.apps.lots.units import Lot, format_instant
from waybill.apps.lots.workloads.command import run_command
from waybill.apps.lots.workloads.container import run_container
from waybill.apps.lots.workloads.copying import run_copy
from waybill.apps.lots.workloads.function import run_function
from waybill.apps.lots.workloads.own_manifests import read_own_manifests
from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed
from waybill.apps.lots.workloads.results import WorkloadResult, store_sinks
from waybill.machine import Backoff
from waybill.record import Record
from waybill.sandbox import SandboxRefused
from waybill.step import Done, Outcome, StepContext, StepStopped, Wait

MAX_MESSAGE = 500
INTERRUPTED = "The process that worked on it ended."


def run_step(part: Record, ctx: StepContext) -> Outcome:
    resources, about = resources_of(ctx), part.document(PartDocument)
    found = find_arc(ctx.get, about.arc)
    if found is None:
        return Done(to="Partial", message="Its arc has ended.")
    return _PartRound(part, ctx, resources, about, found[0]).run()


class _PartRound:
    def __init__(
        self, part: Record, ctx: StepContext, resources: LotsResources, about: PartDocument, arc: ArcDeclaration
    ) -> None:
        self._part, self._ctx, self._resources, self._arc = part, ctx, resources, arc
        digest = digest_workload(arc)
        self._about = (
            about if about.workload == digest else replace(about, workload=digest)
        )  # the arc was declared anew
        self._lot = Lot.parse(about.lot)
        self._attempts = part.find_document(PartAttempts) or PartAttempts()

    def _at(self) -> str:
        return format_instant(datetime.fromtimestamp(self._ctx.now(), UTC))

    def run(self) -> Outcome:
        self._end_interrupted()
        attempt = new_attempt(self._ctx, self._resources, self._arc, self._about, self._lot)
        self._attempts = with_attempt(self._attempts, attempt)
        self._ctx.save((self._attempts,))
        try:
            work = self._prepare(attempt)
            result = self._run_workload(work)
            if result.is_success:
                return self._succeed(work, attempt, result)
        except (WorkloadFailed, SandboxRefused) as error:
            result = WorkloadResult(str(error))
        except InterruptedError:
            raise StepStopped("told to stop") from None
        self._keep_remains(attempt, result)
        return self._fail(attempt, result)

    def _keep_remains(self, attempt: PartAttempt, result: WorkloadResult) -> None:
        """With `on_failure = "keep"` what a failed workload left in its sinks is uploaded too, for whoever looks at it."""
        if self._arc.on_failure == "keep" and result.entries is None:
            work = self._make_work(attempt)
            if (work.folder / "sinks").is_dir():
                try:
                    store_sinks(work, WorkloadResult(), at=self._at())
                except (WorkloadFailed, InterruptedError) as error:
                    self._ctx.log.warning("What %s left cannot be kept: %s", attempt.id, error)

    def _end_interrupted(self) -> None:
        """A claim was lost, or the process died: list what its attempt left, and remove it."""
        for attempt in self._attempts.attempts:
            if attempt.state == "running":
                ended = replace(attempt, message=INTERRUPTED, ended=self._ctx.now())
                self._attempts = with_attempt(self._attempts, self._list(ended))
        self._remove()

    def _list(self, attempt: PartAttempt) -> PartAttempt:
        return list_failed_attempt(self._ctx, self._resources, self._arc, self._lot, attempt, at=self._at())

    def _remove(self) -> None:
        if self._arc.on_failure == "remove":
            self._attempts = remove_failed_attempts(
                self._ctx, self._resources, self._arc, self._lot, self._attempts, at=self._at()
            )

    def _prepare(self, attempt: PartAttempt) -> PartWork:
        folder = self._ctx.workdir / "work"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return self._make_work(attempt)

    def _make_work(self, attempt: PartAttempt) -> PartWork:
        return PartWork(
            self._arc, self._about, attempt, self._ctx.workdir / "work", self._resources.objects, self._resources.locations,
            {source.role: self._dataset(source.dataset) for source in self._arc.sources},
            {sink.role: self._dataset(sink.dataset) for sink in self._arc.sinks},
            lambda: self._ctx.stop,
        )  # fmt: skip

    def _dataset(self, id: str) -> DatasetDeclaration:
        return read_dataset(self._ctx.get, id).document(DatasetDeclaration)

    def _run_workload(self, work: PartWork) -> WorkloadResult:
        declared = self._arc.workload
        if declared.type == "command":
            result = run_command(work, self._resources.sandbox_support)
        elif declared.type == "container":
            result = run_container(work, self._resources.container_program)
        elif declared.type == "copy":
            result = run_copy(work)
        else:
            result = run_function(work)
        self._store_streams(work)
        if result.is_success and declared.manifest == "own":
            result = replace_files(result, read_own_manifests(work))
        return result

    def _store_streams(self, work: PartWork) -> None:
        """Keep the end of what it wrote to its streams, where the error is; safe to repeat: the attempt's own names."""
        attempt = self._attempts.last
        assert attempt is not None
        names = {}
        for stream, path in (("stdout", work.stdout), ("stderr", work.stderr)):
            body = _read_end(path, self._resources.settings.output)
            if body:
                names[stream] = f"{ATTEMPTS_PREFIX}/{self._part.id}/{attempt.id}/{stream}"
                self._resources.objects.put(names[stream], body)
        self._attempts = with_attempt(
            self._attempts, replace(attempt, stdout=names.get("stdout", ""), stderr=names.get("stderr", ""))
        )

    def _succeed(self, work: PartWork, attempt: PartAttempt, result: WorkloadResult) -> Outcome:
        sinks = store_sinks(work, result, at=self._at())
        attempt = self._attempts.last or attempt
        done = replace(attempt, state="complete", sinks=sinks, ended=self._ctx.now(), exit_code=result.exit_code)
        count = sum(sink.count for sink in sinks)
        return Done((with_attempt(self._attempts, done),), message=f"{count} objects")

    def _fail(self, attempt: PartAttempt, result: WorkloadResult) -> Outcome:
        attempt = self._attempts.last or attempt
        message = result.message[:MAX_MESSAGE]
        failed = replace(attempt, ended=self._ctx.now(), exit_code=result.exit_code, message=message)
        self._attempts = with_attempt(self._attempts, self._list(failed))
        self._remove()
        failures = self._attempts.failures + 1
        self._attempts = replace(self._attempts, failures=failures)
        if failures <= self._arc.retries:
            pause = Backoff(max(0.1, self._arc.backoff), 2, 3600.0).compute_delay(failures - 1)
            return Wait(pause, f"{message} It is tried again.", (self._attempts,))
        return Done((self._attempts,), to="Partial", message=message)


def replace_files(result: WorkloadResult, files: dict[str, list[Path]]) -> WorkloadResult:
    return WorkloadResult(result.message, result.exit_code, files, result.entries)


def _read_end(path: Path, limit: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(0, size - limit))
        return file.read(limit)
