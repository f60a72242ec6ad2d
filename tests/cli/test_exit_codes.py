"""What goes wrong is one sentence on stderr, the same in JSON, and an exit code that a script can trust."""

import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Start, Waybill, submit_shipment
from waybill.cli import invoke
from waybill.cli.problems import EXIT_CODES
from waybill.config import sqlite_url

# What was asked, the exit code, the code in JSON, a part of the sentence.
WRONG: list[tuple[tuple[str, ...], int, str, str]] = [
    (
        ("ls", "colour"),
        3,
        "unknown-kind",
        "There is no kind 'colour'; there are activity, event, group, key, login-link, mail, maintenance, parcel, shipment, sign-in, "
        "subscription, token, user, webhook_delivery.",
    ),
    (("show", "shipment", "shp1"), 3, "not-found", "shp1"),
    (("history", "shipment", "shp1"), 3, "not-found", "shp1"),
    (("act", "shipment", "shp1", "resume"), 3, "not-found", "shp1"),
    (
        ("act", "shipment", "shp1", "fly"),
        3,
        "unknown-action",
        "A shipment has no action 'fly'; it has resume, close, cancel.",
    ),
    (("priority", "shipment", "shp1", "3"), 3, "not-found", "shp1"),
    (("step", "shipment", "shp1"), 3, "not-found", "shp1"),
    (("watch", "shipment", "shp1"), 3, "not-found", "shp1"),
    (
        ("ls", "shipment", "--state", "Flying"),
        3,
        "unknown-state",
        "A shipment has no state 'Flying'; it has Sorting, Travelling",
    ),
    (("ls", "shipment", "--parent", "nothing"), 3, "unknown-name", "write KIND:ID"),
    (
        ("work", "--queue", "parcel.Flying"),
        3,
        "unknown-state",
        "parcel.Flying is no queue: a parcel has no state 'Flying'. Queues of parcel:",
    ),
    (
        ("work", "--once", "--queue", "parcel.Flying"),
        3,
        "unknown-state",
        "parcel.Flying is no queue: a parcel has no state 'Flying'.",
    ),
    (("work", "--queue", "parcel.Held"), 1, "refused", "parcel.Held is no queue: no work is done there."),
    (("tokens", "revoke", "abc"), 3, "not-found", "abc"),
    (
        ("submit", "shipment", "--state", "Delivered"),
        1,
        "refused",
        "A shipment cannot begin in Delivered; it begins in Sorting.",
    ),
    (("submit", "shipment", "--id", "a/b"), 1, "refused", "is no id"),
    (
        ("submit", "token"),
        1,
        "refused",
        "No token is created here, where its documents would not be checked: it is made by `waybill tokens",
    ),
    (
        ("submit", "parcel"),
        1,
        "bad-documents",
        "These documents are not what a parcel needs: DocumentError: parcel pcl",
    ),
    (
        ("submit", "parcel", "--document", "label=" + "[" * 9000),
        2,
        "usage",
        "The document label is not JSON: it is nested too deeply.",
    ),
    (
        ("submit", "parcel", "--document", "label=5"),
        1,
        "bad-documents",
        "The document label is not what a parcel needs: Expected `object`",
    ),
    (
        ("hold", ""),
        1,
        "bad-name",
        "The name of a hold is 1 to 200 printable characters without a blank at either end, such as carrier/mule.",
    ),
    (("hold", "carrier/mule "), 1, "bad-name", "The name of a hold is"),
    (("hold", "carrier\nmule"), 1, "bad-name", "The name of a hold is"),
    (("hold", "m" * 201), 1, "bad-name", "The name of a hold is"),
    (("hold", "carrier//mule"), 1, "bad-name", "'carrier//mule' is not the name of a hold"),
    (("tokens", "new", " "), 1, "refused", "A token's name is 1 to 100 printable characters"),
    (("ls", "shipment", "--limit", "0"), 2, "usage", "--limit"),
    (("ls", "shipment", "--colour", "red"), 2, "usage", "--colour"),
    (("fly",), 2, "usage", "fly"),
    (("show", "shipment"), 2, "usage", "ID"),
    (("ls", "shipment", "--page-token", "x"), 2, "bad-page-token", "Begin again without a token."),
    (("tokens", "new", "me", "--role", "king"), 2, "usage", "king"),
    (("show", "parcel", "a\udcffb"), 2, "usage", r"The argument 'a\xffb' is not UTF-8."),
    (("ls", "parcel", "--owner", "\udcff"), 2, "usage", r"The argument '\xff' is not UTF-8."),
    (("hold", "\udcff"), 2, "usage", r"The argument '\xff' is not UTF-8."),
    (("hold", "carrier/mule", "--why", "\udcff"), 2, "usage", r"The argument '\xff' is not UTF-8."),
    (("sim", "--seed", "1", "--seeds", "2"), 2, "usage", "Give one of --seeds, --seed and --minutes."),
    (("ls", "--store", "postgresql://me:secret@[::1/db"), 2, "bad-config", "a valid URL (Invalid IPv6 URL)"),
    (("ls", "--store", "zookeeper://127.0.0.1:99999/x"), 5, "bad-store", "99999 is not a port"),
    (("ls", "--store", "mysql://host/db"), 5, "bad-store", "mysql is no kind of store; a store URL is sqlite:///path"),
    (("ls", "--store", "postgresql://me:secret@127.0.0.1:1/db"), 5, "unavailable", "127.0.0.1"),
    (
        ("doctor", "--config", "objects.toml"),
        5,
        "objects-refused",
        "ftp:// is not an address of objects: use a path, file:///path or s3://bucket",
    ),
    (("ls", "--config", "missing.toml"), 2, "bad-config", "missing.toml cannot be read: No such file or directory."),
    (("up", "--host", "192.0.2.1", "--open-loopback"), 2, "usage", "192.0.2.1 is not loopback"),
    (("up", "--host", "192.0.2.1"), 1, "no-socket", "give another with --port"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "name", "part"), WRONG, ids=[ascii(" ".join(wrong[0])[:100]) for wrong in WRONG]
)
def test_each_mistake_has_its_code_and_its_sentence(
    waybill: Waybill, arguments: tuple[str, ...], code: int, name: str, part: str
) -> None:
    Path("objects.toml").write_text('data = "data"\nobjects = "ftp://host/x"\n')
    said = waybill(*arguments)
    assert (said.code, said.out) == (code, "")
    assert part in said.err
    assert said.err.strip().count("\n") == 0
    assert "secret" not in said.err
    in_json = waybill(*arguments, "--json")
    assert (in_json.code, in_json.out) == (code, "")
    assert (set(in_json.error), in_json.error["code"]) == ({"code", "message", "hint"}, name)
    assert part in in_json.error["message"]
    assert code in EXIT_CODES


