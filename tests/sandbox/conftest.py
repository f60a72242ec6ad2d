"""Fixtures of the sandbox tests: real bubblewrap, one sandbox for a module where its tests leave it as it was.

support      what this machine offers; the tests fail where it has no sandbox
weak         the same machine without control groups and loop images: the limits of prlimit and the watches
files        a folder with the three files of a command
run          runs a line of shell in a sandbox that the module shares; returns the result with the text of both outputs
"""

import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from waybill.config import SandboxSettings
from waybill.sandbox import (
    Bind,
    Command,
    CommandLimits,
    CommandResult,
    Sandbox,
    SandboxSpec,
    SandboxSupport,
    find_support,
)
from waybill.sandbox.cgroups import CgroupParents

FIRST_UID = 1_900_000_000
PYTHON_BIND = Bind(Path(sys.base_prefix), "/python")
PYTHON_ENV = {"LD_LIBRARY_PATH": "/python/lib"}
PYTHON = f"/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
# What the lines of Python may use: C functions, and the name of an error that one returned.
PRELUDE = """
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    ctypes.set_errno(0)
    answer = libc.syscall(*arguments)
    return "done" if answer >= 0 else errno.errorcode[ctypes.get_errno()]
def attempt(function, *arguments):
    try:
        return "done", function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
"""


class Output(NamedTuple):
    result: CommandResult
    out: str
    err: str


def run_code(sandbox: Sandbox, folder: Path, code: str, *, limits: CommandLimits | None = None) -> Output:
    out, err = folder / "out", folder / "err"
    argv = [PYTHON, "-I", "-S", "-c", PRELUDE + textwrap.dedent(code)]
    result = sandbox.run(Command(argv, stdout=out, stderr=err, limits=limits or CommandLimits(wall=30)))
    return Output(result, out.read_text(errors="replace"), err.read_text(errors="replace"))


def run_shell(sandbox: Sandbox, folder: Path, line: str, *, limits: CommandLimits | None = None, **more: Any) -> Output:
    out, err = folder / "out", folder / "err"
    command = Command(shell=line, stdout=out, stderr=err, limits=limits or CommandLimits(wall=30), **more)
    result = sandbox.run(command)
    return Output(result, out.read_text(errors="replace"), err.read_text(errors="replace"))


@pytest.fixture(scope="session")
def support(tmp_path_factory: pytest.TempPathFactory) -> SandboxSupport:
    found = find_support(SandboxSettings("required", tmp_path_factory.mktemp("sandbox"), FIRST_UID))
    assert not found.problem
    return found


@pytest.fixture(scope="session")
def weak(support: SandboxSupport) -> SandboxSupport:
    return replace(support, cgroups=CgroupParents(1), has_loop_images=False)


@pytest.fixture(scope="module")
def shared(support: SandboxSupport) -> Iterator[Sandbox]:
    with Sandbox.open(support, SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV)) as sandbox:
        yield sandbox


@pytest.fixture
def run(shared: Sandbox, tmp_path: Path) -> Callable[..., Output]:
    return lambda line, **more: run_shell(shared, tmp_path, line, **more)


@pytest.fixture
def run_python(shared: Sandbox, tmp_path: Path) -> Callable[..., Output]:
    return lambda code, **more: run_code(shared, tmp_path, code, **more)
