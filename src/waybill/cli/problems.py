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

from waybill.application import BadApplication
from waybill.config import BadConfig
from waybill.machine import MachineError
from waybill.objects.protocol import ObjectsError
from waybill.record import (
    BadStore,
    CommitOutcomeUnknown,
    CommitTooLarge,
    Conflict,
    DocumentError,
    LockUnavailable,
    RecordExists,
    RecordNotFound,
    StoreError,
    StoreUnavailable,
)
from waybill.rules import ActionRefused, ClaimedByWorker, TargetNotFound, UnknownKind, UnknownQueue, UnknownState
from waybill.text_format import to_sentence
from waybill.tokens import BadTokenFile
from waybill.views import BadPageToken

OK = 0
FAILED = 1
USAGE = 2
MISSING = 3
CONFLICT = 4
STORE = 5
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


class UsageError(Exception):
    """Arguments that contradict each other."""


class NameNotFound(Exception):
    """A name that does not exist was given."""


class OutputPipeClosed(Exception):
    """The reader of our output is gone; nothing can be reported to it."""


def describe(error: BaseException) -> CliProblem | None:
    """How an error is reported; None: it is a bug."""
    text = to_sentence(str(error))
    match error:
        case TyperException():
            message = error.format_message()
            return CliProblem(
                error.exit_code,
                "usage" if error.exit_code == USAGE else "failed",
                to_sentence(message),
                _help_of(error),
            )
        case UsageError() | BadPageToken():
            return CliProblem(USAGE, "usage", text)
        case BadConfig():
            return CliProblem(
                USAGE, "bad-config", text, "`waybill config` shows the settings in force and where each came from."
            )
        case BadApplication():
            return CliProblem(USAGE, "bad-application", text)
        case UnknownKind():
            return CliProblem(
                MISSING,
                "not-found",
                text,
                "`waybill machines` lists the kinds; those of the demonstration need the setting demo.",
            )
        case RecordNotFound():
            return CliProblem(
                MISSING, "not-found", text, error.hint or "Check the id, or list the records with `waybill ls KIND`."
            )
        case NameNotFound() | TargetNotFound() | UnknownState() | UnknownQueue():
            return CliProblem(MISSING, "not-found", text)
        case ClaimedByWorker():
            return CliProblem(CONFLICT, "claimed", text)
        case Conflict() | RecordExists() | LockUnavailable():
            return CliProblem(CONFLICT, error.code, text)
        case StoreUnavailable() | CommitOutcomeUnknown() | BadStore():
            return CliProblem(STORE, error.code, text)
        case ObjectsError():
            return CliProblem(STORE, "objects", text)
        case CommitTooLarge() | StoreError() | DocumentError():
            return CliProblem(FAILED, error.code, text)
        case ActionRefused() | MachineError() | BadTokenFile():
            return CliProblem(FAILED, "refused", text)
        case PermissionError() | FileNotFoundError() | NotADirectoryError() | IsADirectoryError() | FileExistsError():
            return CliProblem(FAILED, "files", _describe_file_error(error))
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            return CliProblem(STORE, "files", _describe_file_error(error))
        case _:
            return None


def _describe_file_error(error: OSError) -> str:
    advice = {
        errno.ENOSPC: "free some space, then try again",
        errno.EDQUOT: "free some space, then try again",
        errno.EROFS: "choose a folder that can be written, with --data",
        errno.EACCES: "check who may read and write there, or choose another folder with --data",
        errno.EEXIST: "choose another name, or move the existing file",
    }.get(error.errno or 0, "check what is there, or choose another folder with --data")
    where = f"{error.filename}: " if error.filename else ""
    return to_sentence(f"{where}{os.strerror(error.errno or 0)}; {advice}")


def _help_of(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if hasattr(error, "option_name") and hasattr(context.command, "commands"):
        return f"Options follow the command; `{context.command_path} --help` lists the commands."
    return f"`{context.command_path} --help` explains its use."
