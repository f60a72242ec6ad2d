"""A sandbox: opened once for one user and one purpose, used for many commands one after the other, then closed.

    with Sandbox.open(support, SandboxSpec(binds=[Bind(inputs, "/in")])) as sandbox:
        result = sandbox.run(Command(shell="wc < /in/a", stdout=Path("out")))

Its life on the host, in order: a uid of its own (with root), a folder, a control group (where writable), then the runner
in its namespaces. `close` ends them in the reverse order. After kill -9 of this process the kernel ends the sandbox and
frees the uid; an empty folder and an empty group stay until `sweep_remains` of the next start.

Commands of one sandbox run one at a time: a second thread waits. A slot of work has a sandbox of its own. The runner
measures and ends a command; this side only waits, and kills the whole sandbox when the runner does not answer. A sandbox
that was lost or could not be cleaned is started anew for the next command, and nobody notices.
"""

from __future__ import annotations

import itertools
import marshal
import os
import resource
import shutil
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from waybill.sandbox.cgroups import PREFIX, SandboxCgroup, is_left_behind, process_name, sweep_cgroups
from waybill.sandbox.connections import ConnectionServer
from waybill.sandbox.launch import RunnerProcess, SandboxPlace, choose_tmp_type
from waybill.sandbox.runner import NOT_CLEANED, REPLY
from waybill.sandbox.spec import (
    CAUSES,
    HANDLER_PORT,
    Cause,
    Command,
    CommandResult,
    SandboxLost,
    SandboxRefused,
    SandboxSpec,
    check_command,
    check_spec,
    is_within,
)
from waybill.sandbox.support import MAX_SLOTS, SandboxSupport

STOP_INTERVAL = 0.05  # seconds between two looks at `stop`, and at the control group
GRACE = 5.0  # seconds after which a runner that should have answered is killed with its sandbox
DEFAULT_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
UNSANDBOXED_ENV = ("PATH", "LANG", "LC_ALL")
_numbers = itertools.count(1)


