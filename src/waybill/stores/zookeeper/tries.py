"""Groups on their way into the store: a Try is one group with what is known and planned for it, a Pack those that
share a transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from waybill.record import Answer, Group, Ref
from waybill.stores.zookeeper.changes import Result
from waybill.stores.zookeeper.layout import layout_of
from waybill.stores.zookeeper.plan import Plan, Real
from waybill.stores.zookeeper.seen import Seen
from waybill.stores.zookeeper.wire import Op


@dataclass(slots=True)
class Try:
    """A group on its way."""

    place: int
    group: Group
    answer: Answer | None = None
    careful: bool = False  # plan from what is really there
    failures: int = 0
    seen: dict[Ref, Seen | None] = field(default_factory=dict)
    real: Real | None = None
    plan: Plan | None = None
    size: int = 0  # of the plan, in bytes
    results: list[Result] = field(default_factory=list)
    marks: Collection[str] = ()
    counts: bool = field(init=False)  # whether it takes numbers, so that no other such transaction may be under way

    def __post_init__(self) -> None:
        self.counts = any(
            c.before is None or (c.after is None and not layout_of(c.ref.kind).prefix) for c in self.group.changes
        )

    @property
    def sessions(self) -> set[str]:
        return {c.before.session for c in self.group.changes if c.before is not None and c.before.session is not None}


@dataclass(slots=True)
class Pack:
    """Groups in one transaction."""

    tries: list[Try] = field(default_factory=list)
    sessions: dict[str, None] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    whose: list[Try | None] = field(default_factory=list)  # the group of each operation
    size: int = 0
    counts: bool = False
