"""ZooKeeper for tests: Debian's jar and Java; one server, or an ensemble of three of which any may be killed.

    with ZooKeeperServer() as server:            with ZooKeeperEnsemble() as ensemble:
        url = server.create_chroot()                 ensemble.kill(ensemble.leader())

A tick is 200 ms instead of two seconds, so that a session may be as short as 400 ms and an election takes about a
second. `fast=True`: the log is not synced to the disk, which only a machine that loses its power would notice.
`settings` are lines of zoo.cfg; a name that ZooKeeper does not know there becomes the system property `zookeeper.NAME`
(`forceSync=no`, say). `properties` are system properties by their full name (`jute.maxbuffer`, which is none of
ZooKeeper's own).
"""

import itertools
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient

from tests.servers.ports import free_port
from tests.servers.process import NotInstalled, Process, program, wait_until
from tests.servers.server import Server

_JARS = [Path("/usr/share/java/zookeeper.jar"), Path("/usr/share/java/slf4j-simple.jar")]
_PACKAGES = "zookeeper libslf4j-java default-jre-headless"
_FAST = {"forceSync": "no"}
_numbers = itertools.count(1)


class Member:
    """One ZooKeeper server process, alone or of an ensemble. It can be killed and started again: its folder and
    ports stay.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._settings = {
            "tickTime": "200",
            "initLimit": "50",
            "syncLimit": "25",
            "dataDir": str(folder),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "minSessionTimeout": "400",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            **(settings or {}),
        }
        defined = {
            "zookeeper.preAllocSize": "1024",
            "org.slf4j.simpleLogger.defaultLogLevel": "warn",
            **(properties or {}),
        }
        classes = ":".join(str(jar) for jar in _JARS)
        self.process = Process(
            name,
            [
                *(program("java", packages=_PACKAGES), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
                *(f"-D{key}={value}" for key, value in defined.items()),
                *("-cp", classes, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._configuration)),
            ],
            folder=folder,
            ready=lambda: self.mode() is not None,
            # Nothing is lost by it (what was acknowledged is in the log), and an orderly stop of the JVM takes its
            # time.
            stop_signal=signal.SIGKILL,
        )

    @property
    def _configuration(self) -> Path:
        return self._folder / "zoo.cfg"

    def configure(self, more: Mapping[str, str]) -> None:
        lines = {**self._settings, **more}
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def mode(self) -> str | None:
        """`standalone`, `leader` or `follower`; None while it serves nobody."""
        for line in four_letters(self.port, "srvr").splitlines():
            if line.startswith("Mode:"):
                return line.removeprefix("Mode:").strip()
        return None


class ZooKeeperServer(Server):
    def __init__(
        self,
        *,
        fast: bool = False,
        settings: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        _require_installed()
        super().__init__()
        chosen = {**(_FAST if fast else {}), **(settings or {})}
        self._member = Member("zookeeper", self._folder, settings=chosen, properties=properties)
        self._member.configure({"standaloneEnabled": "true"})
        self.hosts = self._member.host

    def start(self) -> None:
        self._member.process.start()

    def stop(self) -> None:
        self._member.process.stop()

    def kill(self) -> None:
        self._member.process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def url(self, chroot: str = "") -> str:
        return f"zookeeper://{self.hosts}{chroot}"

    def create_chroot(self) -> str:
        """A new, empty node for one test to live under; the URL with it."""
        return self.url(_create_chroot(self.hosts))


class ZooKeeperEnsemble(Server):
    """Three servers, numbered 1 to 3, of which two are a quorum."""

    def __init__(
        self,
        size: int = 3,
        *,
        fast: bool = False,
        settings: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        _require_installed()
        super().__init__()
        self._members: dict[int, Member] = {}
        for number in range(1, size + 1):
            folder = self._folder / str(number)
            folder.mkdir()
            (folder / "myid").write_text(str(number))
            chosen = {**(_FAST if fast else {}), **(settings or {})}
            self._members[number] = Member(f"zookeeper-{number}", folder, settings=chosen, properties=properties)
        peers = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in self._members}
        for member in self._members.values():
            member.configure({"standaloneEnabled": "false", **peers})
        self.hosts = ",".join(member.host for member in self._members.values())

    @property
    def numbers(self) -> list[int]:
        return list(self._members)

    def host(self, number: int) -> str:
        """The address of one member, for a client that must talk to that one."""
        return self._members[number].host

    def start(self, number: int | None = None, *, wait: bool = True) -> None:
        """Start one member, or all; wait until each serves (which takes a quorum)."""
        chosen = self._members.values() if number is None else [self._members[number]]
        for member in chosen:
            member.process.start(wait=False)
        if wait:
            for member in chosen:
                member.process.wait_ready()

    def kill(self, number: int) -> None:
        """SIGKILL one member."""
        self._members[number].process.kill()

    def pause(self, number: int) -> None:
        """SIGSTOP one member: its connections stay open and nothing answers."""
        self._members[number].process.pause()

    def resume(self, number: int) -> None:
        self._members[number].process.resume()

    def running(self, number: int) -> bool:
        return self._members[number].process.running

    def mode(self, number: int) -> str | None:
        """`leader` or `follower`; None while that member serves nobody."""
        member = self._members[number]
        return member.mode() if member.process.running else None

    def leader(self, *, seconds: float = 60.0) -> int:
        """The number of the member that leads, waited for while there is an election."""
        found: list[int] = []

        def elected() -> bool:
            found[:] = [number for number in self._members if self.mode(number) == "leader"]
            return len(found) == 1

        wait_until(elected, "the ensemble to have a leader", seconds=seconds)
        return found[0]

    def heal(self) -> None:
        """Every member runs and serves again, whatever a test did to them."""
        for number, member in self._members.items():
            if member.process.running:
                self.resume(number)
            else:
                member.process.start(wait=False)
        for member in self._members.values():
            member.process.wait_ready()

    def stop(self) -> None:
        for member in self._members.values():
            member.process.stop()

    def url(self, chroot: str = "") -> str:
        return f"zookeeper://{self.hosts}{chroot}"

    def create_chroot(self) -> str:
        return self.url(_create_chroot(self.hosts))


def four_letters(port: int, command: str, *, seconds: float = 1.0) -> str:
    """The answer to one of ZooKeeper's four-letter commands; empty when there is none."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
            connection.sendall(command.encode())
            while part := connection.recv(65536):
                answer += part
    except OSError:
        return ""
    return answer.decode(errors="replace")


def _require_installed() -> None:
    if not all(jar.exists() for jar in _JARS):
        raise NotInstalled("ZooKeeper", _PACKAGES)
    program("java", packages=_PACKAGES)


def _create_chroot(hosts: str) -> str:
    chroot = f"/test-{next(_numbers)}"
    client = KazooClient(hosts, timeout=50.0)
    client.start(timeout=60)
    try:
        client.create(chroot)
    finally:
        client.stop()
        client.close()
    return chroot
