from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.downloaded_jobs import OWNER, add_profile, fetched, run, sha256, stopping_at_notify
from tests.apps.ingest.steps.test_storing import manifest
from waybill.apps.ingest.inventory import Inventory, InventoryConflict, rebuild_object, rebuild_page
from waybill.apps.ingest.machine.rebuild import make_rebuild
from waybill.apps.ingest.maintenance.audit import AuditProgress, audit_next, iter_known_damage
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.storage import Deposit, FileToStore, OcflStorage, StoredVersion
from waybill.apps.ingest.storage.protocol import StorageError
from waybill.manifests import ManifestReader
from waybill.record import Record

ARK = "ark:/99999/fk4given"


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with stopping_at_notify(tmp_path, Profile(name="p", owner=OWNER)) as ingest:
        yield ingest


def inventory_of(ingest: IngestFixture) -> Inventory:
    found: Inventory = ingest.resources.inventory
    return found


def stored_elsewhere(ingest: IngestFixture, url: str, **fields: Any) -> Record:
    more = {"inventory": {"manifest_url": url, "mode": "add"}, "downloaded": None}
    return fetched(ingest, {}, done="Processing", more=more, **{"primary_id": ARK, "title": "Hunt", **fields})


def test_recording_reads_nothing_but_the_storage_manifest(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = ingest.resources.storage
    # minting looks whether storage knows the ARK
    job = fetched(ingest, {"a.txt": b"1"}, local_ids=("l1",), title="Hunt", primary_id=ARK)
    read: list[str] = []
    open_manifest = storage.open_manifest

    def open_and_note(stored: StoredVersion) -> ManifestReader:
        read.append(stored.place)
        return open_manifest(stored)

    monkeypatch.setattr(storage, "open_manifest", open_and_note)
    for verb in ("open_file", "read", "get_version", "list_versions"):
        monkeypatch.setattr(storage, verb, None)
    job = run(ingest, job)
    assert job.state == "Notify", job.message
    assert read == [job.documents["stored"]["place"]]
    ark = job.documents["identifiers"]["primary_id"]
    row = inventory_of(ingest).get_file(ark, 1, "producer/a.txt")
    assert row is not None
    assert row["size"] == 1
    assert inventory_of(ingest).ark_of(OWNER, "l1") == ark


def test_a_second_recording_changes_nothing(ingest: IngestFixture) -> None:
    job = run(ingest, fetched(ingest, {"a.txt": b"1"}))
    again = run(
        ingest,
        fetched(ingest, {}, done="Processing", more={name: job.documents[name] for name in ("stored", "inventory")}),
    )
    assert again.state == "Notify", again.message
    assert len(inventory_of(ingest).list_versions(job.documents["identifiers"]["primary_id"])) == 1


def test_a_local_id_that_was_taken_meanwhile_fails_with_both_names(ingest: IngestFixture) -> None:
    inventory_of(ingest).tables.execute("enter_localid", owner=OWNER, localid="l1", ark="ark:/99999/fk4other")
    ingest.environment.objects.put("ingest/payloads/x", b"1")
    row = FileToStore("producer/a.txt", 1, sha256(b"1"), "waybill:ingest/payloads/x")
    deposit = Deposit(object=ARK, request="r", files=[row], about={"owner": OWNER, "local_ids": ["l1"]})
    stored = msgspec.to_builtins(ingest.resources.storage.write(deposit))
    job = run(ingest, fetched(ingest, {}, done="Processing", primary_id=ARK, more={"stored": stored}))
    assert job.state == "Failed"
    assert "ark:/99999/fk4other" in job.message
    assert ARK in job.message


def test_what_another_service_has_stored_is_recorded_from_its_storage_manifest(ingest: IngestFixture) -> None:
    rows = [("producer/b.txt", "http://store.test/b", b"two"), ("producer/a.txt", "http://store.test/a", b"one")]
    job = run(ingest, stored_elsewhere(ingest, ingest.web.put("m.txt", manifest(*rows)), local_ids=("l1",)))
    assert job.state == "Notify", job.message
    found = inventory_of(ingest).get_file(ARK, 1, "producer/a.txt")
    assert found is not None
    assert (found["place"], found["size"]) == ("http://store.test/a", 3)
    assert inventory_of(ingest).ark_of(OWNER, "l1") == ARK
    fields = {name: job.documents["configuration"][name] for name in ("batchID", "jobID")}
    url = job.documents["inventory"]["manifest_url"]
    run(ingest, stored_elsewhere(ingest, url, batch_id=fields["batchID"], job_id=fields["jobID"]))
    assert len(inventory_of(ingest).list_versions(ARK)) == 1  # the same job again
    run(ingest, stored_elsewhere(ingest, url))
    assert len(inventory_of(ingest).list_versions(ARK)) == 2  # another one


def test_the_signature_of_an_unusable_manifest_url_is_not_shown(ingest: IngestFixture) -> None:
    ingest.web.files["/m.txt?signature=hidden"] = b"no manifest"
    job = run(ingest, stored_elsewhere(ingest, f"{ingest.web.url}/m.txt?signature=hidden"))
    assert job.state == "Failed"
    assert "m.txt?signature=*** is no storage manifest" in job.message


def test_what_another_waybill_has_stored_is_recorded_from_its_manifest(ingest: IngestFixture, tmp_path: Path) -> None:
    with IngestFixture(tmp_path / "other", settings={"external_states": ["Notify"]}) as other:
        job = run(other, fetched(other, {"a b.txt": b"1"}, primary_id=ARK, title="Hunt"))
        storage = other.resources.storage
        with storage.read(ARK, job.documents["stored"]["place"]) as body:
            url = ingest.web.put("objects/x/versions/1/manifest", body.read())
    job = run(ingest, stored_elsewhere(ingest, url))
    assert job.state == "Notify", job.message
    found = inventory_of(ingest).get_file(ARK, 1, "producer/a b.txt")
    assert found is not None
    assert found["place"] == f"{ingest.web.url}/objects/x/versions/1/files/producer/a%20b.txt"
    row = inventory_of(ingest).get_object(ARK)
    assert row is not None
    assert row["title"] == "Hunt"
    other_job = run(ingest, stored_elsewhere(ingest, url, primary_id="ark:/99999/fk4mine"))
    assert "is for ark:/99999/fk4mine" in other_job.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<manifest/>", "no storage manifest that can be recorded"),
        (b"#%checkm_0.7\nhttp://x | md5 | 00 | 1 |  | a\n#%eof\n", "cannot be recorded: Line 2"),
        (b'{"waybill":"manifest","v":1}\n', "does not say of which object"),
        (b'{"waybill":"manifest","v":1,"about":{"object":"ark:/99999/fk4given","version":1}}\n', "manifest"),
    ],
)
def test_what_cannot_be_recorded_fails_with_a_sentence(ingest: IngestFixture, content: bytes, said: str) -> None:
    job = run(ingest, stored_elsewhere(ingest, ingest.web.put("m.txt", content)))
    assert job.state == "Failed"
    assert said in job.message


