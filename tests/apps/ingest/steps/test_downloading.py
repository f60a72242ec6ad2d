"""Downloading: what comes is what was promised, whatever a server or a container does; and nothing that has come is
fetched twice.
"""

import bz2
import gzip
import io
import os
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.disk_space_fixture import DiskSpaceFixture
from tests.apps.ingest.steps.new_jobs import (
    folder_of,
    list_requested_paths,
    manifest,
    md5,
    producer,
    resume_after,
    sha256,
    submit,
    upload,
    walk,
)
from tests.disk_space.fake_disk import FakeDisk
from tests.transfer.misbehaving import Misbehaving
from waybill.apps.ingest import working_files
from waybill.apps.ingest.documents import DownloadedFiles
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.submission import PayloadType
from waybill.disk_space import SpaceReservations
from waybill.manifests import record_lists
from waybill.record import Record
from waybill.rules import ActionRefused

BIG = bytes(range(256)) * 8192  # two mebibytes


@pytest.fixture
def patience() -> float:
    """Seconds for an answer: a busy machine may be slow to give one, and there is only one try."""
    return 60.0


@pytest.fixture
def ingest(tmp_path: Path, patience: float) -> Iterator[IngestFixture]:
    with IngestFixture(
        tmp_path, settings={"external_states": ["Processing"], "fetch": {"timeout": patience, "max_tries": 1}}
    ) as ingest:
        yield ingest


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        yield server


def listed(ingest: IngestFixture, job: Record) -> list[working_files.StagedFile]:
    return list(
        record_lists.read_list(ingest.environment.objects, job.document(DownloadedFiles), working_files.StagedFile)
    )


def expect_failure(ingest: IngestFixture, job: Record, *, final: bool) -> dict[str, Any]:
    job = walk(ingest, job)
    assert job.state == "Failed"
    assert job.documents["refusal"]["final"] is final, job.message
    with ingest.engine() as engine:
        if final:
            with pytest.raises(ActionRefused, match="cannot be resumed"):
                engine.act(job.ref, "resume")
        else:
            assert engine.act(job.ref, "resume").record.state == "Downloading"
    assert ingest.resources.working_disk.reservations.list_reservations() == []
    refusal: dict[str, Any] = job.documents["refusal"]
    return refusal


def of_rows(ingest: IngestFixture, *rows: ManifestRow) -> Record:
    return submit(ingest, **upload(ingest, "m.checkm", manifest(*rows)), type=PayloadType.OBJECT)


def at_once(ingest: IngestFixture, job: Record) -> Record:
    """Not after the state's back-off: an operator stops it, and takes it up again."""
    with ingest.engine() as engine:
        engine.act(job.ref, "fail", confirmed=True)
        return engine.act(job.ref, "resume").record


# --- Downloading -> Processing


def test_a_single_file_comes_with_one_head_and_one_get(ingest: IngestFixture) -> None:
    url = ingest.web.put("a.txt", b"hello")
    job = walk(ingest, submit(ingest, url, PayloadType.FILE))
    assert (job.state, job.priority) == ("Processing", 5)
    assert ingest.web.requests == [("HEAD", "/a.txt"), ("GET", "/a.txt")]
    assert producer(ingest, job) == {"a.txt": b"hello"}
    assert job.documents["space_needed"] == 5
    assert job.documents["downloaded"] == {
        "v": 1,
        "count": 1,
        "attempt": job.documents["downloaded"]["attempt"],
        "bytes": 5,
        "rows": [{"path": "producer/a.txt", "size": 5, "sha256": sha256(b"hello"), "mime": "text/plain"}],
    }
    assert sorted(path.name for path in folder_of(ingest, job).iterdir() if not path.name.startswith(".")) == sorted(
        ["producer", str(job.documents["downloaded"]["attempt"])]
    )
    assert ingest.resources.working_disk.reservations.list_reservations() == []


def test_an_upload_comes_without_a_request(ingest: IngestFixture) -> None:
    job = walk(ingest, submit(ingest, **upload(ingest, "a.zip", b"PK no zip at all"), type=PayloadType.FILE))
    assert producer(ingest, job) == {"a.zip": b"PK no zip at all"}  # sent as a file: never opened
    assert listed(ingest, job) == [
        working_files.StagedFile("producer/a.zip", 16, sha256(b"PK no zip at all"), "application/zip")
    ]
    assert ingest.web.requests == []


