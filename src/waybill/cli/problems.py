"""What goes wrong, as a script and as a person hear of it: an exit code, and one sentence with what to do.

    0  done
    1  refused or failed: the sentence says why
    2  the command or a setting is not right
    3  there is no such thing: a kind, a record, a state, an action, or a step that is due
    4  the record moved on, a worker holds it, or a name is taken: look again, then decide again
    5  the store, or the objects' store, cannot be reached, opened or written; nothing was lost

A sentence goes to stderr; with --json it is {"error": {"code", "message", "hint"}}. A traceback is shown only with
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
from waybill.record import BadStore, Conflict, Exists, NotFound, StoreError, Taken, TooLarge, Unavailable, Unknown
from waybill.rules import Held, Refused, UnknownKind, UnknownQueue, UnknownState
from waybill.tokens import BadTokenFile
from waybill.views import BadToken

OK = 0
FAILED = 1
USAGE = 2
MISSING = 3
CONFLICT = 4
STORE = 5
INTERRUPTED = 130  # by Ctrl-C, as a shell counts it
PIPE_CLOSED = 141  # whoever read the output has gone

EXIT_CODES: dict[int, str] = {
    OK: "Done.",
    FAILED: "Refused or failed; the sentence on stderr says why. `doctor`: findings remain.",
    USAGE: "The command, one of its options or a setting is not right. Nothing was tried.",
    MISSING: "There is no such kind, record, state, action, mark or token; `work --once`: no step is due.",
    CONFLICT: "The record moved on, a worker holds it, or a name is taken. Look again, then decide again.",
    STORE: "The store, or the objects' store, cannot be reached, opened or written. Nothing is half written.",
}


class Problem(NamedTuple):
    exit_code: int
    code: str
    message: str
    hint: str = ""


class Misuse(Exception):
    """Arguments that contradict each other."""


class Missing(Exception):
    """Something that was named is not there."""


class PipeClosed(Exception):
    """Whoever read our output has gone; there is nobody to tell."""


def describe(error: BaseException) -> Problem | None:
    """The problem that an error is to its reader; None: a mistake of the program."""
    text = sentence(str(error))
    match error:
        case TyperException():
            message = error.format_message()
            return Problem(
                error.exit_code, "usage" if error.exit_code == USAGE else "failed", sentence(message), _help_of(error)
            )
        case Misuse() | BadToken():
            return Problem(USAGE, "usage", text)
        case BadConfig():
            return Problem(
                USAGE, "bad-config", text, "`waybill config` shows the settings in force and where each came from."
            )
        case BadApplication():
            return Problem(USAGE, "bad-application", text)
        case UnknownKind():
            return Problem(
                MISSING,
                "not-found",
                text,
                "`waybill machines` lists the kinds; the demonstration's need the setting demo.",
            )
        case NotFound():
            return Problem(
                MISSING,
                "not-found",
                text,
                error.hint or "Look at the id, or list what there is with `waybill ls KIND`.",
            )
        case Missing() | UnknownState() | UnknownQueue():
            return Problem(MISSING, "not-found", text)
        case Held():
            return Problem(CONFLICT, "claimed", text)
        case Conflict() | Exists() | Taken():
            return Problem(CONFLICT, error.code, text)
        case Unavailable() | Unknown() | BadStore():
            return Problem(STORE, error.code, text)
        case ObjectsError():
            return Problem(STORE, "objects", text)
        case TooLarge() | StoreError():
            return Problem(FAILED, error.code, text)
        case Refused() | MachineError() | BadTokenFile():
            return Problem(FAILED, "refused", text)
        case PermissionError() | FileNotFoundError() | NotADirectoryError() | IsADirectoryError() | FileExistsError():
            return Problem(FAILED, "files", _of_files(error))
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            return Problem(STORE, "files", _of_files(error))
        case _:
            return None


def _of_files(error: OSError) -> str:
    advice = {
        errno.ENOSPC: "free some space, then try again",
        errno.EDQUOT: "free some space, then try again",
        errno.EROFS: "choose a folder that can be written, with --data",
        errno.EACCES: "see who may read and write there, or choose another folder with --data",
        errno.EEXIST: "choose another name, or move away what is there",
    }.get(error.errno or 0, "see what is there, or choose another folder with --data")
    where = f"{error.filename}: " if error.filename else ""
    return sentence(f"{where}{os.strerror(error.errno or 0)}; {advice}")


def _help_of(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if hasattr(error, "option_name") and hasattr(context.command, "commands"):
        return f"Options follow the command; `{context.command_path} --help` lists the commands."
    return f"`{context.command_path} --help` says how it is used."


def sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.rstrip(")")[-1:] in (".", "!", "?") else text + "."
