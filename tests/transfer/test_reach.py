"""Where downloads may go: public addresses, what is on the list, and nowhere else by any trick."""

import ipaddress
import socket
from pathlib import Path

import httpx2
import pytest

from tests.transfer.misbehaving import Misbehaving
from waybill.transfer import AddressPolicy, DownloadRequest, download
from waybill.transfer.address_policy import TransferError, is_public, resolve_host


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fd12:3456::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "2001:0:1:2::",
        "100::1",
        "fec0::1",
        "::127.0.0.1",
        "3fff::1",
    ],
)
def test_addresses_that_are_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "1.1.1.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "2001:4860:4860::8888", "::ffff:8.8.8.8"],
)
def test_addresses_that_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


def reach(answers: dict[str, list[str]], *allow: str) -> AddressPolicy:
    return AddressPolicy(allow, resolve=lambda host, port: answers[host])


def test_a_name_is_as_public_as_its_addresses() -> None:
    answers = {
        "good": ["8.8.8.8"],
        "bad": ["10.0.0.1"],
        "both": ["10.0.0.1", "8.8.8.8"],
        "none": [],
        "odd": ["fe80::1%eth0"],
    }
    assert reach(answers).resolve_allowed(httpx2.URL("http://good/")) == ["8.8.8.8"]
    assert reach(answers).resolve_allowed(httpx2.URL("http://both/")) == ["8.8.8.8"]
    for host in ("bad", "none", "odd"):
        with pytest.raises(TransferError, match=host):
            reach(answers).resolve_allowed(httpx2.URL(f"http://{host}/"))


def test_the_list_of_those_allowed() -> None:
    answers = {"db.local": ["10.0.0.1"], "other.local": ["10.0.0.2"]}
    url = httpx2.URL("http://db.local:8080/x")
    for entry in ("10.0.0.0/24", "10.0.0.1", "db.local", "DB.local", "db.local:8080"):
        assert reach(answers, entry).resolve_allowed(url) == ["10.0.0.1"]
    for entry in ("10.0.1.0/24", "db.local:80", "local"):
        with pytest.raises(TransferError):
            reach(answers, entry).resolve_allowed(url)
    with pytest.raises(TransferError):
        reach(answers, "db.local").resolve_allowed(httpx2.URL("http://other.local/"))


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://host/x", "gopher://host/", "//host/x", "host/x", "data:text/plain,x", "http:///x"],
)
def test_only_http(address: str, tmp_path: Path) -> None:
    (fetched,) = download([DownloadRequest(address, "a")], tmp_path)
    assert (fetched.ok, fetched.permanent) == (False, True)


@pytest.mark.parametrize("address", ["http://a b/", "http://[::1", "http://host:99999/", "\0", "http://\ud800/"])
def test_what_is_no_address_at_all(address: str, tmp_path: Path) -> None:
    (fetched,) = download([DownloadRequest(address, "a")], tmp_path, tries=1)
    assert not fetched.ok
    assert fetched.reason


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "0"],
)
def test_loopback_by_any_spelling_is_not_reached(host: str, tmp_path: Path) -> None:
    with Misbehaving() as server:
        server.files["/a"] = b"secret"
        (fetched,) = download([DownloadRequest(f"http://{host}:{server.port}/a", "a")], tmp_path, tries=1)
        assert not fetched.ok
        assert not server.asked


def test_a_refusal_names_the_setting_that_allows_others() -> None:
    with pytest.raises(TransferError, match=r"not on the list of those allowed \(the setting app\.some\.allow\)\."):
        AddressPolicy(setting="app.some.allow").resolve_allowed(httpx2.URL("http://127.0.0.1/a"))


def test_a_redirect_to_where_we_may_not_go(tmp_path: Path) -> None:
    with Misbehaving() as inside, Misbehaving() as outside:
        inside.files["/a"] = b"secret"
        outside.does["/a"] = [f"redirect http://internal:{inside.port}/a"]
        answers = {"public": ["127.0.0.1"], "internal": ["127.0.0.1"]}
        (fetched,) = download(
            [DownloadRequest(f"http://public:{outside.port}/a", "a")], tmp_path, policy=reach(answers, "public")
        )
        assert (fetched.ok, fetched.permanent) == (False, True)
        assert "'internal' is not a public address" in fetched.reason
        assert outside.asked["/a"]
        assert not inside.asked


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://public/x", "gopher://public/"])
def test_a_redirect_to_another_scheme(tmp_path: Path, target: str) -> None:
    with Misbehaving() as server:
        server.does["/a"] = [f"redirect {target}"]
        (fetched,) = download([DownloadRequest(f"{server.url}/a", "a")], tmp_path, policy=AddressPolicy(["127.0.0.1"]))
        assert (fetched.ok, fetched.permanent) == (False, True)
        assert "Only http and https" in fetched.reason


def test_a_name_server_that_changes_its_mind_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: public when it is checked, loopback when it is connected to.

    The connection goes to what was checked.
    """
    connected: list[object] = []

    def connect(address: tuple[str, int], *args: object, **options: object) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError

    asked = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8"] if len(asked) == 1 else ["127.0.0.1"]

    monkeypatch.setattr(socket, "create_connection", connect)
    (fetched,) = download(
        [DownloadRequest("http://rebinding.test:1234/a", "a")],
        tmp_path,
        policy=AddressPolicy(resolve=rebinding),
        tries=1,
    )
    assert not fetched.ok
    assert connected == [("8.8.8.8", 1234)]
    assert asked == ["rebinding.test"]


def test_the_server_is_told_the_name_it_was_asked_by(tmp_path: Path) -> None:
    with Misbehaving() as server:
        server.files["/a"] = b"x"
        answers = {"named.test": ["127.0.0.2", "127.0.0.1"]}  # nobody listens on the first
        (fetched,) = download(
            [DownloadRequest(f"http://named.test:{server.port}/a", "a")], tmp_path, policy=reach(answers, "named.test")
        )
        assert fetched.ok
        assert server.asked["/a"][0]["host"] == f"named.test:{server.port}"


def test_a_password_in_the_address_is_refused(tmp_path: Path) -> None:
    (fetched,) = download(
        [DownloadRequest("http://user:secret@named.test/a", "a")], tmp_path, policy=reach({"named.test": ["8.8.8.8"]})
    )
    assert (fetched.ok, fetched.permanent) == (False, True)
    assert "secret" not in fetched.reason


def test_a_name_that_nobody_knows_is_worth_another_try(tmp_path: Path) -> None:
    with pytest.raises(TransferError):
        resolve_host("no-such-host.invalid", 80)

    def nobody(host: str, port: int) -> list[str]:
        raise TransferError("The host could not be resolved.", code="host-unresolved")

    (fetched,) = download(
        [DownloadRequest("http://x/a", "a")],
        tmp_path,
        policy=AddressPolicy(resolve=nobody),
        tries=3,
        pause=lambda seconds: None,
    )
    assert (fetched.ok, fetched.permanent, fetched.tries) == (False, False, 3)