def test_all_files_of_a_manifest_come_in_their_order(ingest: IngestFixture) -> None:
    data = {f"d{n % 3}/f{n}.txt": os.urandom(n) for n in range(30)}
    rows = [
        ManifestRow(0, ingest.web.put(f"f{n}", body), name, "sha256", sha256(body), mime="text/x")
        for n, (name, body) in enumerate(data.items())
    ]
    job = walk(ingest, of_rows(ingest, *rows))
    assert job.state == "Processing", job.message
    assert producer(ingest, job) == data
    assert listed(ingest, job) == [
        working_files.StagedFile(f"producer/{name}", len(body), sha256(body), "text/x") for name, body in data.items()
    ]
    assert job.documents["downloaded"]["bytes"] == job.documents["space_needed"] == sum(map(len, data.values()))


def test_space_and_priority_are_reckoned_again_from_what_came(ingest: IngestFixture, server: Misbehaving) -> None:
    server.files["/a"], server.does["/a"] = b"hello", ["nolength"]
    job = walk(ingest, submit(ingest, f"{server.url}/a", PayloadType.FILE), upto="Provisioning")
    assert (job.documents["space_needed"], job.priority) == (-1, 15)
    job = walk(ingest, job)
    assert (job.documents["space_needed"], job.priority) == (5, 5)


def test_files_that_the_producer_wrote_for_us_are_left_as_files(ingest: IngestFixture) -> None:
    rows = [
        ManifestRow(0, ingest.web.put(name, name.encode()), name)
        for name in ("mrt-delete.txt", "mrt-erc.txt", "mrt-manifest.txt")
    ]
    assert set(producer(ingest, walk(ingest, of_rows(ingest, *rows)))) == {
        "mrt-delete.txt",
        "mrt-erc.txt",
        "mrt-manifest.txt",
    }


def test_a_job_that_others_led_here_is_listed_first(ingest: IngestFixture) -> None:
    url = ingest.web.put("m.checkm", manifest(ManifestRow(0, ingest.web.put("a.txt", b"hello"), "a.txt")))
    job = walk(ingest, resume_after(ingest, "Provisioning", url, {}, PayloadType.OBJECT))
    assert (job.state, producer(ingest, job)) == ("Processing", {"a.txt": b"hello"})


# --- what is not what was promised


def test_a_single_file_with_a_wrong_digest_is_refused_for_good(ingest: IngestFixture) -> None:
    job = submit(ingest, ingest.web.put("a", b"hello"), PayloadType.FILE, digest_type="md5", digest_value=md5(b"other"))
    refusal = expect_failure(ingest, job, final=True)
    assert refusal["reasons"] == [f"'a': What came has the md5 {md5(b'hello')}, and {md5(b'other')} was promised."]


def test_every_digest_that_was_promised_is_compared(ingest: IngestFixture) -> None:
    promised: dict[str, Any] = {"digest_type": "md5", "digest_value": md5(b"hello")}
    job = submit(ingest, ingest.web.put("a", b"hello"), PayloadType.FILE, **promised, row_digests={"sha-1": "0" * 40})
    assert "sha1" in expect_failure(ingest, job, final=True)["reason"]


def test_an_upload_that_changed_since_it_came_is_not_taken(ingest: IngestFixture) -> None:
    fields = upload(ingest, "a", b"hello")
    job = walk(ingest, submit(ingest, **fields, type=PayloadType.FILE), upto="Downloading")
    ingest.environment.objects.put(fields["url"].removeprefix("waybill:"), b"HELLO")
    assert "not what was promised" in expect_failure(ingest, job, final=True)["reason"]


@pytest.mark.parametrize("pack", ["zip", "file"])
def test_a_container_with_a_wrong_digest_is_refused_for_good(ingest: IngestFixture, pack: str) -> None:
    url = ingest.web.put("a.zip", zip_of({"a": b"x"}))
    job = submit(
        ingest, url, PayloadType.CONTAINER if pack == "zip" else PayloadType.FILE, row_digests={"md5": md5(b"other")}
    )
    assert "was promised" in expect_failure(ingest, job, final=True)["reason"]


