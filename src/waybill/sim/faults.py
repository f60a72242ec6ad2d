"""Which faults a simulation has, and how often: drawn from the seed before anything begins.

A **fault mix** says which faults a seed can have. Seeds with the mix `none` have no maintenance either: there the
protocol itself must settle every record, without the routines that repair after a fault. The number of faults in a
simulation is limited, so that it makes progress.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

# crash: a process ends at once      freeze: a process stands still, and goes on late      stop: a worker is told to stop
# lost: an answer is lost after the write      refused: one call does not reach the store
# outage: no call reaches the store, for a while      cut: no call of one process does, for a while
# jump: all clocks jump ahead (a laptop was suspended)      wipe: a host is lost with its disk
FAULT_MIXES: dict[str, dict[str, float]] = {
    "none": {},
    "crashes": {"crash": 1.0},
    "freezes": {"freeze": 1.0, "crash": 0.1},
    "lost-answers": {"lost": 1.0, "refused": 0.6, "outage": 0.2},
    "partitions": {"cut": 1.0, "lost": 0.3},
    "clock-jumps": {"jump": 0.6, "freeze": 0.4},
    "stops": {"stop": 1.0, "crash": 0.2},
    "host-losses": {"wipe": 0.5, "crash": 0.3, "stop": 0.2},
    "everything": {
        "crash": 0.5,
        "freeze": 0.5,
        "lost": 0.5,
        "refused": 0.4,
        "outage": 0.2,
        "cut": 0.3,
        "jump": 0.15,
        "stop": 0.3,
        "wipe": 0.1,
    },
}

# Half of the seeds have their faults at one sort of point only, so that rare points are hit too.
TARGET_POINTS = (
    "before ",
    "before ",
    "after ",
    "after ",
    "commit",
    "reread",
    "claim done",
    "parents_with_open_children",
    "get",
    "find",
    "count_by_state",
    "request_action",
    "list_sessions",
    "renew_session",
    "open_session",
    "close_session",
    "set_hold",
    "clear_hold",
    "claim_one",
    "maintain_indexes",
    "find_idle_parents",
)


@dataclass(frozen=True)
class SimulationProfile:
    """The numbers of one simulation."""

    fault_mix: str
    workers: int
    hosts: int
    threads: int
    max_claims: int
    ttl: float
    partial_queues_rate: float  # how likely a worker serves only some of the queues
    switch_rate: float  # how likely a fiber yields at a point
    fault_rate: float  # how likely a fault is injected at a point
    max_faults: int  # how many faults there are at most
    quiet_points: int  # points before the first fault
    target_point: str  # inject faults only at points of this name, and there often; "": anywhere
    transient_error_rate: float  # how likely a step meets a transient error
    empty_claim_rate: float  # how likely a claim returns fewer records than it could
    lost_hint_rate: float  # how likely a hint that something is claimable is lost
    has_operator: bool  # an operator acts at random; otherwise clients only submit
    max_moves: int  # of the operator
    has_maintenance: bool
    keeps_holds: bool  # holds that the operator set stay set to the end

    @classmethod
    def draw(cls, rng: Random, more_points: tuple[str, ...] = ()) -> SimulationProfile:
        """`more_points`: further points at which all faults of a seed may be injected."""
        fault_mix = rng.choice(["none", "none", *FAULT_MIXES])
        has_faults = fault_mix != "none"
        return cls(
            fault_mix=fault_mix,
            workers=rng.choice((1, 2, 2, 3, 3, 4)),
            hosts=rng.choice((1, 2, 2, 3)),
            threads=rng.choice((1, 2, 3)),
            max_claims=rng.choice((1, 2, 4, 8, 256)),
            ttl=15.0,
            partial_queues_rate=rng.choice((0.0, 0.0, 0.5)),
            switch_rate=rng.choice((0.2, 0.5, 0.8, 1.0)),
            fault_rate=0.0 if not has_faults else rng.choice((0.004, 0.012, 0.03)),
            max_faults=0 if not has_faults else rng.choice((1, 2, 4, 8, 16)),
            quiet_points=rng.choice((0, 0, 100, 300)),
            target_point="" if rng.random() < 0.5 else rng.choice((*TARGET_POINTS, *more_points)),
            transient_error_rate=0.0 if not has_faults else rng.choice((0.0, 0.0, 0.2, 0.5)),
            empty_claim_rate=rng.choice((0.0, 0.1)),
            lost_hint_rate=rng.choice((0.0, 0.3, 1.0)),
            has_operator=rng.random() < 0.75,
            max_moves=rng.choice((3, 8, 15)),
            has_maintenance=has_faults,
            keeps_holds=rng.random() < 0.2,
        )

    def __str__(self) -> str:
        return ", ".join(f"{f.name} {getattr(self, f.name)}" for f in fields(self))


class FaultSchedule:
    """Decides at each point whether a fault is injected, and which."""

    def __init__(self, profile: SimulationProfile, rng: Random) -> None:
        self.profile, self.rng, self.random = profile, rng, rng.random
        mix = FAULT_MIXES[profile.fault_mix]
        self.names, self.weights = list(mix), list(mix.values())
        self.faults_left = profile.max_faults
        self.target_point = profile.target_point
        self.quiet_points = 0 if profile.target_point else profile.quiet_points
        self.rate = profile.fault_rate if self.names else 0.0
        self.unavailable_until = 0.0  # an outage lasts until then
        self.counts: dict[str, int] = {}

    def draw_fault(self, where: str, weight: float) -> str | None:
        """The name of a fault, or None; `weight`: how much more likely than elsewhere."""
        if self.target_point:
            if not where.startswith(self.target_point):
                return None
            weight = 10.0
        if self.quiet_points > 0:
            self.quiet_points -= 1
        elif self.random() < self.rate * weight:
            self.faults_left -= 1
            if self.faults_left <= 0:
                self.rate = 0.0
            fault = self.rng.choices(self.names, self.weights)[0]
            self.counts[fault] = self.counts.get(fault, 0) + 1
            return fault
        return None

    def stop_faults(self) -> None:
        """Inject nothing more, and end the outage."""
        self.rate = self.unavailable_until = 0.0
