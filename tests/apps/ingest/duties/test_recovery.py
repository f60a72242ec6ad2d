"""What interrupted writes left is removed when it is old, some objects at a time, and nothing else is touched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.holdings import ARK, Holdings
from tests.apps.ingest.duties.test_audit import hand_of
from tests.apps.ingest.site import Site
from tests.apps.ingest.storage.yard import said_by_validator, sha256
from waybill.apps.ingest.duties import Recovery
from waybill.apps.ingest.storage import recovery
from waybill.apps.ingest.storage.root import Root
from waybill.duties import a_round
from waybill.objects import Directory


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as made:
        yield made


def names(site: Site) -> set[str]:
    return {info.name for info in site.depot.objects.list("ocfl")}


def test_old_leftovers_go_and_what_is_at_rest_stays(site: Site) -> None:
    holdings = Holdings(site)
    for number in range(5):
        holdings.add({"producer/a.txt": b"hello"}, f"ark:/99999/fk4n{number}")
    sound = names(site)
    root = Root(site.depot.objects, "ocfl")
    left = [
        f"{root.place('ark:/99999/fk4n2')}/v2/content/{sha256(b'x')}",
        f"{root.place('ark:/99999/fk4dead')}/v1/content/{sha256(b'y')}",
    ]
    for name in left:
        site.depot.objects.put(name, b"left behind")
    memory: dict[str, Any] = {}
    young, old = Recovery(portion=2), Recovery(portion=2, older_than=0.0)
    for _ in range(4):
        with hand_of(site, memory) as hand:
            a_round(young, hand)
    assert names(site) == sound | set(left)  # somebody may be writing them
    memory.clear()
    cursors = []
    for _ in range(3):
        with hand_of(site, memory) as hand:
            a_round(old, hand)
        cursors.append(memory["cursor"])
    assert names(site) == sound
    assert memory["removed"] == 2
    assert len(set(cursors)) == 3
    assert isinstance(site.depot.objects, Directory)
    assert said_by_validator(site.depot.objects.root / "ocfl") == (5, [])


def test_a_sidecar_that_was_not_written_is(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add({"producer/a.txt": b"hello"})
    place = Root(site.depot.objects, "ocfl").place(ARK)
    site.depot.objects.delete(f"{place}/inventory.json.sha512")
    with hand_of(site) as hand:
        a_round(Recovery(), hand)
        assert hand.memory == {"cursor": "", "mended": 1}
        a_round(Recovery(), hand)
        assert hand.memory["mended"] == 1
    assert isinstance(site.depot.objects, Directory)
    assert said_by_validator(site.depot.objects.root / "ocfl") == (1, [])


def test_an_object_that_cannot_be_believed_is_named_and_left_alone(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add({"producer/a.txt": b"hello"})
    place = Root(site.depot.objects, "ocfl").place(ARK)
    with site.depot.objects.get(f"{place}/inventory.json") as body:
        data = body.read()
    site.depot.objects.put(f"{place}/inventory.json", data.replace(b"waybill", b"waybull"))
    before = names(site)
    with hand_of(site) as hand:
        (finding,) = Recovery(older_than=0.0).check(hand)
    assert finding.rule == "damaged object"
    assert place.removeprefix("ocfl/") == finding.where
    assert names(site) == before


def test_a_writer_that_publishes_meanwhile_is_not_disturbed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings = Holdings(site)
    holdings.add({"producer/a.txt": b"one"})
    look = recovery.sidecar_of

    def overtaken(objects: Any, folder: str, algorithm: str) -> str | None:
        monkeypatch.undo()
        holdings.add({"producer/a.txt": b"two"})  # after the inventory was read, and before what is beside it is
        return look(objects, folder, algorithm)

    monkeypatch.setattr(recovery, "sidecar_of", overtaken)
    with hand_of(site) as hand:
        a_round(Recovery(older_than=0.0), hand)
    assert isinstance(site.depot.objects, Directory)
    assert said_by_validator(site.depot.objects.root / "ocfl") == (1, [])
    assert holdings.storage.stored(ARK).version == 2
    assert list(holdings.storage.verify(ARK)) == []