def test_each_file_that_cannot_be_had_has_its_reason_and_the_others_are_kept(
    ingest: IngestFixture, server: Misbehaving
) -> None:
    server.files |= {"/ok": b"fine", "/short": b"12345", "/digest": b"hello", "/loop": b"", "/late": b"x"}
    server.does |= {"/loop": ["redirect /loop"], "/none": ["status 404"], "/late": ["ok", "status 503"]}
    rows = [
        ManifestRow(0, f"{server.url}/ok", "ok"),
        ManifestRow(0, f"{server.url}/none", "none"),
        ManifestRow(0, f"{server.url}/short", "short", size=99),
        ManifestRow(0, f"{server.url}/digest", "digest", "md5", md5(b"other")),
        ManifestRow(0, f"{server.url}/loop", "loop"),
        ManifestRow(0, f"{server.url}/late", "late"),
    ]
    refusal = expect_failure(ingest, job := of_rows(ingest, *rows), final=False)
    assert refusal["reason"].startswith("5 of 6 files could not be fetched: ")
    found = dict(sorted(reason.split(": ", 1) for reason in refusal["reasons"]))
    assert found == {
        "'digest'": f"What came has the md5 {md5(b'hello')}, and {md5(b'other')} was promised.",
        "'late'": "The server answered 503 Service Unavailable. (1 tries.)",
        "'loop'": "The server redirects too often: 5 redirects were followed.",
        "'none'": "The server answered 404 Not Found.",
        "'short'": "The server offers 5 bytes, and 99 are expected.",
    }
    server.files |= {"/none": b"n", "/short": bytes(99), "/digest": b"other"}
    server.does |= {"/none": ["ok"], "/loop": ["ok"], "/late": ["ok"]}
    gets = len(server.asked["/ok"])
    job = walk(ingest, job)  # `failed` has resumed it
    assert (job.state, set(producer(ingest, job))) == ("Processing", {"ok", "none", "short", "digest", "loop", "late"})
    assert len(server.asked["/ok"]) == gets  # taken over
    assert "refusal" not in job.documents


def test_of_many_reasons_all_are_kept_and_a_hundred_are_shown(ingest: IngestFixture) -> None:
    refusal = expect_failure(
        ingest, of_rows(ingest, *(ManifestRow(0, f"{ingest.web.url}/{n}", f"n{n}") for n in range(120))), final=False
    )
    assert len(refusal["reasons"]) == 100
    assert refusal["list"]["count"] == 120
    assert len(refusal["reason"]) < 1000


@pytest.mark.parametrize(
    ("does", "patience"), [("status 500", 60.0), ("hang", 3.0), ("cut 2", 60.0), ("says 99", 60.0)]
)
def test_transient_errors_are_tried_again(ingest: IngestFixture, server: Misbehaving, does: str) -> None:
    server.files["/a"], server.does["/a"] = b"hello", ["ok", does, "ok"]
    job = submit(ingest, f"{server.url}/a", PayloadType.FILE)
    job = walk(ingest, job)
    assert (job.state, job.error_count) == ("Downloading", 1)
    assert job.message.startswith("1 of 1 files could not be fetched: 'a': "), "a sentence, without the name of a class"
    assert "refusal" not in job.documents
    assert walk(ingest, at_once(ingest, job)).state == "Processing"


def test_a_redirect_to_a_private_address_is_refused(ingest: IngestFixture, server: Misbehaving) -> None:
    server.does["/a"] = ["redirect http://169.254.169.254/latest/meta-data/"]
    assert (
        "is not a public address"
        in expect_failure(ingest, submit(ingest, f"{server.url}/a", PayloadType.FILE), final=False)["reason"]
    )


def test_what_is_larger_than_the_settings_allow(tmp_path: Path, server: Misbehaving) -> None:
    server.does["/a"] = ["endless"]
    with IngestFixture(
        tmp_path, settings={"external_states": ["Processing"], "fetch": {"max_bytes": 100_000}}
    ) as ingest:
        refusal = expect_failure(ingest, resume_after(ingest, "Provisioning", f"{server.url}/a", {}), final=False)
        assert "More than 100000 bytes arrived." in refusal["reason"]


# --- crashes, and late workers


