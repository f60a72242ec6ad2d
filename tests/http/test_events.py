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

from tests.http.yard import Site, served
from tests.servers.process import wait_until
from waybill.depot import Depot
from waybill.http import hub as hubs
from waybill.http.events import EventStream, reader
from waybill.http.hub import Hub, Topic
from waybill.record import Ref, Store, Unavailable
from waybill.step import New
from waybill.tokens import revoke

API = "/api/v1"
WAIT = 120.0


class Ears:
    """Somebody who listens: each event as (name, data); a comment as ("", text)."""

    def __init__(self, url: str, token: str, **params: str) -> None:
        self.heard: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=WAIT)
        self._path = f"{API}/events?{urlencode(params)}"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> "Ears":
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
def url(site: Site) -> Iterator[str]:
    with served(site) as url:
        yield url


def counts(tally: dict[str, Any]) -> dict[str, int]:
    return {s["state"]: s["count"] for s in tally["states"] if s["count"]}


def test_a_stream_begins_with_the_present_and_tells_of_changes_of_this_and_other_processes(
    site: Site, url: str
) -> None:
    ref = site.submit()
    with Ears(url, site.tokens["reader"]) as ears:
        assert ears.next("marks") == {"marks": []}
        assert ears.next("sessions") == {"sessions": []}
        assert counts(ears.next("tally", kind="crate")) == {"Packing": 1}
        site.submit()  # past the server, as another process would
        assert counts(ears.next("tally", kind="crate")) == {"Packing": 2}
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {site.tokens['operator']}"}) as client:
            client.put(f"{API}/marks/road/north", json={"why": "snow"})
            assert ears.next("marks")["marks"][0]["name"] == "road/north"
            client.post(f"{API}/records/crate/{ref.id}/scrap", json={"confirmed": True})
        assert counts(ears.next("tally", kind="crate")) == {"Packing": 1, "Scrapped": 1}


def test_a_worker_that_is_gone_is_told_of(site: Site, url: str) -> None:
    with site.engine() as engine, Ears(url, site.tokens["reader"]) as ears:
        assert ears.next("sessions") == {"sessions": []}
        engine.store.open_session(host="h", ttl=3.0, about={})
        assert [session["expired"] for session in ears.next("sessions")["sessions"]] == [False]
        assert [session["expired"] for session in ears.next("sessions")["sessions"]] == [True]


def test_a_record_is_followed_by_its_version_and_its_progress(site: Site, url: str) -> None:
    ref = site.submit()
    with Ears(url, site.tokens["reader"], kind="crate", id=ref.id) as ears:
        assert ears.next("record")["state"] == "Packing"
        with site.worker(ref, {f"crate {ref.id}": [1, 4, "boxes", "Packing"]}):
            assert ears.next("record", progress={"done": 1, "total": 4, "unit": "boxes", "fraction": 0.25})["session"]
        site.fail(ref)
        assert ears.next("record", state="Failed")["message"] == "too heavy"
        with site.engine() as engine:
            engine.remove(ref)
        assert ears.next("record", removed=True)["id"] == ref.id


def test_a_stream_of_one_kind_or_of_one_parents_children_shows_only_those(site: Site, url: str) -> None:
    parent = site.submit()
    all_of_them = Ears(url, site.tokens["reader"], kind="box")
    with all_of_them as ears, Ears(url, site.tokens["reader"], kind="box", parent=f"crate:{parent.id}") as few:
        assert few.next("tally")["parent"] == {"kind": "crate", "id": parent.id}
        assert ears.next("tally")["kind"] == "box"
        site.submit()
        site.submit("box", {"way": {"road": "north"}}, id="b1")
        changed = ears.next("tally")
        assert (changed["kind"], counts(changed)) == ("box", {"Moving": 1})
    assert not [event for event in few.end() if event[0] == "tally"]


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
def test_a_stream_of_nothing_is_refused(site: Site, url: str, params: dict[str, str], status: int) -> None:
    answer = httpx2.get(
        f"{url}{API}/events", params=params, headers={"Authorization": f"Bearer {site.tokens['admin']}"}
    )
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message", "hint"}


