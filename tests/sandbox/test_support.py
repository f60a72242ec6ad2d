"""What is found at the start, what doctor says of it, and what happens where there is no sandbox."""

import os
import signal
import stat
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.conftest import FIRST_UID, run_shell
from tests.sandbox.test_commands import list_sleepers, wait_for
from waybill.config import SandboxSettings, load
from waybill.sandbox import (
    MIB,
    Bind,
    Command,
    CommandLimits,
    Sandbox,
    SandboxRefused,
    SandboxSpec,
    describe_support,
    find_support,
)  # fmt: skip
from waybill.sandbox.cgroups import CgroupParents, SandboxCgroup, find_cgroups
from waybill.sandbox.seccomp import ARCHITECTURES, build_filter


def test_what_is_in_force_is_described(support, weak):
    lines = list(describe_support(support))
    assert lines[0] == f"bubblewrap {support.version}"
    assert [line.split(":")[0] for line in lines[1:]] == ["memory", "processes", "CPU time", "disk", "uid"]
    lines = list(describe_support(weak))
    assert "memory: RLIMIT_DATA and a watch of the processes" in lines
    assert "disk: RLIMIT_FSIZE and a watch of the folders" in lines


def test_without_bubblewrap_work_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_support(SandboxSettings("required", tmp_path / "sandbox", FIRST_UID))
    assert list(describe_support(found)) == [found.problem]
    with pytest.raises(SandboxRefused, match="bubblewrap is not installed"):
        Sandbox.open(found, SandboxSpec())
    assert not (tmp_path / "sandbox").exists()


