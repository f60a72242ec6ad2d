"""What the commands of ingest share: registration, translation of errors, finding jobs and batches, waiting for a
record, results of an action on many records, and saving downloads.

`register_command` works as `waybill.cli`'s `command`: the first parameter of the function is a `CommandContext`. In
addition it translates the errors of ingest into those of the command line, so that scripts get the usual exit codes,
and closes the environment when the command ends.

A download is saved to a file, complete and verified or not at all. To stdout it is written as it arrives; only the
first bytes are buffered, so that a short file is verified before any of it is written.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import typer

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.formats.checkm import BadManifest
from waybill.apps.ingest.inventory import InventoryConflict, LocalIdTaken
from waybill.apps.ingest.profile import BadProfile
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage import NotInStorage, StorageError
from waybill.cli import terminal
from waybill.cli.command_context import CommandContext, CommandFunction, command
from waybill.cli.watch import StoreRetry
from waybill.engine import ActionResult, Engine
from waybill.errors import CONFLICT, FAILED, InputError, NotFound
from waybill.machine import Action
from waybill.objects import ObjectBody
from waybill.record import Record, Ref, Store
from waybill.rules import ActionRefused, ClaimedByWorker

NO_WORKER = "No worker is alive, so nothing is processed: `waybill up` or `waybill work` starts one."
MIN_LOOK_INTERVAL = 0.2  # seconds between two reads of the store, at least
STDOUT = "-"
BUFFERED_SIZE = 1024 * 1024  # bytes kept back from stdout until they are verified

YES = Annotated[bool, typer.Option("--yes", "-y", help="Confirm the action without being asked.")]
FORCE = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
LIMIT = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many to show.")]


def register_command(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: tuple[str, ...],
    panel: str | None = None,
    without_subcommand: bool = False,
) -> Callable[[CommandFunction], CommandFunction]:
    def decorate(function: CommandFunction) -> CommandFunction:
        @functools.wraps(function)
        def run(context: CommandContext, **values: Any) -> int | None:
            try:
                with translate_errors():
                    return function(context, **values)
            finally:
                if "environment" in vars(context):
                    context.environment.close()

        return command(
            app, name or function.__name__, examples=examples, panel=panel, without_subcommand=without_subcommand
        )(run)

    return decorate


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the errors of ingest into those of the command line."""
    try:
        yield
    except NotInStorage as error:
        raise NotFound(str(error)) from error
    except (BadProfile, BadManifest, StorageError, LocalIdTaken, InventoryConflict) as error:
        raise ActionRefused(str(error)) from error


def resources_of(context: CommandContext) -> IngestResources:
    return cast(IngestResources, context.environment.resources_of("ingest"))


def open_file(file: Path) -> BinaryIO:
    """Open a depositor's file for reading."""
    if not file.exists():
        raise NotFound(f"There is no file {file} here; a remote file is named by its URL, https://...")
    if file.is_dir():
        raise InputError(f"{file} is a folder: pack it as a zip or a tar, which becomes one object.", code="usage")
    if not file.is_file():
        raise InputError(
            f"{file} is neither a file nor a folder; to read from a pipe, give - and --filename.", code="usage"
        )
    return file.open("rb")


def find_job_or_batch(engine: Engine, id: str) -> Record:
    """Return a job by its id, or a batch by its id or batchID."""
    return service.find_job(engine, id) if id.startswith("jid") else service.find_batch(engine, id)


def confirm_action(context: CommandContext, action: Action, question: str | None, what: str, yes: bool) -> bool:
    """Ask the user at a terminal; a script must pass --yes. Returns True when the action was confirmed."""
    if question is None or yes:
        return yes
    if not context.is_interactive:
        raise ActionRefused(f"{action.name} on {what} must be confirmed: {question} Add --yes to go on.")
    context.err.print(question)
    return typer.confirm(f"{action.name} {what}?", abort=True, err=True)


def wait_until_settled(context: CommandContext, store: Store, ref: Ref) -> Record:
    """Wait until a record is no longer open, also while the store is unavailable. Prints a note once if no worker is
    alive.
    """
    warned = False
    retry = StoreRetry(context.print_note)
    while (record := retry(lambda: store.get(*ref))).open:
        if not warned and not retry(lambda: views.list_live_sessions(store)):
            warned = True
            context.print_note(NO_WORKER)
        started = time.monotonic()
        retry(lambda: store.watch(1.0))
        time.sleep(max(0.0, MIN_LOOK_INTERVAL - (time.monotonic() - started)))  # a busy store signals all the time
    return record


class ActionResults:
    """The results of an action on many records: each is printed as it comes, and the exit code tells the worst."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self.done_count = self.refused_count = self._claimed_count = 0

    def add(self, ref: Ref, answer: ActionResult | ActionRefused) -> None:
        refusal = str(answer) if isinstance(answer, ActionRefused) else None
        state = None if isinstance(answer, ActionRefused) else answer.record.state
        pending = isinstance(answer, ActionResult) and answer.pending
        if refusal is None:
            self.done_count += 1
        else:
            self.refused_count += 1
            self._claimed_count += isinstance(answer, ClaimedByWorker)
        if self._context.as_json:
            row = {"kind": ref.kind, "id": ref.id, "state": state, "pending": pending, "refused": refusal}
            self._context.print_json(row, line=True)
        elif pending:
            self._context.print_line(
                f"{ref}: a worker has claimed it in {state}; the action is applied when the step has ended"
            )
        else:
            self._context.print_line(f"{ref}: {refusal or state}")

    def finish(self, what: str) -> int | None:
        if self._context.as_json:
            self._context.print_json({"done": self.done_count, "refused": self.refused_count}, line=True)
        else:
            self._context.print_note(f"{what}: {self.done_count} done, {self.refused_count} refused.")
        return (CONFLICT if self._claimed_count == self.refused_count else FAILED) if self.refused_count else None


def format_size(count: int | None) -> str:
    """Format a number of bytes; empty if it is unknown."""
    return "" if count is None or count < 0 else terminal.format_amount(count, "bytes")


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Return "1 object", "2 objects"."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def resolve_output(context: CommandContext, output: Path | None, force: bool) -> Path | None:
    """Return the file to write, after checking that it may be written; None means stdout."""
    if output is None or str(output) == STDOUT:
        if context.as_json:
            raise InputError("With --json the bytes cannot go to stdout: give -o FILE.", code="usage")
        return None
    if output.exists() and not output.is_file():
        raise ActionRefused(f"{output} exists and is not a file: give another name.")
    if output.exists() and not force:
        raise ActionRefused(f"{output} exists: give another name, or --force to overwrite it.")
    return output


def save_chunks(target: Path | None, chunks: Iterator[bytes]) -> None:
    if target is None:
        buffered: list[bytes] = []  # a short file is verified before any of it is written
        for chunk in chunks:
            buffered.append(chunk)
            if sum(map(len, buffered)) > BUFFERED_SIZE:
                sys.stdout.buffer.writelines(buffered)
                buffered.clear()
        sys.stdout.buffer.writelines(buffered)
        sys.stdout.buffer.flush()
        return
    partial = target.with_name(f".{target.name[:200]}.part{os.getpid()}")
    try:
        with partial.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def verify_chunks(body: ObjectBody, sha256: str, what: str) -> Iterator[bytes]:
    """Yield the bytes as they arrive; raise ActionRefused at the end if the digest differs."""
    digest = hashlib.sha256()
    with body:
        for chunk in body:
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != sha256:
        raise ActionRefused(f"{what} is damaged: its SHA-256 is {digest.hexdigest()}, not {sha256}.")
