import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from tests.apps.ingest import batches
from tests.apps.ingest.ezid_server import EzidServer
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.objects_server import serve_objects
from tests.apps.ingest.steps import new_jobs
from tests.apps.ingest.steps.downloaded_jobs import (
    OWNER,
    add_profile,
    fetched,
    files_of,
    folder_of,
    run,
    sha256,
    stopping_at_notify,
)
from tests.apps.ingest.storage.yard import said_by_validator
from waybill import rules
from waybill.apps.ingest.formats import anvl, dublin_core
from waybill.apps.ingest.formats.anvl import Erc
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.identifiers import minter, noid
from waybill.apps.ingest.profile import Profile, ProfileMinter
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage import Deposit, FileToStore, InvalidDeposit, OcflStorage, StoredVersion
from waybill.apps.ingest.submission import PayloadType
from waybill.objects import DirectoryObjects
from waybill.record import Change, CommitGroup, Conflict, Record, Ref, encode_document
from waybill.step import New

COLLECTION = "ark:/99999/fk4coll"
GIVEN = "ark:/99999/fk4given"
SYSTEM = {"mrt-ingest.txt", "mrt-owner.txt", "mrt-membership.txt", "mrt-mom.txt", "mrt-erc.txt", "mrt-dc.xml"}


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with stopping_at_notify(tmp_path, Profile(name="p", owner=OWNER, collections=(COLLECTION,))) as ingest:
        yield ingest


def resources_of(ingest: IngestFixture) -> IngestResources:
    found: IngestResources = ingest.resources
    return found


def done(ingest: IngestFixture, job: Record) -> Record:
    """The job, run until it is recorded."""
    ended = run(ingest, job)
    assert ended.state == "Notify", ended.message
    return ended


def expect_failure(ingest: IngestFixture, job: Record) -> str:
    ended = run(ingest, job)
    assert ended.state == "Failed"
    return ended.message


def ark_of(job: Record) -> str:
    return str(job.documents["identifiers"]["primary_id"])


def test_an_object_gets_an_ark_and_is_stored_with_its_system_files(ingest: IngestFixture, tmp_path: Path) -> None:
    job = done(
        ingest,
        fetched(
            ingest,
            {"a.txt": b"hello", "b/c.txt": b""},
            title="Hunt",
            creator="Ann",
            date="2009",
            local_ids=("l1", "l2"),
        ),
    )
    ark = ark_of(job)
    assert noid.has_valid_check_character(ark)
    assert ark.startswith("ark:/99999/fk4")
    files = files_of(ingest, ark_of(job))
    assert set(files) == {"producer/a.txt", "producer/b/c.txt", *(f"system/{name}" for name in SYSTEM)}
    assert files["producer/a.txt"] == b"hello"
    assert (
        files["system/mrt-erc.txt"].decode()
        == f"erc:\nwho: Ann\nwhat: Hunt\nwhen: 2009\nwhere: {ark}\nwhere: l1\nwhere: l2\n"
    )
    assert files["system/mrt-owner.txt"].decode() == f"{OWNER}\n"
    assert job.documents["metadata"] == {"erc_who": "Ann", "erc_what": "Hunt", "erc_when": "2009", "erc_where": ark}
    assert job.documents["inventory"] == {
        "manifest_url": f"http://waybill.test/api/v1/ingest/objects/{ark.replace(':', '%3A').replace('/', '%2F')}/versions/1/manifest",
        "mode": "add",
    }
    stored = StoredVersion(**{name: value for name, value in job.documents["stored"].items() if name != "v"})
    assert (stored.object, stored.version, stored.request) == (ark, 1, job.documents["configuration"]["jobID"])
    found = resources_of(ingest).inventory.get_object(ark)
    assert found is not None
    assert (found["title"], found["owner"], found["local_ids"], found["collections"]) == (
        "Hunt",
        OWNER,
        ["l1", "l2"],
        [COLLECTION],
    )
    assert isinstance(ingest.environment.objects, DirectoryObjects)
    assert said_by_validator(ingest.environment.objects.root / "ocfl") == (1, [])


