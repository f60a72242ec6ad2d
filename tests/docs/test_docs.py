"""The documentation is complete and correct: tests read it."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from typer.main import get_command

from waybill.application import load_applications
from waybill.cli.app import build_app
from waybill.cli.problems import EXIT_CODES
from waybill.config import OTHER_VARIABLES, SETTINGS, load
from waybill.environment import Environment
from waybill.machine import Machine

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
MACHINES = Environment.from_config(load(env={}, overrides={"data": DOCS / "no such folder"}), demo=True).machines


def load_docs_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_docs", ROOT / "tools" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_generated_pages_are_fresh() -> None:
    for page, text in load_docs_tool().render_pages().items():
        assert page.read_text("utf-8") == text, f"{name(page)} is stale: run `make docs`"


def test_every_command_and_every_option_is_documented() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    sections = dict(re.findall(r"^## waybill ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    common = text.partition("\n## ")[0]

    def check_command(command: object, path: str) -> None:
        if path:
            for parameter in getattr(command, "params"):  # noqa: B009 - Typer's own classes are not public
                for option in parameter.opts:
                    if option.startswith("--") and option != "--help":
                        assert f"`{option}" in sections[path] + common, f"{path} {option}"
            assert "$ waybill" in sections[path], path
        for inner, child in getattr(command, "commands", {}).items():
            check_command(child, f"{path} {inner}".strip())

    check_command(get_root_command(), "")
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in common


def test_every_setting_and_variable_is_documented() -> None:
    text = (DOCS / "reference" / "config.md").read_text()
    for setting in SETTINGS:
        assert f"| `{setting.name}` | `{setting.variable}` |" in text
        assert setting.description in text
    for variable in OTHER_VARIABLES:
        assert f"`{variable}`" in text


def iter_fields(shape: type[msgspec.Struct], above: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(shape):
        inner = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        yield from (
            iter_fields(type(inner), f"{above}{field.name}.")
            if isinstance(inner, msgspec.Struct)
            else [f"{above}{field.name}"]
        )


def test_every_setting_and_variable_of_an_application_is_documented() -> None:
    text = (DOCS / "reference" / "config.md").read_text()
    declared = [application for application in load_applications() if application.settings is not None]
    assert "ingest" in [application.name for application in declared]
    for application in declared:
        assert application.settings is not None
        section = text.partition(f"## [app.{application.name}]")[2].partition("\n## ")[0]
        for setting in iter_fields(application.settings):
            assert re.search(rf"^\| `{re.escape(setting)}` \| [^|]+ \| [A-Z][^|]+\. \|$", section, re.MULTILINE), (
                setting
            )
        for variable, doc in application.variables.items():
            assert f"| `{variable}` | {doc} |" in section


@pytest.mark.parametrize("machine", list(MACHINES.values()), ids=list(MACHINES))
def test_every_state_arrow_and_action_of_every_machine_is_documented(machine: Machine) -> None:
    text = (DOCS / "machines" / f"{machine.name}.md").read_text()
    for state in machine.states:
        assert f"| `{state.name}` | {state.type} | {state.description}" in text
    for arrow in machine.iter_arrows():
        assert f"| `{arrow.source}` | `{arrow.target}` | {arrow.label} | {arrow.by} |" in text
    for action in machine.actions:
        assert f"| `{action.name}` |" in text
        assert action.description in text
    assert "```mermaid\nstateDiagram-v2\n" in text


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make run " in text
    assert "make test " in text
    assert len(text.splitlines()) < 40
    first = text.split("\n## ")[0]
    assert len(first.strip().split("\n\n")[1].splitlines()) == 5, "what it is, in five lines"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{name(page)} links to {target}"


def test_every_page_can_be_reached_from_the_first() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)\s#]+)", page.read_text())
        todo += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert [name(page) for page in PAGES if page not in seen] == []


COMMANDS = [
    (page, line)
    for page in PAGES
    for block in re.findall(r"^```(?:sh|console)?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]


@cache
def get_root_command() -> Any:
    return get_command(build_app())


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{name(page)}: {line}" for page, line in COMMANDS])
def test_every_command_in_the_docs_exists_with_its_options(page: Path, line: str) -> None:
    found = re.search(r"\bwaybill ([^|;&)>]+)", line)
    if found is None:
        ours = r"\$ (export |sleep |curl |make |\.venv/bin/python (-m )?benchmarks\b)"
        assert re.match(ours, line), (
            "only commands of Waybill, calls of its API, what the tutorial does to its worker, and benchmarks"
        )
        return
    words = shlex.split(found[1].strip().rstrip(")"))
    group: object = get_root_command()
    path: list[str] = []
    while words and words[0] in getattr(group, "commands", {}):
        path.append(words.pop(0))
        group = getattr(group, "commands")[path[-1]]  # noqa: B009 - Typer's own classes are not public
    parameters = getattr(group, "params")  # noqa: B009
    options = {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
    assert path or words[0].startswith("--"), line
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in options, f"waybill {' '.join(path)} has no {word}"


def test_decisions_are_numbered_and_listed() -> None:
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    index = (DOCS / "decisions" / "README.md").read_text()
    for page in pages:
        assert f"({page.name})" in index
        assert re.match(rf"# {page.name[:4]}\. ", page.read_text()), name(page)


def test_the_docs_name_no_path_of_one_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/(work|root|home)/\w|TODO|FIXME", page.read_text()), name(page)