def test_a_common_option_counts_before_the_command_too(waybill: Waybill) -> None:
    said = waybill("--data", "elsewhere", "ls")
    assert said.code == 5
    assert "elsewhere" in said.err


@pytest.mark.parametrize("arguments", [wrong[0] for wrong in WRONG if wrong[3] == "shp1"], ids=" ".join)
def test_a_record_that_is_not_there_is_told_with_what_to_do(waybill: Waybill, arguments: tuple[str, ...]) -> None:
    hint = "Check the id, or list the records with `waybill ls KIND`."
    assert waybill(*arguments).err.rstrip().endswith(hint)
    assert waybill(*arguments, "--json").error["hint"] == hint


def test_only_a_process_that_logs_tells_what_the_client_of_zookeeper_says(running: Start) -> None:
    nowhere = ("--store", "zookeeper://127.0.0.1:1/x?connect_timeout=0.2")
    plain, in_json = running("ls", *nowhere), running("ls", *nowhere, "--json")
    logs = [running("work", *nowhere, env={"WAYBILL_LOG_LEVEL": level}) for level in ("info", "debug")]
    sentence = "No ZooKeeper server answers at 127.0.0.1:1. Is it running, and is that its client port?\n"
    assert (plain.end().err, in_json.end().error["message"] + "\n") == (sentence, sentence)
    worker, curious = (log.end().err for log in logs)
    assert ("Connection dropped" in worker, "Connecting to" in worker) == (False, False), (
        "the worker itself reports that the store is unavailable"
    )
    assert ("warning Connection dropped" in curious, "Connecting to" in curious) == (True, True)


def test_every_exit_code_is_met_by_a_test() -> None:
    assert {wrong[1] for wrong in WRONG} | {0, 4} == set(EXIT_CODES), "0 and 4 are met in test_acting.py"