def test_where_storing_is_a_state_the_working_folder_holds_all_that_storage_must_know(tmp_path: Path) -> None:
    with IngestFixture(tmp_path, settings={"external_states": ["Storing"], "storing_state": True}) as ingest:
        look_at_the_working_folder(ingest)


def look_at_the_working_folder(ingest: IngestFixture) -> None:
    row = {"line": 6, "url": "http://127.0.0.1/a.txt", "name": "a.txt", "algorithm": "md5", "digest": "0" * 32}
    job = fetched(
        ingest, {"a.txt": b"hello", "odd |name ": b"x"}, more={"files": {"count": 1, "rows": [row], "type": "file"}}
    )
    system = folder_of(ingest, run(ingest, job, "Storing")) / "system"
    assert sorted(os.listdir(system)) == sorted([*SYSTEM, "mrt-manifest.txt", "mrt-submission-manifest.txt"])
    lines = (system / "mrt-manifest.txt").read_text().splitlines()
    assert lines[1] == "#%profile | http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest"
    named = {line.split(" | ")[5]: line.split(" | ") for line in lines if not line.startswith("#")}
    assert set(named) == {"producer/a.txt", "producer/odd %7Cname%20", *(f"system/{name}" for name in SYSTEM)}
    assert named["producer/a.txt"][1:4] == ["sha-256", sha256(b"hello"), "5"]
    assert "http://127.0.0.1/a.txt | md5" in (system / "mrt-submission-manifest.txt").read_text()


