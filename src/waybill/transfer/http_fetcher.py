"""One HTTP request to a checked address, through at most a few redirects, each checked again.

The connection is made to the checked address itself, with the host's name in `Host` and in TLS, so that certificates are
verified as usual. A connection is reused for the same host only. An error is one of two: TransferError (worth
another attempt, perhaps after a pause that the server named) or TransferError (not worth one).

Fetchers are for one thread. `FetcherCache` keeps them from one download to the next, so that many small downloads do not
each open their own connections; `ThreadFetchers` are those of one download.
"""

from __future__ import annotations

import functools
import ssl
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import httpx2

from waybill.transfer.address_policy import AddressPolicy, TransferError

_REDIRECT_STATUSES = {301, 302, 303, 307, 308}
_RETRY_STATUSES = {408, 425, 429}
_MAX_HOSTS = 4  # to which one fetcher keeps connections open


class HttpFetcher:
    """For one thread; `make_client` makes an HTTP client for one host."""

    def __init__(self, policy: AddressPolicy, make_client: Callable[[], httpx2.Client], redirects: int) -> None:
        self._policy = policy
        self._make_client = make_client
        self._redirects = redirects
        self._clients: dict[str, httpx2.Client] = {}

    @contextmanager
    def request(
        self,
        method: str,
        address: str,
        *,
        first_host_headers: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[httpx2.Response]:
        """The response, of any status but a redirect, with its body unread. `first_host_headers` are not sent to another
        host after a redirect.
        """
        with _translate_errors():
            response = self._follow_redirects(method, address, dict(first_host_headers), dict(headers or {}))
            try:
                yield response
            finally:
                response.close()

    def close(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()

    def _follow_redirects(
        self, method: str, address: str, private: dict[str, str], headers: dict[str, str]
    ) -> httpx2.Response:
        url = httpx2.URL(address)
        for client in self._clients.values():
            client.cookies.clear()  # each request starts without those of an earlier one
        for _ in range(self._redirects + 1):
            response = self._send(method, url, {**private, **headers})
            if response.status_code not in _REDIRECT_STATUSES or "location" not in response.headers:
                return response
            response.close()
            target = url.join(response.headers["location"])
            if url.scheme == "https" and target.scheme == "http":
                raise TransferError(
                    "The server redirects from https to http, which anyone on the way could change.",
                    code="transfer-refused",
                )
            if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                private = {}  # they may hold a password that is meant for the first host
            url = target.copy_with(fragment=None)
        raise TransferError(
            f"The server redirects too often: {self._redirects} redirects were followed.", code="transfer-refused"
        )

    def _send(self, method: str, url: httpx2.URL, headers: dict[str, str]) -> httpx2.Response:
        addresses = self._policy.resolve_allowed(url)
        if url.username or url.password:
            raise TransferError(
                "The address holds a user name or password: pass them as a header.", code="transfer-refused"
            )
        client = self._client_of(url)
        asked = {"accept": "*/*", **headers, "accept-encoding": "identity", "host": url.netloc.decode("ascii")}
        for number, address in enumerate(addresses, start=1):
            request = client.build_request(
                method, url.copy_with(host=address), headers=asked, extensions={"sni_hostname": url.host}
            )
            try:
                return client.send(request, stream=True, follow_redirects=False)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if number == len(addresses) or _is_certificate_error(error):
                    raise
        raise AssertionError("unreachable: there is at least one address")

    def _client_of(self, url: httpx2.URL) -> httpx2.Client:
        key = f"{url.scheme}://{url.host}"
        client = self._clients.pop(key, None) or self._make_client()
        self._clients[key] = client  # now the most recently used
        if len(self._clients) > _MAX_HOSTS:
            self._clients.pop(next(iter(self._clients))).close()
        return client


def check_status(response: httpx2.Response, *accepted: int) -> None:
    """Raise for every status that is not accepted."""
    if response.status_code in accepted:
        return
    message = f"The server answered {response.status_code} {response.reason_phrase}".rstrip() + "."
    if response.status_code >= 500 or response.status_code in _RETRY_STATUSES:
        raise TransferError(message, retry_after=_parse_seconds(response.headers.get("retry-after", "")))
    raise TransferError(message, code="transfer-refused")


def _parse_seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) < 6 else None


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate what a client can raise."""
    try:
        yield
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise TransferError(f"The address or the headers cannot be sent: {error}", code="transfer-refused") from error
    except httpx2.TimeoutException as error:
        raise TransferError("The server did not answer in time.") from error
    except httpx2.ConnectError as error:
        if _is_certificate_error(error):
            raise TransferError(
                f"The server's certificate cannot be trusted: {error}", code="transfer-refused"
            ) from error
        raise TransferError(f"No connection to the server: {error}") from error
    except httpx2.HTTPError as error:
        raise TransferError(f"The connection was cut: {error}") from error


def _is_certificate_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


class FetcherCache:
    """Fetchers of all threads of a process, kept between downloads."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[HttpFetcher] = []

    def get_fetcher(self, options: Hashable, make: Callable[[], HttpFetcher]) -> HttpFetcher:
        """This thread's fetcher with these options: policy, time-out and number of redirects."""
        fetchers: dict[Hashable, HttpFetcher] = self._local.__dict__.setdefault("fetchers", {})
        fetcher = fetchers.get(options)
        if fetcher is None:
            fetcher = fetchers[options] = make()
            with self._lock:
                self._all.append(fetcher)
        return fetcher

    def close(self) -> None:
        """Call it when no thread downloads any more. A later `get_fetcher` makes a new fetcher."""
        with self._lock:
            fetchers, self._all = self._all, []
        self._local = threading.local()
        for fetcher in fetchers:
            fetcher.close()


class ThreadFetchers:
    """The fetchers of one download, one for each of its threads. At the end all are closed but the one of the cache."""

    def __init__(
        self,
        policy: AddressPolicy,
        timeout: float,
        redirects: int,
        make_client: Callable[[], httpx2.Client] | None,
        cache: FetcherCache | None,
    ) -> None:
        self._policy, self._timeout, self._redirects, self._make_client = (
            policy,
            timeout,
            redirects,
            make_client or make_client_factory(timeout),
        )
        self._cache = cache if make_client is None else None
        self._owner_thread = threading.get_ident()
        self._all: dict[int, HttpFetcher] = {}

    def get_fetcher(self) -> HttpFetcher:
        thread = threading.get_ident()
        if self._cache is not None and thread == self._owner_thread:
            return self._cache.get_fetcher((self._policy, self._timeout, self._redirects), self._make_fetcher)
        if thread not in self._all:
            self._all[thread] = self._make_fetcher()
        return self._all[thread]

    def _make_fetcher(self) -> HttpFetcher:
        return HttpFetcher(self._policy, self._make_client, self._redirects)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fetcher in self._all.values():
            fetcher.close()


@functools.cache  # reading all certificates takes longer than downloading a small file
def _load_ssl_context() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def make_client_factory(timeout: float) -> Callable[[], httpx2.Client]:
    # Proxies of the environment are not used: they would resolve names themselves, and the addresses could not be
    # checked.
    context = _load_ssl_context()
    return lambda: httpx2.Client(
        verify=context, timeout=timeout, trust_env=False, limits=httpx2.Limits(max_connections=2)
    )
