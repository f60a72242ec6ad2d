#!/usr/bin/env python3
"""Write the generated pages of docs/ from what the code declares; with --check, only say which are stale.

    .venv/bin/python tools/docs.py            `make docs`
    .venv/bin/python tools/docs.py --check    part of `make check`; exit 1 when a page is missing, stale or of a machine that is gone

docs/machines/NAME.md is all that a machine's table says, in the order in which it says it: the figure, the states, the actions, the
documents. Every machine that a module of an application or a duty defines has one. docs/reference/config.md is the list of settings.
"""

import argparse
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from waybill.config import OTHER_VARIABLES, SETTINGS
from waybill.machine import RESUME, STAY, Machine

DOCS = Path(__file__).resolve().parent.parent / "docs"
MACHINES = DOCS / "machines"
PLACES = ("waybill.apps", "waybill.duties")
NOTICE = "<!-- Written by `make docs` from what the code declares. Change that, not this page. -->"
IN_WORDS = {RESUME: "the state after the last one done", STAY: "stays where it is"}


def machines() -> list[Machine]:
    """Every machine that a module of the product defines, by name."""
    found = {value.name: value for module in _modules() for value in vars(module).values() if isinstance(value, Machine)}
    return [found[name] for name in sorted(found)]


def _modules() -> Iterator[ModuleType]:
    for place in PLACES:
        if importlib.util.find_spec(place) is None:
            continue
        package = importlib.import_module(place)
        yield package
        for module in pkgutil.walk_packages(package.__path__, f"{place}."):
            yield importlib.import_module(module.name)


def page(machine: Machine) -> str:
    parts = [NOTICE, f"# {machine.name}", machine.doc]
    if machine.parent:
        parts.append(f"A {machine.parent} waits for its {machine.plural}.")
    parts += ["```mermaid\n" + figure(machine) + "\n```", "## States"]
    states = [(f"`{s.name}`", s.sort, s.doc, _code(s.then, *s.also), _code(s.fails), _code(s.holds)) for s in machine.states]
    parts.append(_table(("state", "sort", "what happens there", "then", "gives up", "on hold"), states))
    if machine.actions:
        actions = [(f"`{a.name}`", _code(*a.sources), IN_WORDS.get(a.target) or _code(a.target), a.role, a.doc) for a in machine.actions]
        parts += ["## Actions", _table(("action", "from", "to", "who", "what it does"), actions)]
    if machine.documents:
        documents = [(f"`{d.name}`", d.writer, d.doc) for d in machine.documents]
        parts += ["## Documents", _table(("document", "written by", "what it holds"), documents)]
    if machine.keys:
        parts += ["## Keys", _table(("family", "what it names"), [(f"`{k.family}`", k.doc) for k in machine.keys])]
    return "\n\n".join(parts) + "\n"


def figure(machine: Machine) -> str:
    """The machine as a mermaid state diagram. What a step's success leads to has no label; everything else says what it is."""
    labels: dict[tuple[str, str], list[str]] = {}
    for arrow in machine.arrows():
        names = labels.setdefault((arrow.source, arrow.target), [])
        if arrow.label != "done" and arrow.label not in names:
            names.append(arrow.label)
    lines = ["stateDiagram-v2", *(f"    state {_quoted(s.name)} as {_id(s.name)}" for s in machine.states if _id(s.name) != s.name)]
    lines += [f"    [*] --> {_id(name)}" for name in dict.fromkeys((machine.initial, *machine.begins))]
    for (source, target), names in labels.items():
        lines.append(f"    {_id(source)} --> {_id(target)}" + (f": {', '.join(names)}" if names else ""))
    lines += [f"    {_id(s.name)} --> [*]" for s in machine.states if s.sort == "end"]
    return "\n".join(lines)


def _id(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', "'") + '"'


def _code(*names: str | None) -> str:
    return ", ".join(f"`{name}`" for name in names if name)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    titles = list(head)
    return "\n".join([line(titles), "|" + "---|" * len(titles), *map(line, rows)])


def index(found: list[Machine]) -> str:
    rows = [(f"[{m.name}]({m.name}.md)", m.doc) for m in found]
    parts = [
        NOTICE,
        "# Machines",
        "Each kind of record that Waybill moves, as its table declares it.",
        _table(("kind", "what it is"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def settings() -> str:
    rows = [(f"`{s.name}`", f"`{s.variable}`", s.default, s.doc) for s in SETTINGS]
    others = [(f"`{name}`", doc) for name, doc in OTHER_VARIABLES.items()]
    parts = [
        NOTICE,
        "# Settings",
        "A setting is given on the command line, in the environment or in `waybill.toml`; the first of these that names it counts. "
        "A dot in a name is a table in the file: `http.port` is `port` under `[http]`.",
        _table(("setting", "variable", "when nobody says", "what it is"), rows),
        "## Other variables",
        _table(("variable", "what it is"), others),
    ]
    return "\n\n".join(parts) + "\n"


def wanted() -> dict[Path, str]:
    found = machines()
    pages = {DOCS / "reference" / "config.md": settings()}
    pages |= {MACHINES / f"{machine.name}.md": page(machine) for machine in found}
    if found:
        pages[MACHINES / "README.md"] = index(found)
    return pages


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/ from what the code declares.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is not what would be written")
    check = parser.parse_args().check
    pages = wanted()
    gone = [path for path in sorted(MACHINES.glob("*.md")) if path not in pages]
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if check:
        for path in (*stale, *gone):
            print(f"docs/{path.relative_to(DOCS)} is not what the code declares now: run `make docs`.", file=sys.stderr)
        return 1 if stale or gone else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path], encoding="utf-8")
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
