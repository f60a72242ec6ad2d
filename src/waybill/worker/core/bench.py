"""What lies on a worker's bench: its tasks, the entries on their way to the store, and the commands on their way to
the shell.
"""

from __future__ import annotations

from waybill.record import Change, Group, Record, Ref
from waybill.step import Stopped
from waybill.worker import messages as m


class Bench:
    def __init__(self) -> None:
        self.tasks: dict[int, m.Task] = {}  # all whose claim we hold or whose step still runs
        self.by_ref: dict[Ref, m.Task] = {}
        self.out: list[m.Entry] = []  # to be committed together
        self.looks: list[m.Task] = []
        self.starts: list[m.Task] = []
        self.commands: list[m.Command] = []
        self.numbers = 0

    # --- a task, in the order of its life

    def task(self, record: Record, now: float) -> m.Task:
        self.numbers += 1
        task = m.Task(self.numbers, record, record.version, now)
        self.tasks[task.number] = self.by_ref[record.ref] = task
        return task

    def start(self, task: m.Task) -> None:
        task.running = True
        self.starts.append(task)

    def signal(self, task: m.Task) -> None:
        """Its step is told to stop, once."""
        if not task.stopping:
            task.stopping = True
            if task.running:
                self.commands.append(m.Signal(task))

    def reply(self, task: m.Task, result: list[Record] | Exception | Stopped) -> None:
        self.commands.append(m.Reply(task, result))

    def settled(self, task: m.Task, change: Change, spawn: tuple[Change, ...] = ()) -> None:
        self.out.append(m.Entry(Group((change, *spawn)), task))

    def forget(self, task: m.Task) -> None:
        if not task.running:
            self.tasks.pop(task.number, None)
        if self.by_ref.get(task.record.ref) is task:
            del self.by_ref[task.record.ref]

    # --- all of them

    @property
    def busy(self) -> bool:
        return any(task.running for task in self.tasks.values())

    def signal_all(self) -> None:
        for task in self.tasks.values():
            self.signal(task)

    def recall_starts(self) -> list[m.Task]:
        """The tasks whose step was to begin."""
        starts, self.starts = self.starts, []
        for task in starts:
            task.running = False
        return starts

    def give_up(self, why: str) -> None:
        """All claims are lost. Steps that still run are told to stop; what they answer is ignored."""
        self.recall_starts()
        for task in list(self.tasks.values()):
            task.dead = True
            self.signal(task)
            self.forget(task)
        self.commands.extend(m.Reply(e.task, Stopped(why)) for e in self.out if e.saves and e.task is not None)
        self.out = [e for e in self.out if e.task is None]
        self.looks.clear()
        self.commands.append(m.Recall())

    # --- to the shell

    def flush(self) -> None:
        if self.looks:
            self.commands.append(m.Look(self.looks))
            self.looks = []
        if self.out:
            self.commands.append(m.Commit(self.out))
            self.out = []

    def begin_steps(self) -> bool:
        """Whether there was one to begin."""
        if not self.starts:
            return False
        self.commands.append(m.Start(self.starts))
        self.starts = []
        return True

    def said(self) -> list[m.Command]:
        commands, self.commands = self.commands, []
        return commands