def test_a_file_is_resumed_where_an_earlier_attempt_was_cut(ingest: IngestFixture, server: Misbehaving) -> None:
    server.files["/a"], server.does["/a"] = BIG, ["ok", "cut 1500000", "ok"]
    job = walk(ingest, submit(ingest, f"{server.url}/a", PayloadType.FILE))
    assert job.state == "Downloading"
    job = walk(ingest, at_once(ingest, job))
    assert producer(ingest, job) == {"a": BIG}
    assert server.asked["/a"][-1]["range"] == "bytes=1500000-"


def test_files_that_came_before_a_crash_are_not_fetched_again(ingest: IngestFixture, server: Misbehaving) -> None:
    for n in range(4):
        server.files[f"/{n}"] = os.urandom(100)
    server.does["/3"] = ["ok", "status 500", "ok"]
    job = walk(ingest, of_rows(ingest, *(ManifestRow(0, f"{server.url}/{n}", f"d/{n}") for n in range(4))))
    assert job.state == "Downloading"
    job = walk(ingest, at_once(ingest, job))
    assert producer(ingest, job) == {f"d/{n}": server.files[f"/{n}"] for n in range(4)}
    assert [len([a for a in server.asked[f"/{n}"] if a["method"] == "GET"]) for n in range(4)] == [1, 1, 1, 2]


def test_a_file_of_an_earlier_attempt_that_changed_is_fetched_again(ingest: IngestFixture, server: Misbehaving) -> None:
    server.files |= {"/a": b"aaaa", "/b": b"bbbb"}
    server.does["/b"] = ["ok", "status 500", "ok"]
    job = walk(ingest, of_rows(ingest, ManifestRow(0, f"{server.url}/a", "a"), ManifestRow(0, f"{server.url}/b", "b")))
    (earlier,) = folder_of(ingest, job).glob("*/producer/a")
    earlier.write_bytes(b"AAAA")
    assert producer(ingest, walk(ingest, at_once(ingest, job))) == {"a": b"aaaa", "b": b"bbbb"}


def test_what_was_published_by_a_late_worker_is_replaced(ingest: IngestFixture) -> None:
    job = walk(ingest, submit(ingest, ingest.web.put("a.txt", b"hello"), PayloadType.FILE), upto="Downloading")
    late = folder_of(ingest, job) / "producer"
    late.mkdir(parents=True)
    (late / "other").write_bytes(b"late")
    assert producer(ingest, walk(ingest, job)) == {"a.txt": b"hello"}


def test_a_second_run_after_everything_was_published_is_safe(ingest: IngestFixture) -> None:
    job = walk(ingest, submit(ingest, ingest.web.put("a.zip", zip_of({"a": b"x"})), PayloadType.CONTAINER))
    before = producer(ingest, job)
    with ingest.engine() as engine:
        job = engine.store.get("job", job.id)
    again = resume_after(
        ingest,
        "Provisioning",
        job.documents["configuration"]["payload_url"],
        {"files": job.documents["files"]},
        PayloadType.CONTAINER,
        batch_id=job.documents["configuration"]["batchID"],
        job_id=job.documents["configuration"]["jobID"],
    )
    assert producer(ingest, walk(ingest, again)) == before


@pytest.mark.parametrize("patience", [5.0])  # seconds from the silence to the stop
def test_a_stop_leaves_the_step_at_once_and_the_next_run_goes_on(ingest: IngestFixture, server: Misbehaving) -> None:
    """A worker that is told to stop in the middle of a file gives the job back, unharmed."""
    server.files["/a"], server.does["/a"] = BIG, ["ok", "hang_after 1000000", "ok"]
    job = submit(ingest, f"{server.url}/a", PayloadType.FILE)
    with ingest.workers(queues=["job"], grace=60.0):
        part = folder_of(ingest, job)
        began = threading.Event()
        while not began.wait(0.01):
            if any(path.stat().st_size == 1_000_000 for path in part.glob("*/producer/.partial/*.part")):
                began.set()
    job = ingest.get("job", job.id)
    assert (job.state, job.session, job.error_count) == ("Downloading", None, 0)
    assert producer(ingest, walk(ingest, job)) == {"a": BIG}


