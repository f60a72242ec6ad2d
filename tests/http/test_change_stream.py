"""Live changes on a real server: what is sent, what it costs, and how streams end."""

import asyncio
import http.client
import json
import queue
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest

from tests.http.api_fixture import ApiFixture, run_server
from tests.servers.process import wait_until
from waybill import accounts
from waybill.accounts import Grant
from waybill.environment import Environment
from waybill.http import change_feed
from waybill.http.change_feed import ChangeFeed, FeedTopic
from waybill.http.change_stream import ChangeStream, make_topic_reader
from waybill.http.errors import HttpProblem
from waybill.record import Ref, Store, StoreUnavailable
from waybill.step import New
from waybill.tokens import issue, revoke

API = "/api/v1"
WAIT = 120.0


class StreamReader:
    """A client of the stream: each event as (name, data); a comment as ("", text)."""

    def __init__(self, url: str, token: str, **params: str) -> None:
        self.heard: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=WAIT)
        self._path = f"{API}/changes?{urlencode(params)}"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> "StreamReader":
        self._connection.request("GET", self._path, headers=self._headers)
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        assert self._answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT)
        self._answer.close()
        self._connection.close()

    def _listen(self) -> None:
        name = ""
        with suppress(OSError, http.client.HTTPException):
            for raw in self._answer:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self.heard.put((name, json.loads(line.removeprefix("data: "))))
                elif line.startswith(":"):
                    self.heard.put(("", line.removeprefix(": ")))
        self.heard.put(None)

    def next(self, name: str, **wanted: Any) -> Any:
        """The next event of that name whose data has these values; others before it are passed over."""
        passed: list[object] = []
        deadline = time.monotonic() + WAIT
        while True:
            try:
                event = self.heard.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"waited for {name} {wanted}; heard {passed}") from None
            assert event is not None, f"the stream ended before {name} {wanted}"
            passed.append(event)
            if event[0] == name and (not wanted or wanted.items() <= event[1].items()):
                return event[1]

    def end(self) -> list[tuple[str, Any]]:
        """All that comes until the stream ends."""
        rest: list[tuple[str, Any]] = []
        while (event := self.heard.get(timeout=WAIT)) is not None:
            rest.append(event)
        return rest


@pytest.fixture
def url(api: ApiFixture) -> Iterator[str]:
    with run_server(api) as url:
        yield url


def counts(tally: dict[str, Any]) -> dict[str, int]:
    return {s["state"]: s["count"] for s in tally["states"] if s["count"]}


def test_a_stream_begins_with_the_present_and_tells_of_changes_of_this_and_other_processes(
    api: ApiFixture, url: str
) -> None:
    ref = api.submit()
    with StreamReader(url, api.tokens["reader"]) as stream:
        assert counts(stream.next("counts", kind="crate")) == {"Packing": 1}
        assert stream.next("holds") == {"holds": []}
        assert stream.next("sessions") == {"sessions": []}
        api.submit()  # past the server, as another process would
        assert counts(stream.next("counts", kind="crate")) == {"Packing": 2}
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {api.tokens['operator']}"}) as client:
            client.put(f"{API}/holds/road/north", json={"why": "snow"})
            assert stream.next("holds")["holds"][0]["name"] == "road/north"
            client.post(f"{API}/records/crate/{ref.id}/scrap", json={"confirmed": True})
        assert counts(stream.next("counts", kind="crate")) == {"Packing": 1, "Scrapped": 1}


def test_a_worker_that_is_gone_is_told_of(api: ApiFixture, url: str) -> None:
    with api.engine() as engine, StreamReader(url, api.tokens["reader"]) as stream:
        assert stream.next("sessions") == {"sessions": []}
        engine.store.open_session(host="h", ttl=3.0, about={})
        assert [session["expired"] for session in stream.next("sessions")["sessions"]] == [False]
        assert [session["expired"] for session in stream.next("sessions")["sessions"]] == [True]


