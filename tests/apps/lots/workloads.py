"""Functions that arcs of the tests run. What they should do is said by files of their sources: a line `fail`, `nothing`."""

from __future__ import annotations

from waybill.apps.lots.workloads import PartWork, WorkloadFailed

FAILING: set[str] = set()  # partitions that fail, as long as they are here
RUNS: list[tuple[str, str]] = []  # lot, partition


def count(part: PartWork) -> None:
    """Write how many lines there are, and fail afterwards if it is to: what it wrote is left."""
    RUNS.append((part.part.lot, part.partition))
    total = sum(path.read_bytes().count(b"\n") for path in part.files())
    folder = part.sink() / part.partition if part.partition else part.sink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "count.txt").write_text(f"{total}\n")
    if part.partition in FAILING:
        raise WorkloadFailed(f"{part.partition} fails.")


def nothing(part: PartWork) -> None:
    """Leave nothing in the sink."""


def touch(part: PartWork) -> None:
    """Write one object without reading any."""
    for role in part.sink_datasets:
        (part.sink(role) / "done.txt").write_text(part.part.lot)