# --- containers


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tar_of(files: dict[str, bytes], **more: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in more.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def bomb() -> bytes:
    """A zip that says of its one file that it has two gibibytes."""
    data = bytearray(zip_of({"zeros": bytes(10_000)}))
    struct.pack_into("<L", data, data.index(b"PK\x01\x02") + 24, 2**31)
    return bytes(data)


FILES = {"a.txt": b"hello", "d/ملف 😀.bin": bytes(1000), "d/empty": b"", "mrt-erc.txt": b"who: Ann\n"}


@pytest.mark.parametrize(
    "pack", [zip_of, tar_of, lambda f: gzip.compress(tar_of(f)), lambda f: bz2.compress(tar_of(f))]
)
@pytest.mark.parametrize("where", ["uploaded", "elsewhere"])
def test_a_container_is_unpacked(ingest: IngestFixture, pack: Callable[[dict[str, bytes]], bytes], where: str) -> None:
    data = pack(FILES)
    job = (
        submit(ingest, ingest.web.put("x", data), PayloadType.CONTAINER)
        if where == "elsewhere"
        else submit(ingest, **upload(ingest, "x", data), type=PayloadType.CONTAINER)
    )
    job = walk(ingest, job)
    assert job.state == "Processing", job.message
    assert producer(ingest, job) == FILES
    assert {file.path: (file.size, file.sha256) for file in listed(ingest, job)} == {
        f"producer/{name}": (len(body), sha256(body)) for name, body in FILES.items()
    }
    assert job.documents["space_needed"] == sum(map(len, FILES.values()))
    assert [path for path in folder_of(ingest, job).rglob("*") if path.is_file() and path.name == "container"] == []


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        (zip_of({"../../etc/x": b"x", "/abs": b"y", "ok": b"z"}), ["'../../etc/x'", "'/abs'"]),
        (tar_of({"a": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd"), ["'a' is a symbolic link."]),
        (tar_of({"a": b""}, type=tarfile.LNKTYPE, linkname="b"), ["'a' is a link to another file."]),
        (tar_of({"a": b""}, type=tarfile.CHRTYPE), ["'a' is a device."]),
        (bomb(), ["as a zip bomb does"]),
        (zip_of({"a|b": b"1", " c": b"2", "d": b"3"}), ["'a|b' cannot be stored", "' c' cannot be stored"]),
        (zip_of({"a": b"x"})[:-30], ["incomplete"]),
        (zip_of({}), ["There are no files"]),
        (b"", ["The file is empty."]),
        (b"hello", ["neither a zip nor a tar"]),
    ],
)
def test_containers_that_are_refused_for_good(ingest: IngestFixture, data: bytes, reasons: list[str]) -> None:
    job = submit(ingest, ingest.web.put("x.zip", data), PayloadType.CONTAINER)
    refusal = expect_failure(ingest, job, final=True)
    assert len(refusal["reasons"]) == len(reasons)
    assert all(reason in found for reason, found in zip(reasons, refusal["reasons"], strict=True)), refusal["reasons"]
    assert not (folder_of(ingest, ingest.get("job", job.id)) / "producer").exists()


def bag_of(payload: dict[str, bytes], *, top: str = "", **tags: bytes) -> dict[str, bytes]:
    lines = "".join(f"{sha256(data)}  data/{name}\n" for name, data in payload.items())
    found = {
        "bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "manifest-sha256.txt": lines.encode(),
    }
    return {
        top + name: data
        for name, data in {**found, **{f"data/{name}": data for name, data in payload.items()}, **tags}.items()
    }


@pytest.mark.parametrize("top", ["", "my-bag/"])
def test_a_bag_is_validated_and_its_payload_becomes_the_object(ingest: IngestFixture, top: str) -> None:
    bag = bag_of(
        {"a.txt": b"hello", "d/b": b"x"},
        top=top,
        **{"bag-info.txt": b"Source-Organization: X\n", "meta/m.xml": b"<m/>"},
    )
    if top:
        bag["__MACOSX/._a"] = b"of a Mac"
    job = walk(ingest, submit(ingest, ingest.web.put("b.zip", zip_of(bag)), PayloadType.CONTAINER))
    assert job.state == "Processing", job.message
    tags = {"bagit.txt", "manifest-sha256.txt", "bag-info.txt", "meta/m.xml"}
    assert set(producer(ingest, job)) == {"a.txt", "d/b", *(f"mrt-bag/{name}" for name in tags)}
    assert producer(ingest, job)["mrt-bag/bag-info.txt"] == b"Source-Organization: X\n"
    assert {file.path: file.sha256 for file in listed(ingest, job)} == {
        f"producer/{name}": sha256(data) for name, data in producer(ingest, job).items()
    }


def test_a_bag_that_is_not_valid_is_refused_with_every_problem(ingest: IngestFixture) -> None:
    bag = {**bag_of({"a.txt": b"hello", "b": b"x"}), "data/a.txt": b"other", "data/more": b"y"}
    del bag["data/b"]
    refusal = expect_failure(
        ingest, submit(ingest, ingest.web.put("b.zip", zip_of(bag)), PayloadType.CONTAINER), final=True
    )
    assert refusal["reason"].startswith("The bag is not valid: ")
    assert sorted(reason.split("'")[1] for reason in refusal["reasons"]) == ["data/a.txt", "data/b", "data/more"]


def test_a_bag_whose_payload_has_the_folder_of_the_tags(ingest: IngestFixture) -> None:
    job = submit(ingest, ingest.web.put("b.zip", zip_of(bag_of({"mrt-bag/x": b"x"}))), PayloadType.CONTAINER)
    assert "Rename that folder" in expect_failure(ingest, job, final=True)["reason"]


# --- room


def test_downloading_reserves_space_that_was_not_reserved_before(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=3)
    with fixture.ingest as ingest:
        job = resume_after(ingest, "Provisioning", ingest.web.put("a", b"hello"), {"space_needed": 5})
        waits = walk(ingest, job)
        assert (waits.state, waits.message) == (
            "Downloading",
            "It waits for disk space: it needs 5 bytes, and 3 are free for it.",
        )
        assert list_requested_paths(ingest, "GET") == []
        fixture.disk.free = 5
        assert walk(ingest, job).state == "Processing"


def packed(ingest: IngestFixture) -> Record:
    """A container of 10,000 bytes that is much shorter packed, before Downloading."""
    return walk(
        ingest,
        submit(ingest, ingest.web.put("c.zip", zip_of({"zeros": bytes(10_000)})), PayloadType.CONTAINER),
        upto="Downloading",
    )


def test_what_a_container_unpacks_to_needs_space_too(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=9000, total=100_000)
    with fixture.ingest as ingest:
        job = packed(ingest)
        waits = walk(ingest, job)
        size = len(zip_of({"zeros": bytes(10_000)}))
        assert (waits.state, waits.documents["space_needed"]) == ("Downloading", 10_000 + size)
        assert "It waits for disk space: it needs " in waits.message
        walk(ingest, job)
        fixture.disk.free = 11_000
        done = walk(ingest, job)
        assert (done.state, done.documents["space_needed"]) == ("Processing", 10_000)
        assert list_requested_paths(ingest, "GET") == ["/c.zip"]  # the container was kept while it waited
        assert fixture.reservations.list_reservations() == []


def test_a_container_that_waits_too_long_for_space_gives_back_what_it_holds(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=9000, total=100_000, disk_space={"patience": 0.0})
    with fixture.ingest as ingest:
        job = packed(ingest)
        walk(ingest, job)
        assert fixture.reservations.list_reservations()[0].on_disk > 0
        walk(ingest, job)
        (entry,) = fixture.reservations.list_reservations()
        assert (entry.granted, entry.on_disk) == (0, 0)
        assert list(folder_of(ingest, ingest.get("job", job.id)).glob("*/container/*")) == []
        fixture.disk.free = 11_000
        assert walk(ingest, job).state == "Processing"
        assert list_requested_paths(ingest, "GET") == ["/c.zip", "/c.zip"]


def test_a_file_that_is_longer_than_announced_stops_before_the_disk_is_full(
    tmp_path: Path, server: Misbehaving
) -> None:
    server.files["/a"], server.does["/a"] = BIG, ["nolength"]
    fixture = DiskSpaceFixture(tmp_path, free=500, total=100 * len(BIG))
    with fixture.ingest as ingest:
        job = walk(ingest, submit(ingest, f"{server.url}/a", PayloadType.FILE), upto="Downloading")
        fixture.disk.free = 0
        job = walk(ingest, job)
        assert (job.state, job.error_count) == ("Downloading", 0)
        assert job.message.startswith("It needs more space than reserved: ")
        fixture.disk.free = 10 * len(BIG)
        assert walk(ingest, job).state == "Processing"


def understated(data: bytes) -> Any:
    """Ten bytes, says the server when it is asked; and says what is true when it is fetched."""

    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10" if handler.command == "HEAD" else str(len(data)))
        handler.end_headers()
        if handler.command == "GET":
            with suppress(OSError):
                handler.wfile.write(data)

    return answer


def test_a_file_that_is_larger_than_announced_waits_for_space_before_it_is_fetched(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=len(BIG) - 1, total=100 * len(BIG))
    with fixture.ingest as ingest:
        ingest.web.answers["/a"] = understated(BIG)
        small = ManifestRow(3, ingest.web.put("small", b"small"), "small")
        url = ingest.web.put("m.checkm", manifest(small, ManifestRow(4, f"{ingest.web.url}/a", "a")))
        job = walk(ingest, submit(ingest, url, PayloadType.OBJECT), upto="Downloading")
        assert job.documents["space_needed"] == 15
        waits = walk(ingest, job)
        assert (waits.state, waits.blocked_by, waits.error_count) == ("Downloading", "wait", 0)
        need = waits.documents["space_needed"]
        assert need in (len(BIG), len(BIG) + 5), "as far as it was offered"
        assert waits.message.startswith(
            f"It waits for disk space: the servers offer {need:,} bytes, more than was estimated"
        )
        assert sum(path.stat().st_size for path in folder_of(ingest, waits).rglob("*") if path.is_file()) < 1000
        fixture.disk.free = 10 * len(BIG)
        done = walk(ingest, job)
        assert (done.state, producer(ingest, done)) == ("Processing", {"a": BIG, "small": b"small"})


def test_a_file_that_its_server_offers_and_that_can_never_fit_fails_before_it_comes(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=1000, total=1000, notifications={"admins": ["ops@example.org"]})
    with fixture.ingest as ingest:
        ingest.web.answers["/a"] = understated(BIG)
        job = walk(ingest, submit(ingest, f"{ingest.web.url}/a", PayloadType.FILE))
        assert job.state == "Failed"
        assert job.message.startswith(
            f"It can never fit: the servers offer {len(BIG):,} bytes, and the working disk has 1,000 at most."
        )
        assert (job.documents["refusal"]["final"], fixture.reservations.list_reservations()) == (False, [])
        assert "can never fit" in fixture.list_mail()[0]["subject"]


MEBIBYTE = 2**20
ENDLESS = bytes(256 * 1024)


class Disk(FakeDisk):
    """What lies below the working root, and what others have put there, is taken from it."""

    def __init__(self, root: Path, total: int, others: int = 0) -> None:
        self.root, self.others, self.least = root, others, total
        super().__init__(total, total)

    def __call__(self, root: Path) -> Any:
        used = sum(
            path.stat().st_size for path in self.root.rglob("*") if path.is_file() and ".disk_space" not in path.parts
        )
        self.free = self.total - self.others - used
        self.least = min(self.least, self.free)
        return super().__call__(root)


def endless(handler: Any) -> None:
    """An empty file, says the server; and sends one that does not end."""
    handler.send_response(200)
    if handler.command == "HEAD":
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(ENDLESS), ENDLESS))