def test_looking_at_a_store_that_is_not_there_makes_none(bare: Waybill, data: Path) -> None:
    looks = (
        ("ls",),
        ("show", "shipment", "x"),
        ("doctor",),
        ("watch",),
        ("holds",),
        ("hold", "x"),
        ("submit", "shipment"),
        ("sessions",),
    )
    for command in looks:
        said = bare(*command)
        assert (said.code, "`waybill up` or `waybill migrate` makes one" in said.err) == (5, True)
    assert not data.exists()


def test_no_argument_is_a_cry_for_help(bare: Waybill) -> None:
    said = bare()
    assert said.code == 2
    assert "Usage: waybill" in said.out + said.err


def test_a_traceback_is_shown_only_when_asked_for(
    waybill: Waybill, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Traceback" not in waybill("ls", "colour").err
    monkeypatch.setenv("WAYBILL_DEBUG", "1")
    assert invoke(["ls", "colour"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_database_of_a_newer_schema_is_refused(waybill: Waybill, data: Path) -> None:
    submit_shipment(waybill)
    with sqlite3.connect(data / "waybill.db") as db:
        db.execute("pragma user_version = 9999")
    for command in (("ls",), ("migrate",), ("work", "--once")):
        said = waybill(*command)
        assert said.code == 5
        assert "newer" in said.err
    with sqlite3.connect(data / "waybill.db") as db:
        assert db.execute("pragma user_version").fetchone() == (9999,)


def test_what_is_no_database_is_refused_and_left_alone(bare: Waybill, data: Path) -> None:
    data.mkdir()
    (data / "waybill.db").write_text(
        "these are my notes, not a database; they are long enough to be looked at by whoever opens them"
    )
    assert bare("migrate").code == 5
    assert (data / "waybill.db").read_text().startswith("these are my notes")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A place for half a megabyte: a file system of that size, or, for whoever may not mount one, files of at most
    that size.
    """
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=True)
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)
    else:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512 * 1024, before[1]))
        yield folder
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing_and_says_what_to_do(bare: Waybill, small_disk: Path) -> None:
    store = ("--store", sqlite_url(small_disk / "waybill.db"))
    assert bare("migrate", *store).code == 0
    label = f'label={{"number": 1, "carrier": "mule", "address": "{"x" * 20_000}"}}'
    made = []
    for _ in range(100):
        said = bare("submit", "parcel", "--document", label, *store)
        if said.code:
            break
        made.append(said.out.strip())
    assert (said.code, said.out) == (5, "")
    assert "disk" in said.err or "space" in said.err
    assert "Traceback" not in said.err
    assert made
    listed = [record["id"] for record in bare("ls", "parcel", "--json", *store).json["records"]]
    assert listed == made


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing can be made; root is stopped by no permission, so for it the file system is
    read-only.
    """
    folder = tmp_path / "locked"
    folder.mkdir()
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], check=True)
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)
    else:
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)


@pytest.mark.parametrize("arguments", [("migrate",), ("up", "--port", "0"), ("work",)])
def test_a_folder_that_cannot_be_written_is_a_sentence(
    bare: Waybill, locked: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYBILL_DEMO")
    said = bare(*arguments, "--data", locked / "data")
    assert (said.code, said.out) == (5, "")
    assert f"{locked}/data cannot be made: " in said.err
    assert "Choose another with --data." in said.err
    assert said.err.strip().count("\n") == 0


def test_a_store_that_became_read_only_refuses_and_keeps_what_it_has(bare: Waybill, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    store = ("--store", sqlite_url(tmp_path / "kept" / "waybill.db"))
    bare("migrate", *store)
    made = bare("submit", "shipment", "--document", 'order={"parcels": 1}', *store).out.strip()
    (tmp_path / "kept" / "waybill.db").chmod(0o400)
    (tmp_path / "kept").chmod(0o500)
    if os.geteuid() == 0:
        subprocess.run(["mount", "--bind", "-o", "ro", str(tmp_path / "kept"), str(tmp_path / "kept")], check=True)
    try:
        said = bare("submit", "shipment", "--document", 'order={"parcels": 1}', *store)
        assert (said.code, said.out) == (5, "")
        assert said.err.strip().count("\n") == 0
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", "-l", str(tmp_path / "kept")], check=True)
        (tmp_path / "kept").chmod(0o700)
        (tmp_path / "kept" / "waybill.db").chmod(0o600)
    assert [record["id"] for record in bare("ls", "shipment", "--json", *store).json["records"]] == [made]
