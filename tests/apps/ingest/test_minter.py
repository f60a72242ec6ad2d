import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest.identifiers import noid
from waybill.apps.ingest.identifiers.minter import (
    EZID_PASSWORD,
    EZID_USER,
    NumberBlocks,
    Shoulder,
    connect_ezid,
    draw_numbers,
    shoulder_of,
)
from waybill.apps.ingest.profile import Profile, ProfileMinter
from waybill.apps.ingest.settings import MinterSettings
from waybill.record import Ref, Store
from waybill.rules import ActionRefused
from waybill.step import Fail, New

T = TypeVar("T")
USUAL = Shoulder("99999", "fk4", "eeddeeddk")


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path) as ingest:
        yield ingest


def calls(ingest: IngestFixture, count: list[int]) -> Callable[[Callable[[Store], T]], T]:
    """As `ctx.call` does: the question is carried out with a store; counted."""

    def call(question: Callable[[Store], T]) -> T:
        count.append(1)
        with closing(ingest.environment.open_store()) as store:
            return question(store)

    return call


def test_numbers_are_drawn_in_blocks_and_each_is_used_once(ingest: IngestFixture) -> None:
    blocks, drawn = NumberBlocks(size=3), list[int]()
    minted = [blocks.mint(USUAL, ingest.environment.machines, calls(ingest, drawn)) for _ in range(7)]
    assert minted == [noid.mint(number, "99999", "fk4") for number in range(7)]
    assert len(drawn) == 3


def test_two_processes_never_mint_the_same(ingest: IngestFixture) -> None:
    one, two, drawn = NumberBlocks(size=2), NumberBlocks(size=2), list[int]()
    minted = [
        blocks.mint(USUAL, ingest.environment.machines, calls(ingest, drawn))
        for blocks in (one, two, one, two, one, two)
    ]
    assert len(set(minted)) == 6


