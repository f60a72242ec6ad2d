"""The corpus of escapes: what a command may try against the runner, the host, other users and the next command.

Each is refused, or undone before the next command; afterwards the same sandbox still runs commands.
`test_without_root.py` runs this file again as an unprivileged user.
"""

import os
import socket
import threading
from pathlib import Path

import pytest

from tests.sandbox.conftest import PYTHON, PYTHON_BIND, PYTHON_ENV, run_code, run_shell
from tests.sandbox.test_commands import list_sleepers
from waybill.sandbox import MIB, Bind, Command, CommandLimits, Sandbox, SandboxLimits, SandboxSpec

# --- processes


def test_fork_bomb(shared, run, run_python):
    counted = run_python(
        """
        children = 0
        while True:
            try:
                if os.fork() == 0:
                    import time; time.sleep(600)
            except OSError as error:
                print(children, errno.errorcode[error.errno])
                break
            children += 1
        """
    )
    count, error = counted.out.split()
    assert 50 <= int(count) <= 64
    assert error == "EAGAIN"
    assert run(":(){ :|:& };: ; sleep 600", limits=CommandLimits(wall=1)).result.cause == "wall"
    assert run("ps -A --no-headers -o comm").out.split()[1:] == ["ps"]  # after the runner
    assert shared.start_count == 1


def test_orphans_and_daemons(run):
    line = "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 611 & sleep 612' </dev/null >/dev/null 2>&1 &) ; echo done"
    assert run(line).out == "done\n"
    assert list_sleepers(611, 612) == []


def test_orphans_do_not_use_up_the_processes(run):
    """Each ends at once, as a child of the runner, which must wait for it while the command runs."""
    got = run("for i in $(seq 300); do (true &); [ $((i % 30)) = 0 ] && sleep 0.1; done; echo done")
    assert (got.out, got.err) == ("done\n", "")


def test_signals_to_the_runner(shared, run):
    got = run("kill -9 1; kill -STOP 1; kill -TERM 1; kill -CHLD 1; kill -HUP 1; kill -USR1 1; echo still here")
    assert got.out == "still here\n"
    run("kill -9 -1")
    assert run("echo again").out == "again\n"
    assert shared.start_count == 1


def test_a_command_that_stops_itself(run):
    assert run("kill -STOP 0; echo never", limits=CommandLimits(wall=0.5)).result.cause == "wall"


def test_the_runner_cannot_be_traced_read_or_limited(shared, run_python):
    got = run_python(
        """
        PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
        for request in PTRACE_ATTACH, PTRACE_SEIZE:
            ctypes.set_errno(0)
            print("ptrace", libc.ptrace(request, 1, None, None), errno.errorcode[ctypes.get_errno()])
        buffer = ctypes.create_string_buffer(8)
        vector = struct.pack("QQ", ctypes.addressof(buffer), 8)
        ctypes.set_errno(0)
        print("read", libc.process_vm_readv(1, vector, 1, struct.pack("QQ", id(0), 8), 1, 0), errno.errorcode[ctypes.get_errno()])
        pidfd = os.pidfd_open(1)
        for descriptor in range(8):
            assert call(438, pidfd, descriptor, 0) == "EPERM"
        for name in "mem", "environ", "fd", "maps", "cwd", "root", "auxv", "stack":
            try:
                os.listdir(f"/proc/1/{name}") if name in ("fd", "cwd", "root") else open(f"/proc/1/{name}", "rb").read(1)
            except OSError as error:
                assert error.errno in (errno.EACCES, errno.EPERM), (name, error)
            else:
                print(name, "was read")
        for resource in 0, 6, 7:  # RLIMIT_CPU, RLIMIT_NPROC, RLIMIT_NOFILE
            ctypes.set_errno(0)
            print("prlimit", libc.prlimit(1, resource, struct.pack("QQ", 0, 0), None), errno.errorcode[ctypes.get_errno()])
        print("affinity", attempt(os.sched_setaffinity, 1, {0}))
        print("scheduler", attempt(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0)))
        """
    )
    assert got.err == ""
    assert got.out.split("\n") == [
        "ptrace -1 EPERM",
        "ptrace -1 EPERM",
        "read -1 EPERM",
        "prlimit -1 EPERM",
        "prlimit -1 EPERM",
        "prlimit -1 EPERM",
        "affinity EPERM",
        "scheduler EPERM",
        "",
    ]
    assert shared.start_count == 1