class Sandbox:
    """Made by `open`. Safe to use from several threads."""

    def __init__(
        self, support: SandboxSupport, spec: SandboxSpec, place: SandboxPlace, group: SandboxCgroup | None
    ) -> None:
        self._support = support
        self._spec = spec
        self._place = place
        self._group = group
        self._lock = threading.Lock()
        self._process: RunnerProcess | None = None
        self._server: ConnectionServer | None = None
        self._undo = ExitStack()
        self.start_count = 0  # how often the sandbox was started

    @classmethod
    def open(cls, support: SandboxSupport, spec: SandboxSpec) -> Sandbox:
        """Raises SandboxRefused, with nothing started, when the machine or the limits do not allow it."""
        if not support.can_run:
            raise SandboxRefused(support.problem)
        check_spec(spec)
        _check_machine(support, spec)
        name = f"{PREFIX}{process_name(os.getpid())}-{next(_numbers)}"
        with ExitStack() as undo:
            uid = undo.enter_context(_reserve_uid(support.settings.first_uid)) if support.is_root else None
            folder = support.settings.folder / name
            folder.mkdir(parents=True, mode=0o711)
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            group = None
            if support.is_sandboxed and support.cgroups.groups:
                limits = spec.limits
                group = SandboxCgroup(support.cgroups, name, memory=limits.memory, processes=limits.processes + 1)
                undo.callback(group.remove)
            if uid is not None:
                for bind in spec.binds:
                    if bind.writable:
                        os.chown(bind.source, uid, uid)
            entries = group.entry_files if group else []
            is_grouped = group is not None and "memory" in group.groups
            sandbox = cls(support, spec, SandboxPlace(uid, folder, entries, is_grouped), group)
            undo.callback(sandbox._end_process)
            sandbox._start_process()
            sandbox._undo = undo.pop_all()
            return sandbox

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox and everything in it. May be called twice."""
        with self._lock:
            self._undo.close()

    @property
    def uid(self) -> int:
        """The user that commands have, on the host."""
        return os.geteuid() if self._place.uid is None else self._place.uid

    @property
    def handler_url(self) -> str | None:
        """Where commands reach the handler; without a sandbox, at a port of the host's loopback."""
        if self._process is None or self._process.listener is None:
            return None
        port = HANDLER_PORT if self._support.is_sandboxed else self._process.listener.getsockname()[1]
        return f"http://localhost:{port}/"

    def run(self, command: Command, stop: threading.Event | None = None) -> CommandResult:
        """Run it to its end. When `stop` is set, all its processes are dead within 0.2 s.

        Raises SandboxRefused when the command cannot be run here, and SandboxLost when the sandbox ended under it.
        """
        check_command(command, self._spec)
        with self._lock, _CommandStreams(command, self._spec, self._support) as streams:
            request = self._build_request(command, streams.stdin_path)
            try:
                result = None
                while result is None:
                    result = self._wait(self._send(request, streams.descriptors), command, stop)
            except BaseException:
                self._end_process()
                raise
            if self._server is not None:
                self._server.end_command()
            return result

    def _build_request(self, command: Command, stdin_path: bytes | None) -> bytes:
        env = {**self._base_env(), **self._spec.env, **command.env}
        output = self._spec.limits.output if command.limits.output is None else command.limits.output
        return marshal.dumps(
            (
                command.arguments,
                {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
                os.fsencode(command.cwd),
                stdin_path,
                command.limits.wall,
                command.limits.cpu,
                output,
            )
        )

    def _base_env(self) -> Mapping[str, str]:
        if self._support.is_sandboxed:
            return DEFAULT_ENV
        tmp = str(self._place.folder / "tmp")
        ours = {name: os.environ[name] for name in UNSANDBOXED_ENV if name in os.environ}
        return {**DEFAULT_ENV, **ours, "HOME": tmp, "TMPDIR": tmp}

    def _send(self, request: bytes, descriptors: list[int]) -> RunnerProcess:
        """To the runner; to a new one where the last has ended after its command."""
        if self._process is None:
            self._start_process()
        assert self._process is not None
        try:
            socket.send_fds(self._process.control, [request], descriptors)
        except ConnectionError:
            self._end_process()
            self._start_process()
            socket.send_fds(self._process.control, [request], descriptors)
        return self._process

    def _wait(self, process: RunnerProcess, command: Command, stop: threading.Event | None) -> CommandResult | None:
        """None when the runner could not clean up after the command before, and did not start this one."""
        began = time.monotonic()
        deadline = began + command.limits.wall + GRACE
        oom_kills, cpu_before = 0, None
        if self._group is not None:
            oom_kills = self._group.count_oom_kills()
            if command.limits.cpu is not None:
                cpu_before = self._group.read_cpu()
        asked: Cause = ""
        must_look = stop is not None or cpu_before is not None
        while not process.wait_readable(min(STOP_INTERVAL if must_look else GRACE, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                self._end_process()
                return _make_lost_result(asked or "wall", began)
            if not asked and (cause := self._find_cause(command, stop, cpu_before)):
                asked = cause
                process.control.send(marshal.dumps("stop"))
                deadline = min(deadline, time.monotonic() + GRACE)
        reply = process.receive()
        if reply == NOT_CLEANED:
            self._end_process()
            return None
        was_out_of_memory = self._group is not None and self._group.count_oom_kills() > oom_kills
        if len(reply) < REPLY.size:
            said = process.read_messages()
            self._end_process()
            if was_out_of_memory:
                return _make_lost_result("memory", began)
            raise SandboxLost(f"A sandbox ended while its command ran{f': {said}' if said else ''}.")
        return _read_reply(reply, asked, was_out_of_memory)

    def _find_cause(self, command: Command, stop: threading.Event | None, cpu_before: float | None) -> Cause:
        if stop is not None and stop.is_set():
            return "stopped"
        if cpu_before is not None and self._group is not None:
            used = (self._group.read_cpu() or 0.0) - cpu_before
            if command.limits.cpu is not None and used > command.limits.cpu:
                return "cpu"
        return ""

    def _start_process(self) -> None:
        self._process = RunnerProcess.start(self._support, self._spec, self._place)
        self.start_count += 1
        if self._process.listener is not None and self._spec.handler is not None:
            self._server = ConnectionServer(self._process.listener, self._spec.handler)

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
        if self._server is not None:
            self._server.close()
            self._server = None


class _CommandStreams:
    """The three streams of a command as file descriptors. Those that we opened are closed at the end."""

    def __init__(self, command: Command, spec: SandboxSpec, support: SandboxSupport) -> None:
        self._spec = spec
        self._support = support
        self._opened: list[int] = []
        self.stdin_path: bytes | None = None
        self.descriptors: list[int] = []
        try:
            self.descriptors = [
                self._open_stdin(command.stdin),
                *(self._open_output(f) for f in (command.stdout, command.stderr)),
            ]
        except OSError as error:
            self.close()
            raise SandboxRefused(f"{error.filename} cannot be opened: {error.strerror}.") from error
        except SandboxRefused:
            self.close()
            raise

    def __enter__(self) -> _CommandStreams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)
        self._opened.clear()

    def _open(self, path: str | Path, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
        self._opened.append(descriptor)
        return descriptor

    def _open_stdin(self, source: Path | int | None) -> int:
        """A file that has the command's own user could be changed through its descriptor, even one that is only open for
        reading: without a uid of its own, a command gets only what lies on a read-only mount.
        """
        if source is None:
            return self._open(os.devnull, os.O_RDONLY)
        if isinstance(source, Path) and self._support.is_sandboxed and not self._support.is_root:
            self.stdin_path = self._find_inside(source)
            return self._open(os.devnull, os.O_RDONLY)
        descriptor = source if isinstance(source, int) else self._open(source, os.O_RDONLY)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode) or (stat.S_ISCHR(mode) and os.isatty(descriptor)):
            raise SandboxRefused("Standard input of a command is a file or a pipe, never a folder or a terminal.")
        if stat.S_ISREG(mode) and self._support.is_sandboxed and not self._support.is_root:
            raise SandboxRefused("Without root, standard input is given as a path in a folder that is bound read-only.")
        return descriptor

    def _find_inside(self, source: Path) -> bytes:
        real = os.path.realpath(source)
        for bind in self._spec.binds:
            folder = os.path.realpath(bind.source)
            if not bind.writable and is_within(real, folder):
                return os.fsencode(bind.inside + real[len(folder) :])
        raise SandboxRefused(f"{source} is in no folder that is bound read-only; without root, standard input must be.")

    def _open_output(self, target: Path | int | None) -> int:
        if target is None:
            return self._open(os.devnull, os.O_WRONLY)
        if isinstance(target, int):
            mode = os.fstat(target).st_mode
            if not stat.S_ISREG(mode):
                raise SandboxRefused("Standard output and error of a command are files: no pipe, no terminal.")
            return target
        folder = os.path.realpath(target.parent)
        if any(bind.writable and is_within(folder, os.path.realpath(bind.source)) for bind in self._spec.binds):
            raise SandboxRefused(f"{target} lies in a folder that the command can change; its output must not.")
        return self._open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)


def _read_reply(reply: bytes, asked: Cause, was_out_of_memory: bool) -> CommandResult:
    status, number, wall, cpu, peak, stdout, stderr = REPLY.unpack_from(reply)
    cause = CAUSES[number]
    if cause == "stopped" and asked:
        cause = asked
    exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if was_out_of_memory and not cause and exit_code != 0:
        cause = "memory"
    message = os.fsdecode(reply[REPLY.size :])
    return CommandResult(exit_code, killer, cause, wall, cpu, peak, stdout, stderr, os.WCOREDUMP(status), message)


def _make_lost_result(cause: Cause, began: float) -> CommandResult:
    """Of a command that went with its whole sandbox: what it used is not known."""
    return CommandResult(None, signal.SIGKILL, cause, time.monotonic() - began, 0.0, 0, 0, 0)


def _check_machine(support: SandboxSupport, spec: SandboxSpec) -> None:
    """Refuse what this machine cannot provide."""
    if not support.is_sandboxed and (moved := [bind for bind in spec.binds if str(bind.source) != bind.inside]):
        raise SandboxRefused(
            f"{moved[0].source} cannot be shown at {moved[0].inside}: without a sandbox, a folder is only where it is."
        )
    limits = spec.limits
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = min(total, support.cgroups.memory_limit() or total)
    if limits.memory > allowed:
        raise SandboxRefused(f"The limit memory is {limits.memory} bytes; this machine can give {allowed}.")
    for name, limit in (("RLIMIT_NOFILE", limits.open_files), ("RLIMIT_NPROC", limits.processes + 1)):
        hard = resource.getrlimit(getattr(resource, name))[1]
        if hard != resource.RLIM_INFINITY and limit > hard:
            raise SandboxRefused(f"{name} of this process allows {hard}; the sandbox asks for {limit}.")
    folder = support.settings.folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    if choose_tmp_type(support, limits) != "memory":
        free = shutil.disk_usage(folder).free
        if limits.disk > free:
            raise SandboxRefused(f"The limit disk is {limits.disk} bytes; {free} are free in {folder}.")


@contextmanager
def _reserve_uid(first: int) -> Iterator[int]:
    """A uid that no other sandbox of this machine has. The kernel frees the name when the process ends, however it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as name:
        for uid in range(first, first + MAX_SLOTS):
            try:
                name.bind(f"\0waybill-sandbox-uid-{uid}")
            except OSError:
                continue  # taken
            yield uid
            return
        raise SandboxRefused(f"All {MAX_SLOTS} uids of sandboxes, from {first} on, are in use.")


def sweep_remains(support: SandboxSupport) -> None:
    """Remove what sandboxes of killed processes left: folders, and control groups."""
    sweep_cgroups(support.cgroups)
    if support.settings.folder.is_dir():
        for folder in support.settings.folder.glob(PREFIX + "*"):
            if is_left_behind(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
