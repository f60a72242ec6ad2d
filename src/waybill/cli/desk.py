"""What every command works with: the common options, the settings, the store, and the way to say things.

A command is a function whose first parameter is a `Desk`; `command` adds the options that all commands have and hands
it one:

    @command(app, examples=("waybill ls parcel --state Failed",))
    def ls(desk: Desk, kind: ...) -> int | None: ...

It answers its exit code (None: 0) and raises what goes wrong; `waybill.cli.main` says it.
"""

from __future__ import annotations

import getpass
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Annotated, Any, cast

import msgspec
import typer
from rich.console import Console

from waybill import config
from waybill.cli.problems import Missing, PipeClosed
from waybill.depot import Depot
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Ref, Store
from waybill.rules import UnknownKind

COMMON = "Common options"
_FILLING = re.compile(r" +(?=\n)")
WIDEST = 2000  # columns of a table that no terminal shows


def _common(name: str, help: str, metavar: str | None = None, default: str | bool = False) -> Any:
    return typer.Option(name, help=help, metavar=metavar, show_default=default, rich_help_panel=COMMON)


_COMMON: tuple[tuple[str, Any, Any], ...] = (
    ("as_json", Annotated[bool, _common("--json", "Answer in JSON.")], False),
    ("data", Annotated[Path | None, _common("--data", "The data folder.", "FOLDER", "waybill-data")], None),
    ("store", Annotated[str | None, _common("--store", "The store's URL.", "URL", "in the data folder")], None),
    (
        "config_file",
        Annotated[Path | None, _common("--config", "The settings file.", "FILE", "waybill.toml in the data folder")],
        None,
    ),
)

EXAMPLES: dict[str, tuple[str, ...]] = {}  # by command, for the docs


class Out(Console):
    def on_broken_pipe(self) -> None:
        raise PipeClosed


class Trimmed:
    """Where lines go that no terminal shows: without the blanks that fill a table's last column."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(_FILLING.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@dataclass
class Desk:
    as_json: bool = False
    data: Path | None = None
    store_url: str | None = None
    config_file: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # given on the command line, by the settings' names

    @cached_property
    def config(self) -> config.Config:
        given = {"data": self.data, "store": self.store_url, **self.settings}
        return config.load(self.config_file, os.environ, given)

    @cached_property
    def depot(self) -> Depot:
        return Depot.of(self.config)

    @contextmanager
    def store(self, *, migrate: bool = False) -> Iterator[Store]:
        with closing(self.depot.open_store(migrate=migrate)) as store:
            yield store

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        with self.store() as store:
            yield self.depot.engine(store)

    def machine(self, kind: str) -> Machine:
        return self.depot.machines[kind]

    def ref(self, text: str) -> Ref:
        """A record named as KIND:ID."""
        kind, colon, id = text.partition(":")
        if not colon or not kind or not id:
            raise Missing(f"{text!r} names no record; write KIND:ID, such as shipment:shp0000000001.")
        self.machine(kind)
        return Ref(kind, id)

    @property
    def who(self) -> str:
        """The person at the keyboard, for history."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):  # a user id without a name, as in some containers
            return f"uid {os.getuid()}"

    # --- saying things

    @cached_property
    def out(self) -> Console:
        if sys.stdout.isatty():
            return Out(highlight=False, markup=False)
        # Into a file or a pipe every line is written whole, for whoever searches it; COLUMNS says otherwise.
        width = None if os.environ.get("COLUMNS", "").isdecimal() else WIDEST
        return Out(file=cast(IO[str], Trimmed(sys.stdout)), highlight=False, markup=False, soft_wrap=True, width=width)

    @cached_property
    def err(self) -> Console:
        return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    @property
    def interactive(self) -> bool:
        return sys.stdin.isatty() and sys.stderr.isatty() and not self.as_json

    def print_json(self, answer: Any, *, line: bool = False) -> None:
        """One JSON value to stdout; as one line when it is one of many."""
        body = msgspec.json.encode(answer, enc_hook=str)
        sys.stdout.write((body if line else msgspec.json.format(body)).decode() + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """A line for people, on stdout."""
        self.out.print(text)

    def note(self, text: str) -> None:
        """A remark that is no part of the answer: on stderr, and not at all with --json."""
        if not self.as_json:
            self.err.print(text)


Command = Callable[..., int | None]


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: tuple[str, ...],
    panel: str | None = None,
    alone: bool = False,
) -> Callable[[Command], Command]:
    """Register a command, with the options that all have. `alone`: what a group does when none of its commands is
    named.
    """

    def register(function: Command) -> Command:
        title = name or function.__name__
        group = "" if app.info.name == "waybill" else str(app.info.name)
        EXAMPLES[f"{group} {'' if alone else title}".strip()] = examples
        epilog = "Examples:\n\n" + "\n\n".join(f"  $ {example}" for example in examples)
        if alone:
            app.callback(invoke_without_command=True, epilog=epilog)(_with_common_options(function, alone=True))
        else:
            app.command(title, epilog=epilog, rich_help_panel=panel)(_with_common_options(function))
        return function

    return register


