"""The space hook: a command of the operator that may free space on the working disk."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from waybill.step import StepContext

HOOK_TIMEOUT = 120.0
HOOK_POLL_SECONDS = 0.25
_MAX_LINE_BYTES = 500


def run_space_hook(ctx: StepContext, command: Sequence[str], root: Path, missing_bytes: int) -> None:
    """Run the hook, and log its first line. Safe to repeat: it is run again anyway while records wait."""
    variables = {
        "WAYBILL_DISK_SPACE_NEEDED": str(missing_bytes),  # bytes in addition to those that are free
        "WAYBILL_DISK_SPACE_FOLDER": str(root),
        "WAYBILL_DISK_SPACE_RECORD": str(ctx.record.ref),
    }
    # The command does not get Waybill's own variables, some of which are secrets.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=inherited | variables,
            start_new_session=True,
        )
    except OSError as error:
        ctx.log.warning("the space hook cannot be run: %s", error.strerror or error)
        return
    with process:
        try:
            first_line = _read_first_line(ctx, process)
            code = process.poll()
        finally:
            _kill_process_group(process)
    ctx.log.info("the space hook %s: %s", "was killed" if code is None else f"exited with {code}", first_line)


def _read_first_line(ctx: StepContext, process: subprocess.Popen[bytes]) -> str:
    """The first line of its output, when it has ended, or timed out, or this step must stop."""
    assert process.stdout is not None
    output, until = b"", time.monotonic() + HOOK_TIMEOUT
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < until and not ctx.stop:
            if waiting.get_map() and waiting.select(HOOK_POLL_SECONDS):
                chunk = os.read(process.stdout.fileno(), 65536)
                output = (output + chunk)[:_MAX_LINE_BYTES]
                if not chunk:
                    waiting.unregister(process.stdout)
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(0 if waiting.get_map() else HOOK_POLL_SECONDS)
                break  # a process that it left behind may keep the pipe open
    return output.decode(errors="replace").strip().partition("\n")[0]


def _kill_process_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the hook with all processes that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