def test_threads_of_many_processes_that_make_the_minter_at_once_never_mint_the_same(ingest: IngestFixture) -> None:
    processes, drawn, minted = [NumberBlocks(size=2), NumberBlocks(size=3)], list[int](), list[str]()
    begin = threading.Barrier(6)

    def mint(blocks: NumberBlocks) -> None:
        begin.wait()
        for _ in range(5):
            minted.append(blocks.mint(USUAL, ingest.environment.machines, calls(ingest, drawn)))

    threads = [threading.Thread(target=mint, args=(processes[number % 2],)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(minted) == 30
    assert len(set(minted)) == 30


def test_shoulders_count_apart(ingest: IngestFixture) -> None:
    blocks, drawn = NumberBlocks(), list[int]()
    other = Shoulder("13030", "m5", "eeddeeddk")
    assert blocks.mint(USUAL, ingest.environment.machines, calls(ingest, drawn)) == noid.mint(0, "99999", "fk4")
    assert blocks.mint(other, ingest.environment.machines, calls(ingest, drawn)) == noid.mint(0, "13030", "m5")
    assert blocks.mint(USUAL, ingest.environment.machines, calls(ingest, drawn)) == noid.mint(1, "99999", "fk4")


def test_who_finds_the_minter_made_meanwhile_draws_from_it(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ingest.engine() as one, ingest.engine() as two:
        get = two.store.get

        def late(kind: str, id: str) -> object:
            try:
                return get(kind, id)
            finally:
                monkeypatch.undo()
                draw_numbers(one, USUAL.minter, 10)

        monkeypatch.setattr(type(two.store), "get", lambda store, kind, id: late(kind, id))
        assert draw_numbers(two, USUAL.minter, 5).documents["numbers"]["next"] == 15


def test_a_minter_that_is_closed_fails_with_a_sentence(ingest: IngestFixture) -> None:
    with ingest.engine() as engine:
        engine.submit(New("minter", id="99999-fk4", documents={"numbers": {"next": 0}}))
        engine.act(Ref("minter", "99999-fk4"), "close", confirmed=True)
        with pytest.raises(Fail, match="No ARK can be minted on 99999-fk4"):
            draw_numbers(engine, USUAL.minter, 1)


def test_a_minter_that_has_minted_can_be_neither_closed_nor_removed(ingest: IngestFixture) -> None:
    """It would begin again, and give the ARKs of some objects to others."""
    with ingest.engine() as engine:
        draw_numbers(engine, USUAL.minter, 7)
        with pytest.raises(ActionRefused, match="7 numbers of 99999-fk4 were drawn"):
            engine.act(USUAL.minter, "close")
        with pytest.raises(ActionRefused, match="only settled records can be removed"):
            engine.remove(USUAL.minter)


@pytest.mark.parametrize(
    ("minter", "expected"),
    [
        (ProfileMinter(), USUAL),
        (ProfileMinter(naan="13030", shoulder="m5"), Shoulder("13030", "m5", "eeddeeddk")),
        (
            ProfileMinter(url="https://ezid.test/shoulder/ark:/13030/m5"),
            Shoulder("13030", "m5", "eeddeeddk", "https://ezid.test"),
        ),
        (
            ProfileMinter(url="https://ezid.test/shoulder/ark%3A%2F13030%2Fm5"),
            Shoulder("13030", "m5", "eeddeeddk", "https://ezid.test"),
        ),
        (
            ProfileMinter(url="https://ezid.test", naan="13030"),
            Shoulder("13030", "fk4", "eeddeeddk", "https://ezid.test"),
        ),
        (
            ProfileMinter(url="https://ezid.test/shoulder/ark:/1/x", shoulder="m5"),
            Shoulder("1", "m5", "eeddeeddk", "https://ezid.test"),
        ),
    ],
)
def test_a_profile_says_where_its_arks_come_from(minter: ProfileMinter, expected: Shoulder) -> None:
    assert shoulder_of(Profile(name="p", minter=minter), MinterSettings()) == expected


def test_ezid_needs_a_user_and_a_password_from_the_environment() -> None:
    ezid = Shoulder("99999", "fk4", "eeddeeddk", "https://ezid.test")
    with pytest.raises(Fail, match=EZID_USER):
        connect_ezid(ezid, ["ezid.test"], {EZID_PASSWORD: "x"})
    connect_ezid(ezid, ["ezid.test"], {EZID_USER: "u", EZID_PASSWORD: "p"}).close()


@pytest.mark.parametrize(
    ("url", "hosts", "is_allowed"),
    [
        ("https://ezid.cdlib.org/shoulder/x", MinterSettings().ezid_hosts, True),
        ("https://EZID.cdlib.org:443", MinterSettings().ezid_hosts, True),
        ("https://ezid.cdlib.org:8443", MinterSettings().ezid_hosts, False),
        ("https://ezid.cdlib.org@evil.test", MinterSettings().ezid_hosts, False),
        ("https://evil.test/ezid.cdlib.org", MinterSettings().ezid_hosts, False),
        ("https://ezid.cdlib.org.evil.test", MinterSettings().ezid_hosts, False),
        ("https://[evil", MinterSettings().ezid_hosts, False),
        ("http://127.0.0.1:81", ["127.0.0.1:81"], True),
        ("http://127.0.0.1:82", ["127.0.0.1:81"], False),
        ("https://ezid.cdlib.org", [], False),
    ],
)
def test_the_password_is_sent_to_hosts_of_the_settings_only(url: str, hosts: list[str], is_allowed: bool) -> None:
    ezid = Shoulder("99999", "fk4", "eeddeeddk", url)
    secrets = {EZID_USER: "u", EZID_PASSWORD: "p"}
    if is_allowed:
        connect_ezid(ezid, hosts, secrets).close()
        return
    with pytest.raises(Fail, match="ezid_hosts"):
        connect_ezid(ezid, hosts, secrets)
