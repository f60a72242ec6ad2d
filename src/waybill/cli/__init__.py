"""The command line. `main` runs a command, prints what went wrong in one sentence, and exits with its code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import msgspec
import typer
from rich.console import Console

from waybill.cli.problems import INTERRUPTED, PIPE_CLOSED, CliProblem, OutputPipeClosed, describe, make_problem
from waybill.errors import USAGE, InputError


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(invoke(sys.argv[1:] if arguments is None else arguments))


def invoke(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code. problems.py says what each code means."""
    from waybill.cli.app import build_app

    try:
        _check_text(arguments)
        code = build_app()(list(arguments), prog_name="waybill", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except OutputPipeClosed:
        # At exit Python would flush stdout and complain of the same pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return _report_problem(make_problem("refused", "Not confirmed; nothing was done."), arguments)
    except Exception as error:  # noqa: BLE001 - the last line of defence: reported in one sentence, with a code
        if os.environ.get("WAYBILL_DEBUG") == "1":
            traceback.print_exc()
        if type(error).__name__ == "NoArgsIsHelpError":  # the help was printed; Typer does not export the class
            return USAGE
        return _report_problem(describe(error), arguments)


def _check_text(arguments: Sequence[str]) -> None:
    """Arguments that are not UTF-8 come from the shell as lone surrogates, which neither a store nor JSON can hold."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = (
                argument.encode(errors="backslashreplace").decode().replace(r"\udc", r"\x")
            )  # as the byte that it was
            raise InputError(f"The argument '{shown}' is not UTF-8. Write it in UTF-8.", code="usage") from None


def _report_problem(problem: CliProblem, arguments: Sequence[str]) -> int:
    if "--json" in arguments:
        body = {"error": {"code": problem.code, "message": problem.message, "hint": problem.hint}}
        sys.stderr.write(msgspec.json.encode(body).decode() + "\n")
    else:
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        console.print(f"{problem.message}{' ' + problem.hint if problem.hint else ''}")
    return problem.exit_code
