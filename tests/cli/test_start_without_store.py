"""A store that becomes unavailable while a process starts: the command ends with the store's exit code and a sentence,
whatever it was at.
"""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cli.conftest import Waybill
from tests.servers.postgres import PostgresServer
from tests.servers.zookeeper import ZooKeeperServer
from waybill import tokens
from waybill.errors import STORE
from waybill.maintenance import MaintenanceScheduler
from waybill.stores.postgres import schema
from waybill.stores.zookeeper import store as tree
from waybill.worker import Worker

COMMANDS = (("work",), ("serve", "--port", "0"), ("up", "--port", "0"))


class DyingServer:
    """A server that is killed when the command comes to a certain point."""

    def __init__(self, server: PostgresServer | ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self._monkeypatch = server, monkeypatch
        url = server.create_database() if isinstance(server, PostgresServer) else server.create_chroot()
        monkeypatch.setenv("WAYBILL_STORE", url)
        self.died = False

    def dies_before(self, place: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(place, name)

        def last_moment(*args: Any, **options: Any) -> Any:
            if not self.died:
                self.died = True
                self.server.kill()
            return call(*args, **options)

        self._monkeypatch.setattr(place, name, last_moment)


@pytest.fixture(params=[PostgresServer, ZooKeeperServer])
def dying_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[DyingServer]:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)  # of this process, which is pytest's
    with request.param() as server:
        yield DyingServer(server, monkeypatch)


def refused(waybill: Waybill, *command: str) -> None:
    done = waybill(*command)  # which sees that there is no traceback
    assert done.code == STORE, done.err
    assert done.out == ""
    output = done.err.splitlines()[-1]
    assert any(advice in output for advice in ("Start the server", "Try again.", "Is it running", "next call")), output
    assert "?." not in output


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_a_store_that_becomes_unavailable_before_the_maintenance_records_are_made_is_a_sentence(
    bare: Waybill, dying_server: DyingServer, command: tuple[str, ...]
) -> None:
    dying_server.dies_before(MaintenanceScheduler, "ensure_records")
    refused(bare, *command)


def test_a_store_that_becomes_unavailable_before_it_is_set_up_is_a_sentence(
    bare: Waybill, dying_server: DyingServer
) -> None:
    dying_server.dies_before(
        *((schema, "prepare_schema") if isinstance(dying_server.server, PostgresServer) else (tree, "_set_up"))
    )
    refused(bare, "work")


def test_a_store_that_becomes_unavailable_before_the_admin_has_a_token_is_a_sentence(
    bare: Waybill, dying_server: DyingServer
) -> None:
    dying_server.dies_before(tokens, "ensure_admin_token")
    refused(bare, "serve", "--port", "0")


def test_a_store_that_becomes_unavailable_before_the_worker_begins_is_a_sentence(
    bare: Waybill, dying_server: DyingServer
) -> None:
    dying_server.dies_before(Worker, "run")
    refused(bare, "work")
