"""Help: every command explains itself with examples that are right, and shells complete."""

import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.conftest import Waybill
from waybill.cli.app import build_app
from waybill.cli.command_context import EXAMPLES
from waybill.cli.problems import EXIT_CODES


def commands(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    found = {" ".join(path): command} if path else {}
    for name, inner in getattr(command, "commands", {}).items():
        found |= commands(inner, (*path, name))
    return found


ALL = commands(get_command(build_app()))
ASKED_FOR = "up serve work machines ls show history act priority step watch hold release pause unpause doctor sim migrate config"


def test_the_commands_that_were_promised_are_there() -> None:
    assert set(ASKED_FOR.split()) <= set(ALL)
    assert {"machines draw", "machines list", "tokens list", "tokens new", "tokens revoke"} <= set(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_command_explains_itself_and_its_options(name: str, bare: Waybill) -> None:
    command = ALL[name]
    assert command.help
    assert command.help.strip()
    for parameter in command.params:
        assert parameter.help, f"{name}: {parameter.name}"
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--json", "--data", "--store", "--config"} <= options
    result = bare(*name.split(), "--help")
    assert result.code == 0
    assert "Examples:" in result.out


@pytest.mark.parametrize(
    ("name", "example"), [(name, example) for name, examples in EXAMPLES.items() for example in examples]
)
def test_every_example_is_a_command_that_can_be_given(name: str, example: str) -> None:
    words = [
        word for word in shlex.split(example.partition(" > ")[0]) if "=" not in word or not word.startswith("WAYBILL_")
    ]
    assert words[0] == "waybill"
    assert words[1 : 1 + len(name.split())] == name.split()
    group: Any = get_command(build_app())
    context = group.make_context("waybill", words[1:], resilient_parsing=False)
    rest = [*context._protected_args, *context.args] if hasattr(context, "_protected_args") else context.args
    while rest:
        _, command, rest = group.resolve_command(context, rest)
        context = command.make_context(command.name, rest, parent=context)
        rest = [*getattr(context, "_protected_args", []), *context.args] if hasattr(command, "commands") else []
        group = command


def test_the_first_page_of_help_names_the_exit_codes(bare: Waybill) -> None:
    said = " ".join(bare("--help").out.split())
    assert "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 not found, 4 conflict, 5 no store." in said
    assert sorted(EXIT_CODES) == [0, 1, 2, 3, 4, 5]
    assert bare("--version").out.startswith("waybill ")


def complete(words: str) -> list[str]:
    """What a shell is told when the last of these words is to be completed."""
    environment = {
        **os.environ,
        "_WAYBILL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "waybill"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_shell_completes_commands_kinds_and_actions() -> None:
    assert complete("waybill mac") == ["machines"]
    assert complete("waybill ls pa") == ["parcel"]
    assert complete("waybill act parcel p1 re") == ["resume", "readdress"]
    assert "--state" in complete("waybill ls parcel --st")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("ls ship", "shipment"),
        ("act parcel pcl1 res", "resume"),
        ("ls parcel --state Fa", "Failed"),
        ("act parcel resume --all --state Fa", "Failed"),
        ("submit shipment --state So", "Sorting"),
        ("work --queue ship", "shipment"),
        ("work --queue shipment.So", "shipment.Sorting"),
        ("work --queue no-kind.So", ""),
    ],
)
def test_kinds_states_actions_and_queues_are_completed(words: str, completed: str) -> None:
    fields = {
        "_WAYBILL_COMPLETE": "complete_bash",
        "COMP_WORDS": f"waybill {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    result = subprocess.run(
        [sys.executable, "-m", "waybill"], env={**os.environ, **fields}, capture_output=True, text=True, check=False
    )
    assert (result.stdout.strip(), result.stderr) == (completed, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_for_each_shell(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "waybill", "--show-completion", shell],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_WAYBILL_COMPLETE" in done.stdout