def _with_common_options(function: Command, *, alone: bool = False) -> Command:
    """The function as Typer reads it: its own parameters after the desk, then the common ones."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for n, kind, default in _COMMON
    ]
    context = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]

    def run(context: typer.Context, **values: Any) -> int | None:
        if alone and context.invoked_subcommand is not None:
            return None
        desk = Desk(values.pop("as_json"), values.pop("data"), values.pop("store"), values.pop("config_file"))
        try:
            code = function(desk, **values)
            sys.stdout.flush()
            return code
        except BrokenPipeError as error:
            raise PipeClosed from error  # Typer would take it for a failure

    parameters = [*context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *common]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__, run.__name__ = function.__doc__, function.__name__
    return run


# --- what a shell completes


def _completed(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """Those that begin so; none when the settings cannot be read, for a completion must not complain."""
    try:
        return [name for name in names() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - see above
        return []


def _machine_named(context: typer.Context) -> Machine:
    """Of the kind that was typed; while the value of an option is awaited, it is the first of the words that are
    left over.
    """
    return Desk().machine(context.params.get("kind") or context.args[0])


def complete_kind(incomplete: str) -> list[str]:
    return _completed(lambda: sorted(Desk().depot.machines), incomplete)


def complete_action(context: typer.Context, incomplete: str) -> list[str]:
    return _completed(lambda: [action.name for action in _machine_named(context).actions], incomplete)


def complete_state(context: typer.Context, incomplete: str) -> list[str]:
    return _completed(lambda: [state.name for state in _machine_named(context).states], incomplete)


def complete_begin(context: typer.Context, incomplete: str) -> list[str]:
    """The states in which a record may begin."""
    return _completed(
        lambda: dict.fromkeys((_machine_named(context).initial, *_machine_named(context).begins)), incomplete
    )


def complete_role(incomplete: str) -> list[str]:
    """The kinds on which work is done; after a dot, a kind's states in which it is."""

    def roles() -> Iterable[str]:
        machines = Desk().depot.machines
        kind, dot, _ = incomplete.partition(".")
        if dot:
            return [f"{kind}.{state.name}" for state in machines[kind].working()]
        return sorted(name for name, machine in machines.items() if machine.working())

    return _completed(roles, incomplete)


KIND = Annotated[
    str, typer.Argument(metavar="KIND", help="The kind of record, such as parcel.", autocompletion=complete_kind)
]
ID = Annotated[str, typer.Argument(metavar="ID", help="The record's id.")]
WHY = Annotated[str, typer.Option("--why", help="The reason, for the record's history.")]

__all__ = [
    "EXAMPLES",
    "ID",
    "KIND",
    "WHY",
    "Desk",
    "UnknownKind",
    "command",
    "complete_action",
    "complete_begin",
    "complete_kind",
    "complete_role",
    "complete_state",
]
