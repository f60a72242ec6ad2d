"""Pending: what is refused before anything large is fetched, with which reasons, and whether that is for good."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.new_jobs import list_requested_paths, manifest, md5, sha256, step, submit, upload, walk
from tests.transfer.misbehaving import Misbehaving
from waybill.apps.ingest import object_paths, payload
from waybill.apps.ingest.documents import PayloadFiles, Refusal
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.job_refusal import SubmissionRefused
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.manifests import record_lists
from waybill.record import Record
from waybill.rules import ActionRefused

HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\n"


@pytest.fixture
def patience() -> float:
    """Seconds for an answer: a busy machine may be slow to give one."""
    return 60.0


@pytest.fixture
def ingest(tmp_path: Path, patience: float) -> Iterator[IngestFixture]:
    with IngestFixture(
        tmp_path, settings={"external_states": ["Processing"], "fetch": {"timeout": patience}}
    ) as ingest:
        yield ingest


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        yield server


def read_file_list(ingest: IngestFixture, job: Record) -> PayloadFiles:
    """The list of files of a job that is taken."""
    job = walk(ingest, job, upto="Estimating")
    assert job.state == "Estimating", job.message
    return job.document(PayloadFiles)


def expect_refusal(ingest: IngestFixture, job: Record, *, final: bool = True) -> Refusal:
    """Why a job failed; whether it can be resumed is what the operator is told."""
    job = walk(ingest, job, upto="Estimating")
    assert job.state == "Failed"
    refusal = job.document(Refusal)
    assert refusal.final is final
    assert job.message.startswith(refusal.reason)
    with ingest.engine() as engine:
        if final:
            with pytest.raises(ActionRefused, match="cannot be resumed"):
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


def test_a_single_file_is_one_row_and_asks_nobody(ingest: IngestFixture) -> None:
    document = read_file_list(
        ingest,
        submit(
            ingest,
            f"{ingest.web.url}/dir/a%20b.txt?x=1",
            PayloadType.FILE,
            digest_type="SHA-256",
            digest_value="AB" * 32,
        ),
    )
    assert (document.type, document.count) == ("file", 1)
    (row,) = record_lists.read_list(ingest.environment.objects, document, ManifestRow)
    assert (row.name, row.algorithm, row.digest) == ("a b.txt", "sha256", "ab" * 32)
    assert ingest.web.requests == []


def test_a_manifest_gives_its_rows(ingest: IngestFixture) -> None:
    rows = [ManifestRow(3, f"{ingest.web.url}/{n}", f"d/{n}", "md5", md5(b"x"), 1, mime="text/x-odd") for n in range(3)]
    document = read_file_list(ingest, submit(ingest, ingest.web.put("m.checkm", manifest(*rows)), PayloadType.OBJECT))
    assert document.type == "object-manifest"
    assert [
        (row.name, row.size, row.mime)
        for row in record_lists.read_list(ingest.environment.objects, document, ManifestRow)
    ] == [(f"d/{n}", 1, "text/x-odd") for n in range(3)]
    assert ingest.web.requests == [("GET", "/m.checkm")]


def test_a_long_manifest_lies_beside_the_record(ingest: IngestFixture) -> None:
    rows = [ManifestRow(0, f"{ingest.web.url}/{n}", f"name-{n}") for n in range(500)]
    job = submit(ingest, **upload(ingest, "m.checkm", manifest(*rows)), type=PayloadType.OBJECT)
    document = read_file_list(ingest, job)
    assert document.list.startswith(f"ingest/lists/job/{job.id}/")
    assert len(list(record_lists.read_list(ingest.environment.objects, document, ManifestRow))) == 500


def test_a_manifest_with_windows_line_ends_is_taken(ingest: IngestFixture) -> None:
    data = manifest(ManifestRow(0, f"{ingest.web.url}/a", "a")).replace(b"\n", b"\r\n")
    assert (
        read_file_list(ingest, submit(ingest, **upload(ingest, "m.checkm", data), type=PayloadType.OBJECT)).count == 1
    )


def test_a_batch_type_in_a_job_means_its_rows(ingest: IngestFixture) -> None:
    assert read_file_list(ingest, submit(ingest, f"{ingest.web.url}/a.zip", PayloadType.CONTAINERS)).type == "container"
    assert read_file_list(ingest, submit(ingest, f"{ingest.web.url}/a.zip", PayloadType.FILES)).type == "file"


def test_a_zip_sent_as_a_file_is_a_file(ingest: IngestFixture) -> None:
    assert (
        read_file_list(ingest, submit(ingest, **upload(ingest, "a.zip", zip_of(a=b"x")), type=PayloadType.FILE)).type
        == "file"
    )


@pytest.mark.parametrize(
    ("name", "data", "type"),
    [
        ("a.zip", b"PK", "container"),
        ("a.TAR.GZ", b"", "container"),
        ("a.tbz2", b"", "container"),
        ("m.checkm", manifest(ManifestRow(0, "http://example.org/a", "a")), "object-manifest"),
        ("m.txt", manifest(ManifestRow(0, "http://example.org/a", "a")), "object-manifest"),
        ("notes.txt", b"hello", "file"),
        ("nothing", zip_of(a=b"x"), "container"),
        ("nothing", manifest(ManifestRow(0, "http://example.org/a", "a")), "object-manifest"),
        ("nothing", b"hello", "file"),
        ("letter.docx", zip_of(a=b"x"), "file"),  # a zip inside, and a file to everybody
    ],
)
@pytest.mark.parametrize("where", ["uploaded", "elsewhere"])
def test_an_undeclared_type_is_guessed(ingest: IngestFixture, name: str, data: bytes, type: str, where: str) -> None:
    job = (
        submit(ingest, **upload(ingest, name, data))
        if where == "uploaded"
        else submit(ingest, ingest.web.put(name, data))
    )
    assert read_file_list(ingest, job).type == type


def test_what_is_too_long_to_be_a_manifest_is_not_fetched_to_be_guessed(ingest: IngestFixture) -> None:
    assert read_file_list(ingest, submit(ingest, ingest.web.put("nothing", bytes(5_000_001)))).type == "file"
    assert list_requested_paths(ingest, "GET") == []


# --- Pending -> Failed, for good


def test_pending_to_failed_on_a_payload_digest_mismatch(ingest: IngestFixture) -> None:
    fields = upload(ingest, "a.txt", b"hello", digest_type="sha-256", digest_value=sha256(b"other"))
    refusal = expect_refusal(ingest, submit(ingest, **fields, type=PayloadType.FILE))
    assert refusal.reason == (
        f"The payload is not what was promised: what came has the sha256 {sha256(b'hello')}, and {sha256(b'other')} was promised."
    )


def test_an_upload_is_read_where_its_digest_was_not_taken_as_it_came(ingest: IngestFixture) -> None:
    good = upload(ingest, "a.txt", b"hello", digest_type="MD5", digest_value=md5(b"hello").upper())
    assert read_file_list(ingest, submit(ingest, **good, type=PayloadType.FILE)).count == 1
    bad = upload(ingest, "a.txt", b"hello", digest_type="MD5", digest_value=md5(b"other"))
    assert "md5" in expect_refusal(ingest, submit(ingest, **bad, type=PayloadType.FILE)).reason


def test_the_size_of_an_upload_is_compared_too(ingest: IngestFixture) -> None:
    assert (
        "5 bytes came, and 6 were promised"
        in expect_refusal(ingest, submit(ingest, **upload(ingest, "a.txt", b"hello", size=6))).reason
    )


def test_a_manifest_by_url_with_a_wrong_digest(ingest: IngestFixture) -> None:
    url = ingest.web.put("m.checkm", manifest(ManifestRow(0, f"{ingest.web.url}/a", "a")))
    refusal = expect_refusal(
        ingest, submit(ingest, url, PayloadType.OBJECT, digest_type="md5", digest_value=md5(b"other"))
    )
    assert "The payload is not what was promised" in refusal.reason


@pytest.mark.parametrize(
    ("digest_type", "digest_value", "why"),
    [
        ("md2", "0" * 32, "not a digest that can be checked"),
        ("md5", "xyz", "not an MD5 in hex"),
        ("md5", "", "give both"),
        ("", "0" * 32, "give both"),
    ],
)
def test_digests_that_cannot_be_checked(ingest: IngestFixture, digest_type: str, digest_value: str, why: str) -> None:
    job = submit(
        ingest, f"{ingest.web.url}/a.txt", PayloadType.FILE, digest_type=digest_type, digest_value=digest_value
    )
    assert why in expect_refusal(ingest, job).reason


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        (b"", ["The manifest is empty."]),
        (HEAD.encode() + b"http://example.org/a |  |  |  |  | a\n", ["Line 3: The manifest ends without #%eof"]),
        (
            manifest(ManifestRow(0, "http://x.org/a", "a"), ManifestRow(0, "http://x.org/b", "a")),
            ["Line 7: 'a' is there twice."],
        ),
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
        (zip_of(a=b"x"), ["This is not a manifest, but a file of another kind."]),
        (HEAD.encode() + b"http://x.org/a |  |  |  |  | ../a\n#%eof\n", ["Line 3: '../a' is not a name"]),
        (HEAD.encode() + b"http://x.org/%20a%20\n#%eof\n", ["Line 3: ' a ' cannot be stored"]),
        (HEAD.encode() + b"http://x.org/a%7Cb\n#%eof\n", ["Line 3: 'a|b' cannot be stored"]),
    ],
)
def test_pending_to_failed_on_a_corrupt_manifest(ingest: IngestFixture, data: bytes, reasons: list[str]) -> None:
    refusal = expect_refusal(ingest, submit(ingest, ingest.web.put("m.checkm", data), PayloadType.OBJECT))
    assert len(refusal.reasons) == len(reasons)
    assert all(reason in found for reason, found in zip(reasons, refusal.reasons, strict=True)), refusal.reasons
    assert list_requested_paths(ingest, "HEAD") == []


def test_of_many_complaints_all_are_kept_and_a_hundred_are_shown(ingest: IngestFixture) -> None:
    rows = "".join(f"ftp://x.org/{n} |  |  |  |  | n{n}\n" for n in range(150))
    refusal = expect_refusal(
        ingest, submit(ingest, **upload(ingest, "m.checkm", f"{HEAD}{rows}#%eof\n".encode()), type=PayloadType.OBJECT)
    )
    assert len(refusal.reasons) == 100
    assert refusal.list is not None
    assert len(list(record_lists.read_list(ingest.environment.objects, refusal.list, str))) == 150
    assert len(refusal.reason) < 500


def test_an_upload_that_is_too_long_for_a_manifest(ingest: IngestFixture) -> None:
    assert (
        "longer than 5,000,000 bytes"
        in expect_refusal(
            ingest, submit(ingest, **upload(ingest, "m", bytes(5_000_001)), type=PayloadType.OBJECT)
        ).reason
    )


def test_a_manifest_of_a_batch_is_no_object(ingest: IngestFixture) -> None:
    data = HEAD.replace("mrt-ingest", "mrt-container-batch").encode() + b"http://x.org/a.zip\n#%eof\n"
    assert "submit it as a batch" in expect_refusal(ingest, submit(ingest, **upload(ingest, "m.txt", data))).reason


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
def test_addresses_that_lead_nowhere(ingest: IngestFixture, url: str, why: str) -> None:
    refusal = expect_refusal(ingest, submit(ingest, url, PayloadType.FILE))
    assert why in refusal.reason
    assert "secret" not in refusal.reason


@pytest.mark.parametrize(
    "filename", ["a|b", " a", "a ", "../a", "/a", "a/../b", "x" * 256, "d/" * 500 + "a", ".partial/a"]
)
def test_a_file_whose_name_storage_cannot_keep(ingest: IngestFixture, filename: str) -> None:
    assert (
        "name"
        in expect_refusal(ingest, submit(ingest, f"{ingest.web.url}/a", PayloadType.FILE, filename=filename)).reason
    )


def test_a_file_without_a_name(ingest: IngestFixture) -> None:
    assert (
        "give it as `filename`" in expect_refusal(ingest, submit(ingest, f"{ingest.web.url}/", PayloadType.FILE)).reason
    )


# --- Pending -> Failed, not for good; and trouble


@pytest.mark.parametrize(
    "does", ["status 404", "status 403", "redirect /m.checkm", "endless", "says 2147483648", "gzip"]
)
def test_a_manifest_that_cannot_be_fetched_may_be_repaired_on_its_server(
    ingest: IngestFixture, server: Misbehaving, does: str
) -> None:
    server.files["/m.checkm"] = b"x"
    server.does["/m.checkm"] = [does]
    assert (
        "The payload could not be fetched"
        in expect_refusal(ingest, submit(ingest, f"{server.url}/m.checkm", PayloadType.OBJECT), final=False).reason
    )


def test_a_private_address_is_refused_and_may_be_allowed_later(tmp_path: Path) -> None:
    with IngestFixture(tmp_path, settings={"fetch": {"allow": []}}) as ingest:
        url = ingest.web.put("m.checkm", manifest(ManifestRow(0, "http://example.org/a", "a")))
        assert (
            "is not a public address"
            in expect_refusal(ingest, submit(ingest, url, PayloadType.OBJECT), final=False).reason
        )
        assert ingest.web.requests == []


@pytest.mark.parametrize(("does", "patience"), [("status 500", 60.0), ("hang", 1.0), ("cut 3", 60.0)])
def test_transient_errors_of_a_manifest_are_tried_again(ingest: IngestFixture, server: Misbehaving, does: str) -> None:
    server.files["/m.checkm"] = manifest(ManifestRow(0, "http://example.org/a", "a"))
    server.does["/m.checkm"] = [does, does, "ok"]
    job = submit(ingest, f"{server.url}/m.checkm", PayloadType.OBJECT)
    assert step(ingest, job).cause == "retry"
    after = ingest.get("job", job.id)
    assert (after.state, after.error_count, "refusal" in after.documents) == ("Pending", 1, False)
    assert "The payload could not be fetched" in after.message


def test_a_refusal_is_removed_after_the_repair(ingest: IngestFixture) -> None:
    job = walk(ingest, submit(ingest, f"{ingest.web.url}/m.checkm", PayloadType.OBJECT), upto="Estimating")
    assert job.documents["refusal"]["final"] is False
    ingest.web.put("m.checkm", manifest(ManifestRow(0, f"{ingest.web.url}/a", "a")))
    with ingest.engine() as engine:
        engine.act(job.ref, "resume")
    job = walk(ingest, job, upto="Estimating")
    assert (job.state, job.resume_count) == ("Estimating", 1)
    assert "refusal" not in job.documents


# --- whatever comes


@given(
    url=st.text() | st.text().map("waybill:".__add__) | st.text().map("http://".__add__),
    name=st.text(),
    value=st.text(),
)
@settings(max_examples=200)
def test_any_submission_is_a_payload_or_is_refused(url: str, name: str, value: str) -> None:
    output, found = "", None
    try:
        found = payload.payload_of(
            Submission(profile="p", url=url, filename=name, digest_type="md5" if value else "", digest_value=value)
        )
    except SubmissionRefused as error:
        output = str(error)
    if found is None:
        assert output.endswith(".")
    else:
        assert found.url.lower().startswith(("http:", "https:", "waybill:ingest/payloads/"))
        assert ".." not in found.upload.split("/")


@given(st.text())
def test_any_name_can_be_stored_or_is_refused(name: str) -> None:
    wrong = object_paths.find_fault(name)
    if wrong is None:
        line = next(
            line for line in manifest(ManifestRow(0, "http://x.org/", name)).splitlines() if line.startswith(b"http")
        )
        assert line.endswith(name.encode())
    else:
        assert wrong.endswith(".")