def test_no_file_descriptor_is_inherited(run_python):
    got = run_python(
        'print(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1], os.listdir("/proc/self/task") != [])'
    )
    assert got.out == "[0, 1, 2] True\n"


def test_only_its_own_processes_show(run):
    assert run("ls /proc | grep -c '^[0-9]'; ls -d /proc/[0-9]* | head -1").out.splitlines()[-1] == "/proc/1"
    got = run(f"ls /proc/{os.getpid()} 2>&1 | head -1; kill -0 {os.getpid()} || echo unreachable")
    assert "unreachable" in got.out


# --- privileges


def test_no_privilege_is_left_or_gained(run, run_python):
    status = dict(line.split(":\t", 1) for line in run("cat /proc/self/status").out.splitlines() if ":\t" in line)
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert len(set(status["Uid"].split())) == 1
    assert int(status["Uid"].split()[0]) != 0
    got = run_python(
        """
        changes = [(os.setuid, 0), (os.seteuid, 0), (os.setgid, 0), (os.setresuid, 0, 0, 0), (os.setgroups, [0])]
        for function, *arguments in (*changes, (os.mknod, "/tmp/disk", 0o60666, os.makedev(254, 0))):
            if attempt(function, *arguments) not in ("EPERM", "EINVAL"):  # EINVAL: no such user in this namespace
                print(function, "is allowed")
        """
    )
    assert (got.out, got.err) == ("", "")


def test_system_calls_that_are_refused(run_python):
    got = run_python(
        """
        NEWUSER, NEWNS, TIOCSTI = 0x10000000, 0x20000, 0x5412
        calls = {
            "unshare": (272, NEWUSER), "unshare mounts": (272, NEWNS), "clone": (56, NEWUSER | 17, 0, 0, 0, 0),
            "mount": (165, 0, 0, 0, 0, 0), "fsopen": (430, b"tmpfs", 0), "open_tree": (428, -100, b"/", 1), "chroot": (161, b"/tmp"),
            "setns": (308, 0, 0), "keyctl": (250, 0, -4, 1), "add_key": (248, b"user", b"x", b"y", 1, -4), "bpf": (321, 0, 0, 0),
            "io_uring": (425, 1, 0), "userfaultfd": (323, 0), "perf": (298, 0, 0, -1, -1, 0), "handle": (304, -1, 0, 0),
            "tiocsti": (16, 0, TIOCSTI, b"x"), "tiocsti, upper half": (16, 0, TIOCSTI | 1 << 32, b"x"), "tioclinux": (16, 0, 0x541C, b"x"),
            "mq_open": (240, b"x", os.O_CREAT | os.O_RDWR, 0o600, 0),
        }
        for name, arguments in calls.items():
            answer = call(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
            if answer != "EPERM":
                print(name, answer)
        print("clone3", call(435, 0, 0))
        """
    )
    assert (got.out, got.err) == ("clone3 ENOSYS\n", "")


def test_there_is_no_terminal(run, run_python):
    assert run("echo x > /dev/tty; ls /dev").out.split() == [
        "fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero",
    ]  # fmt: skip
    assert "ENXIO" in run_python('print(attempt(os.open, "/dev/ptmx", os.O_RDWR), "ENXIO")').out
    assert (
        run_python("print(os.getsid(0) == os.getpid(), os.tcgetpgrp(0) if os.isatty(0) else None)").out == "True None\n"
    )


# --- the host and other users


def test_the_system_is_read_only(run):
    targets = [
        "/x",
        "/usr/x",
        "/usr/bin/x",
        "/etc/passwd",
        "/etc/x",
        "/dev/x",
        "/run/x",
        "/var/x",
        "/python/x",
        "/proc/sys/kernel/core_pattern",
    ]
    for target in targets:
        got = run(f"echo x > {target}")
        assert got.result.exit_code == 1, target
        assert "Read-only file system" in got.err or "Permission denied" in got.err, target
    assert run("rm -rf /usr/bin /etc 2>/dev/null; ls /usr/bin/wc").out == "/usr/bin/wc\n"


