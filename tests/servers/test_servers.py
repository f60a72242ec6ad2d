"""Each server for tests does what its fixture promises: it keeps what was written, comes back, and never outlives
its run.
"""

import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import psycopg
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, OperationTimeoutError, SessionExpiredError
from kazoo.retry import KazooRetry
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError

from tests.budget import Budget
from tests.servers import postgres, zookeeper
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.process import NotInstalled, Process, ServerFailed, program, wait_until
from tests.servers.s3 import Credentials, RcloneS3Server, SeaweedServer
from tests.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

ROOT = Path(__file__).resolve().parents[2]


def _connected(url: str) -> KazooClient:
    address = urlsplit(url)
    client = KazooClient(
        address.netloc + address.path,
        timeout=30.0,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2),
    )
    client.start(timeout=60)
    return client


# --- PostgreSQL ---


def test_postgres_gives_each_test_an_empty_database(postgres_server: PostgresServer) -> None:
    one, other = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(one) as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS answer")
        assert connection.execute("SELECT answer FROM t").fetchone() == (42,)
    with psycopg.connect(other) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)
    with psycopg.connect(one) as still_open:
        postgres_server.drop_database(one)
        with pytest.raises(psycopg.OperationalError):
            still_open.execute("SELECT 1")
    postgres_server.drop_database(other)


def test_postgres_is_durable_unless_asked_to_be_fast(postgres_url: str, fast_postgres_url: str) -> None:
    def settings(url: str) -> list[object]:
        with psycopg.connect(url) as connection:
            names = ("fsync", "synchronous_commit")
            return [connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in names]

    assert settings(postgres_url) == [("on",), ("on",)]
    assert settings(fast_postgres_url) == [("off",), ("off",)]


@pytest.mark.parametrize("how", ["orderly", "immediate", "killed"])
def test_postgres_keeps_what_was_committed(how: str) -> None:
    with PostgresServer() as server:
        url = server.create_database()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE t AS SELECT 42 AS answer")
        if how == "killed":
            server.kill()
            server.start()
        else:
            server.restart(immediate=how == "immediate")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT answer FROM t").fetchone() == (42,)


# --- ZooKeeper ---


def test_zookeeper_keeps_what_was_written() -> None:
    with ZooKeeperServer() as server:
        client = _connected(server.create_chroot())
        try:
            client.create("/node", b"value")
            server.kill()
            server.start()
            assert client.retry(client.get, "/node")[0] == b"value"
        finally:
            client.stop()
            client.close()


def test_zookeeper_gives_each_test_an_empty_chroot(zookeeper_server: ZooKeeperServer, zookeeper_url: str) -> None:
    assert zookeeper_url != zookeeper_server.create_chroot()
    client = _connected(zookeeper_url)
    assert client.get_children("/") == []
    client.stop()
    client.close()


def test_zookeeper_takes_settings_and_properties() -> None:
    with ZooKeeperServer(settings={"maxSessionTimeout": "54321"}, properties={"jute.maxbuffer": "4000000"}) as server:
        answer = zookeeper.four_letters(int(server.hosts.rpartition(":")[2]), "conf", seconds=60)
        assert "maxSessionTimeout=54321" in answer
        client = _connected(server.create_chroot())
        client.create("/large", b"x" * 3_000_000)  # 1 MB is the limit unless the property is set
        assert len(client.get("/large")[0]) == 3_000_000
        client.stop()
        client.close()


def test_zookeeper_ensemble_survives_its_leader(zookeeper_ensemble: ZooKeeperEnsemble) -> None:
    client = _connected(zookeeper_ensemble.create_chroot())
    try:
        client.create("/before", b"1")
        leader = zookeeper_ensemble.leader()
        zookeeper_ensemble.kill(leader)

        def written() -> bool:
            try:
                client.ensure_path("/after")
            except (ConnectionLoss, OperationTimeoutError, SessionExpiredError):
                return False
            return True

        wait_until(written, "a write after the leader was killed", seconds=60)
        assert zookeeper_ensemble.leader() != leader
        zookeeper_ensemble.start(leader)
        client.sync("/")
        assert sorted(client.get_children("/")) == ["after", "before"]
    finally:
        client.stop()
        client.close()


