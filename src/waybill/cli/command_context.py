"""What every command receives: the common options, the settings, the store, and the ways to print.

A command is a function whose first parameter is a `CommandContext`; `command` adds the options that all commands have
and passes it one:

    @command(app, examples=("waybill ls parcel --state Failed",))
    def ls(context: CommandContext, kind: ...) -> int | None: ...

It returns its exit code (None: 0) and raises its errors; `waybill.cli.main` reports them.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Annotated, Any, cast

import msgspec
import typer
from rich.console import Console

from waybill.cli.problems import OutputPipeClosed
from waybill.client import SERVER_VARIABLE, TOKEN_FILE_VARIABLE, Client, LocalClient, RecordsClient
from waybill.config import Config
from waybill.engine import Engine
from waybill.environment import Environment
from waybill.errors import InputError, NotFound
from waybill.machine import Machine
from waybill.record import Ref, Store
from waybill.runtime import Runtime

COMMON_PANEL = "Common options"
_TRAILING_SPACES = re.compile(r" +(?=\n)")
PIPE_WIDTH = 2000  # columns of a table that goes into a file or a pipe


def _make_common_option(name: str, help: str, metavar: str | None = None, default: str | bool = False) -> Any:
    return typer.Option(name, help=help, metavar=metavar, show_default=default, rich_help_panel=COMMON_PANEL)


_COMMON_OPTIONS: tuple[tuple[str, Any, Any], ...] = (
    ("as_json", Annotated[bool, _make_common_option("--json", "Print JSON.")], False),
    ("data", Annotated[Path | None, _make_common_option("--data", "The data folder.", "FOLDER", "waybill-data")], None),
    (
        "store",
        Annotated[str | None, _make_common_option("--store", "The store's URL.", "URL", "in the data folder")],
        None,
    ),
    (
        "config_file",
        Annotated[
            Path | None,
            _make_common_option("--config", "The settings file.", "FILE", "waybill.toml in the data folder"),
        ],
        None,
    ),
    (
        "server",
        Annotated[
            str | None,
            _make_common_option("--server", "A server to use instead of a store.", "URL", "WAYBILL_SERVER, or none"),
        ],
        None,
    ),
    (
        "token_file",
        Annotated[
            Path | None,
            _make_common_option("--token-file", "The file with the token for --server.", "FILE", "WAYBILL_TOKEN_FILE"),
        ],
        None,
    ),
)

EXAMPLES: dict[str, tuple[str, ...]] = {}  # by command, for the docs


class PipeAwareConsole(Console):
    def on_broken_pipe(self) -> None:
        raise OutputPipeClosed


class TrailingSpaceFilter:
    """Output that goes into a file or a pipe, without the blanks that fill a table's last column."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(_TRAILING_SPACES.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@dataclass
