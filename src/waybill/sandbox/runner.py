"""The runner: the first process of a sandbox, which starts its commands, measures them and ends them.

This file runs alone, in the sandbox, with the standard library only. Its argument is the number of a
socket to the worker that opened the sandbox. Its life:

    settings      the first message: user, limits, folders to empty; the answer is "R", or "E" and a sentence
    a command     a message with three file descriptors; the runner starts it in a session of its own
    while it runs the runner looks at time, output, disk and, where no cgroup does, memory, every TICK seconds
    its end       when the first process has ended: every other process is killed and waited for, then the answer goes out
    afterwards    /tmp and /dev/shm are emptied; what cannot be emptied ends the runner, and the worker starts a new sandbox
    the end       the socket is closed: the runner ends, and the kernel kills every process of its pid namespace

A command is never trusted. The runner is process 1 of its pid namespace, so that no signal from inside ends or stops it,
and its memory and descriptors cannot be read (not dumpable). With root it also has another user than the commands: it
takes theirs only for the start of one, because a process that is started by vfork cannot change it itself.
"""

from __future__ import annotations

import _socket
import errno
import marshal
import os
import resource
import select
import signal
import struct
import sys
import time
from typing import Any, NamedTuple

TICK = 0.05
MAX_MESSAGE = 1 << 18
MAX_REMOVED = 20_000  # files that are removed between two commands; with more, a new sandbox is faster
MAX_DEPTH = 200  # folders in folders that the disk watch descends into
NOT_CLEANED = b"X"
REPLY = struct.Struct("<iBddqqq")  # wait status, cause, wall, cpu, peak memory, bytes of stdout, bytes of stderr
STOPPED, WALL, CPU, MEMORY, OUTPUT, DISK, NOT_STARTED = range(1, 8)
CAP_KILL, CAP_SETUID = 1 << 5, 1 << 7
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
PAGE, CLOCK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
DEFAULT_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
SYSV_LISTS = ("/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem")


