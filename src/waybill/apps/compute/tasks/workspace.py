"""A task workspace: a sandbox with its folders, for one slot of a job's phase, reused for its tasks.

    folders made -> assets fetched -> sandbox opened -> init run -> tasks, one after the other -> idle -> closed

A task sees, read-only, its input below /manta, the assets below /assets and the tools at /opt/waybill/bin; $HOME is a
folder of the slot, where what `init` made stays. Memory and disk are reserved while the workspace exists.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources as package_files
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.apps.compute.manifest import GIB, MIB, Phase
from waybill.apps.compute.paths import folder_key
from waybill.errors import WaybillError
from waybill.sandbox import (
    Bind,
    Command,
    CommandLimits,
    CommandResult,
    Sandbox,
    SandboxLimits,
    SandboxRefused,
    SandboxSpec,
    SandboxSupport,
)

if TYPE_CHECKING:
    from waybill.apps.compute.settings import ComputeSettings

IDLE_SECONDS = 20.0  # for which an unused workspace is kept
PROCESSES = 256
TOOLS = ("mpipe", "mcat", "mtee", "msplit", "maggr", "muntar")
TOOLS_FOLDER = "/opt/waybill/bin"
HOME, INPUTS, ASSETS = "/home/task", "/manta", "/assets"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class InitFailed(WaybillError):
    """The workspace cannot run tasks, by the fault of the job: an asset is missing, or init failed."""

    code = "refused"


@dataclass(eq=False)
class Workspace:
    key: tuple[str, int]
    folder: Path
    sandbox: Sandbox
    is_sandboxed: bool
    memory: int
    disk: int
    last_used: float = 0.0
    initialised: int = -1  # the start of the sandbox after which init ran
    handle: Callable[[socket.socket], None] | None = None  # of connections of the task that runs now
    _names: Iterator[int] = field(default_factory=lambda: iter(range(10**18)))

    @property
    def home(self) -> str:
        return HOME if self.is_sandboxed else str(self.folder / "home")

    @property
    def url(self) -> str:
        return self.sandbox.handler_url or "http://localhost:80/"

    @property
    def tools(self) -> str:
        return TOOLS_FOLDER if self.is_sandboxed else str(self.folder.parent / "tools")

    def place_input(self, path: str) -> tuple[Path, str]:
        """Where the input of a path is written, and where a task sees it."""
        names = [name if len(name.encode()) <= 255 else f"_{folder_key(name)}" for name in path.split("/") if name]
        place = self.folder.joinpath("inputs", *names)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place, "/".join((INPUTS if self.is_sandboxed else str(self.folder / "inputs"), *names))

    def clear_inputs(self) -> None:
        shutil.rmtree(self.folder / "inputs", ignore_errors=True)
        (self.folder / "inputs").mkdir(exist_ok=True)

    def make_output(self, suffix: str) -> Path:
        return self.folder / "streams" / f"{next(self._names)}.{suffix}"

    def run(self, command: Command, stop: threading.Event | None) -> CommandResult:
        return self.sandbox.run(command, stop)

    def close(self) -> None:
        self.sandbox.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Workspaces:
    """Those of this process. `fetch` writes an object to a file, or raises InitFailed."""

    def __init__(self, support: SandboxSupport, settings: ComputeSettings, root: Path, slot_count: int) -> None:
        self._support = support
        self._root = root
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = support.cgroups.memory_limit() if support.can_run else None
        self.memory = settings.memory or int(min(total, limit or total) * 0.75)
        root.mkdir(parents=True, exist_ok=True)
        self.disk = settings.disk or shutil.disk_usage(root).free // 2
        self._default_memory = min(GIB, self.memory // (slot_count + 1))
        self._default_disk = min(GIB, self.disk // (slot_count + 1))
        self._lock = threading.Condition()
        self._idle: list[Workspace] = []
        self._reserved_memory = self._reserved_disk = 0
        self._number = 0
        self._install_tools()

    def _install_tools(self) -> None:
        folder = self._root / "tools"
        folder.mkdir(exist_ok=True)
        source = package_files.files("waybill.apps.compute.tasks").joinpath("tools", "tool.py").read_bytes()
        (folder / "tool.py").write_bytes(source)
        for name in TOOLS:
            (folder / name).write_text(f'#!/bin/sh\nexec python3 -I "$(dirname "$0")/tool.py" {name} "$@"\n')
            (folder / name).chmod(0o755)

    @property
    def problem(self) -> str:
        """Why no task can run here; empty if they can."""
        return "" if self._support.can_run else self._support.problem

    def find_size(self, phase: Phase) -> tuple[int, int]:
        memory = phase.memory * MIB if phase.memory else self._default_memory
        disk = phase.disk * GIB if phase.disk else self._default_disk
        return memory, disk

    def explain_misfit(self, phase: Phase) -> str:
        """Why a phase can never run here; empty if it can."""
        memory, disk = self.find_size(phase)
        if memory > self.memory:
            return f"it asks for {memory // MIB} MB of memory, and tasks have {self.memory // MIB} MB here"
        if disk > self.disk:
            return f"it asks for {disk // GIB} GB of disk, and tasks have {self.disk // GIB} GB here"
        return ""

    @contextmanager
    def borrow(
        self, key: tuple[str, int], phase: Phase, fetch: Callable[[str, Path], None], must_stop: Callable[[], bool]
    ) -> Iterator[Workspace | None]:
        """A workspace for a phase of a job; None when there is no room now. Raises InitFailed, SandboxRefused."""
        workspace = self._take_idle(key)
        if workspace is None:
            if misfit := self.explain_misfit(phase):
                raise InitFailed(f"phase {key[1]} cannot run: {misfit}")
            memory, disk = self.find_size(phase)
            if not self._reserve(memory, disk):
                yield None
                return
            try:
                workspace = self._open(key, phase, memory, disk, fetch)
            except BaseException:
                self._release(memory, disk)
                raise
        is_sound = False
        try:
            yield workspace
            is_sound = True
        finally:
            workspace.handle = None
            if is_sound:
                self._keep(workspace)
            else:
                self._close(workspace)

    def _take_idle(self, key: tuple[str, int]) -> Workspace | None:
        now = time.monotonic()
        with self._lock:
            found = next((each for each in self._idle if each.key == key), None)
            if found is not None:
                self._idle.remove(found)
            old = [each for each in self._idle if now - each.last_used > IDLE_SECONDS]
            self._idle = [each for each in self._idle if each not in old]
        for each in old:
            self._close(each)
        return found

    def _keep(self, workspace: Workspace) -> None:
        workspace.last_used = time.monotonic()
        with self._lock:
            self._idle.append(workspace)

    def _reserve(self, memory: int, disk: int) -> bool:
        """Reserve, closing idle workspaces of others where there is no room otherwise."""
        while True:
            with self._lock:
                if self._reserved_memory + memory <= self.memory and self._reserved_disk + disk <= self.disk:
                    self._reserved_memory += memory
                    self._reserved_disk += disk
                    return True
                oldest = min(self._idle, key=lambda each: each.last_used, default=None)
                if oldest is None:
                    return False
                self._idle.remove(oldest)
            self._close(oldest)

    def _release(self, memory: int, disk: int) -> None:
        with self._lock:
            self._reserved_memory -= memory
            self._reserved_disk -= disk

    def _close(self, workspace: Workspace) -> None:
        workspace.close()
        self._release(workspace.memory, workspace.disk)

    def close_job(self, job: str) -> None:
        """Close the idle workspaces of a job that is over."""
        with self._lock:
            ended = [each for each in self._idle if each.key[0] == job]
            self._idle = [each for each in self._idle if each not in ended]
        for each in ended:
            self._close(each)

    def _open(
        self, key: tuple[str, int], phase: Phase, memory: int, disk: int, fetch: Callable[[str, Path], None]
    ) -> Workspace:
        with self._lock:
            self._number += 1
            folder = self._root / f"{os.getpid()}-{self._number}"
        folder.mkdir(mode=0o711)
        try:
            for name in ("inputs", "assets", "home", "streams"):
                (folder / name).mkdir(mode=0o755)
            for asset in phase.assets:
                place = folder.joinpath("assets", *(part for part in asset.split("/") if part))
                place.parent.mkdir(parents=True, exist_ok=True)
                fetch(asset, place)
                place.chmod(0o755)
            is_sandboxed = self._support.is_sandboxed
            binds = [
                Bind(folder / "inputs", INPUTS),
                Bind(folder / "assets", ASSETS),
                Bind(self._root / "tools", TOOLS_FOLDER),
                Bind(folder / "home", HOME, writable=True),
            ]
            workspace: Workspace

            def handle(connection: socket.socket) -> None:
                if workspace.handle is not None:
                    workspace.handle(connection)

            limits = SandboxLimits(memory=memory, processes=PROCESSES, disk=disk, output=disk)
            spec = SandboxSpec(binds if is_sandboxed else (), limits=limits, handler=handle)
            sandbox = Sandbox.open(self._support, spec)
            workspace = Workspace(key, folder, sandbox, is_sandboxed, memory, disk)
            return workspace
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for workspace in idle:
            workspace.close()

    def sweep(self) -> None:
        """Remove the folders of processes that were killed."""
        for folder in self._root.iterdir():
            number = folder.name.partition("-")[0]
            if number.isdigit() and not Path("/proc", number).exists():
                shutil.rmtree(folder, ignore_errors=True)


def make_environment(workspace: Workspace, **variables: str) -> Mapping[str, str]:
    return {
        "PATH": f"{workspace.tools}:{SYSTEM_PATH}",
        "HOME": workspace.home,
        "MANTA_URL": workspace.url,
        "MANTA_NO_AUTH": "true",
        **variables,
    }


def run_init(
    workspace: Workspace, command: str, environment: Mapping[str, str], stop: threading.Event, wall: float
) -> str:
    """Run init, once after each start of the sandbox; return how it failed, or empty."""
    if not command or workspace.initialised == workspace.sandbox.start_count:
        workspace.initialised = workspace.sandbox.start_count
        return ""
    out, err = workspace.make_output("out"), workspace.make_output("err")
    try:
        result = workspace.run(
            Command(shell=command, env=environment, stdout=out, stderr=err, limits=CommandLimits(wall=wall)), stop
        )
        if not result.is_success:
            return f"init: {result.describe()}"
        workspace.initialised = workspace.sandbox.start_count
        return ""
    finally:
        out.unlink(missing_ok=True)
        err.unlink(missing_ok=True)


__all__ = ["InitFailed", "SandboxRefused", "Workspace", "Workspaces", "make_environment", "run_init"]
