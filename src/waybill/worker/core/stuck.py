"""Records that the store takes in no form: neither what was decided, nor that it failed, nor that they are given
back as they were.

Such a claim stays with this worker, so that no other runs the same step for nothing, and giving it back is tried again:
after a second, then after twice as long each time, every five minutes in the end. Each time is said once. The claim
ends with the session at the latest.
"""

from __future__ import annotations

from waybill import rules
from waybill.worker import messages as m
from waybill.worker.core.bench import Bench
from waybill.worker.core.terms import Terms

FIRST = 1.0  # seconds until it is tried again
LONGEST = 300.0
MOST = 100  # kept at once; with more of them something else is wrong


class Stuck:
    def __init__(self, terms: Terms, bench: Bench) -> None:
        self.terms, self.bench = terms, bench
        self._waiting: list[tuple[float, m.Task]] = []

    def keep(self, task: m.Task, why: str, now: float) -> bool:
        """Try it again later; False if there are too many of them."""
        if len(self._waiting) >= MOST:
            return False
        delay = min(FIRST * 2.0 ** min(task.stuck, 20), LONGEST)
        task.stuck += 1
        self.bench.tasks.pop(task.number, None)  # it takes no thread, and no room from others
        self._waiting.append((now + delay, task))
        words = f"{task.record.ref} can be neither stored nor given back, and is tried again in {delay:.0f} s: {why}"
        self.bench.commands.append(m.Warn(words))
        return True

    def try_due(self, now: float) -> None:
        due = [task for at, task in self._waiting if at <= now and not task.dead]
        self._waiting = [(at, task) for at, task in self._waiting if at > now and not task.dead]
        for task in due:
            self.bench.tasks[task.number] = task
            self.bench.settled(task, rules.release(task.record, self.terms.who))

    def drop(self) -> None:
        """They go with the session."""
        for _, task in self._waiting:
            task.dead = True
            self.bench.forget(task)
        self._waiting = []

    @property
    def next(self) -> float:
        return min((at for at, _ in self._waiting), default=float("inf"))
