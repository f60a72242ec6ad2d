"""Downloads from a server that misbehaves in every way that was met."""

import errno
import hashlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.transfer.misbehaving import Misbehaving
from waybill.transfer import AddressPolicy, DownloadProgress, DownloadRequest, DownloadResult, download, probe_sizes

DATA = bytes(range(256)) * 1000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        server.files["/a"] = DATA
        yield server


def get(server: Misbehaving, folder: Path, *requests: DownloadRequest, **options: Any) -> dict[str, DownloadResult]:
    options = {"policy": AddressPolicy(["127.0.0.0/8"]), "pause": lambda seconds: None, "timeout": 60.0, **options}
    wanted = requests or (DownloadRequest(f"{server.url}/a", "a"),)
    return {fetched.name: fetched for fetched in download(wanted, folder, **options)}


def finished(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and ".partial" not in path.parts
    )


def unfinished(folder: Path) -> list[str]:
    return os.listdir(folder / ".partial") if (folder / ".partial").exists() else []


def test_a_file_comes(server: Misbehaving, tmp_path: Path) -> None:
    wanted = DownloadRequest(
        f"{server.url}/a",
        "deep/er/a b.dat",
        size=len(DATA),
        digests={"SHA-256": sha256(DATA).upper(), "md5": md5(DATA)},
    )
    fetched = get(server, tmp_path, wanted)["deep/er/a b.dat"]
    assert fetched == DownloadResult("deep/er/a b.dat", True, len(DATA), sha256(DATA), tries=1)
    assert (tmp_path / "deep/er/a b.dat").read_bytes() == DATA
    assert finished(tmp_path) == ["deep/er/a b.dat"]
    assert unfinished(tmp_path) == []


