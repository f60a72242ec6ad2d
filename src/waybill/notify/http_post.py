"""One HTTP POST to an allowed address, and what its response means.

The name is resolved once, its addresses are checked, and the connection is made to a checked one (`AddressPolicy`).
Redirects are not followed: the body was meant for this address, and may contain a password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx2

from waybill.transfer import AddressPolicy
from waybill.transfer.address_policy import TransferError

RETRY_STATUSES = {408, 425, 429}  # the 4xx that ask for another try
CONNECT_TIMEOUT = 30.0  # seconds to connect, however long the response may take


class HttpPostAnswer(NamedTuple):
    status: int
    reason: str


def post(url: str, body: bytes, headers: Mapping[str, str], *, reach: AddressPolicy, timeout: float) -> HttpPostAnswer:
    """Send the request. Raises TransferError unless the receiver answers 2xx. The body of the response is not read."""
    try:
        status, reason = _send(url, body, headers, reach, timeout)
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise TransferError(f"The address or the headers cannot be sent: {error}", code="transfer-refused") from None
    except httpx2.TimeoutException:
        raise TransferError("The receiver did not answer in time.") from None
    except (httpx2.HTTPError, ssl.SSLError) as error:
        raise TransferError(f"The receiver cannot be reached: {error}") from None
    if 200 <= status < 300:
        return HttpPostAnswer(status, reason)
    sentence = f"The receiver answered {status} {reason}".rstrip() + "."
    if 300 <= status < 400:
        raise TransferError(
            f"{sentence} Redirects are not followed: give the address that they lead to.", code="transfer-refused"
        )
    is_permanent = status < 500 and status not in RETRY_STATUSES
    raise TransferError(sentence, code="transfer-refused" if is_permanent else "")


def _send(url: str, body: bytes, headers: Mapping[str, str], reach: AddressPolicy, timeout: float) -> tuple[int, str]:
    target = httpx2.URL(url)
    addresses = reach.resolve_allowed(target)
    if target.username or target.password:
        raise TransferError(
            "The address holds a user name or password: give them apart from it.", code="address-not-allowed"
        )
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
            return response.status_code, response.reason_phrase
    raise AssertionError("unreachable: there is at least one address")
