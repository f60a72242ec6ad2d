"""Assemblies from the question to the file, on every store."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest.access import AssemblyRequest, RequestedAssembly, request_assembly, tokens
from waybill.apps.ingest.documents import to_rfc3339
from waybill.apps.ingest.storage import MANIFEST_PATH
from waybill.objects import measure
from waybill.record import Record, RecordNotFound
from waybill.rules import ActionRefused
from waybill.step import New

TOP = "ark_99999_fk4abc"
FILES = {
    "producer/a.txt": b"hello",
    "producer/caf\u00e9/\U0001d11e.txt": b"music",
    "producer/b.bin": bytes(2_000_000),
    "system/mrt-erc.txt": b"erc",
}


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def store(request: pytest.FixtureRequest) -> str:
    return (
        ""
        if request.param == "sqlite"
        else str(request.getfixturevalue({"postgres": "postgres_url", "zookeeper": "zookeeper_url"}[request.param]))
    )


@pytest.fixture
def ingest(tmp_path: Path, store: str) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path, store=store) as made:
        yield made


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[IngestFixture]:
    """On the embedded default, with a limit for small assemblies."""
    with IngestFixture(tmp_path, settings={"access": {"small_bytes": 1000, "keep_seconds": 1000.0}}) as made:
        yield made


def asked_for(ingest: IngestFixture, owner: str = "jo", **wanted: Any) -> RequestedAssembly:
    with ingest.engine() as engine:
        return request_assembly(
            engine, ingest.environment.resources_of("ingest"), AssemblyRequest(**{"object": ARK, **wanted}), owner=owner
        )


def pack_assembly(ingest: IngestFixture, **wanted: Any) -> tuple[Record, dict[str, bytes]]:
    """Asked for, packed by a worker, and unpacked."""
    request = asked_for(ingest, **wanted)
    with ingest.workers():
        record = ingest.wait(request.record.kind, request.record.id, "Completed", "Failed")
    assert record.state == "Completed", record.message
    return record, read_members(ingest, record)


def read_members(ingest: IngestFixture, record: Record) -> dict[str, bytes]:
    document = record.documents["packed"]
    assert measure(ingest.environment.objects, document["name"]) == (document["size"], document["sha256"])
    with ingest.environment.objects.get(document["name"]) as body:
        data = body.read()
    if document["name"].endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


def test_an_object_is_asked_for_packed_and_told_in_merritts_words(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored = stored_objects.add(FILES)
    before = asked_for(ingest)
    assert before.is_new
    told = before.record.documents["token"]
    assert set(told) == {
        "token",
        "delivery-node",
        "cloud-content-byte",
        "status",
        "url",
        "anticipated-availability-time",
    }
    assert told["url"] == f"http://waybill.test/api/v1/ingest/access/{told['token']}"
    assert told["cloud-content-byte"] == sum(map(len, FILES.values())) + stored.size
    assert told["status"] == "Pending"
    assert len(told["token"]) == 43
    with ingest.workers():
        record = ingest.wait("access-small", before.record.id, "Completed")
    assert record.documents["token"] == {
        **told,
        "status": "Completed",
        "anticipated-availability-time": record.documents["token"]["anticipated-availability-time"],
    }
    files = read_members(ingest, record)
    manifest = files.pop(f"{TOP}/{MANIFEST_PATH}")
    assert hashlib.sha256(manifest).hexdigest() == stored.sha256
    assert files == {f"{TOP}/{path}": data for path, data in FILES.items()}
    assert record.documents["packed"]["files"] == len(FILES) + 1


@pytest.mark.parametrize("form", ["zip", "zip-stored", "tar", "tar.gz"])
def test_every_form_holds_the_same(plain: IngestFixture, form: str) -> None:
    StoredObjects(plain).add(FILES)
    record, files = pack_assembly(plain, form=form, content="producer")
    assert files == {f"{TOP}/{path}": data for path, data in FILES.items() if path.startswith("producer/")}
    assert record.documents["packed"]["name"].endswith(f"{TOP}_v1{'.zip' if form.startswith('zip') else '.' + form}")


def test_a_version_all_versions_or_some_files(plain: IngestFixture) -> None:
    stored_objects = StoredObjects(plain)
    stored_objects.add({"producer/a.txt": b"one", "producer/b.txt": b"b"})
    stored_objects.add({"producer/a.txt": b"two"}, mode="update")
    assert pack_assembly(plain, version=1, content="producer")[1] == {
        f"{TOP}/producer/a.txt": b"one",
        f"{TOP}/producer/b.txt": b"b",
    }
    assert pack_assembly(plain, content="producer")[1] == {
        f"{TOP}/producer/a.txt": b"two",
        f"{TOP}/producer/b.txt": b"b",
    }
    everything = pack_assembly(plain, version=0)[1]
    assert everything[f"{TOP}/v1/producer/a.txt"] == b"one"
    assert everything[f"{TOP}/v2/producer/a.txt"] == b"two"
    assert len(everything) == 6
    assert pack_assembly(plain, version=1, files=("producer/b.txt",))[1] == {f"{TOP}/producer/b.txt": b"b"}


def test_a_thousand_names_of_files_are_kept_beside_the_order(plain: IngestFixture) -> None:
    files = {f"producer/{'n' * 50}{number}.txt": b"x" for number in range(300)}
    StoredObjects(plain).add(files)
    record, found = pack_assembly(plain, files=tuple(files))
    assert "list" in record.documents["order"]["files"]
    assert set(found) == {f"{TOP}/{path}" for path in files}


def test_small_and_large_by_the_size_of_the_content(plain: IngestFixture) -> None:
    stored_objects = StoredObjects(plain)
    stored_objects.add({"producer/a.txt": b"x" * 100})
    stored_objects.add({"producer/a.txt": b"x" * 5000}, "ark:/99999/fk4large")
    assert asked_for(plain, files=("producer/a.txt",)).record.kind == "access-small"
    assert asked_for(plain, object="ark:/99999/fk4large", files=("producer/a.txt",)).record.kind == "access-large"


def test_the_anticipated_time_counts_what_waits_before(tmp_path: Path) -> None:
    with IngestFixture(tmp_path, settings={"access": {"bytes_per_second": 10}}) as ingest:
        StoredObjects(ingest).add({"producer/a.txt": b"x" * 1000})
        with ingest.engine() as engine:
            before = engine.store.now()
            first, second = (asked_for(ingest, owner=owner, files=("producer/a.txt",)).record for owner in ("jo", "al"))
            after = engine.store.now()
        times = [ingest.get(r.kind, r.id).documents["token"]["anticipated-availability-time"] for r in (first, second)]
        assert times[0] <= to_rfc3339(after + 102)
        assert times[1] >= to_rfc3339(before + 198)


def test_asked_twice_answers_the_same_token_to_the_same_person(ingest: IngestFixture) -> None:
    StoredObjects(ingest).add(FILES)
    first, again = asked_for(ingest), asked_for(ingest)
    assert not again.is_new
    assert again.record.ref == first.record.ref
    assert again.record.documents["token"]["token"] == first.record.documents["token"]["token"]
    for other in (
        asked_for(ingest, owner="al"),
        asked_for(ingest, form="tar"),
        asked_for(ingest, files=("producer/a.txt",)),
    ):
        assert other.is_new
        assert other.record.documents["token"]["token"] != first.record.documents["token"]["token"]


def test_an_assembly_that_is_over_is_not_handed_out_again(plain: IngestFixture) -> None:
    StoredObjects(plain).add(FILES)
    first, _ = pack_assembly(plain)
    assert asked_for(plain).record.ref == first.ref
    with plain.engine() as engine:
        engine.act(first.ref, "delete")
    second = asked_for(plain)
    assert second.is_new
    assert asked_for(plain).record.ref == second.record.ref


def test_what_is_not_there_cannot_be_asked_for(plain: IngestFixture) -> None:
    stored_objects = StoredObjects(plain)
    with pytest.raises(RecordNotFound, match="no object"):
        asked_for(plain)
    stored_objects.add({"producer/a.txt": b"x"}, record=False)
    with pytest.raises(RecordNotFound, match="no object"):  # it is in storage, and not recorded yet
        asked_for(plain)
    stored_objects.add({"producer/a.txt": b"y"})
    with pytest.raises(RecordNotFound, match="no version 7"):
        asked_for(plain, version=7)
    with pytest.raises(RecordNotFound, match="no file"):
        asked_for(plain, files=("producer/z.txt",))
    with pytest.raises(ActionRefused, match="twice"):
        asked_for(plain, files=("producer/a.txt", "producer/a.txt"))
    with pytest.raises(ActionRefused, match="one version"):
        asked_for(plain, version=0, files=("producer/a.txt",))
    with pytest.raises(ActionRefused, match="At most 1000"):
        asked_for(plain, files=tuple(map(str, range(1001))))


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
@pytest.mark.parametrize("path", ["producer/a.txt", "producer/b.bin", MANIFEST_PATH])
def test_a_damaged_file_fails_the_assembly_and_is_named(plain: IngestFixture, form: str, path: str) -> None:
    stored_objects = StoredObjects(plain)
    stored_objects.add(FILES)
    stored_objects.flip(ARK, path)
    request = asked_for(plain, form=form)
    with plain.workers():
        record = plain.wait(request.record.kind, request.record.id, "Failed")
    assert path in record.message
    assert "damaged" in record.message
    assert record.documents["token"]["status"] == "Failed"
    assert "packed" not in record.documents
    left = [info.name for info in plain.environment.objects.list(tokens.ROOT)]
    assert [name.rpartition("/")[2] for name in left] == ["record.json"]


def test_failed_can_be_requeued_and_is_packed_when_it_is_mended(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    stored_objects.flip(ARK, "producer/a.txt")
    request = asked_for(ingest)
    with ingest.workers():
        ingest.wait(request.record.kind, request.record.id, "Failed")
        stored_objects.flip(ARK, "producer/a.txt")  # and back
        with ingest.engine() as engine:
            assert engine.act(request.record.ref, "requeue").record.state == "Pending"
        record = ingest.wait(request.record.kind, request.record.id, "Completed")
    assert read_members(ingest, record)[f"{TOP}/producer/a.txt"] == b"hello"
    assert record.documents["token"]["token"] == request.record.documents["token"]["token"]


def test_a_paused_queue_packs_nothing(plain: IngestFixture) -> None:
    StoredObjects(plain).add(FILES)
    with plain.engine() as engine:
        engine.set_hold("queue/accessLarge")
    request = asked_for(plain)
    assert request.record.kind == "access-large"
    other = asked_for(plain, files=("producer/a.txt",))
    with plain.workers():
        plain.wait("access-small", other.record.id, "Completed")
        assert plain.get("access-large", request.record.id).state == "Pending"
        with plain.engine() as engine:
            engine.clear_hold("queue/accessLarge")
        plain.wait("access-large", request.record.id, "Completed")


def test_assemblies_of_other_services_are_left_as_they_are(ingest: IngestFixture) -> None:
    token = {
        "token": "0b1c",
        "delivery-node": 7777,
        "cloud-content-byte": 17,
        "status": "",
        "url": "http://x",
        "anticipated-availability-time": "",
    }
    with ingest.engine() as engine:
        theirs = [
            engine.submit(New("access-small", {"token": token}, state=state))
            for state in ("Pending", "Processing", "Completed", "Deleted")
        ]
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    with ingest.workers():
        ours = asked_for(ingest)
        ingest.wait("access-small", ours.record.id, "Completed")  # behind theirs: so they were looked at
        for record in theirs:
            found = ingest.wait("access-small", record.id, record.state)
            assert (found.state, found.documents["token"], found.message, found.error_count) == (
                record.state,
                token,
                "",
                0,
            )


def test_a_late_attempt_cannot_replace_what_was_packed(plain: IngestFixture) -> None:
    StoredObjects(plain).add(FILES)
    record, _ = pack_assembly(plain)
    name = record.documents["packed"]["name"]
    assert name.split("/")[-2].isdigit()
    assert name.startswith(tokens.place_of(tokens.token_of(record)))


def test_tokens_are_found_by_nobody_else(plain: IngestFixture) -> None:
    StoredObjects(plain).add(FILES)
    record = asked_for(plain).record
    token = tokens.token_of(record)
    with plain.engine() as engine:
        found = tokens.find_assembly(engine.store, plain.environment.objects, token)
        assert found is not None
        assert found.ref == record.ref
        for wrong in (
            "",
            "x",
            token[:-1],
            token[:-1] + ("A" if token[-1] != "A" else "B"),
            "../" + token,
            tokens.place_of(token),
        ):
            assert tokens.find_assembly(engine.store, plain.environment.objects, wrong) is None
        plain.environment.objects.put(
            f"{tokens.place_of('A' * 43)}/record.json", msgspec.json.encode({"kind": record.kind, "id": record.id})
        )
        assert (
            tokens.find_assembly(engine.store, plain.environment.objects, "A" * 43) is None
        )  # a pointer alone opens nothing
    assert all(token not in info.name for info in plain.environment.objects.list(tokens.ROOT))


def test_the_token_is_shown_by_no_view_of_the_record(plain: IngestFixture) -> None:
    from waybill import views

    StoredObjects(plain).add(FILES)
    record = asked_for(plain).record
    with plain.engine() as engine:
        shown = msgspec.json.encode(
            views.to_record_view(
                engine.store.get(*record.ref), plain.environment.machines, documents=True, store=engine.store
            )
        )
        lines = engine.store.history(*record.ref)
    assert tokens.token_of(record).encode() not in shown
    assert tokens.token_of(record) not in str(lines)


def test_the_order_settles_what_newest_means(plain: IngestFixture) -> None:
    stored_objects = StoredObjects(plain)
    stored_objects.add({"producer/a.txt": b"one"})
    request = asked_for(plain, content="producer")
    stored_objects.add({"producer/a.txt": b"two"})
    with plain.workers():
        record = plain.wait(request.record.kind, request.record.id, "Completed")
    assert read_members(plain, record) == {f"{TOP}/producer/a.txt": b"one"}
    assert asked_for(plain, content="producer").is_new


def test_the_settings_can_be_as_small_as_one_byte(tmp_path: Path) -> None:
    with IngestFixture(tmp_path, settings={"access": {"small_bytes": 1}}) as ingest:
        StoredObjects(ingest).add({"producer/empty": b""})
        assert asked_for(ingest, files=("producer/empty",)).record.kind == "access-small"


def test_a_file_that_is_gone_fails_the_assembly_at_once_and_is_named(plain: IngestFixture) -> None:
    """Its manifest too, whose size is asked for before anything is read: it was taken for trouble of the storage,
    and told by its place.
    """
    stored_objects = StoredObjects(plain)
    stored = stored_objects.add(FILES)
    with stored_objects.storage.read(ARK, stored.place) as body:
        plain.environment.objects.delete(body.info.name)
    request = asked_for(plain)
    with plain.workers():
        record = plain.wait(request.record.kind, request.record.id, "Failed")
    assert record.message == f"{MANIFEST_PATH} of version 1 of {ARK} is missing in storage."
