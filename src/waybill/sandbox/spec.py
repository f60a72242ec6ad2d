"""What is asked of a sandbox, and what a command in it returns.

A `SandboxSpec` says for whom a sandbox is, which folders it shows, and which limits hold for its whole life. A `Command`
is one program with its standard streams and the limits of this run. `CommandResult` says how it ended and what it used.
Everything that can be refused without starting a process is refused here, with a sentence.
"""

from __future__ import annotations

import os
import posixpath
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from waybill.errors import WaybillError

KIB, MIB, GIB = 1024, 1024**2, 1024**3
MIN_MEMORY = 32 * MIB  # the runner needs a third of it
MAX_COMMAND_BYTES = 160 * KIB  # arguments and environment; one message on a Unix socket
HANDLER_PORT = 80

Cause = Literal["", "stopped", "wall", "cpu", "memory", "output", "disk", "not started"]
CAUSES: tuple[Cause, ...] = (
    "",
    "stopped",
    "wall",
    "cpu",
    "memory",
    "output",
    "disk",
    "not started",
)  # by number in a reply

# Folders of a sandbox that a bind may not replace, nor lie in.
RESERVED_FOLDERS = ("/proc", "/dev", "/tmp", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/run/waybill")
# Folders of the host that nobody may write to from a sandbox.
NEVER_WRITABLE = (
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var",
)


class SandboxRefused(WaybillError):
    """What was asked for cannot be had here; nothing was started."""

    code = "sandbox-refused"


class SandboxLost(WaybillError):
    """The sandbox ended while a command ran, through no fault of the command; the command can be run again."""

    code = "sandbox-lost"


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of the host, shown at `inside`. Without root, a writable one belongs to the worker's own user."""

    source: Path
    inside: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of everything that runs in a sandbox, for its whole life, in bytes and numbers.

    `disk` bounds /tmp, which is as large as that; where writable folders are bound too, what they hold counts as well.
    `output` is the highest value that a command may ask for.
    """

    memory: int = 256 * MIB
    processes: int = 64
    disk: int = 64 * MIB
    output: int = 64 * MIB
    open_files: int = 1024
    core: int = 0

    @property
    def file_size(self) -> int:
        return max(self.disk, self.output)


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Limits of one command: seconds of wall and CPU time, and bytes of standard output and standard error, each."""

    wall: float = 3600.0
    cpu: float | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """`handler` is called, in a thread of its own, with each connection that a command makes to localhost:80."""

    binds: Sequence[Bind] = ()
    network: bool = False
    limits: SandboxLimits = SandboxLimits()
    env: Mapping[str, str] = field(default_factory=dict)
    handler: Callable[[socket.socket], None] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments, or a line for the shell. The streams are files of the host; stdin may be a pipe.

    Standard output and error are created or emptied, and grow while the command runs. An open file descriptor is used
    as it is, and stays open.
    """

    argv: Sequence[str | bytes] = ()
    shell: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    stdin: Path | int | None = None
    stdout: Path | int | None = None
    stderr: Path | int | None = None
    limits: CommandLimits = CommandLimits()

    @property
    def arguments(self) -> list[bytes]:
        words = ["/bin/bash", "--norc", "-c", self.shell] if self.shell is not None else self.argv
        return [os.fsencode(word) for word in words]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. `cpu` counts all processes that were waited for; `peak_memory` is that of the largest one,
    and never less than the runner's own.
    """

    exit_code: int | None
    signal: int | None
    cause: Cause
    wall: float
    cpu: float
    peak_memory: int
    stdout_bytes: int
    stderr_bytes: int
    core_dumped: bool = False
    message: str = ""

    @property
    def is_success(self) -> bool:
        return self.exit_code == 0 and not self.cause

    def describe(self) -> str:
        """One sentence for the person who asked for the command."""
        if self.cause == "not started":
            return f"The command could not be started: {self.message}."
        if self.cause == "stopped":
            return "The command was stopped."
        if self.cause:
            limit = {"wall": "time", "cpu": "CPU time"}.get(self.cause, self.cause)
            return f"The command was killed: it used more {limit} than it may."
        if self.signal is not None:
            return f"The command was terminated by {signal.Signals(self.signal).name}."
        return f"The command exited with code {self.exit_code}."


def check_spec(spec: SandboxSpec) -> None:
    """Refuse what no machine could provide."""
    limits = spec.limits
    for name in ("memory", "processes", "disk", "output", "open_files"):
        if getattr(limits, name) <= 0:
            raise SandboxRefused(f"The limit {name} is {getattr(limits, name)}; it must be more than 0.")
    if limits.memory < MIN_MEMORY:
        raise SandboxRefused(f"The limit memory is {limits.memory} bytes; a sandbox needs at least {MIN_MEMORY}.")
    if limits.core < 0:
        raise SandboxRefused(f"The limit core is {limits.core}; it must be 0 or more.")
    if spec.network and spec.handler is not None:
        raise SandboxRefused("A sandbox with the host's network cannot have a handler at localhost:80 of its own.")
    _check_env(spec.env)
    for bind in spec.binds:
        _check_bind(bind)


def _check_bind(bind: Bind) -> None:
    inside = bind.inside
    if not inside.startswith("/") or posixpath.normpath(inside) != inside or inside == "/" or "\0" in inside:
        raise SandboxRefused(f"{inside!r} is no place for a folder in a sandbox: it must be an absolute, plain path.")
    for reserved in RESERVED_FOLDERS:
        if is_within(inside, reserved):
            raise SandboxRefused(f"{inside} cannot be bound: {reserved} belongs to the sandbox.")
    if not bind.source.exists():
        raise SandboxRefused(f"{bind.source}, which is to be bound at {inside}, does not exist.")
    if bind.writable and not bind.source.is_dir():
        raise SandboxRefused(f"{bind.source} is no folder; only folders can be bound writable.")
    if bind.writable and os.path.realpath(bind.source) in NEVER_WRITABLE:
        raise SandboxRefused(f"{bind.source} belongs to the system and is never bound writable.")


def check_command(command: Command, spec: SandboxSpec) -> None:
    if (command.shell is None) == (not command.argv):
        raise SandboxRefused("A command has either argv, which is not empty, or shell.")
    words = command.arguments
    if any(b"\0" in word for word in words) or not words[0]:
        raise SandboxRefused("The program of a command has a name, and no argument has a zero byte in it.")
    _check_env(command.env)
    env = {**spec.env, **command.env}
    size = sum(len(word) + 9 for word in words) + sum(len(name) + len(env[name].encode()) + 18 for name in env)
    if size > MAX_COMMAND_BYTES:
        raise SandboxRefused(f"Arguments and environment have {size} bytes together; {MAX_COMMAND_BYTES} are allowed.")
    if not command.cwd.startswith("/") or "\0" in command.cwd:
        raise SandboxRefused(f"The current folder of a command is {command.cwd!r}; it must be an absolute path.")
    limits = command.limits
    if limits.wall <= 0 or (limits.cpu is not None and limits.cpu <= 0):
        raise SandboxRefused("The limits wall and cpu of a command must be more than 0 seconds.")
    if limits.output is not None and not 0 < limits.output <= spec.limits.output:
        raise SandboxRefused(
            f"The limit output of the command is {limits.output}; its sandbox allows from 1 to {spec.limits.output} bytes."
        )


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise SandboxRefused(f"{name!r} is no variable of the environment: no name, or '=' or a zero byte in it.")


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
