"""The state tables of Merritt's library. The first of `next` that is no failure is where success leads."""

from dataclasses import dataclass
from itertools import pairwise


class StateError(Exception):
    """MerrittStateError: the library refuses."""


@dataclass(frozen=True)
class Table:
    next: dict[str, tuple[str, ...]]
    success: dict[str, str]

    def check(self, old: str | None, new: str) -> None:
        if old is not None and new not in self.next[old]:
            raise StateError(f"State change ({old}->{new}) is not allowed")

    def deletable(self, state: str) -> bool:
        return not self.next[state]


_LINE = ("Estimating", "Provisioning", "Downloading", "Processing", "Storing", "Recording", "Notify", "Completed")
_STEPS = dict(pairwise(_LINE))

JOB = Table(
    {
        "Pending": ("Held", "Estimating", "Failed"),
        "Held": ("Pending", "Deleted"),
        **{state: (then, "Failed") for state, then in _STEPS.items()},
        "Failed": ("Pending", *_LINE[:-1], "Deleted"),
        "Completed": (),
        "Deleted": (),
    },
    _STEPS,
)
OLD_JOB = Table({**JOB.next, "Processing": ("Recording", "Failed")}, {**_STEPS, "Processing": "Recording"})
BATCH = Table(
    {
        "Pending": ("Held", "Processing"),
        "Held": ("Pending", "Deleted"),
        "Processing": ("Reporting", "Failed"),
        "Reporting": ("Completed", "Failed"),
        "Failed": ("UpdateReporting", "Deleted", "Pending"),  # Pending: since 2026
        "UpdateReporting": ("Completed", "Failed"),
        "Completed": (),
        "Deleted": (),
    },
    {"Processing": "Reporting", "Reporting": "Completed", "UpdateReporting": "Completed"},
)
ACCESS = Table(
    {
        "Pending": ("Processing",),
        "Processing": ("Completed", "Failed"),
        "Failed": ("Processing", "Deleted"),
        "Completed": (),
        "Deleted": (),
    },
    {"Processing": "Completed"},
)
RESUMES: dict[str | None, str] = {
    None: "Estimating",
    "": "Estimating",
    "Pending": "Estimating",
    **{k: v for k, v in _STEPS.items() if v != "Completed"},
}
BUCKETS = {"Failed": "batch-failed", "Completed": "batch-completed", "Deleted": "batch-deleted"}