def flooded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, others: int, **room: Any
) -> tuple[DiskSpaceFixture, Disk]:
    """Ingest with a disk of 32 MiB, of which 4 are kept free, and a server whose files have no end."""
    monkeypatch.setattr(SpaceReservations, "growth_chunk", MEBIBYTE)
    rules = {"keep_free": 4 * MEBIBYTE, "unknown_size_bytes": 0, **room}
    fixture = DiskSpaceFixture(folder, free=0, disk_space=rules, notifications={"admins": ["ops@example.org"]})
    disk = Disk(fixture.ingest.root, 32 * MEBIBYTE, others)
    fixture.set_disk(disk)
    fixture.ingest.web.answers["/endless"] = endless
    return fixture, disk


def test_a_file_without_an_end_fails_before_it_has_the_disk_and_leaves_nothing_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture, disk = flooded(tmp_path, monkeypatch, others=0)
    with fixture.ingest as ingest:
        job = walk(ingest, submit(ingest, f"{ingest.web.url}/endless", PayloadType.FILE, filename="endless"))
        assert job.state == "Failed"
        assert job.message.startswith("It can never fit: ")
        assert "the working disk has 29,360,128 at most" in job.message
        refusal = job.documents["refusal"]
        assert (refusal["final"], [reason.split(":")[0] for reason in refusal["reasons"]]) == (False, ["'endless'"])
        assert disk.least >= 4 * MEBIBYTE, "what no job may use"
        assert list(folder_of(ingest, job).glob("[0-9]*")) == []
        assert fixture.reservations.list_reservations() == []
        assert list_requested_paths(ingest, "GET") == ["/endless"]
        (letter,) = fixture.list_mail()
        assert "can never fit" in letter["subject"]
        with ingest.engine() as engine:
            engine.act(job.ref, "resume")
        again = walk(ingest, job)
        assert (again.state, again.error_count) == ("Downloading", 0)
        assert again.message.startswith("It can never fit: ")
        assert list_requested_paths(ingest, "GET") == ["/endless"]
        assert len(fixture.list_mail()) == 1


