"""Submitting: a deposit becomes one batch, its upload is hashed as it comes, and what cannot be taken leaves nothing
behind.
"""

import hashlib
import io
import tarfile
import uuid
import zipfile
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apps.ingest.service.desk import COLLECTION, OWNER, Desk
from waybill.apps.ingest import service
from waybill.apps.ingest.service import Missing, OtherBatch, TooLarge, Unfit
from waybill.apps.ingest.submission import Submission, Type, of_batch
from waybill.record import Answer, Group, Record, Unavailable, Unknown

PROFILE = "#%profile | http://uc3.cdlib.org/registry/ingest/manifest/"


def test_an_upload_becomes_a_batch_with_its_digests(desk: Desk) -> None:
    accepted = desk.submit(
        [b"hel", b"lo"], filename="a.txt", digest_type="MD5", digest_value=hashlib.md5(b"hello").hexdigest().upper()
    )
    batch = desk.engine.store.get("batch", accepted.batch.id)
    said = of_batch(batch)
    assert (batch.state, batch.owner, batch.priority, batch.request) == ("Pending", "ada", 7, accepted.batch_id)
    assert (said.filename, said.size, said.type, said.profile, said.owner) == ("a.txt", 5, Type.FILE, "demo", OWNER)
    assert said.received == {"sha256": hashlib.sha256(b"hello").hexdigest(), "md5": hashlib.md5(b"hello").hexdigest()}
    assert said.collections == ("maps",)
    assert batch.gates == ("collections/maps", "collections/demo")
    assert uuid.UUID(accepted.batch_id.removeprefix("bid-")).version == 4
    assert said.url == f"waybill:{desk.payloads()[0]}"
    with desk.outfit.objects.get(desk.payloads()[0]) as body:
        assert body.read() == b"hello"


def test_a_url_is_taken_as_it_is_and_nothing_is_fetched(desk: Desk) -> None:
    url = desk.site.web.put("deep/thing%20one.zip", b"never read")
    accepted = desk.submit(url=url)
    assert (accepted.submission.url, accepted.submission.filename, accepted.submission.type) == (
        url,
        "thing one.zip",
        Type.CONTAINER,
    )
    assert desk.site.web.requests == []
    assert desk.payloads() == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://10.0.0.1/a.zip", "not a public address"),
        ("http://169.254.169.254/latest/meta-data", "not a public address"),
        ("file:///etc/passwd", "http or https"),
        ("ftp://example.org/a", "http or https"),
        ("waybill:ingest/payloads/bid-x.y/a.txt", "http or https"),
        ("https://ann:secret@example.org/a", "without user name and password"),
        ("https://exa mple.org/a", "http or https"),
        ("", "There is no payload"),
    ],
)
def test_a_url_that_may_not_be_fetched_is_refused_at_once(desk: Desk, url: str, says: str) -> None:
    with pytest.raises(Unfit, match=says) as refusal:
        desk.submit(url=url)
    assert "secret" not in str(refusal.value)
    assert desk.engine.store.tally("batch") == {}


def test_an_unknown_and_a_retired_profile_are_refused(desk: Desk) -> None:
    with pytest.raises(Missing, match="no profile 'other'"):
        desk.submit(b"x", profile="other")
    with pytest.raises(Unfit, match="profile is missing"):
        desk.submit(b"x", profile="")
    service.PROFILES.act(desk.engine, "demo", "retire", who="admin")
    with pytest.raises(Unfit, match="demo is Retired"):
        desk.submit(b"x")
    service.PROFILES.act(desk.engine, "demo", "restore", who="admin")
    service.COLLECTIONS.act(desk.engine, "maps", "retire", who="admin")
    with pytest.raises(Unfit, match="collection maps of the profile demo is Retired"):
        desk.submit(b"x")
    assert desk.payloads() == []


def test_the_same_submission_twice_is_one_batch(desk: Desk) -> None:
    said = {"batch_id": "bid-1", "local_ids": ("a", "b"), "title": "A"}
    first = desk.submit(b"hello", **said)
    again = desk.submit(b"hello", **said)
    assert (again.batch.id, first.repeated, again.repeated) == (first.batch.id, False, True)
    assert again.submission == first.submission
    assert len(desk.payloads()) == 1, "the second upload is removed"
    assert desk.submit(b"hello").batch.id != first.batch.id, "without a batchID it is a new one"
    url = desk.site.web.put("a.txt", b"x")
    one, two = (desk.submit(url=url, batch_id="bid-2") for _ in range(2))
    assert (one.batch.id, one.repeated, two.repeated) == (two.batch.id, False, True)


