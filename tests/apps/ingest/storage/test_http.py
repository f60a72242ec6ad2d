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

from tests.apps.ingest.site import Site
from tests.apps.ingest.steps import yard as jobs
from tests.apps.ingest.storage.yard import ARK, Bytes, said_by_validator, sha256
from tests.http.yard import served
from waybill.apps.ingest.duties import Staged
from waybill.apps.ingest.duties import staged as staged_duty
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.storage import FileToStore, Late, NotStorable, NotStored, Stored, wire
from waybill.apps.ingest.storage import counter as counter_module
from waybill.apps.ingest.storage.counter import Counter, place_of
from waybill.apps.ingest.storage.http import TOKEN, Away, HttpStorage
from waybill.apps.ingest.storage.served import PREFIX
from waybill.apps.ingest.storage.wire import STAGED
from waybill.duties import Hand, a_round
from waybill.http import create_app
from waybill.objects import Damaged, Directory, NotFound
from waybill.objects.streams import portions
from waybill.record import Finding
from waybill.tokens import issue


class Store:
    """A Waybill that stores for others."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.app = create_app(site.depot)
        self.address = ""
        with site.engine() as engine:
            self.tokens = {role: issue(engine, role, role).token for role in ("reader", "operator")}

    @property
    def root(self) -> Path:
        assert isinstance(self.site.depot.objects, Directory)
        return self.site.depot.objects.root / "ocfl"

    def staged(self) -> list[str]:
        return [info.name for info in self.site.depot.objects.list(STAGED)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Site(tmp_path / "store") as site:
        store = Store(site)
        with served(store) as url:
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
    with storage.manifest(stored) as reader:
        assert reader.header.about["about"] == {"title": "Hunt"}
        found = {entry.uri: entry for entry in reader}
    assert set(found) == set(files)
    for path, data in files.items():
        with storage.read(ARK, found[path].extra["place"]) as body:
            assert body.info.size == len(data)
            assert body.read() == data
        with storage.open(ARK, path) as body:
            assert body.read() == data
    with storage.open(ARK, "producer/a.txt", 1, start=1, end=3) as body:
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
    assert storage.look(ARK, "r1") == first
    assert storage.look(ARK, "r2") is None
    assert storage.stored(ARK) == first
    assert [version.request for version in storage.versions(ARK)] == ["r1"]


def test_an_update_keeps_and_deletes(storage: HttpStorage, sources: Bytes) -> None:
    storage.write(sources.deposit("r1", {"producer/a": b"1", "producer/b": b"2", "producer/c": b"3"}))
    stored = storage.write(sources.deposit("r2", {"producer/a": b"new"}, mode="update", deletions=["producer/b"]))
    with storage.manifest(stored) as reader:
        assert [entry.uri for entry in reader] == ["producer/a", "producer/c"]


def test_what_was_found_damaged_there_is_written_again_from_a_deposit_that_brings_it(
    store: Store, storage: HttpStorage, sources: Bytes
) -> None:
    with storage.manifest(storage.write(sources.deposit("r1", {"producer/a": b"1", "producer/b": b"2"}))) as reader:
        places = {entry.uri: str(entry.extra["place"]) for entry in reader}
    for place in places.values():
        (name,) = (info.name for info in store.site.depot.objects.list("ocfl") if info.name.endswith(place))
        store.site.depot.objects.put(name, b"rot")
    storage.write(
        sources.deposit("r2", {"producer/c": b"1"}, mode="update", damaged=[*places.values(), "../elsewhere"])
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
    with pytest.raises(NotStorable, match="is to be deleted"):
        storage.write(sources.deposit("r1", {"producer/a": b"1"}, mode="update", deletions=["producer/zzz"]))
    assert store.staged() == [], "nobody will ask for it again"
    with pytest.raises(NotStored, match="There is no object"):
        storage.versions("ark:/99999/fk4none")
    with pytest.raises(NotStored):
        list(storage.verify("ark:/99999/fk4none"))
    with pytest.raises(NotStored):
        storage.open(ARK, "producer/a")
    storage.write(sources.deposit("r2", {"producer/a": b"1"}))
    with pytest.raises(NotFound):
        storage.read(ARK, "v9/content/none")
    with pytest.raises(NotStorable, match="no place"):
        storage.read(ARK, "../../../ingest/payloads/x")


def test_bytes_that_are_not_what_was_promised_are_damaged(store: Store, storage: HttpStorage, sources: Bytes) -> None:
    for held in (b"ONE", b"on", b"one and more"):
        deposit = sources.deposit("r1", {"producer/a": b"one"})
        sources.held[sha256(b"one")] = held
        with pytest.raises(Damaged):
            storage.write(deposit)
    assert store.staged() == []
    assert storage.look(ARK, "r1") is None


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
    (store.root / next(iter(storage.objects()))[0] / "inventory.json.sha512").unlink()
    assert storage.recover(ARK).mended == ("inventory.json.sha512",)
    assert [object_id for _, object_id in storage.objects()] == [ARK]
    assert stored.version == 1


def test_objects_come_in_pages(
    store: Store, storage: HttpStorage, sources: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"ark:/99999/fk4{number}" for number in range(5)}
    for name in names:
        storage.write(sources.deposit("r", {"producer/a": b"1"}, object_id=name))
    ask = storage._ask
    monkeypatch.setattr(
        storage, "_ask", lambda method, path, asked, kind: ask(method, path, {**asked, "limit": 2}, kind)
    )
    assert {object_id for _, object_id in storage.objects()} == names


def test_a_token_is_needed_and_its_role(store: Store, sources: Bytes) -> None:
    for token in ("", "wb_wrong", store.tokens["reader"]):
        storage = HttpStorage(store.address, token, sources)
        with pytest.raises(Away, match=TOKEN):
            storage.write(sources.deposit("r1", {"producer/a": b"1"}))
        storage.close()
    reader = HttpStorage(store.address, store.tokens["reader"], sources)
    assert reader.look(ARK, "r1") is None
    reader.close()


def test_a_token_is_not_sent_in_the_clear(sources: Bytes) -> None:
    with pytest.raises(NotStorable, match="https"):
        HttpStorage("http://store.example.org/api/v1/ingest/storage", "secret", sources)
    with pytest.raises(NotStorable, match="without user name"):
        HttpStorage("https://ann:secret@store.example.org", "", sources)


def test_a_service_that_is_away_or_something_else_is_worth_another_try(
    store: Store, storage: HttpStorage, sources: Bytes
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = HttpStorage(f"http://127.0.0.1:{free.getsockname()[1]}", "", sources)
        with pytest.raises(Away, match="cannot be reached"):
            gone.look(ARK, "r1")
        gone.close()
    other = HttpStorage(f"{store.site.web.url}/x", "", sources)
    with pytest.raises(Away, match="is its URL right"):
        other.look(ARK, "r1")
    store.site.web.put("x/bytes?object=o&place=p&start=0", b"hello")
    with pytest.raises(Away, match="is its URL right"):
        other.read("o", "p")
    other.close()


def test_an_answer_that_is_lost_loses_nothing(
    store: Store, storage: HttpStorage, sources: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Counter.write
    lost = threading.Event()

    def slow(self: Counter, object_id: str, request: str, portions: Iterator[bytes]) -> Stored:
        answer = write(self, object_id, request, portions)
        if not lost.is_set():
            lost.set()
            raise ConnectionError("the process died before it could answer")
        return answer

    monkeypatch.setattr(Counter, "write", slow)
    with pytest.raises(Away):
        storage.write(sources.deposit("r1", {"producer/a": b"1"}))
    assert storage.write(sources.deposit("r1", {"producer/a": b"1"})).version == 1
    assert len(storage.versions(ARK)) == 1


def test_two_requests_for_one_object_do_not_write_at_once(store: Store, sources: Bytes, tmp_path: Path) -> None:
    within, go_on = threading.Event(), threading.Event()
    counter = Counter(store.site.depot.objects, "ocfl", "sha512")

    def slow() -> Iterator[bytes]:
        within.set()
        go_on.wait(60)
        yield b"".join(wire.lines_of(wire.Head(), []))

    def first() -> None:
        with pytest.raises(NotStorable):
            counter.write(ARK, "r1", slow())

    thread = threading.Thread(target=first)
    thread.start()
    assert within.wait(60)
    with pytest.raises(Late, match="another request"):
        counter.write(ARK, "r2", iter([]))
    go_on.set()
    thread.join()
    with pytest.raises(NotStorable, match="first line"):
        counter.write(ARK, "r2", iter([]))  # free again


def test_what_a_client_left_behind_is_swept(store: Store) -> None:
    counter = Counter(store.site.depot.objects, "ocfl", "sha512")
    counter.staged.put(place_of(ARK, "r1"), sha256(b"one"), 3, iter([b"one"]))
    with sweeping(store) as hand:
        assert a_round(Staged(), hand) == 0, "its deposit may be under way"
        assert a_round(Staged(age=-1), hand) == 1
        assert not Staged(age=-1).mend(hand, Finding("x", f"{STAGED}/none", "", ""))
        assert not Staged(age=-1).mend(hand, Finding("x", "ocfl", "", ""))
    assert store.staged() == []
    line = msgspec.json.encode(("producer/a", 3, sha256(b"one"), "")) + b"\n"
    with pytest.raises(Late, match="have not come"):
        counter.write(ARK, "r1", iter([b"{}\n", line]))


def test_a_deposit_that_takes_days_to_come_keeps_its_first_bytes(store: Store) -> None:
    staged = Counter(store.site.depot.objects, "ocfl", "sha512").staged
    sending, left = place_of(ARK, "r1"), place_of(ARK, "r2")
    for place in (sending, left):
        for data in (b"one", b"two"):
            staged.put(place, sha256(data), 3, iter([data]))
    grow_old(store)
    staged.put(sending, sha256(b"now"), 3, iter([b"now"]))
    with sweeping(store) as hand:
        assert a_round(Staged(), hand) == 1
        assert {sha for sha, _ in staged.listed(sending)} == {sha256(data) for data in (b"one", b"two", b"now")}
        assert list(staged.listed(left)) == []
        grow_old(store)
        staged.put(sending, sha256(b"one"), 3, iter([b"one"]))  # sent again, and there already
        assert a_round(Staged(), hand) == 0
        assert len(list(staged.listed(sending))) == 3, "a sign is none of the bytes"
        grow_old(store)
        assert a_round(Staged(), hand) == 1
    assert store.staged() == []


def test_a_place_is_looked_at_again_before_it_goes_and_a_sweep_that_was_cut_is_finished(store: Store) -> None:
    staged = Counter(store.site.depot.objects, "ocfl", "sha512").staged
    place = place_of(ARK, "r1")
    for data in (b"one", b"two", b"six"):
        staged.put(place, sha256(data), 3, iter([data]))
    grow_old(store)
    with sweeping(store) as hand:
        (finding,) = Staged().check(hand)
        staged.sign(place)
        assert not Staged().mend(hand, finding), "somebody came between"
        assert len(store.staged()) == 4
        grow_old(store)
        stops = iter((False, True, True))
        hand.stop = lambda: next(stops)
        assert not Staged().mend(hand, finding)
        assert len(store.staged()) == 3
        hand.stop = lambda: False
        assert a_round(Staged(), hand) == 1
    assert store.staged() == []


def test_a_round_ends_between_two_places_and_the_next_goes_on_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_duty, "PORTION", 2)
    staged = Counter(store.site.depot.objects, "ocfl", "sha512").staged
    for number in range(3):
        for data in (b"one", b"two", b"six"):
            staged.put(place_of(ARK, f"r{number}"), sha256(data), 3, iter([data]))
    grow_old(store)
    with sweeping(store) as hand:
        for left in (6, 3, 0):
            assert a_round(Staged(), hand) == 1
            assert len(store.staged()) == left
            assert hand.memory[STAGED]
        assert a_round(Staged(), hand) == 0
        assert hand.memory[STAGED] == ""


def test_what_takes_long_leaves_signs_that_it_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = Counter(store.site.depot.objects, "ocfl", "sha512").staged
    place = place_of(ARK, "r1")
    staged.put(place, sha256(b"one"), 3, iter([b"one"]))
    grow_old(store)
    monkeypatch.setattr(counter_module, "_OFTEN", 1_100_000)  # a file and some of its portions
    with sweeping(store) as hand:

        def slowly() -> Iterator[bytes]:
            for _ in range(10):
                yield b"x" * 10_000
            assert a_round(Staged(), hand) == 0

        staged.put(place, sha256(b"x" * 100_000), 100_000, slowly())  # nothing of it is there before its end
        grow_old(store)
        with staged.source(f"staged:{place}/{sha256(b'x' * 100_000)}") as body:
            assert b"".join(portions(body)) == b"x" * 100_000
            assert a_round(Staged(), hand) == 0, "a version is being made of it"
        grow_old(store)
        with pytest.raises(NotStorable):
            Counter(store.site.depot.objects, "ocfl", "sha512").write(ARK, "r1", iter([b"no deposit\n"]))
        assert a_round(Staged(), hand) == 0, "the client is there"


def test_bytes_that_went_meanwhile_are_sent_again_by_the_next_try(
    store: Store, storage: HttpStorage, sources: Bytes
) -> None:
    deposit = sources.deposit("r1", {"producer/a": b"one", "producer/b": b"two"})
    calls = iter(range(10))

    def sweep() -> None:
        if next(calls) == 2:  # before the deposit itself is sent
            for name in store.staged():
                store.site.depot.objects.delete(name)

    with pytest.raises(Late, match="send them"):
        storage.write(deposit, check=sweep)
    assert storage.write(deposit).version == 1


@contextmanager
def sweeping(store: Store) -> Iterator[Hand]:
    with store.site.engine() as engine:
        yield Hand(engine.store, engine.machines, "h", store.site.root, store.site.depot.objects)


def grow_old(store: Store) -> None:
    """What is staged was written two days before."""
    assert isinstance(store.site.depot.objects, Directory)
    for file in (store.site.depot.objects.root / STAGED).rglob("*"):
        if file.is_file():
            os.utime(file, (file.stat().st_mtime - 2 * 86400,) * 2)


def test_jobs_are_stored_with_the_service_that_the_settings_name(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, store.tokens["operator"])
    settings = {"outside": ["Notify"], "storage": {"url": store.address}}
    with Site(tmp_path / "here", settings=settings) as site:
        jobs.add_profile(site, Profile(name="p", owner=jobs.OWNER))
        job = jobs.run(site, jobs.fetched(site, {"a.txt": b"hello"}, title="Hunt"))
        assert job.state == "Notify", job.message
        ark = job.docs["identifiers"]["primary_id"]
        assert jobs.files_of(site, ark)["producer/a.txt"] == b"hello"
        row = site.depot.outfit("job").inventory.file(ark, 1, "producer/a.txt")
        assert row["size"] == 5
        assert not list(site.depot.objects.list("ocfl"))
    assert said_by_validator(store.root) == (1, [])


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_whatever_comes_as_a_deposit_is_read_or_refused_with_a_sentence(portions: list[bytes]) -> None:
    with refused() as wrong:
        lines = wire.split_lines(portions)
        wire.read_head(next(lines, b""))
        for number, line in enumerate(lines, start=2):
            assert wire.SHA256.fullmatch(wire.read_file(line, number, "s:").sha256)
    assert all(str(error) for error in wrong)


@contextmanager
def refused() -> Iterator[list[NotStorable]]:
    wrong: list[NotStorable] = []
    try:
        yield wrong
    except NotStorable as error:
        wrong.append(error)


@given(
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.binary(min_size=32, max_size=32),
    st.text(max_size=20),
    st.integers(1, 50),
)
def test_a_deposit_is_read_as_it_was_written(path: str, size: int, digest: bytes, mime: str, cut: int) -> None:
    head = wire.Head(mode="update", deletions=("a\nb",), about={"title": "é\n"})
    data = b"".join(wire.lines_of(head, [FileToStore(path, size, digest.hex(), "anything", mime)]))
    first, second = wire.split_lines([data[:cut], data[cut:]])
    assert wire.read_head(first) == head
    assert wire.read_file(second, 2, "s:") == FileToStore(path, size, digest.hex(), f"s:{digest.hex()}", mime)
