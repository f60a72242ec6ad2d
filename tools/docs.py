#!/usr/bin/env python3
"""Write the generated pages of docs/ from what the code declares; with --check, only name those that are stale.

    .venv/bin/python tools/docs.py            `make docs`
    .venv/bin/python tools/docs.py --check    part of `make check`; exit 1 when a page is missing, stale or superfluous

docs/machines/NAME.md is the whole declaration of a machine, in its order: the figure, the states, the actions, the
documents. Every machine that a process can have has one: the built-in ones, those of the applications,
those of the demonstration. docs/reference/config.md is the list of settings, those of the applications included,
docs/concepts/matrix.md has the table of applications and stores between two marks,
docs/reference/events.md that of events, docs/reference/errors.md that of error codes, docs/reference/cli.md
the list of commands, docs/reference/python.md that of the public names and modules. All but the last two are read from
`waybill.registry`. README.md in reference, concepts and how-to lists the pages of its folder.
"""

import argparse
import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from typer.main import get_command

import waybill
from waybill.application import ENTRY_POINT_GROUP, Application
from waybill.cli.app import build_app
from waybill.cli.command_context import COMMON_PANEL, EXAMPLES
from waybill.cli.problems import EXIT_CODES
from waybill.config import OTHER_VARIABLES
from waybill.drawing import render_mermaid
from waybill.machine import RESUME, STAY, Machine
from waybill.registry import Registry, list_application_settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
MACHINES = DOCS / "machines"
NOTICE = "<!-- Written by `make docs` from what the code declares. Change that, not this page. -->"
GENERATED = {
    "cli.md": "Commands",
    "config.md": "Settings",
    "errors.md": "Errors",
    "events.md": "Events",
    "python.md": "Python",
}
FOLDERS = {"reference": "Reference", "concepts": "Concepts", "how-to": "How to"}
OF_VALUES = {  # those of `waybill` that have no docstring
    "RESUME": "The target of an action: the state after the last one that was done.",
    "STAY": "The target of an action that writes documents and leaves the state as it is.",
    "Outcome": "What a step returns: `Done` or `Wait`.",
}
IN_WORDS = {RESUME: "the state after the last one done", STAY: "stays where it is"}


def render_machine(machine: Machine) -> str:
    parts = [NOTICE, f"# {machine.name}", machine.description]
    if machine.parent:
        parts.append(f"A {machine.parent} waits for its {machine.plural}.")
    parts += ["```mermaid\n" + render_mermaid(machine) + "\n```", "## States"]
    states = [
        (
            f"`{s.name}`",
            s.type,
            s.description,
            _format_names(s.to, *s.or_to),
            _format_names(s.on_fail),
            _format_names(s.on_hold),
        )
        for s in machine.states
    ]
    parts.append(_render_table(("state", "type", "what happens there", "to", "on fail", "on hold"), states))
    arrows = [(_format_names(a.source), _format_names(a.target), a.label, a.by) for a in machine.iter_arrows()]
    parts += ["## Transitions", _render_table(("from", "to", "cause", "by"), arrows)]
    if machine.actions:
        actions = [
            (
                f"`{a.name}`",
                _format_names(*a.sources),
                IN_WORDS.get(a.target) or _format_names(a.target),
                a.role,
                a.description,
            )
            for a in machine.actions
        ]
        parts += ["## Actions", _render_table(("action", "from", "to", "role", "what it does"), actions)]
    if machine.documents:
        documents = [(f"`{d.name}`", d.writer, d.description) for d in machine.documents]
        parts += ["## Documents", _render_table(("document", "written by", "what it holds"), documents)]
    if machine.locks:
        parts += [
            "## Locks",
            _render_table(("family", "what it names"), [(f"`{k.name}`", k.description) for k in machine.locks]),
        ]
    return "\n\n".join(parts) + "\n"


def _format_names(*names: str | None) -> str:
    return ", ".join(f"`{name}`" for name in names if name)


def _render_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    titles = list(head)
    return "\n".join([line(titles), "|" + "---|" * len(titles), *map(line, rows)])


