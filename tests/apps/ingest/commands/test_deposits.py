"""Deposits from the command line, all the way: submitted, followed to the end, found, got back; and what goes wrong
with its reason.
"""

import hashlib
import io
import json
import os
import pty
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.commands.conftest import RunWorker
from tests.apps.ingest.ingest_fixture import FileServer
from tests.cli.conftest import Result, Running, Waybill
from waybill.record import StoreUnavailable
from waybill.stores.sqlite.store import SqliteStore

OBJECT = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest"
BATCH = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest"


def manifest(profile: str, *rows: str) -> str:
    return "\n".join(["#%checkm_0.7", f"#%profile | {profile}", *rows, "#%eof", ""])


def submitted(ingest_cli: Waybill, *arguments: object) -> Any:
    said = ingest_cli("submit", *arguments, "--profile", "demo", "--json")
    assert said.code == 0, said.err
    return said.json


def end(said: Result) -> Any:
    return said.lines[-1]


def test_a_file_is_deposited_followed_found_and_got_back(
    ingest_cli: Waybill, run_worker: RunWorker, tmp_path: Path
) -> None:
    (tmp_path / "husky.txt").write_bytes(b"a husky\n")
    with run_worker():
        words = ("--title", "A husky", "--local-id", "h1", "--local-id", "h2")
        said = ingest_cli("submit", "husky.txt", "--profile", "demo", *words, "--watch", "--json")
    assert said.code == 0, said.err
    assert (end(said)["state"], end(said)["jobs"]["states"]) == ("Completed", {"Completed": 1})
    ark = end(said)["objects"][0]["object"]
    assert ark.startswith("ark:/99999/fk4")
    assert [row["ark"] for row in ingest_cli("search", "HUSKY", "--json").json["objects"]] == [ark]
    assert [row["ark"] for row in ingest_cli("search", "--local-id", "h2", "--json").json["objects"]] == [ark]
    assert ingest_cli("search", "chicken").err.strip() == "Nothing was found."
    shown = ingest_cli("object", ark, "--files", "--json").json
    assert shown["title"] == "A husky"
    assert {row["path"]: row["sha256"] for row in shown["files"]}["producer/husky.txt"] == hashlib.sha256(
        b"a husky\n"
    ).hexdigest()
    assert ingest_cli("get", ark, "husky.txt", "-o", "back.txt").code == 0
    assert (tmp_path / "back.txt").read_bytes() == b"a husky\n"
    whole = ingest_cli("get", ark, "-o", "folder", "--json").json
    assert (tmp_path / "folder" / "producer" / "husky.txt").read_bytes() == b"a husky\n"
    assert whole["files"] == len([path for path in (tmp_path / "folder").rglob("*") if path.is_file()])
    assert ingest_cli("get", ark, "-o", "folder").code == 1, "nothing is written over"


