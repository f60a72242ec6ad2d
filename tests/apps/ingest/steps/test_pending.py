"""Pending: what is refused before anything large is fetched, with which reasons, and whether that is for good."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.dock import asked, manifest, md5, sha256, step, submit, upload, walk
from tests.transfer.misbehaving import Misbehaving
from waybill.apps.ingest import lists, placing
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.steps import payload
from waybill.apps.ingest.submission import Submission, Type
from waybill.record import Record
from waybill.rules import Refused

HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\n"


@pytest.fixture
def patience() -> float:
    """Seconds for an answer: a busy machine may be slow to give one."""
    return 60.0


@pytest.fixture
def site(tmp_path: Path, patience: float) -> Iterator[Site]:
    with Site(tmp_path, settings={"outside": ["Processing"], "fetch": {"timeout": patience}}) as site:
        yield site


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        yield server


def taken(site: Site, job: Record) -> dict[str, Any]:
    """The list of files of a job that is taken."""
    job = walk(site, job, upto="Estimating")
    assert job.state == "Estimating", job.message
    document: dict[str, Any] = job.docs["files"]
    return document


def refused(site: Site, job: Record, *, final: bool = True) -> dict[str, Any]:
    """Why a job failed; whether it can be resumed is what the operator is told."""
    job = walk(site, job, upto="Estimating")
    assert job.state == "Failed"
    refusal: dict[str, Any] = job.docs["refusal"]
    assert refusal["final"] is final
    assert job.message.startswith(refusal["reason"])
    with site.engine() as engine:
        if final:
            with pytest.raises(Refused, match="cannot be resumed"):
                engine.act(job.ref, "resume")
        else:
            assert engine.act(job.ref, "resume").record.state == "Pending"
    return refusal


def zip_of(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


# --- Pending -> Estimating


def test_a_single_file_is_one_row_and_asks_nobody(site: Site) -> None:
    document = taken(
        site,
        submit(site, f"{site.web.url}/dir/a%20b.txt?x=1", Type.FILE, digest_type="SHA-256", digest_value="AB" * 32),
    )
    assert (document["type"], document["count"]) == ("file", 1)
    (row,) = lists.each(site.depot.objects, document, Row)
    assert (row.name, row.algorithm, row.digest) == ("a b.txt", "sha256", "ab" * 32)
    assert site.web.requests == []


def test_a_manifest_gives_its_rows(site: Site) -> None:
    rows = [Row(3, f"{site.web.url}/{n}", f"d/{n}", "md5", md5(b"x"), 1, mime="text/x-odd") for n in range(3)]
    document = taken(site, submit(site, site.web.put("m.checkm", manifest(*rows)), Type.OBJECT))
    assert document["type"] == "object-manifest"
    assert [(row.name, row.size, row.mime) for row in lists.each(site.depot.objects, document, Row)] == [
        (f"d/{n}", 1, "text/x-odd") for n in range(3)
    ]
    assert site.web.requests == [("GET", "/m.checkm")]


def test_a_long_manifest_lies_beside_the_record(site: Site) -> None:
    rows = [Row(0, f"{site.web.url}/{n}", f"name-{n}") for n in range(500)]
    job = submit(site, **upload(site, "m.checkm", manifest(*rows)), type=Type.OBJECT)
    document = taken(site, job)
    assert document["list"].startswith(f"ingest/lists/job/{job.id}/")
    assert len(list(lists.each(site.depot.objects, document, Row))) == 500


def test_a_manifest_with_windows_line_ends_is_taken(site: Site) -> None:
    data = manifest(Row(0, f"{site.web.url}/a", "a")).replace(b"\n", b"\r\n")
    assert taken(site, submit(site, **upload(site, "m.checkm", data), type=Type.OBJECT))["count"] == 1


def test_a_batch_type_in_a_job_means_its_rows(site: Site) -> None:
    assert taken(site, submit(site, f"{site.web.url}/a.zip", Type.CONTAINERS))["type"] == "container"
    assert taken(site, submit(site, f"{site.web.url}/a.zip", Type.FILES))["type"] == "file"


def test_a_zip_sent_as_a_file_is_a_file(site: Site) -> None:
    assert taken(site, submit(site, **upload(site, "a.zip", zip_of(a=b"x")), type=Type.FILE))["type"] == "file"


@pytest.mark.parametrize(
    ("name", "data", "type"),
    [
        ("a.zip", b"PK", "container"),
        ("a.TAR.GZ", b"", "container"),
        ("a.tbz2", b"", "container"),
        ("m.checkm", manifest(Row(0, "http://example.org/a", "a")), "object-manifest"),
        ("m.txt", manifest(Row(0, "http://example.org/a", "a")), "object-manifest"),
        ("notes.txt", b"hello", "file"),
        ("nothing", zip_of(a=b"x"), "container"),
        ("nothing", manifest(Row(0, "http://example.org/a", "a")), "object-manifest"),
        ("nothing", b"hello", "file"),
        ("letter.docx", zip_of(a=b"x"), "file"),  # a zip inside, and a file to everybody
    ],
)
@pytest.mark.parametrize("where", ["uploaded", "elsewhere"])
def test_what_nobody_said_is_guessed(site: Site, name: str, data: bytes, type: str, where: str) -> None:
    job = submit(site, **upload(site, name, data)) if where == "uploaded" else submit(site, site.web.put(name, data))
    assert taken(site, job)["type"] == type


def test_what_is_too_long_to_be_a_manifest_is_not_fetched_to_be_guessed(site: Site) -> None:
    assert taken(site, submit(site, site.web.put("nothing", bytes(5_000_001))))["type"] == "file"
    assert asked(site, "GET") == []


# --- Pending -> Failed, for good


def test_pending_to_failed_on_a_payload_digest_mismatch(site: Site) -> None:
    said = upload(site, "a.txt", b"hello", digest_type="sha-256", digest_value=sha256(b"other"))
    refusal = refused(site, submit(site, **said, type=Type.FILE))
    assert refusal["reason"] == (
        f"The payload is not what was promised: what came has the sha256 {sha256(b'hello')}, and {sha256(b'other')} was promised."
    )


def test_an_upload_is_read_where_its_digest_was_not_taken_as_it_came(site: Site) -> None:
    good = upload(site, "a.txt", b"hello", digest_type="MD5", digest_value=md5(b"hello").upper())
    assert taken(site, submit(site, **good, type=Type.FILE))["count"] == 1
    bad = upload(site, "a.txt", b"hello", digest_type="MD5", digest_value=md5(b"other"))
    assert "md5" in refused(site, submit(site, **bad, type=Type.FILE))["reason"]


def test_the_size_of_an_upload_is_compared_too(site: Site) -> None:
    assert (
        "5 bytes came, and 6 were promised"
        in refused(site, submit(site, **upload(site, "a.txt", b"hello", size=6)))["reason"]
    )


def test_a_manifest_by_url_with_a_wrong_digest(site: Site) -> None:
    url = site.web.put("m.checkm", manifest(Row(0, f"{site.web.url}/a", "a")))
    refusal = refused(site, submit(site, url, Type.OBJECT, digest_type="md5", digest_value=md5(b"other")))
    assert "The payload is not what was promised" in refusal["reason"]


@pytest.mark.parametrize(
    ("digest_type", "digest_value", "why"),
    [
        ("md2", "0" * 32, "not a digest that can be checked"),
        ("md5", "xyz", "not an MD5 in hex"),
        ("md5", "", "give both"),
        ("", "0" * 32, "give both"),
    ],
)
def test_digests_that_cannot_be_checked(site: Site, digest_type: str, digest_value: str, why: str) -> None:
    job = submit(site, f"{site.web.url}/a.txt", Type.FILE, digest_type=digest_type, digest_value=digest_value)
    assert why in refused(site, job)["reason"]


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        (b"", ["The manifest is empty."]),
        (HEAD.encode() + b"http://example.org/a |  |  |  |  | a\n", ["Line 3: The manifest ends without #%eof"]),
        (manifest(Row(0, "http://x.org/a", "a"), Row(0, "http://x.org/b", "a")), ["Line 7: 'a' is there twice."]),
        (
            HEAD.encode() + b"file:///etc/passwd |  |  |  |  | a\nhttp://h/b | md5 | zz | x |  | b\n#%eof\n",
            [
                "Line 3: 'file:///etc/passwd' cannot be fetched",
                "Line 4: 'zz' is not an MD5 in hex",
                "Line 4: 'x' is not a size",
            ],
        ),
        (
            HEAD.replace("mrt-ingest", "mrt-batch").encode() + b"http://x.org/a.checkm\n#%eof\n",
            ["Line 2: The profile is mrt-batch-manifest"],
        ),
        (zip_of(a=b"x"), ["This is no manifest, but a file of another kind."]),
        (HEAD.encode() + b"http://x.org/a |  |  |  |  | ../a\n#%eof\n", ["Line 3: '../a' is not a name"]),
        (HEAD.encode() + b"http://x.org/%20a%20\n#%eof\n", ["Line 3: ' a ' cannot be stored"]),
        (HEAD.encode() + b"http://x.org/a%7Cb\n#%eof\n", ["Line 3: 'a|b' cannot be stored"]),
    ],
)
def test_pending_to_failed_on_a_corrupt_manifest(site: Site, data: bytes, reasons: list[str]) -> None:
    refusal = refused(site, submit(site, site.web.put("m.checkm", data), Type.OBJECT))
    assert len(refusal["reasons"]) == len(reasons)
    assert all(reason in found for reason, found in zip(reasons, refusal["reasons"], strict=True)), refusal["reasons"]
    assert asked(site, "HEAD") == []


def test_of_many_complaints_all_are_kept_and_a_hundred_are_shown(site: Site) -> None:
    rows = "".join(f"ftp://x.org/{n} |  |  |  |  | n{n}\n" for n in range(150))
    refusal = refused(site, submit(site, **upload(site, "m.checkm", f"{HEAD}{rows}#%eof\n".encode()), type=Type.OBJECT))
    assert len(refusal["reasons"]) == 100
    assert len(list(lists.each(site.depot.objects, refusal["list"], str))) == 150
    assert len(refusal["reason"]) < 500


def test_an_upload_that_is_too_long_for_a_manifest(site: Site) -> None:
    assert (
        "longer than 5,000,000 bytes"
        in refused(site, submit(site, **upload(site, "m", bytes(5_000_001)), type=Type.OBJECT))["reason"]
    )


def test_a_manifest_of_a_batch_is_no_object(site: Site) -> None:
    data = HEAD.replace("mrt-ingest", "mrt-container-batch").encode() + b"http://x.org/a.zip\n#%eof\n"
    assert "submit it as a batch" in refused(site, submit(site, **upload(site, "m.txt", data)))["reason"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "names no payload"),
        ("file:///etc/passwd", "only http and https"),
        ("/etc/passwd", "only http and https"),
        ("ftp://example.org/a", "only http and https"),
        ("http://", "names no host"),
        ("http://[::1", "not a URL"),
        ("https://ann:secret@example.org/a.txt", "user name or password"),
        ("waybill:ocfl/v1/inventory.json", "not the name of an upload"),
        ("waybill:ingest/payloads/../../ocfl/x", "not the name of an upload"),
        ("waybill:ingest/payloads/0b6f4c1e-5d7a-5c3e-8f21-6a9d2e4b7c10", "not the name of an upload"),
        ("waybill:ingest/payloads/0b6f4c1e-5d7a-5c3e-8f21-6a9d2e4b7c11/gone.txt", "no longer there"),
    ],
)
def test_addresses_that_lead_nowhere(site: Site, url: str, why: str) -> None:
    refusal = refused(site, submit(site, url, Type.FILE))
    assert why in refusal["reason"]
    assert "secret" not in refusal["reason"]


@pytest.mark.parametrize(
    "filename", ["a|b", " a", "a ", "../a", "/a", "a/../b", "x" * 256, "d/" * 500 + "a", ".partial/a"]
)
def test_a_file_whose_name_storage_cannot_keep(site: Site, filename: str) -> None:
    assert "name" in refused(site, submit(site, f"{site.web.url}/a", Type.FILE, filename=filename))["reason"]


def test_a_file_without_a_name(site: Site) -> None:
    assert "give it as `filename`" in refused(site, submit(site, f"{site.web.url}/", Type.FILE))["reason"]


# --- Pending -> Failed, not for good; and trouble


@pytest.mark.parametrize(
    "does", ["status 404", "status 403", "redirect /m.checkm", "endless", "says 2147483648", "gzip"]
)
def test_a_manifest_that_cannot_be_had_may_be_mended_where_it_lies(site: Site, server: Misbehaving, does: str) -> None:
    server.files["/m.checkm"] = b"x"
    server.does["/m.checkm"] = [does]
    assert (
        "The payload could not be fetched"
        in refused(site, submit(site, f"{server.url}/m.checkm", Type.OBJECT), final=False)["reason"]
    )


def test_a_private_address_is_refused_and_may_be_allowed_later(tmp_path: Path) -> None:
    with Site(tmp_path, settings={"fetch": {"allow": []}}) as site:
        url = site.web.put("m.checkm", manifest(Row(0, "http://example.org/a", "a")))
        assert "is not a public address" in refused(site, submit(site, url, Type.OBJECT), final=False)["reason"]
        assert site.web.requests == []


@pytest.mark.parametrize(("does", "patience"), [("status 500", 60.0), ("hang", 1.0), ("cut 3", 60.0)])
def test_trouble_with_a_manifest_is_tried_again(site: Site, server: Misbehaving, does: str) -> None:
    server.files["/m.checkm"] = manifest(Row(0, "http://example.org/a", "a"))
    server.does["/m.checkm"] = [does, does, "ok"]
    job = submit(site, f"{server.url}/m.checkm", Type.OBJECT)
    assert step(site, job).event == "retry"
    after = site.get("job", job.id)
    assert (after.state, after.tries, "refusal" in after.docs) == ("Pending", 1, False)
    assert "The payload could not be fetched" in after.message


def test_a_refusal_that_was_mended_is_forgotten(site: Site) -> None:
    job = walk(site, submit(site, f"{site.web.url}/m.checkm", Type.OBJECT), upto="Estimating")
    assert job.docs["refusal"]["final"] is False
    site.web.put("m.checkm", manifest(Row(0, f"{site.web.url}/a", "a")))
    with site.engine() as engine:
        engine.act(job.ref, "resume")
    job = walk(site, job, upto="Estimating")
    assert (job.state, job.retries) == ("Estimating", 1)
    assert "refusal" not in job.docs


# --- whatever comes


@given(
    url=st.text() | st.text().map("waybill:".__add__) | st.text().map("http://".__add__),
    name=st.text(),
    value=st.text(),
)
@settings(max_examples=200)
def test_any_submission_is_a_payload_or_is_refused(url: str, name: str, value: str) -> None:
    said, found = "", None
    try:
        found = payload.of(
            Submission(profile="p", url=url, filename=name, digest_type="md5" if value else "", digest_value=value)
        )
    except payload.Unfit as error:
        said = str(error)
    if found is None:
        assert said.endswith(".")
    else:
        assert found.url.lower().startswith(("http:", "https:", "waybill:ingest/payloads/"))
        assert ".." not in found.upload.split("/")


@given(st.text())
def test_any_name_can_be_stored_or_is_refused(name: str) -> None:
    wrong = placing.fault(name)
    if wrong is None:
        line = next(line for line in manifest(Row(0, "http://x.org/", name)).splitlines() if line.startswith(b"http"))
        assert line.endswith(name.encode())
    else:
        assert wrong.endswith(".")
