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

from tests.apps.ingest.access.holdings import ARK, Holdings
from tests.apps.ingest.site import Site
from waybill.apps.ingest.access import Asked, Wanted, ask, tokens
from waybill.apps.ingest.storage import MANIFEST
from waybill.objects import measure
from waybill.record import NotFound, Record
from waybill.rules import Refused
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
def site(tmp_path: Path, store: str) -> Iterator[Site]:
    with Site(tmp_path, store=store) as made:
        yield made


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Site]:
    """On the embedded default, with a limit for small assemblies."""
    with Site(tmp_path, settings={"access": {"small": 1000, "keep": 1000.0}}) as made:
        yield made


def asked_for(site: Site, owner: str = "jo", **wanted: Any) -> Asked:
    with site.engine() as engine:
        return ask(engine, site.depot.outfit("job"), Wanted(**{"object": ARK, **wanted}), owner=owner)


def packed(site: Site, **wanted: Any) -> tuple[Record, dict[str, bytes]]:
    """Asked for, packed by a worker, and unpacked."""
    asked = asked_for(site, **wanted)
    with site.workers():
        record = site.wait(asked.record.kind, asked.record.id, "Completed", "Failed")
    assert record.state == "Completed", record.message
    return record, unpacked(site, record)


def unpacked(site: Site, record: Record) -> dict[str, bytes]:
    told = record.docs["packed"]
    assert measure(site.depot.objects, told["name"]) == (told["size"], told["sha256"])
    with site.depot.objects.get(told["name"]) as body:
        data = body.read()
    if told["name"].endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


def test_an_object_is_asked_for_packed_and_told_in_merritts_words(site: Site) -> None:
    holdings = Holdings(site)
    stored = holdings.add(FILES)
    before = asked_for(site)
    assert before.fresh
    told = before.record.docs["token"]
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
    with site.workers():
        record = site.wait("access-small", before.record.id, "Completed")
    assert record.docs["token"] == {
        **told,
        "status": "Completed",
        "anticipated-availability-time": record.docs["token"]["anticipated-availability-time"],
    }
    files = unpacked(site, record)
    manifest = files.pop(f"{TOP}/{MANIFEST}")
    assert hashlib.sha256(manifest).hexdigest() == stored.sha256
    assert files == {f"{TOP}/{path}": data for path, data in FILES.items()}
    assert record.docs["packed"]["files"] == len(FILES) + 1


@pytest.mark.parametrize("form", ["zip", "zip-stored", "tar", "tar.gz"])
def test_every_form_holds_the_same(plain: Site, form: str) -> None:
    Holdings(plain).add(FILES)
    record, files = packed(plain, form=form, content="producer")
    assert files == {f"{TOP}/{path}": data for path, data in FILES.items() if path.startswith("producer/")}
    assert record.docs["packed"]["name"].endswith(f"{TOP}_v1{'.zip' if form.startswith('zip') else '.' + form}")


def test_a_version_all_versions_or_some_files(plain: Site) -> None:
    holdings = Holdings(plain)
    holdings.add({"producer/a.txt": b"one", "producer/b.txt": b"b"})
    holdings.add({"producer/a.txt": b"two"}, mode="update")
    assert packed(plain, version=1, content="producer")[1] == {
        f"{TOP}/producer/a.txt": b"one",
        f"{TOP}/producer/b.txt": b"b",
    }
    assert packed(plain, content="producer")[1] == {f"{TOP}/producer/a.txt": b"two", f"{TOP}/producer/b.txt": b"b"}
    everything = packed(plain, version=0)[1]
    assert everything[f"{TOP}/v1/producer/a.txt"] == b"one"
    assert everything[f"{TOP}/v2/producer/a.txt"] == b"two"
    assert len(everything) == 6
    assert packed(plain, version=1, files=("producer/b.txt",))[1] == {f"{TOP}/producer/b.txt": b"b"}


def test_a_thousand_names_of_files_are_kept_beside_the_order(plain: Site) -> None:
    files = {f"producer/{'n' * 50}{number}.txt": b"x" for number in range(300)}
    Holdings(plain).add(files)
    record, found = packed(plain, files=tuple(files))
    assert "list" in record.docs["order"]["files"]
    assert set(found) == {f"{TOP}/{path}" for path in files}


