"""The client of a server answers as the client of a store does; the command line says the same with --server."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import (
    Result,
    Running,
    Waybill,
    address_of,
    bare,
    environment,
    submit_shipment,
    take_step,
    waybill,
)
from waybill.client import Client
from waybill.errors import InputError, WaybillError

__all__ = ["bare", "environment", "waybill"]  # fixtures


@pytest.fixture
def server(waybill: Waybill, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server of the store that `waybill` uses, without workers, and the file with its admin's token."""
    secret = waybill("tokens", "new", "client", "--role", "admin", "--json").json["token"]
    token_file = tmp_path / "token"
    token_file.write_text(secret + "\n")
    token_file.chmod(0o600)
    process = Running("serve", "--port", 0)
    try:
        yield address_of(process.line()), token_file
    finally:
        assert process.end(signal.SIGTERM).code == 0


def test_every_command_on_records_answers_the_same_from_a_server_and_from_the_store(
    waybill: Waybill, server: tuple[str, Path]
) -> None:
    url, token_file = server
    remote = ("--server", url, "--token-file", token_file)

    def compare(*arguments: object) -> Any:
        local, answer = waybill(*arguments), waybill(*arguments, *remote)
        assert (answer.code, answer.out, answer.err) == (local.code, local.out, local.err), arguments
        return answer

    first = submit_shipment(waybill, parcels=0)
    made = waybill("submit", "shipment", "--document", 'order={"parcels": 0}', "--json", *remote)
    assert made.code == 0, made.err
    second = made.json["id"]
    assert waybill("show", "shipment", second, "--json").json["documents"]["order"]["parcels"] == 0
    for arguments in (
        ("ls", "--json"),
        ("ls",),
        ("ls", "shipment", "--json"),
        ("ls", "shipment", "--newest", "--limit", 1, "--json"),
        ("ls", "shipment", "--state", "Nowhere"),
        ("ls", "nothing"),
        ("show", "shipment", first, "--json"),
        ("show", "shipment", first),
        ("show", "shipment", "no-such"),
        ("history", "shipment", second, "--json"),
        ("history", "shipment", second),
        ("machines", "list", "shipment", "--json"),
        ("holds", "--json"),
        ("sessions", "--json"),
        ("release", "carrier/mule"),
        ("act", "shipment", first, "fly"),
        ("act", "shipment", first, "resume"),
    ):
        if arguments[0] not in ("machines", "sessions"):
            compare(*arguments)
    page = waybill("ls", "shipment", "--limit", 1, "--json", *remote).json
    assert [r["id"] for r in page["records"]] == [first]
    rest = waybill("ls", "shipment", "--limit", 1, "--page-token", page["next"], "--json", *remote).json
    assert [r["id"] for r in rest["records"]] == [second]

    assert waybill("hold", "carrier/mule", "--why", "it is lame", *remote).code == 0
    assert "it is lame" in waybill("holds", "--json").json["holds"][0]["about"]
    assert waybill("release", "carrier/mule", *remote).code == 0
    assert waybill("pause", "shipment", *remote).out == waybill("pause", "shipment").out
    assert waybill("unpause", "shipment", *remote).code == 0
    assert waybill("holds", "--json").json["holds"] == []

    assert waybill("priority", "shipment", first, 1, *remote).code == 0
    assert waybill("show", "shipment", first, "--json").json["priority"] == 1
    compare("act", "shipment", "cancel", "--all", "--state", page["records"][0]["state"], "--yes", "--json")  # refused
    assert [take_step(waybill, "shipment")["after"] for _ in range(2)] == ["Failed", "Failed"]
    compare("act", "shipment", first, "cancel")  # it must be confirmed
    acted = waybill("act", "shipment", "cancel", "--all", "--state", "Failed", "--yes", *remote)
    assert acted.code == 0, acted.err
    states = {r["id"]: r["state"] for r in waybill("ls", "shipment", "--json").json["records"]}
    assert set(states.values()) == {"Cancelled"}
    assert [e["who"] for e in waybill("history", "shipment", first, "--json").json["entries"]][-1] == "client"
    followed = waybill("watch", "shipment", first, "--json", *remote)
    assert followed.code == 0
    assert followed.lines[-1]["after"] == states[first]
    watched = waybill("watch", "shipment", "--until-settled", "--json", *remote)
    assert watched.lines[0]["kinds"][0]["total"] == 2


def test_a_command_says_what_is_wrong_with_the_server(
    waybill: Waybill, server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token_file = server

    def check(said: Result, code: int, name: str, part: str) -> None:
        assert (said.code, said.error["code"]) == (code, name), said.err
        assert part in said.error["message"] + said.error["hint"]

    check(waybill("ls", "--json", "--server", url), 1, "no-token", "token")
    check(waybill("ls", "--json", "--server", url, "--data", tmp_path), 2, "usage", "leave out --data")
    check(waybill("ls", "--json", "--server", "ftp://here"), 2, "usage", "is no URL of a server")
    check(waybill("ls", "--json", "--server", "http://a:b@here"), 2, "usage", "holds no password")
    check(waybill("doctor", "--json", "--server", url), 2, "usage", "where the store is")
    check(waybill("ls", "--json", "--server", "http://127.0.0.1:1"), 5, "no-server", "cannot be reached")
    token_file.chmod(0o644)
    named = ("--server", url, "--token-file", token_file)
    check(waybill("ls", "--json", *named), 1, "bad-token-file", "chmod 600")
    token_file.chmod(0o600)
    token_file.write_text("two words")
    check(waybill("ls", "--json", *named), 1, "bad-token-file", "does not hold one token")
    token_file.write_text("wb_000000000000_" + "0" * 43)
    check(waybill("ls", "--json", *named), 1, "bad-token", "not valid")

    # The environment names a server; a store that is chosen on the command line goes first.
    monkeypatch.setenv("WAYBILL_SERVER", "http://127.0.0.1:1")
    check(waybill("ls", "--json"), 5, "no-server", "cannot be reached")
    assert waybill("ls", "--json", "--data", os.environ["WAYBILL_DATA"]).code == 0


class _StrangeServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.endswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "http://elsewhere.example/")
            self.end_headers()
            return
        body = (
            b"<html>"
            if self.path.endswith("/page")
            else json.dumps({"error": {"code": "new", "message": "m"}}).encode()
        )
        self.send_response(200 if self.path.endswith("/page") else 409)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def test_a_client_follows_no_redirect_and_understands_strange_answers() -> None:
    strange = HTTPServer(("127.0.0.1", 0), _StrangeServer)
    thread = threading.Thread(target=strange.serve_forever, daemon=True)
    thread.start()
    try:
        with Client(f"http://127.0.0.1:{strange.server_port}", token="secret") as client:
            for path, code in (("/moved", "bad-server"), ("/page", "bad-server"), ("/other", "refused")):
                with pytest.raises(WaybillError) as raised:
                    client.request("GET", path)
                assert raised.value.code == code
    finally:
        strange.shutdown()
        strange.server_close()
        thread.join()
    with pytest.raises(InputError):
        Client("not a url")
