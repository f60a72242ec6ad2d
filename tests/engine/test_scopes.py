"""The scope of a record follows from its documents, and children are in the scope of their maker."""

from typing import Any

import pytest

from waybill import Machine, New, Record, action, end, rest, rules
from waybill.rules import ActionRefused, Machines


def scope_of(record: Record) -> str:
    workspace = record.documents.get("request", {}).get("workspace")
    return f"archive/workspace/{workspace}" if workspace else record.scope


def make_machine(name: str, **more: Any) -> Machine:
    return Machine(
        name=name, plural=f"{name}s", prefix=name, description="A request.",
        states=(rest("Open", description="Waits."), end("Done", description="Done.")),
        actions=(action("finish", "Open", "Done", "Finish it.", writes=lambda record, args: {"request": args}),),
        **more,
    )  # fmt: skip


MACHINES = Machines.from_machines([make_machine("request", scope_of=scope_of), make_machine("part")])


def create(kind: str, documents: dict[str, Any] | None = None, **more: Any) -> Record:
    after = rules.create(MACHINES, New(kind, documents or {}), **more).after
    assert after is not None
    return after


def test_the_scope_follows_from_the_documents_at_every_state() -> None:
    request = create("request", {"request": {"workspace": "atlas"}})
    assert request.scope == "archive/workspace/atlas"
    moved = rules.act(MACHINES["request"], request, "finish", store=None, args={"workspace": "borealis"})  # type: ignore[arg-type]
    assert moved.after is not None
    assert moved.after.scope == "archive/workspace/borealis"


def test_a_child_is_in_the_scope_of_its_maker() -> None:
    request = create("request", {"request": {"workspace": "atlas"}})
    assert create("part", maker=request).scope == "archive/workspace/atlas"
    assert create("part").scope == ""


@pytest.mark.parametrize("workspace", ["a/b", "line\nbreak", "x" * 300])
def test_what_is_no_scope_is_refused_with_a_sentence(workspace: str) -> None:
    with pytest.raises(ActionRefused, match="is no scope: it is APPLICATION/TYPE/NAME"):
        create("request", {"request": {"workspace": workspace}})