def test_a_server_that_stops_ends_its_streams_and_says_so(site: Site) -> None:
    with served(site) as url:
        ears = Ears(url, site.tokens["reader"]).__enter__()
        ears.next("marks")
    assert ears.end()[-1] == ("", "the server is stopping")
    ears.__exit__()


def test_a_stream_ends_when_its_token_is_revoked(site: Site, url: str) -> None:
    site.app.state.front.hub._recheck = 0.0
    with Ears(url, site.tokens["reader"]) as ears, Ears(url, site.tokens["operator"]) as other:
        ears.next("marks")
        with site.engine() as engine:
            revoke(engine, site.tokens["reader"].split("_")[1])
        assert ears.end()[-1] == ("", "the token is not valid any more")
        site.submit()
        assert counts(other.next("tally", kind="crate", total=1))


def test_silence_is_broken_by_heartbeats(site: Site, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventStream.__init__, "__defaults__", (0.05,))
    with Ears(url, site.tokens["reader"], kind="crate") as ears:
        while ears.heard.get(timeout=WAIT) != ("", "still here"):
            pass


# --- the hub by itself, with the store's reads counted


class Counted:
    """A store that counts what is read of it. Everything is the real store's."""

    def __init__(self, store: Store, reads: list[str]) -> None:
        self._store, self._reads = store, reads

    def __getattr__(self, name: str) -> Any:
        if name in ("tally", "get", "sessions", "marks"):
            self._reads.append(name)
        return getattr(self._store, name)


def a_hub(depot: Depot, reads: list[str] | None = None, **options: Any) -> Hub:
    def open_store() -> Any:
        return Counted(depot.open_store(), reads if reads is not None else [])

    return Hub(open_store, reader(depot.machines), lambda store, token: True, **{"gap": 0.01, **options})


async def hear(listener: hubs.Listener, what: str) -> Any:
    while True:
        change = await asyncio.wait_for(listener.queue.get(), WAIT)
        assert change is not None
        if not isinstance(change, str) and change[0] == what:
            return json.loads(change[1])


def test_many_listeners_cost_one_read(depot: Depot) -> None:
    """Two hundred who look at the same thing read the store as often as one does."""

    async def reads_of(listeners: int) -> list[str]:
        reads: list[str] = []
        hub = a_hub(depot, reads, look=WAIT)
        topic = Topic("tally", "crate")
        all_of_them = [hub.join([topic], None) for _ in range(listeners)]
        for listener in all_of_them:
            await hear(listener, "tally")
        await asyncio.to_thread(_settled, hub)
        before = len(reads)
        await asyncio.to_thread(_submit, depot)
        for listener in all_of_them:
            assert (await hear(listener, "tally"))["total"] > 0
        await asyncio.to_thread(_settled, hub)
        seen = reads[before:]
        await asyncio.to_thread(hub.close)
        return seen

    alone, crowd = asyncio.run(reads_of(1)), asyncio.run(reads_of(200))
    assert set(crowd) == {"tally"}
    assert len(crowd) <= len(alone) + 2  # a hint may come while a look is under way: then it looks once more


def _submit(depot: Depot) -> None:
    with closing(depot.open_store()) as store:
        depot.engine(store).submit(New("crate", {"label": {}}))


def _settled(hub: Hub) -> None:
    """Until the hub's thread waits for the store."""
    wait_until(lambda: not hub._hinted and hub.watching.is_set(), "the hub to wait for the store")


def test_nobody_listening_costs_nothing(depot: Depot) -> None:
    async def scene() -> None:
        reads: list[str] = []
        hub = a_hub(depot, reads)
        await asyncio.to_thread(_submit, depot)
        hub.hint()
        assert hub._thread is None
        listener = hub.join([Topic("tally", "crate")], None)
        await hear(listener, "tally")
        hub.leave(listener)
        await asyncio.to_thread(wait_until, lambda: hub._store is None, "the hub to let go of its connection")
        before = len(reads)
        await asyncio.to_thread(_submit, depot)
        hub.hint()
        assert hub._store is None
        assert len(reads) == before
        again = hub.join([Topic("tally", "crate")], None)
        assert (await hear(again, "tally"))["total"] == 2
        await asyncio.to_thread(hub.close)

    asyncio.run(scene())


