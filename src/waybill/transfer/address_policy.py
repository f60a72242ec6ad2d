"""Which network addresses a download (or a webhook) may connect to.

A URL comes from a user, so it must not lead into our own network: by default only public addresses are allowed, and a
list allows others. A name is resolved once, its addresses are checked, and the connection is made **to an address that
was checked**, so that a name server which answers differently a moment later changes nothing. Each redirect is a new URL
and is checked again.

    AddressPolicy()                                            public addresses only
    AddressPolicy(allow=["10.1.0.0/16", "archive.local"])      and these networks, hosts or host:port
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from typing import TypeAlias

import httpx2

from waybill.errors import WaybillError

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PUBLIC_V6 = ipaddress.ip_network("2000::/3")
# Inside it, but not public: documentation, Teredo and ORCHID, 6to4 (holds an IPv4 address).
_NOT_PUBLIC_V6 = [ipaddress.ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
_NOT_PUBLIC_V4 = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
]


class TransferError(WaybillError):
    """Another server cannot be reached, or refuses."""

    code = "transfer-failed"

    def __init__(self, message: str, *, code: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after  # seconds, as the other server asks


def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of a host, as the operating system resolves them."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TransferError(f"The host {host!r} could not be resolved ({error}).", code="host-unresolved") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)
    return not any(address in network for network in _NOT_PUBLIC_V4)


class AddressPolicy:
    def __init__(
        self, allow: Iterable[str] = (), *, setting: str = "", resolve: Callable[[str, int], list[str]] = resolve_host
    ) -> None:
        """`setting`: the name of the setting that holds the list, for error messages."""
        self._setting = setting
        self._resolve = resolve
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._hosts: set[str] = set()
        for entry in allow:
            try:
                self._networks.append(ipaddress.ip_network(entry))
            except ValueError:
                self._hosts.add(entry.lower())

    def resolve_allowed(self, url: httpx2.URL) -> list[str]:
        """The addresses to which a connection for this URL may be made, at least one; raises TransferError or
        TransferError.
        """
        if url.scheme not in ("http", "https"):
            raise TransferError(
                f"Only http and https can be downloaded, not {url.scheme or 'an address without a scheme'}.",
                code="address-not-allowed",
            )
        if not url.host:
            raise TransferError("The address names no host.", code="address-not-allowed")
        port = url.port or (443 if url.scheme == "https" else 80)
        found = self._resolve(url.host, port)
        if url.host.lower() in self._hosts or f"{url.host.lower()}:{port}" in self._hosts:
            allowed = found
        else:
            allowed = [text for text in found if self._is_allowed(text)]
        if not allowed:
            listed = f" (the setting {self._setting})" if self._setting else ""
            raise TransferError(
                f"The host {url.host!r} is not a public address ({', '.join(found) or 'none'}), "
                f"and not on the list of those allowed{listed}.",
                code="address-not-allowed",
            )
        return allowed

    def _is_allowed(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return is_public(address) or any(address in network for network in self._networks)
