"""`waybill up`, `serve` and `work` as processes: one URL, a clean end by a signal, and what a `kill -9` leaves
behind.
"""

import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from tests.cli.conftest import Start, Waybill, address_of, submit_shipment
from tests.servers.process import wait_until
from waybill.config import load, sqlite_url
from waybill.environment import Environment
from waybill.stores import open_store


def get(url: str, token: str | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def states(waybill: Waybill, kind: str) -> dict[str, int]:
    found = waybill("ls", "--json").json["kinds"]
    return {
        state["state"]: state["count"]
        for each in found
        if each["kind"] == kind
        for state in each["states"]
        if state["count"]
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_prints_one_url_serves_works_and_ends_cleanly(
    running: Start, bare: Waybill, data: Path, number: int
) -> None:
    up = running("up", "--demo", "--port", 0)
    line = up.line().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/login/[0-9a-f]{12}\.[0-9A-Za-z_-]{43}", line)
    url = address_of(line)
    assert get(f"{url}health")[0] == 200
    token = (data / "admin.token").read_text().strip()
    assert stat.S_IMODE(os.stat(data / "admin.token").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(data).st_mode) == 0o700
    assert get(f"{url}api/v1/machines")[0] == 401
    assert get(f"{url}api/v1/machines", token)[0] == 200
    wait_until(lambda: "Delivered" in states(bare, "parcel"), "a parcel to arrive", seconds=120)
    ended = up.end(number)
    assert (ended.code, ended.out) == (0, "")
    assert bare("sessions", "--json").json == {"sessions": []}, "the session is closed, not left to expire"
    assert not [r for r in bare("ls", "parcel", "--limit", 1000, "--json").json["records"] if r["session"]]
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(f"{url}health")


def test_up_again_goes_on_with_the_same_token_and_records(
    running: Start, bare: Waybill, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYBILL_DEMO")
    first = running("up", "--demo", "--port", 0, "--json")
    decoded = json.loads(first.line())
    assert set(decoded) == {"url", "login_url", "token_file"}
    assert decoded["login_url"].startswith(f"{decoded['url']}login/")
    assert decoded["token_file"] == str(data / "admin.token")
    token = (data / "admin.token").read_text()
    assert first.end(signal.SIGTERM).code == 0
    made = states(bare, "shipment")
    assert sum(made.values()) == 6
    second = running("up", "--port", 0)
    second.line()
    assert (data / "admin.token").read_text() == token
    assert sum(states(bare, "shipment").values()) == 6, (
        "the folder remembers the demonstration, and makes its records once"
    )
    assert second.end(signal.SIGTERM).code == 0


def test_up_without_the_demonstration_has_none(running: Start, bare: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYBILL_DEMO")
    up = running("up", "--port", 0)
    up.line()
    assert {kind["kind"] for kind in bare("ls", "--json").json["kinds"]} == {
        "maintenance",
        "webhook_delivery",
        "mail",
        "event",
        "subscription",
    }
    assert up.end(signal.SIGTERM).code == 0


def test_a_port_in_use_is_a_sentence(running: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = running("up", "--port", port).end()
    assert (ended.code, ended.out) == (1, "")
    assert (
        ended.err
        == f"Port {port} of 127.0.0.1 cannot be used (Address already in use); give another with --port; 0 is a free one.\n"
    )


@pytest.mark.parametrize(
    "command", [("up", "--port", 0), ("serve", "--port", 0), ("work",)], ids=["up", "serve", "work"]
)
def test_an_index_that_cannot_be_used_is_reported_at_the_start(
    running: Start, data: Path, command: tuple[object, ...]
) -> None:
    ingest = {"WAYBILL_APPLICATIONS": "ingest"}
    ended = running(*command, env={**ingest, "WAYBILL_INDEX": "foo://x"}).end()
    assert (ended.code, ended.out) == (5, "")
    assert ended.err.startswith("foo is no database for an index; its URL is sqlite:///path")
    (data / "waybill-index.db").write_text(
        "these are my notes, not a database; they are long enough to be looked at by whoever opens them"
    )
    ended = running(*command, env=ingest).end()
    assert (ended.code, ended.out) == (5, "")
    assert "waybill-index.db is damaged, or no SQLite database" in ended.err
    assert (data / "waybill-index.db").read_text().startswith("these are my notes")


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_sqlite_file_that_workers_of_another_host_use_is_not_served(
    running: Start, waybill: Waybill, data: Path, command: str
) -> None:
    with closing(open_store(sqlite_url(data / "waybill.db"))) as store:
        session = store.open_session(host="elsewhere", ttl=60, about={})
        ended = running(command, "--port", 0).end()
        assert (ended.code, ended.out) == (5, "")
        assert ended.err.startswith("A process of the host elsewhere uses ")
        assert "Two machines cannot share a SQLite file" in ended.err
        assert [each.name for each in store.list_sessions()] == [session]
        store.close_session(session)
    server = running(command, "--port", 0)
    assert server.line().startswith("http://")
    assert server.end(signal.SIGTERM).code == 0


@pytest.mark.parametrize("command", [("serve", "--port", 0), ("work",)], ids=["serve", "work"])
def test_a_sqlite_file_that_another_host_serves_is_left_to_it(running: Start, command: tuple[object, ...]) -> None:
    server = running("serve", "--port", 0, env={"WAYBILL_WORK_HOST": "elsewhere"})
    assert server.line().startswith("http://")
    ended = running(*command).end()
    assert (ended.code, ended.out) == (5, "")
    assert ended.err.startswith("A process of the host elsewhere uses ")
    assert server.end(signal.SIGTERM).code == 0
    second = running("serve", "--port", 0)  # it has taken its leave
    assert second.line().startswith("http://")
    assert second.end(signal.SIGTERM).code == 0


def test_serve_serves_and_does_no_work(running: Start, waybill: Waybill) -> None:
    submit_shipment(waybill)
    serve = running("serve", "--port", 0)
    url = address_of(serve.line())
    assert get(f"{url}health")[0] == 200
    assert waybill("sessions", "--json").json == {"sessions": []}
    assert serve.end(signal.SIGTERM).code == 0
    assert states(waybill, "shipment") == {"Sorting": 1}


def test_whoever_works_on_a_data_folder_knows_where_its_server_listens(running: Start, data: Path) -> None:
    """The URLs that users are given lead there, whichever process makes them and whatever port was given to the
    server.
    """
    for command, host in (("serve", "127.0.0.1"), ("up", "::1")):
        server = running(command, "--host", host, "--port", 0)
        url = address_of(server.line())
        assert re.fullmatch(r"http://(127\.0\.0\.1|\[::1\]):[1-9]\d*/", url)
        environment = Environment.from_config(load(env={"WAYBILL_DATA": str(data)}), [])
        assert f"{environment.address}/" == url
        assert get(f"{environment.address}/health")[0] == 200
        assert server.end(signal.SIGTERM).code == 0
    assert f"{environment.address}/" == url, "where it listened last"
    assert [each.name for each in data.glob("address*")] == ["address"]
    before = Environment.from_config(
        load(env={"WAYBILL_DATA": str(data / "other"), "WAYBILL_HTTP_HOST": "::1", "WAYBILL_HTTP_PORT": "9000"}), []
    )
    assert before.address == "http://[::1]:9000", "where it is to listen"


def test_a_server_may_have_many_files_open(running: Start, data: Path) -> None:
    """Many systems allow 1,024 unless one asks for more, and a thousand may listen to live changes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        server = running("serve", "--port", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert get(f"{address_of(server.line())}health")[0] == 200
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    (allowed,) = re.findall(r"Max open files +(\d+)", limits)
    assert int(allowed) == min(hard, 65_536)
    assert server.end(signal.SIGTERM).code == 0


def test_of_two_servers_the_one_that_stays_is_told_of(running: Start, data: Path) -> None:
    for stays in (0, 1):
        servers = []
        for _ in range(2):
            server = running("serve", "--port", 0)
            servers.append((server, address_of(server.line())))
        (stayed, url), (ended, _) = servers[stays], servers[1 - stays]
        assert ended.end(signal.SIGTERM).code == 0
        assert f"{Environment.from_config(load(env={'WAYBILL_DATA': str(data)}), []).address}/" == url
        assert stayed.end(signal.SIGTERM).code == 0


def test_a_server_whose_address_cannot_be_written_serves_all_the_same(running: Start, data: Path) -> None:
    """As on a full disk, on which somebody has to look at what is there."""
    (data / "address").mkdir(parents=True)
    server = running("serve", "--port", 0)
    url = address_of(server.line())
    assert get(f"{url}health")[0] == 200
    ended = server.end(signal.SIGTERM)
    assert ended.code == 0
    assert (
        f"address cannot be written (Is a directory): URLs in mail and responses may not lead to {url[:-1]}"
        in ended.err
    )
    assert [each.name for each in data.glob("address*")] == ["address"]


def test_open_loopback_lets_this_machine_in_without_a_token(running: Start) -> None:
    up = running("up", "--port", 0, "--open-loopback")
    assert get(f"{address_of(up.line())}api/v1/machines")[0] == 200
    assert up.end(signal.SIGTERM).code == 0


def test_work_serves_only_its_queues(running: Start, waybill: Waybill) -> None:
    submit_shipment(waybill, 2)
    work = running("work", "--queue", "shipment")
    wait_until(lambda: states(waybill, "shipment") == {"Travelling": 1}, "the shipment to be sorted", seconds=120)
    sessions = waybill("sessions", "--json").json["sessions"]  # one for each pool of its threads
    assert sorted(session["about"]["queues"] for session in sessions) == [["shipment.Sorting"], ["shipment.Travelling"]]
    assert work.end(signal.SIGTERM).code == 0
    assert states(waybill, "parcel") == {"Packing": 2}


def test_a_killed_worker_leaves_what_another_goes_on_with(running: Start, waybill: Waybill) -> None:
    shipments = [submit_shipment(waybill, 4) for _ in range(3)]
    # What it holds comes free a second after its death; the other is not to lose what it holds whenever it is slow for
    # a second.
    first = running("work", "--queue", "shipment", "--queue", "parcel", env={"WAYBILL_WORK_TTL": "1"})
    wait_until(lambda: states(waybill, "parcel").get("Sending", 0) > 0, "parcels on their way", seconds=120)
    assert first.end(signal.SIGKILL).code == -signal.SIGKILL
    second = running("work", "--queue", "shipment", "--queue", "parcel")
    watched = running("watch", "shipment", "--until-settled", "--json").end()
    assert watched.code == 0
    assert second.end(signal.SIGTERM).code == 0
    assert states(waybill, "shipment") == {"Delivered": 3}
    for shipment in shipments:
        lines = waybill("history", "shipment", shipment, "--json").json["entries"]
        assert [line["after"] for line in lines] == ["Sorting", "Travelling", "Delivered"]
    for parcel in waybill("ls", "parcel", "--json").json["records"]:
        transitions = [
            (line["before"], line["after"])
            for line in waybill("history", "parcel", parcel["id"], "--json").json["entries"]
        ]
        assert [transition for transition in transitions if transition[0] != transition[1]] == [
            (None, "Packing"),
            ("Packing", "Sending"),
            ("Sending", "Delivered"),
        ]


def test_what_is_read_by_a_pipe_that_closes_ends_quietly(waybill: Waybill) -> None:
    for _ in range(3):
        submit_shipment(waybill)
    reader, writer = os.pipe()
    os.close(reader)
    for more in ([], ["--json"]):
        command = [sys.executable, "-m", "waybill", "ls", "shipment", *more]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writer)


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application with a step that does not listen, and a state without a step."""
    (tmp_path / "stubborn.py").write_text(
        """
import time
from pathlib import Path
from waybill.application import Application
from waybill.machine import Machine, end, work
from waybill.step import Done

def sleep(run, ctx):
    Path("asleep").touch()
    time.sleep(600)
    return Done()

RUN = Machine(
    name="run", plural="runs", prefix="run", description="Something that does not listen.",
    states=(
        work("Sleeping", to="Lost", description="Sleeps.", on_fail=None),
        work("Lost", to="Ended", description="Has no step.", on_fail=None),
        end("Ended", description="Over."),
    ),
    steps={"Sleeping": sleep},
)

APP = Application("stubborn", "Does not listen.", (RUN,))
"""
    )
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "stubborn:APP")
    monkeypatch.setenv("WAYBILL_LOG_LEVEL", "info")


@pytest.mark.usefixtures("stubborn")
def test_a_second_signal_does_not_wait_for_a_step_that_does_not_listen(
    running: Start, waybill: Waybill, tmp_path: Path
) -> None:
    run = waybill("submit", "run").out.strip()
    work = running("work", "--queue", "run.Sleeping", env={"WAYBILL_LOG_FORMAT": "json"})
    wait_until((tmp_path / "asleep").exists, "the step to sleep", seconds=120)
    work.process.send_signal(signal.SIGTERM)
    assert work.process.stderr is not None
    said: list[Any] = []
    for line in iter(work.process.stderr.readline, ""):
        if line.startswith("{"):
            said.append(json.loads(line))
            if said[-1]["message"] == "stopping":
                break
    assert said[-1]["level"] == "info"
    assert work.end(signal.SIGTERM).code == 128 + signal.SIGTERM
    left = waybill("show", "run", run, "--json").json
    assert left["state"] == "Sleeping"
    assert left["session"], "not failed and not freed: the claim is left to expire"


@pytest.mark.usefixtures("stubborn")
def test_a_queue_without_a_step_is_a_sentence(running: Start, waybill: Waybill) -> None:
    ended = running("work", "--queue", "run.Lost").end()
    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith("run.Lost has no step, so nothing would ever work there. Write one,")


def test_an_orderly_stop_closes_what_applications_have_opened(
    running: Start, waybill: Waybill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opening.py").write_text(
        """
from waybill.application import Application
from waybill.machine import Machine, end, work
from waybill.step import Done

RUN = Machine(
    name="run", plural="runs", prefix="run", description="Something that opens the index.",
    states=(work("Opening", to="Ended", description="Opens it.", on_fail=None), end("Ended", description="Over.")),
    steps=__name__,
)

class IndexResources:
    def __init__(self, environment):
        self.index = environment.open_index()

    def close(self):
        self.index.close()

def opening(run, ctx):
    assert ctx.resources.index
    return Done()

APP = Application("opening", "Opens the index.", (RUN,), resources=IndexResources)
"""
    )
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "opening:APP")
    waybill("submit", "run")
    work = running("work", "--queue", "run")
    wait_until(lambda: states(waybill, "run") == {"Ended": 1}, "the step to open the index", seconds=120)
    assert work.end(signal.SIGTERM).code == 0
    assert [path.name for path in (tmp_path / "data").glob("waybill-index.db*")] == ["waybill-index.db"], (
        "nothing is left in a WAL file"
    )


def write_certificate(path: Path) -> None:
    """A certificate of this machine, with its key, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, form, serialization.NoEncryption()))


def test_with_a_certificate_it_speaks_tls_and_its_cookies_are_secure(
    running: Start, waybill: Waybill, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "server.pem"
    write_certificate(certificate)
    monkeypatch.setenv("WAYBILL_HTTP_TLS_CERTIFICATE", str(certificate))
    line = running("up", "--port", 0).line().strip()
    assert line.startswith("https://127.0.0.1:")
    link = urlsplit(line)
    tls = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection(link.hostname or "", link.port, context=tls, timeout=30)
    connection.request("GET", link.path)
    page = connection.getresponse()
    assert (page.status, page.getheader("Referrer-Policy")) == (200, "no-referrer")
    page.read()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", link.path, "csrf=", form)
    answer = connection.getresponse()
    assert answer.status == 303
    assert "; secure" in (answer.getheader("Set-Cookie") or "").lower()
    connection.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(line.replace("https", "http"), timeout=30)
    monkeypatch.setenv("WAYBILL_HTTP_TLS_KEY", str(data / "nothing.pem"))
    refused = waybill("serve", "--port", 0)
    assert (refused.code, "cannot be used" in refused.err) == (2, True)
