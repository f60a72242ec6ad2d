"""The audit notices a flipped byte, says where, tells the admins once, and begins each round where the last one
ended.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.holdings import ARK, Holdings
from tests.apps.ingest.site import Site
from waybill.apps.ingest.duties import Audit
from waybill.apps.ingest.duties.audit import audit_some, known_damage
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.storage import OcflStorage
from waybill.duties import Hand, a_round
from waybill.objects import Directory, Unavailable
from waybill.record import Record

OTHER = "ark:/99999/fk4other"
FILES = {"producer/a.txt": b"hello", "producer/b.txt": b"world"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, settings={"tell": {"admins": ["ops@example.org"]}, "audit": {"portion": 4}}) as made:
        yield made


@contextmanager
def hand_of(site: Site, memory: dict[str, Any] | None = None) -> Iterator[Hand]:
    depot = site.depot
    with site.engine() as engine:
        yield Hand(
            engine.store,
            depot.machines,
            depot.host,
            site.root,
            depot.objects,
            depot.open_store,
            {},
            memory if memory is not None else {},
            outfit=depot.outfit,
        )


def letters(site: Site) -> list[Record]:
    with site.engine() as engine:
        return engine.store.find("letter", docs=True).records


def test_sound_content_is_read_once_until_it_is_due_again(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)
    with site.engine() as engine:
        done = audit_some(holdings.outfit, engine)
        assert (done.files, done.bytes > 10, done.damaged) == (3, True, ())
        assert audit_some(holdings.outfit, engine).files == 0
        assert audit_some(holdings.outfit, engine, before=engine.store.now() + 10).files == 3
    assert letters(site) == []


def test_a_flipped_byte_is_noticed_and_told_with_its_place(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)
    holdings.add({"producer/x": b"x"}, OTHER)
    place = holdings.flip(ARK, "producer/b.txt")
    memory: dict[str, Any] = {}
    with hand_of(site, memory) as hand:
        first = list(Audit().check(hand))
        second = list(Audit().check(hand))
    for found in (first, second):  # it stays known, and is read again only when it is due
        assert [finding.where for finding in found] == [f"{ARK} {place}"]
        assert "v1 producer/b.txt" in found[0].problem
        assert not found[0].mendable
    assert memory == {"files": 5, "bytes": memory["bytes"], "damaged": 1}
    (letter,) = letters(site)
    told = letter.docs["letter"]
    assert told["to"] == ["ops@example.org"]
    assert ARK in told["subject"]
    for word in (ARK, place, "v1 producer/b.txt"):
        assert word in told["text"]
    assert OTHER not in told["text"]


def test_missing_content_is_damage_and_restored_content_is_not(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)
    row = holdings.outfit.inventory.file(ARK, 1, "producer/a.txt")
    assert row is not None
    with holdings.storage.read(ARK, row["place"]) as body:
        name, data = body.info.name, body.read()
    site.depot.objects.delete(name)
    with site.engine() as engine:
        (damage,) = audit_some(holdings.outfit, engine).damaged
        assert "missing" in damage.words
        assert [each.place for each in known_damage(holdings.outfit)] == [row["place"]]
        site.depot.objects.put(name, data)
        assert audit_some(holdings.outfit, engine, before=engine.store.now() + 10).damaged == ()
    assert list(known_damage(holdings.outfit)) == []


def test_rounds_are_bounded_and_go_on_where_the_last_one_ended(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add({f"producer/{number}": bytes([number]) for number in range(8)})
    memory: dict[str, Any] = {}
    seen = []
    for _ in range(4):
        with hand_of(site, memory) as hand:
            a_round(Audit(), hand)
        seen.append(memory["files"])
    assert seen == [4, 8, 9, 9]


def test_a_crash_between_telling_and_noting_tells_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)
    holdings.flip(ARK, "producer/a.txt")
    audited = Inventory.audited

    def dies(self: Inventory, row: Any, finding: Any, when: Any) -> None:
        if finding is not None:
            raise KeyboardInterrupt
        audited(self, row, finding, when)

    with site.engine() as engine:
        with monkeypatch.context() as patched:
            patched.setattr(Inventory, "audited", dies)
            with pytest.raises(KeyboardInterrupt):
                audit_some(holdings.outfit, engine)
        assert len(letters(site)) == 1
        assert len(audit_some(holdings.outfit, engine).damaged) == 1
    assert len(letters(site)) == 1
    assert len(list(known_damage(holdings.outfit))) == 1


def test_one_file_that_cannot_be_read_does_not_stop_the_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)
    row = holdings.outfit.inventory.file(ARK, 1, "producer/a.txt")
    assert row is not None
    check = OcflStorage.check

    def fails(self: OcflStorage, object_id: str, place: str, size: int, sha256: str) -> Any:
        if place == row["place"]:
            raise Unavailable("Could not read: Input/output error.")
        return check(self, object_id, place, size, sha256)

    monkeypatch.setattr(OcflStorage, "check", fails)
    with site.engine() as engine:
        done = audit_some(holdings.outfit, engine)
    assert done.files == 3
    assert [each.files for each in done.damaged] == [("v1 producer/a.txt",)]
    assert "Input/output error" in done.damaged[0].words


def test_a_storage_that_is_away_is_no_damage(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)

    def away(*args: Any, **options: Any) -> Any:
        raise Unavailable("The directory is not mounted.")

    with site.engine() as engine, monkeypatch.context() as patched:
        patched.setattr(OcflStorage, "check", away)
        patched.setattr(Directory, "list", away)
        with pytest.raises(Unavailable):
            audit_some(holdings.outfit, engine)
    assert letters(site) == []
    assert list(known_damage(holdings.outfit)) == []


def test_any_worker_does_it_as_a_duty(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add(FILES)
    holdings.flip(ARK, "producer/a.txt")
    with site.workers(duties=True), site.engine() as engine:
        while not engine.store.get("duty", "ingest-audit").docs.get("memory", {}).get("kept", {}).get("files"):
            engine.store.watch(0.2)
    assert [each.files for each in known_damage(holdings.outfit)] == [("v1 producer/a.txt",)]
    assert len(letters(site)) == 1
