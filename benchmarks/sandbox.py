"""What a sandbox costs: commands in one, beside the same commands started by a bare loop.

sandbox.commands.program   `wc` of a small file, three redirected files, a session of its own; one after the other
sandbox.commands.shell     the same by `bash -c`
sandbox.start              opening a sandbox, until its runner is ready; median

The loop is `posix_spawn` and `wait4` in this process, with the same files opened and closed each time. It has no limits,
kills nothing that is left and empties no /tmp.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.figure import Figure
from waybill.config import SandboxSettings
from waybill.sandbox import Bind, Command, Sandbox, SandboxSpec, find_support

ROUNDS = 5
FIRST_UID = 1_900_000_000
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
CASES: dict[str, Sequence[str]] = {"program": ("wc",), "shell": ("bash", "--norc", "-c", "wc")}


def commands(effort: Effort) -> Iterator[Figure]:
    count = effort.pick(1_000, 10) // ROUNDS
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "in").mkdir(mode=0o755)
        source = folder / "in/text"
        source.write_text("a few words\n" * 100)
        streams = (source, folder / "out", folder / "err")
        support = find_support(SandboxSettings("required", folder / "sandbox", FIRST_UID))
        spec = SandboxSpec(binds=[Bind(folder / "in", "/in")])
        with Sandbox.open(support, spec) as sandbox:
            for case, argv in CASES.items():
                command = Command(argv, stdin=streams[0], stdout=streams[1], stderr=streams[2])
                ours: list[float] = []
                bare: list[float] = []
                for _ in range(ROUNDS):
                    bare.append(_rate_of(partial(run_bare, argv, streams), count))
                    ours.append(_rate_of(partial(sandbox.run, command), count))
                note = f"{count * ROUNDS} commands, medians of {ROUNDS} rounds; {' '.join(argv)}"
                rates = statistics.median(ours), statistics.median(bare)
                yield Figure(f"sandbox.commands.{case}", rates[0], "commands/s", rates[1], 0.7, note=note)
        times = []
        for _ in range(effort.pick(20, 2)):
            began = time.perf_counter()
            with Sandbox.open(support, spec):
                times.append(time.perf_counter() - began)
        yield Figure("sandbox.start", statistics.median(times) * 1000, "ms")


def _rate_of(run: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        run()
    return count / (time.perf_counter() - began)


def run_bare(argv: Sequence[str], streams: Sequence[Path]) -> None:
    source, *outputs = streams
    files = [
        os.open(source, os.O_RDONLY),
        *(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for path in outputs),
    ]
    redirected = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files)]
    pid = os.posix_spawn(f"/usr/bin/{argv[0]}", list(argv), ENVIRONMENT, file_actions=redirected, setsid=True)
    _, status, _ = os.wait4(pid, 0)
    for file in files:
        os.close(file)
    if status:
        raise RuntimeError(f"{argv[0]} ended with status {status}.")