class CommandContext:
    as_json: bool = False
    data: Path | None = None
    store_url: str | None = None
    config_file: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # given on the command line, by the settings' names
    server: str | None = None
    token_file: Path | None = None

    @cached_property
    def server_url(self) -> str | None:
        """The server that is used instead of a store. One that the environment names does not count where a store is
        chosen on the command line.
        """
        is_store_chosen = any(given is not None for given in (self.data, self.store_url, self.config_file))
        if self.server is not None and is_store_chosen:
            raise InputError("--server is a server's address; leave out --data, --store and --config.", code="usage")
        if self.server is not None or is_store_chosen:
            return self.server
        return os.environ.get(SERVER_VARIABLE) or None

    @contextmanager
    def open_client(self) -> Iterator[RecordsClient]:
        """The server, or the store."""
        if self.server_url is not None:
            with self.open_server() as client:
                yield client
        else:
            with self.open_engine() as engine:
                yield LocalClient(self.environment, engine, self.who)

    def open_server(self) -> Client:
        """The client of the server, for commands of applications whose routes are not among those of records."""
        assert self.server_url is not None
        named_file = os.environ.get(TOKEN_FILE_VARIABLE)
        token_file = self.token_file or (Path(named_file) if named_file else None)
        return Client(self.server_url, token_file=token_file)

    @cached_property
    def runtime(self) -> Runtime:
        """A command that only looks, or acts on a record, makes no store."""
        if self.server is not None:
            raise InputError(
                "This command works on the store itself: run it where the store is, without --server.", code="usage"
            )
        return Runtime(
            self.data, store=self.store_url, settings=self.settings, config_file=self.config_file, create=False
        )

    @property
    def config(self) -> Config:
        return self.runtime.config

    @property
    def environment(self) -> Environment:
        return self.runtime.environment

    def open_store(self, *, migrate: bool = False) -> AbstractContextManager[Store]:
        return self.runtime.open_store(migrate=migrate)

    def open_engine(self) -> AbstractContextManager[Engine]:
        return self.runtime.open_engine()

    def get_machine(self, kind: str) -> Machine:
        return self.environment.machines[kind]

    def parse_ref(self, text: str) -> Ref:
        """The reference that KIND:ID names."""
        kind, colon, id = text.partition(":")
        if not colon or not kind or not id:
            raise NotFound(f"{text!r} names no record; write KIND:ID, such as shipment:shp0000000001.")
        self.get_machine(kind)
        return Ref(kind, id)

    @property
    def who(self) -> str:
        """The user who runs the command, for the history."""
        return self.runtime.who

    # --- output

    @cached_property
    def out(self) -> Console:
        if sys.stdout.isatty():
            return PipeAwareConsole(highlight=False, markup=False)
        # Into a file or a pipe every line is written whole, so that it can be searched, unless COLUMNS is set.
        width = None if os.environ.get("COLUMNS", "").isdecimal() else PIPE_WIDTH
        return PipeAwareConsole(
            file=cast(IO[str], TrailingSpaceFilter(sys.stdout)),
            highlight=False,
            markup=False,
            soft_wrap=True,
            width=width,
        )

    @cached_property
    def err(self) -> Console:
        return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    @property
    def is_interactive(self) -> bool:
        return sys.stdin.isatty() and sys.stderr.isatty() and not self.as_json

    def print_json(self, value: Any, *, line: bool = False) -> None:
        """One JSON value to stdout; as one line when it is one of many."""
        body = msgspec.json.encode(value, enc_hook=str)
        sys.stdout.write((body if line else msgspec.json.format(body)).decode() + "\n")
        sys.stdout.flush()

    def print_line(self, text: str) -> None:
        """A line of text on stdout."""
        self.out.print(text)

    def print_note(self, text: str) -> None:
        """A remark that is not part of the result: on stderr, and not at all with --json."""
        if not self.as_json:
            self.err.print(text)


CommandFunction = Callable[..., int | None]


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: tuple[str, ...],
    panel: str | None = None,
    without_subcommand: bool = False,
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a command, with the common options. `without_subcommand`: it runs when a group is called without the name
    of one of its commands.
    """

    def register(function: CommandFunction) -> CommandFunction:
        title = name or function.__name__
        group = "" if app.info.name == "waybill" else str(app.info.name)
        EXAMPLES[f"{group} {'' if without_subcommand else title}".strip()] = examples
        epilog = "Examples:\n\n" + "\n\n".join(f"  $ {example}" for example in examples)
        if without_subcommand:
            app.callback(invoke_without_command=True, epilog=epilog)(
                _add_common_options(function, without_subcommand=True)
            )
        else:
            app.command(title, epilog=epilog, rich_help_panel=panel)(_add_common_options(function))
        return function

    return register


def _add_common_options(function: CommandFunction, *, without_subcommand: bool = False) -> CommandFunction:
    """The function as Typer reads it: its own parameters after the context, then the common ones."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for n, kind, default in _COMMON_OPTIONS
    ]
    context = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]

    def run(context: typer.Context, **values: Any) -> int | None:
        if without_subcommand and context.invoked_subcommand is not None:
            own_names = [p.name for p in own if values[p.name] != p.default]
            if own_names:
                raise InputError(
                    f"--{own_names[0].replace('_', '-')} belongs to `{context.info_name}` alone: leave it out before "
                    f"{context.invoked_subcommand}.",
                    code="usage",
                )
            _keep_for_subcommand(context, values)
            return None
        _add_from_groups(context, values)
        command_context = CommandContext(
            values.pop("as_json"),
            values.pop("data"),
            values.pop("store"),
            values.pop("config_file"),
            server=values.pop("server"),
            token_file=values.pop("token_file"),
        )
        try:
            code = function(command_context, **values)
            sys.stdout.flush()
            return code
        except BrokenPipeError as error:
            raise OutputPipeClosed from error  # Typer would treat it as a failure
        finally:
            if "runtime" in vars(command_context):
                command_context.runtime.close()

    parameters = [*context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *common]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__, run.__name__ = function.__doc__, function.__name__
    return run