@pytest.mark.parametrize(
    "other",
    [
        *(
            {"data": b"other"},
            {"profile": "second"},
            {"update": True},
            {"primary_id": "ark:/99999/fk4other"},
            {"local_ids": ("other",)},
        ),
        *({"title": "other"}, {"creator": "other"}, {"date": "2001"}),
    ],
)
def test_a_batch_id_of_another_submission_is_refused(desk: Desk, other: dict[str, object]) -> None:
    """Answered with the first batch, the second deposit would be lost, and its depositor told that it is queued."""
    service.PROFILES.put(desk.engine, {"name": "second"}, who="admin")
    desk.submit(b"hello", batch_id="bid-1", local_ids=("x",))
    with pytest.raises(OtherBatch, match="bid-1 belongs to batch"):
        desk.submit(**{"data": b"hello", "batch_id": "bid-1", "local_ids": ("x",), **other})
    assert len(desk.payloads()) == 1
    assert sum(desk.engine.store.tally("batch").values()) == 1


def test_an_upload_that_breaks_off_leaves_nothing(desk: Desk) -> None:
    def data() -> Iterator[bytes]:
        yield b"some"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        service.submit(desk.engine, desk.outfit, Submission(profile="demo", url="", filename="a"), data(), who="ada")
    assert desk.payloads() == []
    assert desk.engine.store.tally("batch") == {}


def test_an_upload_of_another_size_than_announced_is_refused(desk: Desk) -> None:
    with pytest.raises(Unfit, match="5 bytes came, and 6 were announced"):
        desk.submit(b"hello", size=6)
    assert desk.payloads() == []


def test_an_upload_that_is_too_large_is_refused_on_the_way(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.apps.ingest.site import Site

    with Site(tmp_path_factory.mktemp("small"), settings={"fetch": {"largest": 10}}) as site, Desk.at(site) as desk:
        desk.furnish()
        came = []

        def data() -> Iterator[bytes]:
            for n in range(100):
                came.append(n)
                yield b"1234"

        with pytest.raises(TooLarge, match="larger than 10 bytes"):
            service.submit(
                desk.engine, desk.outfit, Submission(profile="demo", url="", filename="a"), data(), who="ada"
            )
        assert len(came) < 10
        assert desk.payloads() == []
        assert desk.submit(b"1234567890").submission.size == 10


def test_a_digest_that_is_named_after_the_upload_is_taken_all_the_same(desk: Desk) -> None:
    complete, profile = service.ready(desk.engine, desk.outfit, Submission(profile="demo", url=""), who="ada")
    received = service.receive(desk.outfit, complete.batch_id, "a.txt", [b"hello"])
    sha1 = hashlib.sha1(b"hello").hexdigest()
    late = Submission(profile="demo", url="", digest_type="SHA-1", digest_value=sha1, batch_id=complete.batch_id)
    complete, profile = service.ready(desk.engine, desk.outfit, late, who="ada")
    accepted = service.enter(desk.engine, service.arrived(desk.outfit, complete, received), profile, who="ada")
    assert accepted.submission.received["sha1"] == sha1


WRONG = [
    ({"digest_type": "sha256"}, "value of the digest is missing"),
    ({"digest_value": "00"}, "type of the digest is missing"),
    ({"digest_type": "MD2", "digest_value": "0" * 32}, "'MD2' is not a digest"),
    ({"digest_type": "SHA256", "digest_value": "XY"}, "not a SHA-256 in hex"),
    ({"primary_id": "doi:10.1/x"}, "not an ARK"),
    ({"local_ids": ("x" * 256,)}, "A local id has 256 characters"),
    ({"title": "a\x00b"}, "The title holds a control character"),
    ({"creator": "x" * 5000}, "The creator has 5000 characters"),
    ({"notification": "ann@example.org, nobody"}, "'nobody' is not a mail address"),
    ({"batch_id": "../up"}, "not a batchID"),
    ({"batch_id": "bid0000000001"}, "not a batchID"),
    ({"filename": "../a"}, "not a name"),
    ({"filename": "a/b"}, "slash"),
    ({"deletions": ("old.txt",)}, "Only an update"),
    ({"update": True, "deletions": ("../x",)}, "not a name"),
    ({"update": True}, "An update needs the object that it updates"),
    ({"update": True, "type": Type.CONTAINER}, "An update needs the object that it updates"),
]


@pytest.mark.parametrize(("said", "says"), WRONG)
def test_what_cannot_be_right_is_refused_before_anything_is_kept(
    desk: Desk, said: dict[str, object], says: str
) -> None:
    with pytest.raises(Unfit, match=says):
        desk.submit(b"x", **said)
    assert desk.payloads() == []
    assert desk.engine.store.tally("batch") == {}


@pytest.mark.parametrize(("name", "value"), [("SHA256", "A"), ("SHA-256", "a"), ("sha_256", "A")])
def test_digest_names_are_taken_as_people_write_them(desk: Desk, name: str, value: str) -> None:
    digest = hashlib.sha256(b"hello").hexdigest()
    accepted = desk.submit(b"hello", digest_type=name, digest_value=digest.upper() if value == "A" else digest)
    assert accepted.submission.received == {"sha256": digest}


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("a", "b")
    return out.getvalue()


def _tar_gz() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        file.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "head", "found"),
    [
        ("a.zip", _zip(), Type.CONTAINER),
        ("A.TAR.GZ", _tar_gz(), Type.CONTAINER),
        ("a.zip", b"no zip", Type.FILE),
        ("a.docx", _zip(), Type.FILE),
        ("a.txt", b"x", Type.FILE),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-ingest-manifest\n".encode(), Type.OBJECT),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-batch-manifest\n".encode(), Type.MANIFESTS),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-container-batch-manifest\n".encode(), Type.CONTAINERS),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-single-file-batch-manifest\n".encode(), Type.FILES),
        ("a.zip", None, Type.CONTAINER),
        ("a.checkm", None, None),
        ("a.checkm", b"garbage", None),
        ("a.pdf", None, Type.FILE),
    ],
)
def test_the_type_is_guessed_from_the_first_bytes_and_the_name(
    name: str, head: bytes | None, found: Type | None
) -> None:
    assert service.guess(name, head) == found


