"""Search, browse and fetch what is at rest, over a real server."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.objects_server import ObjectsClient, serve_objects
from waybill.apps.ingest.maintenance.audit import audit_next
from waybill.apps.ingest.storage import MANIFEST_PATH
from waybill.http.downloads import BUFFERED_SIZE
from waybill.signed_urls import UrlSigner

QUOTED = quote(ARK, safe="")
LONG = bytes(range(256)) * (BUFFERED_SIZE // 128)
ODD = "producer/versions/2/files/caf\u00e9 \U0001d11e?#%2F.txt"
FILES = {
    "producer/a.txt": b"hello",
    "producer/long.bin": LONG,
    ODD: b"odd",
    "producer/page.html": b"<script>alert(1)</script>",
}


class Place:
    def __init__(self, ingest: IngestFixture, front: ObjectsClient) -> None:
        self.ingest, self.front, self.stored_objects = ingest, front, StoredObjects(ingest)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with IngestFixture(tmp_path_factory.mktemp("ingest")) as ingest, serve_objects(ingest) as front:
        made = Place(ingest, front)
        about = {
            "owner": "ark:/1/owner",
            "collections": ["ark:/1/c"],
            "local_ids": ["x1"],
            "title": "Husky Chicken",
            "creator": "Ada",
        }
        made.stored_objects.add(FILES, about=about)
        made.stored_objects.add({"producer/a.txt": b"hello again"}, mode="update", about=about)
        for number in range(5):
            made.stored_objects.add({"producer/x": b"x"}, f"ark:/99999/fk4z{number}", about={"title": "Other"})
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Place]:
    """One that a test may harm."""
    with IngestFixture(tmp_path) as ingest, serve_objects(ingest) as front:
        yield Place(ingest, front)


def test_nothing_is_shown_without_a_token(place: Place) -> None:
    base = f"/api/v1/ingest/objects/{QUOTED}"
    below = [
        f"{base}/versions",
        f"{base}/versions/1",
        f"{base}/versions/1/manifest",
        f"{base}/versions/1/files/producer/a.txt",
    ]
    for path in ("/api/v1/ingest/objects", base, *below, "/api/v1/ingest/damaged"):
        assert place.front.get(path, role=None).status_code == 401
        assert place.front.get(path).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        {"ark": ARK},
        {"local_id": "x1"},
        {"text": "husky CHICKEN"},
        {"collection": "ark:/1/c"},
        {"owner": "ark:/1/owner"},
    ],
)
def test_search(place: Place, query: dict[str, str]) -> None:
    found = place.front.get("/api/v1/ingest/objects", params=query).json()
    assert [(row["ark"], row["head"], row["title"]) for row in found["objects"]] == [(ARK, 2, "Husky Chicken")]
    assert found["next"] is None
    assert place.front.get("/api/v1/ingest/objects", params={**query, "owner": "nobody"}).json()["objects"] == []


def test_pages_show_everything_once(place: Place) -> None:
    seen, after = [], ""
    while after is not None:
        page = place.front.get("/api/v1/ingest/objects", params={"limit": 2, "after": after}).json()
        seen += [row["ark"] for row in page["objects"]]
        after = page["next"]
    assert seen == [ARK, *(f"ark:/99999/fk4z{number}" for number in range(5))]


def test_bad_searches_are_refused_with_a_sentence(place: Place) -> None:
    for query in ({"ark": ARK, "local_id": "x1"}, {"text": "a b c d e"}, {"text": "?!"}):
        answer = place.front.get("/api/v1/ingest/objects", params=query)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad-search")
    assert place.front.get("/api/v1/ingest/objects", params={"limit": 0}).status_code == 422


@pytest.mark.parametrize("ark", [QUOTED, ARK])
def test_browse_from_object_to_file(place: Place, ark: str) -> None:
    found = place.front.get(f"/api/v1/ingest/objects/{ark}").json()
    assert (found["ark"], found["local_ids"], found["collections"]) == (ARK, ["x1"], ["ark:/1/c"])
    versions = place.front.get(f"{found['url']}/versions").json()["versions"]
    assert [(row["number"], row["files"]) for row in versions] == [(1, 4), (2, 4)]
    assert (
        place.front.get(f"{found['url']}/versions/0").json()
        == versions[1]
        == place.front.get(versions[1]["url"]).json()
    )
    seen: dict[str, Any] = {}
    after = ""
    while after is not None:
        page = place.front.get(f"{versions[0]['url']}/files", params={"limit": 2, "after": after}).json()
        seen |= {row["path"]: row for row in page["files"]}
        after = page["next"]
    assert set(seen) == {*FILES, MANIFEST_PATH}
    for path, data in FILES.items():
        answer = place.front.get(seen[path]["url"])
        assert (answer.status_code, answer.content) == (200, data)
        assert hashlib.sha256(data).hexdigest() == seen[path]["sha256"]


def test_the_manifest_of_a_version_is_as_it_is_at_rest(place: Place) -> None:
    for number in (1, 2):
        stored = place.stored_objects.storage.get_version(ARK, number)
        answer = place.front.get(f"/api/v1/ingest/objects/{QUOTED}/versions/{number}/manifest")
        assert hashlib.sha256(answer.content).hexdigest() == stored.sha256
        assert b'"uri":"producer/a.txt"' in answer.content


NOT_THERE = (
    "ark:/99999/fk4none",
    f"{ARK}/versions/9",
    f"{ARK}/versions/9/manifest",
    f"{ARK}/versions/1/files/producer/none",
    f"{ARK}/versions/1/files/..%2Fa",
    f"{ARK}/versions/1/files/producer/a.txt%00",
    "ark:/9%00/x",
)


@pytest.mark.parametrize("path", NOT_THERE)
def test_what_is_not_there_is_404(place: Place, path: str) -> None:
    answer = place.front.get(f"/api/v1/ingest/objects/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not-found")
    assert "/api/v1/ingest/objects" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("path", ["producer/a.txt", "producer/long.bin"])
def test_what_is_sent_can_be_checked_and_harms_no_browser(place: Place, path: str) -> None:
    url, data = f"/api/v1/ingest/objects/{QUOTED}/versions/1/files/{path}", FILES[path]
    whole = place.front.get(url)
    digest = hashlib.sha256(data)
    assert whole.headers["etag"] == f'"{digest.hexdigest()}"'
    assert whole.headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["x-content-type-options"] == "nosniff"
    head = place.front.ask("HEAD", url)
    assert head.content == b""
    assert {name: head.headers[name] for name in ("etag", "content-length", "content-type", "repr-digest")} == {
        name: whole.headers[name] for name in ("etag", "content-length", "content-type", "repr-digest")
    }
    assert place.front.get(url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert place.front.get(url, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["producer/a.txt", "producer/long.bin"])
def test_ranges(place: Place, path: str) -> None:
    url, data = f"/api/v1/ingest/objects/{QUOTED}/versions/1/files/{path}", FILES[path]
    size = len(data)
    beyond_it = [(f"1-{size * 2}", 1, size), (f"-{size * 2}", 0, size)]
    for said, start, end in (("0-0", 0, 1), ("1-3", 1, 4), ("2-", 2, size), ("-2", size - 2, size), *beyond_it):
        answer = place.front.get(url, headers={"Range": f"bytes={said}"})
        assert (answer.status_code, answer.content) == (206, data[start:end]), said
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    for beyond in (f"{size}-", f"{size + 5}-{size + 9}", "-0"):
        answer = place.front.get(url, headers={"Range": f"bytes={beyond}"})
        assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{size}")
    for ignored in ("bytes=3-1", "bytes=0-1,3-4", "lines=0-1", "bytes=-", "bytes=x-y"):
        assert place.front.get(url, headers={"Range": ignored}).status_code == 200
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    assert place.front.get(url, headers={"Range": "bytes=0-0", "If-Range": tag}).status_code == 206
    assert place.front.get(url, headers={"Range": "bytes=0-0", "If-Range": '"old"'}).status_code == 200


RANGES = st.from_regex(r"bytes ?= ?[0-9]{0,25} ?- ?[0-9]{0,25}", fullmatch=True)


@given(said=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40) | RANGES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_said_of_a_range_is_answered(place: Place, said: str) -> None:
    answer = place.front.get(
        f"/api/v1/ingest/objects/{QUOTED}/versions/1/files/producer/a.txt", headers={"Range": said.strip()}
    )
    assert answer.status_code in (200, 206, 416)
    if answer.status_code != 416:
        assert answer.content in [b"hello"[i:j] for i in range(5) for j in range(i + 1, 6)]


def test_a_damaged_short_file_is_refused_whole_and_in_part(own: Place) -> None:
    own.stored_objects.add({"producer/a.txt": b"hello"})
    own.stored_objects.flip(ARK, "producer/a.txt")
    for headers in ({}, {"Range": "bytes=0-0"}):
        answer = own.front.get(f"/api/v1/ingest/objects/{QUOTED}/versions/1/files/producer/a.txt", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "damaged")
        assert "producer/a.txt" in answer.json()["error"]["message"]


def test_a_damaged_long_file_never_ends(own: Place) -> None:
    own.stored_objects.add({"producer/long.bin": LONG})
    url = f"/api/v1/ingest/objects/{QUOTED}/versions/1/files/producer/long.bin"
    assert own.front.get(url).content == LONG
    own.stored_objects.flip(ARK, "producer/long.bin")
    with pytest.raises(httpx2.RemoteProtocolError):
        own.front.get(url)


def test_known_damage_is_listed(own: Place) -> None:
    own.stored_objects.add({f"producer/{n}": bytes([n]) for n in range(3)})
    places = {own.stored_objects.flip(ARK, f"producer/{n}") for n in (0, 2)}
    with own.ingest.engine() as engine:
        audit_next(own.stored_objects.resources, engine)
    seen, after = [], ""
    while after is not None:
        page = own.front.get("/api/v1/ingest/damaged", params={"limit": 1, "after": after}).json()
        seen += page["damaged"]
        after = page["next"]
    assert {row["place"] for row in seen} == places
    assert {file for row in seen for file in row["files"]} == {"v1 producer/0", "v1 producer/2"}


def test_a_signed_url_opens_one_manifest_for_a_while_and_nothing_else(place: Place) -> None:
    with place.ingest.engine() as engine:
        seal, now = (
            UrlSigner.from_store(engine.store, "ingest-manifest", place.stored_objects.resources.draw_random_bytes),
            int(engine.store.now()),
        )
    base = f"/api/v1/ingest/objects/{QUOTED}/versions"
    signed = seal.sign_query((ARK, "1"), now + 1000)
    answer = place.front.get(f"{base}/1/manifest?{signed}", role=None)
    assert (answer.status_code, answer.content) == (200, place.front.get(f"{base}/1/manifest").content)
    assert place.front.ask("HEAD", f"{base}/1/manifest?{signed}", role=None).status_code == 200
    for wrong in (
        f"{base}/2/manifest?{signed}",
        f"{base}/0/manifest?{signed}",
        f"{base}/1/manifest?{seal.sign_query((ARK, '1'), now - 1)}",
        f"{base}/1/manifest?{seal.sign_query((ARK, '2'), now + 1000)}",
        f"{base}/1/manifest?{seal.sign_query(('ark:/99999/fk4z1', '1'), now + 1000)}",
        f"{base}/1/manifest?{signed[:-1]}",
        f"{base}/1/manifest?{signed.replace('expires=', 'expires=9')}",
        f"{base}/1/manifest?signature=%C3%A9",
        f"{base}/1/manifest?expires=x&signature=y",
        f"{base}/1/manifest?expires=%D9%A3&signature=y",
        f"/api/v1/ingest/objects/ark%3A%2F99999%2Ffk4z1/versions/1/manifest?{signed}",
        f"{base}/one/manifest?{signed}",
        f"{base}/1/manifest?expires={'9' * 5000}&signature=y",
    ):
        refused = place.front.get(wrong, role=None)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "bad-signature"), wrong
    assert place.front.get(f"{base}/1/manifest?{seal.sign_query((ARK, '1'), now - 1)}").status_code == 200, (
        "a token is enough"
    )
    assert place.front.get(f"{base}/1/manifest?expires={now + 1000}", role=None).status_code == 401
    assert place.front.get(f"{base}/1/files/producer/a.txt?{signed}", role=None).status_code == 401
    assert place.front.get(f"{base}/1?{signed}", role=None).status_code == 401


@pytest.mark.parametrize("quoted", [ARK, QUOTED, quote(QUOTED, safe="")])
def test_an_ark_leads_to_its_object(place: Place, quoted: str) -> None:
    answer = place.front.get(f"/m/{quoted}", role=None)
    assert (answer.status_code, answer.headers["location"]) == (307, f"/api/v1/ingest/objects/{QUOTED}")
    assert place.front.get(answer.headers["location"]).json()["ark"] == ARK


@pytest.mark.parametrize(
    "odd", ["nonsense", "ark:", "..%2f..%2fetc", "//evil.test/x", "ark:/99999/fk4%0d%0aSet-Cookie:x"]
)
def test_what_is_no_ark_leads_nowhere(place: Place, odd: str) -> None:
    assert place.front.get(f"/m/{odd}", role=None).status_code == 404
