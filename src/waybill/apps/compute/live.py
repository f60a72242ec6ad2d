"""What happens to a job while it runs, as events: its outputs, its errors and how far it is.

    position 0 -> segments of its logs that are new -> output, error and progress events -> the next position -> ... -> done

A position is the number of segments read of each phase, so whoever lost the connection goes on where it was. A job that
is archived between two looks sends `done` only: what was not seen is in its files, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.job_tables import JobRow
from waybill.apps.compute.jobs import Jobs, encode_error
from waybill.apps.compute.task_lines import iter_tasks

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

MAX_SEGMENTS = 50  # that are read at one look
MAX_KEYS = 500  # of one event


class LiveEvent(NamedTuple):
    name: str  # output, error, progress or done
    data: dict[str, Any]
    position: str  # to go on after it

    def encode(self) -> bytes:
        """As a server-sent event."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (
            self.position.encode(),
            self.name.encode(),
            msgspec.json.encode(self.data),
        )


class JobFeed:
    """The events of one job, read when the caller asks."""

    def __init__(self, resources: ComputeResources, jobs: Jobs, account: str, job: str, position: str = "") -> None:
        self._resources, self._jobs, self._account, self._job = resources, jobs, account, job
        phases = len(self._jobs.find(account, job).read_manifest().phases)
        self._next = _read_position(position, phases)
        self._shown: dict[str, Any] = {}
        self.is_over = False

    def read(self) -> Iterator[LiveEvent]:
        """What is new; the last event of all is `done`. Raises ResourceNotFound when the job was removed."""
        row = self._jobs.find(self._account, self._job)
        if not row.archived:
            yield from self._read_segments(row)
        status = self._jobs.read_status(row)
        if row.archived:
            self.is_over = True
            yield LiveEvent("done", status, self._position)
        elif status != self._shown:
            self._shown = status
            yield LiveEvent("progress", status, self._position)

    @property
    def _position(self) -> str:
        return ".".join(map(str, self._next))

    def _read_segments(self, row: JobRow) -> Iterator[LiveEvent]:
        last = len(self._next)
        for phase in range(1, last + 1):
            segments = self._resources.list_segments(row.job, phase, self._next[phase - 1])[:MAX_SEGMENTS]
            for segment in segments:
                keys, errors = [], []
                for task in iter_tasks(self._resources.objects, segment.object):
                    if phase == last:
                        keys += [output.key for output in task.outputs]
                    if task.error is not None:
                        errors.append(encode_error(task))
                self._next[phase - 1] = segment.number + 1
                for at in range(0, len(keys), MAX_KEYS):
                    yield LiveEvent("output", {"keys": keys[at : at + MAX_KEYS]}, self._position)
                for error in errors:
                    yield LiveEvent("error", msgspec.json.decode(error), self._position)


def _read_position(text: str, phases: int) -> list[int]:
    parts = text.split(".") if text else ["0"] * phases
    if len(parts) != phases or not all(part.isascii() and part.isdigit() and len(part) < 12 for part in parts):
        raise MantaError("InvalidParameter", f"{text[:100]!r} is no position in the events of this job")
    return [int(part) for part in parts]


def follow_job(feed: JobFeed, pause: Callable[[], None]) -> Iterator[LiveEvent]:
    """Until the job is over. `pause` is called between two looks."""
    while not feed.is_over:
        yield from feed.read()
        if not feed.is_over:
            pause()
