"""The public API: what `waybill` exports, and the modules that applications import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import waybill

SOURCE = Path(waybill.__file__).parent
SAMPLE = Path(__file__).resolve().parents[1] / "sample" / "photolab"
APPLICATIONS = sorted([*(SOURCE / "apps").rglob("*.py"), SOURCE / "demo.py", *SAMPLE.rglob("*.py")])

# a change here is a change for everybody who has written an application
NAMES = """
    RESUME STAY Act ActionRefused ActionResult Application Backoff Conflict Document DocumentError DocumentStruct Done Engine
    Environment Event EventType Fail Finding HistoryEntry InputError LockFamily Machine MachineError MaintenanceContext
    MaintenanceRoutine New NotFound ObjectNotFound Objects Outcome ParentClosed Record RecordDocuments RecordExists RecordNotFound Ref
    Runtime SpawnedChildren State StepContext StepStopped Store StoreError Wait WaybillError WorkingFolder action end join rest retired work
""".split()  # noqa: SIM905 - a list of strings is harder to read


def test_the_public_names_are_these() -> None:
    assert sorted(waybill.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(waybill, name) is getattr(sys.modules[waybill.module_of(name)], name)
        assert name in dir(waybill)
    with pytest.raises(AttributeError, match="no attribute 'Depot'"):
        _ = waybill.Depot


def test_importing_waybill_loads_nothing_else() -> None:
    script = "import sys, waybill; print([name for name in sys.modules if name.startswith('waybill.')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


def test_every_public_module_is_there_and_public() -> None:
    assert sorted(set(waybill.PUBLIC_MODULES)) == waybill.PUBLIC_MODULES
    for name in waybill.PUBLIC_MODULES:
        assert find_spec(f"waybill.{name}") is not None, name
        assert "._" not in f".{name}"


def iter_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                place = SOURCE.parent.joinpath(*node.module.split("."), alias.name)
                is_module = place.is_dir() or place.with_suffix(".py").exists()
                yield f"{node.module}.{alias.name}" if is_module else node.module


@pytest.mark.parametrize("path", APPLICATIONS, ids=lambda path: "/".join(path.parts[-3:]))
def test_an_application_imports_only_public_modules(path: Path) -> None:
    for name in iter_imports(path):
        package, _, module = name.partition(".")
        if package == "waybill" and module.partition(".")[0] not in ("", "apps"):
            assert module in waybill.PUBLIC_MODULES, f"{name} is not public: see waybill.PUBLIC_MODULES"
