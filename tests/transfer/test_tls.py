"""Connections go to a checked address, and certificates still count for the name."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.transfer.certificate import CERTIFICATE, KEY
from tests.transfer.misbehaving import Misbehaving
from waybill.transfer import AddressPolicy, DownloadRequest, DownloadResult, download


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Misbehaving]:
    both = tmp_path / "both.pem"
    both.write_text(KEY + CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    with Misbehaving(context) as server:
        server.files["/a"] = b"data"
        yield server


def trusting() -> httpx2.Client:
    return httpx2.Client(verify=ssl.create_default_context(cadata=CERTIFICATE), timeout=60)


def get(server: Misbehaving, tmp_path: Path, host: str, **options: object) -> DownloadResult:
    reach = AddressPolicy(["127.0.0.1"], resolve=lambda host, port: ["127.0.0.1"])
    wanted = DownloadRequest(f"https://{host}:{server.port}/a", "a")
    (fetched,) = download([wanted], tmp_path / "into", policy=reach, tries=3, pause=lambda seconds: None, **options)  # type: ignore[arg-type]
    return fetched


def test_the_certificate_is_that_of_the_name(server: Misbehaving, tmp_path: Path) -> None:
    assert get(server, tmp_path, "named.test", make_client=trusting).ok
    assert server.asked["/a"][0]["host"] == f"named.test:{server.port}"


def test_another_name_is_not_trusted(server: Misbehaving, tmp_path: Path) -> None:
    fetched = get(server, tmp_path, "other.test", make_client=trusting)
    assert (fetched.ok, fetched.permanent, fetched.tries) == (False, True, 1)
    assert "certificate" in fetched.reason


def test_a_certificate_of_nobody_is_not_trusted(server: Misbehaving, tmp_path: Path) -> None:
    fetched = get(server, tmp_path, "named.test")
    assert (fetched.ok, fetched.permanent) == (False, True)
    assert "certificate" in fetched.reason


def test_a_connection_is_not_used_for_another_name(server: Misbehaving, tmp_path: Path) -> None:
    """Both names have the same address; a connection that was opened for one must not carry a request for the other."""
    reach = AddressPolicy(["127.0.0.1"], resolve=lambda host, port: ["127.0.0.1"])
    requests = [DownloadRequest(f"https://{host}:{server.port}/a", host) for host in ("named.test", "other.test")]
    results = {
        fetched.name: fetched.ok
        for fetched in download(requests, tmp_path / "into", policy=reach, parallel=1, make_client=trusting)
    }
    assert results == {"named.test": True, "other.test": False}


def test_nobody_is_sent_on_from_https_to_http(server: Misbehaving, tmp_path: Path) -> None:
    with Misbehaving() as plain:
        server.does["/a"] = [f"redirect {plain.url}/a"]
        fetched = get(server, tmp_path, "named.test", make_client=trusting)
        assert (fetched.ok, fetched.permanent) == (False, True)
        assert "from https to http" in fetched.reason
        assert not plain.asked