def test_a_record_is_followed_by_its_version_and_its_progress(api: ApiFixture, url: str) -> None:
    ref = api.submit()
    with StreamReader(url, api.tokens["reader"], kind="crate", id=ref.id) as stream:
        assert stream.next("record")["state"] == "Packing"
        with api.worker(ref, {f"crate {ref.id}": [1, 4, "boxes", "Packing"]}):
            assert stream.next("record", progress={"done": 1, "total": 4, "unit": "boxes", "fraction": 0.25})["session"]
        api.fail(ref)
        assert stream.next("record", state="Failed")["message"] == "too heavy"
        with api.engine() as engine:
            engine.remove(ref)
        assert stream.next("record", removed=True)["id"] == ref.id


def test_a_stream_of_one_kind_or_of_one_parents_children_shows_only_those(api: ApiFixture, url: str) -> None:
    parent = api.submit()
    all_of_them = StreamReader(url, api.tokens["reader"], kind="box")
    with all_of_them as stream, StreamReader(url, api.tokens["reader"], kind="box", parent=f"crate:{parent.id}") as few:
        assert few.next("counts")["parent"] == {"kind": "crate", "id": parent.id}
        assert stream.next("counts")["kind"] == "box"
        api.submit()
        api.submit("box", {"way": {"road": "north"}}, id="b1")
        changed = stream.next("counts")
        assert (changed["kind"], counts(changed)) == ("box", {"Moving": 1})
    assert not [event for event in few.end() if event[0] == "counts"]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"id": "x"}, 400),
        ({"kind": "cart"}, 404),
        ({"kind": "crate", "id": "x", "parent": "crate:y"}, 400),
        ({"kind": "token"}, 403),
        ({"kind": "box", "parent": "crate"}, 400),
        ({"kind": "crate", "id": "a/b"}, 404),
    ],
)
def test_a_stream_of_nothing_is_refused(api: ApiFixture, url: str, params: dict[str, str], status: int) -> None:
    answer = httpx2.get(
        f"{url}{API}/changes", params=params, headers={"Authorization": f"Bearer {api.tokens['admin']}"}
    )
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message", "hint"}


def test_a_server_that_stops_ends_its_streams_and_says_so(api: ApiFixture) -> None:
    with run_server(api) as url:
        stream = StreamReader(url, api.tokens["reader"]).__enter__()
        stream.next("holds")
    assert stream.end()[-1] == ("", "the server is stopping")
    stream.__exit__()


def test_a_stream_ends_when_its_token_is_revoked(api: ApiFixture, url: str) -> None:
    api.app.state.services.change_feed._token_check_interval = 0.0
    with StreamReader(url, api.tokens["reader"]) as stream, StreamReader(url, api.tokens["operator"]) as other:
        stream.next("holds")
        with api.engine() as engine:
            revoke(engine, api.tokens["reader"].split("_")[1])
        assert stream.end()[-1] == ("", "the token is not valid any more, or allows something else: listen again")
        api.submit()
        assert counts(other.next("counts", kind="crate", total=1))


def test_a_stream_ends_when_what_it_may_show_has_changed(api: ApiFixture, url: str) -> None:
    api.app.state.services.change_feed._token_check_interval = 0.0
    with api.engine() as engine:
        accounts.create_user(engine, "ada", roles=[Grant("reader")])
        token = issue(engine, "laptop", "admin", user="ada").token
    with StreamReader(url, token) as stream:
        stream.next("holds")
        with api.engine() as engine:
            accounts.withdraw_role(engine, "ada", "reader")
        assert stream.end()[-1] == ("", "the token is not valid any more, or allows something else: listen again")


def test_who_may_not_see_all_hears_only_counts_of_what_they_may_see(api: ApiFixture, url: str) -> None:
    api.submit(owner="ada")
    api.submit(owner="bob")
    with api.engine() as engine:
        accounts.create_user(engine, "ada")
        token = issue(engine, "laptop", "admin", user="ada").token
    with StreamReader(url, token) as stream:
        counts = [stream.next("counts") for _ in ("crate", "box")]
        assert {each["kind"]: each["total"] for each in counts} == {"crate": 1, "box": 0}


