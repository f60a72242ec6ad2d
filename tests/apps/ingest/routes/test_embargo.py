"""The files of an object under embargo are for operators alone, by every way, until it ends."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.apps.ingest.access.holdings import ARK, Holdings
from tests.apps.ingest.routes.house import House
from tests.apps.ingest.site import Site
from waybill.apps.ingest.inventory import rebuild_object

API = "/api/v1/ingest"
FILE = f"{API}/objects/{quote(ARK, safe='')}/versions/1/files/producer/a.txt"
FILES = {"producer/a.txt": b"secret"}
LATER, EARLIER = "2999-01-01T00:00:00Z", "2001-01-01T00:00:00Z"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with Site(tmp_path) as site, House(site).open() as house:
        yield house


def statuses(house: House, method: str, path: str, **sent: object) -> dict[str, int]:
    found = {}
    for role in ("reader", "submitter", "operator"):
        with house.client(role) as client:
            found[role] = client.request(method, path, **sent).status_code  # type: ignore[arg-type]
    return found


def test_only_operators_get_a_file_that_is_under_embargo(house: House) -> None:
    Holdings(house.site).add(FILES, about={"title": "Letters", "embargo": LATER})
    closed, opened = (
        {"reader": 403, "submitter": 403, "operator": 200},
        {"reader": 200, "submitter": 200, "operator": 200},
    )
    for method in ("GET", "HEAD"):
        assert statuses(house, method, FILE) == closed
    place = Holdings(house.site).outfit.inventory.file(ARK, 1, "producer/a.txt")
    assert place is not None
    assert statuses(house, "GET", f"{API}/storage/file", params={"object": ARK, "path": "producer/a.txt"}) == closed
    assert statuses(house, "GET", f"{API}/storage/bytes", params={"object": ARK, "place": place["place"]}) == closed
    with house.client("reader") as client:
        said = client.get(FILE).json()["error"]
        assert said["code"] == "embargo"
        assert said["message"] == f"'{ARK}' is under embargo until {LATER}: until then only operators get its files."
        shown = client.get(f"{API}/objects/{quote(ARK, safe='')}").json()
        assert (shown["title"], shown["embargo"]) == ("Letters", LATER)
    assert statuses(house, "GET", FILE.removesuffix("/producer/a.txt")) == opened, "what is known of it is shown"


@pytest.mark.parametrize("embargo", [EARLIER, "", "none"])
def test_an_embargo_that_is_over_or_is_none_keeps_nobody_away(house: House, embargo: str) -> None:
    Holdings(house.site).add(FILES, about={"embargo": embargo} if embargo else {})
    assert set(statuses(house, "GET", FILE).values()) == {200}


@pytest.mark.parametrize("embargo", ["soon", "9999-12-31T23:59:59-14:00"])
def test_an_end_that_cannot_be_read_has_not_come(house: House, embargo: str) -> None:
    """Another service recorded it; what it meant to keep from people is not shown to them."""
    Holdings(house.site).add(FILES, about={"embargo": embargo})
    assert statuses(house, "GET", FILE) == {"reader": 403, "submitter": 403, "operator": 200}


def test_the_newest_version_says_what_holds_for_all_and_a_rebuild_knows_it(house: House) -> None:
    holdings = Holdings(house.site)
    holdings.add(FILES)
    holdings.add({"producer/b.txt": b"b"}, about={"embargo": LATER})
    assert statuses(house, "GET", FILE)["reader"] == 403
    holdings.outfit.inventory.forget(ARK)
    rebuild_object(holdings.outfit.inventory, holdings.storage, ARK)
    assert statuses(house, "GET", FILE)["reader"] == 403
    holdings.add({"producer/c.txt": b"c"}, about={})
    assert statuses(house, "GET", FILE)["reader"] == 200


def test_an_assembly_is_not_made_and_one_that_was_made_is_not_fetched(house: House) -> None:
    holdings = Holdings(house.site)
    holdings.add(FILES)

    def asked(role: str) -> dict[str, str]:
        with house.client(role) as client:
            answer = client.post(f"{API}/access", json={"object": ARK, "version": 1})
            return {"status": str(answer.status_code), **answer.json()}

    before = asked("reader")
    holdings.add({"producer/b.txt": b"b"}, about={"embargo": LATER})
    assert "is under embargo" in str(asked("reader")["error"])
    operators = asked("operator")
    with house.site.workers():
        for told in (before, operators):
            house.site.wait("access-small", told["record"], "Completed")
    with house.client(None) as nobody:
        urls = [told["url"].replace("http://waybill.test", "") for told in (before, operators)]
        assert [nobody.get(url).status_code for url in urls] == [403, 200], "an operator may hand out the URL"
