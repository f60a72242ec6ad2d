"""What this machine offers for sandboxes, found once when a process starts, and in force until it ends.

`find_support` tries each thing rather than reading about it: it starts a sandbox, makes a control group, mounts an image.
A machine where no sandbox can be started says why in one sentence; work that needs one is refused with that sentence,
unless the settings say `unsandboxed`. What is only weaker without a privilege is described by `describe_support`:

                 as root, or with writable groups       otherwise
    memory       control group                          RLIMIT_DATA and a watch of the tree's memory
    processes    control group and RLIMIT_NPROC         RLIMIT_NPROC in a user namespace of its own
    CPU time     control group                          a watch of the tree
    disk         a loop image                           RLIMIT_FSIZE and a watch of the folders (a small /tmp: tmpfs)
    user         a uid for each sandbox                 the worker's own, with the runner out of its reach
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from waybill.config import SandboxSettings
from waybill.sandbox.cgroups import CgroupParents, find_cgroups
from waybill.sandbox.seccomp import has_filter
from waybill.sandbox.spec import MIB

TRIAL_TIMEOUT = 30.0
TRIAL_IMAGE = 4 * MIB
MAX_SLOTS = 1000
IMAGE_TOOLS = ("mkfs.ext4", "mount", "unshare")
SBIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """`problem` is the sentence why there is no sandbox here, or empty."""

    settings: SandboxSettings
    problem: str
    bubblewrap: str
    version: str
    is_root: bool
    cgroups: CgroupParents
    has_loop_images: bool

    @property
    def is_sandboxed(self) -> bool:
        return not self.problem and self.settings.mode == "required"

    @property
    def can_run(self) -> bool:
        return not self.problem or self.settings.mode == "unsandboxed"


def find_support(settings: SandboxSettings) -> SandboxSupport:
    path = shutil.which("bwrap") or ""
    is_root = os.geteuid() == 0
    problem = _find_problem(path, settings, is_root)
    version = "" if problem else _run([path, "--version"]).stdout.strip().rpartition(" ")[2]
    cgroups = find_cgroups()
    return SandboxSupport(settings, problem, path, version, is_root, cgroups, is_root and _can_mount_image())


def _find_problem(bubblewrap: str, settings: SandboxSettings, is_root: bool) -> str:
    if not bubblewrap:
        return "There is no sandbox: bubblewrap is not installed (package bubblewrap, command bwrap)."
    if not has_filter():
        return f"There is no sandbox: no filter of system calls is known for {os.uname().machine} processors."
    if is_root and not _is_mapped(settings.first_uid):
        return (
            f"There is no sandbox: the uids from {settings.first_uid} do not exist in this container; "
            "set sandbox.first_uid to the first of 1000 that are free."
        )
    user = [] if is_root else ["--unshare-user"]
    trial = _run([bubblewrap, *user, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--ro-bind", "/",
                  "/", "--proc", "/proc", "--", "/bin/true"])  # fmt: skip
    if trial.returncode != 0:
        return f"There is no sandbox: this machine forbids it ({trial.stderr.strip() or 'bwrap failed'})."
    return ""


def _is_mapped(first_uid: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, count = map(int, line.split())
        if inside <= first_uid and first_uid + MAX_SLOTS <= inside + count:
            return True
    return False


def _can_mount_image() -> bool:
    if not all(shutil.which(tool, path=SBIN_PATH) for tool in IMAGE_TOOLS):
        return False
    with tempfile.TemporaryDirectory(prefix="waybill-image-") as folder:
        image = Path(folder, "image")
        with image.open("wb") as file:
            file.truncate(TRIAL_IMAGE)
        if _run([*FORMAT_IMAGE, str(image)]).returncode != 0:
            return False
        mount = f'mount -n -o loop "{image}" "{folder}"'
        return _run(["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", mount]).returncode == 0


FORMAT_IMAGE = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    env = {"PATH": SBIN_PATH, "LC_ALL": "C.UTF-8"}
    try:
        return subprocess.run(arguments, capture_output=True, text=True, env=env, timeout=TRIAL_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            arguments, 1, "", f"{arguments[0]} did not answer within {TRIAL_TIMEOUT:g} s"
        )


def describe_support(support: SandboxSupport) -> Iterator[str]:
    """One line for each thing, for `waybill doctor`: what is in force here."""
    if support.settings.mode == "unsandboxed":
        yield "Commands run without a sandbox, because sandbox.mode is unsandboxed."
        return
    if support.problem:
        yield support.problem
        return
    groups = f"control group, version {support.cgroups.version}"
    limited = support.cgroups.groups
    yield f"bubblewrap {support.version}"
    yield f"memory: {groups if 'memory' in limited else 'RLIMIT_DATA and a watch of the processes'}"
    yield f"processes: {f'{groups}, and ' if 'pids' in limited else ''}RLIMIT_NPROC"
    yield f"CPU time: {groups if 'cpu' in limited else 'a watch of the processes'}"
    yield f"disk: {'loop images' if support.has_loop_images else 'RLIMIT_FSIZE and a watch of the folders'}"
    first = support.settings.first_uid
    uids = (
        f"{first} to {first + MAX_SLOTS - 1}, one for each sandbox"
        if support.is_root
        else f"{os.geteuid()}, as the worker"
    )
    yield f"uid: {uids}"
