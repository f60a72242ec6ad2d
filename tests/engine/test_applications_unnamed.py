"""The engine names no application: neither one that is installed nor one of its kinds. A new one changes no other file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from waybill.application import load_applications

SOURCE = Path(__file__).resolve().parents[2] / "src" / "waybill"
# The layout of the tree that the ZooKeeper driver shares with Merritt's services: their node names and properties.
EXCEPTIONS = ("stores/zookeeper/",)
SYSTEMS = ("merritt", "ezid", "ocfl")  # the outside systems that one application works with
APPLICATIONS = load_applications()
WORDS = ("archive", "compute", "lots")  # names that are words of English too: looked for as string literals
# literals that are the names of fields in formats of others: a job of OpenLineage
FIELDS = {"tracing/exports.py": ("job",)}
NAMES = {*SYSTEMS, *(application.name for application in APPLICATIONS)} - {*WORDS}
KINDS = {*WORDS, *(machine.name for application in APPLICATIONS for machine in application.machines)}


MODULES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if not path.relative_to(SOURCE).as_posix().startswith(("apps/", *EXCEPTIONS))
]


def find_names(text: str) -> list[str]:
    """The names of applications in a module, in its code, comments and docstrings; and their kinds as string literals."""
    pattern = rf"(?<![a-z])({'|'.join(sorted(NAMES))})(?![a-z])"
    found = re.findall(pattern, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower())
    literals = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return found + [value for value in literals if value in KINDS]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_module_of_the_engine_names_an_application(path: Path) -> None:
    fields = FIELDS.get(path.relative_to(SOURCE).as_posix(), ())
    assert [name for name in find_names(path.read_text("utf-8")) if name not in fields] == []


def test_names_are_found() -> None:
    assert find_names('class IngestResources: kind = "job"  # of Merritt') == ["ingest", "merritt", "job"]
    assert find_names('"ingested"; job = "a job"') == []