@pytest.mark.parametrize("storing", [False, True])
def test_where_another_service_records_what_is_stored_is_known_here_too(tmp_path: Path, storing: bool) -> None:
    """Else one local id would lead to two objects, and whoever records it could not read its manifest by our routes."""
    with IngestFixture(tmp_path, settings={"external_states": ["Recording"], "storing_state": storing}) as ingest:
        add_profile(ingest, Profile(name="p", owner=OWNER))
        first = run(ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l1",)), "Recording")
        second = run(ingest, fetched(ingest, {"b.txt": b"2"}, local_ids=("l1",)), "Recording")
        assert (ark_of(first), second.documents["stored"]["version"]) == (ark_of(second), 2)
        inventory = ingest.resources.inventory
        for job in (first, second):
            version = inventory.get_version(ark_of(job), job.documents["stored"]["version"])
            assert version is not None
            assert version.request == job.documents["stored"]["request"]


def test_on_a_shared_tree_whoever_records_it_reads_the_manifest_without_a_token(
    tmp_path: Path, zookeeper_url: str
) -> None:
    with (
        IngestFixture(tmp_path, store=zookeeper_url, settings={"external_states": ["Recording"]}) as ingest,
        serve_objects(ingest) as front,
    ):
        job = led_to_recording(ingest)
        url = job.documents["inventory"]["manifest_url"]
        response = front.get(url, role=None)
        assert response.status_code == 200
        assert b"producer/a.txt" in response.content
        assert front.get(url.partition("?")[0], role=None).status_code == 401
        shown = front.get(f"/api/v1/records/job/{job.id}").text
        assert "signature=***" in shown
        assert url.rpartition("=")[2] not in shown


def test_where_the_settings_say_so_no_url_is_signed(tmp_path: Path, zookeeper_url: str) -> None:
    with IngestFixture(
        tmp_path, store=zookeeper_url, settings={"external_states": ["Recording"], "storage": {"signed_url_seconds": 0}}
    ) as ingest:
        assert led_to_recording(ingest).documents["inventory"]["manifest_url"].endswith("/manifest")


def led_to_recording(ingest: IngestFixture) -> Record:
    batches.profile(ingest)
    batch = batches.submit(ingest, url=ingest.web.put("a.txt", b"1"), type=PayloadType.FILE, is_profile_checked=True)
    ingest.step_until(batch.ref, "Processing")
    ingest.step(batch.ref)
    (job,) = batches.jobs(ingest, batch)
    return ingest.step_until(job.ref, "Recording")


def test_a_local_id_leads_to_its_object(ingest: IngestFixture) -> None:
    first = done(ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l1",)))
    second = done(ingest, fetched(ingest, {"b.txt": b"2"}, local_ids=("l2", "l1")))
    assert ark_of(second) == ark_of(first)
    assert second.documents["stored"]["version"] == 2
    # added: it has the files of this deposit and no others
    assert "producer/a.txt" not in files_of(ingest, ark_of(second))
    stranger = done(ingest, fetched(ingest, {"b.txt": b"2"}, local_ids=("l1",), owner="ark:/99999/fk4other"))
    assert ark_of(stranger) != ark_of(first)


@pytest.mark.parametrize("state", ["Pending", "Downloading"])
def test_a_local_id_is_locked_as_its_owners_also_when_only_the_profile_names_him(
    ingest: IngestFixture, state: str
) -> None:
    """Other services leave the owner to the profile.

    Two at once would each mint an ARK for the local id, and one fail for good.
    """
    ours = ingest.step_until(fetched(ingest, {"a.txt": b"1"}, local_ids=("l1",), owner=OWNER).ref, "Recording")
    theirs = new_jobs.submit(
        ingest, ingest.web.put("b.txt", b"2"), PayloadType.FILE, local_ids=("l1",), owner="", filename="b.txt"
    )
    if state == "Downloading":
        theirs = new_jobs.resume_after(
            ingest, "Provisioning", ingest.web.put("b.txt", b"2"), {}, local_ids=("l1",), owner="", filename="b.txt"
        )
    theirs = ingest.step_until(theirs.ref, "Processing")
    assert theirs.locks == (f"localid/l1_{OWNER}",)
    with pytest.raises(Conflict, match="blocked by lock localid/l1"):
        ingest.step(theirs.ref)
    done(ingest, ours)
    theirs = done(ingest, theirs)
    assert (ark_of(theirs), theirs.documents["stored"]["version"]) == (ark_of(ingest.get("job", ours.id)), 2)


def test_a_local_id_of_another_ark_fails_with_both_names(ingest: IngestFixture) -> None:
    first = done(ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l1",)))
    failure = expect_failure(
        ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l0", "l1"), primary_id="ark:/99999/fk4given")
    )
    assert ark_of(first) in failure
    assert "ark:/99999/fk4given" in failure
    assert "'l1'" in failure


def test_local_ids_of_two_objects_fail_with_both_names(ingest: IngestFixture) -> None:
    one = done(ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l1",)))
    two = done(ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l2",)))
    failure = expect_failure(ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l1", "l2")))
    assert ark_of(one) in failure
    assert ark_of(two) in failure


def test_a_supplied_ark_wins_and_gets_versions(ingest: IngestFixture) -> None:
    given = "ark:/99999/fk4given"
    first = done(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id=given, local_ids=("l1",)))
    second = done(ingest, fetched(ingest, {"b.txt": b"2"}, primary_id=given))
    assert (ark_of(first), ark_of(second)) == (given, given)
    assert set(files_of(ingest, ark_of(second))) == {"producer/b.txt", *(f"system/{name}" for name in SYSTEM)}
    with ingest.engine() as engine:
        assert not list(engine.store.find("minter").records)  # nothing was drawn


def test_a_deposit_of_nobody_takes_no_object_from_its_owner(ingest: IngestFixture) -> None:
    given = "ark:/99999/fk4given"
    add_profile(ingest, Profile(name="nobody"))
    done(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id=given))
    failure = expect_failure(ingest, fetched(ingest, {"b.txt": b"2"}, primary_id=given, profile="nobody", owner=""))
    assert f"{given} belongs to {OWNER}, and the deposit to nobody" in failure
    assert len(resources_of(ingest).storage.list_versions(given)) == 1
    done(ingest, fetched(ingest, {"c.txt": b"3"}, primary_id=given))  # the owner is not locked out
    of_nobody = "ark:/99999/fk4free"
    for _ in range(2):
        done(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id=of_nobody, profile="nobody", owner=""))


def test_what_is_no_ark_is_refused(ingest: IngestFixture) -> None:
    assert "is not an ARK" in expect_failure(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id="ARK:/99999/X"))


def test_an_update_keeps_what_it_does_not_replace_and_deletes_what_is_listed(ingest: IngestFixture) -> None:
    given = "ark:/99999/fk4given"
    done(ingest, fetched(ingest, {"a.txt": b"1", "b.txt": b"2", "c.txt": b"3", "d/e.txt": b"4"}, primary_id=given))
    update = {"b.txt": b"new", "mrt-delete.txt": b"c.txt\n"}
    job = done(
        ingest, fetched(ingest, update, primary_id=given, update=True, deletions=("producer/d/e.txt",), title="Later")
    )
    files = {name: data for name, data in files_of(ingest, ark_of(job)).items() if name.startswith("producer/")}
    assert files == {"producer/a.txt": b"1", "producer/b.txt": b"new", "producer/mrt-delete.txt": b"c.txt\n"}
    assert b"what: Later" in files_of(ingest, ark_of(job))["system/mrt-erc.txt"]


def read_description(ingest: IngestFixture, number: int) -> tuple[dict[str, list[str]], Erc, list[str], dict[str, Any]]:
    """What the system files of a version say in Dublin Core, as a citation and of local ids; and what the inventory
    was told.
    """
    files, storage = files_of(ingest, GIVEN, number), resources_of(ingest).storage
    local = [value for label, value in anvl.read(files["system/mrt-mom.txt"]) if label == "localIdentifier"]
    with storage.open_manifest(storage.get_version(GIVEN, number)) as reader:
        about = dict(reader.header.about["about"])
    return dublin_core.read(files["system/mrt-dc.xml"]), anvl.read_erc(files["system/mrt-erc.txt"]), local, about


def first_version(ingest: IngestFixture) -> None:
    own = {
        "mrt-dc.xml": dublin_core.write({"publisher": ["Press"], "rights": ["all"], "subject": ["theirs"]}),
        "mrt-erc.txt": b"erc:\nwho: Ann\nwhat: From the file\n",
        "mrt-embargo.txt": b"embargoEndDate: 2031-01-01\n",
    }
    fields: dict[str, Any] = {
        "title": "Hunt",
        "local_ids": ("l1", "l2"),
        "dc": {"subject": "ours", "language": "en"},
        "datacite_type": "Image",
    }
    done(ingest, fetched(ingest, {"a.txt": b"1", **own}, primary_id=GIVEN, **fields))


def producer_of(ingest: IngestFixture, ark: str) -> set[str]:
    return {name.removeprefix("producer/") for name in files_of(ingest, ark) if name.startswith("producer/")}


def test_an_update_does_not_keep_what_speaks_of_the_deposit_before_alone(ingest: IngestFixture) -> None:
    listed = new_jobs.manifest(ManifestRow(0, "http://127.0.0.1/a.txt", "a.txt"))
    done(ingest, fetched(ingest, {"a.txt": b"1", "b.txt": b"2", "mrt-manifest.txt": listed}, primary_id=GIVEN))
    done(ingest, fetched(ingest, {"c.txt": b"3", "mrt-delete.txt": b"a.txt\n"}, primary_id=GIVEN, update=True))
    assert producer_of(ingest, GIVEN) == {"b.txt", "c.txt", "mrt-delete.txt"}, (
        "what came with the deposit is in its version"
    )
    done(ingest, fetched(ingest, {"d.txt": b"4"}, primary_id=GIVEN, update=True))
    assert producer_of(ingest, GIVEN) == {"b.txt", "c.txt", "d.txt"}
    done(ingest, fetched(ingest, {"mrt-delete.txt": b"b.txt\n"}, primary_id=GIVEN, update=True))
    done(ingest, fetched(ingest, {"mrt-delete.txt": b"c.txt\n"}, primary_id=GIVEN, update=True))
    assert producer_of(ingest, GIVEN) == {"d.txt", "mrt-delete.txt"}


def test_an_update_of_a_bag_does_not_keep_what_the_bag_lists_of_its_payload(ingest: IngestFixture) -> None:
    bag = {
        "a.txt": b"1",
        "b.txt": b"2",
        "mrt-bag/bagit.txt": b"x",
        "mrt-bag/manifest-md5.txt": b"y",
        "mrt-bag/meta/m.xml": b"z",
    }
    done(ingest, fetched(ingest, bag, primary_id=GIVEN))
    done(
        ingest,
        fetched(
            ingest, {"c.txt": b"3"}, primary_id=GIVEN, update=True, deletions=("b.txt", "mrt-bag/manifest-md5.txt")
        ),
    )
    assert producer_of(ingest, GIVEN) == {"a.txt", "c.txt"}
    other = {"d.txt": b"4", "mrt-bag/bagit.txt": b"x", "mrt-bag/manifest-sha256.txt": b"y"}
    done(ingest, fetched(ingest, other, primary_id=GIVEN, update=True))
    done(ingest, fetched(ingest, {**other, "d.txt": b"5"}, primary_id=GIVEN, update=True))
    assert producer_of(ingest, GIVEN) == {"a.txt", "c.txt", *other}, "a bag that is an update brings its own"


def test_a_folder_that_is_only_called_like_that_of_a_bag_is_kept(ingest: IngestFixture) -> None:
    done(ingest, fetched(ingest, {"mrt-bag/photo.tif": b"1"}, primary_id=GIVEN))
    done(ingest, fetched(ingest, {"a.txt": b"2"}, primary_id=GIVEN, update=True))
    assert producer_of(ingest, GIVEN) == {"a.txt", "mrt-bag/photo.tif"}


def test_an_update_keeps_the_description_that_it_does_not_replace(ingest: IngestFixture) -> None:
    first_version(ingest)
    done(ingest, fetched(ingest, {"b.txt": b"2"}, primary_id=GIVEN, update=True))
    assert read_description(ingest, 2) == read_description(ingest, 1)
    assert read_description(ingest, 2)[3]["embargo"] == "2031-01-01T00:00:00Z"
    more: dict[str, Any] = {"local_ids": ("l3",), "dc": {"subject": "new"}, "title": "Later", "datacite_type": "Text"}
    done(ingest, fetched(ingest, {"c.txt": b"3"}, primary_id=GIVEN, update=True, **more))
    dc, erc, local, about = read_description(ingest, 3)
    assert dc == {
        "title": ["Later"],
        "creator": ["Ann"],
        "subject": ["new"],
        "publisher": ["Press"],
        "type": ["Text"],
        "identifier": [GIVEN, "l1", "l2", "l3"],
        "language": ["en"],
        "rights": ["all"],
    }
    assert (erc.who, erc.what, erc.where) == ("Ann", "Later", (GIVEN, "l1", "l2", "l3"))
    assert local == about["local_ids"] == ["l1", "l2", "l3"]


def test_the_files_of_an_update_are_heard_before_those_that_it_keeps(ingest: IngestFixture) -> None:
    first_version(ingest)
    dc = dublin_core.write({"title": ["Newer"], "rights": ["none"]})
    update = {"mrt-dc.xml": dc, "mrt-embargo.txt": b"embargoEndDate: none\n", "mrt-delete.txt": b"a.txt\n"}
    done(ingest, fetched(ingest, update, primary_id=GIVEN, update=True))
    found, erc, _, about = read_description(ingest, 2)
    assert (found["title"], found["rights"], found["publisher"], erc.what) == (["Newer"], ["none"], ["Press"], "Newer")
    assert "embargo" not in about
    # the list of deletions in the object is not heard again
    done(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id=GIVEN, update=True))
    assert files_of(ingest, GIVEN)["producer/a.txt"] == b"1"


def test_an_embargo_ends_with_its_file_and_a_new_version_that_is_no_update_begins_anew(ingest: IngestFixture) -> None:
    first_version(ingest)
    done(ingest, fetched(ingest, {"b.txt": b"2"}, primary_id=GIVEN, update=True, deletions=("mrt-embargo.txt",)))
    assert "embargo" not in read_description(ingest, 2)[3]
    done(ingest, fetched(ingest, {"c.txt": b"3"}, primary_id=GIVEN))
    dc, _, local, about = read_description(ingest, 3)
    assert (dc, local, about["local_ids"]) == ({"identifier": [GIVEN]}, [], [])


def test_an_update_claims_no_local_id_that_it_does_not_name(ingest: IngestFixture) -> None:
    first_version(ingest)
    job = ingest.step_until(fetched(ingest, {"b.txt": b"2"}, primary_id=GIVEN, update=True).ref, "Recording")
    assert job.documents["identifiers"]["local_id"] == []
    assert not [key for key in job.locks if key.startswith("localid/")]


def test_a_kept_description_that_cannot_be_had_fails_and_says_what_to_do(ingest: IngestFixture) -> None:
    bad = FileToStore("producer/mrt-embargo.txt", 3, sha256(b"bad"), "waybill:ingest/payloads/x")
    ingest.start_inventory()
    ingest.environment.objects.put("ingest/payloads/x", b"bad")
    resources_of(ingest).storage.write(Deposit(object=GIVEN, request="other", files=[bad]))
    failure = expect_failure(ingest, fetched(ingest, {"b.txt": b"2"}, primary_id=GIVEN, update=True))
    assert "producer/mrt-embargo.txt cannot be read" in failure
    assert "send another one, or delete it" in failure
    done(ingest, fetched(ingest, {"mrt-embargo.txt": b"embargoEndDate: none\n"}, primary_id=GIVEN, update=True))


def test_deleting_what_is_not_there_fails_and_leaves_the_object_alone(ingest: IngestFixture) -> None:
    given = "ark:/99999/fk4given"
    done(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id=given))
    failure = expect_failure(ingest, fetched(ingest, {"mrt-delete.txt": b"zzz.txt\n"}, primary_id=given, update=True))
    assert "producer/zzz.txt" in failure
    assert failure.endswith("It cannot be resumed: submit it again.")
    assert len(resources_of(ingest).storage.list_versions(given)) == 1