def test_a_job_that_exceeds_its_estimate_gives_its_space_back_and_no_other_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture, disk = flooded(tmp_path, monkeypatch, others=20 * MEBIBYTE, patience=0.0)
    with fixture.ingest as ingest:
        job = submit(ingest, f"{ingest.web.url}/endless", PayloadType.FILE)
        waits = walk(ingest, walk(ingest, job, upto="Downloading"))
        assert (waits.state, waits.blocked_by, waits.error_count) == ("Downloading", "wait", 0)
        assert waits.message.startswith("It needs more space than reserved: ")
        need = waits.documents["space_needed"]
        assert 10 * MEBIBYTE < need < 20 * MEBIBYTE, "twice what there was room for"
        assert disk.least >= 4 * MEBIBYTE
        for _ in range(3):
            waits = walk(ingest, job)
            assert (waits.state, waits.error_count) == ("Downloading", 0)
            assert f"it needs {need:,} bytes" in waits.message
        assert list(folder_of(ingest, waits).glob("[0-9]*")) == []
        assert list_requested_paths(ingest, "GET") == ["/endless"]
        other = walk(ingest, submit(ingest, ingest.web.put("a", bytes(6 * MEBIBYTE)), PayloadType.FILE))
        assert other.state == "Processing", "the room is there for others, however long it has waited"
        disk.others = 0
        assert walk(ingest, job).message.startswith("It can never fit: ")


