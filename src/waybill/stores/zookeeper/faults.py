"""Faults: a rule of the tree that does not hold somewhere, with the operations that would mend it.

A rule looks at many subjects at once (records, or nodes by their path) and yields what is wrong with them. `check`
yields a fault only if it is still there at a second look, because a tree is never quite still; `mend` looks a third
time, and writes only what that look says.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from waybill.record import Finding, Ref
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import Op


@dataclass(frozen=True)
class Ages:
    """When something is too old to be in the middle of happening."""

    lock: float = 120.0  # seconds: no step of Merritt's services holds a lock for longer
    old: float = 3600.0  # seconds: younger faults are warnings, for somebody may still be at it


@dataclass(frozen=True)
class Fault:
    finding: Finding
    ops: tuple[Op, ...]  # none: a person must decide


class Rule(Protocol):
    """One consistency rule. `name` is what a Finding calls it."""

    name: str

    def subjects(self) -> Iterator[str]:
        """The paths of all nodes that it is about."""

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        """What is wrong with these."""


class Judge:
    """What the rules have in common: the tree, the ages, and the words of a finding."""

    def __init__(self, tree: Tree, ages: Ages) -> None:
        self.tree = tree
        self.link = tree.link
        self.ages = ages

    def fault(
        self,
        rule: str,
        where: str,
        problem: str,
        remedy: str,
        ops: Sequence[Op],
        *,
        since: float | None = None,
        ref: Ref | None = None,
    ) -> Fault:
        if since is not None:
            age = max(0.0, time.time() - since)
            problem = f"{problem} ({'FAIL' if age >= self.ages.old else 'WARN'}: for {age:.0f} s)"
        return Fault(Finding(rule, where, problem, remedy, bool(ops), ref), tuple(ops))
