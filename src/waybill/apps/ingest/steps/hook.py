"""Hook: a command of the operator's that may provide more room on the working disk.

It is run without a shell, in a session of its own, and for a limited time; then it is ended with all that it started.
The environment tells it what is wanted, and holds none of our own settings, some of which are secret.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress

from waybill.apps.ingest.outfit import Outfit
from waybill.step import Context

HOOK_SECONDS = 120.0
LOOK = 0.25
_LONGEST_LINE = 500


def run_hook(ctx: Context, outfit: Outfit, missing: int) -> None:
    """Run it, and log its first line. Safe to repeat: it is run again anyway, as long as somebody waits."""
    command = outfit.settings.room.hook
    told = {
        "WAYBILL_ROOM_NEEDED": str(missing),  # bytes, beyond what is free
        "WAYBILL_ROOM_FOLDER": str(outfit.depot.config.work.root),
        "WAYBILL_ROOM_JOB": ctx.record.id,
    }
    # Our own settings, and the secrets among them, are no business of the command.
    around = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=around | told,
            start_new_session=True,
        )
    except OSError as error:
        ctx.log.warning("the command for more room cannot be run: %s", error.strerror or error)
        return
    with process:
        try:
            said = _first_line(ctx, process)
            code = process.poll()
        finally:
            _end(process)
    ctx.log.info("the command for more room %s: %s", "was ended" if code is None else f"answered {code}", said)


def _first_line(ctx: Context, process: subprocess.Popen[bytes]) -> str:
    """What it says first, once it has ended, or its time is over, or ours."""
    assert process.stdout is not None
    head, until = b"", time.monotonic() + HOOK_SECONDS
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < until and not ctx.stop:
            if waiting.get_map() and waiting.select(LOOK):
                portion = os.read(process.stdout.fileno(), 65536)
                head = (head + portion)[:_LONGEST_LINE]
                if not portion:
                    waiting.unregister(process.stdout)
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(0 if waiting.get_map() else LOOK)
                break  # it may have left somebody behind who holds its output
    return head.decode(errors="replace").strip().partition("\n")[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