def test_files_of_the_host_do_not_show(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of another user")
    secret.chmod(0o644)
    places = [
        secret,
        "/etc/shadow",
        "/etc/ssh",
        "/home",
        "/sys",
        "/var/lib",
        Path(__file__),
        "/proc/1/root/etc",
        "/root/.ssh",
        "/boot",
    ]
    for place in places:
        got = run(f"ls -d {place} && cat {place}")
        assert got.result.exit_code != 0, place


def test_files_of_another_user_in_a_bound_folder(support, tmp_path):
    (tmp_path / "in").mkdir(mode=0o755)
    (tmp_path / "in/private").write_text("private")
    (tmp_path / "in/private").chmod(0o600 if support.is_root else 0)
    with Sandbox.open(support, SandboxSpec(binds=[Bind(tmp_path / "in", "/in")])) as sandbox:
        got = run_shell(sandbox, tmp_path, "cat /in/private; chmod 644 /in/private; cat /in/private")
    assert got.out == ""


def test_links_lead_nowhere(support, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of another user")
    (tmp_path / "sink").mkdir()
    with Sandbox.open(support, SandboxSpec(binds=[Bind(tmp_path / "sink", "/sink", writable=True)])) as sandbox:
        line = f"cd /sink; ln -s {secret} a; ln -s ../secret b; ln -s /proc/1/root c; cat a b; ls c/; ln -L /proc/self/fd/1 d"
        got = run_shell(sandbox, tmp_path, line)
        assert got.out == ""
        assert sorted(path.name for path in (tmp_path / "sink").iterdir()) == ["a", "b", "c"]


def test_the_input_cannot_be_changed(support, tmp_path):
    """Its descriptor is open for reading only; /proc/self/fd/0 and fchmod would reach the file of its owner."""
    (tmp_path / "in").mkdir(mode=0o755)
    source = tmp_path / "in/object"
    source.write_text("stored")
    spec = SandboxSpec(binds=[Bind(tmp_path / "in", "/in"), PYTHON_BIND], env=PYTHON_ENV)
    code = """import os
for attempt in (
    lambda: os.write(0, b"x"), lambda: os.fchmod(0, 0o666), lambda: os.open("/proc/self/fd/0", os.O_RDWR),
    lambda: os.truncate("/proc/self/fd/0", 0),
    lambda: os.utime(0), lambda: os.setxattr(0, "user.x", b"y"),
    lambda: os.link("/proc/self/fd/0", "/tmp/x", follow_symlinks=True),
):
    try:
        attempt()
        print("changed")
    except OSError as error:
        pass
"""
    with Sandbox.open(support, spec) as sandbox:
        result = sandbox.run(
            Command([PYTHON, "-I", "-S", "-c", code], stdin=source, stdout=tmp_path / "out", stderr=tmp_path / "err")
        )
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text(), result.exit_code) == ("", "", 0)
    assert source.read_text() == "stored"


def test_no_network(run_python):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        name = f"\0waybill-test-{os.getpid()}"
        unix.bind(name)
        unix.listen()
        got = run_python(
            f"""
            print(attempt(socket.create_connection, ("127.0.0.1", {server.getsockname()[1]})))
            print(attempt(socket.create_connection, ("192.0.2.1", 80), 5))
            print(attempt(socket.socket(socket.AF_UNIX).connect, {name!r}))
            print([name for _, name in socket.if_nameindex()])
            """
        )
    assert got.out == "ECONNREFUSED\nENETUNREACH\nECONNREFUSED\n['lo']\n"


# --- the next command


@pytest.mark.parametrize(
    "line",
    [
        "echo x > /tmp/x; echo x > /dev/shm/x; echo x > /var/tmp/y; mkfifo /tmp/p; ln -s / /tmp/root",
        "mkdir -p /tmp/a/b/c; touch /tmp/a/b/c/d; chmod 0 /tmp/a/b/c /tmp/a/b /tmp/a",
        "mkdir -m 1777 /tmp/sticky; touch /tmp/sticky/x; chmod 1555 /tmp/sticky",
        f"""cd /tmp; {PYTHON} -I -S -c 'import os; [(os.mkdir("d"), os.chdir("d")) for _ in range(5000)]'""",
        "cd /tmp; seq 300 | xargs touch; mkdir -p .hidden/..x; touch '.hidden/a\nb' -- -rf",
    ],
)
def test_nothing_is_left_in_tmp(shared, run, line):
    assert run(line + "; true").result.exit_code == 0
    assert run("find /tmp /dev/shm -mindepth 1").out == ""
    assert shared.start_count == 1


def test_what_cannot_be_emptied_quickly_costs_the_sandbox(support, tmp_path):
    with Sandbox.open(support, SandboxSpec()) as sandbox:
        run_shell(sandbox, tmp_path, "cd /tmp; seq 25000 | xargs touch")
        assert run_shell(sandbox, tmp_path, "find /tmp -mindepth 1 | wc -l").out == "0\n"
        assert sandbox.start_count == 2


def test_no_shared_memory_is_left(support, tmp_path):
    make = (
        "print(libc.shmget(4711, 4096, 0o1666) >= 0, libc.semget(4712, 1, 0o1666) >= 0, libc.msgget(4713, 0o1666) >= 0)"
    )
    find = "print(libc.shmget(4711, 4096, 0) >= 0, libc.semget(4712, 1, 0) >= 0, libc.msgget(4713, 0) >= 0)"
    with Sandbox.open(support, SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV)) as sandbox:
        assert run_code(sandbox, tmp_path, make).out == "True True True\n"
        assert run_code(sandbox, tmp_path, find).out == "False False False\n"


