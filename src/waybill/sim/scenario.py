"""A scenario: the machines that are simulated, who submits what, what people do meanwhile, and what must hold
besides the common rules.

One object of it is made for each seed. A scenario of an application is a subclass of `Scenario`, named in the
entry-point group `waybill.scenarios`; its steps are the application's own, over fakes that call `world.point` or
`world.happen` before and after each effect.

    machines       the tables, with their steps
    submissions    what is asked for at the beginning, each with a request key
    marks          the marks that people set and clear
    errands        what people do besides, one after the other, each tried until it is done
    duties         the application's own upkeep; retention: after how long what has settled is removed
    changed        called with every change that was written: raise Violation for what must not be
    finished       called when all is quiet: a sentence for each thing that is wrong
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar

from waybill.duties import Duty
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Change, Record, Store
from waybill.sim.ledger import Entry
from waybill.sim.world import World
from waybill.step import New

GROUP = "waybill.scenarios"
Errand = Callable[[Engine], None]


class Scenario:
    name: ClassVar[str] = ""
    doc: ClassVar[str] = ""
    sound: ClassVar[bool] = True  # its steps meet trouble only when the world does
    aims: ClassVar[tuple[str, ...]] = ()  # points of its own at which all faults of a seed may strike
    real_files: ClassVar[bool] = False  # its steps use ctx.workdir: give them a folder

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng

    def machines(self) -> tuple[Machine, ...]:
        raise NotImplementedError

    def submissions(self) -> Iterable[New]:
        raise NotImplementedError

    def marks(self) -> tuple[str, ...]:
        return ()

    def objects(self) -> Any:
        """What steps get as `ctx.objects`."""
        return None

    def outfit(self, kind: str) -> Any:
        """What steps of that kind get as `ctx.outfit`; asked for on the host where the step runs."""
        return None

    def errands(self) -> Iterable[Errand]:
        """What people do besides submitting and acting. Each may be done twice: whoever crashed begins again with
        the one not finished.
        """
        return ()

    def duties(self) -> tuple[Duty, ...]:
        """Upkeep of the application's own, besides the built-in duties."""
        return ()

    def retention(self) -> Mapping[str, float]:
        """Seconds after which what has settled is removed, by "kind.State", over what the tables say."""
        return {}

    def changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        """Look at a change that was written. `record` is None when it was removed."""

    def finished(self, store: Store) -> Iterator[str]:
        """What is wrong at the end."""
        yield from ()


@cache
def scenarios() -> dict[str, type[Scenario]]:
    """The built-in scenarios and those of installed applications, by name."""
    from waybill.sim.scenarios import BUILT_IN

    table: dict[str, type[Scenario]] = {each.name: each for each in BUILT_IN}
    for entry in entry_points(group=GROUP):
        table[entry.name] = entry.load()
    return table


class UnknownScenario(LookupError):
    """There is no such scenario."""


def scenario_named(name: str) -> type[Scenario]:
    table = scenarios()
    if name not in table:
        raise UnknownScenario(f"There is no scenario {name!r}; there are {', '.join(sorted(table))}.")
    return table[name]
