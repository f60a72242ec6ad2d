"""One task: its input, its command, and what became of it.

A command is run as Manta ran it: the object is standard input, as a file; what it writes to standard output is one object,
unless it has made its outputs itself with mpipe. The user's failures are errors of the task; the system's are tried again.
"""

from __future__ import annotations

import re
import shlex
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from waybill.apps.compute.access import Caller, check_access
from waybill.apps.compute.entries import Entry
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.manifest import JobManifest, Phase
from waybill.apps.compute.paths import StoragePath, parse_path
from waybill.apps.compute.task_lines import InputKey, TaskError, TaskLine, TaskOutput
from waybill.apps.compute.tasks.local_http import TaskServer
from waybill.apps.compute.tasks.publishing import OutputGatherer, find_error_path, find_output_path
from waybill.apps.compute.tasks.slots import SlotLease
from waybill.apps.compute.tasks.workspace import InitFailed, Workspace, make_environment, run_init
from waybill.objects import ObjectNotFound
from waybill.sandbox import Command, CommandLimits, CommandResult, SandboxLost
from waybill.step import StepStopped

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

SYSTEM_RETRIES = 2
TASKS = uuid.UUID("6a3f7f0e-5c2d-4d5e-9a39-0d9a5e1f7c11")  # the namespace of their ids
CORE_SIGNALS = {
    signal.SIGQUIT,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
}
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+ -]+")
_SHELL_WORDS = frozenset(
    [
        "alias",
        "bg",
        "bind",
        "break",
        "builtin",
        "caller",
        "case",
        "cd",
        "command",
        "compgen",
        "complete",
        "continue",
        "coproc",
        "declare",
        "dirs",
        "disown",
        "do",
        "done",
        "echo",
        "elif",
        "else",
        "enable",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "false",
        "fc",
        "fg",
        "fi",
        "for",
        "function",
        "getopts",
        "hash",
        "help",
        "history",
        "if",
        "in",
        "jobs",
        "kill",
        "let",
        "local",
        "logout",
        "mapfile",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readarray",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "shopt",
        "source",
        "suspend",
        "test",
        "then",
        "time",
        "times",
        "trap",
        "true",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
        ".",
        ":",
    ]
)


class PhaseRunner:
    """Runs the tasks of one phase of a job in a workspace, one after the other."""

    def __init__(
        self, resources: ComputeResources, job: str, account: str, manifest: JobManifest, number: int,
        workspace: Workspace, lease: SlotLease, publisher: OutputGatherer,
    ) -> None:  # fmt: skip
        self._resources, self._job, self._account = resources, job, account
        self._options, self._number = manifest.options, number
        self._phase: Phase = manifest.phases[number]
        self._workspace, self._lease, self._publisher = workspace, lease, publisher
        self._is_last = number == len(manifest.phases) - 1
        self._caller = Caller(account, job=job)
        self._argv = find_plain_argv(self._phase.exec)

    # --- map

    def run_map(self, key: InputKey, task: str) -> TaskLine:
        began = time.time()
        what = describe_map(self._number, key)
        try:
            path, entry = self._find_input(key.key)
        except MantaError as error:
            code, message = describe_refusal(error, key.key)
            refused = TaskError(what, code, message)
            return TaskLine(task, self._number, key.key, key.p0, error=refused, start=began, order=key.order)
        output = find_output_path(self._account, self._job, self._number, key.key, key.p0, task)
        stem = str(output).removesuffix(task)
        place, inside = self._workspace.place_input(str(path))
        variables = {
            "MANTA_INPUT_OBJECT": str(path),
            "MANTA_INPUT_FILE": inside,
            "mc_input_key": str(path),
            "mc_input_file": inside,
        }
        try:
            try:
                self._fetch(entry, place)
            except ObjectNotFound:
                gone = TaskError(what, "ResourceNotFoundError", f'no such object: "{key.key}"')
                return TaskLine(task, self._number, key.key, key.p0, error=gone, start=began, order=key.order)
            line = self._run(
                task, what, output, stem, place, variables, key=key.key, p0=key.p0, bytes_in=entry.size, began=began
            )
            return replace(line, order=key.order)
        finally:
            place.unlink(missing_ok=True)

    def _find_input(self, key: str) -> tuple[StoragePath, Entry]:
        path = parse_path(key)
        check_access(self._caller, path, "read")
        entry = self._resources.storage.get(path)
        if entry.is_directory:
            raise MantaError("InvalidArgument", f'objects of type "directory" are not supported: "{key}"')
        return path, entry

    def _fetch(self, entry: Entry, place: Path) -> None:
        with self._resources.storage.open(entry) as body, place.open("wb") as file:
            for piece in body:
                file.write(piece)

    # --- reduce

    def run_reduce(self, reducer: int, task: str, stdin: int, count_bytes: Callable[[], int]) -> TaskLine:
        what = f"phase {self._number}: reduce"
        base = StoragePath(self._account, "jobs", (self._job, "stor"))
        output = base.child(f"reduce.{self._number}.{task}")
        line = self._run(
            task, what, output, str(output).removesuffix(task), stdin, {"MANTA_REDUCER": str(reducer)}, reducer=reducer, began=time.time()
        )  # fmt: skip
        return replace(line, bytes_in=count_bytes())

    # --- both

    def _run(
        self, task: str, what: str, output: StoragePath, stem: str, stdin: Path | int, variables: dict[str, str], *,
        key: str = "", p0: str = "", reducer: int = -1, bytes_in: int = 0, began: float,
    ) -> TaskLine:  # fmt: skip
        workspace, attempts = self._workspace, 0
        tries = 1 + (self._options.retries if isinstance(stdin, Path) else 0)
        while True:
            attempts += 1
            server = TaskServer(self._resources, self._caller)
            workspace.handle = server.handle
            out, err = workspace.make_output("out"), workspace.make_output("err")
            try:
                environment = make_environment(workspace, MANTA_USER=self._account, MANTA_JOB_ID=self._job)
                wall = self._options.timeout or self._resources.settings.max_wall
                if failure := run_init(workspace, self._phase.init, environment, self._lease.stop, wall):
                    raise InitFailed(failure)
                result = self._run_command(
                    {**environment, "MANTA_OUTPUT_BASE": stem, **variables}, stdin, out, err, wall
                )
                code, message = describe_failure(result)
                if result.cause == "stopped":
                    if not self._lease.is_cancelled:
                        raise StepStopped("the worker must stop: the task runs again elsewhere")
                    code, message = "JobCancelledError", "job was cancelled"
                elif code and attempts < tries:
                    continue
                problem: TaskError | None = None
                outputs, bytes_out = tuple(server.outputs), result.stdout_bytes
                if code:
                    problem = TaskError(what, code, message, self._keep_error_output(output, task, err))
                    outputs = ()
                elif not outputs:
                    self._publisher.add_file(output, out)
                    outputs = (TaskOutput(str(output)),)
                return TaskLine(
                    task, self._number, key, p0, outputs, problem, began, result.wall, result.cpu, result.peak_memory,
                    bytes_in, bytes_out, result.exit_code, attempts, reducer,
                )  # fmt: skip
            except InitFailed as failure:
                if self._lease.stop.is_set() and not self._lease.is_cancelled:
                    raise StepStopped("the worker must stop: the task runs again elsewhere") from None
                return TaskLine(
                    task, self._number, key, p0, error=TaskError(what, "TaskInitError", str(failure)), start=began, reducer=reducer
                )  # fmt: skip
            except SandboxLost as lost:
                if attempts > SYSTEM_RETRIES or not isinstance(stdin, Path):
                    trouble = TaskError(what, "InternalError", str(lost))
                    return TaskLine(
                        task, self._number, key, p0, error=trouble, start=began, attempts=attempts, reducer=reducer
                    )
            finally:
                workspace.handle = None
                server.close()
                out.unlink(missing_ok=True)
                err.unlink(missing_ok=True)

    def _run_command(
        self, environment: dict[str, str], stdin: Path | int, out: Path, err: Path, wall: float
    ) -> CommandResult:
        limits = CommandLimits(wall=wall)
        if self._argv is not None:
            command = Command(argv=self._argv, env=environment, stdin=stdin, stdout=out, stderr=err, limits=limits)
            result = self._workspace.run(command, self._lease.stop)
            if result.cause != "not started":
                return result
        # The shell says by itself what it cannot find.
        command = Command(shell=self._phase.exec, env=environment, stdin=stdin, stdout=out, stderr=err, limits=limits)
        return self._workspace.run(command, self._lease.stop)

    def _keep_error_output(self, output: StoragePath, task: str, err: Path) -> str:
        if not err.exists() or err.stat().st_size == 0:
            return ""
        path = find_error_path(output, self._number, task)
        self._publisher.add_file(path, err, "text/plain")
        return str(path)


