"""What a network and a server can do to the S3 driver: silence, cuts, answers that get lost, errors in disguise,
wrong credentials.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from tests.objects.fake_s3 import FakeS3, Trouble
from tests.servers.s3 import RcloneS3Server, SeaweedServer
from waybill.objects.protocol import (
    ObjectExists,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectsError,
    ObjectStoreCapabilities,
    ObjectStoreUnavailable,
    PreconditionFailed,
    is_not_found,
    is_permanent,
)
from waybill.objects.s3 import S3Objects
from waybill.objects.s3_probe import ProbeResult
from waybill.objects.s3_signing import S3Credentials
from waybill.objects.s3_writer import choose_part_size, limit_size, split_parts

LARGE = 9 * 1024 * 1024


@pytest.fixture
def server() -> Iterator[FakeS3]:
    with FakeS3() as server:
        yield server


@pytest.fixture
def patience() -> float:
    """Seconds for an answer: a busy machine may be slow to give one, and each try is counted."""
    return 60.0


@pytest.fixture
def objects(server: FakeS3, patience: float) -> Iterator[S3Objects]:
    with S3Objects(
        "bucket", endpoint=server.endpoint, credentials=S3Credentials("key", "secret"), timeout=patience, tries=3
    ) as objects:
        objects._probe_result = ProbeResult(
            server.endpoint, "bucket", datetime.now(UTC), ObjectStoreCapabilities("atomic", "atomic", "atomic")
        )
        yield objects


def content(objects: S3Objects, name: str) -> bytes:
    with objects.get(name) as body:
        return body.read()


@pytest.mark.parametrize(("trouble", "patience"), [("503", 60.0), ("cut answer", 60.0), ("hang", 1.0)])
def test_a_passing_trouble_is_got_over(server: FakeS3, objects: S3Objects, trouble: str) -> None:
    server.trouble = [Trouble("PUT", "a", trouble)]
    objects.put("a", b"data")
    server.trouble = [Trouble("GET", "a", trouble)]
    assert content(objects, "a") == b"data"
    with objects.upload("b") as upload:
        server.trouble = [Trouble("PUT", "b", trouble)]
        upload.put_part(1, b"part")
        upload.complete()
    assert content(objects, "b") == b"part"


def test_a_create_whose_answer_was_lost_is_known_for_ours(server: FakeS3, objects: S3Objects) -> None:
    """The client below sends it again, and is told that the object is there: which it is, because we made it."""
    server.trouble = [Trouble("PUT", "a", "cut answer")]
    info = objects.put("a", b"ours", if_absent=True)
    assert server.requests.count("PUT a") == 2
    assert content(objects, "a") == b"ours"
    assert info.size == 4
    with pytest.raises(ObjectExists):
        objects.put("a", b"ours", if_absent=True)  # the same bytes, and not our put


def test_a_swap_whose_answer_was_lost_is_known_for_ours(server: FakeS3, objects: S3Objects) -> None:
    etag = objects.put("a", b"one").etag
    server.trouble = [Trouble("PUT", "a", "cut answer")]
    assert objects.put("a", b"two", if_match=etag).etag == objects.head("a").etag
    with pytest.raises(PreconditionFailed):
        objects.put("a", b"three", if_match=etag)


def test_a_completion_whose_answer_was_lost_is_known_for_ours(server: FakeS3, objects: S3Objects) -> None:
    for number, conditional in enumerate([False, True]):
        server.trouble = []
        with objects.upload(f"a{number}") as upload:
            upload.put_part(1, b"data")
            server.trouble = [Trouble("POST", f"a{number}", "cut answer")]
            info = upload.complete(if_absent=conditional)
        assert (info.size, info.etag) == (4, objects.head(f"a{number}").etag)


def test_someone_elses_object_is_not_taken_for_ours(server: FakeS3, objects: S3Objects) -> None:
    objects.put("a", b"theirs")
    with objects.upload("a") as upload:
        upload.put_part(1, b"ours")
        with pytest.raises(ObjectExists):
            upload.complete(if_absent=True)
    assert content(objects, "a") == b"theirs"


def test_an_error_inside_a_200_is_an_error(server: FakeS3, objects: S3Objects) -> None:
    with objects.upload("a") as upload:
        upload.put_part(1, b"data")
        server.trouble = [Trouble("POST", "a", "error in 200")]
        upload.complete()
    assert content(objects, "a") == b"data"
    with objects.upload("b") as upload:
        upload.put_part(1, b"data")
        server.trouble = [Trouble("POST", "b", "error in 200")] * 3
        with pytest.raises(ObjectStoreUnavailable, match="InternalError"):
            upload.complete()
    with pytest.raises(ObjectNotFound):
        objects.head("b")


def test_a_conflict_is_no_proof_that_it_is_there(server: FakeS3, objects: S3Objects) -> None:
    server.trouble = [Trouble("PUT", "a", "409")]
    objects.put("a", b"ours", if_absent=True)
    assert content(objects, "a") == b"ours"


def test_a_body_that_is_cut_is_no_short_object(server: FakeS3, objects: S3Objects) -> None:
    objects.put("a", b"0123456789" * 100_000)
    server.trouble = [Trouble("GET", "a", "short")] * 20
    with pytest.raises(ObjectStoreUnavailable) as raised:
        content(objects, "a")
    assert not is_permanent(raised.value)


@pytest.mark.parametrize("patience", [1.0])
def test_a_silent_server_is_given_up(server: FakeS3, objects: S3Objects) -> None:
    server.trouble = [Trouble("GET", "a", "hang")] * 20 + [Trouble("POST", "a", "hang")] * 20
    for ask in (lambda: objects.get("a"), lambda: objects.upload("a")):
        with pytest.raises(ObjectStoreUnavailable) as raised:
            ask()
        assert not is_permanent(raised.value)
        assert not is_not_found(raised.value)


def test_no_server_at_all() -> None:
    with S3Objects(
        "bucket", endpoint="http://127.0.0.1:1", credentials=S3Credentials("key", "hidden"), tries=2
    ) as objects:
        asked: list[Callable[[], object]] = [
            lambda: objects.put("a", b""),
            lambda: objects.get("a"),
            lambda: list(objects.list()),
            lambda: objects.upload("a"),
            lambda: objects.capabilities,
        ]
        for ask in asked:
            with pytest.raises(ObjectStoreUnavailable) as raised:
                ask()
            assert not is_permanent(raised.value)


def test_what_the_data_raise_passes_even_if_it_looks_like_the_servers_error(objects: S3Objects) -> None:
    def missing() -> Iterator[bytes]:
        yield b"x" * LARGE
        raise FileNotFoundError("the caller's own")

    with pytest.raises(FileNotFoundError, match="the caller's own"):
        objects.put("a", missing())
    with pytest.raises(FileNotFoundError, match="the caller's own"):
        objects.put("a", missing(), if_absent=True)
    with pytest.raises(ObjectNotFound):
        objects.head("a")


def test_a_failed_conditional_stream_leaves_no_upload(server: FakeS3, objects: S3Objects) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * LARGE
        raise EOFError

    with pytest.raises(EOFError):
        objects.put("a", broken(), if_absent=True)
    assert server.uploads == {}


def test_wrong_credentials_say_so_and_show_nothing(s3_server: SeaweedServer, s3_bucket: str) -> None:
    secret = "not-the-secret-at-all"
    with S3Objects(
        s3_bucket, endpoint=s3_server.endpoint, credentials=S3Credentials("testkey", secret, "session-token")
    ) as objects:
        asked: list[Callable[[], object]] = [lambda: objects.put("a", b""), lambda: objects.upload("a")]
        for ask in asked:
            with pytest.raises(ObjectsError) as raised:
                ask()
            assert raised.value.code == "objects-denied"
            assert is_permanent(raised.value)
            for shown in (
                repr(objects),
                str(raised.value),
                repr(raised.value.__cause__),
                repr(vars(objects)),
                repr(vars(objects._bucket)),
            ):
                assert secret not in shown
                assert "session-token" not in shown


def test_a_bucket_that_is_not_there(rclone_s3_server: RcloneS3Server) -> None:
    known = rclone_s3_server.credentials
    credentials = S3Credentials(known.access_key, known.secret_key)
    with S3Objects("no-such-bucket", endpoint=rclone_s3_server.endpoint, credentials=credentials) as objects:
        unknown: list[Callable[[], object]] = [lambda: objects.put("a", b""), lambda: objects.head("a")]
        for ask in unknown:
            with pytest.raises((ObjectRequestRefused, ObjectNotFound)) as raised:
                ask()
            assert is_permanent(raised.value)


def test_objects_survive_the_death_of_the_server() -> None:
    with SeaweedServer() as server:
        bucket = server.create_bucket()
        credentials = S3Credentials(server.credentials.access_key, server.credentials.secret_key)
        with S3Objects(bucket, endpoint=server.endpoint, credentials=credentials, tries=8) as objects:
            with objects.upload("b", keep=True) as upload:
                upload.put_part(1, b"x" * 5 * 1024 * 1024)
            objects.put("a", b"acknowledged")
            server.kill()
            server.start()
            assert content(objects, "a") == b"acknowledged"
            with objects.upload("b", resume=upload.id) as again:
                again.put_part(2, b"end")
                assert again.complete().size == 5 * 1024 * 1024 + 3


def test_the_digest_is_kept_in_the_metadata(s3_server: SeaweedServer, s3_bucket: str) -> None:
    credentials = S3Credentials(s3_server.credentials.access_key, s3_server.credentials.secret_key)
    with S3Objects(s3_bucket, endpoint=s3_server.endpoint, credentials=credentials) as objects:
        small = objects.put("small", b"data")
        assert objects.head("small").sha256 == small.sha256
        large = b"x" * LARGE
        streamed = objects.put("large", iter([large]))
        assert objects.head("large").sha256 is None  # it was not known before the last byte had gone
        objects.put("known", iter([large]), sha256=streamed.sha256)
        assert objects.head("known").sha256 == streamed.sha256
        assert objects.copy("known", "copied").sha256 == streamed.sha256


def test_what_is_listed_are_names(s3_server: SeaweedServer, s3_bucket: str) -> None:
    """What others put into the bucket, and cannot be named here, does not show."""
    client = s3_server.bucket(s3_bucket)
    client.put("pre/ok", b"")
    client.put("prefix", b"")
    client.put("pre/.waybill/left", b"")
    credentials = S3Credentials(s3_server.credentials.access_key, s3_server.credentials.secret_key)
    with S3Objects(s3_bucket, "pre/", endpoint=s3_server.endpoint, credentials=credentials) as objects:
        assert [info.name for info in objects.list()] == ["ok"]
        assert objects.sweep(older_than=3600).files == 0
        assert objects.sweep(older_than=-3600).files == 1
        assert sorted(meta["path"] for page in client.list() for meta in page) == ["pre/ok", "prefix"]


def test_sweep_leaves_the_uploads_of_others(s3_server: SeaweedServer, s3_bucket: str) -> None:
    credentials = S3Credentials(s3_server.credentials.access_key, s3_server.credentials.secret_key)
    ours = S3Objects(s3_bucket, "ours", endpoint=s3_server.endpoint, credentials=credentials)
    theirs = S3Objects(s3_bucket, "ours-too", endpoint=s3_server.endpoint, credentials=credentials)
    with ours, theirs:
        uploads = [objects.upload("a", keep=True) for objects in (ours, theirs)]
        assert ours.sweep(older_than=-3600).uploads == 1
        with pytest.raises(ObjectNotFound):
            ours.upload("a", resume=uploads[0].id)
        theirs.upload("a", resume=uploads[1].id)


def test_parts_are_as_large_as_they_must_be() -> None:
    assert choose_part_size(None) == choose_part_size(1) == 16 * 1024 * 1024
    assert choose_part_size(10**12) * 10_000 >= 10**12
    assert list(split_parts(iter([b"abc", b"d", b"efgh"]), 3)) == [b"abc", b"def", b"gh"]
    assert list(split_parts(iter([]), 3)) == []
    with pytest.raises(ObjectRequestRefused, match="pass its size"):
        list(limit_size(iter([b"x" * 6_000] * 2), 1))


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ObjectRequestRefused, match="too long"):
        S3Objects("bucket", "p" * 101)


def test_credentials_that_change_are_asked_for(server: FakeS3) -> None:
    asked = 0

    def changing() -> S3Credentials:
        nonlocal asked
        asked += 1
        return S3Credentials(f"key{asked}", "secret")

    with S3Objects("bucket", endpoint=server.endpoint, credentials=changing) as objects:
        assert asked == 0
        objects.put("a", b"")
        assert asked >= 1
        with objects.upload("b") as upload:  # ours are asked for with each request
            before = asked
            upload.put_part(1, b"x")
            assert asked > before
