import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from tests.apps.ingest.site import Site
from waybill.apps.ingest import noid
from waybill.apps.ingest.minting import PASSWORD, USER, Blocks, Shoulder, connect, draw, shoulder_of
from waybill.apps.ingest.profile import Minter, Profile
from waybill.apps.ingest.settings import Minting
from waybill.record import Ref, Store
from waybill.rules import Refused
from waybill.step import Fail, New

T = TypeVar("T")
USUAL = Shoulder("99999", "fk4", "eeddeeddk")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


def calls(site: Site, count: list[int]) -> Callable[[Callable[[Store], T]], T]:
    """As `ctx.call` does: the question is carried out with a store; counted."""

    def call(question: Callable[[Store], T]) -> T:
        count.append(1)
        with closing(site.depot.open_store()) as store:
            return question(store)

    return call


def test_numbers_are_drawn_in_blocks_and_each_is_used_once(site: Site) -> None:
    blocks, drawn = Blocks(size=3), list[int]()
    minted = [blocks.mint(USUAL, site.depot.machines, calls(site, drawn)) for _ in range(7)]
    assert minted == [noid.mint(number, "99999", "fk4") for number in range(7)]
    assert len(drawn) == 3


def test_two_processes_never_mint_the_same(site: Site) -> None:
    one, two, drawn = Blocks(size=2), Blocks(size=2), list[int]()
    minted = [blocks.mint(USUAL, site.depot.machines, calls(site, drawn)) for blocks in (one, two, one, two, one, two)]
    assert len(set(minted)) == 6


def test_threads_of_many_processes_that_make_the_minter_at_once_never_mint_the_same(site: Site) -> None:
    processes, drawn, minted = [Blocks(size=2), Blocks(size=3)], list[int](), list[str]()
    begin = threading.Barrier(6)

    def mint(blocks: Blocks) -> None:
        begin.wait()
        for _ in range(5):
            minted.append(blocks.mint(USUAL, site.depot.machines, calls(site, drawn)))

    threads = [threading.Thread(target=mint, args=(processes[number % 2],)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(minted) == 30
    assert len(set(minted)) == 30


def test_shoulders_count_apart(site: Site) -> None:
    blocks, drawn = Blocks(), list[int]()
    other = Shoulder("13030", "m5", "eeddeeddk")
    assert blocks.mint(USUAL, site.depot.machines, calls(site, drawn)) == noid.mint(0, "99999", "fk4")
    assert blocks.mint(other, site.depot.machines, calls(site, drawn)) == noid.mint(0, "13030", "m5")
    assert blocks.mint(USUAL, site.depot.machines, calls(site, drawn)) == noid.mint(1, "99999", "fk4")


def test_who_finds_the_minter_made_meanwhile_draws_from_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.engine() as one, site.engine() as two:
        get = two.store.get

        def late(kind: str, id: str) -> object:
            try:
                return get(kind, id)
            finally:
                monkeypatch.undo()
                draw(one, USUAL.minter, 10)

        monkeypatch.setattr(type(two.store), "get", lambda store, kind, id: late(kind, id))
        assert draw(two, USUAL.minter, 5).docs["numbers"]["next"] == 15


def test_a_minter_that_is_closed_fails_with_a_sentence(site: Site) -> None:
    with site.engine() as engine:
        engine.submit(New("minter", id="99999-fk4", docs={"numbers": {"next": 0}}))
        engine.act(Ref("minter", "99999-fk4"), "close", confirmed=True)
        with pytest.raises(Fail, match="No ARK can be minted on 99999-fk4"):
            draw(engine, USUAL.minter, 1)


def test_a_minter_that_has_minted_can_be_neither_closed_nor_removed(site: Site) -> None:
    """It would begin again, and give the ARKs of some objects to others."""
    with site.engine() as engine:
        draw(engine, USUAL.minter, 7)
        with pytest.raises(Refused, match="7 numbers of 99999-fk4 were drawn"):
            engine.act(USUAL.minter, "close")
        with pytest.raises(Refused, match="only what has settled can be removed"):
            engine.remove(USUAL.minter)


@pytest.mark.parametrize(
    ("minter", "expected"),
    [
        (Minter(), USUAL),
        (Minter(naan="13030", shoulder="m5"), Shoulder("13030", "m5", "eeddeeddk")),
        (
            Minter(url="https://ezid.test/shoulder/ark:/13030/m5"),
            Shoulder("13030", "m5", "eeddeeddk", "https://ezid.test"),
        ),
        (
            Minter(url="https://ezid.test/shoulder/ark%3A%2F13030%2Fm5"),
            Shoulder("13030", "m5", "eeddeeddk", "https://ezid.test"),
        ),
        (Minter(url="https://ezid.test", naan="13030"), Shoulder("13030", "fk4", "eeddeeddk", "https://ezid.test")),
        (
            Minter(url="https://ezid.test/shoulder/ark:/1/x", shoulder="m5"),
            Shoulder("1", "m5", "eeddeeddk", "https://ezid.test"),
        ),
    ],
)
def test_a_profile_says_where_its_arks_come_from(minter: Minter, expected: Shoulder) -> None:
    assert shoulder_of(Profile(name="p", minter=minter), Minting()) == expected


def test_ezid_needs_a_user_and_a_password_from_the_environment() -> None:
    ezid = Shoulder("99999", "fk4", "eeddeeddk", "https://ezid.test")
    with pytest.raises(Fail, match=USER):
        connect(ezid, {PASSWORD: "x"})
    connect(ezid, {USER: "u", PASSWORD: "p"}).close()