def _keep_for_subcommand(context: typer.Context, values: dict[str, Any]) -> None:
    """Common options before the name of a command are that command's."""
    given = {name: values[name] for name, _, default in _COMMON_OPTIONS if values[name] != default}
    context.obj = {**(context.obj or {}), **given}


def _add_from_groups(context: typer.Context, values: dict[str, Any]) -> None:
    for name, _, default in _COMMON_OPTIONS:
        before = (context.obj or {}).get(name, default)
        if before == default or values[name] == before:
            continue
        if values[name] != default:
            flag = {"as_json": "json", "config_file": "config"}.get(name, name.replace("_", "-"))
            raise InputError(f"--{flag} is given twice: {before} and {values[name]}.", code="usage")
        values[name] = before


def accept_common_options(app: typer.Typer) -> None:
    """Let the groups that run nothing by themselves take the common options too, so that they work in every place."""
    for each in app.registered_groups:
        group = each.typer_instance
        if group is None:
            continue
        accept_common_options(group)
        if group.registered_callback is None:
            group.callback()(_make_group_callback())


def _make_group_callback() -> Callable[..., None]:
    def run(context: typer.Context, **values: Any) -> None:
        _keep_for_subcommand(context, values)

    parameters = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for n, kind, default in _COMMON_OPTIONS
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def keep_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """The callback of the whole command line: its own parameters, then the common options."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    inner = _make_group_callback()

    def run(context: typer.Context, **values: Any) -> None:
        function(**{p.name: values.pop(p.name) for p in own})
        inner(context, **values)

    common = list(inspect.signature(inner).parameters.values())
    parameters = [common[0], *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *common[1:]]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


# --- shell completion


def _complete_from(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """The names that begin with the text; none when the settings cannot be read: a completion must not fail."""
    try:
        return [name for name in names() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - see above
        return []


def _get_typed_machine(context: typer.Context) -> Machine:
    """The machine of the kind that was typed; while the value of an option is completed, the kind is the first
    remaining argument.
    """
    return CommandContext().get_machine(context.params.get("kind") or context.args[0])


def complete_kind(incomplete: str) -> list[str]:
    return _complete_from(lambda: sorted(CommandContext().environment.machines), incomplete)


def complete_action(context: typer.Context, incomplete: str) -> list[str]:
    return _complete_from(lambda: [action.name for action in _get_typed_machine(context).actions], incomplete)


def complete_state(context: typer.Context, incomplete: str) -> list[str]:
    return _complete_from(lambda: [state.name for state in _get_typed_machine(context).states], incomplete)


def complete_initial_state(context: typer.Context, incomplete: str) -> list[str]:
    """The initial states of the kind."""
    return _complete_from(
        lambda: dict.fromkeys((_get_typed_machine(context).initial_state, *_get_typed_machine(context).initial_states)),
        incomplete,
    )


def complete_queue(incomplete: str) -> list[str]:
    """The kinds that have work; after a dot, the work states of the kind."""

    def list_queues() -> Iterable[str]:
        machines = CommandContext().environment.machines
        kind, dot, _ = incomplete.partition(".")
        if dot:
            return [f"{kind}.{state.name}" for state in machines[kind].list_work_states()]
        return sorted(name for name, machine in machines.items() if machine.list_work_states())

    return _complete_from(list_queues, incomplete)


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
    "CommandContext",
    "command",
    "complete_action",
    "complete_initial_state",
    "complete_kind",
    "complete_queue",
    "complete_state",
]
