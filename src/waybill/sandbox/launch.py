"""How a runner is started: the command line of bubblewrap, the disk of the sandbox, and the process itself.

What a sandbox shows: /usr and its links, a few files of /etc, /proc of its own, a /dev with the harmless devices and no
terminal, /tmp and /dev/shm of its own, the folders that are bound, and the Python that runs the runner. All is read-only
but /tmp, /dev/shm and the folders bound writable.

/tmp is one of three: in memory (`tmpfs`) when it is small; a loop image, with root; else a folder that the runner
watches. The image is mounted in a mount namespace that only the sandbox is in, and its file is removed as soon as it is
mounted, so that nothing is left when the sandbox ends, however it ends.
"""

from __future__ import annotations

import json
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from waybill.sandbox import runner
from waybill.sandbox.seccomp import build_filter
from waybill.sandbox.spec import HANDLER_PORT, MIB, SandboxLimits, SandboxRefused, SandboxSpec, is_within
from waybill.sandbox.support import FORMAT_IMAGE, SBIN_PATH, SandboxSupport

MAX_MEMORY_TMP = 64 * MIB  # a /tmp of up to this size is in memory
SHM_SIZE = 16 * MIB
RESERVED_MEMORY = 512 * MIB
START_TIMEOUT = 30.0
RUNNER_PATH = "/run/waybill/runner.py"
LINKED_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "fonts", "java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "localtime", "magic", "mime.types", "perl", "pki", "python3", "R", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
NETWORK_FILES = ("resolv.conf", "services", "protocols", "gai.conf")
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKED_DEVICES = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}
ROOT_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL")

TmpType = Literal["memory", "image", "folder"]

# Enter the control groups, mount the image, and become bubblewrap. Its arguments: how many groups, the groups, the image
# and where to mount it (or two empty ones), the command.
ENTER_SCRIPT = """set -e
count=$1; shift
while [ "$count" -gt 0 ]; do echo $$ > "$1"; shift; count=$((count - 1)); done
if [ -n "$1" ]; then
    mount -n -t ext4 -o loop,nosuid,nodev,noatime "$1" "$2"
    rm "$1"
    mkdir -m 1777 "$2/tmp"
fi
shift 2
exec "$@"
"""

# bubblewrap kills the sandbox when its parent thread ends: all are started by one that lives as long as the process.
_starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox starter")


@dataclass(frozen=True, slots=True)
class SandboxPlace:
    """What a sandbox has on the host: its uid (with root), its folder, the entry files of its control groups."""

    uid: int | None
    folder: Path
    entry_files: Sequence[str]
    memory_is_grouped: bool


def choose_tmp_type(support: SandboxSupport, limits: SandboxLimits) -> TmpType:
    if not support.is_sandboxed:
        return "folder"
    if limits.disk <= MAX_MEMORY_TMP:
        return "memory"
    return "image" if support.has_loop_images else "folder"


class RunnerProcess:
    """A running sandbox: the process of bubblewrap, its runner, and the socket between us and the runner."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, messages: int, info: int | None
    ) -> None:
        self.process = process
        self.control = control
        self.listener: socket.socket | None = None
        self.tmp_folder: Path | None = None
        self._messages = messages
        self._info = info
        self._pidfd: int | None = None

    @classmethod
    def start(cls, support: SandboxSupport, spec: SandboxSpec, place: SandboxPlace) -> RunnerProcess:
        """Raises SandboxRefused when it cannot be started; nothing is left then."""
        tmp_type = choose_tmp_type(support, spec.limits)
        with ExitStack() as undo:
            image = tmp_folder = None
            if tmp_type == "image":
                image = _make_image(place, spec.limits.disk)
                undo.callback(image.unlink, missing_ok=True)
            elif tmp_type == "folder":
                tmp_folder = place.folder / "tmp"
                tmp_folder.mkdir(mode=0o700)
                undo.callback(shutil.rmtree, tmp_folder, ignore_errors=True)
                if place.uid is not None:
                    os.chown(tmp_folder, place.uid, place.uid)
            started = _starter.submit(_launch, support, spec, place, image, tmp_folder).result()
            undo.callback(started.kill)
            started.tmp_folder = tmp_folder
            started._introduce(_build_settings(support, spec, place, tmp_type, tmp_folder))
            undo.pop_all()
            return started

    def _introduce(self, settings: dict[str, Any]) -> None:
        """Send the settings, and wait until the runner is ready."""
        try:
            self.control.send(marshal.dumps(settings))
            if not self.wait_readable(START_TIMEOUT):
                raise SandboxRefused(f"A sandbox did not start within {START_TIMEOUT:g} seconds.")
            answer, descriptors, _, _ = socket.recv_fds(self.control, 4096, 1)
        except ConnectionError:
            answer, descriptors = b"", []
        if answer != b"R":
            said = os.fsdecode(answer[1:]) or self.read_messages() or "it ended at once"
            raise SandboxRefused(f"A sandbox cannot be started: {said}.")
        if descriptors:
            self.listener = socket.socket(fileno=descriptors[0])
        pid = self.process.pid
        if self._info is not None:
            pid = json.loads(os.read(self._info, 4096))["child-pid"]
            os.close(self._info)
            self._info = None
        self._pidfd = os.pidfd_open(pid)

    def wait_readable(self, timeout: float) -> bool:
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout) * 1000))

    def receive(self) -> bytes:
        """A message of the runner; an empty one when it has ended. That it ended with a command unread is told before
        what it said last.
        """
        try:
            return self.control.recv(4096)
        except ConnectionResetError:
            return self.control.recv(4096)

    def read_messages(self) -> str:
        """What bubblewrap or the runner wrote before it ended; the last line says why."""
        lines = os.pread(self._messages, 65536, 0).decode(errors="replace").strip().splitlines()
        return lines[-1].rstrip(".") if lines else ""

    def kill(self) -> None:
        """End the sandbox with all its processes, and return when they are gone."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):  # it may have ended already
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = None
        else:
            self.process.kill()
        self.control.close()
        self.process.wait()
        for descriptor in (self._messages, self._info):
            if descriptor is not None:
                os.close(descriptor)
        if self.tmp_folder is not None:
            shutil.rmtree(self.tmp_folder, ignore_errors=True)


