"""What a command gets and what comes back: streams, environment, results, one sandbox for many, stopping."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.sandbox.conftest import run_shell
from waybill.sandbox import Bind, Command, CommandLimits, Sandbox, SandboxSpec


def wait_for(condition, what, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} within {seconds:g} s"
        time.sleep(0.01)


def test_streams_are_files(support, tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    (tmp_path / "in").mkdir(mode=0o755)
    source = tmp_path / "in/text"
    source.write_text("one two\nthree\n")
    with Sandbox.open(support, SandboxSpec(binds=[Bind(tmp_path / "in", "/in")])) as sandbox:
        result = sandbox.run(Command(argv=["wc"], stdin=source, stdout=out, stderr=err))
    assert (result.exit_code, result.signal, result.cause) == (0, None, "")
    assert out.read_text() == " 2  3 14\n"  # narrow columns: wc saw the size of a real file
    assert (result.stdout_bytes, result.stderr_bytes) == (9, 0)
    assert result.wall > 0
    assert result.cpu > 0
    assert result.peak_memory > 1_000_000


def test_a_pipe_as_input(shared, tmp_path):
    read, write = os.pipe()
    os.write(write, b"from a pipe")
    os.close(write)
    shared.run(Command(argv=["cat"], stdin=read, stdout=tmp_path / "out"))
    os.close(read)
    assert (tmp_path / "out").read_text() == "from a pipe"


def test_codes_and_signals(run):
    assert run("exit 7").result.exit_code == 7
    killed = run("kill -TERM $$").result
    assert (killed.exit_code, killed.signal) == (None, signal.SIGTERM)
    assert killed.describe() == "The command was terminated by SIGTERM."


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["no-such-program"], 127, "no-such-program: command not found"),
        (["/no/such"], 127, "/no/such: No such file or directory"),
        (["/etc/hosts"], 126, "/etc/hosts: Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started(shared, tmp_path, argv, code, message):
    result = shared.run(Command(argv=argv, stderr=tmp_path / "err"))
    assert (result.exit_code, result.cause, result.message) == (code, "not started", message)
    assert (tmp_path / "err").read_text() == message + "\n"


def test_environment_and_folder(support, tmp_path):
    with Sandbox.open(support, SandboxSpec(env={"A": "1", "B": "1"})) as sandbox:
        got = run_shell(sandbox, tmp_path, 'echo "$A $B $HOME"; pwd; env | wc -l', env={"B": "2"}, cwd="/usr")
    assert got.out == "1 2 /tmp\n/usr\n9\n"  # ours, and PWD, SHLVL, _ of the shell


def test_folders_are_bound(support, tmp_path):
    (tmp_path / "in").mkdir(mode=0o755)
    (tmp_path / "in/a").write_text("hello")
    (tmp_path / "sink").mkdir()
    binds = [Bind(tmp_path / "in", "/data/in"), Bind(tmp_path / "sink", "/data/sink", writable=True)]
    with Sandbox.open(support, SandboxSpec(binds=binds)) as sandbox:
        got = run_shell(sandbox, tmp_path, "cat /data/in/a > /data/sink/b; echo x > /data/in/a")
        assert "Read-only file system" in got.err
        assert (tmp_path / "sink/b").read_text() == "hello"
        assert (tmp_path / "sink/b").stat().st_uid == sandbox.uid
    assert (tmp_path / "in/a").read_text() == "hello"


def test_one_sandbox_for_many_commands(shared, run):
    before = shared.start_count
    for number in range(20):
        assert run(f"echo {number}").out == f"{number}\n"
    assert shared.start_count == before


def test_output_grows_while_the_command_runs(shared, tmp_path):
    out, stop = tmp_path / "out", threading.Event()
    results = []
    command = Command(shell="echo first; sleep 600", stdout=out)
    thread = threading.Thread(target=lambda: results.append(shared.run(command, stop)))
    thread.start()
    wait_for(lambda: out.exists() and out.read_text() == "first\n", "the first line shows")
    stop.set()
    thread.join(20)
    assert results[0].cause == "stopped"
    assert results[0].describe() == "The command was stopped."


def test_stopping_ends_the_whole_tree(shared, tmp_path, run):
    stop = threading.Event()
    out = tmp_path / "out"
    line = "trap '' TERM INT HUP; setsid sleep 601 & (trap '' TERM; sleep 602) & echo ready; sleep 603"
    results = []
    thread = threading.Thread(target=lambda: results.append(shared.run(Command(shell=line, stdout=out), stop)))
    thread.start()
    wait_for(lambda: out.exists() and "ready" in out.read_text(), "it runs")
    stop.set()
    thread.join(20)
    assert results[0].cause == "stopped"
    assert results[0].signal == signal.SIGKILL
    assert list_sleepers(601, 602, 603) == []


def test_two_threads_take_turns(shared, tmp_path):
    results = []

    def work(number: int) -> None:
        out = tmp_path / f"out-{number}"
        for _ in range(10):
            shared.run(Command(shell=f"echo {number} > /tmp/x; cat /tmp/x; ls /tmp", stdout=out))
            results.append(out.read_text() == f"{number}\nx\n")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 30


def test_closing_ends_what_runs_and_removes_the_folder(support, tmp_path):
    sandbox = Sandbox.open(support, SandboxSpec())
    remains = list(support.settings.folder.iterdir())
    sandbox.close()
    sandbox.close()
    assert len(list(support.settings.folder.iterdir())) == len(remains) - 1


def test_wall_time(run):
    got = run("sleep 600", limits=CommandLimits(wall=0.3))
    assert got.result.cause == "wall"
    assert got.result.describe() == "The command was killed: it used more time than it may."


def list_sleepers(*seconds: int) -> list[str]:
    """Processes of the whole machine that are `sleep N`."""
    wanted = {f"sleep\0{number}\0".encode() for number in seconds}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() in wanted:
                found.append(folder.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