def test_a_file_is_not_taken_if_what_the_server_offers_is_too_much(server: Misbehaving, tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def accept_size(name: str, size: int) -> bool:
        asked.append((name, size))
        return False

    byte_counts: list[int] = []
    fetched = get(
        server, tmp_path, accept_size=accept_size, progress=lambda progress: byte_counts.append(progress.bytes)
    )["a"]
    assert (fetched.ok, fetched.is_stopped, asked, max(byte_counts)) == (False, True, [("a", len(DATA))], 0)
    assert (finished(tmp_path), unfinished(tmp_path)) == ([], [])


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def test_an_empty_file_comes(server: Misbehaving, tmp_path: Path) -> None:
    server.files["/a"] = b""
    assert get(server, tmp_path)["a"] == DownloadResult("a", True, 0, sha256(b""), tries=1)
    assert (tmp_path / "a").read_bytes() == b""


@pytest.mark.parametrize(
    "trouble",
    [
        "status 500",
        "status 503",
        "status 429",
        "status 408",
        "garbage",
        "cut 0",
        "cut 1000",
        "cut_unversioned 1000",
        "cut_weak 1000",
    ],
)
def test_a_passing_trouble_is_got_over(server: Misbehaving, tmp_path: Path, trouble: str) -> None:
    server.does["/a"] = [trouble, trouble, "ok"]
    fetched = get(server, tmp_path)["a"]
    assert (fetched.ok, fetched.tries, fetched.sha256) == (True, 3, sha256(DATA))
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_cut_is_taken_up_where_it_was_cut(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["cut 1000", "cut 2000", "ok"]
    assert get(server, tmp_path)["a"].ok
    assert [headers.get("range") for headers in server.asked["/a"]] == [None, "bytes=1000-", "bytes=3000-"]
    assert server.asked["/a"][1]["if-range"] == f'"{md5(DATA)}"'


def test_a_file_that_changed_meanwhile_begins_anew(server: Misbehaving, tmp_path: Path) -> None:
    other = b"other" * 5000
    server.does["/a"] = ["cut 1000", "ok"]

    def pause(seconds: float) -> None:
        server.files["/a"] = other

    fetched = get(server, tmp_path, pause=pause)["a"]
    assert (fetched.ok, fetched.sha256) == (True, sha256(other))
    assert (tmp_path / "a").read_bytes() == other


@pytest.mark.parametrize("second", ["wrongrange", "otherhalf", "status 416"])
def test_a_server_that_cannot_do_ranges_right(server: Misbehaving, tmp_path: Path, second: str) -> None:
    server.does["/a"] = ["cut 1000", second, "ok"]
    fetched = get(server, tmp_path, DownloadRequest(f"{server.url}/a", "a", digests={"sha256": sha256(DATA)}))["a"]
    assert (fetched.ok, fetched.tries) == (True, 3)
    assert (tmp_path / "a").read_bytes() == DATA
    assert "range" not in server.asked["/a"][2]


def test_a_range_that_was_not_asked_for_is_not_pasted_in(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["cut 1000", "wrongrange", "ok"]
    assert get(server, tmp_path)["a"].ok  # and no digest was promised that would have shown it
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_weak_version_is_not_resumed(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["cut_weak 1000", "ok"]
    assert get(server, tmp_path)["a"].ok
    assert "range" not in server.asked["/a"][1]


def test_a_trouble_that_does_not_pass_is_given_up(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["status 503"]
    waited: list[float] = []
    fetched = get(server, tmp_path, tries=4, pause=waited.append)["a"]
    assert (fetched.ok, fetched.permanent, fetched.tries) == (False, False, 4)
    assert fetched.reason == "The server answered 503 Service Unavailable. (4 tries.)"
    assert 0.5 * 0.75 + 1 * 0.75 + 2 * 0.75 - 0.01 <= sum(waited) <= 0.5 * 1.25 + 1 * 1.25 + 2 * 1.25 + 0.8
    assert finished(tmp_path) == []


def test_the_server_may_name_the_pause(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["later 7", "later 99999", "ok"]
    waited: list[float] = []
    assert get(server, tmp_path, pause=waited.append)["a"].ok
    assert sum(waited) == 7 + 60


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_what_a_client_is_to_blame_for_fails_at_once(server: Misbehaving, tmp_path: Path, status: int) -> None:
    server.does["/a"] = [f"status {status}"]
    fetched = get(server, tmp_path)["a"]
    assert (fetched.ok, fetched.permanent, fetched.tries) == (False, True, 1)
    assert f"The server answered {status} " in fetched.reason
    assert len(server.asked["/a"]) == 1


def test_a_silent_server_is_given_up(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["hang"]
    fetched = get(server, tmp_path, timeout=0.3, tries=2)["a"]
    assert not fetched.ok
    assert "did not answer in time" in fetched.reason


def test_a_server_that_falls_silent_in_the_middle(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["hang_after 5000", "ok"]
    fetched = get(server, tmp_path, timeout=3.0)["a"]  # enough for the first bytes to come on a busy machine
    assert fetched.ok
    assert server.asked["/a"][1]["range"] == "bytes=5000-"


def test_a_server_that_trickles_is_silent(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["trickle 0.02", "ok"]
    fetched = get(server, tmp_path, timeout=3.0, min_rate=1000)["a"]
    assert (fetched.ok, fetched.tries) == (True, 2)


def test_no_server(tmp_path: Path, server: Misbehaving) -> None:
    fetched = get(server, tmp_path, DownloadRequest("http://127.0.0.1:1/a", "a"), tries=2)["a"]
    assert (fetched.ok, fetched.permanent, fetched.tries) == (False, False, 2)
    assert "No connection" in fetched.reason


@pytest.mark.parametrize(
    ("does", "wanted", "reason"),
    [
        ("ok", {"size": 5}, "The server offers 256000 bytes, and 5 are expected."),
        ("says 300000", {"size": 256000}, "The server offers 300000 bytes, and 256000 are expected."),
        ("nolength", {"size": 5}, "More than 5 bytes arrived."),
        ("nolength", {"size": 300000}, "256000 bytes came, and 300000 were promised."),
        (
            "ok",
            {"digests": {"md5": md5(b"other")}},
            f"What came has the md5 {md5(DATA)}, and {md5(b'other')} was promised.",
        ),
        ("ok", {"digests": {"sha-1": "x"}}, "'x' is not a SHA-1 in hex."),
        ("ok", {"digests": {"md2": "0" * 32}}, "'md2' is not a digest that can be checked"),
        ("gzip", {}, "compressed"),
        ("status 204", {}, "The server answered 204"),
        ("status 304", {}, "The server answered 304"),
        ("redirect /a", {}, "too often: 5 redirects"),
    ],
)
def test_a_broken_promise_fails_at_once(
    server: Misbehaving, tmp_path: Path, does: str, wanted: dict[str, Any], reason: str
) -> None:
    server.does["/a"] = [does]
    fetched = get(server, tmp_path, DownloadRequest(f"{server.url}/a", "a", **wanted))["a"]
    assert (fetched.ok, fetched.permanent) == (False, True)
    assert reason in fetched.reason
    assert fetched.mismatch == any(word in reason for word in ("promised", "expected", "More than"))
    assert finished(tmp_path) == []
    assert not (tmp_path / ".partial").exists() or unfinished(tmp_path) == []


def test_a_length_that_never_comes_is_a_cut(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["says 300000"]
    fetched = get(server, tmp_path, tries=2)["a"]
    assert (fetched.ok, fetched.permanent) == (False, False)
    assert "cut" in fetched.reason
    assert finished(tmp_path) == []


@pytest.mark.parametrize("does", ["endless", "ok", "says 999999999999"])
def test_what_is_too_large_is_not_taken(server: Misbehaving, tmp_path: Path, does: str) -> None:
    server.does["/a"] = [does]
    fetched = get(server, tmp_path, max_size=200_000)["a"]
    assert (fetched.ok, fetched.permanent) == (False, True)
    assert "200000" in fetched.reason
    assert unfinished(tmp_path) == []


def test_a_file_without_a_length_comes(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["nolength"]
    assert get(server, tmp_path, DownloadRequest(f"{server.url}/a", "a", size=len(DATA)))["a"].ok


def test_redirects_are_followed_and_keep_the_range_but_not_the_password(server: Misbehaving, tmp_path: Path) -> None:
    with Misbehaving() as other:
        other.files["/b"] = DATA
        other.does["/b"] = ["cut 1000", "ok"]
        server.does["/a"] = [f"redirect {other.url}/b"]
        wanted = DownloadRequest(f"{server.url}/a", "a", headers={"authorization": "Basic secret"})
        assert get(server, tmp_path, wanted)["a"].ok
        assert [headers.get("authorization") for headers in server.asked["/a"]] == ["Basic secret"] * 2
        assert [headers.get("authorization") for headers in other.asked["/b"]] == [None, None]
        assert [headers.get("range") for headers in other.asked["/b"]] == [None, "bytes=1000-"]
        assert "secret" not in repr(wanted)


def test_files_come_at_the_same_time_and_one_failure_is_its_own(server: Misbehaving, tmp_path: Path) -> None:
    requests = []
    for number in range(21):
        server.files[f"/{number}"] = b"%d" % number
        server.does[f"/{number}"] = ["status 404" if number == 7 else "meet 2"]
        requests.append(DownloadRequest(f"{server.url}/{number}", f"f/{number}"))
    seen: list[DownloadProgress] = []
    fetched = get(server, tmp_path, *requests, parallel=4, progress=seen.append)
    assert {name for name, each in fetched.items() if not each.ok} == {"f/7"}
    assert len(finished(tmp_path)) == 20
    assert 2 <= server.most_at_once <= 4
    assert seen[-1].files == 21
    assert seen[-1].bytes == sum(len(b"%d" % number) for number in range(21) if number != 7)
    assert [progress.files for progress in seen] == sorted(progress.files for progress in seen)


def test_requests_are_taken_as_they_are_needed(server: Misbehaving, tmp_path: Path) -> None:
    taken = 0

    def requests() -> Iterator[DownloadRequest]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield DownloadRequest(f"{server.url}/a", f"f{number}")

    coming = download(requests(), tmp_path, parallel=2, policy=AddressPolicy(["127.0.0.1"]))
    next(coming)
    assert taken <= 5
    coming.close()  # type: ignore[attr-defined]
    assert taken <= 5


def test_stop_is_seen_in_the_middle_of_a_file(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["endless"]
    come = threading.Event()
    fetched = get(server, tmp_path, progress=lambda progress: come.set(), stop=come.is_set)["a"]
    assert (fetched.ok, fetched.is_stopped, fetched.permanent) == (False, True, False)


def test_stop_is_seen_during_a_pause(server: Misbehaving, tmp_path: Path) -> None:
    server.does["/a"] = ["later 60"]
    stopping = threading.Event()
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        stopping.set()

    fetched = get(server, tmp_path, pause=pause, stop=stopping.is_set)["a"]
    assert fetched.is_stopped
    assert waited == [0.25]


def test_two_requests_of_one_name(server: Misbehaving, tmp_path: Path) -> None:
    server.files["/b"] = b"other"
    requests = [DownloadRequest(f"{server.url}/a", "same"), DownloadRequest(f"{server.url}/b", "same")]
    results = list(download(requests, tmp_path, policy=AddressPolicy(["127.0.0.1"]), parallel=2))
    assert sorted(each.ok for each in results) == [False, True]
    (failed,) = (each for each in results if not each.ok)
    assert "same name" in failed.reason or "exists already" in failed.reason
    (kept,) = (each for each in results if each.ok)
    assert sha256((tmp_path / "same").read_bytes()) == kept.sha256


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "", ".partial/x", "a\0b", "a//b"])
def test_names_that_lead_elsewhere_are_refused(server: Misbehaving, tmp_path: Path, name: str) -> None:
    fetched = get(server, tmp_path / "into", DownloadRequest(f"{server.url}/a", name))[name]
    assert (fetched.ok, fetched.permanent) == (False, True)
    assert "name" in fetched.reason
    assert finished(tmp_path) == []
    assert not server.asked


def test_a_name_that_is_a_folder(server: Misbehaving, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert "exists already" in get(server, tmp_path)["a"].reason
    (tmp_path / "f").write_bytes(b"")
    fetched = get(server, tmp_path, DownloadRequest(f"{server.url}/a", "f/below"))["f/below"]
    assert (fetched.ok, fetched.permanent) == (False, True)


def test_sizes_before_fetching(server: Misbehaving) -> None:
    server.files |= {"/b": b"", "/c": b"", "/d": b"x"}
    server.does |= {"/b": ["status 404"], "/c": ["nolength"], "/d": ["status 405", "ok"], "/e": ["status 503", "ok"]}
    server.files["/e"] = b"12345"
    requests = [DownloadRequest(f"{server.url}/{name}", name) for name in "abcde"]
    offers = {
        offer.name: offer
        for offer in probe_sizes(requests, policy=AddressPolicy(["127.0.0.1"]), pause=lambda seconds: None)
    }
    assert {name: offer.size for name, offer in offers.items()} == {
        "a": len(DATA),
        "b": None,
        "c": None,
        "d": 1,
        "e": 5,
    }
    assert (offers["b"].permanent, "404" in offers["b"].reason) == (True, True)
    assert [headers["method"] for headers in server.asked["/d"]] == ["HEAD", "GET"]


class TestEarlierAttempts:
    PROMISE = {"sha-256": sha256(DATA)}  # noqa: RUF012

    def wanted(self, server: Misbehaving) -> DownloadRequest:
        return DownloadRequest(f"{server.url}/a", "deep/a", digests=self.PROMISE)

    def test_a_finished_file_is_taken_over(self, server: Misbehaving, tmp_path: Path) -> None:
        get(server, tmp_path / "1", self.wanted(server))
        fetched = get(server, tmp_path / "2", self.wanted(server), earlier_folders=[tmp_path / "0", tmp_path / "1"])[
            "deep/a"
        ]
        assert fetched == DownloadResult("deep/a", True, len(DATA), sha256(DATA), is_reused=True)
        assert len(server.asked["/a"]) == 1
        assert (tmp_path / "2/deep/a").samefile(tmp_path / "1/deep/a")
        assert unfinished(tmp_path / "2") == []

    def test_one_that_is_wrong_is_fetched_and_left_alone(self, server: Misbehaving, tmp_path: Path) -> None:
        (tmp_path / "1/deep").mkdir(parents=True)
        (tmp_path / "1/deep/a").write_bytes(b"wrong")
        fetched = get(server, tmp_path / "2", self.wanted(server), earlier_folders=[tmp_path / "1"])["deep/a"]
        assert (fetched.ok, fetched.is_reused) == (True, False)
        assert (tmp_path / "2/deep/a").read_bytes() == DATA
        assert (tmp_path / "1/deep/a").read_bytes() == b"wrong"

    def test_without_a_digest_nothing_is_taken_over(self, server: Misbehaving, tmp_path: Path) -> None:
        plain = DownloadRequest(f"{server.url}/a", "a", size=len(DATA))
        get(server, tmp_path / "1", plain)
        assert not get(server, tmp_path / "2", plain, earlier_folders=[tmp_path / "1"])["a"].is_reused
        assert len(server.asked["/a"]) == 2

    def test_a_link_is_not_followed(self, server: Misbehaving, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(DATA)
        (tmp_path / "1/deep").mkdir(parents=True)
        (tmp_path / "1/deep/a").symlink_to(tmp_path / "secret")
        fetched = get(server, tmp_path / "2", self.wanted(server), earlier_folders=[tmp_path / "1"])["deep/a"]
        assert (fetched.ok, fetched.is_reused) == (True, False)

    def test_where_there_are_no_links_it_is_copied(
        self, server: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        get(server, tmp_path / "1", self.wanted(server))

        def link(*args: object, **options: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", link)
        fetched = get(server, tmp_path / "2", self.wanted(server), earlier_folders=[tmp_path / "1"])["deep/a"]
        assert (fetched.ok, fetched.is_reused) == (True, True)
        assert not (tmp_path / "2/deep/a").samefile(tmp_path / "1/deep/a")
        assert (tmp_path / "2/deep/a").read_bytes() == DATA

    def test_the_same_attempt_again(self, server: Misbehaving, tmp_path: Path) -> None:
        get(server, tmp_path, self.wanted(server))
        assert get(server, tmp_path, self.wanted(server))["deep/a"].is_reused
        (tmp_path / "deep/a").write_bytes(b"changed")
        assert "exists already" in get(server, tmp_path, self.wanted(server))["deep/a"].reason

    @pytest.mark.parametrize("promise", [{}, PROMISE])
    def test_an_unfinished_file_is_copied_and_resumed(
        self, server: Misbehaving, tmp_path: Path, promise: dict[str, str]
    ) -> None:
        wanted = DownloadRequest(f"{server.url}/a", "a", digests=promise)
        server.does["/a"] = ["cut 1000"]
        assert not get(server, tmp_path / "1", wanted, tries=1)["a"].ok
        (part,) = (tmp_path / "1/.partial").glob("*.part")
        assert part.stat().st_size == 1000
        server.does["/a"] = ["ok"]
        assert get(server, tmp_path / "2", wanted, earlier_folders=[tmp_path / "1"])["a"].ok
        assert server.asked["/a"][1]["range"] == "bytes=1000-"
        assert (tmp_path / "2/a").read_bytes() == DATA
        assert part.stat().st_size == 1000  # it belongs to the other attempt, which may still be running

    def test_this_attempts_own_unfinished_file_is_resumed(self, server: Misbehaving, tmp_path: Path) -> None:
        server.does["/a"] = ["cut 1000"]
        assert not get(server, tmp_path, tries=1)["a"].ok
        server.does["/a"] = ["ok"]
        assert get(server, tmp_path)["a"].ok
        assert server.asked["/a"][1]["range"] == "bytes=1000-"

    @pytest.mark.parametrize("spoil", ["bytes", "json", "url", "version", "gone"])
    def test_an_unfinished_file_that_is_not_to_be_trusted(
        self, server: Misbehaving, tmp_path: Path, spoil: str
    ) -> None:
        server.does["/a"] = ["cut 1000"]
        wanted = self.wanted(server)
        get(server, tmp_path / "1", wanted, tries=1)
        (part,) = (tmp_path / "1/.partial").glob("*.part")
        about = part.with_suffix(".part.json")
        if spoil == "bytes":
            part.write_bytes(b"?" * 1000)
        elif spoil == "gone":
            part.unlink()
        else:
            about.write_text(
                {"json": "{", "url": '{"url":"other","version":"x"}', "version": f'{{"url":"{server.url}/a"}}'}[spoil]
            )
        server.does["/a"] = ["ok"]
        assert get(server, tmp_path / "2", wanted, earlier_folders=[tmp_path / "1"])["deep/a"].ok
        assert (tmp_path / "2/deep/a").read_bytes() == DATA


def test_a_full_disk_is_a_reason(server: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def full(path: Any, mode: str = "r", **options: Any) -> Any:
        if mode == "ab":
            raise OSError(28, "No space left on device")
        return real(path, mode, **options)

    monkeypatch.setattr("builtins.open", full)
    fetched = get(server, tmp_path)["a"]
    assert (fetched.ok, fetched.permanent) == (False, False)
    assert fetched.reason == "The file could not be written: No space left on device."


def test_long_files_may_be_cut_more_often(server: Misbehaving, tmp_path: Path) -> None:
    mebibyte = 1024 * 1024
    server.files["/a"] = os.urandom(70 * mebibyte)
    server.does["/a"] = [f"cut {17 * mebibyte}"] * 4 + ["ok"]
    fetched = get(server, tmp_path, tries=2)["a"]
    assert (fetched.ok, fetched.tries) == (True, 5)
    assert fetched.sha256 == sha256(server.files["/a"])


def test_nothing_waits_for_a_slow_neighbour(server: Misbehaving, tmp_path: Path) -> None:
    server.files |= {"/slow": b"s", "/quick": b"q"}
    server.does["/slow"] = ["hang"]
    requests = [DownloadRequest(f"{server.url}/slow", "slow"), DownloadRequest(f"{server.url}/quick", "quick")]
    coming = download(requests, tmp_path, policy=AddressPolicy(["127.0.0.1"]), timeout=600, tries=1)
    assert next(coming).name == "quick"  # the server answers the other only when it is told
    server.over.set()
    assert not next(coming).ok


def test_a_small_file_is_written_at_once(server: Misbehaving, tmp_path: Path) -> None:
    server.files["/a"] = b"small"
    assert get(server, tmp_path, DownloadRequest(f"{server.url}/a", "deep/a"))["deep/a"] == DownloadResult(
        "deep/a", True, 5, sha256(b"small"), tries=1
    )
    assert (tmp_path / "deep" / "a").read_bytes() == b"small"
    assert os.listdir(tmp_path) == ["deep"], "no folder of unfinished files"


def test_a_small_file_for_which_there_is_no_room_leaves_nothing(
    server: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    server.files["/a"] = b"small"
    monkeypatch.setattr(
        "waybill.transfer.partial_file.open", lambda path, mode, buffering: Full(path, "x"), raising=False
    )
    fetched = get(server, tmp_path)["a"]
    assert (fetched.ok, fetched.permanent, fetched.reason) == (
        False,
        False,
        "The file could not be written: No space left on device.",
    )
    assert os.listdir(tmp_path) == []
