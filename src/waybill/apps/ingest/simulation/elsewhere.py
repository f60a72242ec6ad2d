"""Storage elsewhere in the simulator: ingest's own HTTP client, and a service behind it in processes of its own,
which die as others do.

    a client asks -> its request is lost, or comes twice -> a process of the service answers, or dies over it -> its
    answer is lost

Whoever has sent a request and is gone does not stop it: the service goes on with it. A client that waited too long asks
again, perhaps another process, while the first is still at it. The service is the counter of our own storage
(storage/counter.py), over objects that nobody but the service sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import msgspec

from waybill.apps.ingest.storage import NotStored, wire
from waybill.apps.ingest.storage.counter import Counter, place_of
from waybill.apps.ingest.storage.http import HttpStorage
from waybill.objects import Body

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.around import Surroundings
    from waybill.sim.objects import MemoryObjects
    from waybill.sim.process import Process

URL = "http://storage.test/api/v1/ingest/storage"
PATIENCE = {"timeout": 10.0, "patience": 40.0}  # a process that stands still does so for longer, now and then
LOOK = 2.0  # seconds after which a client notices that the one it asked is gone
TROUBLE = 0.3  # of what other steps meet: a deposit asks many times


class Told(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Elsewhere:
    """The service, and the way there."""

    def __init__(self, around: Surroundings, objects: MemoryObjects) -> None:
        self.around, self.world, self.objects = around, around.world, objects
        self._servers: list[tuple[Process, Counter]] = []

    def client(self, sources: Any) -> HttpStorage:
        return HttpStorage(URL, "", sources, **PATIENCE, transport=Way(self))

    def counter(self) -> Counter:
        """What a process of the service knows: it goes with the process."""
        counter = Counter(self.objects, "ocfl", "sha256")
        counter.storage = self.around.storage(counter.staged.source)
        return counter

    def server(self) -> tuple[Process, Counter]:
        """One that takes requests: they come up when they are first needed, and another in the place of one that is
        gone.
        """
        rng, stage = self.world.rng, self.world.simulation.stage
        self._servers = [each for each in self._servers if not each[0].dead]
        if not self._servers or (len(self._servers) < 2 and rng.random() < 0.1):
            self._servers.append((stage.start_service("storage"), self.counter()))
        return rng.choice(self._servers)


class Way(httpx2.BaseTransport):
    """What stands where a client has its connections."""

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere, self._world = elsewhere, elsewhere.world

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        verb = f"{request.method} {request.url.path.rpartition('/')[2]}"
        asked, body = dict(request.url.params), request.read()
        simulation, world = self._world.simulation, self._world
        if simulation.hub.current is None:  # everybody has gone home, and somebody looks at what is there
            return _response(answer(self._elsewhere.counter(), verb, asked, body))
        here = simulation.stage.here()
        world.point(f"before asking {verb}")
        fault, here.wire_fault = here.wire_fault, None
        if fault == "refused" or here.cut_until > simulation.hub.now or world.chance(world.trouble * TROUBLE):
            raise httpx2.ConnectError("no connection (simulated)")
        told = self._ask(
            verb, asked, body, request.extensions["timeout"]["read"], world.chance(world.trouble * TROUBLE)
        )
        world.point(f"after asking {verb}")
        fault, here.wire_fault = here.wire_fault or fault, None
        if fault == "lost" or world.chance(world.trouble * TROUBLE):
            raise httpx2.ReadError("the answer was lost (simulated)")
        return _response(told)

    def _ask(self, verb: str, asked: dict[str, str], body: bytes, timeout: float, twice: bool) -> Told:
        """Let a process of the service answer, in a fiber of its own: it does not end with whoever asks. `twice`: it
        comes twice.
        """
        hub, answers = self._world.simulation.hub, list[Told]()
        asking, until = hub.current, hub.now + timeout
        assert asking is not None

        def serve(counter: Counter) -> None:
            answers.append(answer(counter, verb, asked, body))
            if not asking.ended:
                hub.rouse(asking)

        servers = [self._elsewhere.server() for _ in range(2 if twice else 1)]
        for process, counter in servers:
            process.spawn(verb, lambda counter=counter: serve(counter))  # type: ignore[misc]
        while not answers:
            hub.sleep(min(until, hub.now + LOOK))
            if answers:
                break
            if hub.now >= until:
                raise httpx2.ReadTimeout("no answer in time (simulated)")
            if all(process.dead for process, _ in servers):
                raise httpx2.RemoteProtocolError("the service is gone (simulated)")
        return answers[0]


def answer(counter: Counter, verb: str, asked: dict[str, str], body: bytes) -> Told:
    """What the service says, as storage/wire.py has it; whatever it does not expect is an error of its own."""
    try:
        return _VERBS[verb](counter, asked, body)
    except tuple(error for _, error in wire.ERRORS.values()) as error:
        code, status = next((code, status) for code, (status, kind) in wire.ERRORS.items() if isinstance(error, kind))
        return Told(status, msgspec.json.encode({"error": {"code": code, "message": str(error), "hint": ""}}))


def _staged(counter: Counter, asked: dict[str, str], body: bytes) -> Told:
    rows = counter.staged.listed(place_of(asked["object"], asked["request"]))
    return _lines({"sha256": sha256, "size": size} for sha256, size in rows)


def _stage(counter: Counter, asked: dict[str, str], body: bytes) -> Told:
    place = place_of(asked["object"], asked["request"])
    new = counter.staged.put(place, asked["sha256"], int(asked["size"]), iter([body]))
    return Told(201 if new else 200, b"{}")


def _look(counter: Counter, asked: dict[str, str], body: bytes) -> Told:
    if (there := counter.storage.look(asked["object"], asked["request"])) is None:
        raise NotStored("It made no version.")
    return _json(there)


def _sent(body: Body) -> Told:
    with body:
        info = body.info
        told = (
            ("x-waybill-size", str(info.size)),
            ("etag", f'"{info.etag}"'),
            ("x-waybill-modified", info.modified.isoformat()),
        )
        return Told(200, body.read(), told)


_VERBS: dict[str, Callable[[Counter, dict[str, str], bytes], Told]] = {
    "GET staged": _staged,
    "PUT staged": _stage,
    "POST versions": lambda counter, asked, body: _json(counter.write(asked["object"], asked["request"], iter([body]))),
    "GET request": _look,
    "GET versions": lambda counter, asked, body: _json(counter.storage.versions(asked["object"])),
    "GET version": lambda counter, asked, body: _json(counter.storage.stored(asked["object"], int(asked["number"]))),
    "GET bytes": lambda counter, asked, body: _sent(counter.storage.read(asked["object"], asked["place"])),
    "GET check": lambda counter, asked, body: _json(
        counter.storage.check(asked["object"], asked["place"], int(asked["size"]), asked["sha256"])
    ),
    "GET objects": lambda counter, asked, body: _json(list(counter.storage.objects(asked["after"]))),
}


def _json(view: Any) -> Told:
    return Told(200, msgspec.json.encode(view))


def _lines(rows: Iterable[Any]) -> Told:
    return Told(200, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def _response(told: Told) -> httpx2.Response:
    return httpx2.Response(told.status, content=told.body, headers=list(told.headers))