def test_without_watch_the_batch_is_named_and_can_be_followed(
    ingest_cli: Waybill, run_worker: RunWorker, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    batch = submitted(ingest_cli, "a.txt")
    assert batch["state"] == "Pending"
    with run_worker():
        said = ingest_cli("watch", batch["batch_id"])
    assert said.code == 0
    assert f"{batch['id']} Completed: 1 Completed" in said.out
    assert ingest_cli("watch", batch["id"]).code == 0, "one that has ended is told at once"


def test_a_store_that_goes_away_is_waited_for(
    ingest_cli: Waybill, run_worker: RunWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    batch = submitted(ingest_cli, "a.txt")
    count_by_state = SqliteStore.count_by_state
    errors = [StoreUnavailable("Nobody there."), StoreUnavailable("Still nobody.")]

    def fail_at_first(store: SqliteStore, kind: str, **options: Any) -> dict[str, int]:
        if kind == "job" and threading.current_thread() is threading.main_thread() and errors:
            raise errors.pop(0)
        return count_by_state(store, kind, **options)

    monkeypatch.setattr(SqliteStore, "count_by_state", fail_at_first)
    monkeypatch.setattr("waybill.cli.followed_records.RETRY_PAUSE", 0.0)
    with run_worker():
        said = ingest_cli("watch", batch["id"])
    assert said.code == 0
    assert said.err.startswith("The store is unavailable: Nobody there; trying again.\nThe store is back.\n")
    assert f"{batch['id']} Completed: 1 Completed" in said.out


def test_failures_end_with_code_1_and_their_reasons_and_are_resumed(
    ingest_cli: Waybill, run_worker: RunWorker, web: FileServer, tmp_path: Path
) -> None:
    good, other = web.put("good.txt", b"good"), web.put("other.txt", b"other")
    wrong = "0" * 64
    (tmp_path / "batch.checkm").write_text(
        manifest(
            BATCH,
            f"{good} | sha-256 | {hashlib.sha256(b'good').hexdigest()} | 4 | | good.txt | | one",
            f"{other} | sha-256 | {wrong} | | | other.txt | | two",
            f"{web.url}/nothing.txt | | | | | nothing.txt | | three",
        )
    )
    with run_worker():
        said = ingest_cli("submit", "batch.checkm", "--profile", "demo", "--watch", "--json")
        id = end(said)["id"]
        assert said.code == 1
        assert end(said)["jobs"]["states"] == {"Completed": 1, "Failed": 2}
        reasons = {failure["what"]: failure["reason"] for failure in ingest_cli("batch", id, "--json").json["failures"]}
        assert "was promised" in reasons["two"]
        assert "404" in reasons["three"]
        shown = ingest_cli("batch", id)
        assert reasons["three"][:40] in shown.out
        assert f"waybill ingest resume --batch {id}" in shown.err

        reported = {
            job["message"]: job["reasons"]
            for job in ingest_cli("report", id, "--jobs", "--json").json["jobs"]
            if job["state"] == "Failed"
        }
        assert set(reported) == set(reasons.values())
        assert [len(each) for message, each in reported.items() if "404" in message] == [1]
        assert f"Failed: {reasons['three']}" in ingest_cli("report", id, "--jobs").out

        web.put("nothing.txt", b"it is there now")
        assert ingest_cli("resume", "--batch", id).code == 0
        settled(ingest_cli, id, Completed=2, Failed=1)
        assert ingest_cli("report", id, "--send", "--json").json["state"] == "UpdateReporting"
        assert ingest_cli("watch", id).code == 1
        report = ingest_cli("report", id, "--json").json
        assert (report["report"], report["counts"]) == (2, {"completed": 2, "failed": 1, "deleted": 0})
        assert (report["since"]["completed"], report["since"]["unresolved"]) == (1, 1)

        unsure = ingest_cli("delete", *report["failed_jobs"])
        assert (unsure.code, "Its batch is not completed" in unsure.err) == (1, True), (
            "the next report would have told of it"
        )
        assert ingest_cli("delete", *report["failed_jobs"], "--yes").code == 0
        ingest_cli("report", id, "--send")
        assert ingest_cli("watch", id).code == 0
        assert ingest_cli("report", id, "--jobs", "--json").json["counts"] == {
            "completed": 2,
            "failed": 0,
            "deleted": 1,
        }


def settled(ingest_cli: Waybill, batch: str, **jobs: int) -> None:
    """Until the jobs of a batch stand so."""
    for _ in range(600):
        found = ingest_cli("batch", batch, "--json").json["jobs"]["states"]
        if {state: count for state, count in found.items() if count} == jobs:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{found}, not {jobs}")


def test_a_wrong_digest_fails_for_good_and_is_not_resumed(
    ingest_cli: Waybill, run_worker: RunWorker, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    with run_worker():
        said = ingest_cli("submit", "a.txt", "--profile", "demo", "--digest", f"md5:{'0' * 32}", "--watch", "--json")
    assert said.code == 1
    (failure,) = end(said)["failures"]
    assert not failure["can_be_resumed"]
    refused = ingest_cli("resume", failure["id"])
    assert (refused.code, "submit it again" in refused.err) == (1, True)
    every = ingest_cli("resume", "--all", "--json")
    assert (every.code, every.lines) == (0, [{"done": 0, "refused": 0}]), "all that can be: none"


def test_an_update_keeps_what_it_does_not_replace_or_delete(
    ingest_cli: Waybill, run_worker: RunWorker, tmp_path: Path
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("one.txt", "1")
        archive.writestr("two.txt", "2")
    (tmp_path / "two.zip").write_bytes(packed.getvalue())
    (tmp_path / "three.txt").write_bytes(b"3")
    with run_worker():
        first = ingest_cli("submit", "two.zip", "--profile", "demo", "--local-id", "x", "--watch", "--json")
        ark = end(first)["objects"][0]["object"]
        again = ("--profile", "demo", "--local-id", "x", "--update", "--delete", "two.txt", "--watch", "--json")
        second = ingest_cli("submit", "three.txt", *again)
    assert end(second)["objects"][0]["object"] == ark, "the local id leads to the same object"

    def paths(number: int) -> set[str]:
        files = ingest_cli("object", ark, "--version", number, "--files", "--json").json["files"]
        return {row["path"] for row in files if row["path"].startswith("producer/")}

    assert paths(1) == {"producer/one.txt", "producer/two.txt"}
    assert paths(2) == {"producer/one.txt", "producer/three.txt"}
    assert ingest_cli("get", ark, "two.txt", "--version", 1).out == "2"
    assert ingest_cli("get", ark, "two.txt").code == 3


def test_the_same_submission_is_made_once_and_another_under_its_id_is_refused(
    ingest_cli: Waybill, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    (tmp_path / "b.txt").write_bytes(b"b")
    first = submitted(ingest_cli, "a.txt", "--batch-id", "mine-1")
    second = submitted(ingest_cli, "a.txt", "--batch-id", "mine-1")
    assert (first["id"], first["is_repeated"], second["is_repeated"]) == (second["id"], False, True)
    assert len(ingest_cli("batches", "--json").json["batches"]) == 1
    refused = ingest_cli("submit", "b.txt", "--profile", "demo", "--batch-id", "mine-1")
    assert (refused.code, "mine-1 belongs to" in refused.err) == (4, True)
    assert ingest_cli("batch", "mine-1", "--json").json["id"] == first["id"]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("nothing.txt", "--profile", "demo"), 3, "There is no file nothing.txt here"),
        ((".", "--profile", "demo"), 2, "is a folder: pack it as a zip or a tar"),
        (("pipe", "--profile", "demo"), 2, "is neither a file nor a folder"),
        (("a.txt", "--profile", "nope"), 3, "There is no profile 'nope'"),
        (("a.txt", "--profile", "demo", "--digest", "abc"), 2, "is not TYPE:HEX"),
        (("a.txt", "--profile", "demo", "--digest", "md7:00"), 1, "'md7' is not a digest that can be checked"),
        (("a.txt", "--profile", "demo", "--dc", "colour=red"), 2, "the words are contributor"),
        (("a.txt", "--profile", "demo", "--primary-id", "ark:x"), 1, "is not an ARK"),
        (("a.txt", "--profile", "demo", "--notify", "nobody"), 1, "'nobody' is not a mail address."),
        (("a.txt", "--profile", "demo", "--type", "shoebox"), 2, "shoebox"),
        (("file:///etc/passwd", "--profile", "demo"), 1, "give an http or https URL"),
        (("http://10.1.2.3/a", "--profile", "demo"), 1, "10.1.2.3"),
        (("https://me:s3cret@example.org/a", "--profile", "demo"), 1, "without user name and password"),
        (("-", "--profile", "demo"), 2, "give --filename"),
        (("a.txt",), 2, "--profile"),
    ],
)
def test_each_mistake_has_its_code_and_sentence(
    ingest_cli: Waybill, tmp_path: Path, arguments: tuple[str, ...], code: int, part: str
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    os.mkfifo(tmp_path / "pipe")
    said = ingest_cli("submit", *arguments)
    assert (said.code, said.out) == (code, "")
    assert part in said.err
    assert "s3cret" not in said.err
    assert ingest_cli("batches", "--json").json["batches"] == [], "nothing was submitted"


def test_a_corrupt_manifest_is_refused_at_once_with_all_its_lines(ingest_cli: Waybill, tmp_path: Path) -> None:
    rows = (
        "ftp://example.org/a | | | | | a",
        "https://example.org/b | md5 | xyz | | | b",
        "https://example.org/c | | | | | b",
    )
    (tmp_path / "bad.checkm").write_text(manifest(OBJECT, *rows))
    checked = ingest_cli("check", "bad.checkm", "--json")
    assert checked.code == 1
    assert [note["line"] for note in checked.json["complaints"]] == [3, 4, 5]
    said = ingest_cli("submit", "bad.checkm", "--profile", "demo")
    assert said.code == 1
    assert [line.partition(":")[0] for line in said.err.splitlines()[:3]] == ["Line 3", "Line 4", "Line 5"]
    assert ingest_cli("batches", "--json").json["batches"] == []
    assert submitted(ingest_cli, "bad.checkm", "--type", "file")["type"] == "file"


@pytest.mark.parametrize(
    "body",
    ["", "garbage\n", manifest(OBJECT.replace("ingest", "unheard-of", 2))],
    ids=["empty", "corrupt", "wrong profile"],
)
def test_what_has_the_name_of_a_manifest_and_is_none_is_refused_at_once(
    ingest_cli: Waybill, tmp_path: Path, body: str
) -> None:
    (tmp_path / "a.txt").write_text(body)
    (tmp_path / "bad.checkm").write_text(body)
    assert ingest_cli("check", "bad.checkm").code == 1
    for arguments in (("bad.checkm",), ("a.txt", "--filename", "A.CHECKM"), ("a.txt", "--type", "object-manifest")):
        said = ingest_cli("submit", *arguments, "--profile", "demo")
        assert (said.code, "was not submitted: correct it first" in said.err) == (1, True), arguments
    assert ingest_cli("batches", "--json").json["batches"] == []
    assert submitted(ingest_cli, "bad.checkm", "--type", "file")["type"] == "file"
    assert submitted(ingest_cli, "a.txt")["type"] == "file"


def test_a_good_manifest_and_a_good_container_are_called_good(ingest_cli: Waybill, tmp_path: Path) -> None:
    (tmp_path / "good.checkm").write_text(
        manifest(OBJECT, "https://example.org/a | | | 46 | | a", "https://example.org/b | | | | | b")
    )
    assert "an object of 2 files, 46 B according to the manifest" in ingest_cli("check", "good.checkm").out
    (tmp_path / "one.checkm").write_text(manifest(OBJECT, "https://example.org/a | | | | | a"))
    assert "an object of 1 file." in ingest_cli("check", "one.checkm").out
    with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
        archive.writestr("a", "a")
    assert "a container of 1 file" in ingest_cli("check", "good.zip").out
    (tmp_path / "bad.zip").write_bytes((tmp_path / "good.zip").read_bytes()[:-10])
    assert ingest_cli("check", "bad.zip").code == 1
    wrong = ingest_cli("check", "good.checkm", "--type", "batch-manifest")
    assert (wrong.code, "sent as mrt-batch-manifest" in wrong.out) == (1, True)


def in_terminal(*arguments: str) -> tuple[int, str]:
    """A command as a person at a terminal sees it: its exit code, and all that was written."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "waybill", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm"},  # whatever the suite was started from
    )
    os.close(follower)
    written = b""
    try:
        while portion := os.read(leader, 65536):
            written += portion
    except OSError:  # a terminal whose last writer has gone
        pass
    os.close(leader)
    return process.wait(), written.decode()


def test_urls_that_would_not_be_fetched_are_complained_of(ingest_cli: Waybill, tmp_path: Path) -> None:
    (tmp_path / "private.checkm").write_text(
        manifest(OBJECT, "http://169.254.169.254/a | | | | | a", "http://93.184.216.34/b | | | | | b")
    )
    checked = ingest_cli("check", "private.checkm", "--json")
    assert (checked.code, [note["line"] for note in checked.json["complaints"]]) == (1, [3])
    assert "'169.254.169.254' is not a public address" in checked.json["complaints"][0]["text"]


def test_rows_that_name_one_object_are_remarked_on_before_they_are_submitted(
    ingest_cli: Waybill, tmp_path: Path
) -> None:
    rows = "".join(f"https://example.org/{n}.txt |  |  |  |  | {n}.txt |  | box-7\n" for n in range(2))
    profile = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest"
    (tmp_path / "twice.checkm").write_text(f"#%checkm_0.7\n#%profile | {profile}\n{rows}#%eof\n")
    remark = "Line 4: 'box-7' is named in line 3 too"
    checked = ingest_cli("check", str(tmp_path / "twice.checkm"))
    assert (checked.code, remark in checked.out, "is good" in checked.out) == (0, True, True)
    submitted = ingest_cli("submit", str(tmp_path / "twice.checkm"), "--profile", "demo")
    assert (submitted.code, remark in submitted.err) == (0, True)


def test_a_terminal_shows_how_far_the_upload_is_and_then_how_far_the_batch_is(
    ingest_cli: Waybill, run_worker: RunWorker, tmp_path: Path
) -> None:
    (tmp_path / "large.bin").write_bytes(b"x" * 9_000_000)
    with run_worker():
        code, seen = in_terminal("ingest", "submit", "large.bin", "--profile", "demo", "--watch")
    upload, said, batch = seen.partition("is submitted")
    assert (code, bool(said)) == (0, True), seen
    assert "9.0 MB" in upload
    assert "9.0 MB" not in batch, "one live display at a time"
    assert "Completed: 1 Completed" in batch


def test_whoever_follows_a_batch_sees_why_its_jobs_wait(
    ingest_cli: Waybill, run_worker: RunWorker, data: Path, tmp_path: Path, running: Callable[..., Running]
) -> None:
    settings = (data / "waybill.toml").read_text().replace("keep_free = 0", f"keep_free = {2**60}")
    (data / "waybill.toml").write_text(settings)
    (tmp_path / "a.txt").write_bytes(b"a")
    batch = submitted(ingest_cli, "a.txt")
    with run_worker():
        watching = running("ingest", "watch", batch["id"], "--json", "--interval", "0.2")
        while not (waits := json.loads(watching.line())["waits"]):
            continue
    assert waits[0]["state"] == "Provisioning"
    assert waits[0]["message"]