def test_a_zip_sent_as_a_file_stays_one(desk: Desk) -> None:
    assert desk.submit(_zip(), filename="a.zip", type=Type.FILE).submission.type is Type.FILE
    assert desk.submit(_zip(), filename="a.zip").submission.type is Type.CONTAINER


def test_an_unknown_collection_does_not_stop_a_deposit(desk: Desk) -> None:
    service.PROFILES.put(desk.engine, {"name": "far", "collections": [COLLECTION, "ark:/1/unknown"]}, who="admin")
    assert desk.submit(b"x", profile="far").submission.collections == ("maps",)


def test_a_key_of_a_caller_leads_to_one_batch_id() -> None:
    assert service.batch_id_of("k", "ann") == service.batch_id_of("k", "ann")
    assert len({service.batch_id_of(key, who) for key in ("k", "l") for who in ("ann", "bob")}) == 4


TEXT = st.text(max_size=40)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(
                ("profile", "filename", "digest_type", "digest_value", "creator", "title", "date", "primary_id"), TEXT
            ),
            **dict.fromkeys(("notification", "note", "batch_id", "response_form", "submitter", "url"), TEXT),
            "local_ids": st.lists(TEXT, max_size=4).map(tuple),
            "size": st.none() | st.integers(-5, 9),
            "update": st.booleans(),
        },
    )
)
def test_whatever_is_said_is_taken_or_refused_in_a_sentence(desk: Desk, said: dict[str, object]) -> None:
    before = len(desk.payloads())
    try:
        accepted = desk.submit(b"x", **said)
    except (Unfit, OtherBatch):
        assert len(desk.payloads()) == before
    else:
        assert of_batch(desk.engine.store.get(*accepted.batch.ref)) == accepted.submission


def test_an_upload_stays_when_the_store_goes_away_after_the_batch_was_made(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, get = desk.engine.store, desk.engine.store.get

    def lost(kind: str, id: str) -> Record:
        if kind == "batch":
            raise Unavailable
        return get(kind, id)

    monkeypatch.setattr(store, "get", lost)
    with pytest.raises(Unavailable):
        desk.submit(b"hello", batch_id="bid-1")
    monkeypatch.undo()
    assert f"waybill:{desk.payloads()[0]}" == of_batch(store.requested("batch", "bid-1")).url
    assert desk.submit(b"hello", batch_id="bid-1").repeated


def test_a_batch_is_made_once_when_the_answer_of_the_store_is_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, calls = desk.engine.store.commit, []

    def lost(groups: Sequence[Group]) -> list[Answer]:
        calls.append(commit(groups))
        if len(calls) == 1:
            return [Unknown()]
        return calls[-1]

    monkeypatch.setattr(desk.engine.store, "commit", lost)
    accepted = desk.submit(b"hello")
    assert len(calls) == 2
    assert desk.engine.store.tally("batch") == {"Pending": 1}
    assert accepted.submission.url == f"waybill:{desk.payloads()[0]}"
