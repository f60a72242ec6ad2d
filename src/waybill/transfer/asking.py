"""Asking: one HTTP request to an address that was checked, through at most a few redirects, each checked again.

The connection is made to the checked address itself, with the host's name in `Host` and in TLS, so that certificates
count as usual. A connection is only used again for the same host. What goes wrong is one of two things: Again (worth
another try, perhaps after a while the server named) or Failed (not worth one).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import httpx2

from waybill.transfer.reach import OutOfReach, Reach, Unresolved

_REDIRECTS = {301, 302, 303, 307, 308}
_LATER = {408, 425, 429}
_HOSTS = 4  # to which one asker keeps connections open


class Again(Exception):
    """Worth another try."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after  # seconds, if the server named them


class Failed(Exception):
    """Not worth another try."""


class Asker:
    """For one thread; `client` makes an HTTP client for one host."""

    def __init__(self, reach: Reach, client: Callable[[], httpx2.Client], redirects: int) -> None:
        self._reach = reach
        self._client = client
        self._redirects = redirects
        self._clients: dict[str, httpx2.Client] = {}

    @contextmanager
    def ask(
        self, method: str, address: str, *, private: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx2.Response]:
        """The answer, whatever its status but a redirect, with its body unread.

        Private headers go to the first host only.
        """
        with _explained():
            answer = self._follow(method, address, dict(private), dict(headers or {}))
            try:
                yield answer
            finally:
                answer.close()

    def close(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()

    def _follow(self, method: str, address: str, private: dict[str, str], headers: dict[str, str]) -> httpx2.Response:
        url = httpx2.URL(address)
        for client in self._clients.values():
            client.cookies.clear()  # of an earlier request: each begins without
        for _ in range(self._redirects + 1):
            answer = self._send(method, url, {**private, **headers})
            if answer.status_code not in _REDIRECTS or "location" not in answer.headers:
                return answer
            answer.close()
            target = url.join(answer.headers["location"])
            if url.scheme == "https" and target.scheme == "http":
                raise Failed("The server sends us on from https to http, which anybody on the way could change.")
            if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                private = {}  # they may hold a password, which was meant for the first host
            url = target.copy_with(fragment=None)
        raise Failed(f"The server sends us on and on: {self._redirects} redirects were followed.")

    def _send(self, method: str, url: httpx2.URL, headers: dict[str, str]) -> httpx2.Response:
        addresses = self._reach.addresses(url)
        if url.username or url.password:
            raise Failed("The address holds a user name or password: pass them as a header.")
        client = self._client_of(url)
        asked = {"accept": "*/*", **headers, "accept-encoding": "identity", "host": url.netloc.decode("ascii")}
        for number, address in enumerate(addresses, start=1):
            request = client.build_request(
                method, url.copy_with(host=address), headers=asked, extensions={"sni_hostname": url.host}
            )
            try:
                return client.send(request, stream=True, follow_redirects=False)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if number == len(addresses) or _certificate_error(error):
                    raise
        raise AssertionError("unreachable: there is at least one address")

    def _client_of(self, url: httpx2.URL) -> httpx2.Client:
        key = f"{url.scheme}://{url.host}"
        client = self._clients.pop(key, None) or self._client()
        self._clients[key] = client  # now the youngest
        if len(self._clients) > _HOSTS:
            self._clients.pop(next(iter(self._clients))).close()
        return client


def check_status(answer: httpx2.Response, *accepted: int) -> None:
    """Raise for every status that was not asked for."""
    if answer.status_code in accepted:
        return
    said = f"The server answered {answer.status_code} {answer.reason_phrase}".rstrip() + "."
    if answer.status_code >= 500 or answer.status_code in _LATER:
        raise Again(said, _seconds(answer.headers.get("retry-after", "")))
    raise Failed(said)


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) < 6 else None


@contextmanager
def _explained() -> Iterator[None]:
    """Sort what a client can raise into the two kinds."""
    try:
        yield
    except OutOfReach as error:
        raise Failed(str(error)) from error
    except Unresolved as error:
        raise Again(str(error)) from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise Failed(f"The address or the headers cannot be sent: {error}") from error
    except httpx2.TimeoutException as error:
        raise Again("The server did not answer in time.") from error
    except httpx2.ConnectError as error:
        if _certificate_error(error):
            raise Failed(f"The server's certificate is not to be trusted: {error}") from error
        raise Again(f"No connection to the server: {error}") from error
    except httpx2.HTTPError as error:
        raise Again(f"The connection was cut: {error}") from error


def _certificate_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
