"""A container image, run by podman or docker: the same folders as a command has, at the same places, and the same variables.

The container has a name of its own, the attempt's: whatever becomes of this process, `sweep_containers` of the next start
finds and removes it. Without `network` it has none.
"""

from __future__ import annotations

import os
import re
import subprocess
import time

from waybill.apps.lots.workloads.command import INSIDE
from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed
from waybill.apps.lots.workloads.properties import build_environment
from waybill.apps.lots.workloads.results import WorkloadResult

POLL = 0.1  # seconds
KILL_TIMEOUT = 30.0
NAME_PREFIX = "waybill-lots-"


def run_container(work: PartWork, program: str) -> WorkloadResult:
    if not program:
        raise WorkloadFailed("Neither podman nor docker is found on this host; install one, or run a command instead.")
    work.seen_folder = INSIDE
    with work.make_folders():
        arguments, name = build_arguments(work, program)
        with work.stdout.open("wb") as out, work.stderr.open("wb") as err:
            process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                env={**os.environ, **build_environment(work)},
            )  # fmt: skip
            try:
                return _wait(work, process, program, name)
            finally:
                if process.poll() is None:
                    _kill(process, program, name)


def build_arguments(work: PartWork, program: str) -> tuple[list[str], str]:
    """Return the command line, and the name of the container. Values are passed by the environment: a command line can be
    read by anybody on the host.
    """
    declared = work.arc.workload
    name = NAME_PREFIX + re.sub(r"[^A-Za-z0-9_.-]", "-", f"{work.arc.id}-{work.part.lot}-{work.attempt.id}")
    folder = work.folder
    volumes = [
        f"{folder}/sources:{INSIDE}/sources:ro",
        f"{folder}/manifests:{INSIDE}/manifests:ro",
        f"{folder}/sinks:{INSIDE}/sinks",
        f"{folder}/sink-manifests:{INSIDE}/sink-manifests",
    ]
    arguments = [program, "run", "--rm", "--name", name, "--network", "host" if declared.network else "none",
                 "--memory", str(declared.memory), "--pids-limit", "256", "--workdir", INSIDE]  # fmt: skip
    for volume in volumes:
        arguments += ["--volume", volume]
    for variable in build_environment(work):
        arguments += ["--env", variable]
    return [*arguments, declared.image, *declared.command], name


def _wait(work: PartWork, process: subprocess.Popen[bytes], program: str, name: str) -> WorkloadResult:
    deadline = time.monotonic() + work.arc.workload.timeout
    while True:
        try:
            code = process.wait(POLL)
        except subprocess.TimeoutExpired:
            if work.must_stop():
                _kill(process, program, name)
                raise InterruptedError("told to stop") from None
            if time.monotonic() >= deadline:
                _kill(process, program, name)
                return WorkloadResult("The container was killed: it used more time than it may.")
            continue
        if code == 0:
            return WorkloadResult("", 0)
        if code < 0:
            return WorkloadResult(f"{program} was terminated by signal {-code}.", None)
        return WorkloadResult(f"The container exited with code {code}.", code)


def _kill(process: subprocess.Popen[bytes], program: str, name: str) -> None:
    subprocess.run([program, "kill", name], capture_output=True, timeout=KILL_TIMEOUT, check=False)
    process.kill()
    process.wait()
