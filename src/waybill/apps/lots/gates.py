"""What an arc does with a lot: two tables in which every pair of states has an answer.

The **start gate** decides when a source's lot is announced: from the state of the arc's run of this lot and generation,
and the state of the announced manifest.

    arc \\ manifest   complete           empty                     partial, removed
    (none)           run                propagate or run           refuse: nobody may read it
    missing          run                propagate or run           refuse
    partial          run (a retry)      propagate or run           refuse
    running          wait its turn      wait its turn              refuse
    complete         done already       done already               refuse

A newer generation of the source is a run of its own, so it meets `(none)`. Whether an empty lot is passed on without a
run or runs like any other is the arc's `on_empty`.

The **completion gate** decides when a run's work is over: from the states of the manifests of its sinks, and whether the
workload failed.

    sinks                          workload succeeded    workload failed
    no manifest at all             missing               missing
    some partial                   partial               partial
    some removed, none partial     partial               partial
    only complete and empty        complete              partial

What is announced downstream is `complete` alone: a failed workload never announces, whatever manifests it left.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from waybill.apps.lots.naming import ArcState, ManifestState

StartDecision = Literal["run", "propagate", "queue", "done", "refuse"]
OnEmpty = Literal["propagate", "run"]


def decide_start(arc: ArcState | None, manifest: ManifestState, on_empty: OnEmpty = "propagate") -> StartDecision:
    """Return what an arc does when a lot of a source is announced."""
    if manifest in ("partial", "removed"):
        return "refuse"
    if arc == "running":
        return "queue"
    if arc == "complete":
        return "done"
    return "propagate" if manifest == "empty" and on_empty == "propagate" else "run"


def decide_completion(sinks: Collection[ManifestState], *, failed: bool) -> ArcState:
    """Return the arc's state when its work is over."""
    if not sinks:
        return "missing"
    if failed or "partial" in sinks or "removed" in sinks:
        return "partial"
    return "complete"


# the only moves of an arc's state: from each, to these
NEXT_ARC_STATES: dict[ArcState, frozenset[ArcState]] = {
    "running": frozenset({"complete", "partial"}),
    "partial": frozenset({"running", "missing"}),
    "missing": frozenset({"running"}),
    "complete": frozenset(),
}
