"""Submitting: a deposit becomes one batch, its upload is hashed as it comes, and what cannot be taken leaves nothing
behind.
"""

import hashlib
import io
import tarfile
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apps.ingest.service.service_caller import COLLECTION, OWNER, ServiceCaller
from waybill.apps.ingest import service
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.errors import ActionRefused, InputError, NotFound
from waybill.record import CommitAnswer, CommitGroup, CommitOutcomeUnknown, Record, StoreUnavailable

PROFILE = "#%profile | http://uc3.cdlib.org/registry/ingest/manifest/"


def test_an_upload_becomes_a_batch_with_its_digests(caller: ServiceCaller) -> None:
    accepted = caller.submit(
        [b"hel", b"lo"], filename="a.txt", digest_type="MD5", digest_value=hashlib.md5(b"hello").hexdigest().upper()
    )
    batch = caller.engine.store.get("batch", accepted.batch.id)
    submission = Submission.from_batch(batch)
    assert (batch.state, batch.owner, batch.priority, batch.idempotency_key) == ("Pending", "ada", 7, accepted.batch_id)
    assert (submission.filename, submission.size, submission.type, submission.profile, submission.owner) == (
        "a.txt",
        5,
        PayloadType.FILE,
        "demo",
        OWNER,
    )
    assert submission.received_digests == {
        "sha256": hashlib.sha256(b"hello").hexdigest(),
        "md5": hashlib.md5(b"hello").hexdigest(),
    }
    assert submission.collections == ("maps",)
    assert batch.hold_names == ("collections/maps", "collections/demo")
    assert uuid.UUID(accepted.batch_id.removeprefix("bid-")).version == 4
    assert submission.url == f"waybill:{caller.payloads()[0]}"
    with caller.resources.objects.get(caller.payloads()[0]) as body:
        assert body.read() == b"hello"


