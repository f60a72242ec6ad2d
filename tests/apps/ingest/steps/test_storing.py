from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.downloaded_jobs import OWNER, add_profile, fetched, files_of, folder_of, run, sha256
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.storage import OcflStorage, StoredVersion
from waybill.record import Record

ARK = "ark:/99999/fk4given"


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path, settings={"storing_state": True, "external_states": ["Notify"]}) as ingest:
        add_profile(ingest, Profile(name="p", owner=OWNER, storage_node=9502))
        yield ingest


def manifest(*rows: tuple[str, str, bytes]) -> bytes:
    """A storage manifest of (name, URL, content)."""
    lines = ["#%checkm_0.7", "#%profile | http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest"]
    lines += [f"{url} | sha-256 | {sha256(data)} | {len(data)} |  | {name} | text/plain" for name, url, data in rows]
    return "\n".join([*lines, "#%eof", ""]).encode()


def make_processed_job(
    ingest: IngestFixture, url: str, *, mode: str = f"add/9502/{ARK}", delete: str = "", primary_id: str = ARK
) -> Record:
    """A job that another service has processed."""
    store = {"manifest_url": url, "mode": mode, "delete": delete}
    return fetched(
        ingest, {}, done="Processing", primary_id=primary_id, title="Hunt", more={"store": store, "downloaded": None}
    )


def test_processing_asks_and_storing_writes(ingest: IngestFixture) -> None:
    job = run(ingest, fetched(ingest, {"a.txt": b"1"}, title="Hunt"))
    assert job.state == "Notify", job.message
    ark = job.documents["identifiers"]["primary_id"]
    assert job.documents["store"]["mode"] == f"add/9502/{ark}"
    asked_for = Path(unquote(urlsplit(job.documents["store"]["manifest_url"]).path))
    assert asked_for == folder_of(ingest, job) / "system" / "mrt-manifest.txt"
    assert f"sha-256 | {sha256(b'1')} | 1 |  | producer/a.txt" in asked_for.read_text()
    assert files_of(ingest, ark)["producer/a.txt"] == b"1"
    assert job.documents["stored"]["version"] == 1
    with ingest.engine() as engine:
        assert [line.after for line in engine.store.history("job", job.id)][-3:] == ["Storing", "Recording", "Notify"]


def test_a_new_embargo_holds_before_the_version_is_stored(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id=ARK)).state == "Notify"
    seen = []
    real = OcflStorage.write

    def look_and_write(storage: OcflStorage, *args: Any, **more: Any) -> StoredVersion:
        row = ingest.resources.inventory.get_object(ARK)
        assert row is not None
        seen.append(row["embargo"])
        return real(storage, *args, **more)

    monkeypatch.setattr(OcflStorage, "write", look_and_write)
    embargo = {"mrt-embargo.txt": b"embargoEndDate: 2931-01-01\n"}
    assert run(ingest, fetched(ingest, embargo, primary_id=ARK, update=True)).state == "Notify"
    assert seen == ["2931-01-01T00:00:00Z"]


def test_an_update_is_asked_for_with_its_list_of_deletions(ingest: IngestFixture) -> None:
    run(ingest, fetched(ingest, {"a.txt": b"1", "b.txt": b"2"}, primary_id=ARK))
    job = run(ingest, fetched(ingest, {"mrt-delete.txt": b"a.txt\n"}, primary_id=ARK, update=True))
    assert job.documents["store"]["mode"] == f"update/9502/{ARK}"
    assert job.documents["store"]["delete"].endswith("/producer/mrt-delete.txt")
    assert {name for name in files_of(ingest, ARK) if name.startswith("producer/")} == {
        "producer/b.txt",
        "producer/mrt-delete.txt",
    }
    later = run(ingest, fetched(ingest, {"c.txt": b"3"}, primary_id=ARK, update=True))
    assert later.documents["store"]["delete"] == "", (
        "that the list of the deposit before is not kept, is nothing that was asked for"
    )
    assert {name for name in files_of(ingest, ARK) if name.startswith("producer/")} == {
        "producer/b.txt",
        "producer/c.txt",
    }


