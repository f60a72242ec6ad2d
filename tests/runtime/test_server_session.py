"""A server's session on a SQLite file survives a disk that is full, busy or broken for a while."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from waybill.record import CommitOutcomeUnknown, SessionRenewal, StoreError, StoreUnavailable
from waybill.runtime.server_processes import ServerSession


class FailingStore:
    """A store whose file cannot be written now."""

    def __init__(self, errors: list[StoreError]) -> None:
        self.errors = errors
        self.server_session: ServerSession

    def open_session(self, **_: object) -> str:
        return "s"

    def renew_session(self, session: str) -> SessionRenewal:
        if len(self.errors) == 1:
            self.server_session.stop()
        raise self.errors.pop()

    def close_session(self, session: str) -> None:
        raise StoreUnavailable("busy")

    def close(self) -> None: ...


def test_a_disk_that_fails_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore([StoreUnavailable("full"), CommitOutcomeUnknown("failed in the middle")])
    work = SimpleNamespace(ttl=0.03)
    store.server_session = ServerSession(
        cast(Any, SimpleNamespace(host="h", config=SimpleNamespace(work=work), open_store=lambda: store))
    )
    store.server_session.run()
    assert caplog.messages == [
        "the session of this server cannot be renewed: failed in the middle",
        "the session of this server cannot be renewed: full",
        "the session of this server cannot be closed: busy",
    ]
