"""Posting: one HTTP request with a body, to an address that may be reached, and what its answer means.

The name is resolved once, its addresses are checked, and the connection is made to one that was checked (`Reach`).
Redirects are not followed: what is posted was meant for this address, and may come with a password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx2

from waybill.transfer import OutOfReach, Reach
from waybill.transfer.reach import Unresolved

LATER = {408, 425, 429}  # of the 4xx, those that ask for another try
CONNECT = 30.0  # seconds in which a connection must be there, however long an answer may take


class NotPosted(Exception):
    """It was not delivered. `permanent`: sending the same again will not help."""

    def __init__(self, reason: str, *, permanent: bool, after: float | None = None) -> None:
        super().__init__(reason)
        self.permanent = permanent
        self.after = after  # seconds, if the receiver named them


class Answer(NamedTuple):
    status: int
    reason: str


def post(url: str, body: bytes, headers: Mapping[str, str], *, reach: Reach, timeout: float) -> Answer:
    """Send it; NotPosted unless the receiver answers 2xx. The answer's body is not read."""
    try:
        status, reason, after = _sent(url, body, headers, reach, timeout)
    except OutOfReach as error:
        raise NotPosted(str(error), permanent=True) from None
    except Unresolved as error:
        raise NotPosted(str(error), permanent=False) from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise NotPosted(f"The address or the headers cannot be sent: {error}", permanent=True) from None
    except httpx2.TimeoutException:
        raise NotPosted("The receiver did not answer in time.", permanent=False) from None
    except (httpx2.HTTPError, ssl.SSLError) as error:
        raise NotPosted(f"The receiver cannot be reached: {error}", permanent=False) from None
    if 200 <= status < 300:
        return Answer(status, reason)
    words = f"The receiver answered {status} {reason}".rstrip() + "."
    if 300 <= status < 400:
        raise NotPosted(f"{words} Redirects are not followed: give the address that they lead to.", permanent=True)
    raise NotPosted(words, permanent=status < 500 and status not in LATER, after=after)


def _sent(
    url: str, body: bytes, headers: Mapping[str, str], reach: Reach, timeout: float
) -> tuple[int, str, float | None]:
    target = httpx2.URL(url)
    addresses = reach.addresses(target)
    if target.username or target.password:
        raise OutOfReach("The address holds a user name or password: give them apart from it.")
    limits = httpx2.Timeout(timeout, connect=min(timeout, CONNECT))
    named = {"user-agent": "waybill", **headers, "host": target.netloc.decode("ascii")}
    # trust_env: a proxy of the environment would resolve the name once more, and reach what was not checked.
    with httpx2.Client(timeout=limits, follow_redirects=False, trust_env=False) as client:
        for number, address in enumerate(addresses, start=1):
            request = client.build_request(
                "POST",
                target.copy_with(host=address),
                content=body,
                headers=named,
                extensions={"sni_hostname": target.host},
            )
            try:
                answer = client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(addresses):
                    raise
                continue
            answer.close()
            wait = answer.headers.get("retry-after", "")
            return answer.status_code, answer.reason_phrase, float(wait) if wait.isdecimal() and len(wait) < 6 else None
    raise AssertionError("unreachable: there is at least one address")
