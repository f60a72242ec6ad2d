"""Paths and methods of JDMA's API, the networks that may use it, and the shape of its answers.

The client sends GET requests with and without a slash at the end, and posts JSON without saying that it is.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from waybill.apps.archive.jdma.calls import JdmaCalls, JdmaError
from waybill.apps.archive.jdma.listing import iter_listing
from waybill.errors import InputError

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources

PREFIX = ("jdma_control", "api", "v1")
MAX_BODY = 64 * 1024 * 1024  # bytes: 50,000 long paths


@dataclass(frozen=True, slots=True)
class JdmaAnswer:
    status: int
    body: bytes | Iterator[bytes]


class JdmaNetworks:
    """The networks whose clients are believed."""

    def __init__(self, networks: Iterable[str]) -> None:
        try:
            self._networks = [ipaddress.ip_network(text, strict=False) for text in networks]
        except ValueError as error:
            raise InputError(f"[app.archive.jdma] networks: {error}.", code="bad-config") from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


class JdmaApp:
    """A call from its path and parameters to its answer. Blocks."""

    def __init__(self, resources: ArchiveResources, calls: JdmaCalls, networks: JdmaNetworks) -> None:
        self._resources = resources
        self._calls = calls
        self._networks = networks

    def answer(
        self, client: str, method: str, names: tuple[str, ...], query: Mapping[str, str], body: bytes
    ) -> JdmaAnswer:
        fields: dict[str, Any] = {}
        try:
            if not self._networks.has(client):
                raise JdmaError("This address may not use the JDMA API.", 403)
            if method in ("POST", "PUT"):
                fields = _decode(body)
            return self._call(method, names[0] if names else "", query, fields)
        except JdmaError as error:
            echoed = {name: value for name, value in fields.items() if name != "credentials"}
            return JdmaAnswer(error.status, msgspec.json.encode({**echoed, "error": str(error)}))

    def _call(self, method: str, name: str, query: Mapping[str, str], body: dict[str, Any]) -> JdmaAnswer:
        calls = self._calls
        if method == "GET" and name in ("file", "archive"):
            rows = calls.list_rows(query)  # what is refused is refused before the first byte
            return JdmaAnswer(200, iter_listing(self._resources, rows, query, with_files=name == "file"))
        routes: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {
            ("GET", "user"): lambda: calls.get_user(query),
            ("POST", "user"): lambda: calls.make_user(body),
            ("PUT", "user"): lambda: calls.change_user(query, body),
            ("GET", "request"): lambda: calls.get_requests(query),
            ("POST", "request"): lambda: calls.make_request(body),
            ("GET", "migration"): lambda: calls.get_migrations(query),
            ("PUT", "migration"): lambda: calls.change_label(query, body),
            ("GET", "list_backends"): lambda: calls.list_backends(query),
        }
        if (call := routes.get((method, name))) is None:
            known = name in {found for _, found in routes} | {"file", "archive"}
            raise JdmaError(f"{method} of {name} is not possible." if known else "Not found.", 405 if known else 404)
        return JdmaAnswer(200, msgspec.json.encode(call()))


def _decode(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise JdmaError(f"The body is not a JSON object: {error}") from None
