"""One HTTP POST to an allowed address, and what its response means.

The name is resolved once, its addresses are checked, and the connection is made to a checked one (`AddressPolicy`).
Redirects are not followed: the body was meant for this address, and may contain a password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx2

from waybill.transfer import AddressNotAllowed, AddressPolicy
from waybill.transfer.address_policy import HostUnresolved

RETRY_STATUSES = {408, 425, 429}  # the 4xx that ask for another try
CONNECT_TIMEOUT = 30.0  # seconds to connect, however long the response may take


class HttpPostError(Exception):
    """The request was not delivered. `permanent`: sending the same again will not help."""

    def __init__(self, reason: str, *, permanent: bool, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.permanent = permanent
        self.retry_after = retry_after  # seconds, if the receiver named any


class HttpPostAnswer(NamedTuple):
    status: int
    reason: str


def post(url: str, body: bytes, headers: Mapping[str, str], *, reach: AddressPolicy, timeout: float) -> HttpPostAnswer:
    """Send the request. Raises HttpPostError unless the receiver answers 2xx. The body of the response is not read."""
    try:
        status, reason, retry_after = _send(url, body, headers, reach, timeout)
    except AddressNotAllowed as error:
        raise HttpPostError(str(error), permanent=True) from None
    except HostUnresolved as error:
        raise HttpPostError(str(error), permanent=False) from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise HttpPostError(f"The address or the headers cannot be sent: {error}", permanent=True) from None
    except httpx2.TimeoutException:
        raise HttpPostError("The receiver did not answer in time.", permanent=False) from None
    except (httpx2.HTTPError, ssl.SSLError) as error:
        raise HttpPostError(f"The receiver cannot be reached: {error}", permanent=False) from None
    if 200 <= status < 300:
        return HttpPostAnswer(status, reason)
    sentence = f"The receiver answered {status} {reason}".rstrip() + "."
    if 300 <= status < 400:
        raise HttpPostError(
            f"{sentence} Redirects are not followed: give the address that they lead to.", permanent=True
        )
    raise HttpPostError(sentence, permanent=status < 500 and status not in RETRY_STATUSES, retry_after=retry_after)


def _send(
    url: str, body: bytes, headers: Mapping[str, str], reach: AddressPolicy, timeout: float
) -> tuple[int, str, float | None]:
    target = httpx2.URL(url)
    addresses = reach.resolve_allowed(target)
    if target.username or target.password:
        raise AddressNotAllowed("The address holds a user name or password: give them apart from it.")
    limits = httpx2.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))
    all_headers = {"user-agent": "waybill", **headers, "host": target.netloc.decode("ascii")}
    # trust_env: a proxy of the environment would resolve the name again, and reach an address that was not checked.
    with httpx2.Client(timeout=limits, follow_redirects=False, trust_env=False) as client:
        for number, address in enumerate(addresses, start=1):
            request = client.build_request(
                "POST",
                target.copy_with(host=address),
                content=body,
                headers=all_headers,
                extensions={"sni_hostname": target.host},
            )
            try:
                response = client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(addresses):
                    raise
                continue
            response.close()
            wait = response.headers.get("retry-after", "")
            seconds = float(wait) if wait.isdecimal() and len(wait) < 6 else None
            return response.status_code, response.reason_phrase, seconds
    raise AssertionError("unreachable: there is at least one address")
