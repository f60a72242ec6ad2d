"""What is left when the worker, the runner or bubblewrap is killed, and what the next start removes."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.conftest import FIRST_UID, run_shell
from tests.sandbox.test_commands import list_sleepers, wait_for
from waybill.sandbox import MIB, Command, Sandbox, SandboxLost, SandboxSpec, sweep_remains

WORKER = """
import sys
from pathlib import Path
from waybill.config import SandboxSettings
from waybill.sandbox import *
support = find_support(SandboxSettings("required", Path(sys.argv[1]), int(sys.argv[2])))
sandbox = Sandbox.open(support, SandboxSpec(limits=SandboxLimits(disk=int(sys.argv[3]))))
line = "(setsid sleep 651 &); trap '' TERM; sleep 652; true"
sandbox.run(Command(shell=line))
"""


@pytest.mark.parametrize("disk", [8 * MIB, 80 * MIB])
def test_kill_9_of_the_worker_leaves_nothing(support, tmp_path, disk):
    folder = tmp_path / "sandbox"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(folder), str(FIRST_UID), str(disk)], env=environment)
    try:
        wait_for(lambda: len(list_sleepers(651, 652)) == 2, "the command runs", 30)
    finally:
        worker.kill()
        worker.wait()
    wait_for(lambda: not list_sleepers(651, 652), "all processes are gone")
    wait_for(lambda: not list_loop_files(folder), "the image is not in use")
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    ours = [group for group in support.cgroups.list_groups() if f"-{worker.pid}-" in group.name]
    assert bool(ours) == bool(support.cgroups.groups)
    swept = replace_folder(support, folder)
    sweep_remains(swept)
    assert list(folder.iterdir()) == []
    assert not any(group.exists() for group in ours)


def test_the_sweep_leaves_what_is_in_use(support, tmp_path):
    with Sandbox.open(support, SandboxSpec()) as sandbox:
        sweep_remains(support)
        assert run_shell(sandbox, tmp_path, "echo fine").out == "fine\n"
        assert sandbox.start_count == 1
        assert list(support.settings.folder.iterdir())


def test_a_lost_runner(support, tmp_path):
    """The command may be run again: it raises SandboxLost, and the next command has a new sandbox."""
    with Sandbox.open(support, SandboxSpec()) as sandbox:
        killer = threading.Thread(target=kill_runner_when_ready, args=(sandbox, tmp_path / "out"))
        killer.start()
        with pytest.raises(SandboxLost, match="A sandbox ended while its command ran"):
            sandbox.run(Command(shell="echo ready; sleep 661", stdout=tmp_path / "out"))
        killer.join()
        assert list_sleepers(661) == []
        assert run_shell(sandbox, tmp_path, "echo fine").out == "fine\n"
        assert sandbox.start_count == 2


def test_a_runner_that_dies_between_two_commands(support, tmp_path):
    with Sandbox.open(support, SandboxSpec()) as sandbox:
        run_shell(sandbox, tmp_path, "true")
        process = sandbox._process
        assert process is not None
        os.kill(runner_pid_of(process.process.pid), signal.SIGKILL)
        process.process.wait()
        assert run_shell(sandbox, tmp_path, "echo fine").out == "fine\n"


def test_a_runner_that_does_not_answer(support, tmp_path, monkeypatch):
    """Stopped from outside, which no command can do: after the grace the whole sandbox is killed."""
    monkeypatch.setattr("waybill.sandbox.sandbox.GRACE", 0.2)
    with Sandbox.open(support, SandboxSpec()) as sandbox:
        stop = threading.Event()
        results = []
        command = Command(shell="echo ready; sleep 671", stdout=tmp_path / "out")
        thread = threading.Thread(target=lambda: results.append(sandbox.run(command, stop)))
        thread.start()
        wait_for(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text(), "it runs")
        assert sandbox._process is not None
        os.kill(runner_pid_of(sandbox._process.process.pid), signal.SIGSTOP)
        stop.set()
        thread.join(20)
        assert results[0].cause == "stopped"
        assert list_sleepers(671) == []
        monkeypatch.undo()
        assert run_shell(sandbox, tmp_path, "echo fine").out == "fine\n"


def test_the_thread_that_opened_it_may_end(support, tmp_path):
    """bubblewrap ends the sandbox with the thread that started it."""
    opened = []
    thread = threading.Thread(target=lambda: opened.append(Sandbox.open(support, SandboxSpec())))
    thread.start()
    thread.join()
    with opened[0] as sandbox:
        assert run_shell(sandbox, tmp_path, "echo fine").out == "fine\n"
        assert sandbox.start_count == 1


def kill_runner_when_ready(sandbox: Sandbox, out: Path) -> None:
    wait_for(lambda: out.exists() and out.read_text(), "it runs")
    assert sandbox._process is not None
    os.kill(runner_pid_of(sandbox._process.process.pid), signal.SIGKILL)


def runner_pid_of(bubblewrap: int) -> int:
    return int(Path(f"/proc/{bubblewrap}/task/{bubblewrap}/children").read_text().split()[0])


def list_loop_files(folder: Path) -> list[str]:
    files = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            files.append(path.read_text())
        except FileNotFoundError:
            continue
    return [file for file in files if file.startswith(str(folder))]


def replace_folder(support, folder):
    return replace(support, settings=replace(support.settings, folder=folder))