def test_a_slow_reader_is_dropped_and_told(depot: Depot) -> None:
    async def scene() -> None:
        hub = a_hub(depot)
        listener = hub.join([Topic("marks")], None)
        for n in range(hubs.QUEUE + 1):
            listener.offer(("marks", str(n).encode()))
        assert listener.ended
        assert listener.queue.qsize() == 2
        assert "too slow" in str(listener.queue.get_nowait())
        assert listener.queue.get_nowait() is None
        await asyncio.to_thread(hub.close)

    asyncio.run(scene())


def test_a_reader_who_takes_nothing_holds_nobody_up(site: Site, url: str) -> None:
    """A stream whose reader never reads, beside one that does."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        stuck.sendall(
            f"GET {API}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {site.tokens['reader']}\r\n\r\n".encode()
        )
        with Ears(url, site.tokens["reader"], kind="crate") as ears:
            for n in range(1, 4):
                site.submit()
                ears.next("tally", total=n)


def test_listeners_are_limited(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "MAX_LISTENERS", 2)

    async def scene() -> None:
        hub = a_hub(depot)
        first, _ = hub.join([Topic("marks")], None), hub.join([Topic("marks")], None)
        with pytest.raises(hubs.Full):
            hub.join([Topic("marks")], None)
        hub.leave(first)
        hub.join([Topic("marks")], None)
        await asyncio.to_thread(hub.close)
        with pytest.raises(hubs.Full):
            hub.join([Topic("marks")], None)

    asyncio.run(scene())


def test_a_store_that_goes_away_is_told_of_and_comes_back(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "AWAY", 0.01)
    away = threading.Event()

    class Fickle(Counted):
        def __getattr__(self, name: str) -> Any:
            if away.is_set() and name in ("tally", "marks", "sessions"):
                raise Unavailable
            return super().__getattr__(name)

    def open_store() -> Any:
        if away.is_set():
            raise Unavailable
        return Fickle(depot.open_store(), [])

    async def scene() -> None:
        hub = Hub(open_store, reader(depot.machines), lambda store, token: True, gap=0.01, look=0.05)
        listener = hub.join([Topic("tally", "crate")], None)
        await hear(listener, "tally")
        away.set()
        assert await hear(listener, "store") == {"available": False}
        late = hub.join([Topic("tally", "crate")], None)
        assert await hear(late, "store") == {"available": False}
        away.clear()
        assert await hear(listener, "store") == {"available": True}
        await asyncio.to_thread(_submit, depot)
        assert (await hear(listener, "tally"))["total"] == 1
        await asyncio.to_thread(hub.close)

    asyncio.run(scene())


def test_a_topic_of_an_id_that_never_was_is_told_as_removed(depot: Depot, tmp_path: Path) -> None:
    with closing(depot.open_store()) as store:
        topic = Topic("record", *Ref("crate", "none"))
        assert reader(depot.machines)(store, [topic])[topic] == {"kind": "crate", "id": "none", "removed": True}


def test_a_damaged_record_is_told_to_those_who_listen_and_hides_nothing_else(depot: Depot) -> None:
    with closing(depot.open_store()) as store:
        damaged, sound = (depot.engine(store).submit(New("crate", {"label": {}})) for _ in range(2))
        with closing(sqlite3.connect(depot.config.data / "waybill.db")) as db:
            db.execute("update record set keys = '[' where id = ?", [damaged.id])
            db.commit()
        first, second, all_ = Topic("record", *damaged.ref), Topic("record", *sound.ref), Topic("tally", "crate")
        told = reader(depot.machines)(store, [first, second, all_])
        assert "list of keys or marks is damaged" in told[first]["problem"]
        assert (told[second]["id"], told[all_]["total"]) == (sound.id, 2)
