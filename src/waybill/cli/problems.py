"""Errors as the command line reports them: an exit code for scripts, and one sentence that says what to do.

    0  done
    1  refused or failed: the sentence says why
    2  the command or a setting is wrong
    3  not found: a kind, a record, a state, an action, or a step that is due
    4  the record has changed, a worker has claimed it, or a name is taken: read it again, then decide again
    5  the store, or the object store, cannot be reached, opened or written; nothing was lost

The sentence goes to stderr; with --json it is {"error": {"code", "message", "hint"}}. A traceback is shown only with
WAYBILL_DEBUG=1.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from typer import TyperException

from waybill.errors import CONFLICT, ERROR_CODES, FAILED, MISSING, OK, STORE, USAGE, WaybillError
from waybill.text_format import to_sentence

INTERRUPTED = 130  # by Ctrl-C, as shells number it
PIPE_CLOSED = 141  # the reader of the output is gone

EXIT_CODES: dict[int, str] = {
    OK: "Done.",
    FAILED: "Refused or failed; the sentence on stderr says why. `doctor`: findings remain.",
    USAGE: "The command, one of its options or a setting is wrong. Nothing was tried.",
    MISSING: "There is no such kind, record, state, action, hold or token; `work --once`: no step is due.",
    CONFLICT: "The record has changed, a worker has claimed it, or a name is taken. Read it again, then decide again.",
    STORE: "The store, or the object store, cannot be reached, opened or written. Nothing is half written.",
}


class CliProblem(NamedTuple):
    exit_code: int
    code: str
    message: str
    hint: str = ""


class OutputPipeClosed(BaseException):  # not an Exception: nothing can be reported to anybody
    """The reader of our output is gone."""


def describe(error: BaseException) -> CliProblem:
    """How an error is reported."""
    match error:
        case TyperException():
            code = "usage" if error.exit_code == USAGE else "failed"
            return CliProblem(error.exit_code, code, to_sentence(error.format_message()), _help_of(error))
        case WaybillError():
            return make_problem(error.code, str(error), error.hint)
        case PermissionError() | FileNotFoundError() | NotADirectoryError() | IsADirectoryError() | FileExistsError():
            return make_problem("files", _describe_file_error(error))
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            return make_problem("disk", _describe_file_error(error))
        case _:
            return make_problem("internal", f"An unexpected error: {type(error).__name__}: {error}")


def make_problem(code: str, message: str, hint: str = "") -> CliProblem:
    row = ERROR_CODES[code]
    return CliProblem(row.exit_code, code, to_sentence(message), hint or row.command_hint)


def _describe_file_error(error: OSError) -> str:
    advice = {
        errno.ENOSPC: "free some space, then try again",
        errno.EDQUOT: "free some space, then try again",
        errno.EROFS: "choose a folder that can be written, with --data",
        errno.EACCES: "check who may read and write there, or choose another folder with --data",
        errno.EEXIST: "choose another name, or move the existing file",
    }.get(error.errno or 0, "check what is there, or choose another folder with --data")
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{os.strerror(error.errno or 0)}; {advice}"


def _help_of(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if hasattr(error, "option_name") and hasattr(context.command, "commands"):
        return f"Options follow the command; `{context.command_path} --help` lists the commands."
    return f"`{context.command_path} --help` explains its use."
