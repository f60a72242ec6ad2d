"""What tasks leave: one JSON line each, in part objects that a chunk or a reducer publishes.

A line tells everything of a task: its key, what it put out, how it failed, what it used. The output of a phase, the lists
of errors and failures, tasks.txt and metrics.json are all read from these lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from waybill.objects import iter_chunks

if TYPE_CHECKING:
    from waybill.objects import Objects

MAX_LINE = 4 * 1024 * 1024


class TaskError(msgspec.Struct, frozen=True, omit_defaults=True):
    what: str
    code: str
    message: str
    stderr: str = ""  # the object with the standard error
    core: str = ""


class TaskOutput(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    key: str
    reducer: int = -1  # the one for which it is meant; -1: any


class TaskLine(msgspec.Struct, frozen=True, omit_defaults=True):
    task: str
    phase: int
    key: str = ""  # of a map task
    p0: str = ""  # the job's own input that it comes from; empty after a reduce
    outputs: tuple[TaskOutput, ...] = ()
    error: TaskError | None = None
    start: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    code: int | None = None
    attempts: int = 1
    reducer: int = -1
    order: int = -1  # of the job's own input that it comes from, among all of them


class InputKey(msgspec.Struct, frozen=True, array_like=True):
    """A key on its way to a task."""

    key: str
    p0: str = ""
    reducer: int = -1
    order: int = -1


_decode_task = msgspec.json.Decoder(TaskLine).decode
_decode_key = msgspec.json.Decoder(InputKey).decode


def encode_lines(lines: Iterable[msgspec.Struct]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def iter_lines(objects: Objects, name: str, start: int = 0) -> Iterator[bytes]:
    """The lines of an object from a byte on, each with its line break (the last one may have none)."""
    rest = b""
    with objects.get(name, start=start) as body:
        for piece in iter_chunks(body):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield line + b"\n"
    if rest:
        yield rest


def iter_tasks(objects: Objects, name: str) -> Iterator[TaskLine]:
    for line in iter_lines(objects, name):
        yield _decode_task(line)


def iter_input_keys(objects: Objects, name: str) -> Iterator[InputKey]:
    for line in iter_lines(objects, name):
        yield _decode_key(line)


def read_client_key(line: bytes) -> str:
    """A key as a client sent it: raw text; empty for an empty line."""
    return line.rstrip(b"\r\n").decode("utf-8", "replace")
