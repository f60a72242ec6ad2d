"""What a command fetches is saved complete and verified, or not at all."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from waybill.cli.command_context import CommandContext
from waybill.cli.downloads import BUFFERED_SIZE, resolve_output, save_chunks, verify_chunks
from waybill.errors import InputError
from waybill.objects import open_objects
from waybill.rules import ActionRefused


def fetch(folder: Path, data: bytes, sha256: str = "") -> Iterator[bytes]:
    objects = open_objects(str(folder / "objects"))
    objects.put("a", data)
    return verify_chunks(objects.get("a"), sha256 or hashlib.sha256(data).hexdigest(), "The file a")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with pytest.raises(ActionRefused, match="The file a is damaged"):
        save_chunks(target, fetch(tmp_path, b"hello", "0" * 64))
    assert [path.name for path in tmp_path.iterdir()] == ["objects"], "no part of it is left"
    save_chunks(target, fetch(tmp_path, b"hello"))
    assert target.read_bytes() == b"hello"
    with pytest.raises(ActionRefused, match="damaged"):
        save_chunks(target, fetch(tmp_path, b"other", "0" * 64))
    assert target.read_bytes() == b"hello", "what was there stays"


def test_a_short_file_is_verified_before_any_of_it_goes_to_stdout(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(ActionRefused):
        save_chunks(None, fetch(tmp_path, b"hello", "0" * 64))
    assert capsysbinary.readouterr().out == b""
    long = b"x" * (3 * BUFFERED_SIZE)
    save_chunks(None, fetch(tmp_path, long))
    assert len(capsysbinary.readouterr().out) == len(long)


def test_an_existing_file_is_overwritten_only_with_force(tmp_path: Path) -> None:
    target, context = tmp_path / "a.txt", CommandContext()
    assert resolve_output(context, target, force=False) == target
    target.write_bytes(b"")
    with pytest.raises(ActionRefused, match="--force"):
        resolve_output(context, target, force=False)
    assert resolve_output(context, target, force=True) == target
    with pytest.raises(ActionRefused, match="not a file"):
        resolve_output(context, tmp_path, force=True)
    assert resolve_output(context, Path("-"), force=False) is None
    with pytest.raises(InputError, match="stdout"):
        resolve_output(CommandContext(as_json=True), None, force=False)