def test_an_update_that_another_service_has_processed_keeps_the_description(ingest: IngestFixture) -> None:
    embargo = {"mrt-embargo.txt": b"embargoEndDate: 2031-01-01\n"}
    assert run(ingest, fetched(ingest, embargo, primary_id=ARK, creator="Ann", local_ids=("l1",))).state == "Notify"
    url = ingest.web.put("m.txt", manifest(("producer/c.txt", ingest.web.put("c", b"three"), b"three")))
    job = run(ingest, make_processed_job(ingest, url, mode=f"update/9502/{ARK}"))
    assert job.state == "Notify", job.message
    storage = ingest.resources.storage
    with storage.open_manifest(storage.get_version(ARK, 2)) as reader:
        about = reader.header.about["about"]
    assert (about["title"], about["creator"], about["local_ids"], about["embargo"]) == (
        "Hunt",
        "Ann",
        ["l1"],
        "2031-01-01T00:00:00Z",
    )


def test_what_another_service_has_processed_is_stored_from_its_manifest(ingest: IngestFixture) -> None:
    shared = ingest.root / "queue" / "theirs" / "producer" / "b.txt"
    shared.parent.mkdir(parents=True)
    shared.write_bytes(b"two")
    rows = [("producer/a.txt", ingest.web.put("a.txt", b"one"), b"one"), ("producer/b.txt", shared.as_uri(), b"two")]
    job = run(ingest, make_processed_job(ingest, ingest.web.put("m.txt", manifest(*rows))))
    assert job.state == "Notify", job.message
    assert files_of(ingest, ARK) == {"producer/a.txt": b"one", "producer/b.txt": b"two"}
    found = ingest.resources.inventory.get_object(ARK)
    assert found is not None
    assert (found["title"], found["owner"]) == ("Hunt", OWNER)

    one = ("producer/c.txt", ingest.web.put("c.txt", b"3"), b"3")
    delete = ingest.web.put("d.txt", b"a.txt\n")
    job = run(
        ingest,
        make_processed_job(ingest, ingest.web.put("n.txt", manifest(one)), mode=f"update/9502/{ARK}", delete=delete),
    )
    assert job.state == "Notify", job.message
    assert files_of(ingest, ARK) == {"producer/b.txt": b"two", "producer/c.txt": b"3"}

    told = ("producer/mrt-delete.txt", ingest.web.put("e.txt", b"b.txt\n"), b"b.txt\n")
    run(
        ingest,
        make_processed_job(
            ingest,
            ingest.web.put("o.txt", manifest(told)),
            mode=f"update/9502/{ARK}",
            delete=ingest.web.put("e.txt", b"b.txt\n"),
        ),
    )
    assert set(files_of(ingest, ARK)) == {"producer/c.txt", "producer/mrt-delete.txt"}
    run(ingest, make_processed_job(ingest, ingest.web.put("p.txt", manifest(one)), mode=f"update/9502/{ARK}"))
    assert set(files_of(ingest, ARK)) == {"producer/c.txt"}


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"<xml/>", f"add/1/{ARK}", "is not a storage manifest"),
        (b"#%checkm_0.7\n", f"add/1/{ARK}", "without #%eof"),
        (manifest(("producer/../../x", "http://127.0.0.1/x", b"")), f"add/1/{ARK}", "is not a name"),
        (manifest(("producer/x", "file:///etc/passwd", b"")), f"add/1/{ARK}", "not below the work root"),
        (manifest(("producer/x", "ftp://127.0.0.1/x", b"")), f"add/1/{ARK}", "not an http, https or file URL"),
        (manifest(("producer/x", "http://127.0.0.1/x", b"")), "move/1/x", "not add or update"),
        (manifest(("producer/x", "http://127.0.0.1/x", b"")), "add/1/ark:/99999/fk4other", "asks storage to write"),
        (manifest(("producer/x", "http://10.1.2.3/x", b"")), f"add/1/{ARK}", "cannot be fetched"),
    ],
)
def test_what_cannot_be_stored_fails_with_a_sentence(
    ingest: IngestFixture, content: bytes, mode: str, said: str
) -> None:
    job = run(ingest, make_processed_job(ingest, ingest.web.put("m.txt", content), mode=mode))
    assert job.state == "Failed"
    assert said in job.message


def test_content_that_is_not_what_the_manifest_says_is_not_stored(ingest: IngestFixture) -> None:
    job = run(
        ingest,
        make_processed_job(
            ingest, ingest.web.put("m.txt", manifest(("producer/a.txt", ingest.web.put("a.txt", b"ONE"), b"one")))
        ),
    )
    assert job.state == "Failed"
    assert "/a.txt cannot be fetched: What came has the sha256" in job.message
    assert not list(ingest.resources.storage.list_objects())


def test_a_job_without_an_ark_cannot_be_stored(ingest: IngestFixture) -> None:
    job = run(ingest, fetched(ingest, {"a.txt": b"1"}, done="Processing"))
    assert "`restart`" in job.message
