"""Assemblies that have expired or were deleted leave nothing behind; those of other services are theirs."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.holdings import Holdings
from tests.apps.ingest.access.test_assemblies import FILES, asked_for
from tests.apps.ingest.duties.test_audit import hand_of
from tests.apps.ingest.site import Site
from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.duties import Expiry
from waybill.duties import a_round
from waybill.engine import Engine
from waybill.record import Conflict, NotFound, Record
from waybill.step import New


@pytest.fixture(params=["sqlite", "zookeeper"])
def store(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else str(request.getfixturevalue("zookeeper_url"))


def a_site(folder: Path, store: str = "", keep: float = 1000.0) -> Site:
    return Site(folder, store=store, settings={"access": {"keep": keep}})


def finished(site: Site, state: str = "Completed", **wanted: Any) -> Record:
    asked = asked_for(site, **wanted)
    with site.workers():
        return site.wait(asked.record.kind, asked.record.id, state)


def a_turn(site: Site, duty: Expiry | None = None, memory: dict[str, Any] | None = None) -> int:
    with hand_of(site, memory) as hand:
        return a_round(duty or Expiry(), hand)


def left(site: Site) -> list[str]:
    return [info.name for info in site.depot.objects.list(tokens.ROOT)]


def is_there(site: Site, record: Record) -> bool:
    try:
        site.get(record.kind, record.id)
    except NotFound:
        return False
    return True


def test_an_expired_assembly_goes_with_its_files(tmp_path: Path, store: str) -> None:
    with a_site(tmp_path, store, keep=0.0) as site:
        Holdings(site).add(FILES)
        record = finished(site)
        assert len(left(site)) == 2
        assert a_turn(site) == 1
        assert left(site) == []
        assert not is_there(site, record)
        assert a_turn(site) == 0
        assert asked_for(site).fresh


def test_what_has_not_expired_stays(tmp_path: Path) -> None:
    with a_site(tmp_path) as site:
        holdings = Holdings(site)
        holdings.add(FILES)
        ready = finished(site)
        holdings.flip("ark:/99999/fk4abc", "producer/a.txt")
        failed = finished(site, "Failed", form="tar")
        waits = asked_for(site, form="tar.gz").record
        before = left(site)
        assert a_turn(site) == 0
        assert left(site) == before
        assert all(is_there(site, record) for record in (ready, failed, waits))


def test_deleted_by_an_operator_goes_at_once(tmp_path: Path, store: str) -> None:
    with a_site(tmp_path, store) as site:
        Holdings(site).add(FILES)
        record, other = finished(site), finished(site, form="tar")
        with site.engine() as engine:
            engine.act(record.ref, "delete")
        assert a_turn(site) == 1
        assert (is_there(site, record), is_there(site, other)) == (False, True)
        assert all(name.startswith(tokens.place_of(tokens.token_of(other))) for name in left(site))


def test_failed_ones_go_after_the_same_time(tmp_path: Path) -> None:
    with a_site(tmp_path, keep=0.0) as site:
        holdings = Holdings(site)
        holdings.add(FILES)
        holdings.flip("ark:/99999/fk4abc", "producer/a.txt")
        record = finished(site, "Failed")
        assert a_turn(site) == 1
        assert not is_there(site, record)
        assert left(site) == []


def test_a_crash_after_the_files_leaves_the_rest_to_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_site(tmp_path, keep=0.0) as site:
        Holdings(site).add(FILES)
        record = finished(site)

        def dies(*args: Any, **options: Any) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Engine, "remove", dies)
            with pytest.raises(KeyboardInterrupt):
                a_turn(site)
        assert left(site) == []
        assert site.get(record.kind, record.id).state == "Deleted"
        assert a_turn(site) == 1
        assert not is_there(site, record)


def test_assemblies_of_other_services_are_not_removed(tmp_path: Path, store: str) -> None:
    token = {
        "token": "0b1c",
        "delivery-node": 7777,
        "cloud-content-byte": 17,
        "url": "http://x",
        "anticipated-availability-time": "",
    }
    with a_site(tmp_path, store, keep=0.0) as site:
        with site.engine() as engine:
            theirs = [
                engine.submit(New("access-large", {"token": token}, state=state))
                for state in ("Completed", "Failed", "Deleted")
            ]
        assert a_turn(site) == 0
        for record in theirs:
            found = site.get(record.kind, record.id)
            assert (found.state, found.docs["token"]) == (record.state, token)


def test_imported_ones_go_after_the_same_time(tmp_path: Path, store: str) -> None:
    def imported(site: Site) -> list[Record]:
        with site.engine() as engine:
            return [
                engine.submit(
                    New(
                        "access-small",
                        {"token": {"token": "0b1c"}},
                        state=state,
                        request=f"legacy/accessSmall.1/mrtQ-{state}",
                    )
                )
                for state in ("Completed", "Failed", "Deleted")
            ]

    with a_site(tmp_path, store) as site:
        records = imported(site)
        assert a_turn(site) == 1
        assert [is_there(site, record) for record in records] == [True, True, False]
    with a_site(tmp_path, store, keep=0.0) as site:
        assert a_turn(site) == 2
        assert not any(is_there(site, record) for record in records)


def test_what_a_late_worker_wrote_is_removed_when_it_is_old(tmp_path: Path) -> None:
    with a_site(tmp_path) as site:
        Holdings(site).add(FILES)
        record = finished(site)
        mine = left(site)
        place = tokens.place_of("z" * 43)
        objects = site.depot.objects
        objects.put(f"{place}/7/late.zip", b"late")
        objects.put(f"{tokens.place_of('y' * 43)}/record.json", b'{"kind":"access-small","id":"qid0000009999"}')
        objects.put(f"{tokens.ROOT}/README", b"not an assembly")
        memory: dict[str, Any] = {}
        for _ in range(4):
            a_turn(site, Expiry(portion=1), memory)
        assert len(left(site)) == len(mine) + 3  # younger than a day: perhaps its record is just being made
        memory.clear()
        for _ in range(5):
            a_turn(site, Expiry(portion=1, age=-1.0), memory)
        assert left(site) == sorted([*mine, f"{tokens.ROOT}/README"])
        assert is_there(site, record)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with a_site(tmp_path, keep=0.0) as made:
        yield made


def test_any_worker_does_it_as_a_duty(site: Site) -> None:
    Holdings(site).add(FILES)
    asked = asked_for(site)
    with site.workers(duties=True), site.engine() as engine:
        while is_there(site, asked.record):
            with suppress(Conflict):  # it was asked already, and works on it
                engine.act(engine.store.get("duty", "ingest-expiry").ref, "run")
            engine.store.watch(0.2)
    assert left(site) == []