def test_a_url_is_taken_as_it_is_and_nothing_is_fetched(caller: ServiceCaller) -> None:
    url = caller.ingest.web.put("deep/thing%20one.zip", b"never read")
    accepted = caller.submit(url=url)
    assert (accepted.submission.url, accepted.submission.filename, accepted.submission.type) == (
        url,
        "thing one.zip",
        PayloadType.CONTAINER,
    )
    assert caller.ingest.web.requests == []
    assert caller.payloads() == []


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
def test_a_url_that_may_not_be_fetched_is_refused_at_once(caller: ServiceCaller, url: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        caller.submit(url=url)
    assert "secret" not in str(refusal.value)
    assert caller.engine.store.count_by_state("batch") == {}


def test_an_unknown_and_a_retired_profile_are_refused(caller: ServiceCaller) -> None:
    with pytest.raises(NotFound, match="no profile 'other'"):
        caller.submit(b"x", profile="other")
    with pytest.raises(InputError, match="profile is missing"):
        caller.submit(b"x", profile="")
    service.PROFILES.act(caller.engine, "demo", "retire", who="admin")
    with pytest.raises(InputError, match="demo is Retired"):
        caller.submit(b"x")
    service.PROFILES.act(caller.engine, "demo", "restore", who="admin")
    service.COLLECTIONS.act(caller.engine, "maps", "retire", who="admin")
    with pytest.raises(InputError, match="collection maps of the profile demo is Retired"):
        caller.submit(b"x")
    assert caller.payloads() == []


def test_the_same_submission_twice_is_one_batch(caller: ServiceCaller) -> None:
    fields: dict[str, Any] = {"batch_id": "bid-1", "local_ids": ("a", "b"), "title": "A"}
    first = caller.submit(b"hello", **fields)
    again = caller.submit(b"hello", **fields)
    assert (again.batch.id, first.is_repeated, again.is_repeated) == (first.batch.id, False, True)
    assert again.submission == first.submission
    assert len(caller.payloads()) == 1, "the second upload is removed"
    assert caller.submit(b"hello").batch.id != first.batch.id, "without a batchID it is a new one"
    url = caller.ingest.web.put("a.txt", b"x")
    one, two = (caller.submit(url=url, batch_id="bid-2") for _ in range(2))
    assert (one.batch.id, one.is_repeated, two.is_repeated) == (two.batch.id, False, True)


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
def test_a_batch_id_of_another_submission_is_refused(caller: ServiceCaller, other: dict[str, Any]) -> None:
    """Answered with the first batch, the second deposit would be lost, and its depositor told that it is queued."""
    service.PROFILES.put(caller.engine, {"name": "second"}, who="admin")
    caller.submit(b"hello", batch_id="bid-1", local_ids=("x",))
    fields: dict[str, Any] = {"data": b"hello", "batch_id": "bid-1", "local_ids": ("x",), **other}
    with pytest.raises(ActionRefused, match="bid-1 belongs to batch"):
        caller.submit(**fields)
    assert len(caller.payloads()) == 1
    assert sum(caller.engine.store.count_by_state("batch").values()) == 1


def test_an_upload_that_breaks_off_leaves_nothing(caller: ServiceCaller) -> None:
    def data() -> Iterator[bytes]:
        yield b"some"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        service.submit_deposit(
            caller.engine, caller.resources, Submission(profile="demo", url="", filename="a"), data(), who="ada"
        )
    assert caller.payloads() == []
    assert caller.engine.store.count_by_state("batch") == {}


def test_an_upload_of_another_size_than_announced_is_refused(caller: ServiceCaller) -> None:
    with pytest.raises(InputError, match="5 bytes came, and 6 were announced"):
        caller.submit(b"hello", size=6)
    assert caller.payloads() == []


def test_an_upload_that_is_too_large_is_refused_on_the_way(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.apps.ingest.ingest_fixture import IngestFixture

    with (
        IngestFixture(tmp_path_factory.mktemp("small"), settings={"fetch": {"max_bytes": 10}}) as ingest,
        ServiceCaller.at(ingest) as caller,
    ):
        caller.furnish()
        came = []

        def data() -> Iterator[bytes]:
            for n in range(100):
                came.append(n)
                yield b"1234"

        with pytest.raises(InputError, match="larger than 10 bytes"):
            service.submit_deposit(
                caller.engine, caller.resources, Submission(profile="demo", url="", filename="a"), data(), who="ada"
            )
        assert len(came) < 10
        assert caller.payloads() == []
        assert caller.submit(b"1234567890").submission.size == 10


def test_a_digest_that_is_named_after_the_upload_is_taken_all_the_same(caller: ServiceCaller) -> None:
    complete, profile = service.complete_submission(
        caller.engine, caller.resources, Submission(profile="demo", url=""), who="ada"
    )
    received = service.receive_upload(caller.resources, complete.batch_id, "a.txt", [b"hello"])
    sha1 = hashlib.sha1(b"hello").hexdigest()
    late = Submission(profile="demo", url="", digest_type="SHA-1", digest_value=sha1, batch_id=complete.batch_id)
    complete, profile = service.complete_submission(caller.engine, caller.resources, late, who="ada")
    accepted = service.make_batch(
        caller.engine, service.add_upload_payload(caller.resources, complete, received), profile, who="ada"
    )
    assert accepted.submission.received_digests["sha1"] == sha1


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
    ({"update": True, "type": PayloadType.CONTAINER}, "An update needs the object that it updates"),
]


@pytest.mark.parametrize(("said", "says"), WRONG)
def test_what_cannot_be_right_is_refused_before_anything_is_kept(
    caller: ServiceCaller, said: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        caller.submit(b"x", **said)
    assert caller.payloads() == []
    assert caller.engine.store.count_by_state("batch") == {}


@pytest.mark.parametrize(("name", "value"), [("SHA256", "A"), ("SHA-256", "a"), ("sha_256", "A")])
def test_digest_names_are_taken_as_people_write_them(caller: ServiceCaller, name: str, value: str) -> None:
    digest = hashlib.sha256(b"hello").hexdigest()
    accepted = caller.submit(b"hello", digest_type=name, digest_value=digest.upper() if value == "A" else digest)
    assert accepted.submission.received_digests == {"sha256": digest}


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
        ("a.zip", _zip(), PayloadType.CONTAINER),
        ("A.TAR.GZ", _tar_gz(), PayloadType.CONTAINER),
        ("a.zip", b"no zip", PayloadType.FILE),
        ("a.docx", _zip(), PayloadType.FILE),
        ("a.txt", b"x", PayloadType.FILE),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-ingest-manifest\n".encode(), PayloadType.OBJECT),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-batch-manifest\n".encode(), PayloadType.MANIFESTS),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-container-batch-manifest\n".encode(), PayloadType.CONTAINERS),
        ("any", f"#%checkm_0.7\n{PROFILE}mrt-single-file-batch-manifest\n".encode(), PayloadType.FILES),
        ("a.zip", None, PayloadType.CONTAINER),
        ("a.checkm", None, None),
        ("a.checkm", b"garbage", None),
        ("a.pdf", None, PayloadType.FILE),
    ],
)
def test_the_type_is_guessed_from_the_first_bytes_and_the_name(
    name: str, head: bytes | None, found: PayloadType | None
) -> None:
    assert service.guess_payload_type(name, head) == found


