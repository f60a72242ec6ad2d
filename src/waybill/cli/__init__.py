"""The command line. `main` runs a command, says what went wrong in one sentence, and answers with an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import msgspec
import typer
from rich.console import Console

from waybill.cli.problems import FAILED, INTERRUPTED, PIPE_CLOSED, USAGE, Misuse, PipeClosed, Problem, describe


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(invoke(sys.argv[1:] if arguments is None else arguments))


def invoke(arguments: Sequence[str]) -> int:
    """The exit code of a command. See problems.py for what each means."""
    from waybill.cli.app import build

    try:
        _check_text(arguments)
        answer = build()(list(arguments), prog_name="waybill", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except PipeClosed:
        # Python would complain of the same pipe again while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return _say(Problem(FAILED, "refused", "Not confirmed; nothing was done."), arguments)
    except Exception as error:  # noqa: BLE001 - the last line of defence: said in a sentence, with a code
        if os.environ.get("WAYBILL_DEBUG") == "1":
            traceback.print_exc()
        if type(error).__name__ == "NoArgsIsHelpError":  # the help was the answer; Typer keeps the class to itself
            return USAGE
        return _say(describe(error) or _unforeseen(error), arguments)


def _check_text(arguments: Sequence[str]) -> None:
    """Bytes that are no text come from the shell as halves of surrogate pairs, which neither a store nor JSON can
    hold.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            # as the byte that it was
            shown = argument.encode(errors="backslashreplace").decode().replace(r"\udc", r"\x")
            raise Misuse(f"The argument '{shown}' is not UTF-8. Write it in UTF-8.") from None


def _unforeseen(error: Exception) -> Problem:
    what = f"{type(error).__name__}: {error}"
    return Problem(
        FAILED,
        "unforeseen",
        f"Something unforeseen went wrong: {what}",
        "WAYBILL_DEBUG=1 shows where; please report it.",
    )


def _say(problem: Problem, arguments: Sequence[str]) -> int:
    if "--json" in arguments:
        body = {"error": {"code": problem.code, "message": problem.message, "hint": problem.hint}}
        sys.stderr.write(msgspec.json.encode(body).decode() + "\n")
    else:
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        console.print(f"{problem.message}{' ' + problem.hint if problem.hint else ''}")
    return problem.exit_code