def render_machine_index(found: Iterable[Machine]) -> str:
    rows = [(f"[{m.name}]({m.name}.md)", m.description) for m in found]
    parts = [
        NOTICE,
        "# Machines",
        "Each kind of record that Waybill moves, as its machine declares it.",
        _render_table(("kind", "what it is"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def render_settings(registry: Registry) -> str:
    rows = [(f"`{s.name}`", f"`{s.variable}`", s.default, s.description) for s in registry.settings]
    others = [(f"`{name}`", description) for name, description in OTHER_VARIABLES.items()]
    parts = [
        NOTICE,
        "# Settings",
        "A setting is given on the command line, in the environment or in `waybill.toml`; the first of these that names it counts. "
        "A dot in a name is a table in the file: `http.port` is `port` under `[http]`.",
        _render_table(("setting", "variable", "default", "what it is"), rows),
        "A path in the file is relative to the file; elsewhere it is relative to the current folder of the process. "
        "`[app.NAME]` holds the settings of one application; those that come with Waybill are below.",
        "## Other variables",
        _render_table(("variable", "what it is"), others),
    ]
    for application in registry.applications:
        if application.settings is not None:
            parts += render_application_settings(application)
    return "\n\n".join(parts) + "\n"


def render_application_settings(application: Application) -> list[str]:
    rows = [(f"`{s.name}`", s.default, s.description) for s in list_application_settings(application)]
    parts = [
        f"## [app.{application.name}]",
        f"{application.description} These settings are in the file only, and are checked when a process starts. A dot is a table again: "
        f"`fetch.allow` is `allow` under `[app.{application.name}.fetch]`.",
        _render_table(("setting", "default", "what it is"), rows),
    ]
    if application.variables:
        secret = [(f"`{name}`", description) for name, description in application.variables.items()]
        parts += ["Secrets come from the environment:", _render_table(("variable", "what it is"), secret)]
    return parts


def render_events(registry: Registry) -> str:
    rows = [(f"`{event.name}`", event.description) for event in registry.events]
    parts = [
        NOTICE,
        "# Events",
        "What applications and webhooks can subscribe to: [Events and subscriptions](../concepts/subscriptions.md) and "
        "[Mail and webhooks](../how-to/mail-and-webhooks.md) say how.",
        _render_table(("type", "when it is sent"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def render_matrix(registry: Registry, page: str) -> str:
    """The page with the table of applications and stores between its two marks written anew."""
    rows = [("maintenance, tokens, mail, events and subscriptions (built in)", "yes", "yes", "yes")]
    rows += [
        (f"`{each.name}`: {each.description.rstrip('.')}", "yes", "yes", "no" if each.sql_only else "yes")
        for each in sorted(registry.applications, key=lambda each: each.name)
    ]
    head, mark, rest = page.partition("<!-- applications: written by `make docs` -->\n")
    _, end, tail = rest.partition("<!-- end of applications -->")
    if not mark or not end:
        raise ValueError("docs/concepts/matrix.md has lost the marks around its table of applications")
    return f"{head}{mark}\n{_render_table(('application', 'SQLite', 'PostgreSQL', 'ZooKeeper'), rows)}\n\n{end}{tail}"


def render_python() -> str:
    """The names and modules that an application may import."""
    names = []
    for name in waybill.__all__:
        description = OF_VALUES.get(name) or _first_sentence(inspect.getdoc(getattr(waybill, name)))
        names.append((f"`{name}`", f"`{waybill.module_of(name)}`", description))
    modules = [
        (f"`waybill.{name}`", _first_sentence(import_module(f"waybill.{name}").__doc__))
        for name in waybill.PUBLIC_MODULES
    ]
    return (
        "\n\n".join(
            [
                NOTICE,
                "# Python",
                "An application imports from `waybill`, and from the public modules below it. All others may change at any time.",
                "## waybill",
                _render_table(("name", "module", "what it is"), names),
                "## Public modules",
                _render_table(("module", "what it holds"), modules),
            ]
        )
        + "\n"
    )


def _first_sentence(text: str | None) -> str:
    first = " ".join((text or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", first, maxsplit=1)[0].rstrip(":").replace("|", "\\|")


def render_commands() -> str:
    parts = [
        NOTICE,
        "# Commands",
        "`waybill --install-completion` makes your shell complete them. Every command takes these options:",
        _render_table(("option", "what it is"), _list_options(get_command(build_app()), common=True)),
        'An error is one sentence on stderr; with `--json` it is `{"error": {"code", "message", "hint"}}`. `WAYBILL_DEBUG=1` prints the '
        "traceback as well. The exit code tells the type of the error:",
        _render_table(("exit code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()]),
    ]
    for path, command in _walk_commands(get_command(build_app()), ()):
        parts += _render_command(path, command)
    return "\n\n".join(parts) + "\n"


def render_errors(registry: Registry) -> str:
    rows = [
        (f"`{code}`", row.description, str(row.status), str(row.exit_code), "yes" if row.retry_after else "")
        for code, row in registry.errors.items()
    ]
    parts = [
        NOTICE,
        "# Errors",
        "Every error has a code, which programs read, and a message, which people read. The code stands in the body of a "
        "response and, with `--json`, on stderr; the HTTP status and the exit code of the command follow from it. Repeat: "
        "the same request may succeed later. The message of an error with the status 500 stays in the log of the server; "
        "the client receives `internal` and the number of the incident.",
        _render_table(("code", "meaning", "status", "exit code", "repeat"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def _walk_commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, in the order of the help."""
    if path:
        yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk_commands(inner, (*path, name))


def _render_command(path: tuple[str, ...], command: Any) -> list[str]:
    name = " ".join(path)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = "".join(
        f" {p.metavar or p.name.upper()}" if p.required else f" [{p.metavar or p.name.upper()}]" for p in arguments
    )
    group = " [COMMAND]" if getattr(command, "commands", None) else ""
    parts = [
        f"## waybill {name}",
        " ".join((command.help or "").split()),
        f"```\nwaybill {name}{words}{group} [OPTIONS]\n```",
    ]
    rows = [(f"`{p.metavar or p.name.upper()}`", p.help or "") for p in arguments] + _list_options(
        command, common=False
    )
    if rows:
        parts.append(_render_table(("argument or option", "what it is"), rows))
    if name in EXAMPLES:
        parts.append("```\n" + "\n".join(f"$ {example}" for example in EXAMPLES[name]) + "\n```")
    return parts


def _list_options(command: Any, *, common: bool) -> list[tuple[str, str]]:
    if common:  # any command has them; take the first
        command = next(inner for _, inner in _walk_commands(command, ()))
    rows = []
    for p in command.params:
        if p.param_type_name != "option" or "--help" in p.opts or (p.rich_help_panel == COMMON_PANEL) != common:
            continue
        flag = "" if p.is_flag else f" {p.metavar or p.name.upper()}"
        default = p.show_default if isinstance(p.show_default, str) else p.default
        usual = f" Default: {default}." if default not in (None, False, "", ()) and not callable(default) else ""
        rows.append((f"`{', '.join(p.opts)}{flag}`", f"{p.help or ''}{usual}"))
    return rows


def render_contents(folder: str, title: str, generated: Iterable[Path]) -> str:
    """The pages of a folder by their titles, so that every page can be found."""
    pages = {path for path in (DOCS / folder).glob("*.md") if path.name != "README.md"}
    texts = {path: path.read_text(encoding="utf-8") for path in pages - set(generated)}
    titles = {
        path.name: next((line[2:] for line in text.splitlines() if line.startswith("# ")), path.stem)
        for path, text in texts.items()
    }
    titles |= {path.name: GENERATED[path.name] for path in generated if path.parent == DOCS / folder}
    return (
        "\n\n".join([NOTICE, f"# {title}", "\n".join(f"- [{titles[name]}]({name})" for name in sorted(titles))]) + "\n"
    )


def render_pages() -> dict[Path, str]:
    # Those of this checkout, whatever was installed into the environment when it was made.
    declared = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    registry = Registry.from_installed([path for _, path in sorted(declared[ENTRY_POINT_GROUP].items())])
    reference = DOCS / "reference"
    pages = {
        reference / "config.md": render_settings(registry),
        reference / "cli.md": render_commands(),
        reference / "events.md": render_events(registry),
        reference / "errors.md": render_errors(registry),
        reference / "python.md": render_python(),
    }
    pages |= {MACHINES / f"{machine.name}.md": render_machine(machine) for machine in registry.machines}
    matrix = DOCS / "concepts" / "matrix.md"
    pages[matrix] = render_matrix(registry, matrix.read_text(encoding="utf-8"))
    pages[MACHINES / "README.md"] = render_machine_index(registry.machines)
    for folder, title in FOLDERS.items():
        pages[DOCS / folder / "README.md"] = render_contents(folder, title, set(pages) - {matrix})
    return pages


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/ from what the code declares.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 when a page is not what would be written"
    )
    check = parser.parse_args().check
    pages = render_pages()
    removed = [path for path in sorted(MACHINES.glob("*.md")) if path not in pages]
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if check:
        for path in (*stale, *removed):
            print(f"docs/{path.relative_to(DOCS)} is not what the code declares now: run `make docs`.", file=sys.stderr)
        return 1 if stale or removed else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path], encoding="utf-8")
    for path in removed:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