def test_silence_is_broken_by_heartbeats(api: ApiFixture, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangeStream.__init__, "__defaults__", (0.05,))
    with StreamReader(url, api.tokens["reader"], kind="crate") as stream:
        while stream.heard.get(timeout=WAIT) != ("", "still here"):
            pass


# --- the feed by itself, with the reads of its store counted


class CountingStore:
    """A store that counts what is read of it. Everything is the real store's."""

    def __init__(self, store: Store, reads: list[str]) -> None:
        self._store, self._reads = store, reads

    def __getattr__(self, name: str) -> Any:
        if name in ("count_by_state", "get", "list_sessions", "list_holds"):
            self._reads.append(name)
        return getattr(self._store, name)


def make_feed(environment: Environment, reads: list[str] | None = None, **options: Any) -> ChangeFeed:
    def open_store() -> Any:
        return CountingStore(environment.open_store(), reads if reads is not None else [])

    return ChangeFeed(
        open_store,
        make_topic_reader(environment.machines),
        lambda store, token: True,
        **{"min_interval": 0.01, **options},
    )


async def hear(listener: change_feed.FeedListener, what: str) -> Any:
    while True:
        change = await asyncio.wait_for(listener.queue.get(), WAIT)
        assert change is not None
        if not isinstance(change, str) and change[0] == what:
            return json.loads(change[1])


def test_many_listeners_cost_one_read(environment: Environment) -> None:
    """Two hundred who look at the same thing read the store as often as one does."""

    async def reads_of(listeners: int) -> list[str]:
        reads: list[str] = []
        feed = make_feed(environment, reads, poll_interval=WAIT)
        topic = FeedTopic("counts", "crate")
        all_of_them = [feed.add_listener([topic], None) for _ in range(listeners)]
        for listener in all_of_them:
            await hear(listener, "counts")
        await asyncio.to_thread(_settled, feed)
        before = len(reads)
        await asyncio.to_thread(_submit, environment)
        for listener in all_of_them:
            assert (await hear(listener, "counts"))["total"] > 0
        await asyncio.to_thread(_settled, feed)
        seen = reads[before:]
        await asyncio.to_thread(feed.close)
        return seen

    alone, crowd = asyncio.run(reads_of(1)), asyncio.run(reads_of(200))
    assert set(crowd) == {"count_by_state"}
    assert len(crowd) <= len(alone) + 2  # a hint may come while a look is under way: then it looks once more


def _submit(environment: Environment) -> None:
    with closing(environment.open_store()) as store:
        environment.make_engine(store).submit(New("crate", {"label": {}}))


def _settled(feed: ChangeFeed) -> None:
    """Until the feed's thread waits for the store."""
    wait_until(lambda: not feed._has_hint and feed.is_watching.is_set(), "the feed to wait for the store")


def test_nobody_listening_costs_nothing(environment: Environment) -> None:
    async def scene() -> None:
        reads: list[str] = []
        feed = make_feed(environment, reads)
        await asyncio.to_thread(_submit, environment)
        feed.notify_changed()
        assert feed._thread is None
        listener = feed.add_listener([FeedTopic("counts", "crate")], None)
        await hear(listener, "counts")
        feed.remove_listener(listener)
        await asyncio.to_thread(wait_until, lambda: feed._store is None, "the feed to let go of its connection")
        before = len(reads)
        await asyncio.to_thread(_submit, environment)
        feed.notify_changed()
        assert feed._store is None
        assert len(reads) == before
        again = feed.add_listener([FeedTopic("counts", "crate")], None)
        assert (await hear(again, "counts"))["total"] == 2
        await asyncio.to_thread(feed.close)

    asyncio.run(scene())


