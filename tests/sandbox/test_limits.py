"""Limits where the kernel does not enforce them for the whole tree, larger disks, and limits that are refused."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.conftest import PYTHON_BIND, PYTHON_ENV, run_code, run_shell
from waybill.sandbox import GIB, MIB, Bind, Command, CommandLimits, Sandbox, SandboxLimits, SandboxRefused, SandboxSpec


def test_the_watch_of_memory(weak, tmp_path):
    spec = SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, limits=SandboxLimits(memory=64 * MIB))
    with Sandbox.open(weak, spec) as sandbox:
        assert "MemoryError" in run_code(sandbox, tmp_path, "x = bytearray(1 << 30)").err  # RLIMIT_DATA
        used = 'x = b"x" * (100 << 20); import time; time.sleep(600)'
        assert run_code(sandbox, tmp_path, used).result.cause == "memory"
        many = """
            for _ in range(6):
                if os.fork() == 0:
                    x = bytearray(15 << 20)
                    import time; time.sleep(600)
            import time; time.sleep(600)
        """
        assert run_code(sandbox, tmp_path, many).result.cause == "memory"
        assert sandbox.start_count == 1


def test_the_watch_of_cpu_time(weak, tmp_path):
    with Sandbox.open(weak, SandboxSpec()) as sandbox:
        line = "for i in 1 2; do (while :; do :; done) & done; wait"
        got = run_shell(sandbox, tmp_path, line, limits=CommandLimits(wall=60, cpu=0.5))
        assert got.result.cause == "cpu"
        assert got.result.cpu >= 0.4


def test_processes_without_a_group(weak, tmp_path):
    spec = SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, limits=SandboxLimits(processes=5))
    count = """
        for children in range(10):
            try:
                if os.fork() == 0:
                    import time; time.sleep(600)
            except OSError as error:
                print(children, errno.errorcode[error.errno])
                break
    """
    with Sandbox.open(weak, spec) as sandbox:
        assert run_code(sandbox, tmp_path, count).out == "4 EAGAIN\n"


def test_the_watch_of_disk(weak, tmp_path):
    (tmp_path / "sink").mkdir()
    binds = [Bind(tmp_path / "sink", "/sink", writable=True)]
    with Sandbox.open(weak, SandboxSpec(binds=binds, limits=SandboxLimits(disk=80 * MIB))) as sandbox:
        for folder in ("/sink", "/tmp"):
            line = (
                f"mkdir -p {folder}/a/b; for i in 1 2 3 4; do head -c 30M /dev/zero > {folder}/a/b/$i; done; sleep 600"
            )
            assert run_shell(sandbox, tmp_path, line).result.cause == "disk"
            run_shell(sandbox, tmp_path, "rm -rf /sink/*")
        one = run_shell(sandbox, tmp_path, "head -c 100M /dev/zero > /sink/x")
        assert "File size limit exceeded" in one.err or "File too large" in one.err or one.result.cause == "disk"
        assert (tmp_path / "sink/x").stat().st_size <= 80 * MIB
        run_shell(sandbox, tmp_path, "rm -rf /sink/*")
        hidden = run_shell(
            sandbox, tmp_path, "mkdir /sink/a; head -c 1M /dev/zero > /sink/a/x; chmod 0 /sink/a; sleep 600"
        )
        assert hidden.result.cause == "disk"  # what cannot be measured counts as too much


def test_a_large_disk(support, tmp_path):
    """A loop image, with root: the kernel enforces its size, and its file is gone while it is in use."""
    with Sandbox.open(support, SandboxSpec(limits=SandboxLimits(disk=100 * MIB, memory=128 * MIB))) as sandbox:
        line = "for i in $(seq 6); do head -c 20M /dev/zero > /tmp/$i || break; done; du -sm /tmp; stat -f -c %T /tmp"
        got = run_shell(sandbox, tmp_path, line)
        if support.has_loop_images:
            assert "No space left on device" in got.err
            assert int(got.out.split()[0]) <= 100
            assert not list(support.settings.folder.glob("*/image"))
        assert run_shell(sandbox, tmp_path, "ls -A /tmp").out == ""


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (SandboxLimits(memory=1 * MIB), "a sandbox needs at least"),
        (SandboxLimits(memory=10**15), "this machine can give"),
        (SandboxLimits(processes=0), "The limit processes is 0; it must be more than 0."),
        (SandboxLimits(disk=-1), "The limit disk is -1"),
        (SandboxLimits(disk=10**15), "are free in"),
        (SandboxLimits(open_files=10**9), "RLIMIT_NOFILE of this process allows"),
        (SandboxLimits(core=-1), "The limit core is -1"),
    ],
)
def test_limits_that_cannot_be_met(support, limits, sentence):
    before = snapshot(support)
    with pytest.raises(SandboxRefused, match=sentence):
        Sandbox.open(support, SandboxSpec(limits=limits))
    assert snapshot(support) == before


def test_a_disk_that_does_not_fit_when_it_is_made(support, monkeypatch):
    """Another sandbox may take the space between the check and the reservation."""
    before = snapshot(support)
    monkeypatch.setattr("waybill.sandbox.sandbox._check_machine", lambda *_: None)
    with pytest.raises(SandboxRefused, match=r"A disk of \d+ bytes cannot be had in .*: File too large\."):
        Sandbox.open(replace(support, has_loop_images=True), SandboxSpec(limits=SandboxLimits(disk=10**15)))
    assert snapshot(support) == before


@pytest.mark.parametrize(
    ("make_bind", "sentence"),
    [
        (lambda folder: Bind(folder / "missing", "/x"), "does not exist"),
        (lambda folder: Bind(folder, "x"), "it must be an absolute, plain path"),
        (lambda folder: Bind(folder, "/a/../x"), "it must be an absolute, plain path"),
        (lambda folder: Bind(folder, "/proc/x"), "/proc belongs to the sandbox"),
        (lambda folder: Bind(folder, "/tmp"), "/tmp belongs to the sandbox"),
        (
            lambda folder: Bind(Path("/usr"), "/x", writable=True),
            "/usr belongs to the system and is never bound writable",
        ),
        (lambda folder: Bind(folder / "file", "/x", writable=True), "only folders can be bound writable"),
        (lambda folder: Bind(folder / "closed", "/x"), "the user of the sandbox may not read /x"),
    ],
)
def test_folders_that_are_refused(support, tmp_path, make_bind, sentence):
    (tmp_path / "file").touch()
    (tmp_path / "closed").mkdir(mode=0o700 if support.is_root else 0)
    before = snapshot(support)
    with pytest.raises(SandboxRefused, match=sentence):
        Sandbox.open(support, SandboxSpec(binds=[make_bind(tmp_path)]))
    assert snapshot(support) == before


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (Command(), "either argv, which is not empty, or shell"),
        (Command(argv=["x"], shell="x"), "either argv, which is not empty, or shell"),
        (Command(argv=[""]), "has a name"),
        (Command(argv=["x\0y"]), "zero byte"),
        (Command(shell="x", env={"A=B": "1"}), "'A=B' is no variable"),
        (Command(shell="x" * 200_000), "Arguments and environment have 2000.. bytes together"),
        (Command(shell="x", cwd="tmp"), "The current folder of a command is 'tmp'"),
        (Command(shell="x", limits=CommandLimits(wall=0)), "must be more than 0 seconds"),
        (Command(shell="x", limits=CommandLimits(output=GIB)), "its sandbox allows from 1 to"),
        (Command(shell="x", stdout=Path("/no/such/folder/out")), "/no/such/folder/out cannot be opened: No such file"),
    ],
)
def test_commands_that_are_refused(shared, command, sentence):
    with pytest.raises(SandboxRefused, match=sentence):
        shared.run(command)


def test_streams_that_are_refused(support, tmp_path):
    (tmp_path / "sink").mkdir()
    read, write = os.pipe()
    terminal, other = os.openpty()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with Sandbox.open(support, SandboxSpec(binds=[Bind(tmp_path / "sink", "/sink", writable=True)])) as sandbox:
        for command, sentence in [
            (Command(shell="x", stdout=write), "are files: no pipe, no terminal"),
            (Command(shell="x", stdout=terminal), "are files: no pipe, no terminal"),
            (Command(shell="x", stdin=other), "never a folder or a terminal"),
            (Command(shell="x", stdout=tmp_path / "sink/out"), "lies in a folder that the command can change"),
            (Command(shell="x", stdout=tmp_path / "link"), "link cannot be opened: Too many levels of symbolic links"),
        ]:
            with pytest.raises(SandboxRefused, match=sentence):
                sandbox.run(command)
    for descriptor in (read, write, terminal, other):
        os.close(descriptor)
    assert not (tmp_path / "target").exists()


def snapshot(support) -> tuple[list[Path], list[Path]]:
    """What a refused sandbox could have left: folders and control groups of this process."""
    ours = f"-{os.getpid()}-"
    groups = [group for group in support.cgroups.list_groups() if ours in group.name]
    return sorted(support.settings.folder.iterdir()), sorted(groups)
