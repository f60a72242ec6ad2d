from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.test_storing import manifest
from tests.apps.ingest.steps.yard import OWNER, add_profile, fetched, run, sha256, stopping_at_notify
from waybill.apps.ingest.duties.audit import Audited, audit_some, known_damage
from waybill.apps.ingest.inventory import Contradiction, Inventory, KeptElsewhere, rebuild_object, rebuild_some
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.rebuilding import order
from waybill.apps.ingest.storage import Deposit, FileToStore, OcflStorage
from waybill.record import Record

ARK = "ark:/99999/fk4given"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with stopping_at_notify(tmp_path, Profile(name="p", owner=OWNER)) as site:
        yield site


def inventory_of(site: Site) -> Inventory:
    found: Inventory = site.depot.outfit("job").inventory
    return found


def stored_elsewhere(site: Site, url: str, **said: Any) -> Record:
    more = {"inventory": {"manifest_url": url, "mode": "add"}, "downloaded": None}
    return fetched(site, {}, done="Processing", more=more, **{"primary_id": ARK, "title": "Hunt", **said})


def test_recording_reads_nothing_but_the_storage_manifest(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = site.depot.outfit("job").storage
    # minting looks whether storage knows the ARK
    job = fetched(site, {"a.txt": b"1"}, local_ids=("l1",), title="Hunt", primary_id=ARK)
    read: list[str] = []
    manifest_of = storage.manifest
    monkeypatch.setattr(storage, "manifest", lambda stored: read.append(stored.place) or manifest_of(stored))
    for verb in ("open", "read", "stored", "versions"):
        monkeypatch.setattr(storage, verb, None)
    job = run(site, job)
    assert job.state == "Notify", job.message
    assert read == [job.docs["stored"]["place"]]
    ark = job.docs["identifiers"]["primary_id"]
    row = inventory_of(site).file(ark, 1, "producer/a.txt")
    assert row is not None
    assert row["size"] == 1
    assert inventory_of(site).ark_of(OWNER, "l1") == ark


def test_a_second_recording_changes_nothing(site: Site) -> None:
    job = run(site, fetched(site, {"a.txt": b"1"}))
    again = run(
        site, fetched(site, {}, done="Processing", more={name: job.docs[name] for name in ("stored", "inventory")})
    )
    assert again.state == "Notify", again.message
    assert len(inventory_of(site).versions(job.docs["identifiers"]["primary_id"])) == 1


def test_a_local_id_that_was_taken_meanwhile_fails_with_both_names(site: Site) -> None:
    inventory_of(site).shelf.execute("enter_localid", owner=OWNER, localid="l1", ark="ark:/99999/fk4other")
    site.depot.objects.put("ingest/payloads/x", b"1")
    row = FileToStore("producer/a.txt", 1, sha256(b"1"), "waybill:ingest/payloads/x")
    deposit = Deposit(object=ARK, request="r", files=[row], about={"owner": OWNER, "local_ids": ["l1"]})
    stored = msgspec.to_builtins(site.depot.outfit("job").storage.write(deposit))
    job = run(site, fetched(site, {}, done="Processing", primary_id=ARK, more={"stored": stored}))
    assert job.state == "Failed"
    assert "ark:/99999/fk4other" in job.message
    assert ARK in job.message


def test_what_another_service_has_stored_is_recorded_from_its_storage_manifest(site: Site) -> None:
    rows = [("producer/b.txt", "http://store.test/b", b"two"), ("producer/a.txt", "http://store.test/a", b"one")]
    job = run(site, stored_elsewhere(site, site.web.put("m.txt", manifest(*rows)), local_ids=("l1",)))
    assert job.state == "Notify", job.message
    found = inventory_of(site).file(ARK, 1, "producer/a.txt")
    assert found is not None
    assert (found["place"], found["size"]) == ("http://store.test/a", 3)
    assert inventory_of(site).ark_of(OWNER, "l1") == ARK
    said = {name: job.docs["configuration"][name] for name in ("batchID", "jobID")}
    url = job.docs["inventory"]["manifest_url"]
    run(site, stored_elsewhere(site, url, batch_id=said["batchID"], job_id=said["jobID"]))
    assert len(inventory_of(site).versions(ARK)) == 1  # the same job again
    run(site, stored_elsewhere(site, url))
    assert len(inventory_of(site).versions(ARK)) == 2  # another one


def test_the_signature_of_a_manifest_that_cannot_be_used_is_told_to_nobody(site: Site) -> None:
    site.web.files["/m.txt?signature=hidden"] = b"no manifest"
    job = run(site, stored_elsewhere(site, f"{site.web.url}/m.txt?signature=hidden"))
    assert job.state == "Failed"
    assert "m.txt?signature=*** is no storage manifest" in job.message


def test_what_another_waybill_has_stored_is_recorded_from_its_manifest(site: Site, tmp_path: Path) -> None:
    with Site(tmp_path / "other", settings={"outside": ["Notify"]}) as other:
        job = run(other, fetched(other, {"a b.txt": b"1"}, primary_id=ARK, title="Hunt"))
        storage = other.depot.outfit("job").storage
        with storage.read(ARK, job.docs["stored"]["place"]) as body:
            url = site.web.put("objects/x/versions/1/manifest", body.read())
    job = run(site, stored_elsewhere(site, url))
    assert job.state == "Notify", job.message
    found = inventory_of(site).file(ARK, 1, "producer/a b.txt")
    assert found is not None
    assert found["place"] == f"{site.web.url}/objects/x/versions/1/files/producer/a%20b.txt"
    row = inventory_of(site).object(ARK)
    assert row is not None
    assert row["title"] == "Hunt"
    other_job = run(site, stored_elsewhere(site, url, primary_id="ark:/99999/fk4mine"))
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
def test_what_cannot_be_recorded_fails_with_a_sentence(site: Site, content: bytes, said: str) -> None:
    job = run(site, stored_elsewhere(site, site.web.put("m.txt", content)))
    assert job.state == "Failed"
    assert said in job.message


def test_a_manifest_that_is_gone_fails_and_a_job_without_one_says_what_to_do(site: Site) -> None:
    assert "404" in run(site, stored_elsewhere(site, f"{site.web.url}/gone")).message
    assert "`restart`" in run(site, stored_elsewhere(site, "")).message


# --- what another storage service keeps


@pytest.fixture
def elsewhere(site: Site) -> Site:
    rows = [("producer/a.txt", "http://store.test/a", b"one"), ("producer/b.txt", "http://store.test/b", b"two")]
    job = run(site, stored_elsewhere(site, site.web.put("m.txt", manifest(*rows)), local_ids=("l1",)))
    assert job.state == "Notify", job.message
    return site


def known(site: Site) -> tuple[Any, ...]:
    inventory = inventory_of(site)
    return inventory.object(ARK), inventory.versions(ARK), inventory.files(ARK, 1), inventory.ark_of(OWNER, "l1")


def test_a_rebuild_does_not_forget_what_another_service_keeps(elsewhere: Site) -> None:
    before = known(elsewhere)
    with elsewhere.engine() as engine:
        asked = engine.submit(order([ARK]))
    with elsewhere.workers():
        rebuilt = elsewhere.wait("rebuild", asked.id, "Completed", "Failed")
    assert rebuilt.state == "Failed"
    assert f"Another storage service keeps {ARK}" in rebuilt.message
    assert rebuild_some(inventory_of(elsewhere), elsewhere.depot.outfit("job").storage).troubles == ()
    assert known(elsewhere) == before


def written(site: Site, *requests: str) -> OcflStorage:
    """Our own storage, with versions of the same object."""
    site.depot.objects.put("ingest/payloads/x", b"1")
    storage: OcflStorage = site.depot.outfit("job").storage
    for request in requests:
        row = FileToStore("producer/c.txt", 1, sha256(b"1"), "waybill:ingest/payloads/x")
        storage.write(Deposit(object=ARK, request=request, files=[row], about={"owner": OWNER}))
    return storage


def test_a_version_of_ours_beside_theirs_is_neither_recorded_nor_is_a_rebuild_advised(elsewhere: Site) -> None:
    storage, before = written(elsewhere, "r"), known(elsewhere)
    with pytest.raises(KeptElsewhere, match="keeps version 1"):
        rebuild_object(inventory_of(elsewhere), storage, ARK)
    with pytest.raises(Contradiction, match="another storage service keeps one of the two") as caught:
        inventory_of(elsewhere).record(storage.stored(ARK), storage)
    assert "rebuild" not in str(caught.value)
    assert known(elsewhere) == before


def test_versions_of_ours_are_recorded_again_and_later_ones_of_theirs_stay(site: Site) -> None:
    storage = written(site, "r", "s")
    rebuild_object(inventory_of(site), storage, ARK)
    url = site.web.put("m.txt", manifest(("producer/a.txt", "http://store.test/a", b"one")))
    assert run(site, stored_elsewhere(site, url, local_ids=("l1",))).state == "Notify"
    inventory_of(site).catalogue.forget_version(inventory_of(site).shelf, ARK, 1)
    assert rebuild_object(inventory_of(site), storage, ARK) == 2
    row, versions, _, owner_of_local_id = known(site)
    assert (row["head"], [version["number"] for version in versions], owner_of_local_id) == (3, [1, 2, 3], ARK)


def test_audits_leave_out_what_another_service_keeps(elsewhere: Site) -> None:
    with elsewhere.engine() as engine:
        assert audit_some(elsewhere.depot.outfit("job"), engine) == Audited()
    assert list(known_damage(elsewhere.depot.outfit("job"))) == []


@pytest.mark.parametrize("update", [True, False])
def test_no_version_is_written_beside_those_of_another_service(elsewhere: Site, update: bool) -> None:
    job = run(elsewhere, fetched(elsewhere, {"c.txt": b"3"}, primary_id=ARK, update=update))
    assert job.state == "Failed"
    assert f"Another storage service keeps {ARK}" in job.message
    assert 'outside = ["Storing"]' in job.message
    assert list(elsewhere.depot.outfit("job").storage.objects()) == []


@pytest.mark.parametrize("outside", ["Storing", "Notify"])
def test_where_storing_is_left_to_that_service_a_version_is_asked_for(tmp_path: Path, outside: str) -> None:
    with Site(tmp_path, settings={"storing": True, "outside": [outside]}) as site:
        add_profile(site, Profile(name="p", owner=OWNER))
        url = site.web.put("m.txt", manifest(("producer/a.txt", "http://store.test/a", b"one")))
        more = {"inventory": {"manifest_url": url, "mode": "add"}, "downloaded": None}
        with site.workers(roles=["job"]):
            first = fetched(site, {}, done="Storing", more=more, primary_id=ARK)
            site.wait("job", first.id, "Notify", "Completed")
        job = run(
            site,
            fetched(site, {"c.txt": b"3"}, primary_id=ARK, update=True),
            "Storing" if outside == "Storing" else "Failed",
        )
        assert (f"Another storage service keeps {ARK}" in job.message) == (outside != "Storing")
        if outside != "Storing":  # nor what another service has processed
            store = {"manifest_url": url, "mode": f"update/9502/{ARK}", "delete": ""}
            theirs = fetched(site, {}, done="Processing", primary_id=ARK, more={"store": store, "downloaded": None})
            assert f"Another storage service keeps {ARK}" in run(site, theirs).message


def test_an_update_that_another_service_has_stored_keeps_what_is_known_of_the_object(elsewhere: Site) -> None:
    url = elsewhere.web.put("n.txt", manifest(("producer/c.txt", "http://store.test/c", b"three")))
    assert run(elsewhere, stored_elsewhere(elsewhere, url, update=True, title="", creator="Ann")).state == "Notify"
    row = inventory_of(elsewhere).object(ARK)
    assert row is not None
    assert (row["head"], row["title"], row["creator"], row["local_ids"]) == (2, "Hunt", "Ann", ["l1"])
