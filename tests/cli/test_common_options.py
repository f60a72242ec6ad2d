"""The common options work in every place of a command line: none of them is accepted and ignored."""

import itertools
import json
from pathlib import Path

import pytest

from waybill.cli import invoke
from waybill.config import sqlite_url
from waybill.errors import STORE, USAGE

COMMANDS = (["ls"], ["ingest", "batches"], ["sessions"], ["ingest", "profile", "list"])


@pytest.fixture(autouse=True)
def with_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "ingest")


@pytest.fixture
def data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert invoke(["migrate", "--data", str(tmp_path / "data")]) == 0
    capsys.readouterr()
    return tmp_path / "data"


def places(command: list[str], options: list[str]) -> list[list[str]]:
    return [[*command[:at], *options, *command[at:]] for at in range(len(command) + 1)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_they_work_in_every_place(
    data: Path, command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text(f'data = "{data}"\n')
    for options in (
        ["--data", str(data)],
        ["--store", sqlite_url(data / "waybill.db")],
        ["--config", str(tmp_path / "other.toml")],
    ):
        for arguments, as_json in itertools.product(places(command, options), (False, True)):
            given = places(arguments, ["--json"])[0] if as_json else arguments
            assert invoke(given) == 0, given
            out = capsys.readouterr().out
            if as_json:
                json.loads(out)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_none_is_accepted_and_ignored(command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in places(command, ["--data", str(tmp_path / "none")]):
        assert invoke(arguments) == STORE, arguments
        assert "none/waybill.db" in capsys.readouterr().err


def test_one_that_is_given_twice_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["ingest", "--data", str(data), "batches", "--data", "other"]) == USAGE
    assert "--data is given twice" in capsys.readouterr().err
    assert invoke(["--data", str(data), "ingest", "--data", str(data), "batches"]) == 0
