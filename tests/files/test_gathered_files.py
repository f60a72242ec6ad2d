"""Gathering: files come side by side, each compared; what earlier attempts have finished does not come again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.disk_space.disk_fixture import DiskFixture
from tests.transfer.misbehaving import Misbehaving
from waybill.files import gathered_files
from waybill.files.gathered_files import FileCopier, FileGatherer, GatheredFiles, count_gathered_bytes
from waybill.record import Record
from waybill.step import Outcome, StepContext, Wait
from waybill.transfer import AddressPolicy, DownloadRequest, download

LOCAL_DOWNLOAD = partial(download, policy=AddressPolicy(allow=("127.0.0.0/8",)), tries=1)


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        yield server


class GatheringFixture:
    """A crate whose step gathers the files of `requests` into `files`; the last result is in `result`."""

    def __init__(self, folder: Path, *, free: int = 1_000_000, need: int | None = 100_000) -> None:
        self.disk = DiskFixture(folder, free=free, total=10_000_000)
        self.record: Record = self.disk.step(self.disk.add(need))
        self.folder = self.disk.root / "crate" / self.record.id
        self.disk.fill = self.gather
        self.requests: list[DownloadRequest] = []
        self.copy: FileCopier = lambda request, path, on_bytes: None
        self.need = need
        self.already = 0

    def gather(self, ctx: StepContext) -> Outcome:
        meter = self.disk.working_disk.start_meter(ctx, self.need)
        self.already = count_gathered_bytes(ctx)
        gatherer = FileGatherer(ctx, ctx.workdir / "files", LOCAL_DOWNLOAD, meter, note_all=True)
        self.result = gatherer.gather(self.requests, self.copy)
        self.written = meter.written_bytes
        return Wait(0)

    def run(self) -> GatheredFiles:
        self.disk.step(self.record)
        return self.result

    def read_files(self) -> dict[str, bytes]:
        """The files of the last attempt."""
        last = max((path for path in self.folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        top = last / "files"
        return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def put(server: Misbehaving, name: str, data: bytes) -> DownloadRequest:
    server.files[f"/{name}"] = data
    return DownloadRequest(f"{server.url}/{name}", name, len(data), {"sha-256": hashlib.sha256(data).hexdigest()})


def test_files_come_with_size_and_digest(tmp_path: Path, server: Misbehaving) -> None:
    fixture = GatheringFixture(tmp_path)
    fixture.requests = [put(server, name, name.encode() * 10) for name in ("a", "b/c", "d")]
    result = fixture.run()
    assert result.failures == []
    assert result.files["b/c"].sha256 == hashlib.sha256(b"b/c" * 10).hexdigest()
    assert fixture.read_files() == {"a": b"a" * 10, "b/c": b"b/c" * 10, "d": b"d" * 10}
    assert fixture.written == 50


def test_a_file_that_fails_stops_no_other_and_the_next_attempt_fetches_only_that(
    tmp_path: Path, server: Misbehaving
) -> None:
    fixture = GatheringFixture(tmp_path)
    fixture.requests = [put(server, "a", b"aaa"), put(server, "b", b"bbb")]
    del server.files["/b"]
    result = fixture.run()
    assert list(result.files) == ["a"]
    assert [each.name for each in result.failures] == ["b"]
    assert result.reasons[0].startswith("'b': ")
    server.files["/b"] = b"bbb"
    assert fixture.run().failures == []
    assert (fixture.already, fixture.written) == (3, 6)
    assert fixture.read_files() == {"a": b"aaa", "b": b"bbb"}
    assert len(server.asked["/a"]) == 1


@pytest.mark.parametrize("change", ["damaged", "another address", "another size", "another digest", "a link"])
def test_a_file_of_an_earlier_attempt_that_is_not_what_is_wanted_comes_again(
    tmp_path: Path, server: Misbehaving, change: str
) -> None:
    fixture = GatheringFixture(tmp_path)
    fixture.requests = [put(server, "a", b"aaa")]
    fixture.run()
    (noted,) = fixture.folder.glob("*/files/a")
    if change == "damaged":
        noted.write_bytes(b"axa")
    elif change == "a link":
        noted.unlink()
        (tmp_path / "elsewhere").write_bytes(b"aaa")
        noted.symlink_to(tmp_path / "elsewhere")
    elif change == "another address":
        server.files["/a2"] = b"aaa"
        fixture.requests = [DownloadRequest(f"{server.url}/a2", "a")]
    elif change == "another size":
        fixture.requests = [put(server, "a", b"aaaa")]
    else:
        fixture.requests = [put(server, "a", b"bbb")]
    assert fixture.run().failures == []
    assert len(server.asked["/a"]) + len(server.asked["/a2"]) == 2
    assert fixture.read_files()["a"] == server.files["/" + fixture.requests[0].url.rpartition("/")[2]]


def test_a_file_that_the_application_copies_is_not_downloaded(tmp_path: Path, server: Misbehaving) -> None:
    fixture = GatheringFixture(tmp_path)
    fixture.requests = [DownloadRequest("own:x", "x"), put(server, "a", b"aaa")]

    def copy(request: DownloadRequest, path: Path, on_bytes: Callable[[int], None]) -> tuple[int, str] | None:
        if not request.url.startswith("own:"):
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"copied")
        on_bytes(6)
        return 6, hashlib.sha256(b"copied").hexdigest()

    fixture.copy = copy
    assert fixture.run().files["x"].size == 6
    assert fixture.read_files() == {"x": b"copied", "a": b"aaa"}
    assert fixture.written == 9
    fixture.copy = lambda request, path, on_bytes: pytest.fail("it is there already")
    assert sorted(fixture.run().files) == ["a", "x"]


def test_nothing_is_written_that_the_disk_has_no_space_for(tmp_path: Path, server: Misbehaving) -> None:
    fixture = GatheringFixture(tmp_path, free=1000, need=10)
    server.files["/big"] = bytes(5000)
    fixture.requests = [DownloadRequest(f"{server.url}/big", "big")]
    (failure,) = fixture.run().failures
    assert failure.is_stopped
    assert fixture.read_files().get("big") is None


def test_notes_of_any_form_are_read_or_passed_over(tmp_path: Path) -> None:
    path = tmp_path / gathered_files.NOTES_FILE
    good = b'{"name":"a","url":"u","size":1,"sha256":"x"}\n'
    path.write_bytes(good + b'{"name":"b"')
    assert [note.name for note in gathered_files._read_notes(path)] == ["a"]
    path.write_bytes(b"\xff\n" + good)
    assert [note.name for note in gathered_files._read_notes(path)] == []
    assert list(gathered_files._read_notes(tmp_path / "none")) == []
