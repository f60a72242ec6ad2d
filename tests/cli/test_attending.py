"""A server's presence on a SQLite file survives a disk that is full, busy or broken for a while."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from waybill.cli.attending import Attendance
from waybill.record import Renewed, StoreError, Unavailable, Unknown


class Trouble:
    """A store whose file cannot be written now."""

    def __init__(self, troubles: list[StoreError]) -> None:
        self.troubles = troubles
        self.attendance: Attendance

    def open_session(self, **_: object) -> str:
        return "s"

    def renew(self, session: str) -> Renewed:
        if len(self.troubles) == 1:
            self.attendance.stop()
        raise self.troubles.pop()

    def close_session(self, session: str) -> None:
        raise Unavailable("busy")

    def close(self) -> None: ...


def test_a_disk_that_fails_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    store = Trouble([Unavailable("full"), Unknown("failed in the middle")])
    work = SimpleNamespace(ttl=0.03)
    store.attendance = Attendance(
        cast(Any, SimpleNamespace(host="h", config=SimpleNamespace(work=work), open_store=lambda: store))
    )
    store.attendance.run()
    assert caplog.messages == [
        "the store is not told that this server lives: failed in the middle",
        "the store is not told that this server lives: full",
        "the store is not told that this server has ended: busy",
    ]
