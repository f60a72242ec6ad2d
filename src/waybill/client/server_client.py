"""The client of a server's HTTP API.

The token comes from the argument, from a file that only its owner can read, or from WAYBILL_TOKEN. It is sent in a
header, never in a URL, and only to the server that was named: redirects are not followed. A GET that found no connection
is tried once more; a write is not, because it may have been done: give `submit` an idempotency key, then repeat it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from waybill.client.records_client import ActionResultView, each_record
from waybill.errors import ERROR_CODES, InputError, WaybillError
from waybill.record import Ref
from waybill.tokens import TOKEN_VARIABLE
from waybill.views.view_types import HistoryEntryView, MachineView, PageView, RecordView, SessionView, StateCountsView

SERVER_VARIABLE = "WAYBILL_SERVER"
TOKEN_FILE_VARIABLE = "WAYBILL_TOKEN_FILE"
API_PREFIX = "/api/v1"
TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
STREAM_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)  # the server sends a heartbeat every 15 seconds
MAX_TOKEN_FILE = 10_000
MAX_ERROR_BODY = 1_000_000
CHUNK = 1024 * 1024
# For an answer that is not in Waybill's shape, such as a proxy's.
_CODES_BY_STATUS = {
    401: "bad-token",
    403: "forbidden",
    404: "no-route",
    405: "no-method",
    413: "too-large",
    429: "busy",
}


class Client:
    """A server, as somebody who has a token uses it. One thread at a time."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: Path | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError(f"{url!r} is no URL of a server, such as https://waybill.example.org.", code="usage")
        if parts.username or parts.password:
            raise InputError("A server's URL holds no password: put the token into a file.", code="usage")
        self.url = url.rstrip("/")
        if token is None:
            token = read_token_file(token_file) if token_file is not None else os.environ.get(TOKEN_VARIABLE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(
            headers=headers, timeout=TIMEOUT, follow_redirects=False, trust_env=False, transport=transport
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- records

    def list_machines(self) -> list[MachineView]:
        return cast(list[MachineView], self.request("GET", "/machines")["machines"])

    def get_machine(self, kind: str) -> MachineView:
        return cast(MachineView, self.request("GET", f"/machines/{_quote(kind)}"))

    def count_by_state(self, kind: str, *, parent: str | None = None) -> StateCountsView:
        return cast(StateCountsView, self.request("GET", f"/counts/{_quote(kind)}", params={"parent": parent}))

    def list_records(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
        newest: bool | None = None,
        page_token: str | None = None,
        limit: int = 100,
        documents: bool = False,
    ) -> PageView:
        params = {
            "state": state,
            "parent": parent,
            "owner": owner,
            "order": None if newest is None else "newest" if newest else "oldest",
            "page_token": page_token,
            "limit": limit,
            "documents": documents or None,
        }
        return cast(PageView, self.request("GET", f"/records/{_quote(kind)}", params=params))

    def get_record(self, kind: str, id: str) -> RecordView:
        return cast(RecordView, self.request("GET", f"/records/{_quote(kind)}/{_quote(id)}"))

    def get_history(self, kind: str, id: str) -> list[HistoryEntryView]:
        view = self.request("GET", f"/records/{_quote(kind)}/{_quote(id)}/history")
        return cast(list[HistoryEntryView], view["entries"])

    def submit(
        self,
        kind: str,
        documents: Mapping[str, Any],
        *,
        id: str | None = None,
        state: str | None = None,
        owner: str | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        why: str = "",
    ) -> RecordView:
        body = {
            "documents": dict(documents),
            "id": id,
            "state": state,
            "owner": owner,
            "priority": priority,
            "idempotency_key": idempotency_key,
            "why": why,
        }
        return cast(RecordView, self.request("POST", f"/records/{_quote(kind)}", body=_without_nones(body)))

    def act(
        self,
        kind: str,
        id: str,
        action: str,
        *,
        why: str = "",
        args: Mapping[str, Any] | None = None,
        confirmed: bool = False,
    ) -> ActionResultView:
        body = {"why": why, "args": dict(args or {}), "confirmed": confirmed}
        path = f"/records/{_quote(kind)}/{_quote(id)}/{_quote(action)}"
        return cast(ActionResultView, self.request("POST", path, body=body))

    def set_priority(self, kind: str, id: str, priority: int, *, why: str = "") -> ActionResultView:
        path = f"/records/{_quote(kind)}/{_quote(id)}/priority"
        return cast(ActionResultView, self.request("PUT", path, body={"priority": priority, "why": why}))

    def list_holds(self) -> dict[str, str]:
        return {hold["name"]: hold["about"] for hold in self.request("GET", "/holds")["holds"]}

    def set_hold(self, name: str, *, why: str = "") -> None:
        self.request("PUT", f"/holds/{quote(name)}", body={"why": why})

    def clear_hold(self, name: str) -> None:
        self.request("DELETE", f"/holds/{quote(name)}")

    def list_sessions(self) -> list[SessionView]:
        return cast(list[SessionView], self.request("GET", "/sessions")["sessions"])

    def act_all(
        self,
        kind: str,
        action: str,
        *,
        state: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
        why: str = "",
        confirmed: bool = False,
    ) -> Iterator[tuple[Ref, ActionResultView | WaybillError]]:
        for record in each_record(self, kind, state=state, parent=parent, owner=owner):
            ref = Ref(kind, record["id"])
            try:
                yield ref, self.act(kind, record["id"], action, why=why, confirmed=confirmed)
            except WaybillError as error:
                if ERROR_CODES[error.code].status not in (404, 409):
                    raise  # it would be refused for all of them
                yield ref, error

    def follow_record(self, kind: str, id: str, interval: float) -> Iterator[RecordView]:
        yield self.get_record(kind, id)
        params = _encode_params({"kind": kind, "id": id})
        while True:
            for view in self._listen(params):
                if view.get("removed"):
                    raise WaybillError(f"{kind} {id} was removed.", code="not-found")
                yield self.get_record(kind, id)
            self.wait(interval)  # the stream has ended: the server restarts, or cuts slow readers

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # the pause of a poll: what changed meanwhile is in the next read

    def _listen(self, params: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the data of each `record` event, until the stream ends."""
        try:
            url = f"{self.url}{API_PREFIX}/changes"
            with self._http.stream("GET", url, params=params, timeout=STREAM_TIMEOUT) as response:
                if not response.is_success:
                    self._raise_refusal(response)
                event = ""
                for line in response.iter_lines():
                    name, _, value = line.partition(": ")
                    if name == "event":
                        event = value
                    elif name == "data" and event == "record":
                        yield msgspec.json.decode(value)
        except (httpx2.ReadTimeout, httpx2.RemoteProtocolError, httpx2.ReadError):
            return
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error

    # --- what applications serve

    def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None, api: bool = True
    ) -> Any:
        """Send a request and return the JSON of the answer; None where it has none. `path`: below /api/v1, or with
        `api=False` below the server's root.
        """
        content = msgspec.json.encode(body, enc_hook=str) if body is not None else None
        headers = {"Content-Type": "application/json"} if content is not None else {}
        url = f"{self.url}{API_PREFIX if api else ''}{path}"
        for attempt in range(2):
            try:
                response = self._http.request(
                    method, url, params=_encode_params(params), content=content, headers=headers
                )
                break
            except httpx2.HTTPError as error:
                if method == "GET" and attempt == 0 and isinstance(error, (httpx2.ConnectError, httpx2.ReadError)):
                    continue
                raise self._unreachable(error) from error
        if not response.is_success:
            self._raise_refusal(response)
        if not response.content:
            return None
        try:
            return msgspec.json.decode(response.content)
        except msgspec.DecodeError as error:
            raise WaybillError(
                f"{self.url} answers with something that is not JSON: is it a Waybill server?", code="bad-server"
            ) from error

    def upload(
        self,
        method: str,
        path: str,
        source: BinaryIO,
        *,
        size: int,
        media_type: str = "application/octet-stream",
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a file as the body, in bounded memory, and return the JSON of the answer."""
        headers = {"Content-Type": media_type, "Content-Length": str(size)}
        chunks = iter(lambda: source.read(CHUNK), b"")
        try:
            response = self._http.request(
                method,
                f"{self.url}{API_PREFIX}{path}",
                params=_encode_params(params),
                content=chunks,
                headers=headers,
                timeout=httpx2.Timeout(600.0, connect=10.0),
            )
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            self._raise_refusal(response)
        return msgspec.json.decode(response.content) if response.content else None

    @contextmanager
    def download(self, path: str, *, params: Mapping[str, Any] | None = None) -> Iterator[Iterator[bytes]]:
        """The bytes of a response, chunk by chunk. Raises when it ends before its Content-Length."""
        try:
            with self._http.stream("GET", f"{self.url}{API_PREFIX}{path}", params=_encode_params(params)) as response:
                if not response.is_success:
                    self._raise_refusal(response)
                yield response.iter_bytes(CHUNK)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> WaybillError:
        return WaybillError(
            f"The server {self.url} cannot be reached: {error or type(error).__name__}.", code="no-server"
        )

    def _raise_refusal(self, response: httpx2.Response) -> None:
        if response.is_redirect:
            raise WaybillError(
                f"{self.url} redirects to another address; name that one as the server.", code="bad-server"
            )
        content = response.read()[:MAX_ERROR_BODY]
        try:
            error = msgspec.json.decode(content)["error"]
            code, message, hint = str(error["code"]), str(error["message"]), str(error.get("hint", ""))
            if hint.startswith("GET ") or (code in ERROR_CODES and hint == ERROR_CODES[code].hint):
                hint = ""  # for those who write requests themselves
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            code, hint = _CODES_BY_STATUS.get(response.status_code, "bad-server"), ""
            message = f"{self.url} answers {response.status_code} {response.reason_phrase}".rstrip() + "."
        if code not in ERROR_CODES:  # of a newer server, or of an application that is not installed here
            code = _CODES_BY_STATUS.get(response.status_code, "refused" if response.status_code < 500 else "bad-server")
        raise WaybillError(message, code=code, hint=hint)


def read_token_file(path: Path) -> str:
    """Return the token in a file. Refuses one that others can read."""
    path = path.expanduser()
    with path.open("rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise WaybillError(
                f"The token file {path} can be read by others than its owner. Make it yours alone: chmod 600 {path}.",
                code="bad-token-file",
            )
        text = file.read(MAX_TOKEN_FILE + 1)
    token = text.decode("utf-8", "replace").strip()
    if not token or len(text) > MAX_TOKEN_FILE or not token.isascii() or any(c.isspace() for c in token):
        raise WaybillError(f"The file {path} does not hold one token.", code="bad-token-file")
    return token


def _quote(name: str) -> str:
    return quote(name, safe="")


def _encode_params(params: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (params or {}).items()
        if value is not None
    }


def _without_nones(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}
