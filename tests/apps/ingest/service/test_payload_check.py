"""A payload is checked before it is submitted: every complaint at once, with its line or its file, and nothing is
fetched.
"""

import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apps.ingest.ingest_fixture import FileServer
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.service import check_payload, limit_bytes
from waybill.apps.ingest.service.payload_check import find_unreachable_rows
from waybill.apps.ingest.submission import PayloadType
from waybill.errors import InputError
from waybill.transfer.address_policy import AddressPolicy, TransferError

HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/{}\n"


def manifest(profile: str, *rows: str, end: str = "#%eof\n") -> bytes:
    return (HEAD.format(profile) + "".join(f"{row}\n" for row in rows) + end).encode()


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    return path


def bag(data: bytes = b"hello", said: bytes = b"hello") -> dict[str, bytes]:
    return {
        "b/bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "b/manifest-sha256.txt": f"{hashlib.sha256(said).hexdigest()}  data/a.txt\n".encode(),
        "b/data/a.txt": data,
    }


def test_a_good_manifest_is_counted_and_nothing_is_fetched(tmp_path: Path) -> None:
    web = FileServer()
    path = tmp_path / "a.checkm"
    path.write_bytes(
        manifest("mrt-ingest-manifest", f"{web.url}/a | | | 5 | | a.txt", f"{web.url}/b | | | 7 | | b.txt")
    )
    report = check_payload(path)
    web.close()
    assert (report.is_good, report.format, report.type, report.count, report.total_bytes) == (
        True,
        "manifest",
        PayloadType.OBJECT,
        2,
        12,
    )
    assert web.requests == []


def test_urls_that_would_be_refused_are_reported_by_line_and_nothing_is_fetched(tmp_path: Path) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        if host == "away.example.org":
            raise TransferError("The host 'away.example.org' could not be resolved.", code="host-unresolved")
        return {"intern.example.org": ["10.1.2.3"], "public.example.org": ["93.184.216.34"]}.get(host, [host])

    web = FileServer()
    path = tmp_path / "a.checkm"
    hosts = (
        "intern.example.org",
        "public.example.org",
        "169.254.169.254",
        "intern.example.org:8080",
        "away.example.org",
        "away.example.org",
        "192.168.7.7",
        web.url.removeprefix("http://"),
    )
    path.write_bytes(
        manifest("mrt-ingest-manifest", *(f"http://{host}/a | | | | | a{n}.txt" for n, host in enumerate(hosts)))
    )
    report = check_payload(
        path, address_policy=AddressPolicy(["192.168.0.0/16"], setting="app.ingest.fetch.allow", resolve=resolve)
    )
    web.close()
    assert [note.line for note in report.complaints] == [3, 5, 6, 10]
    assert str(report.complaints[0]) == (
        "Line 3: It would not be fetched. The host 'intern.example.org' is not a public address (10.1.2.3), "
        "and not on the list of those allowed (the setting app.ingest.fetch.allow)."
    )
    assert [(note.line, "could not be resolved" in note.text) for note in report.remarks] == [(7, True)]
    assert (asked.count("away.example.org"), web.requests) == (1, [])


def test_a_slow_name_server_ends_the_lookups_with_a_remark() -> None:
    ticks = iter(range(0, 1000, 6))
    rows = [ManifestRow(line, f"http://h{line}.example.org/a") for line in range(3, 9)]
    found = list(
        find_unreachable_rows(rows, AddressPolicy(resolve=lambda host, port: ["10.0.0.1"]), clock=lambda: next(ticks))
    )
    assert [each.line for each in found] == [3, 0]
    assert found[-1].text.startswith("From line 4 on no more hosts were looked up")


def test_every_complaint_of_a_manifest_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.checkm"
    path.write_bytes(
        manifest(
            "mrt-ingest-manifest",
            "ftp://example.org/a | | | | | a",
            "https://example.org/b | md5 | zz | | | b",
            "https://example.org/c | | | | | b",
            end="",
        )
    )
    report = check_payload(path)
    assert not report.is_good
    assert {note.line for note in report.complaints} == {3, 4, 5}
    assert str(report.complaints[0]).startswith("Line 3: ")


def test_a_manifest_sent_as_another_type_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.checkm"
    path.write_bytes(manifest("mrt-batch-manifest", "https://example.org/a.checkm"))
    assert check_payload(path).type is PayloadType.MANIFESTS
    report = check_payload(path, payload_type=PayloadType.CONTAINERS)
    assert [note.line for note in report.complaints] == [2]


