"""A Python function as a workload: it gets the part, in this process.

    def count_lines(part):
        lines = sum(path.read_bytes().count(b"\\n") for path in part.files("main"))
        (part.sink("main") / "count.txt").write_text(f"{lines}\\n")

It is code of the installation, trusted as applications are. What it raises makes the attempt fail, with the error as its
message; it runs again under another attempt, so what it does elsewhere must bear that.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import Any

from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed
from waybill.apps.lots.workloads.results import WorkloadResult

MAX_MESSAGE = 500


def run_function(work: PartWork) -> WorkloadResult:
    function = _load(work.arc.workload.function)
    work.seen_folder = str(work.folder)
    try:
        function(work)
    except InterruptedError:
        raise
    except WorkloadFailed as error:
        return WorkloadResult(str(error))
    except Exception as error:  # noqa: BLE001 - whatever the user's function raises is its failure
        work.stderr.write_text(traceback.format_exc())
        return WorkloadResult(f"{type(error).__name__}: {error}"[:MAX_MESSAGE])
    return WorkloadResult()


def _load(name: str) -> Callable[[PartWork], Any]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise WorkloadFailed(f"There is no function {name} here: {error}.") from error
    if not callable(found):
        raise WorkloadFailed(f"{name} is no function.")
    function: Callable[[PartWork], Any] = found
    return function


__all__ = ["run_function"]