def find_plain_argv(command: str) -> list[str] | None:
    """The words of a command in which nothing is the shell's to read; None for all others."""
    words = shlex.split(command) if _PLAIN.fullmatch(command) else []
    return words if words and words[0] not in _SHELL_WORDS and not command.startswith("-") else None


def make_task_id(keys_object: str, line: int) -> str:
    """The same in every run: what a task puts out has one name."""
    return str(uuid.uuid5(TASKS, f"{keys_object}/{line}"))


def describe_map(phase: int, key: InputKey) -> str:
    origin = f' (from job input "{key.p0}")' if key.p0 and key.p0 != key.key else ""
    return f'phase {phase}: input "{key.key}"{origin}'


def make_cancelled_line(phase: int, key: InputKey, task: str) -> TaskLine:
    error = TaskError(describe_map(phase, key), "JobCancelledError", "job was cancelled")
    return TaskLine(task, phase, key.key, key.p0, error=error, start=time.time())


def describe_refusal(error: MantaError, key: str) -> tuple[str, str]:
    """The error of a task whose input cannot be had."""
    if error.manta_code == "InvalidArgument":
        return "InvalidArgumentError", str(error)
    if error.manta_code in ("AuthorizationFailed", "AuthorizationRequired"):
        return "AuthorizationError", f'permission denied: "{key}"'
    if error.manta_code == "InvalidResource":
        return "ResourceNotFoundError", f'malformed object name: "{key}"'
    if error.manta_code == "ResourceNotFound":
        return "ResourceNotFoundError", f'no such object: "{key}"'
    return "InternalError", str(error)


def describe_failure(result: CommandResult) -> tuple[str, str]:
    """Code and message of a command that failed; empty if it did not."""
    if result.is_success:
        return "", ""
    limit = {
        "memory": "user command ran out of memory",
        "disk": "user command ran out of local disk space",
        "output": "user command ran out of local disk space",
        "wall": "user command ran longer than it may",
        "cpu": "user command used more CPU time than it may",
    }
    if result.cause in limit:
        return "UserTaskError", limit[result.cause]
    if result.cause == "not started":
        return "UserTaskError", f"user command could not be started: {result.message}"
    if result.core_dumped or result.signal in CORE_SIGNALS:
        return "UserTaskError", "user command or child process dumped core"
    if result.signal is not None:
        return "UserTaskError", f"user command terminated by {signal.Signals(result.signal).name}"
    return "UserTaskError", f"user command exited with code {result.exit_code}"
