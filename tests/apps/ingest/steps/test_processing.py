import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest import batches
from tests.apps.ingest.ezid_server import EzidServer
from tests.apps.ingest.routes.serving import serving
from tests.apps.ingest.site import Site
from tests.apps.ingest.steps import dock
from tests.apps.ingest.steps.yard import (
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
from waybill.apps.ingest import anvl, dublincore, minting, noid
from waybill.apps.ingest.anvl import Erc
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Minter, Profile
from waybill.apps.ingest.storage import Deposit, FileToStore, NotStorable, OcflStorage, Stored
from waybill.apps.ingest.submission import Type
from waybill.objects import Directory
from waybill.record import Change, Conflict, Group, Record, Ref, encode
from waybill.step import New

COLLECTION = "ark:/99999/fk4coll"
GIVEN = "ark:/99999/fk4given"
SYSTEM = {"mrt-ingest.txt", "mrt-owner.txt", "mrt-membership.txt", "mrt-mom.txt", "mrt-erc.txt", "mrt-dc.xml"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with stopping_at_notify(tmp_path, Profile(name="p", owner=OWNER, collections=(COLLECTION,))) as site:
        yield site


def outfit_of(site: Site) -> Outfit:
    found: Outfit = site.depot.outfit("job")
    return found


def done(site: Site, job: Record) -> Record:
    """The job, run until it is recorded."""
    ended = run(site, job)
    assert ended.state == "Notify", ended.message
    return ended


def failed(site: Site, job: Record) -> str:
    ended = run(site, job)
    assert ended.state == "Failed"
    return ended.message


def ark_of(job: Record) -> str:
    return str(job.docs["identifiers"]["primary_id"])


def test_an_object_gets_an_ark_and_is_stored_with_its_system_files(site: Site, tmp_path: Path) -> None:
    job = done(
        site,
        fetched(
            site, {"a.txt": b"hello", "b/c.txt": b""}, title="Hunt", creator="Ann", date="2009", local_ids=("l1", "l2")
        ),
    )
    ark = ark_of(job)
    assert noid.check(ark)
    assert ark.startswith("ark:/99999/fk4")
    files = files_of(site, ark_of(job))
    assert set(files) == {"producer/a.txt", "producer/b/c.txt", *(f"system/{name}" for name in SYSTEM)}
    assert files["producer/a.txt"] == b"hello"
    assert (
        files["system/mrt-erc.txt"].decode()
        == f"erc:\nwho: Ann\nwhat: Hunt\nwhen: 2009\nwhere: {ark}\nwhere: l1\nwhere: l2\n"
    )
    assert files["system/mrt-owner.txt"].decode() == f"{OWNER}\n"
    assert job.docs["metadata"] == {"erc_who": "Ann", "erc_what": "Hunt", "erc_when": "2009", "erc_where": ark}
    assert job.docs["inventory"] == {
        "manifest_url": f"http://waybill.test/api/v1/ingest/objects/{ark.replace(':', '%3A').replace('/', '%2F')}/versions/1/manifest",
        "mode": "add",
    }
    stored = Stored(**{name: value for name, value in job.docs["stored"].items() if name != "v"})
    assert (stored.object, stored.version, stored.request) == (ark, 1, job.docs["configuration"]["jobID"])
    found = outfit_of(site).inventory.object(ark)
    assert found is not None
    assert (found["title"], found["owner"], found["local_ids"], found["collections"]) == (
        "Hunt",
        OWNER,
        ["l1", "l2"],
        [COLLECTION],
    )
    assert isinstance(site.depot.objects, Directory)
    assert said_by_validator(site.depot.objects.root / "ocfl") == (1, [])


def test_where_storing_is_a_state_the_working_folder_holds_all_that_storage_must_know(tmp_path: Path) -> None:
    with Site(tmp_path, settings={"outside": ["Storing"], "storing": True}) as site:
        look_at_the_working_folder(site)


def look_at_the_working_folder(site: Site) -> None:
    row = {"line": 6, "url": "http://127.0.0.1/a.txt", "name": "a.txt", "algorithm": "md5", "digest": "0" * 32}
    job = fetched(site, {"a.txt": b"hello", "odd |name ": b"x"}, more={"files": {"count": 1, "rows": [row]}})
    system = folder_of(site, run(site, job, "Storing")) / "system"
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
    with Site(tmp_path, settings={"outside": ["Recording"], "storing": storing}) as site:
        add_profile(site, Profile(name="p", owner=OWNER))
        first = run(site, fetched(site, {"a.txt": b"1"}, local_ids=("l1",)), "Recording")
        second = run(site, fetched(site, {"b.txt": b"2"}, local_ids=("l1",)), "Recording")
        assert (ark_of(first), second.docs["stored"]["version"]) == (ark_of(second), 2)
        inventory = site.depot.outfit("job").inventory
        for job in (first, second):
            assert inventory.stored(ark_of(job), job.docs["stored"]["version"]).request == job.docs["stored"]["request"]


def test_on_a_shared_tree_whoever_records_it_reads_the_manifest_without_a_token(
    tmp_path: Path, zookeeper_url: str
) -> None:
    with Site(tmp_path, store=zookeeper_url, settings={"outside": ["Recording"]}) as site, serving(site) as front:
        job = led_to_recording(site)
        url = job.docs["inventory"]["manifest_url"]
        told = front.get(url, role=None)
        assert told.status_code == 200
        assert b"producer/a.txt" in told.content
        assert front.get(url.partition("?")[0], role=None).status_code == 401
        shown = front.get(f"/api/v1/records/job/{job.id}").text
        assert "signature=***" in shown
        assert url.rpartition("=")[2] not in shown


def test_where_the_settings_say_so_no_url_is_signed(tmp_path: Path, zookeeper_url: str) -> None:
    with Site(tmp_path, store=zookeeper_url, settings={"outside": ["Recording"], "storage": {"signed": 0}}) as site:
        assert led_to_recording(site).docs["inventory"]["manifest_url"].endswith("/manifest")


def led_to_recording(site: Site) -> Record:
    batches.profile(site)
    batch = batches.submit(site, url=site.web.put("a.txt", b"1"), type=Type.FILE, checked=True)
    site.lead(batch.ref, "Processing")
    site.step(batch.ref)
    (job,) = batches.jobs(site, batch)
    return site.lead(job.ref, "Recording")


def test_a_local_id_leads_to_its_object(site: Site) -> None:
    first = done(site, fetched(site, {"a.txt": b"1"}, local_ids=("l1",)))
    second = done(site, fetched(site, {"b.txt": b"2"}, local_ids=("l2", "l1")))
    assert ark_of(second) == ark_of(first)
    assert second.docs["stored"]["version"] == 2
    # added: it has the files of this deposit and no others
    assert "producer/a.txt" not in files_of(site, ark_of(second))
    stranger = done(site, fetched(site, {"b.txt": b"2"}, local_ids=("l1",), owner="ark:/99999/fk4other"))
    assert ark_of(stranger) != ark_of(first)


@pytest.mark.parametrize("state", ["Pending", "Downloading"])
def test_a_local_id_is_locked_as_its_owners_also_when_only_the_profile_names_him(site: Site, state: str) -> None:
    """Other services leave the owner to the profile.

    Two at once would each mint an ARK for the local id, and one fail for good.
    """
    ours = site.lead(fetched(site, {"a.txt": b"1"}, local_ids=("l1",), owner=OWNER).ref, "Recording")
    theirs = dock.submit(site, site.web.put("b.txt", b"2"), Type.FILE, local_ids=("l1",), owner="", filename="b.txt")
    if state == "Downloading":
        theirs = dock.resumed_after(
            site, "Provisioning", site.web.put("b.txt", b"2"), {}, local_ids=("l1",), owner="", filename="b.txt"
        )
    theirs = site.lead(theirs.ref, "Processing")
    assert theirs.keys == (f"localid/l1_{OWNER}",)
    with pytest.raises(Conflict, match="stopped by key localid/l1"):
        site.step(theirs.ref)
    done(site, ours)
    theirs = done(site, theirs)
    assert (ark_of(theirs), theirs.docs["stored"]["version"]) == (ark_of(site.get("job", ours.id)), 2)


def test_a_local_id_of_another_ark_fails_with_both_names(site: Site) -> None:
    first = done(site, fetched(site, {"a.txt": b"1"}, local_ids=("l1",)))
    said = failed(site, fetched(site, {"a.txt": b"1"}, local_ids=("l0", "l1"), primary_id="ark:/99999/fk4given"))
    assert ark_of(first) in said
    assert "ark:/99999/fk4given" in said
    assert "'l1'" in said


def test_local_ids_of_two_objects_fail_with_both_names(site: Site) -> None:
    one = done(site, fetched(site, {"a.txt": b"1"}, local_ids=("l1",)))
    two = done(site, fetched(site, {"a.txt": b"1"}, local_ids=("l2",)))
    said = failed(site, fetched(site, {"a.txt": b"1"}, local_ids=("l1", "l2")))
    assert ark_of(one) in said
    assert ark_of(two) in said


def test_a_supplied_ark_wins_and_gets_versions(site: Site) -> None:
    given = "ark:/99999/fk4given"
    first = done(site, fetched(site, {"a.txt": b"1"}, primary_id=given, local_ids=("l1",)))
    second = done(site, fetched(site, {"b.txt": b"2"}, primary_id=given))
    assert (ark_of(first), ark_of(second)) == (given, given)
    assert set(files_of(site, ark_of(second))) == {"producer/b.txt", *(f"system/{name}" for name in SYSTEM)}
    with site.engine() as engine:
        assert not list(engine.store.find("minter").records)  # nothing was drawn


def test_a_deposit_of_nobody_takes_no_object_from_its_owner(site: Site) -> None:
    given = "ark:/99999/fk4given"
    add_profile(site, Profile(name="nobody"))
    done(site, fetched(site, {"a.txt": b"1"}, primary_id=given))
    said = failed(site, fetched(site, {"b.txt": b"2"}, primary_id=given, profile="nobody", owner=""))
    assert f"{given} belongs to {OWNER}, and the deposit to nobody" in said
    assert len(outfit_of(site).storage.versions(given)) == 1
    done(site, fetched(site, {"c.txt": b"3"}, primary_id=given))  # the owner is not locked out
    of_nobody = "ark:/99999/fk4free"
    for _ in range(2):
        done(site, fetched(site, {"a.txt": b"1"}, primary_id=of_nobody, profile="nobody", owner=""))


def test_what_is_no_ark_is_refused(site: Site) -> None:
    assert "is not an ARK" in failed(site, fetched(site, {"a.txt": b"1"}, primary_id="ARK:/99999/X"))


def test_an_update_keeps_what_it_does_not_replace_and_deletes_what_is_listed(site: Site) -> None:
    given = "ark:/99999/fk4given"
    done(site, fetched(site, {"a.txt": b"1", "b.txt": b"2", "c.txt": b"3", "d/e.txt": b"4"}, primary_id=given))
    update = {"b.txt": b"new", "mrt-delete.txt": b"c.txt\n"}
    job = done(
        site, fetched(site, update, primary_id=given, update=True, deletions=("producer/d/e.txt",), title="Later")
    )
    files = {name: data for name, data in files_of(site, ark_of(job)).items() if name.startswith("producer/")}
    assert files == {"producer/a.txt": b"1", "producer/b.txt": b"new", "producer/mrt-delete.txt": b"c.txt\n"}
    assert b"what: Later" in files_of(site, ark_of(job))["system/mrt-erc.txt"]


def described(site: Site, number: int) -> tuple[dict[str, list[str]], Erc, list[str], dict[str, Any]]:
    """What the system files of a version say in Dublin Core, as a citation and of local ids; and what the inventory
    was told.
    """
    files, storage = files_of(site, GIVEN, number), outfit_of(site).storage
    local = [value for label, value in anvl.read(files["system/mrt-mom.txt"]) if label == "localIdentifier"]
    with storage.manifest(storage.stored(GIVEN, number)) as reader:
        about = dict(reader.header.about["about"])
    return dublincore.read(files["system/mrt-dc.xml"]), anvl.read_erc(files["system/mrt-erc.txt"]), local, about


def first_version(site: Site) -> None:
    own = {
        "mrt-dc.xml": dublincore.write({"publisher": ["Press"], "rights": ["all"], "subject": ["theirs"]}),
        "mrt-erc.txt": b"erc:\nwho: Ann\nwhat: From the file\n",
        "mrt-embargo.txt": b"embargoEndDate: 2031-01-01\n",
    }
    said = {
        "title": "Hunt",
        "local_ids": ("l1", "l2"),
        "dc": {"subject": "ours", "language": "en"},
        "datacite_type": "Image",
    }
    done(site, fetched(site, {"a.txt": b"1", **own}, primary_id=GIVEN, **said))


def producer_of(site: Site, ark: str) -> set[str]:
    return {name.removeprefix("producer/") for name in files_of(site, ark) if name.startswith("producer/")}


def test_an_update_does_not_keep_what_speaks_of_the_deposit_before_alone(site: Site) -> None:
    listed = dock.manifest(Row(0, "http://127.0.0.1/a.txt", "a.txt"))
    done(site, fetched(site, {"a.txt": b"1", "b.txt": b"2", "mrt-manifest.txt": listed}, primary_id=GIVEN))
    done(site, fetched(site, {"c.txt": b"3", "mrt-delete.txt": b"a.txt\n"}, primary_id=GIVEN, update=True))
    assert producer_of(site, GIVEN) == {"b.txt", "c.txt", "mrt-delete.txt"}, (
        "what came with the deposit is in its version"
    )
    done(site, fetched(site, {"d.txt": b"4"}, primary_id=GIVEN, update=True))
    assert producer_of(site, GIVEN) == {"b.txt", "c.txt", "d.txt"}
    done(site, fetched(site, {"mrt-delete.txt": b"b.txt\n"}, primary_id=GIVEN, update=True))
    done(site, fetched(site, {"mrt-delete.txt": b"c.txt\n"}, primary_id=GIVEN, update=True))
    assert producer_of(site, GIVEN) == {"d.txt", "mrt-delete.txt"}


def test_an_update_of_a_bag_does_not_keep_what_the_bag_said_of_its_payload(site: Site) -> None:
    bag = {
        "a.txt": b"1",
        "b.txt": b"2",
        "mrt-bag/bagit.txt": b"x",
        "mrt-bag/manifest-md5.txt": b"y",
        "mrt-bag/meta/m.xml": b"z",
    }
    done(site, fetched(site, bag, primary_id=GIVEN))
    done(
        site,
        fetched(site, {"c.txt": b"3"}, primary_id=GIVEN, update=True, deletions=("b.txt", "mrt-bag/manifest-md5.txt")),
    )
    assert producer_of(site, GIVEN) == {"a.txt", "c.txt"}
    other = {"d.txt": b"4", "mrt-bag/bagit.txt": b"x", "mrt-bag/manifest-sha256.txt": b"y"}
    done(site, fetched(site, other, primary_id=GIVEN, update=True))
    done(site, fetched(site, {**other, "d.txt": b"5"}, primary_id=GIVEN, update=True))
    assert producer_of(site, GIVEN) == {"a.txt", "c.txt", *other}, "a bag that is an update brings its own"


def test_a_folder_that_is_only_called_like_that_of_a_bag_is_kept(site: Site) -> None:
    done(site, fetched(site, {"mrt-bag/photo.tif": b"1"}, primary_id=GIVEN))
    done(site, fetched(site, {"a.txt": b"2"}, primary_id=GIVEN, update=True))
    assert producer_of(site, GIVEN) == {"a.txt", "mrt-bag/photo.tif"}


def test_an_update_keeps_the_description_that_it_does_not_replace(site: Site) -> None:
    first_version(site)
    done(site, fetched(site, {"b.txt": b"2"}, primary_id=GIVEN, update=True))
    assert described(site, 2) == described(site, 1)
    assert described(site, 2)[3]["embargo"] == "2031-01-01T00:00:00Z"
    more = {"local_ids": ("l3",), "dc": {"subject": "new"}, "title": "Later", "datacite_type": "Text"}
    done(site, fetched(site, {"c.txt": b"3"}, primary_id=GIVEN, update=True, **more))
    dc, erc, local, about = described(site, 3)
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


def test_the_files_of_an_update_are_heard_before_those_that_it_keeps(site: Site) -> None:
    first_version(site)
    dc = dublincore.write({"title": ["Newer"], "rights": ["none"]})
    update = {"mrt-dc.xml": dc, "mrt-embargo.txt": b"embargoEndDate: none\n", "mrt-delete.txt": b"a.txt\n"}
    done(site, fetched(site, update, primary_id=GIVEN, update=True))
    found, erc, _, about = described(site, 2)
    assert (found["title"], found["rights"], found["publisher"], erc.what) == (["Newer"], ["none"], ["Press"], "Newer")
    assert "embargo" not in about
    # the list of deletions in the object is not heard again
    done(site, fetched(site, {"a.txt": b"1"}, primary_id=GIVEN, update=True))
    assert files_of(site, GIVEN)["producer/a.txt"] == b"1"


def test_an_embargo_ends_with_its_file_and_a_new_version_that_is_no_update_begins_anew(site: Site) -> None:
    first_version(site)
    done(site, fetched(site, {"b.txt": b"2"}, primary_id=GIVEN, update=True, deletions=("mrt-embargo.txt",)))
    assert "embargo" not in described(site, 2)[3]
    done(site, fetched(site, {"c.txt": b"3"}, primary_id=GIVEN))
    dc, _, local, about = described(site, 3)
    assert (dc, local, about["local_ids"]) == ({"identifier": [GIVEN]}, [], [])


def test_an_update_claims_no_local_id_that_it_does_not_name(site: Site) -> None:
    first_version(site)
    job = site.lead(fetched(site, {"b.txt": b"2"}, primary_id=GIVEN, update=True).ref, "Recording")
    assert job.docs["identifiers"]["local_id"] == []
    assert not [key for key in job.keys if key.startswith("localid/")]


def test_a_kept_description_that_cannot_be_had_fails_and_says_what_to_do(site: Site) -> None:
    bad = FileToStore("producer/mrt-embargo.txt", 3, sha256(b"bad"), "waybill:ingest/payloads/x")
    site.depot.objects.put("ingest/payloads/x", b"bad")
    outfit_of(site).storage.write(Deposit(object=GIVEN, request="other", files=[bad]))
    said = failed(site, fetched(site, {"b.txt": b"2"}, primary_id=GIVEN, update=True))
    assert "producer/mrt-embargo.txt cannot be read" in said
    assert "send another one, or delete it" in said
    done(site, fetched(site, {"mrt-embargo.txt": b"embargoEndDate: none\n"}, primary_id=GIVEN, update=True))


def test_deleting_what_is_not_there_fails_and_leaves_the_object_alone(site: Site) -> None:
    given = "ark:/99999/fk4given"
    done(site, fetched(site, {"a.txt": b"1"}, primary_id=given))
    said = failed(site, fetched(site, {"mrt-delete.txt": b"zzz.txt\n"}, primary_id=given, update=True))
    assert "producer/zzz.txt" in said
    assert said.endswith("It cannot be resumed: submit it again.")
    assert len(outfit_of(site).storage.versions(given)) == 1


def test_a_second_run_uses_the_ark_that_was_saved_and_makes_no_second_version(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = outfit_of(site).storage
    write, calls = storage.write, []

    def lost(deposit: Any, **more: Any) -> Stored:
        calls.append(deposit.object)
        answer = write(deposit, **more)
        if len(calls) == 1:
            raise ConnectionError("the answer was lost")
        return answer

    monkeypatch.setattr(storage, "write", lost)
    monkeypatch.setattr("waybill.machine.Backoff.delay", lambda self, tries: 0.0)
    job = done(site, fetched(site, {"a.txt": b"1"}))
    assert calls == [ark_of(job)] * 2
    assert len(storage.versions(ark_of(job))) == 1
    with site.engine() as engine:
        assert engine.store.get("minter", "99999-fk4").docs["numbers"]["next"] == minting.BLOCK


def test_a_drawn_ark_that_the_inventory_knows_is_skipped(site: Site) -> None:
    taken = noid.mint(0, "99999", "fk4")
    done(site, fetched(site, {"a.txt": b"1"}, primary_id=taken))
    assert ark_of(done(site, fetched(site, {"a.txt": b"1"}))) == noid.mint(1, "99999", "fk4")


def test_a_drawn_ark_that_only_storage_knows_is_skipped(site: Site) -> None:
    """A depositor chose it, and his object is not recorded yet: another's deposit must not become a version of it."""
    taken = noid.mint(0, "99999", "fk4")
    his = site.lead(fetched(site, {"a.txt": b"1"}, primary_id=taken).ref, "Recording")
    with site.engine() as engine:
        engine.act(his.ref, "fail", confirmed=True)
    other = done(site, fetched(site, {"b.txt": b"2"}))
    assert (ark_of(other), other.docs["stored"]["version"]) == (noid.mint(1, "99999", "fk4"), 1)


def test_a_closed_shoulder_mints_no_more(site: Site) -> None:
    with site.engine() as engine:
        engine.submit(New("minter", id="99999-fk4", docs={"numbers": {"next": 0}}))
        engine.act(Ref("minter", "99999-fk4"), "close", confirmed=True)
    assert "No ARK can be minted on 99999-fk4" in failed(site, fetched(site, {"a.txt": b"1"}))


def test_a_working_copy_that_is_not_what_was_fetched_fails_and_says_how_to_mend(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.machine.Backoff.delay", lambda self, tries: 0.0)
    job = fetched(site, {"a.txt": b"one", "b.txt": b"two"})
    (folder_of(site, job) / "producer" / "b.txt").write_bytes(b"TWO")
    said = failed(site, job)
    assert "producer/b.txt" in said
    assert "`restart`" in said
    assert not list(site.depot.objects.list("ocfl/" + "0"))  # nothing was published
    assert [line for _, line in outfit_of(site).storage.objects()] == []


def test_a_link_in_the_working_folder_is_not_followed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.machine.Backoff.delay", lambda self, tries: 0.0)
    (tmp_path / "secret").write_bytes(b"one")
    job = fetched(site, {"a.txt": b"one"}, keep=())
    folder = folder_of(site, job) / "producer"
    folder.mkdir(parents=True)
    (folder / "a.txt").symlink_to(tmp_path / "secret")
    assert "producer/a.txt" in failed(site, job)


def test_files_that_another_service_fetched_are_taken_as_they_lie(site: Site) -> None:
    job = done(site, fetched(site, {"a.txt": b"one", "d/b.txt": b"two"}, more={"downloaded": None}))
    assert files_of(site, ark_of(job))["producer/d/b.txt"] == b"two"
    said = failed(site, fetched(site, {"a.txt": b"one"}, keep=(), more={"downloaded": None}))
    assert "`restart`" in said


def test_a_description_that_cannot_be_read_fails_with_its_name_and_line(site: Site) -> None:
    assert "producer/mrt-erc.txt cannot be read: Line 2" in failed(
        site, fetched(site, {"mrt-erc.txt": b"erc:\nnonsense\n"})
    )


def listing(*rows: str) -> bytes:
    head = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\n"
    return (head + "".join(f"http://x/{row}\n" for row in rows) + "#%eof\n").encode()


def test_the_depositors_own_list_is_held_against_what_came(site: Site) -> None:
    md5 = hashlib.md5(b"one").hexdigest()
    right = listing(f"a | md5 | {md5} | 3 |  | a.txt", f"b | sha-256 | {sha256(b'two')} |  |  | producer/b.txt")
    done(site, fetched(site, {"a.txt": b"one", "b.txt": b"two", "c.txt": b"3", "mrt-manifest.txt": right}))
    wrong = listing(
        f"a | md5 | {md5.replace(md5[0], 'f' if md5[0] != 'f' else 'e')} |  |  | a.txt",
        "b |  |  | 4 |  | b.txt",
        "z |  |  |  |  | z.txt",
    )
    said = failed(site, fetched(site, {"a.txt": b"one", "b.txt": b"two", "mrt-manifest.txt": wrong}))
    assert f"'producer/a.txt': its md5 is {md5}" in said
    assert "'producer/b.txt': it has 3 bytes, and 4 are listed" in said
    assert "'z.txt' did not come" in said
    said = failed(site, fetched(site, {"mrt-manifest.txt": b"nonsense"}))
    assert "producer/mrt-manifest.txt cannot be read" in said
    with site.engine() as engine:
        assert engine.store.get("minter", "99999-fk4").docs["numbers"]["next"] == minting.BLOCK


# --- EZID


@pytest.fixture
def ezid(monkeypatch: pytest.MonkeyPatch) -> Iterator[EzidServer]:
    monkeypatch.setenv(minting.USER, "apitest")
    monkeypatch.setenv(minting.PASSWORD, "secret")
    monkeypatch.setattr("waybill.machine.Backoff.delay", lambda self, tries: 0.0)
    with EzidServer() as server:
        yield server


def add_ezid(site: Site, ezid: EzidServer) -> None:
    minter = Minter(url=f"{ezid.url}/shoulder/ark:/99999/fk5", co_owner="friend")
    add_profile(site, Profile(name="e", owner=OWNER, minter=minter, context="ctx"))


def test_ezid_is_told_of_an_ark_that_was_minted(site: Site, ezid: EzidServer) -> None:
    add_ezid(site, ezid)
    job = done(site, fetched(site, {"a.txt": b"1"}, profile="e", title="Hunt: big"))
    ark = ark_of(job)
    assert ark.startswith("ark:/99999/fk5")
    assert list(ezid.known) == [ark]
    assert ezid.known[ark]["_target"] == f"http://waybill.test/m/{ark.replace(':', '%3A').replace('/', '%2F')}"
    assert "what: Hunt: big" in ezid.known[ark]["erc"]
    assert ezid.known[ark]["mrt.creator"] == "ctx"
    assert ezid.known[ark]["waybill.request"] == job.docs["configuration"]["jobID"]


@pytest.mark.parametrize("first", ["lose", "cut", "status 503 error: busy"])
def test_an_answer_of_ezid_that_is_lost_mints_nothing_twice(site: Site, ezid: EzidServer, first: str) -> None:
    add_ezid(site, ezid)
    ezid.does = [first]
    job = done(site, fetched(site, {"a.txt": b"1"}, profile="e"))
    assert list(ezid.known) == [ark_of(job)]


def test_a_job_that_is_begun_again_keeps_the_ark_that_ezid_knows(
    site: Site, ezid: EzidServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another deposit then, and still the same object: EZID was asked by the name of the deposit, and called
    the ARK another's.
    """
    add_ezid(site, ezid)
    with monkeypatch.context() as patch:
        patch.setattr(OcflStorage, "write", _no_room)
        job = fetched(site, {"a.txt": b"1"}, profile="e")
        assert "no room" in failed(site, job)
    (ark,) = ezid.known
    with site.engine() as engine:
        before = engine.store.get(*job.ref)
        after = rules.enter(engine.machines["job"], before, "Processing")
        engine.store.commit([Group((Change(before, after, "restart", docs={"restarted": encode({"count": 1})}),))])
    assert ark_of(done(site, job)) == ark
    assert list(ezid.known) == [ark]


def _no_room(storage: OcflStorage, deposit: object, **more: object) -> None:
    raise NotStorable("There is no room.")


def test_an_ark_that_belongs_to_another_in_ezid_is_left_to_him(site: Site, ezid: EzidServer) -> None:
    add_ezid(site, ezid)
    taken = noid.mint(0, "99999", "fk5")
    ezid.known[taken] = {"erc": "his"}
    job = done(site, fetched(site, {"a.txt": b"1"}, profile="e"))
    assert ark_of(job) == noid.mint(1, "99999", "fk5")
    assert ezid.known[taken] == {"erc": "his"}
    assert b"where: " + ark_of(job).encode() in files_of(site, ark_of(job))["system/mrt-erc.txt"]


def test_ezid_is_told_anew_of_an_ark_that_was_given(site: Site, ezid: EzidServer) -> None:
    add_ezid(site, ezid)
    given, elsewhere = "ark:/99999/fk5given", "ark:/99999/other"
    ezid.known[given] = {"_target": "http://elsewhere"}
    done(site, fetched(site, {"a.txt": b"1"}, profile="e", primary_id=given, retain_target=True, title="New"))
    assert "what: New" in ezid.known[given]["erc"]
    assert ezid.known[given]["_target"] == "http://elsewhere"
    done(site, fetched(site, {"a.txt": b"1"}, profile="e", primary_id=elsewhere))
    assert elsewhere not in ezid.known


def test_ezid_without_a_password_fails_and_says_what_to_set(
    site: Site, ezid: EzidServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_ezid(site, ezid)
    monkeypatch.delenv(minting.PASSWORD)
    assert minting.PASSWORD in failed(site, fetched(site, {"a.txt": b"1"}, profile="e"))


def test_what_ezid_refuses_fails_with_its_words(site: Site, ezid: EzidServer) -> None:
    add_ezid(site, ezid)
    ezid.does = ["status 403 error: forbidden - not your shoulder"]
    assert "not your shoulder" in failed(site, fetched(site, {"a.txt": b"1"}, profile="e"))