def test_the_administrators_get_mail_about_an_endless_job_that_waits_for_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture, _ = flooded(tmp_path, monkeypatch, others=20 * MEBIBYTE, alert_after=0.0)
    with fixture.ingest as ingest:
        job = submit(ingest, f"{ingest.web.url}/endless", PayloadType.FILE)
        for _ in range(5):
            walk(ingest, job)
        (letter,) = fixture.list_mail()
        assert letter["subject"].startswith(f"Job {job.id} has waited 0 hours for space on the working disk of ")
        assert "It waits for disk space: it needs " in letter["text"]


def test_a_disk_that_others_fill_is_waited_for_with_what_has_come(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpaceReservations, "growth_chunk", 100_000)
    server.files["/a"] = BIG
    fixture = DiskSpaceFixture(tmp_path, free=10 * len(BIG), total=100 * len(BIG))
    with fixture.ingest as ingest:
        job = walk(ingest, submit(ingest, f"{server.url}/a", PayloadType.FILE), upto="Downloading")
        fixture.disk.free = 0
        for _ in range(3):
            waits = walk(ingest, job)
            assert (waits.state, waits.error_count) == ("Downloading", 0)
        assert len(list(folder_of(ingest, waits).glob("[0-9]*"))) == 1, "no other attempt is begun before there is room"
        fixture.disk.free = 10 * len(BIG)
        assert walk(ingest, job).state == "Processing"


def test_usage_is_reported_while_files_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpaceReservations, "growth_chunk", 500_000)
    fixture = DiskSpaceFixture(tmp_path, free=3 * len(BIG), total=10**9)
    heard: list[tuple[str, int]] = []
    update = fixture.reservations.report_usage

    def hear(id: str, have: int, now: float) -> int | None:
        heard.append((id, have))
        return update(id, have, now)

    monkeypatch.setattr(fixture.reservations, "report_usage", hear)
    with fixture.ingest as ingest:
        job = walk(ingest, submit(ingest, ingest.web.put("a", BIG), PayloadType.FILE))
        assert job.state == "Processing"
    assert len(heard) in (3, 4)
    assert all(id == str(job.ref) for id, _ in heard)
    assert [have for _, have in heard] == sorted(have for _, have in heard)