def test_a_manifest_that_is_gone_fails_and_a_job_without_one_says_what_to_do(ingest: IngestFixture) -> None:
    assert "404" in run(ingest, stored_elsewhere(ingest, f"{ingest.web.url}/gone")).message
    assert "`restart`" in run(ingest, stored_elsewhere(ingest, "")).message


# --- what another storage service keeps


@pytest.fixture
def elsewhere(ingest: IngestFixture) -> IngestFixture:
    rows = [("producer/a.txt", "http://store.test/a", b"one"), ("producer/b.txt", "http://store.test/b", b"two")]
    job = run(ingest, stored_elsewhere(ingest, ingest.web.put("m.txt", manifest(*rows)), local_ids=("l1",)))
    assert job.state == "Notify", job.message
    return ingest


def known(ingest: IngestFixture) -> tuple[Any, ...]:
    inventory = inventory_of(ingest)
    return (
        inventory.get_object(ARK),
        inventory.list_versions(ARK),
        inventory.list_files(ARK, 1),
        inventory.ark_of(OWNER, "l1"),
    )


def test_a_rebuild_does_not_forget_what_another_service_keeps(elsewhere: IngestFixture) -> None:
    before = known(elsewhere)
    with elsewhere.engine() as engine:
        record = engine.submit(make_rebuild([ARK]))
    with elsewhere.workers():
        rebuilt = elsewhere.wait("rebuild", record.id, "Completed", "Failed")
    assert rebuilt.state == "Failed"
    assert f"Another storage service keeps {ARK}" in rebuilt.message
    assert rebuild_page(inventory_of(elsewhere), elsewhere.resources.storage).errors == ()
    assert known(elsewhere) == before