def _make_image(place: SandboxPlace, size: int) -> Path:
    """A formatted image whose bytes are reserved, so that no command meets a full disk of the host."""
    image = place.folder / "image"
    with image.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            image.unlink()
            raise SandboxRefused(f"A disk of {size} bytes cannot be had in {place.folder}: {error.strerror}.") from None
    made = subprocess.run(
        [*FORMAT_IMAGE, str(image)], capture_output=True, text=True, env={"PATH": SBIN_PATH}, check=False
    )
    if made.returncode != 0:
        image.unlink()
        raise SandboxRefused(
            f"A disk of {size} bytes cannot be formatted: {made.stderr.strip() or 'mkfs.ext4 failed'}."
        )
    return image


def _launch(
    support: SandboxSupport, spec: SandboxSpec, place: SandboxPlace, image: Path | None, tmp_folder: Path | None
) -> RunnerProcess:
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B"]
    info: int | None = None
    with ExitStack() as passed:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        passed.callback(theirs.close)
        descriptors = [theirs.fileno()]
        if support.is_sandboxed:
            info, info_end = os.pipe()
            descriptors.append(info_end)
            passed.callback(os.close, info_end)
            mount_point = place.folder / "mnt"
            files = {
                "/etc/passwd": f"user:x:{_inner_uid(place)}:{_inner_uid(place)}:user:/tmp:/bin/bash\n",
                "/etc/group": f"user:x:{_inner_uid(place)}:\n",
                "/etc/hosts": "127.0.0.1 localhost\n",
                "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
            }
            contents = [_make_memory_file(text.encode(), passed) for text in files.values()]
            seccomp = _make_memory_file(build_filter(), passed)
            descriptors += [*contents, seccomp]
            command = [support.bubblewrap, "--info-fd", str(info_end), "--seccomp", str(seccomp)]
            command += _list_namespaces(support, spec)
            command += _list_parent_folders(support, spec)
            command += _list_system_mounts(support, spec)
            for path, content in zip(files, contents, strict=True):
                command += ["--perms", "0644", "--ro-bind-data", str(content), path]
            command += _list_own_mounts(spec, mount_point / "tmp" if image else tmp_folder)
            command += ["--", *python, RUNNER_PATH, str(theirs.fileno())]
            if image or place.entry_files:
                mounted = [str(image), str(mount_point)] if image else ["", ""]
                entries = [str(len(place.entry_files)), *place.entry_files]
                command = ["/bin/sh", "-c", ENTER_SCRIPT, "sh", *entries, *mounted, *command]
            if image:
                mount_point.mkdir(exist_ok=True)
                command = ["unshare", "--mount", "--propagation", "private", "--", *command]
        else:
            command = [*python, runner.__file__, str(theirs.fileno())]
        messages = os.memfd_create("waybill-messages")
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                pass_fds=descriptors,
                cwd="/",
                env={"PATH": SBIN_PATH, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            os.close(messages)
            if info is not None:
                os.close(info)
            raise SandboxRefused(f"A sandbox cannot be started: {error.strerror}.") from error
        return RunnerProcess(process, ours, messages, info)


def _inner_uid(place: SandboxPlace) -> int:
    return os.geteuid() if place.uid is None else place.uid


def _make_memory_file(content: bytes, passed: ExitStack) -> int:
    descriptor = os.memfd_create("waybill-sandbox")
    passed.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _list_namespaces(support: SandboxSupport, spec: SandboxSpec) -> list[str]:
    arguments = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"]
    arguments += ["--as-pid-1", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if not spec.network:
        arguments.append("--unshare-net")
    capabilities = list(ROOT_CAPABILITIES) if support.is_root else []
    if spec.handler is not None:
        capabilities.append("CAP_NET_BIND_SERVICE")
    if not support.is_root:
        arguments.append("--unshare-user")
    for capability in capabilities:
        arguments += ["--cap-add", capability]
    return arguments


def _list_parent_folders(support: SandboxSupport, spec: SandboxSpec) -> list[str]:
    """The folders above what is bound, which bubblewrap would make for the runner's eyes only. /run/waybill stays so."""
    folders = {"/etc", "/etc/ssl", "/var"}
    for path in (*support.settings.system, *(bind.inside for bind in spec.binds)):
        folders.update(str(parent) for parent in PurePosixPath(path).parents if parent.name)
    return [word for folder in sorted(folders) for word in ("--perms", "0755", "--dir", folder)]


def _list_system_mounts(support: SandboxSupport, spec: SandboxSpec) -> list[str]:
    """The system, the runner and its Python, /proc and /dev. A terminal is none of the devices."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for folder in LINKED_FOLDERS:
        if os.path.islink(folder):
            arguments += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            arguments += ["--ro-bind", folder, folder]
    for name in (*SYSTEM_FILES, *(NETWORK_FILES if spec.network else ())):
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    python = os.path.realpath(sys.base_prefix)
    for folder in (*([] if is_within(python, "/usr") else [python]), *support.settings.system):
        arguments += ["--ro-bind", folder, folder]
    arguments += ["--ro-bind", os.path.realpath(runner.__file__), RUNNER_PATH, "--proc", "/proc", "--tmpfs", "/dev"]
    for name in DEVICES:
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in LINKED_DEVICES.items():
        arguments += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    return arguments


def _list_own_mounts(spec: SandboxSpec, tmp: Path | None) -> list[str]:
    arguments = ["--size", str(SHM_SIZE), "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    arguments += ["--symlink", "/tmp", "/var/tmp"]
    if tmp is None:
        arguments += ["--size", str(spec.limits.disk), "--perms", "1777", "--tmpfs", "/tmp"]
    else:
        arguments += ["--bind", str(tmp), "/tmp"]
    for bind in spec.binds:
        arguments += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.inside]
    return [*arguments, "--remount-ro", "/"]


def _build_settings(
    support: SandboxSupport, spec: SandboxSpec, place: SandboxPlace, tmp_type: TmpType, tmp_folder: Path | None
) -> dict[str, Any]:
    """The first message to the runner."""
    limits, sandboxed = spec.limits, support.is_sandboxed
    rlimits = {
        "RLIMIT_CORE": limits.core,
        "RLIMIT_FSIZE": limits.file_size,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_MSGQUEUE": 0,
    }
    if sandboxed or place.uid is not None:
        # The runner counts where it has the same user. Without a namespace or a uid of its own, so would all of the worker.
        rlimits["RLIMIT_NPROC"] = limits.processes + (place.uid is None)
    if not place.memory_is_grouped:
        # What a process may reserve, such as the stacks of its threads; what all of them use is watched.
        rlimits["RLIMIT_DATA"] = 2 * limits.memory + RESERVED_MEMORY
    tmp = "/tmp" if sandboxed else str(tmp_folder)
    writable = [bind.inside if sandboxed else str(bind.source) for bind in spec.binds if bind.writable]
    watched = writable + ([tmp] if tmp_type == "folder" else [])
    readable = [bind.inside if sandboxed else str(bind.source) for bind in spec.binds]
    return {
        "sandboxed": sandboxed,
        "uid": place.uid,
        "port": None if spec.handler is None else HANDLER_PORT if sandboxed else 0,
        "rlimits": rlimits,
        "watched_memory": 0 if place.memory_is_grouped else limits.memory,
        "watched_disk": limits.disk if watched else 0,
        "watched_folders": watched,
        "emptied_folders": [tmp, "/dev/shm"] if sandboxed else [tmp],
        "checked_folders": [
            (tmp, os.W_OK | os.X_OK),
            *((path, os.W_OK) for path in writable),
            *((path, os.R_OK) for path in readable),
        ],
    }