def test_a_second_run_uses_the_ark_that_was_saved_and_makes_no_second_version(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = resources_of(ingest).storage
    write, calls = storage.write, []

    def lost(deposit: Any, **more: Any) -> StoredVersion:
        calls.append(deposit.object)
        answer = write(deposit, **more)
        if len(calls) == 1:
            raise ConnectionError("the answer was lost")
        return answer

    monkeypatch.setattr(storage, "write", lost)
    monkeypatch.setattr("waybill.machine.Backoff.compute_delay", lambda self, tries: 0.0)
    job = done(ingest, fetched(ingest, {"a.txt": b"1"}))
    assert calls == [ark_of(job)] * 2
    assert len(storage.list_versions(ark_of(job))) == 1
    with ingest.engine() as engine:
        assert engine.store.get("minter", "99999-fk4").documents["numbers"]["next"] == minter.BLOCK_SIZE


def test_a_drawn_ark_that_the_inventory_knows_is_skipped(ingest: IngestFixture) -> None:
    taken = noid.mint(0, "99999", "fk4")
    done(ingest, fetched(ingest, {"a.txt": b"1"}, primary_id=taken))
    assert ark_of(done(ingest, fetched(ingest, {"a.txt": b"1"}))) == noid.mint(1, "99999", "fk4")


def test_a_drawn_ark_that_only_storage_knows_is_skipped(ingest: IngestFixture) -> None:
    """A depositor chose it, and his object is not recorded yet: another's deposit must not become a version of it."""
    taken = noid.mint(0, "99999", "fk4")
    his = ingest.step_until(fetched(ingest, {"a.txt": b"1"}, primary_id=taken).ref, "Recording")
    with ingest.engine() as engine:
        engine.act(his.ref, "fail", confirmed=True)
    other = done(ingest, fetched(ingest, {"b.txt": b"2"}))
    assert (ark_of(other), other.documents["stored"]["version"]) == (noid.mint(1, "99999", "fk4"), 1)


def test_a_closed_shoulder_mints_no_more(ingest: IngestFixture) -> None:
    with ingest.engine() as engine:
        engine.submit(New("minter", id="99999-fk4", documents={"numbers": {"next": 0}}))
        engine.act(Ref("minter", "99999-fk4"), "close", confirmed=True)
    assert "No ARK can be minted on 99999-fk4" in expect_failure(ingest, fetched(ingest, {"a.txt": b"1"}))


def test_a_working_copy_that_is_not_what_was_fetched_fails_and_says_how_to_repair(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.machine.Backoff.compute_delay", lambda self, tries: 0.0)
    job = fetched(ingest, {"a.txt": b"one", "b.txt": b"two"})
    (folder_of(ingest, job) / "producer" / "b.txt").write_bytes(b"TWO")
    failure = expect_failure(ingest, job)
    assert "producer/b.txt" in failure
    assert "`restart`" in failure
    assert not list(ingest.environment.objects.list("ocfl/" + "0"))  # nothing was published
    assert [line for _, line in resources_of(ingest).storage.list_objects()] == []


def test_a_link_in_the_working_folder_is_not_followed(
    ingest: IngestFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.machine.Backoff.compute_delay", lambda self, tries: 0.0)
    (tmp_path / "secret").write_bytes(b"one")
    job = fetched(ingest, {"a.txt": b"one"}, keep=())
    folder = folder_of(ingest, job) / "producer"
    folder.mkdir(parents=True)
    (folder / "a.txt").symlink_to(tmp_path / "secret")
    assert "producer/a.txt" in expect_failure(ingest, job)


def test_files_that_another_service_fetched_are_taken_as_they_lie(ingest: IngestFixture) -> None:
    job = done(ingest, fetched(ingest, {"a.txt": b"one", "d/b.txt": b"two"}, more={"downloaded": None}))
    assert files_of(ingest, ark_of(job))["producer/d/b.txt"] == b"two"
    failure = expect_failure(ingest, fetched(ingest, {"a.txt": b"one"}, keep=(), more={"downloaded": None}))
    assert "`restart`" in failure


def test_a_description_that_cannot_be_read_fails_with_its_name_and_line(ingest: IngestFixture) -> None:
    assert "producer/mrt-erc.txt cannot be read: Line 2" in expect_failure(
        ingest, fetched(ingest, {"mrt-erc.txt": b"erc:\nnonsense\n"})
    )


def listing(*rows: str) -> bytes:
    head = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\n"
    return (head + "".join(f"http://x/{row}\n" for row in rows) + "#%eof\n").encode()


def test_the_depositors_own_list_is_held_against_what_came(ingest: IngestFixture) -> None:
    md5 = hashlib.md5(b"one").hexdigest()
    right = listing(f"a | md5 | {md5} | 3 |  | a.txt", f"b | sha-256 | {sha256(b'two')} |  |  | producer/b.txt")
    done(ingest, fetched(ingest, {"a.txt": b"one", "b.txt": b"two", "c.txt": b"3", "mrt-manifest.txt": right}))
    wrong = listing(
        f"a | md5 | {md5.replace(md5[0], 'f' if md5[0] != 'f' else 'e')} |  |  | a.txt",
        "b |  |  | 4 |  | b.txt",
        "z |  |  |  |  | z.txt",
    )
    failure = expect_failure(ingest, fetched(ingest, {"a.txt": b"one", "b.txt": b"two", "mrt-manifest.txt": wrong}))
    assert f"'producer/a.txt': its md5 is {md5}" in failure
    assert "'producer/b.txt': it has 3 bytes, and 4 are listed" in failure
    assert "'z.txt' did not come" in failure
    failure = expect_failure(ingest, fetched(ingest, {"mrt-manifest.txt": b"nonsense"}))
    assert "producer/mrt-manifest.txt cannot be read" in failure
    with ingest.engine() as engine:
        assert engine.store.get("minter", "99999-fk4").documents["numbers"]["next"] == minter.BLOCK_SIZE


# --- EZID


@pytest.fixture
def ezid(monkeypatch: pytest.MonkeyPatch) -> Iterator[EzidServer]:
    monkeypatch.setenv(minter.EZID_USER, "apitest")
    monkeypatch.setenv(minter.EZID_PASSWORD, "secret")
    monkeypatch.setattr("waybill.machine.Backoff.compute_delay", lambda self, tries: 0.0)
    with EzidServer() as server:
        yield server


def add_ezid(ingest: IngestFixture, ezid: EzidServer, *, is_named: bool = True) -> None:
    if is_named:
        settings = ingest.resources.settings
        minter_settings = replace(settings.minter, ezid_hosts=(urlsplit(ezid.url).netloc,))
        ingest.resources.settings = replace(settings, minter=minter_settings)
    minter = ProfileMinter(url=f"{ezid.url}/shoulder/ark:/99999/fk5", co_owner="friend")
    add_profile(ingest, Profile(name="e", owner=OWNER, minter=minter, context="ctx"))


def test_ezid_gets_an_ark_that_was_minted(ingest: IngestFixture, ezid: EzidServer) -> None:
    add_ezid(ingest, ezid)
    job = done(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e", title="Hunt: big"))
    ark = ark_of(job)
    assert ark.startswith("ark:/99999/fk5")
    assert list(ezid.known) == [ark]
    assert ezid.known[ark]["_target"] == f"http://waybill.test/m/{ark.replace(':', '%3A').replace('/', '%2F')}"
    assert "what: Hunt: big" in ezid.known[ark]["erc"]
    assert ezid.known[ark]["mrt.creator"] == "ctx"
    assert ezid.known[ark]["waybill.request"] == job.documents["configuration"]["jobID"]


def test_a_host_that_only_the_profile_names_gets_no_password(ingest: IngestFixture, ezid: EzidServer) -> None:
    add_ezid(ingest, ezid, is_named=False)
    job = run(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e"))
    assert job.state == "Failed"
    assert "app.ingest.minter.ezid_hosts" in job.message
    assert ezid.asked == []


@pytest.mark.parametrize("first", ["lose", "cut", "status 503 error: busy"])
def test_an_answer_of_ezid_that_is_lost_mints_nothing_twice(
    ingest: IngestFixture, ezid: EzidServer, first: str
) -> None:
    add_ezid(ingest, ezid)
    ezid.does = [first]
    job = done(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e"))
    assert list(ezid.known) == [ark_of(job)]


def test_a_job_that_is_begun_again_keeps_the_ark_that_ezid_knows(
    ingest: IngestFixture, ezid: EzidServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another deposit then, and still the same object: EZID was asked by the name of the deposit, and called
    the ARK another's.
    """
    add_ezid(ingest, ezid)
    with monkeypatch.context() as patch:
        patch.setattr(OcflStorage, "write", _no_room)
        job = fetched(ingest, {"a.txt": b"1"}, profile="e")
        assert "no room" in expect_failure(ingest, job)
    (ark,) = ezid.known
    with ingest.engine() as engine:
        before = engine.store.get(*job.ref)
        after = rules.enter_state(engine.machines["job"], before, "Processing")
        engine.store.commit(
            [CommitGroup((Change(before, after, "restart", documents={"restarts": encode_document({"count": 1})}),))]
        )
    assert ark_of(done(ingest, job)) == ark
    assert list(ezid.known) == [ark]


def _no_room(storage: OcflStorage, deposit: object, **more: object) -> None:
    raise InvalidDeposit("There is no room.")


def test_an_ark_that_belongs_to_another_in_ezid_is_left_to_him(ingest: IngestFixture, ezid: EzidServer) -> None:
    add_ezid(ingest, ezid)
    taken = noid.mint(0, "99999", "fk5")
    ezid.known[taken] = {"erc": "his"}
    job = done(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e"))
    assert ark_of(job) == noid.mint(1, "99999", "fk5")
    assert ezid.known[taken] == {"erc": "his"}
    assert b"where: " + ark_of(job).encode() in files_of(ingest, ark_of(job))["system/mrt-erc.txt"]


def test_ezid_gets_the_new_metadata_of_an_ark_that_was_given(ingest: IngestFixture, ezid: EzidServer) -> None:
    add_ezid(ingest, ezid)
    given, elsewhere = "ark:/99999/fk5given", "ark:/99999/other"
    ezid.known[given] = {"_target": "http://elsewhere"}
    done(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e", primary_id=given, retain_target=True, title="New"))
    assert "what: New" in ezid.known[given]["erc"]
    assert ezid.known[given]["_target"] == "http://elsewhere"
    done(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e", primary_id=elsewhere))
    assert elsewhere not in ezid.known


def test_ezid_without_a_password_fails_and_says_what_to_set(
    ingest: IngestFixture, ezid: EzidServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_ezid(ingest, ezid)
    monkeypatch.delenv(minter.EZID_PASSWORD)
    assert minter.EZID_PASSWORD in expect_failure(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e"))


def test_what_ezid_refuses_fails_with_its_words(ingest: IngestFixture, ezid: EzidServer) -> None:
    add_ezid(ingest, ezid)
    ezid.does = ["status 403 error: forbidden - not your shoulder"]
    assert "not your shoulder" in expect_failure(ingest, fetched(ingest, {"a.txt": b"1"}, profile="e"))