def test_small_and_large_by_the_size_of_the_content(plain: Site) -> None:
    holdings = Holdings(plain)
    holdings.add({"producer/a.txt": b"x" * 100})
    holdings.add({"producer/a.txt": b"x" * 5000}, "ark:/99999/fk4large")
    assert asked_for(plain, files=("producer/a.txt",)).record.kind == "access-small"
    assert asked_for(plain, object="ark:/99999/fk4large", files=("producer/a.txt",)).record.kind == "access-large"


def test_the_anticipated_time_counts_what_waits_before(tmp_path: Path) -> None:
    with Site(tmp_path, settings={"access": {"pace": 10}}) as site:
        Holdings(site).add({"producer/a.txt": b"x" * 1000})
        with site.engine() as engine:
            before = engine.store.now()
            first, second = (asked_for(site, owner=owner, files=("producer/a.txt",)).record for owner in ("jo", "al"))
            after = engine.store.now()
        times = [site.get(r.kind, r.id).docs["token"]["anticipated-availability-time"] for r in (first, second)]
        assert times[0] <= tokens.rfc3339(after + 102)
        assert times[1] >= tokens.rfc3339(before + 198)


def test_asked_twice_answers_the_same_token_to_the_same_person(site: Site) -> None:
    Holdings(site).add(FILES)
    first, again = asked_for(site), asked_for(site)
    assert not again.fresh
    assert again.record.ref == first.record.ref
    assert again.record.docs["token"]["token"] == first.record.docs["token"]["token"]
    for other in (asked_for(site, owner="al"), asked_for(site, form="tar"), asked_for(site, files=("producer/a.txt",))):
        assert other.fresh
        assert other.record.docs["token"]["token"] != first.record.docs["token"]["token"]


def test_an_assembly_that_is_over_is_not_handed_out_again(plain: Site) -> None:
    Holdings(plain).add(FILES)
    first, _ = packed(plain)
    assert asked_for(plain).record.ref == first.ref
    with plain.engine() as engine:
        engine.act(first.ref, "delete")
    second = asked_for(plain)
    assert second.fresh
    assert asked_for(plain).record.ref == second.record.ref


def test_what_is_not_there_cannot_be_asked_for(plain: Site) -> None:
    holdings = Holdings(plain)
    with pytest.raises(NotFound, match="no object"):
        asked_for(plain)
    holdings.add({"producer/a.txt": b"x"}, record=False)
    with pytest.raises(NotFound, match="no object"):  # it is in storage, and not recorded yet
        asked_for(plain)
    holdings.add({"producer/a.txt": b"y"})
    with pytest.raises(NotFound, match="no version 7"):
        asked_for(plain, version=7)
    with pytest.raises(NotFound, match="no file"):
        asked_for(plain, files=("producer/z.txt",))
    with pytest.raises(Refused, match="twice"):
        asked_for(plain, files=("producer/a.txt", "producer/a.txt"))
    with pytest.raises(Refused, match="one version"):
        asked_for(plain, version=0, files=("producer/a.txt",))
    with pytest.raises(Refused, match="At most 1000"):
        asked_for(plain, files=tuple(map(str, range(1001))))


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
@pytest.mark.parametrize("path", ["producer/a.txt", "producer/b.bin", MANIFEST])
def test_a_damaged_file_fails_the_assembly_and_is_named(plain: Site, form: str, path: str) -> None:
    holdings = Holdings(plain)
    holdings.add(FILES)
    holdings.flip(ARK, path)
    asked = asked_for(plain, form=form)
    with plain.workers():
        record = plain.wait(asked.record.kind, asked.record.id, "Failed")
    assert path in record.message
    assert "damaged" in record.message
    assert record.docs["token"]["status"] == "Failed"
    assert "packed" not in record.docs
    left = [info.name for info in plain.depot.objects.list(tokens.ROOT)]
    assert [name.rpartition("/")[2] for name in left] == ["record.json"]


def test_failed_can_be_requeued_and_is_packed_when_it_is_mended(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)
    holdings.flip(ARK, "producer/a.txt")
    asked = asked_for(site)
    with site.workers():
        site.wait(asked.record.kind, asked.record.id, "Failed")
        holdings.flip(ARK, "producer/a.txt")  # and back
        with site.engine() as engine:
            assert engine.act(asked.record.ref, "requeue").record.state == "Pending"
        record = site.wait(asked.record.kind, asked.record.id, "Completed")
    assert unpacked(site, record)[f"{TOP}/producer/a.txt"] == b"hello"
    assert record.docs["token"]["token"] == asked.record.docs["token"]["token"]


