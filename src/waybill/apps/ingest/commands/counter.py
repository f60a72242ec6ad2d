"""What all commands of ingest have in common: how they are registered, what their mistakes are called, and how
batches and jobs are named.

A command is registered with `serve` as those of the house are with `command`: a function whose first parameter is the
desk. What ingest refuses is said in the house's words, so that a script finds the exit codes that it knows. What a
command opened is closed after it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import typer

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.checkm import BadManifest
from waybill.apps.ingest.inventory import BadSearch, Contradiction, LocalIdTaken
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import BadProfile
from waybill.apps.ingest.storage import NotStored, StorageError
from waybill.cli import shapes
from waybill.cli.desk import Command, Desk, command
from waybill.cli.looking import Looking
from waybill.cli.problems import CONFLICT, FAILED, Missing, Misuse
from waybill.digests import UnknownDigest
from waybill.engine import Acted, Engine
from waybill.machine import Action
from waybill.record import Conflict, Record, Ref, Store
from waybill.rules import Refused

NO_WORKER = "No worker is alive, so nothing moves: `waybill up` or `waybill work` starts one."
CLOSEST = 0.2  # seconds between two looks, at least

YES = Annotated[bool, typer.Option("--yes", "-y", help="Agree to what must be confirmed.")]
LIMIT = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many are shown.")]


def serve(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: tuple[str, ...],
    panel: str | None = None,
    alone: bool = False,
) -> Callable[[Command], Command]:
    """Register a command of ingest."""

    def register(function: Command) -> Command:
        @functools.wraps(function)
        def run(desk: Desk, **values: Any) -> int | None:
            try:
                with house_words():
                    return function(desk, **values)
            finally:
                if "depot" in vars(desk):
                    desk.depot.close()

        return command(app, name or function.__name__, examples=examples, panel=panel, alone=alone)(run)

    return register


@contextmanager
def house_words() -> Iterator[None]:
    """Ingest's own refusals as the house knows them."""
    try:
        yield
    except (BadSearch, UnknownDigest) as error:
        raise Misuse(str(error)) from error
    except service.NotKept as error:
        raise Missing(f"{str(error).rstrip('.')}; `waybill ingest {error.kind}` lists them.") from error
    except (NotStored, service.Missing) as error:
        raise Missing(str(error)) from error
    except service.OtherBatch as error:
        raise Conflict(str(error)) from error
    except (BadProfile, BadManifest, StorageError, LocalIdTaken, Contradiction) as error:
        raise Refused(str(error)) from error


def outfit(desk: Desk) -> Outfit:
    return cast(Outfit, desk.depot.outfit("job"))


def opened(file: Path) -> BinaryIO:
    """A file of the depositor's."""
    if not file.exists():
        raise Missing(f"There is no file {file} here; what is elsewhere is named by its URL, https://...")
    if file.is_dir():
        raise Misuse(f"{file} is a folder: pack it as a zip or a tar, which becomes one object.")
    if not file.is_file():
        raise Misuse(
            f"{file} is neither a file nor a folder; what comes through a pipe is taken from stdin: give - and --filename."
        )
    return file.open("rb")


def named(engine: Engine, id: str) -> Record:
    """A job by its id, or a batch by its id or its batchID."""
    return service.find_job(engine, id) if id.startswith("jid") else service.find_batch(engine, id)


def agreed(desk: Desk, action: Action, question: str | None, what: str, yes: bool) -> bool:
    """Ask a person at a terminal; a script must say --yes. True if it was agreed to."""
    if question is None or yes:
        return yes
    if not desk.interactive:
        raise Refused(f"{action.name} on {what} must be confirmed: {question} Add --yes to go on.")
    desk.err.print(question)
    return typer.confirm(f"{action.name} {what}?", abort=True, err=True)


def until_settled(desk: Desk, store: Store, ref: Ref) -> Record:
    """Wait until a record is no longer open, also while the store is away; said once, if nobody is there to work on
    it.
    """
    warned = False
    looking = Looking(desk.note)
    while (record := looking(lambda: store.get(*ref))).open:
        if not warned and not looking(lambda: views.living(store)):
            warned = True
            desk.note(NO_WORKER)
        began = time.monotonic()
        looking(lambda: store.watch(1.0))
        time.sleep(max(0.0, CLOSEST - (time.monotonic() - began)))  # a busy store hints all the time
    return record


class Tally:
    """What came of an action on many records: each is answered by itself, and the exit code tells the worst."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.done = self.refused = self._held = 0

    def take(self, ref: Ref, answer: Acted | Refused) -> None:
        refusal = str(answer) if isinstance(answer, Refused) else None
        state = None if isinstance(answer, Refused) else answer.record.state
        pending = isinstance(answer, Acted) and answer.pending
        self.done, self.refused = self.done + (refusal is None), self.refused + (refusal is not None)
        self._held += "worker holds" in (refusal or "")
        if self._desk.as_json:
            row = {"kind": ref.kind, "id": ref.id, "state": state, "pending": pending, "refused": refusal}
            self._desk.print_json(row, line=True)
        elif pending:
            self._desk.say(f"{ref}: a worker holds it in {state}; it was asked, and does so when its step has ended")
        else:
            self._desk.say(f"{ref}: {refusal or state}")

    def close(self, what: str) -> int | None:
        if self._desk.as_json:
            self._desk.print_json({"done": self.done, "refused": self.refused}, line=True)
        else:
            self._desk.note(f"{what}: {self.done} done, {self.refused} refused.")
        return (CONFLICT if self._held == self.refused else FAILED) if self.refused else None


def size_of(count: int | None) -> str:
    """Bytes as people say them."""
    return "" if count is None or count < 0 else shapes.amount(count, "bytes")


def several(count: int, noun: str, plural: str = "") -> str:
    """1 object, 2 objects."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