class Runner:
    def __init__(self, control: _socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.sandboxed: bool = settings["sandboxed"]
        if self.sandboxed and os.getpid() != 1:
            raise OSError(errno.EPERM, "the runner is not the first process of its sandbox")
        self.uid: int | None = settings["uid"]
        self.memory: int = settings["watched_memory"]
        self.disk: int = settings["watched_disk"]
        self.watched_folders: list[str] = settings["watched_folders"]
        self.emptied_folders: list[str] = settings["emptied_folders"]
        self.listener = _listen(settings["port"]) if settings["port"] is not None else None
        self.poller = select.poll()
        self.poller.register(control, select.POLLIN)
        for name, limit in settings["rlimits"].items():
            resource.setrlimit(getattr(resource, name), (limit, limit))
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
        _give_up_privileges(CAP_KILL | CAP_SETUID if self.uid is not None else 0, self.sandboxed)
        os.umask(0o022)
        self.become_user()
        for folder, mode in settings["checked_folders"]:
            if not os.access(folder, mode):
                raise OSError(
                    errno.EACCES, f"the user of the sandbox may not {'write to' if mode & os.W_OK else 'read'} {folder}"
                )
        self.become_runner()

    def become_user(self) -> None:
        """The saved user stays 0, and is replaced when a command is executed."""
        if self.uid is not None:
            os.setresuid(self.uid, self.uid, 0)

    def become_runner(self) -> None:
        if self.uid is not None:
            os.setresuid(0, 0, 0)

    def serve(self) -> None:
        while True:
            message, descriptors = receive(self.control)
            if not message:
                return
            request = marshal.loads(message)
            if request == "stop":
                continue  # for a command that has ended in the meantime
            try:
                reply = CommandRun(self, request, descriptors).run()
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            self.control.send(reply)
            if not self.empty_folders():
                self.control.send(NOT_CLEANED)  # the next command may wait in the socket already: it was not started
                return

    def empty_folders(self) -> bool:
        self.become_user()
        try:
            if any(os.path.exists(path) and _has_second_line(path) for path in SYSV_LISTS if self.sandboxed):
                return False
            return all(empty_folder(folder, MAX_REMOVED) for folder in self.emptied_folders)
        except OSError:
            return False  # something that even its owner cannot remove: the sandbox ends with it
        finally:
            self.become_runner()

    def has_disk_left(self) -> bool:
        left = self.disk
        self.become_user()
        try:
            for path in self.watched_folders:
                folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    left = measure_folder(folder, left)
                finally:
                    os.close(folder)
                if left < 0:
                    return False
        except OSError:
            return False  # the command closed the folder to its own user: what cannot be measured counts as too much
        finally:
            self.become_runner()
        return True

    def list_processes(self) -> list[int]:
        """All processes of the sandbox but the runner; without a sandbox, the runner's descendants."""
        if self.sandboxed:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        found, pending = [], [os.getpid()]
        while pending:
            children = _read_children(pending.pop())
            found += children
            pending += children
        return found

    def kill_all(self) -> None:
        """In a pid namespace one call reaches every process, those that are just being forked too."""
        if self.sandboxed:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return
        else:
            for pid in self.list_processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


class ProcessUsage(NamedTuple):
    """CPU seconds of a process and of the children that it has waited for, and the bytes of memory that are its own."""

    cpu: float
    waited_cpu: float
    memory: int


class CommandRun:
    """One command, from its start until no process of it is left."""

    def __init__(self, runner: Runner, request: tuple[Any, ...], descriptors: list[int]) -> None:
        self.runner = runner
        self.argv, self.env, self.cwd, self.stdin_path, self.wall, self.cpu_limit, self.output = request
        self.stdin, self.stdout, self.stderr = descriptors
        self.began = time.monotonic()
        self.cause = 0
        self.cpu = 0.0
        self.peak = 0
        self.next_disk_check = 0.0
        self.seen_cpu: dict[int, float] = {}
        self.vanished_cpu = 0.0

    def run(self) -> bytes:
        try:
            pid = self.start()
        except OSError as error:
            return self.report_not_started(error)
        self.wait(pid)
        # Children of the command become the runner's when their parent ends: until there is none.
        status = 0
        while True:
            self.runner.kill_all()
            try:
                ended, its_status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                break
            if ended == pid:
                status = its_status
            self.count(usage)
        return self.report(status)

    def start(self) -> int:
        self.runner.become_user()
        stdin = self.stdin
        try:
            if self.stdin_path is not None:
                stdin = os.open(self.stdin_path, os.O_RDONLY | os.O_NOCTTY)
            os.chdir(self.cwd)
            program = _find_program(self.argv[0], self.env.get(b"PATH", b""))
            streams = [
                (os.POSIX_SPAWN_DUP2, given, number) for number, given in enumerate((stdin, self.stdout, self.stderr))
            ]
            return os.posix_spawn(
                program,
                self.argv,
                self.env,
                file_actions=streams,
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULT_SIGNALS,
            )
        finally:
            self.runner.become_runner()
            if stdin != self.stdin:
                os.close(stdin)

    def wait(self, pid: int) -> None:
        """Until the first process ends, a limit is passed, or the worker asks for the end."""
        watched = os.pidfd_open(pid)
        poller = self.runner.poller
        poller.register(watched, select.POLLIN)
        try:
            while not self.cause:
                left = self.began + self.wall - time.monotonic()
                if left <= 0:
                    self.cause = WALL
                    return
                ready = poller.poll(max(1, min(TICK, left) * 1000))
                for descriptor, _ in ready:
                    if descriptor == self.runner.control.fileno():
                        if not receive(self.runner.control)[0]:
                            os._exit(0)  # the worker is gone: with process 1 the kernel ends all others
                        self.cause = STOPPED
                    elif descriptor == watched:
                        return
                if not ready:
                    self.watch(pid)
        finally:
            poller.unregister(watched)
            os.close(watched)

    def watch(self, first: int) -> None:
        """Look at what the processes use; the first limit that is passed is the cause."""
        elapsed = time.monotonic() - self.began
        watches_cpu = self.cpu_limit is not None and elapsed * CORES > self.cpu_limit
        self.reap_orphans(first)
        if watches_cpu or self.runner.memory:
            usages = {pid: _read_usage(pid) for pid in self.runner.list_processes()}
            if watches_cpu and self.estimate_cpu(usages) > self.cpu_limit:
                self.cause = CPU
            elif self.runner.memory and sum(usage.memory for usage in usages.values()) > self.runner.memory:
                self.cause = MEMORY
        if max(self.measure_output()) > self.output:
            self.cause = self.cause or OUTPUT
        if self.runner.disk and elapsed >= self.next_disk_check:
            if not self.runner.has_disk_left():
                self.cause = self.cause or DISK
            # A tenth of the time at most goes into looking.
            took = time.monotonic() - self.began - elapsed
            self.next_disk_check = elapsed + max(2 * TICK, 10 * took)

    def estimate_cpu(self, usages: dict[int, ProcessUsage]) -> float:
        """The larger of two sums, each of which a command can keep small: what was waited for, and what was seen."""
        self.vanished_cpu += sum(seen for pid, seen in self.seen_cpu.items() if pid not in usages)
        self.seen_cpu = {pid: usage.cpu for pid, usage in usages.items()}
        seen = sum(self.seen_cpu.values())
        return max(self.cpu + seen + sum(usage.waited_cpu for usage in usages.values()), self.vanished_cpu + seen)

    def reap_orphans(self, first: int) -> None:
        """Wait for what was left to process 1, so that it does not count as a process. The first process is left to `run`."""
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == first:
                return
            self.count(os.wait4(found.si_pid, 0)[2])

    def count(self, usage: resource.struct_rusage) -> None:
        self.cpu += usage.ru_utime + usage.ru_stime
        self.peak = max(self.peak, usage.ru_maxrss * 1024)

    def measure_output(self) -> tuple[int, int]:
        return os.fstat(self.stdout).st_size, os.fstat(self.stderr).st_size

    def report(self, status: int) -> bytes:
        wall = time.monotonic() - self.began
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ:
            self.cause = self.cause or (OUTPUT if max(self.measure_output()) >= self.output else DISK)
        sizes = []
        for stream, size in zip((self.stdout, self.stderr), self.measure_output(), strict=True):
            if size > self.output:
                self.cause = self.cause or OUTPUT
                os.ftruncate(stream, self.output)
            sizes.append(min(size, self.output))
        return REPLY.pack(status, self.cause, wall, self.cpu, self.peak, *sizes)

    def report_not_started(self, error: OSError) -> bytes:
        """As a shell does: 127 for a program that is not there, 126 for one that cannot be executed, a line on stderr."""
        code = 127 if error.errno == errno.ENOENT else 126
        name = os.fsdecode(self.argv[0])
        text = "command not found" if code == 127 and "/" not in name else (error.strerror or "cannot be executed")
        if error.filename in (self.cwd, self.stdin_path):
            name = os.fsdecode(error.filename)
        message = f"{name}: {text}"
        size = os.write(self.stderr, os.fsencode(message + "\n"))
        return REPLY.pack(code << 8, NOT_STARTED, time.monotonic() - self.began, 0, 0, 0, size) + os.fsencode(message)


def _find_program(name: bytes, path: bytes) -> bytes:
    if b"/" in name:
        return name
    for folder in path.split(b":"):
        if folder.startswith(b"/") and os.access(candidate := os.path.join(folder, name), os.X_OK):
            return candidate
    raise FileNotFoundError(errno.ENOENT, "command not found", name)


def _listen(port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def _give_up_privileges(kept: int, sandboxed: bool) -> None:
    """Keep only `kept` of the capabilities, and hand none on to commands. bubblewrap leaves them inheritable and ambient."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if sandboxed:
        header, data = struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", kept, kept, 0, 0, 0, 0)
        if libc.capset(header, data):
            raise OSError(ctypes.get_errno(), "the capabilities cannot be given up")
    elif libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the runner's memory cannot be protected")


def _has_second_line(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4096).count(b"\n") > 1


def _read_children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += [int(number) for number in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return children  # it has just ended
    return children


def _read_usage(pid: int) -> ProcessUsage:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            user, system, waited_user, waited_system = map(int, file.read().rpartition(b")")[2].split()[11:15])
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared = file.read().split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return ProcessUsage(0.0, 0.0, 0)  # it has just ended
    memory = (int(resident) - int(shared)) * PAGE
    return ProcessUsage((user + system) / CLOCK, (waited_user + waited_system) / CLOCK, memory)


# --- folders


def empty_folder(path: str, budget: int) -> bool:
    """Remove everything in it, and say whether that was possible within `budget` entries.

    However deep the folders are: what lies in a folder is moved to the top before the folder is removed.
    """
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    prefix, moved = os.urandom(8).hex(), 0
    try:
        while names := os.listdir(top):
            budget -= len(names)
            if budget < 0:
                return False
            for name in names:
                try:
                    os.unlink(name, dir_fd=top)
                    continue
                except IsADirectoryError:
                    os.chmod(name, 0o700, dir_fd=top)
                folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:
                    for child in os.listdir(folder):
                        budget -= 1
                        if budget < 0:
                            return False
                        try:
                            os.unlink(child, dir_fd=folder)
                        except IsADirectoryError:
                            os.chmod(child, 0o700, dir_fd=folder)
                            os.rename(child, f"{prefix}-{moved}", src_dir_fd=folder, dst_dir_fd=top)
                            moved += 1
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)
        return True
    finally:
        os.close(top)


def measure_folder(folder: int, left: int, depth: int = 0) -> int:
    """What is left of `left` bytes after all files below the open folder. Negative as well when it cannot be measured."""
    if depth > MAX_DEPTH:
        return -1
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                left -= entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                    try:
                        left = measure_folder(below, left, depth + 1)
                    finally:
                        os.close(below)
            except FileNotFoundError:
                continue  # removed in the meantime
            except OSError:
                return -1
            if left < 0:
                return left
    return left


# --- messages


def receive(control: _socket.socket) -> tuple[bytes, list[int]]:
    """A message and the descriptors that came with it; an empty one when the worker has closed its end."""
    try:
        message, ancillary, _, _ = control.recvmsg(MAX_MESSAGE, _socket.CMSG_SPACE(16), _socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return b"", []
    descriptors: list[int] = []
    for _, _, data in ancillary:
        descriptors += struct.unpack(f"{len(data) // 4}i", data)
    return message, descriptors


def main() -> None:
    control = _socket.socket(fileno=int(sys.argv[1]))
    # bubblewrap hands on what it was given; a command gets its three streams and nothing else.
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > 2 and descriptor != control.fileno():
            try:
                os.close(descriptor)
            except OSError:
                continue  # that of the listing itself
    os.set_inheritable(control.fileno(), False)
    message, _ = receive(control)
    if not message:
        return
    try:
        runner = Runner(control, marshal.loads(message))
    except (OSError, ValueError) as error:
        control.send(b"E" + os.fsencode(getattr(error, "strerror", None) or str(error)))
        return
    passed = [] if runner.listener is None else [runner.listener.fileno()]
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(passed)}i", *passed))] if passed else []
    control.sendmsg([b"R"], rights)
    if runner.listener is not None:
        runner.listener.close()  # the worker accepts; nothing of it is left in here
    runner.serve()


if __name__ == "__main__":
    main()