def test_zookeeper_ensemble_replaces_a_leader_that_hangs(zookeeper_ensemble: ZooKeeperEnsemble) -> None:
    leader = zookeeper_ensemble.leader()
    zookeeper_ensemble.pause(leader)
    others = [number for number in zookeeper_ensemble.numbers if number != leader]
    wait_until(
        lambda: any(zookeeper_ensemble.mode(number) == "leader" for number in others), "another leader", seconds=60
    )
    zookeeper_ensemble.resume(leader)
    wait_until(lambda: zookeeper_ensemble.mode(leader) == "follower", "the old leader to follow", seconds=60)


# --- S3 ---


def test_seaweed_creates_only_once_and_survives_a_kill() -> None:
    with SeaweedServer() as server:
        bucket = server.bucket(server.create_bucket())
        obstore.put(bucket, "a/b", b"first", mode="create")
        with pytest.raises(AlreadyExistsError):
            obstore.put(bucket, "a/b", b"second", mode="create")
        server.kill()
        server.start()
        assert bytes(obstore.get(bucket, "a/b").bytes()) == b"first"


def test_seaweed_gives_each_test_an_empty_bucket(s3_server: SeaweedServer, s3_bucket: str) -> None:
    assert obstore.list(s3_server.bucket(s3_bucket)).collect() == []
    assert s3_bucket != s3_server.create_bucket()


def test_seaweed_refuses_wrong_credentials(s3_server: SeaweedServer, s3_bucket: str) -> None:
    guessed = Credentials(s3_server.credentials.access_key, "guessed")
    stranger = s3_server.bucket(s3_bucket, guessed)
    with pytest.raises(PermissionDeniedError):
        obstore.put(stranger, "a", b"")


def test_rclone_overwrites_what_should_only_be_created(rclone_s3_server: RcloneS3Server) -> None:
    bucket = rclone_s3_server.bucket(rclone_s3_server.create_bucket())
    obstore.put(bucket, "a", b"first", mode="create")
    obstore.put(bucket, "a", b"second", mode="create")
    assert bytes(obstore.get(bucket, "a").bytes()) == b"second"


# --- what they stand on ---


def test_free_ports_differ_and_leave_room_for_grpc() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    for port in ports:
        for number in (port, port + 10_000):
            assert number < 45_000
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
                listener.bind(("127.0.0.1", number))


def test_a_server_that_ends_early_shows_its_log(tmp_path: Path) -> None:
    process = Process("broken", ["sh", "-c", "echo no such luck; exit 3"], folder=tmp_path, ready=lambda: False)
    with pytest.raises(ServerFailed, match=r"code 3 before it was ready[\s\S]*no such luck"):
        process.start()


def test_a_server_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    def never() -> bool:
        wait_until(lambda: "thinking" in process.log.read_text(), "its first word")
        return False

    process = Process("slow", ["sh", "-c", "echo thinking; exec sleep 600"], folder=tmp_path, ready=never)
    with pytest.raises(ServerFailed, match=r"Waited 0\.5 s for slow to be ready[\s\S]*thinking"):
        process.start(seconds=0.5)
    assert not process.running


def test_servers_die_with_the_run_that_started_them(tmp_path: Path) -> None:
    """A run is killed with SIGKILL, right after one of its threads has started a server and ended."""
    script = """
        import sys, threading, time
        from pathlib import Path
        from tests.servers.postgres import PostgresServer
        from tests.servers.process import Process

        folder = Path(sys.argv[1])
        process = Process("sleeper", ["sleep", "600"], folder=folder, ready=lambda: True)
        thread = threading.Thread(target=process.start)
        thread.start()
        thread.join()
        server = PostgresServer(fast=True)
        server.start()
        assert process.running, "the end of the thread that asked for it must not end the server"
        print(process.pid, server._process.pid, flush=True)
        time.sleep(600)
    """
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert run.stdout is not None
    pids = [int(pid) for pid in run.stdout.readline().split()]
    assert len(pids) == 2
    assert all(postgres.alive(pid) for pid in pids)
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    wait_until(lambda: not any(postgres.alive(pid) for pid in pids), "the servers of the killed run to end", seconds=60)


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(NotInstalled, match=r"real one\. Run `tools/system-packages` as root, or install: some-package"):
        program("no-such-program", packages="some-package")


def test_budget_picks_by_name() -> None:
    assert Budget("small").pick(small=1, long=2) == 1
    assert Budget("long").pick(small=1, long=2) == 2
