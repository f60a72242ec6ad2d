"""The storage service in the simulator: ingest's own HTTP client, and a server in processes of its own, which die as
others do.

    a client sends a request -> it is lost, or arrives twice -> a server process answers, or dies -> the answer is lost

A request continues when its client dies. A client that times out sends it again, perhaps to another process, while the
first is still working. The server uses ingest's own DepositReceiver (storage/http_server.py), over objects of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import msgspec

from waybill.apps.ingest.storage import NotInStorage, protocol
from waybill.apps.ingest.storage.http_client import HttpStorage
from waybill.apps.ingest.storage.http_server import DepositReceiver, staging_place_of
from waybill.apps.ingest.storage.protocol import StorageError
from waybill.objects import ObjectBody, ObjectsError

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.services import SimulatedServices
    from waybill.sim.memory_objects import MemoryObjects
    from waybill.sim.process import SimulatedProcess

URL = "http://storage.test/api/v1/ingest/storage"
TIMEOUTS = {"timeout": 10.0, "write_timeout": 40.0}  # now and then a process is paused for longer
DETECT_SECONDS = 2.0  # seconds after which a client notices that its server is dead
ERROR_RATE_FACTOR = 0.3  # of the usual error rate, since a deposit sends many requests


class SimulatedStorageAnswer(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class SimulatedStorageService:
    """The server processes of the storage service."""

    def __init__(self, services: SimulatedServices, objects: MemoryObjects) -> None:
        self.services, self.world, self.objects = services, services.world, objects
        self._servers: list[tuple[SimulatedProcess, DepositReceiver]] = []

    def make_client(self, sources: Any) -> HttpStorage:
        return HttpStorage(URL, "", sources, **TIMEOUTS, transport=SimulatedTransport(self))

    def make_backend(self) -> DepositReceiver:
        """Return the state of one server process, which is lost with it."""
        backend = DepositReceiver(self.objects, "ocfl", "sha256")
        backend.storage = self.services.open_storage(backend.open_source)
        return backend

    def pick_server(self) -> tuple[SimulatedProcess, DepositReceiver]:
        """Return a live server; servers start when they are first needed, and replace dead ones."""
        rng, cluster = self.world.rng, self.world.simulation.cluster
        self._servers = [each for each in self._servers if not each[0].is_dead]
        if not self._servers or (len(self._servers) < 2 and rng.random() < 0.1):
            self._servers.append((cluster.start_service("storage"), self.make_backend()))
        return rng.choice(self._servers)


class SimulatedTransport(httpx2.BaseTransport):
    """The network between client and servers."""

    def __init__(self, service: SimulatedStorageService) -> None:
        self._service, self._world = service, service.world

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        verb = f"{request.method} {request.url.path.rpartition('/')[2]}"
        params, body = dict(request.url.params), request.read()
        simulation, world = self._world.simulation, self._world
        if simulation.scheduler.current is None:  # the simulation has ended, and the checks read
            return _to_response(answer_request(self._service.make_backend(), verb, params, body))
        here = simulation.cluster.get_current_process()
        world.reach_point(f"before asking {verb}")
        fault, here.wire_fault = here.wire_fault, None
        if (
            fault == "refused"
            or here.cut_until > simulation.scheduler.now
            or world.draw_chance(world.transient_error_rate * ERROR_RATE_FACTOR)
        ):
            raise httpx2.ConnectError("no connection (simulated)")
        answer = self._send_request(
            verb,
            params,
            body,
            request.extensions["timeout"]["read"],
            world.draw_chance(world.transient_error_rate * ERROR_RATE_FACTOR),
        )
        world.reach_point(f"after asking {verb}")
        fault, here.wire_fault = here.wire_fault or fault, None
        if fault == "lost" or world.draw_chance(world.transient_error_rate * ERROR_RATE_FACTOR):
            raise httpx2.ReadError("the answer was lost (simulated)")
        return _to_response(answer)

    def _send_request(
        self, verb: str, params: dict[str, str], body: bytes, timeout: float, twice: bool
    ) -> SimulatedStorageAnswer:
        """Let a server answer in a fiber of its own, which continues when the client dies. `twice`: it arrives twice."""
        scheduler, answers = self._world.simulation.scheduler, list[SimulatedStorageAnswer]()
        client, until = scheduler.current, scheduler.now + timeout
        assert client is not None

        def serve(backend: DepositReceiver) -> None:
            answers.append(answer_request(backend, verb, params, body))
            if not client.has_ended:
                scheduler.make_ready(client)

        servers = [self._service.pick_server() for _ in range(2 if twice else 1)]
        for process, backend in servers:
            process.spawn_fiber(verb, partial(serve, backend))
        while not answers:
            scheduler.sleep(min(until, scheduler.now + DETECT_SECONDS))
            if answers:
                break
            if scheduler.now >= until:
                raise httpx2.ReadTimeout("no answer in time (simulated)")
            if all(process.is_dead for process, _ in servers):
                raise httpx2.RemoteProtocolError("the service is gone (simulated)")
        return answers[0]


def answer_request(backend: DepositReceiver, verb: str, params: dict[str, str], body: bytes) -> SimulatedStorageAnswer:
    """Answer as the protocol says (storage/protocol.py); unexpected errors propagate."""
    try:
        return _HANDLERS[verb](backend, params, body)
    except (StorageError, ObjectsError) as error:
        status, view = protocol.describe_error(error)
        return SimulatedStorageAnswer(status, msgspec.json.encode(view))


def _list_staged(backend: DepositReceiver, params: dict[str, str], body: bytes) -> SimulatedStorageAnswer:
    rows = backend.staged_content.list_files(staging_place_of(params["object"], params["request"]))
    return _to_json_lines({"sha256": sha256, "size": size} for sha256, size in rows)


def _stage(backend: DepositReceiver, params: dict[str, str], body: bytes) -> SimulatedStorageAnswer:
    place = staging_place_of(params["object"], params["request"])
    new = backend.staged_content.put(place, params["sha256"], int(params["size"]), iter([body]))
    return SimulatedStorageAnswer(201 if new else 200, b"{}")


def _find_version(backend: DepositReceiver, params: dict[str, str], body: bytes) -> SimulatedStorageAnswer:
    if (version := backend.storage.find_by_request(params["object"], params["request"])) is None:
        raise NotInStorage("It made no version.")
    return _to_json(version)


def _read_bytes(body: ObjectBody) -> SimulatedStorageAnswer:
    with body:
        info = body.info
        headers = (
            ("x-waybill-size", str(info.size)),
            ("etag", f'"{info.etag}"'),
            ("x-waybill-modified", info.modified.isoformat()),
        )
        return SimulatedStorageAnswer(200, body.read(), headers)


_HANDLERS: dict[str, Callable[[DepositReceiver, dict[str, str], bytes], SimulatedStorageAnswer]] = {
    "GET staged": _list_staged,
    "PUT staged": _stage,
    "POST versions": lambda backend, params, body: _to_json(
        backend.write(params["object"], params["request"], iter([body]))
    ),
    "GET request": _find_version,
    "GET versions": lambda backend, params, body: _to_json(backend.storage.list_versions(params["object"])),
    "GET version": lambda backend, params, body: _to_json(
        backend.storage.get_version(params["object"], int(params["number"]))
    ),
    "GET bytes": lambda backend, params, body: _read_bytes(backend.storage.read(params["object"], params["place"])),
    "GET check": lambda backend, params, body: _to_json(
        backend.storage.check(params["object"], params["place"], int(params["size"]), params["sha256"])
    ),
    "GET objects": lambda backend, params, body: _to_json(list(backend.storage.list_objects(params["after"]))),
}


def _to_json(view: Any) -> SimulatedStorageAnswer:
    return SimulatedStorageAnswer(200, msgspec.json.encode(view))


def _to_json_lines(rows: Iterable[Any]) -> SimulatedStorageAnswer:
    return SimulatedStorageAnswer(200, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def _to_response(answer: SimulatedStorageAnswer) -> httpx2.Response:
    return httpx2.Response(answer.status, content=answer.body, headers=list(answer.headers))
