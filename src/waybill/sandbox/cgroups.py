"""Control groups: the kernel's own account of a sandbox's memory, processes and CPU time, where we may write to it.

Version 1 has one tree for each controller, version 2 one tree for all. A sandbox gets a group of its own below the group
of the worker, named `waybill-PID-START-NUMBER` after the worker's process, so that the groups of a worker that was killed
are known and can be removed when the next one starts. Version 2 lets a group hand out controllers only while no process
is in it: the group of the worker itself, or, where a service manager put the worker into a group below its own
(`Delegate=yes` and `DelegateSubgroup=` of systemd), the one above.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "waybill-"
REMOVAL_PAUSE, REMOVAL_TRIES = 0.01, 100  # a group is busy until the last of its processes is gone
MEMORY_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}
SWAP_FILES = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}
OOM_FILES = {1: "memory.oom_control", 2: "memory.events"}
CPU_FILES = {1: "cpuacct.usage", 2: "cpu.stat"}
CONTROLLERS = {"memory": "memory", "pids": "pids", "cpuacct": "cpu"}  # controller of version 1 -> ours

log = logging.getLogger("waybill")


@dataclass(frozen=True, slots=True)
class CgroupParents:
    """The groups below which ours are made, by what they limit: `memory`, `pids`, `cpu`. In version 2 all are the same."""

    version: int
    groups: dict[str, Path] = field(default_factory=dict)

    def list_groups(self) -> Iterator[Path]:
        for parent in set(self.groups.values()):
            yield from parent.glob(PREFIX + "*")

    def memory_limit(self) -> int | None:
        """What the worker itself may use, if that is limited."""
        if "memory" not in self.groups:
            return None
        try:
            text = (self.groups["memory"] / MEMORY_FILES[self.version]).read_text().strip()
        except FileNotFoundError:  # the root group of version 2 has none
            return None
        return int(text) if text.isdigit() else None


def find_cgroups(proc: Path = Path("/proc/self")) -> CgroupParents:
    """Where groups can be made; each place is tried."""
    paths = _read_own_groups(proc)
    version_1: dict[str, Path] = {}
    version_2: Path | None = None
    for line in (proc / "mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        root, mount_point = fields.split()[3:5]
        kind, _, options = rest.split()[:3]
        if kind == "cgroup2":
            version_2 = _locate(mount_point, root, paths.get("", "/"))
        elif kind == "cgroup":
            for controller in set(options.split(",")) & set(CONTROLLERS):
                version_1[CONTROLLERS[controller]] = _locate(mount_point, root, paths.get(controller, "/"))
    if version_2 is not None:
        for candidate in (version_2, version_2.parent):
            if _can_hand_out(candidate):
                return CgroupParents(2, dict.fromkeys(CONTROLLERS.values(), candidate))
    return CgroupParents(1, {name: group for name, group in version_1.items() if _can_make_group(group)})


def _read_own_groups(proc: Path) -> dict[str, str]:
    groups: dict[str, str] = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update((controller, path) for controller in controllers.split(","))
    return groups


def _locate(mount_point: str, root: str, path: str) -> Path:
    """The folder of a group. In a container the mount shows only the tree below `root`."""
    below = os.path.relpath(path, root) if path.startswith(root.rstrip("/") + "/") else "."
    return Path(mount_point) / below


def _can_make_group(parent: Path) -> bool:
    trial = parent / f"{PREFIX}{process_name(os.getpid())}-trial-{time.monotonic_ns()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _can_hand_out(group: Path) -> bool:
    try:
        if not {"memory", "pids"} <= set((group / "cgroup.controllers").read_text().split()):
            return False
        (group / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError:
        return False
    return _can_make_group(group)


def process_name(pid: int) -> str:
    """PID and start time: unique until the machine starts again. Raises FileNotFoundError for a process that is gone."""
    return f"{pid}-{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"


def is_left_behind(name: str) -> bool:
    """Whether the name of a group or folder of ours is that of a process that has ended."""
    pid, _, start = name.removeprefix(PREFIX).partition("-")
    try:
        return process_name(int(pid)) != f"{pid}-{start.partition('-')[0]}"
    except (FileNotFoundError, ProcessLookupError):
        return True
    except ValueError:
        return False  # not ours


def sweep_cgroups(parents: CgroupParents) -> None:
    for group in parents.list_groups():
        if is_left_behind(group.name):
            _remove_group(group)


def _remove_group(group: Path) -> None:
    for _ in range(REMOVAL_TRIES):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(REMOVAL_PAUSE)
        else:
            return
    log.warning("The control group %s is still in use; the next start removes it.", group)


class SandboxCgroup:
    """The groups of one sandbox."""

    def __init__(self, parents: CgroupParents, name: str, *, memory: int, processes: int) -> None:
        self.version = parents.version
        self.groups = {limit: parent / name for limit, parent in parents.groups.items()}
        try:
            for group in set(self.groups.values()):
                group.mkdir()
            if "memory" in self.groups:
                (self.groups["memory"] / MEMORY_FILES[self.version]).write_text(str(memory))
                swap = self.groups["memory"] / SWAP_FILES[self.version]
                if swap.exists():
                    swap.write_text(str(memory) if self.version == 1 else "0")
            if "pids" in self.groups:
                (self.groups["pids"] / "pids.max").write_text(str(processes))
            self._oom_file = self._open_file("memory", OOM_FILES)
            self._cpu_file = self._open_file("cpu", CPU_FILES)
        except OSError:
            self.remove()
            raise

    def _open_file(self, limit: str, names: dict[int, str]) -> int | None:
        group = self.groups.get(limit)
        return None if group is None else os.open(group / names[self.version], os.O_RDONLY)

    @property
    def entry_files(self) -> list[str]:
        """A process that writes its own id into each of these is in the groups, and so is all that it starts."""
        return [str(group / "cgroup.procs") for group in sorted(set(self.groups.values()))]

    def count_oom_kills(self) -> int:
        return 0 if self._oom_file is None else _read_number(self._oom_file, b"oom_kill ")

    def read_cpu(self) -> float | None:
        """Seconds of CPU time of everything that ever ran in the group."""
        if self._cpu_file is None:
            return None
        if self.version == 1:
            return int(os.pread(self._cpu_file, 64, 0)) / 1e9
        return _read_number(self._cpu_file, b"usage_usec ") / 1e6

    def remove(self) -> None:
        for name in ("_oom_file", "_cpu_file"):
            descriptor = getattr(self, name, None)
            if descriptor is not None:
                os.close(descriptor)
                setattr(self, name, None)
        for group in set(self.groups.values()):
            _remove_group(group)


def _read_number(descriptor: int, label: bytes) -> int:
    for line in os.pread(descriptor, 4096, 0).splitlines():
        if line.startswith(label):
            return int(line[len(label) :])
    return 0
