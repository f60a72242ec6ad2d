"""A command in the sandbox: the sources bound read-only, the sinks writable, no network unless the arc asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed
from waybill.apps.lots.workloads.properties import build_environment
from waybill.apps.lots.workloads.results import WorkloadResult
from waybill.sandbox import (
    MIB,
    Bind,
    Command,
    CommandLimits,
    Sandbox,
    SandboxLimits,
    SandboxRefused,
    SandboxSpec,
    SandboxSupport,
)

INSIDE = "/work"
STOP_INTERVAL = 0.2  # seconds between two looks at whether the step must stop
PROCESSES = 256
OUTPUT = 64 * MIB  # bytes that a command may write to a stream


def run_command(work: PartWork, support: SandboxSupport) -> WorkloadResult:
    """Run the command of an arc; returns when all its processes are dead. Raises SandboxLost, SandboxRefused."""
    if not support.can_run:
        raise SandboxRefused(support.problem)
    declared = work.arc.workload
    work.seen_folder = INSIDE if support.is_sandboxed else str(work.folder)
    with work.make_folders():
        binds = [
            Bind(work.folder / "sources", f"{INSIDE}/sources"),
            Bind(work.folder / "manifests", f"{INSIDE}/manifests"),
            Bind(work.folder / "sink-manifests", f"{INSIDE}/sink-manifests", writable=True),
            *(Bind(work.sink(role), f"{INSIDE}/sinks/{role}", writable=True) for role in work.sink_datasets),
        ]
        limits = SandboxLimits(memory=declared.memory, processes=PROCESSES, disk=declared.disk, output=OUTPUT)
        spec = SandboxSpec(binds if support.is_sandboxed else (), network=declared.network, limits=limits)
        is_line = len(declared.command) == 1
        command = Command(
            argv=() if is_line else declared.command,
            shell=declared.command[0] if is_line else None,
            env=build_environment(work),
            cwd=INSIDE if support.is_sandboxed else str(work.folder),
            stdout=work.stdout,
            stderr=work.stderr,
            limits=CommandLimits(wall=declared.timeout),
        )
        with Sandbox.open(support, spec) as sandbox, watch_stop(work.must_stop) as stop:
            result = sandbox.run(command, stop)
    if result.cause == "stopped":
        raise InterruptedError("told to stop")
    return WorkloadResult("" if result.is_success else result.describe(), result.exit_code)


@contextmanager
def watch_stop(must_stop: Callable[[], bool]) -> Iterator[threading.Event]:
    """An event that is set when the step must stop: the claim is lost, or the worker ends."""
    stop, is_over = threading.Event(), threading.Event()

    def watch() -> None:
        while not is_over.wait(STOP_INTERVAL):
            if must_stop():
                stop.set()
                return

    thread = threading.Thread(target=watch, name="waybill-lots-stop", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        is_over.set()
        thread.join()


__all__ = ["WorkloadFailed", "run_command", "watch_stop"]
