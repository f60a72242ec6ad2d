"""Working folders while an earlier run's folder is just being cleared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from waybill.machine import Folder, Machine, end, work
from waybill.record import Record
from waybill.worker import folders

FILM = Machine(
    name="film",
    plural="films",
    prefix="flm",
    doc="A film.",
    folder=Folder("films", lambda record: (record.id,)),
    states=(work("Cutting", "Cut", "Cuts.", fails=None), end("Cut", "Cut.")),
)
RECORD = Record("film", "flm1", "Cutting")


def test_a_folder_that_goes_while_a_run_begins_in_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "films" / "flm1"
    folders.make_attempt(folder, FILM, RECORD, 1)
    mkdir = Path.mkdir

    def interrupted(self: Path, **options: bool) -> None:
        if self.name == "2":
            monkeypatch.setattr(Path, "mkdir", mkdir)
            folders.clear_folder(folder, 1)
            assert not folder.exists()
        mkdir(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", interrupted)
    assert folders.make_attempt(folder, FILM, RECORD, 2).is_dir()
    assert (folder / ".record").read_text() == "film flm1"


def test_a_run_that_begins_while_the_last_things_go_keeps_whose_folder_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no duty would know whose it is, and it would stay for ever."""
    folder = tmp_path / "films" / "flm1"
    folders.make_attempt(folder, FILM, RECORD, 1)
    listdir = os.listdir

    def interrupted(place: int | str) -> list[str]:
        names = listdir(place)
        monkeypatch.setattr(os, "listdir", listdir)
        folders.make_attempt(folder, FILM, RECORD, 2)
        return names

    monkeypatch.setattr(os, "listdir", interrupted)
    folders.clear_folder(folder, 1)
    assert sorted(listdir(folder)) == [".record", "2"]
    assert (folder / ".record").read_text() == "film flm1"