def written(ingest: IngestFixture, *requests: str) -> OcflStorage:
    """Our own storage, with versions of the same object."""
    ingest.environment.objects.put("ingest/payloads/x", b"1")
    storage = ingest.resources.storage
    assert isinstance(storage, OcflStorage)
    for request in requests:
        row = FileToStore("producer/c.txt", 1, sha256(b"1"), "waybill:ingest/payloads/x")
        storage.write(Deposit(object=ARK, request=request, files=[row], about={"owner": OWNER}))
    return storage


def test_a_version_of_ours_beside_theirs_is_neither_recorded_nor_is_a_rebuild_advised(elsewhere: IngestFixture) -> None:
    storage, before = written(elsewhere, "r"), known(elsewhere)
    with pytest.raises(StorageError, match="keeps version 1"):
        rebuild_object(inventory_of(elsewhere), storage, ARK)
    with pytest.raises(InventoryConflict, match="another storage service keeps one of the two") as caught:
        inventory_of(elsewhere).record(storage.get_version(ARK), storage)
    assert "rebuild" not in str(caught.value)
    assert known(elsewhere) == before


def test_versions_of_ours_are_recorded_again_and_later_ones_of_theirs_stay(ingest: IngestFixture) -> None:
    storage = written(ingest, "r", "s")
    rebuild_object(inventory_of(ingest), storage, ARK)
    url = ingest.web.put("m.txt", manifest(("producer/a.txt", "http://store.test/a", b"one")))
    assert run(ingest, stored_elsewhere(ingest, url, local_ids=("l1",))).state == "Notify"
    inventory_of(ingest).catalogue.forget_version(inventory_of(ingest).tables, ARK, 1)
    assert rebuild_object(inventory_of(ingest), storage, ARK) == 2
    row, versions, _, owner_of_local_id = known(ingest)
    assert (row["head"], [version["number"] for version in versions], owner_of_local_id) == (3, [1, 2, 3], ARK)


def test_audits_leave_out_what_another_service_keeps(elsewhere: IngestFixture) -> None:
    with elsewhere.engine() as engine:
        assert audit_next(elsewhere.resources, engine) == AuditProgress()
    assert list(iter_known_damage(elsewhere.resources)) == []


@pytest.mark.parametrize("update", [True, False])
def test_no_version_is_written_beside_those_of_another_service(elsewhere: IngestFixture, update: bool) -> None:
    job = run(elsewhere, fetched(elsewhere, {"c.txt": b"3"}, primary_id=ARK, update=update))
    assert job.state == "Failed"
    assert f"Another storage service keeps {ARK}" in job.message
    assert 'external_states = ["Storing"]' in job.message
    assert list(elsewhere.resources.storage.list_objects()) == []


@pytest.mark.parametrize("outside", ["Storing", "Notify"])
def test_where_storing_is_left_to_that_service_a_version_is_asked_for(tmp_path: Path, outside: str) -> None:
    with IngestFixture(tmp_path, settings={"storing_state": True, "external_states": [outside]}) as ingest:
        add_profile(ingest, Profile(name="p", owner=OWNER))
        url = ingest.web.put("m.txt", manifest(("producer/a.txt", "http://store.test/a", b"one")))
        more = {"inventory": {"manifest_url": url, "mode": "add"}, "downloaded": None}
        with ingest.workers(queues=["job"]):
            first = fetched(ingest, {}, done="Storing", more=more, primary_id=ARK)
            ingest.wait("job", first.id, "Notify", "Completed")
        job = run(
            ingest,
            fetched(ingest, {"c.txt": b"3"}, primary_id=ARK, update=True),
            "Storing" if outside == "Storing" else "Failed",
        )
        assert (f"Another storage service keeps {ARK}" in job.message) == (outside != "Storing")
        if outside != "Storing":  # nor what another service has processed
            store = {"manifest_url": url, "mode": f"update/9502/{ARK}", "delete": ""}
            theirs = fetched(ingest, {}, done="Processing", primary_id=ARK, more={"store": store, "downloaded": None})
            assert f"Another storage service keeps {ARK}" in run(ingest, theirs).message


def test_an_update_that_another_service_has_stored_keeps_what_is_known_of_the_object(elsewhere: IngestFixture) -> None:
    url = elsewhere.web.put("n.txt", manifest(("producer/c.txt", "http://store.test/c", b"three")))
    assert run(elsewhere, stored_elsewhere(elsewhere, url, update=True, title="", creator="Ann")).state == "Notify"
    row = inventory_of(elsewhere).get_object(ARK)
    assert row is not None
    assert (row["head"], row["title"], row["creator"], row["local_ids"]) == (2, "Hunt", "Ann", ["l1"])
