"""The files of an object under embargo are for operators alone, by every way, until it ends."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.ingest_server import IngestServer
from waybill.apps.ingest.embargo import close_object
from waybill.apps.ingest.inventory import rebuild_object
from waybill.apps.ingest.storage.protocol import DepositHead, encode_deposit
from waybill.tokens import Role

API = "/api/v1/ingest"
FILE = f"{API}/objects/{quote(ARK, safe='')}/versions/1/files/producer/a.txt"
FILES = {"producer/a.txt": b"secret"}
LATER, EARLIER = "2999-01-01T00:00:00Z", "2001-01-01T00:00:00Z"


@pytest.fixture
def ingest_server(tmp_path: Path) -> Iterator[IngestServer]:
    with IngestFixture(tmp_path) as ingest, IngestServer(ingest).open() as ingest_server:
        yield ingest_server


def statuses(ingest_server: IngestServer, method: str, path: str, **sent: object) -> dict[str, int]:
    found = {}
    for role in ("reader", "submitter", "operator"):
        with ingest_server.client(role) as client:
            found[role] = client.request(method, path, **sent).status_code  # type: ignore[arg-type]
    return found


def test_only_operators_get_a_file_that_is_under_embargo(ingest_server: IngestServer) -> None:
    StoredObjects(ingest_server.ingest).add(FILES, about={"title": "Letters", "embargo": LATER})
    closed, opened = (
        {"reader": 403, "submitter": 403, "operator": 200},
        {"reader": 200, "submitter": 200, "operator": 200},
    )
    for method in ("GET", "HEAD"):
        assert statuses(ingest_server, method, FILE) == closed
    place = StoredObjects(ingest_server.ingest).resources.inventory.get_file(ARK, 1, "producer/a.txt")
    assert place is not None
    assert (
        statuses(ingest_server, "GET", f"{API}/storage/file", params={"object": ARK, "path": "producer/a.txt"})
        == closed
    )
    assert (
        statuses(ingest_server, "GET", f"{API}/storage/bytes", params={"object": ARK, "place": place["place"]})
        == closed
    )
    with ingest_server.client("reader") as client:
        response = client.get(FILE).json()["error"]
        assert response["code"] == "embargo"
        assert (
            response["message"] == f"'{ARK}' is under embargo until {LATER}: until then only operators get its files."
        )
        shown = client.get(f"{API}/objects/{quote(ARK, safe='')}").json()
        assert (shown["title"], shown["embargo"]) == ("Letters", LATER)
    assert statuses(ingest_server, "GET", FILE.removesuffix("/producer/a.txt")) == opened, (
        "what is known of it is shown"
    )


@pytest.mark.parametrize("embargo", [EARLIER, "", "none"])
def test_an_embargo_that_is_over_or_is_none_keeps_nobody_away(ingest_server: IngestServer, embargo: str) -> None:
    StoredObjects(ingest_server.ingest).add(FILES, about={"embargo": embargo} if embargo else {})
    assert set(statuses(ingest_server, "GET", FILE).values()) == {200}


@pytest.mark.parametrize("embargo", ["soon", "9999-12-31T23:59:59-14:00"])
def test_an_end_that_cannot_be_read_has_not_come(ingest_server: IngestServer, embargo: str) -> None:
    """Another service recorded it; what it meant to keep from people is not shown to them."""
    StoredObjects(ingest_server.ingest).add(FILES, about={"embargo": embargo})
    assert statuses(ingest_server, "GET", FILE) == {"reader": 403, "submitter": 403, "operator": 200}


def test_the_newest_version_says_what_holds_for_all_and_a_rebuild_knows_it(ingest_server: IngestServer) -> None:
    stored_objects = StoredObjects(ingest_server.ingest)
    stored_objects.add(FILES)
    stored_objects.add({"producer/b.txt": b"b"}, about={"embargo": LATER})
    assert statuses(ingest_server, "GET", FILE)["reader"] == 403
    stored_objects.resources.inventory.forget(ARK)
    rebuild_object(stored_objects.resources.inventory, stored_objects.storage, ARK)
    assert statuses(ingest_server, "GET", FILE)["reader"] == 403
    stored_objects.add({"producer/c.txt": b"c"}, about={})
    assert statuses(ingest_server, "GET", FILE)["reader"] == 200


def test_an_object_that_is_not_recorded_is_closed(ingest_server: IngestServer) -> None:
    """Between storing and recording nobody can tell whether there is an embargo; so it is where one stores for another."""
    stored = StoredObjects(ingest_server.ingest).add(FILES, about={"embargo": LATER}, record=False)
    closed = {"reader": 403, "submitter": 403, "operator": 200}
    for path in (
        {"object": ARK, "path": "producer/a.txt"},
        {"object": ARK, "path": "producer/a.txt", "number": stored.version},
    ):
        assert statuses(ingest_server, "GET", f"{API}/storage/file", params=path) == closed
    assert (
        statuses(ingest_server, "GET", f"{API}/storage/bytes", params={"object": ARK, "place": stored.place}) == closed
    )
    with ingest_server.client("reader") as client:
        error = client.get(f"{API}/storage/file", params={"object": ARK, "path": "producer/a.txt"}).json()["error"]
        assert error["code"] == "not-recorded"
        assert client.post(f"{API}/access", json={"object": ARK}).status_code == 404


def test_an_assembly_of_an_object_that_the_inventory_has_lost_is_closed(ingest_server: IngestServer) -> None:
    stored_objects = StoredObjects(ingest_server.ingest)
    stored_objects.add(FILES)
    with ingest_server.client("reader") as client:
        told = client.post(f"{API}/access", json={"object": ARK, "version": 1}).json()
    with ingest_server.ingest.workers():
        ingest_server.ingest.wait("access-small", told["record"], "Completed")
    url = told["url"].replace("http://waybill.test", "")
    with ingest_server.client(None) as nobody:
        assert nobody.get(url).status_code == 200
        stored_objects.resources.inventory.forget(ARK)
        assert nobody.get(url).status_code == 403


@pytest.mark.parametrize(
    ("before", "sent", "after"),
    [
        ("", LATER, LATER),
        ("", "soon", "soon"),
        (LATER, EARLIER, LATER),
        ("soon", LATER, "soon"),
        (LATER, "none", LATER),
    ],
)
def test_a_deposit_closes_the_object_before_it_is_stored_and_never_opens_it(
    ingest_server: IngestServer, before: str, sent: str, after: str
) -> None:
    stored_objects = StoredObjects(ingest_server.ingest)
    inventory = stored_objects.resources.inventory
    stored_objects.add(FILES, about={"embargo": before} if before else {})
    close_object(inventory, ARK, sent)
    row = inventory.get_object(ARK)
    assert row is not None
    assert row["embargo"] == after
    close_object(inventory, "ark:/99999/fk4none", sent)
    assert inventory.get_object("ark:/99999/fk4none") is None


def test_a_deposit_for_another_service_closes_the_object_first(ingest_server: IngestServer) -> None:
    stored_objects = StoredObjects(ingest_server.ingest)
    stored_objects.add(FILES)
    assert statuses(ingest_server, "GET", FILE)["reader"] == 200
    deposit = stored_objects.sources.deposit("theirs", {"producer/b.txt": b"b"}, ARK, about={"embargo": LATER})
    lines = b"".join(encode_deposit(DepositHead(about=dict(deposit.about)), deposit.files))
    with ingest_server.client("operator") as client:
        response = client.post(f"{API}/storage/versions", params={"object": ARK, "request": "theirs"}, content=lines)
    assert response.status_code == 409, "its content is not staged, so nothing is stored"
    assert statuses(ingest_server, "GET", FILE)["reader"] == 403


def test_an_assembly_is_not_made_and_one_that_was_made_is_not_fetched(ingest_server: IngestServer) -> None:
    stored_objects = StoredObjects(ingest_server.ingest)
    stored_objects.add(FILES)

    def asked(role: Role) -> dict[str, str]:
        with ingest_server.client(role) as client:
            answer = client.post(f"{API}/access", json={"object": ARK, "version": 1})
            return {"status": str(answer.status_code), **answer.json()}

    before = asked("reader")
    stored_objects.add({"producer/b.txt": b"b"}, about={"embargo": LATER})
    assert "is under embargo" in str(asked("reader")["error"])
    operators = asked("operator")
    with ingest_server.ingest.workers():
        for told in (before, operators):
            ingest_server.ingest.wait("access-small", told["record"], "Completed")
    with ingest_server.client(None) as nobody:
        urls = [told["url"].replace("http://waybill.test", "") for told in (before, operators)]
        assert [nobody.get(url).status_code for url in urls] == [403, 200], "an operator may hand out the URL"