def test_a_paused_queue_packs_nothing(plain: Site) -> None:
    Holdings(plain).add(FILES)
    with plain.engine() as engine:
        engine.hold("queue/accessLarge")
    asked = asked_for(plain)
    assert asked.record.kind == "access-large"
    other = asked_for(plain, files=("producer/a.txt",))
    with plain.workers():
        plain.wait("access-small", other.record.id, "Completed")
        assert plain.get("access-large", asked.record.id).state == "Pending"
        with plain.engine() as engine:
            engine.release("queue/accessLarge")
        plain.wait("access-large", asked.record.id, "Completed")


def test_assemblies_of_other_services_are_left_as_they_are(site: Site) -> None:
    token = {
        "token": "0b1c",
        "delivery-node": 7777,
        "cloud-content-byte": 17,
        "status": "",
        "url": "http://x",
        "anticipated-availability-time": "",
    }
    with site.engine() as engine:
        theirs = [
            engine.submit(New("access-small", {"token": token}, state=state))
            for state in ("Pending", "Processing", "Completed", "Deleted")
        ]
    holdings = Holdings(site)
    holdings.add(FILES)
    with site.workers():
        ours = asked_for(site)
        site.wait("access-small", ours.record.id, "Completed")  # behind theirs: so they were looked at
        for record in theirs:
            found = site.wait("access-small", record.id, record.state)
            assert (found.state, found.docs["token"], found.message, found.tries) == (record.state, token, "", 0)


def test_a_late_attempt_cannot_replace_what_was_packed(plain: Site) -> None:
    Holdings(plain).add(FILES)
    record, _ = packed(plain)
    name = record.docs["packed"]["name"]
    assert name.split("/")[-2].isdigit()
    assert name.startswith(tokens.place_of(tokens.token_of(record)))


def test_tokens_are_found_by_nobody_else(plain: Site) -> None:
    Holdings(plain).add(FILES)
    record = asked_for(plain).record
    token = tokens.token_of(record)
    with plain.engine() as engine:
        found = tokens.find(engine.store, plain.depot.objects, token)
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
            assert tokens.find(engine.store, plain.depot.objects, wrong) is None
        plain.depot.objects.put(
            f"{tokens.place_of('A' * 43)}/record.json", msgspec.json.encode({"kind": record.kind, "id": record.id})
        )
        assert tokens.find(engine.store, plain.depot.objects, "A" * 43) is None  # a pointer alone opens nothing
    assert all(token not in info.name for info in plain.depot.objects.list(tokens.ROOT))


def test_the_token_is_shown_by_no_view_of_the_record(plain: Site) -> None:
    from waybill import views

    Holdings(plain).add(FILES)
    record = asked_for(plain).record
    with plain.engine() as engine:
        shown = msgspec.json.encode(
            views.record(engine.store.get(*record.ref), plain.depot.machines, docs=True, store=engine.store)
        )
        lines = engine.store.history(*record.ref)
    assert tokens.token_of(record).encode() not in shown
    assert tokens.token_of(record) not in str(lines)


def test_the_order_settles_what_newest_means(plain: Site) -> None:
    holdings = Holdings(plain)
    holdings.add({"producer/a.txt": b"one"})
    asked = asked_for(plain, content="producer")
    holdings.add({"producer/a.txt": b"two"})
    with plain.workers():
        record = plain.wait(asked.record.kind, asked.record.id, "Completed")
    assert unpacked(plain, record) == {f"{TOP}/producer/a.txt": b"one"}
    assert asked_for(plain, content="producer").fresh


def test_the_settings_can_be_as_small_as_one_byte(tmp_path: Path) -> None:
    with Site(tmp_path, settings={"access": {"small": 1}}) as site:
        Holdings(site).add({"producer/empty": b""})
        assert asked_for(site, files=("producer/empty",)).record.kind == "access-small"


def test_a_file_that_is_gone_fails_the_assembly_at_once_and_is_named(plain: Site) -> None:
    """Its manifest too, whose size is asked for before anything is read: it was taken for trouble of the storage,
    and told by its place.
    """
    holdings = Holdings(plain)
    stored = holdings.add(FILES)
    with holdings.storage.read(ARK, stored.place) as body:
        plain.depot.objects.delete(body.info.name)
    asked = asked_for(plain)
    with plain.workers():
        record = plain.wait(asked.record.kind, asked.record.id, "Failed")
    assert record.message == f"{MANIFEST} of version 1 of {ARK} is missing in storage."