@pytest.mark.parametrize("name", ["a.checkm", "manifest.checkm"])
def test_what_only_calls_itself_a_manifest_is_reported(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    report = check_payload(path)
    assert (report.is_good, report.format, report.type) == (False, "manifest", None)


def test_remarks_stop_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.checkm"
    path.write_bytes(manifest("mrt-ingest-manifest", "https://example.org/a | | | | | a").replace(b"\n", b"\r\n"))
    report = check_payload(path)
    assert report.is_good
    assert any("Windows" in note.text for note in report.remarks)


def test_a_container_is_looked_through(tmp_path: Path) -> None:
    report = check_payload(zipped(tmp_path / "a.zip", {"a.txt": b"12345", "d/b.txt": b"1"}))
    assert (report.is_good, report.format, report.count, report.total_bytes) == (True, "container", 2, 6)


def test_every_file_of_a_container_that_would_be_refused_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as made:
        made.addfile(tarfile.TarInfo("good"), io.BytesIO())
        for name, kind in (("../slip", tarfile.REGTYPE), ("link", tarfile.SYMTYPE), ("dev", tarfile.CHRTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "good"
            made.addfile(info, io.BytesIO())
    report = check_payload(path)
    assert not report.is_good
    assert {note.file for note in report.complaints} >= {"../slip", "link", "dev"}


def test_a_damaged_container_is_reported(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a.txt": os.urandom(1000)})
    path.write_bytes(path.read_bytes()[:600])
    assert not check_payload(path, payload_type=PayloadType.CONTAINER).is_good


def test_a_bag_is_validated_and_nothing_is_left_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    good = check_payload(zipped(tmp_path / "a.zip", bag()), scratch=scratch)
    assert (good.is_good, good.format, good.count) == (True, "bag", 3)
    bad = check_payload(zipped(tmp_path / "b.zip", bag(data=b"hullo")), scratch=scratch)
    assert (bad.is_good, bad.format) == (False, "bag")
    assert "data/a.txt" in str(bad.complaints)
    assert list(scratch.iterdir()) == []


def test_names_that_storage_cannot_keep_are_reported_for_every_payload_type(tmp_path: Path) -> None:
    unfit = "it ends with a space "
    packed = check_payload(zipped(tmp_path / "a.zip", {unfit: b"x", "a|b": b"x", "good": b"x"}))
    assert [note.file for note in packed.complaints] == [unfit, "a|b"]
    assert "Rename the file" in packed.complaints[0].text
    long = "/".join(["x" * 100] * 10) + "/" + "y" * 10  # with producer/ before it, longer than a name may be
    listed = tmp_path / "a.checkm"
    listed.write_bytes(
        manifest("mrt-ingest-manifest", "https://example.org/a | | | | | a", f"https://example.org/b | | | | | {long}")
    )
    assert [note.line for note in check_payload(listed).complaints] == [4]
    alone = tmp_path / "a|b.txt"
    alone.write_bytes(b"x")
    assert "cannot hold '|' in a name" in check_payload(alone).complaints[0].text


@pytest.mark.parametrize("top", ["", "b/"])
def test_a_bag_whose_payload_lies_where_its_own_files_are_kept_is_reported(tmp_path: Path, top: str) -> None:
    files = {name.removeprefix("b/"): data for name, data in bag().items()}
    files["data/mrt-bag/bagit.txt"] = b"hello"
    files["manifest-sha256.txt"] += f"{hashlib.sha256(b'hello').hexdigest()}  data/mrt-bag/bagit.txt\n".encode()
    report = check_payload(zipped(tmp_path / "a.zip", {top + name: data for name, data in files.items()}))
    (note,) = report.complaints
    assert (report.format, note.file) == ("bag", f"{top}data/mrt-bag/bagit.txt")
    assert "Rename that folder" in note.text


def test_of_a_file_only_its_name_is_checked(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"../slip": b"x"})
    report = check_payload(path, payload_type=PayloadType.FILE)
    assert (report.is_good, report.format, report.total_bytes) == (True, "file", path.stat().st_size)


def test_a_server_stops_at_its_limit(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {**bag(data=b"x" * 5000, said=b"x" * 5000)})
    with pytest.raises(InputError, match="unpacks to more than 1,000 bytes"):
        check_payload(path, scratch=tmp_path / "s", on_bytes=limit_bytes(1000))
    assert list((tmp_path / "s").iterdir()) == []


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=300)
    | st.binary(max_size=200).map(lambda rest: HEAD.format("mrt-ingest-manifest").encode() + rest)
    | st.binary(max_size=200).map(lambda rest: b"PK\x03\x04" + rest)
    | st.binary(max_size=600).map(lambda rest: b"\x1f\x8b\x08" + rest),
    st.sampled_from(["a.zip", "a.tar.gz", "a.checkm", "a", "a.tar", "a.tar.bz2"]),
    st.none() | st.sampled_from(list(PayloadType)),
)
def test_whatever_is_sent_there_is_a_report(tmp_path: Path, data: bytes, name: str, type: PayloadType | None) -> None:
    path = tmp_path / "payload"
    path.write_bytes(data)
    report = check_payload(path, filename=name, payload_type=type, scratch=tmp_path / "scratch")
    assert report.is_good == (report.complaints == [])
    assert all(note.text for note in report.complaints)