def test_where_it_is_forbidden_work_is_refused(monkeypatch, tmp_path):
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(refusing.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = find_support(SandboxSettings("required", tmp_path, FIRST_UID))
    assert found.problem == (
        "There is no sandbox: this machine forbids it (bwrap: No permissions to create new namespace)."
    )
    with pytest.raises(SandboxRefused, match="this machine forbids it"):
        Sandbox.open(found, SandboxSpec())


def test_settings(tmp_path):
    (tmp_path / "waybill.toml").write_text('[sandbox]\nmode = "unsandboxed"\nsystem = ["/opt"]\nfirst_uid = 5000\n')
    settings = load(overrides={"data": tmp_path}).sandbox
    assert settings == SandboxSettings("unsandboxed", tmp_path / "sandbox", 5000, ("/opt",))


def test_further_folders_of_the_system(support, tmp_path):
    with_more = replace(support, settings=replace(support.settings, system=("/var/log",)))
    with Sandbox.open(support, SandboxSpec()) as plain, Sandbox.open(with_more, SandboxSpec()) as sandbox:
        assert run_shell(plain, tmp_path, "ls -d /var/log").out == ""
        assert run_shell(sandbox, tmp_path, "ls -d /var/log").out == "/var/log\n"


# --- without a sandbox, where the settings say so


@pytest.fixture
def unsandboxed(support):
    """Also where bubblewrap would work: the settings decide. Its folder must be one that the commands' user may enter."""
    with tempfile.TemporaryDirectory(prefix="waybill-unsandboxed-") as folder:
        os.chmod(folder, 0o755)
        yield replace(support, settings=replace(support.settings, mode="unsandboxed", folder=Path(folder)))


def test_unsandboxed_commands_run_and_end(unsandboxed, tmp_path):
    assert list(describe_support(unsandboxed)) == [
        "Commands run without a sandbox, because sandbox.mode is unsandboxed."
    ]
    with Sandbox.open(unsandboxed, SandboxSpec(env={"A": "1"})) as sandbox:
        got = run_shell(
            sandbox,
            tmp_path,
            'echo "$A"; echo x > "$TMPDIR/x"; (setsid sleep 681 &); (trap "" TERM; sleep 682) & exit 3',
        )
        assert (got.out, got.result.exit_code) == ("1\n", 3)
        assert list_sleepers(681, 682) == []
        assert run_shell(sandbox, tmp_path, 'ls -A "$TMPDIR"').out == ""
        assert run_shell(sandbox, tmp_path, "sleep 683", limits=CommandLimits(wall=0.3)).result.cause == "wall"
        assert run_shell(sandbox, tmp_path, "yes", limits=CommandLimits(output=1 * MIB)).result.cause == "output"
    assert list(unsandboxed.settings.folder.iterdir()) == []


def test_unsandboxed_commands_can_be_stopped(unsandboxed, tmp_path):
    stop = threading.Event()
    results = []
    with Sandbox.open(unsandboxed, SandboxSpec()) as sandbox:
        command = Command(shell="(setsid sleep 684 &); sleep 685; true")
        thread = threading.Thread(target=lambda: results.append(sandbox.run(command, stop)))
        thread.start()
        wait_for(lambda: len(list_sleepers(684, 685)) == 2, "it runs")
        stop.set()
        thread.join(20)
        assert (results[0].cause, results[0].signal) == ("stopped", signal.SIGKILL)
        assert list_sleepers(684, 685) == []


def test_an_unsandboxed_handler_is_at_another_port(unsandboxed, tmp_path):
    spec = SandboxSpec(handler=lambda connection: connection.sendall(b"from outside"))
    with Sandbox.open(unsandboxed, spec) as sandbox:
        assert sandbox.handler_url is not None
        port = sandbox.handler_url.rstrip("/").rpartition(":")[2]
        assert run_shell(sandbox, tmp_path, f"cat < /dev/tcp/127.0.0.1/{port}").out == "from outside"


def test_folders_cannot_be_shown_elsewhere_without_a_sandbox(unsandboxed, tmp_path):
    with pytest.raises(SandboxRefused, match="without a sandbox, a folder is only where it is"):
        Sandbox.open(unsandboxed, SandboxSpec(binds=[Bind(tmp_path, "/in")]))


# --- control groups


def test_groups_of_version_2_are_found_and_written(tmp_path):
    """On a copy of the files: this machine has its controllers in one version only."""
    tree = tmp_path / "cgroup"
    service = tree / "system.slice/waybill.service"
    (service / "main").mkdir(parents=True)
    for group in (service, service / "main"):
        (group / "cgroup.controllers").write_text("cpu memory pids\n")
        (group / "cgroup.subtree_control").touch()
    (service / "memory.max").write_text("max\n")
    (service / "main/cgroup.subtree_control").unlink()
    (service / "main/cgroup.subtree_control").mkdir()  # busy: cannot be written, as with a process in it
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/system.slice/waybill.service/main\n")
    (proc / "mountinfo").write_text(f"30 24 0:26 / {tree} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n")
    found = find_cgroups(proc)
    assert found == CgroupParents(2, {"memory": service, "pids": service, "cpu": service})
    assert (service / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert found.memory_limit() is None
    group = service / "waybill-1-2-3"
    group.mkdir()
    files = {
        "memory.max": "",
        "memory.swap.max": "",
        "pids.max": "",
        "memory.events": "oom 1\noom_kill 4\n",
        "cpu.stat": "usage_usec 2500000\n",
    }
    for name, text in files.items():
        (group / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "mkdir", lambda *_: None)
        limits = SandboxCgroup(found, group.name, memory=64 * MIB, processes=7)
    assert (group / "memory.max").read_text() == str(64 * MIB)
    assert (group / "memory.swap.max").read_text() == "0"
    assert (group / "pids.max").read_text() == "7"
    assert (limits.count_oom_kills(), limits.read_cpu()) == (4, 2.5)
    assert limits.entry_files == [str(group / "cgroup.procs")]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filters_are_programs(machine):
    """Every jump ends inside the program, and the last instruction returns."""
    program = build_filter(machine)
    assert len(program) % 8 == 0
    count = len(program) // 8
    for index in range(count):
        code, if_true, if_false = (
            int.from_bytes(program[index * 8 : index * 8 + 2], "little"),
            program[index * 8 + 2],
            program[index * 8 + 3],
        )
        if code & 7 == 5:
            assert index + 1 + max(if_true, if_false) < count
    assert program[-8:-6] == b"\x06\x00"
