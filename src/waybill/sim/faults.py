"""What goes wrong in a simulation, and how often: drawn from the seed before anything begins.

A **weather** says which sorts of trouble a seed has at all. Calm seeds have none, and no duties either: there the
protocol itself must bring every record home, without the upkeep that mends after accidents. A simulation has only so
many faults, so that it gets somewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

# crash: a process is gone at once      freeze: it stands still, and goes on late      stop: it is told to go home
# lost: an answer is lost after the write      refused: one call does not reach the store      outage: nobody's does, for a while
# cut: those of one process do not, for a while      jump: all clocks leap (a laptop slept)      wipe: a host is gone with its disk
WEATHER: dict[str, dict[str, float]] = {
    "calm": {},
    "crashes": {"crash": 1.0},
    "late": {"freeze": 1.0, "crash": 0.1},
    "wire": {"lost": 1.0, "refused": 0.6, "outage": 0.2},
    "split": {"cut": 1.0, "lost": 0.3},
    "sleep": {"jump": 0.6, "freeze": 0.4},
    "deploys": {"stop": 1.0, "crash": 0.2},
    "hosts": {"wipe": 0.5, "crash": 0.3, "stop": 0.2},
    "storm": {
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

# What comes rarely is aimed at: half of the seeds have their faults at one sort of point only.
AIMS = (
    "before ",
    "before ",
    "after ",
    "after ",
    "commit",
    "look after",
    "claim done",
    "open_parents",
    "get",
    "find",
    "tally",
    "ask",
    "sessions",
    "renew",
    "open_session",
    "close_session",
    "mark",
    "take",
    "sweep",
    "idle_parents",
)


@dataclass(frozen=True)
class Profile:
    """The numbers of one simulation."""

    weather: str
    workers: int
    hosts: int
    threads: int
    portion: int
    ttl: float
    narrow: float  # how likely a worker serves only some of the roles
    switch: float  # how likely a fiber gives way at a point
    rate: float  # how likely a fault is at a point
    faults: int  # how many there are at most
    peace: int  # points before the first
    aim: str  # strike only at points of this name, and there often; "": anywhere
    trouble: float  # how likely a step meets trouble
    empty: float  # how likely a claim answers nothing, or less than it could
    deaf: float  # how likely a hint that something is claimable is lost
    lively: bool  # people act at random; otherwise they only submit
    moves: int  # of each person
    duties: bool
    keep_marks: bool  # marks that people set stay set to the end

    @classmethod
    def draw(cls, rng: Random, more: tuple[str, ...] = ()) -> Profile:
        """`more`: what faults may be aimed at besides."""
        weather = rng.choice(["calm", "calm", *WEATHER])
        calm = weather == "calm"
        return cls(
            weather=weather,
            workers=rng.choice((1, 2, 2, 3, 3, 4)),
            hosts=rng.choice((1, 2, 2, 3)),
            threads=rng.choice((1, 2, 3)),
            portion=rng.choice((1, 2, 4, 8, 256)),
            ttl=15.0,
            narrow=rng.choice((0.0, 0.0, 0.5)),
            switch=rng.choice((0.2, 0.5, 0.8, 1.0)),
            rate=0.0 if calm else rng.choice((0.004, 0.012, 0.03)),
            faults=0 if calm else rng.choice((1, 2, 4, 8, 16)),
            peace=rng.choice((0, 0, 100, 300)),
            aim="" if rng.random() < 0.5 else rng.choice((*AIMS, *more)),
            trouble=0.0 if calm else rng.choice((0.0, 0.0, 0.2, 0.5)),
            empty=rng.choice((0.0, 0.1)),
            deaf=rng.choice((0.0, 0.3, 1.0)),
            lively=rng.random() < 0.75,
            moves=rng.choice((3, 8, 15)),
            duties=not calm,
            keep_marks=rng.random() < 0.2,
        )

    def __str__(self) -> str:
        return ", ".join(f"{f.name} {getattr(self, f.name)}" for f in fields(self))


class Faults:
    """Decides, point by point. `draw` answers the name of a fault, or nothing."""

    def __init__(self, profile: Profile, rng: Random) -> None:
        self.profile, self.rng, self.random = profile, rng, rng.random
        table = WEATHER[profile.weather]
        self.names, self.weights = list(table), list(table.values())
        self.left = profile.faults
        self.aim = profile.aim
        self.peace = 0 if profile.aim else profile.peace
        self.rate = profile.rate if self.names else 0.0
        self.away_until = 0.0  # the store cannot be reached
        self.counts: dict[str, int] = {}

    def draw(self, where: str, weight: float) -> str | None:
        """A fault, or nothing; `weight`: how much more likely than elsewhere."""
        if self.aim:
            if not where.startswith(self.aim):
                return None
            weight = 10.0
        if self.peace > 0:
            self.peace -= 1
        elif self.random() < self.rate * weight:
            self.left -= 1
            if self.left <= 0:
                self.rate = 0.0
            fault = self.rng.choices(self.names, self.weights)[0]
            self.counts[fault] = self.counts.get(fault, 0) + 1
            return fault
        return None

    def heal(self) -> None:
        """From now on all is well."""
        self.rate = self.away_until = 0.0
