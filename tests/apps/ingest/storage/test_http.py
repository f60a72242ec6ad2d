"""A storage service over HTTP: one Waybill stores for another.

The server is real, with its tokens, and so is what goes wrong.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps import downloaded_jobs as jobs
from tests.apps.ingest.storage.yard import ARK, Bytes, said_by_validator, sha256
from tests.http.api_fixture import run_server
from waybill.apps.ingest.maintenance import StagingRemovalRoutine
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.storage import (
    ConcurrentWrite,
    FileToStore,
    InvalidDeposit,
    NotInStorage,
    StorageDamaged,
    StoredVersion,
    protocol,
)
from waybill.apps.ingest.storage.http_client import TOKEN_VARIABLE, HttpStorage
from waybill.apps.ingest.storage.http_server import PREFIX, DepositReceiver, staging_place_of
from waybill.apps.ingest.storage.protocol import STAGED_PREFIX
from waybill.files import staged_content as counter_module
from waybill.files import unneeded_objects
from waybill.http import create_app
from waybill.maintenance import MaintenanceContext, run_round
from waybill.objects import ContentMismatch, DirectoryObjects, ObjectBody, ObjectNotFound
from waybill.objects.streams import iter_chunks
from waybill.record import Finding
from waybill.tokens import issue
from waybill.transfer.address_policy import TransferError


class Store:
    """A Waybill that stores for others."""

    def __init__(self, ingest: IngestFixture) -> None:
        self.ingest = ingest
        self.app = create_app(ingest.environment)
        self.address = ""
        with ingest.engine() as engine:
            self.tokens = {role: issue(engine, role, role).token for role in ("reader", "operator")}

    @property
    def root(self) -> Path:
        assert isinstance(self.ingest.environment.objects, DirectoryObjects)
        return self.ingest.environment.objects.root / "ocfl"

    def staged(self) -> list[str]:
        return [info.name for info in self.ingest.environment.objects.list(STAGED_PREFIX)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with IngestFixture(tmp_path / "store") as ingest:
        store = Store(ingest)
        with run_server(store) as url:
            store.address = url + PREFIX
            yield store


@pytest.fixture
def sources() -> Bytes:
    return Bytes()


@pytest.fixture
def storage(store: Store, sources: Bytes) -> Iterator[HttpStorage]:
    storage = HttpStorage(store.address, store.tokens["operator"], sources, timeout=60.0)
    yield storage
    storage.close()


def test_a_deposit_becomes_a_version_there(store: Store, storage: HttpStorage, sources: Bytes) -> None:
    files = {"producer/a.txt": b"hello", "producer/é|b": b"", "producer/large": b"x" * 3_000_000}
    stored = storage.write(sources.deposit("r1", files, about={"title": "Hunt"}))
    assert (stored.object, stored.version, stored.request) == (ARK, 1, "r1")
    with storage.open_manifest(stored) as reader:
        assert reader.header.about["about"] == {"title": "Hunt"}
        found = {entry.uri: entry for entry in reader}
    assert set(found) == set(files)
    for path, data in files.items():
        with storage.read(ARK, found[path].extra["place"]) as body:
            assert body.info.size == len(data)
            assert body.read() == data
        with storage.open_file(ARK, path) as body:
            assert body.read() == data
    with storage.open_file(ARK, "producer/a.txt", 1, start=1, end=3) as body:
        assert body.read() == b"el"
    assert store.staged() == []  # nothing is left of what was sent
    assert said_by_validator(store.root) == (1, [])


def test_a_deposit_that_is_sent_again_makes_no_second_version_and_sends_nothing(
    storage: HttpStorage, sources: Bytes
) -> None:
    first = storage.write(sources.deposit("r1", {"producer/a": b"1"}))
    opened = dict(sources.opened)
    assert storage.write(sources.deposit("r1", {"producer/a": b"1"})) == first
    assert sources.opened == opened
    assert storage.find_by_request(ARK, "r1") == first
    assert storage.find_by_request(ARK, "r2") is None
    assert storage.get_version(ARK) == first
    assert [version.request for version in storage.list_versions(ARK)] == ["r1"]


def test_an_update_keeps_and_deletes(storage: HttpStorage, sources: Bytes) -> None:
    storage.write(sources.deposit("r1", {"producer/a": b"1", "producer/b": b"2", "producer/c": b"3"}))
    stored = storage.write(sources.deposit("r2", {"producer/a": b"new"}, mode="update", deletions=["producer/b"]))
    with storage.open_manifest(stored) as reader:
        assert [entry.uri for entry in reader] == ["producer/a", "producer/c"]


def test_what_was_found_damaged_there_is_written_again_from_a_deposit_that_brings_it(
    store: Store, storage: HttpStorage, sources: Bytes
) -> None:
    with storage.open_manifest(
        storage.write(sources.deposit("r1", {"producer/a": b"1", "producer/b": b"2"}))
    ) as reader:
        places = {entry.uri: str(entry.extra["place"]) for entry in reader}
    for place in places.values():
        (name,) = (info.name for info in store.ingest.environment.objects.list("ocfl") if info.name.endswith(place))
        store.ingest.environment.objects.put(name, b"rot")
    storage.write(
        sources.deposit("r2", {"producer/c": b"1"}, mode="update", damaged_places=[*places.values(), "../elsewhere"])
    )
    assert storage.check(ARK, places["producer/a"], 1, sha256(b"1")) is None
    assert storage.check(ARK, places["producer/b"], 1, sha256(b"2")) is not None


def test_bytes_that_have_come_are_not_sent_again(store: Store, storage: HttpStorage, sources: Bytes) -> None:
    deposit = sources.deposit("r1", {"producer/a": b"one", "producer/b": b"two"})

    def stop(times: list[int] = []) -> None:  # noqa: B006 - counts on purpose
        times.append(1)
        if len(times) == 3:  # before the deposit itself is sent
            raise InterruptedError

    with pytest.raises(InterruptedError):
        storage.write(deposit, check=stop)
    assert len(store.staged()) == 2
    opened = dict(sources.opened)
    storage.write(deposit)
    assert sources.opened == opened
    assert store.staged() == []


def test_what_is_refused_there_is_refused_here(store: Store, storage: HttpStorage, sources: Bytes) -> None:
    with pytest.raises(InvalidDeposit, match="is to be deleted"):
        storage.write(sources.deposit("r1", {"producer/a": b"1"}, mode="update", deletions=["producer/zzz"]))
    assert store.staged() == [], "nobody will ask for it again"
    with pytest.raises(NotInStorage, match="There is no object"):
        storage.list_versions("ark:/99999/fk4none")
    with pytest.raises(NotInStorage):
        list(storage.verify("ark:/99999/fk4none"))
    with pytest.raises(NotInStorage):
        storage.open_file(ARK, "producer/a")
    storage.write(sources.deposit("r2", {"producer/a": b"1"}))
    with pytest.raises(ObjectNotFound):
        storage.read(ARK, "v9/content/none")
    with pytest.raises(InvalidDeposit, match="not a place"):
        storage.read(ARK, "../../../ingest/payloads/x")


@pytest.mark.parametrize("place", ["a\0b", "v1\\x", "a//b", "../x", "x\n"])
def test_what_is_no_place_is_refused_with_a_sentence(store: Store, storage: HttpStorage, place: str) -> None:
    with pytest.raises(InvalidDeposit, match="not a place"):
        storage.read(ARK, place)
    with pytest.raises(InvalidDeposit, match="not a place"):
        storage.check(ARK, place, 1, sha256(b"x"))


@pytest.mark.parametrize("size", [3, 9_000_000])
@pytest.mark.parametrize("damage", ["forged", "truncated"])
def test_damaged_bytes_are_not_sent_as_if_they_were_whole(
    store: Store, storage: HttpStorage, sources: Bytes, size: int, damage: str
) -> None:
    content = b"x" * size
    storage.write(sources.deposit("r1", {"producer/a": content}))
    place = f"v1/content/{sha256(content)}"
    file = next(store.root.rglob(sha256(content)))
    file.chmod(0o644)
    file.write_bytes(content[:-1] + b"y" if damage == "forged" else content[:-1])

    def read_all(body: ObjectBody) -> bytes:
        with body:
            return body.read()

    for read in (lambda: read_all(storage.read(ARK, place)), lambda: read_all(storage.open_file(ARK, "producer/a"))):
        with pytest.raises((StorageDamaged, TransferError)):
            read()
    if size == 3:
        with pytest.raises(StorageDamaged):
            storage.read(ARK, place, start=1)


def test_bytes_that_are_not_what_was_promised_are_damaged(store: Store, storage: HttpStorage, sources: Bytes) -> None:
    for held in (b"ONE", b"on", b"one and more"):
        deposit = sources.deposit("r1", {"producer/a": b"one"})
        sources.held[sha256(b"one")] = held
        with pytest.raises(ContentMismatch):
            storage.write(deposit)
    assert store.staged() == []
    assert storage.find_by_request(ARK, "r1") is None


def test_audits_and_recovery_go_through(store: Store, storage: HttpStorage, sources: Bytes) -> None:
    stored = storage.write(sources.deposit("r1", {"producer/a": b"one"}))
    place = f"v1/content/{sha256(b'one')}"
    assert storage.check(ARK, place, 3, sha256(b"one")) is None
    assert list(storage.verify(ARK)) == []
    next(store.root.rglob(sha256(b"one"))).write_bytes(b"ONE")
    found = storage.check(ARK, place, 3, sha256(b"one"))
    assert found is not None
    assert found.kind == "changed"
    assert [finding.kind for finding in storage.verify(ARK)] == ["changed"]
    (store.root / next(iter(storage.list_objects()))[0] / "inventory.json.sha512").unlink()
    assert storage.recover(ARK).repaired_places == ("inventory.json.sha512",)
    assert [object_id for _, object_id in storage.list_objects()] == [ARK]
    assert stored.version == 1


def test_objects_come_in_pages(
    store: Store, storage: HttpStorage, sources: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"ark:/99999/fk4{number}" for number in range(5)}
    for name in names:
        storage.write(sources.deposit("r", {"producer/a": b"1"}, object_id=name))
    ask = storage._request
    monkeypatch.setattr(
        storage, "_request", lambda method, path, asked, kind: ask(method, path, {**asked, "limit": 2}, kind)
    )
    assert {object_id for _, object_id in storage.list_objects()} == names


def test_a_token_is_needed_and_its_role(store: Store, sources: Bytes) -> None:
    for token in ("", "wb_wrong", store.tokens["reader"]):
        storage = HttpStorage(store.address, token, sources)
        with pytest.raises(TransferError, match=TOKEN_VARIABLE):
            storage.write(sources.deposit("r1", {"producer/a": b"1"}))
        storage.close()
    reader = HttpStorage(store.address, store.tokens["reader"], sources)
    assert reader.find_by_request(ARK, "r1") is None
    reader.close()


def test_a_token_is_not_sent_in_the_clear(sources: Bytes) -> None:
    with pytest.raises(InvalidDeposit, match="https"):
        HttpStorage("http://store.example.org/api/v1/ingest/storage", "secret", sources)
    with pytest.raises(InvalidDeposit, match="without user name"):
        HttpStorage("https://ann:secret@store.example.org", "", sources)


def test_a_service_that_is_away_or_something_else_is_worth_another_try(
    store: Store, storage: HttpStorage, sources: Bytes
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = HttpStorage(f"http://127.0.0.1:{free.getsockname()[1]}", "", sources)
        with pytest.raises(TransferError, match="cannot be reached"):
            gone.find_by_request(ARK, "r1")
        gone.close()
    other = HttpStorage(f"{store.ingest.web.url}/x", "", sources)
    with pytest.raises(TransferError, match="is its URL right"):
        other.find_by_request(ARK, "r1")
    store.ingest.web.put("x/bytes?object=o&place=p&start=0", b"hello")
    with pytest.raises(TransferError, match="is its URL right"):
        other.read("o", "p")
    other.close()


def test_an_answer_that_is_lost_loses_nothing(
    store: Store, storage: HttpStorage, sources: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = DepositReceiver.write
    lost = threading.Event()

    def slow(self: DepositReceiver, object_id: str, request: str, chunks: Iterator[bytes]) -> StoredVersion:
        answer = write(self, object_id, request, chunks)
        if not lost.is_set():
            lost.set()
            raise ConnectionError("the process died before it could answer")
        return answer

    monkeypatch.setattr(DepositReceiver, "write", slow)
    with pytest.raises(TransferError):
        storage.write(sources.deposit("r1", {"producer/a": b"1"}))
    assert storage.write(sources.deposit("r1", {"producer/a": b"1"})).version == 1
    assert len(storage.list_versions(ARK)) == 1


def test_two_requests_for_one_object_do_not_write_at_once(store: Store, sources: Bytes, tmp_path: Path) -> None:
    within, go_on = threading.Event(), threading.Event()
    counter = DepositReceiver(store.ingest.environment.objects, "ocfl", "sha512")

    def slow() -> Iterator[bytes]:
        within.set()
        go_on.wait(60)
        yield b"".join(protocol.encode_deposit(protocol.DepositHead(), []))

    def first() -> None:
        with pytest.raises(InvalidDeposit):
            counter.write(ARK, "r1", slow())

    thread = threading.Thread(target=first)
    thread.start()
    assert within.wait(60)
    with pytest.raises(ConcurrentWrite, match="another request"):
        counter.write(ARK, "r2", iter([]))
    go_on.set()
    thread.join()
    with pytest.raises(InvalidDeposit, match="first line"):
        counter.write(ARK, "r2", iter([]))  # free again


def test_what_a_client_left_behind_is_swept(store: Store) -> None:
    counter = DepositReceiver(store.ingest.environment.objects, "ocfl", "sha512")
    counter.staged_content.put(staging_place_of(ARK, "r1"), sha256(b"one"), 3, iter([b"one"]))
    with sweeping(store) as hand:
        assert run_round(StagingRemovalRoutine(), hand) == 0, "its deposit may be under way"
        assert run_round(StagingRemovalRoutine(age=-1), hand) == 1
        assert not StagingRemovalRoutine(age=-1).repair(hand, Finding("x", f"{STAGED_PREFIX}/none", "", ""))
        assert not StagingRemovalRoutine(age=-1).repair(hand, Finding("x", "ocfl", "", ""))
    assert store.staged() == []
    line = msgspec.json.encode(("producer/a", 3, sha256(b"one"), "")) + b"\n"
    with pytest.raises(ConcurrentWrite, match="is not staged"):
        counter.write(ARK, "r1", iter([b"{}\n", line]))


def test_a_deposit_that_takes_days_to_come_keeps_its_first_bytes(store: Store) -> None:
    staged = DepositReceiver(store.ingest.environment.objects, "ocfl", "sha512").staged_content
    sending, left = staging_place_of(ARK, "r1"), staging_place_of(ARK, "r2")
    for place in (sending, left):
        for data in (b"one", b"two"):
            staged.put(place, sha256(data), 3, iter([data]))
    grow_old(store)
    staged.put(sending, sha256(b"now"), 3, iter([b"now"]))
    with sweeping(store) as hand:
        assert run_round(StagingRemovalRoutine(), hand) == 1
        assert {sha for sha, _ in staged.list_files(sending)} == {sha256(data) for data in (b"one", b"two", b"now")}
        assert list(staged.list_files(left)) == []
        grow_old(store)
        staged.put(sending, sha256(b"one"), 3, iter([b"one"]))  # sent again, and there already
        assert run_round(StagingRemovalRoutine(), hand) == 0
        assert len(list(staged.list_files(sending))) == 3, "a sign is none of the bytes"
        grow_old(store)
        assert run_round(StagingRemovalRoutine(), hand) == 1
    assert store.staged() == []


def test_a_place_is_looked_at_again_before_it_goes_and_a_sweep_that_was_cut_is_finished(store: Store) -> None:
    staged = DepositReceiver(store.ingest.environment.objects, "ocfl", "sha512").staged_content
    place = staging_place_of(ARK, "r1")
    for data in (b"one", b"two", b"six"):
        staged.put(place, sha256(data), 3, iter([data]))
    grow_old(store)
    with sweeping(store) as hand:
        (finding,) = StagingRemovalRoutine().check(hand)
        staged.touch(place)
        assert not StagingRemovalRoutine().repair(hand, finding), "somebody came between"
        assert len(store.staged()) == 4
        grow_old(store)
        stops = iter((False, True, True))
        hand.stop = lambda: next(stops)
        assert not StagingRemovalRoutine().repair(hand, finding)
        assert len(store.staged()) == 3
        hand.stop = lambda: False
        assert run_round(StagingRemovalRoutine(), hand) == 1
    assert store.staged() == []


def test_a_round_ends_between_two_places_and_the_next_goes_on_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unneeded_objects, "ROUND_SIZE", 2)
    staged = DepositReceiver(store.ingest.environment.objects, "ocfl", "sha512").staged_content
    for number in range(3):
        for data in (b"one", b"two", b"six"):
            staged.put(staging_place_of(ARK, f"r{number}"), sha256(data), 3, iter([data]))
    grow_old(store)
    with sweeping(store) as hand:
        for left in (6, 3, 0):
            assert run_round(StagingRemovalRoutine(), hand) == 1
            assert len(store.staged()) == left
            assert hand.memory[STAGED_PREFIX]
        assert run_round(StagingRemovalRoutine(), hand) == 0
        assert hand.memory[STAGED_PREFIX] == ""


def test_what_takes_long_leaves_signs_that_it_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = DepositReceiver(store.ingest.environment.objects, "ocfl", "sha512").staged_content
    place = staging_place_of(ARK, "r1")
    staged.put(place, sha256(b"one"), 3, iter([b"one"]))
    grow_old(store)
    monkeypatch.setattr(counter_module, "_TOUCH_INTERVAL_BYTES", 1_100_000)  # a file and some of its chunks
    with sweeping(store) as hand:

        def slowly() -> Iterator[bytes]:
            for _ in range(10):
                yield b"x" * 10_000
            assert run_round(StagingRemovalRoutine(), hand) == 0

        staged.put(place, sha256(b"x" * 100_000), 100_000, slowly())  # nothing of it is there before its end
        grow_old(store)
        with staged.open(place, sha256(b"x" * 100_000)) as body:
            assert b"".join(iter_chunks(body)) == b"x" * 100_000
            assert run_round(StagingRemovalRoutine(), hand) == 0, "a version is being made of it"
        grow_old(store)
        with pytest.raises(InvalidDeposit):
            DepositReceiver(store.ingest.environment.objects, "ocfl", "sha512").write(
                ARK, "r1", iter([b"no deposit\n"])
            )
        assert run_round(StagingRemovalRoutine(), hand) == 0, "the client is there"


def test_bytes_that_went_meanwhile_are_sent_again_by_the_next_try(
    store: Store, storage: HttpStorage, sources: Bytes
) -> None:
    deposit = sources.deposit("r1", {"producer/a": b"one", "producer/b": b"two"})
    calls = iter(range(10))

    def sweep() -> None:
        if next(calls) == 2:  # before the deposit itself is sent
            for name in store.staged():
                store.ingest.environment.objects.delete(name)

    with pytest.raises(ConcurrentWrite, match="send it"):
        storage.write(deposit, check=sweep)
    assert storage.write(deposit).version == 1


@contextmanager
def sweeping(store: Store) -> Iterator[MaintenanceContext]:
    with store.ingest.engine() as engine:
        yield MaintenanceContext(
            engine.store, engine.machines, "h", store.ingest.root, store.ingest.environment.objects
        )


def grow_old(store: Store) -> None:
    """What is staged was written two days before."""
    assert isinstance(store.ingest.environment.objects, DirectoryObjects)
    for file in (store.ingest.environment.objects.root / STAGED_PREFIX).rglob("*"):
        if file.is_file():
            os.utime(file, (file.stat().st_mtime - 2 * 86400,) * 2)


def test_jobs_are_stored_with_the_service_that_the_settings_name(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, store.tokens["operator"])
    settings = {"external_states": ["Notify"], "storage": {"url": store.address}}
    with IngestFixture(tmp_path / "here", settings=settings) as ingest:
        jobs.add_profile(ingest, Profile(name="p", owner=jobs.OWNER))
        job = jobs.run(ingest, jobs.fetched(ingest, {"a.txt": b"hello"}, title="Hunt"))
        assert job.state == "Notify", job.message
        ark = job.documents["identifiers"]["primary_id"]
        assert jobs.files_of(ingest, ark)["producer/a.txt"] == b"hello"
        row = ingest.environment.resources_of("ingest").inventory.get_file(ark, 1, "producer/a.txt")
        assert row["size"] == 5
        assert not list(ingest.environment.objects.list("ocfl"))
    assert said_by_validator(store.root) == (1, [])


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_whatever_comes_as_a_deposit_is_read_or_refused_with_a_sentence(chunks: list[bytes]) -> None:
    with refused() as wrong:
        lines = protocol.split_lines(chunks)
        protocol.decode_head(next(lines, b""))
        for number, line in enumerate(lines, start=2):
            assert protocol.SHA256_PATTERN.fullmatch(protocol.decode_file(line, number, "s:").sha256)
    assert all(str(error) for error in wrong)


@contextmanager
def refused() -> Iterator[list[InvalidDeposit]]:
    wrong: list[InvalidDeposit] = []
    try:
        yield wrong
    except InvalidDeposit as error:
        wrong.append(error)


@given(
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.binary(min_size=32, max_size=32),
    st.text(max_size=20),
    st.integers(1, 50),
)
def test_a_deposit_is_read_as_it_was_written(path: str, size: int, digest: bytes, mime: str, cut: int) -> None:
    head = protocol.DepositHead(mode="update", deletions=("a\nb",), about={"title": "é\n"})
    data = b"".join(protocol.encode_deposit(head, [FileToStore(path, size, digest.hex(), "anything", mime)]))
    first, second = protocol.split_lines([data[:cut], data[cut:]])
    assert protocol.decode_head(first) == head
    assert protocol.decode_file(second, 2, "s:") == FileToStore(path, size, digest.hex(), f"s:{digest.hex()}", mime)
