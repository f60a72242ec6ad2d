"""The tools of the house: fragments of the changelog are checked, pages of machines are complete, lock files name no
place.
"""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from waybill.machine import RESUME, Machine, action, end, rest, work

ROOT = Path(__file__).resolve().parents[2]


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


changelog, docs = _tool("changelog"), _tool("docs")


@pytest.mark.parametrize(
    ("name", "text", "mistake"),
    [
        ("added-a-thing.md", "It does a thing.\n", None),
        ("fixed-a-thing.md", "It does a thing.\n\nBecause.\n", None),
        ("new-thing.md", "It does a thing.\n", "its name must be"),
        ("added-Thing.md", "It does a thing.\n", "its name must be"),
        ("added-a-thing.md", "", "it is empty"),
        ("added-a-thing.md", "It does a thing.", "one newline"),
        ("added-a-thing.md", "# A thing.\n", "plain sentence"),
        ("added-a-thing.md", "It does a thing\n", "full stop"),
        ("added-a-thing.md", "It does a thing.\nBecause.\n", "an empty line"),
        ("added-a-thing.md", "It does a thing.\n\n" + "x" * 141 + "\n", "line 3 is longer"),
    ],
)
def test_changelog_fragments_are_checked(tmp_path: Path, name: str, text: str, mistake: str | None) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = changelog.mistakes(path)
    if mistake is None:
        assert found == []
    else:
        assert len(found) == 1
        assert mistake in found[0]


PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="p",
    description="One parcel on its way.",
    states=(
        work("Packing", to="Sending", description="Put it into a box."),
        work("Sending", to="Arrived", description="Hand it to the carrier | or carry it."),
        rest("Failed", description="A step gave up.", settled=True),
        end("Arrived", description="Signed for."),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Try again from where it stopped."),
        action("abandon", "Failed", "Arrived", "Write it off."),
    ),
)


def test_a_page_holds_the_whole_declaration() -> None:
    page = docs.render_machine(PARCEL)
    for state in PARCEL.states:
        assert f"| `{state.name}` | {state.type} |" in page
        assert state.description.replace("|", "\\|") in page
    assert (
        "| `resume` | `Failed` | the state after the last one done | operator | Try again from where it stopped. |"
        in page
    )
    for line in (
        "[*] --> Packing",
        "Packing --> Sending",
        "Sending --> Failed: fail",
        "Failed --> Sending: resume",
        "Arrived --> [*]",
    ):
        assert f"    {line}\n" in page


@pytest.mark.parametrize("name", ["run", "test", "bench"])
def test_lock_files_pin_everything_and_name_no_place(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert not re.search(r"://|@ |--index|--find-links|/(home|root|tmp|opt|work)\b", text)
    pinned = re.findall(r"^([a-z0-9._-]+)(\[.*\])?==\S+ .*\\\n    --hash=sha256:", text, flags=re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z0-9]", text, flags=re.MULTILINE))
    assert ("setuptools", "") in pinned


def test_lock_files_agree() -> None:
    def pins(name: str) -> dict[str, str]:
        return dict(
            re.findall(
                r"^([a-z0-9._-]+)\S*==(\S+)", (ROOT / "requirements" / f"{name}.txt").read_text(), flags=re.MULTILINE
            )
        )

    tested = pins("test")
    assert pins("run").items() <= tested.items()
    assert {
        name: version for name, version in pins("bench").items() if name in tested and tested[name] != version
    } == {}