def test_a_zip_sent_as_a_file_stays_one(caller: ServiceCaller) -> None:
    assert caller.submit(_zip(), filename="a.zip", type=PayloadType.FILE).submission.type is PayloadType.FILE
    assert caller.submit(_zip(), filename="a.zip").submission.type is PayloadType.CONTAINER


def test_an_unknown_collection_does_not_stop_a_deposit(caller: ServiceCaller) -> None:
    service.PROFILES.put(caller.engine, {"name": "far", "collections": [COLLECTION, "ark:/1/unknown"]}, who="admin")
    assert caller.submit(b"x", profile="far").submission.collections == ("maps",)


def test_an_idempotency_key_leads_to_one_batch_id() -> None:
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
def test_any_submission_is_accepted_or_refused_with_a_sentence(caller: ServiceCaller, said: dict[str, Any]) -> None:
    before = len(caller.payloads())
    try:
        accepted = caller.submit(b"x", **said)
    except (InputError, ActionRefused):
        assert len(caller.payloads()) == before
    else:
        assert Submission.from_batch(caller.engine.store.get(*accepted.batch.ref)) == accepted.submission


def test_an_upload_stays_when_the_store_becomes_unavailable_after_the_batch_was_made(
    caller: ServiceCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, get = caller.engine.store, caller.engine.store.get

    def lost(kind: str, id: str) -> Record:
        if kind == "batch":
            raise StoreUnavailable
        return get(kind, id)

    monkeypatch.setattr(store, "get", lost)
    with pytest.raises(StoreUnavailable):
        caller.submit(b"hello", batch_id="bid-1")
    monkeypatch.undo()
    assert (
        f"waybill:{caller.payloads()[0]}" == Submission.from_batch(store.get_by_idempotency_key("batch", "bid-1")).url
    )
    assert caller.submit(b"hello", batch_id="bid-1").is_repeated


def test_a_batch_is_made_once_when_the_answer_of_the_store_is_lost(
    caller: ServiceCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = caller.engine.store.commit, []

    def lost(groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        calls.append(commit(groups))
        if len(calls) == 1:
            return [CommitOutcomeUnknown()]
        return calls[-1]

    monkeypatch.setattr(caller.engine.store, "commit", lost)
    accepted = caller.submit(b"hello")
    assert len(calls) == 2
    assert caller.engine.store.count_by_state("batch") == {"Pending": 1}
    assert accepted.submission.url == f"waybill:{caller.payloads()[0]}"