def test_a_slow_reader_is_dropped_and_told(environment: Environment) -> None:
    async def scene() -> None:
        feed = make_feed(environment)
        listener = feed.add_listener([FeedTopic("holds")], None)
        for n in range(change_feed.MAX_QUEUED + 1):
            listener.enqueue(("holds", str(n).encode()))
        assert listener.has_ended
        assert listener.queue.qsize() == 2
        assert "too slow" in str(listener.queue.get_nowait())
        assert listener.queue.get_nowait() is None
        await asyncio.to_thread(feed.close)

    asyncio.run(scene())


def test_a_reader_who_takes_nothing_holds_nobody_up(api: ApiFixture, url: str) -> None:
    """A stream whose reader never reads, beside one that does."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        stuck.sendall(
            f"GET {API}/changes HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {api.tokens['reader']}\r\n\r\n".encode()
        )
        with StreamReader(url, api.tokens["reader"], kind="crate") as stream:
            for n in range(1, 4):
                api.submit()
                stream.next("counts", total=n)


def test_listeners_are_limited(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "MAX_LISTENERS", 2)

    async def scene() -> None:
        feed = make_feed(environment)
        first, _ = feed.add_listener([FeedTopic("holds")], None), feed.add_listener([FeedTopic("holds")], None)
        with pytest.raises(HttpProblem):
            feed.add_listener([FeedTopic("holds")], None)
        feed.remove_listener(first)
        feed.add_listener([FeedTopic("holds")], None)
        await asyncio.to_thread(feed.close)
        with pytest.raises(HttpProblem):
            feed.add_listener([FeedTopic("holds")], None)

    asyncio.run(scene())


def test_an_unavailable_store_is_reported_and_its_return_too(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "RETRY_INTERVAL", 0.01)
    unavailable = threading.Event()

    class FlakyStore(CountingStore):
        def __getattr__(self, name: str) -> Any:
            if unavailable.is_set() and name in ("count_by_state", "list_holds", "list_sessions"):
                raise StoreUnavailable
            return super().__getattr__(name)

    def open_store() -> Any:
        if unavailable.is_set():
            raise StoreUnavailable
        return FlakyStore(environment.open_store(), [])

    async def scene() -> None:
        feed = ChangeFeed(
            open_store,
            make_topic_reader(environment.machines),
            lambda store, token: True,
            min_interval=0.01,
            poll_interval=0.05,
        )
        listener = feed.add_listener([FeedTopic("counts", "crate")], None)
        await hear(listener, "counts")
        unavailable.set()
        assert await hear(listener, "store") == {"available": False}
        late = feed.add_listener([FeedTopic("counts", "crate")], None)
        assert await hear(late, "store") == {"available": False}
        unavailable.clear()
        assert await hear(listener, "store") == {"available": True}
        await asyncio.to_thread(_submit, environment)
        assert (await hear(listener, "counts"))["total"] == 1
        await asyncio.to_thread(feed.close)

    asyncio.run(scene())


def test_a_topic_of_an_id_that_never_was_is_told_as_removed(environment: Environment, tmp_path: Path) -> None:
    with closing(environment.open_store()) as store:
        topic = FeedTopic("record", *Ref("crate", "none"))
        assert make_topic_reader(environment.machines)(store, [topic])[topic] == {
            "kind": "crate",
            "id": "none",
            "removed": True,
        }


def test_a_damaged_record_is_told_to_those_who_listen_and_hides_nothing_else(environment: Environment) -> None:
    with closing(environment.open_store()) as store:
        damaged, sound = (environment.make_engine(store).submit(New("crate", {"label": {}})) for _ in range(2))
        with closing(sqlite3.connect(environment.config.data / "waybill.db")) as db:
            db.execute("update record set locks = '[' where id = ?", [damaged.id])
            db.commit()
        first, second, all_ = (
            FeedTopic("record", *damaged.ref),
            FeedTopic("record", *sound.ref),
            FeedTopic("counts", "crate"),
        )
        views = make_topic_reader(environment.machines)(store, [first, second, all_])
        assert "list of locks or holds is damaged" in views[first]["problem"]
        assert (views[second]["id"], views[all_]["total"]) == (sound.id, 2)