def test_nothing_listens_on_for_the_next_command(run, run_python):
    run_python(
        """
        if os.fork() == 0:
            os.setsid()
            server = socket.create_server(("127.0.0.1", 4714)); server.accept()
        import time; time.sleep(0.3)
        """
    )
    assert run_python('print(attempt(socket.create_connection, ("127.0.0.1", 4714)))').out == "ECONNREFUSED\n"


# --- what is filled


def test_a_full_disk(support, tmp_path):
    with Sandbox.open(support, SandboxSpec(limits=SandboxLimits(disk=8 * MIB, output=32 * MIB))) as sandbox:
        got = run_shell(
            sandbox,
            tmp_path,
            "head -c 16M /dev/zero > /tmp/x; ls -s --block-size=1 /tmp/x; head -c 32M /dev/zero > /dev/shm/x",
        )
        assert got.err.count("No space left on device") == 2
        assert int(got.out.split()[0]) <= 8 * MIB
        assert run_shell(sandbox, tmp_path, "echo fine").out == "fine\n"


def test_endless_output(run, tmp_path):
    got = run("yes", limits=CommandLimits(wall=30, output=1 * MIB))
    assert got.result.cause == "output"
    assert got.result.stdout_bytes == (tmp_path / "out").stat().st_size == 1 * MIB
    assert run("yes >&2", limits=CommandLimits(wall=30, output=1 * MIB)).result.cause == "output"
    assert run("yes").result.cause == "output"  # the limit of the sandbox: RLIMIT_FSIZE
    assert (tmp_path / "out").stat().st_size == 64 * MIB


def test_a_hole_is_output_too(run_python):
    got = run_python("os.ftruncate(1, 32 << 20)", limits=CommandLimits(wall=30, output=1 * MIB))
    assert (got.result.cause, got.result.stdout_bytes) == ("output", 1 * MIB)
    assert run_python("print(attempt(os.ftruncate, 1, 1 << 40))").out == "EFBIG\n"


def test_too_much_memory(support, tmp_path):
    spec = SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, limits=SandboxLimits(memory=64 * MIB))
    with Sandbox.open(support, spec) as sandbox:
        got = run_code(sandbox, tmp_path, 'x = b"x" * (200 << 20); import time; time.sleep(600)')
        assert got.result.cause == "memory"
        many = """
            for _ in range(20):
                if os.fork() == 0:
                    x = bytearray(15 << 20)
                    import time; time.sleep(631)
            sys.exit(os.wait()[1] != 0)
        """
        assert run_code(sandbox, tmp_path, many).result.cause == "memory"
        assert run_shell(sandbox, tmp_path, "echo fine").out == "fine\n"


def test_cpu_time_of_children_that_nobody_waits_for(run_python):
    got = run_python(
        """
        import signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        import time
        while True:
            if os.fork() == 0:
                while time.process_time() < 0.2:
                    pass
                os._exit(0)
            time.sleep(0.2)
        """,
        limits=CommandLimits(wall=60, cpu=1.0),
    )
    assert got.result.cause == "cpu"


def test_two_sandboxes_do_not_see_each_other(support, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Sandbox.open(support, SandboxSpec()) as first, Sandbox.open(support, SandboxSpec()) as second:
        assert not support.is_root or first.uid != second.uid
        stop = threading.Event()
        thread = threading.Thread(
            target=first.run, args=(Command(shell="echo x > /tmp/of-first; exec sleep 621"), stop)
        )
        thread.start()
        got = run_shell(second, tmp_path / "b", "kill -9 -1; exit 0")
        got = run_shell(second, tmp_path / "b", "ls /tmp; ps -A -o args | grep -c '[s]leep 621'")
        assert got.out == "0\n"
        assert thread.is_alive()
        stop.set()
        thread.join()
