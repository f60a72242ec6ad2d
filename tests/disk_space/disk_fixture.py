"""Crates that need space, on a host whose disk the test sets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.disk_space.fake_disk import FakeDisk
from waybill.config.model import MailSettings
from waybill.disk_space import SPACE_DOCUMENT, DiskSpaceSettings, SpaceReservation, SpaceWait, WorkingDisk
from waybill.engine import Engine
from waybill.machine import Machine, action, end, rest, work
from waybill.notify import make_mail_machine
from waybill.record import Record
from waybill.rules import Machines
from waybill.step import Done, New, Outcome, StepContext
from waybill.stores.model import ModelDatabase, ModelStore
from waybill.worker import run_one_step


def build_crate() -> Machine:
    return Machine(
        name="crate",
        plural="crates",
        prefix="crt",
        description="Something that needs space.",
        states=(
            work("Waiting", to="Filling", description="Reserves its space.", reserves_space=True, leaves_files=True),
            work(
                "Filling", to="Shipping", description="Writes its files.", reserves_space=True, on_host_lost="Waiting"
            ),
            rest("Shipping", description="Its files are written."),
            rest("Failed", description="Gave up.", settled=True),
            end("Gone", description="Over."),
        ),
        actions=(
            action("drop", "Waiting Filling Shipping Failed", "Gone", "Give it up."),
            action("resume", "Failed", "Waiting", "Again."),
        ),
        documents=(SPACE_DOCUMENT,),
    )


class DiskFixture:
    """Crates of given sizes, on a host whose disk the test sets. `fill` is the step of Filling."""

    def __init__(self, root: Path, *, free: int, total: int = 10_000, **settings: Any) -> None:
        self.root, self.disk = root / "work", FakeDisk(total, free)
        self.settings = DiskSpaceSettings(
            **{"keep_free": 0, "unknown_size_bytes": 500, "poll_interval": 0.0, **settings}
        )
        self.crate = build_crate()
        self.machines = Machines.from_machines((self.crate, make_mail_machine(MailSettings())))
        self.store = ModelStore(ModelDatabase(time.time))
        self.engine = Engine(self.store, self.machines)
        self.needs: dict[str, int | None] = {}
        self.fill: Callable[[StepContext], Outcome] = lambda ctx: Done()
        self.crate.bound_steps["Waiting"] = self._run_waiting
        self.crate.bound_steps["Filling"] = lambda record, ctx: self.fill(ctx)
        self.set_host("h1")

    def set_host(self, host: str) -> None:
        self.host = host
        self.working_disk = WorkingDisk(
            self.root, host, self.machines, self.settings, admins=["ops@example.org"], measure_disk=self.disk
        )

    def _run_waiting(self, record: Record, ctx: StepContext) -> Outcome:
        wait = self.working_disk.reserve(ctx, self.needs[record.id])
        return wait or Done(remove=(SpaceWait,))

    def add(self, need: int | None) -> Record:
        record = self.engine.submit(New("crate"))
        self.needs[record.id] = need
        return record

    def step(self, record: Record) -> Record:
        run_one_step(
            lambda: ModelStore(self.store.database),
            self.machines,
            host=self.host,
            work_root=self.root,
            objects=None,  # type: ignore[arg-type]
            target=record.ref,
        )
        return self.store.get(*record.ref)

    def list_reservations(self) -> list[SpaceReservation]:
        return self.working_disk.reservations.list_reservations()

    def list_mail(self) -> list[dict[str, Any]]:
        return [record.documents["mail"] for record in self.store.find("mail", documents=True).records]
