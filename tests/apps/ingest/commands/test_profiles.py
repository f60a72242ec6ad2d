"""Profiles and collections, kept from the command line: made, changed in part, shown without secrets, retired, taken
over from Merritt.
"""

import json
from pathlib import Path

import pytest

from tests.apps.ingest.commands.conftest import ARK
from tests.apps.ingest.commands.records import read_record
from tests.cli.conftest import Result, Waybill

PROPERTIES = """
ProfileID: merritt_demo
Owner: ark:/13030/j2rn30xp
Collection.1: ark:/13030/m5qv8jks
Notification.1: jane@example.org
CallbackURL: https://user:s3cret@example.org/done
HandlerProcess.1: org.cdlib.mrt.ingest.handlers.process.HandlerMinter
Colour: red
"""


def test_a_profile_is_made_with_what_was_given(ingest_cli: Waybill) -> None:
    two = ("--mail", "a@example.org", "--mail", "b@example.org")
    made = ingest_cli("profile", "add", "photos", "--collection", "maps", *two, "--priority", 3, "--json")
    assert made.code == 0, made.err
    shown = ingest_cli("profile", "show", "photos", "--json").json
    assert shown == made.json
    assert (shown["state"], shown["profile"]["priority"]) == ("Active", 3)
    assert shown["profile"]["mail"] == {"to": ["a@example.org", "b@example.org"]}
    assert shown["profile"]["collections"] == [ARK], "a mnemonic stands for the collection's ARK"


def test_a_change_keeps_the_rest(ingest_cli: Waybill) -> None:
    assert ingest_cli("profile", "change", "demo", "--priority", 9, "--why", "no hurry").code == 0
    profile = ingest_cli("profile", "show", "demo", "--json").json["profile"]
    assert (profile["priority"], profile["owner"], profile["collections"]) == (9, "ark:/99999/fk4owner", [ARK])
    assert ingest_cli("profile", "change", "demo").code == 2


def test_the_password_of_a_callback_is_kept_and_never_shown(
    ingest_cli: Waybill, waybill: Waybill, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    where = ("--callback", "https://example.org/done", "--callback-user", "me", "--callback-password-file", "secret")
    assert ingest_cli("profile", "change", "demo", *where).code == 0
    shown = ingest_cli("profile", "show", "demo", "--json")
    assert shown.json["profile"]["callback"] == {"url": "https://example.org/done", "user": "me", "password": "***"}
    (tmp_path / "demo.json").write_text(
        json.dumps({**shown.json["profile"], "description": "as it was shown, and more"})
    )
    assert ingest_cli("profile", "change", "demo", "--file", "demo.json").code == 0
    for told in (
        ingest_cli("profile"),
        ingest_cli("profile", "--json"),
        ingest_cli("profile", "show", "demo"),
        waybill("show", "profile", "demo"),
        waybill("show", "profile", "demo", "--json"),
        waybill("history", "profile", "demo"),
    ):
        assert "s3cret" not in told.out + told.err
    assert read_record("profile", "demo").documents["profile"]["callback"]["password"] == "s3cret", (
        "what was shown masked is kept as it was"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("profile", "show", "nothing"), 3, "There is no profile 'nothing': `waybill ingest profile` or GET"),
        (("profile", "add", "demo"), 4, "demo"),
        (("profile", "add", "x", "--mail", "nobody"), 1, "'nobody' is not a mail address."),
        (("profile", "add", "x", "--collection", "atlases"), 3, "There is no collection 'atlases'"),
        (("profile", "add", "x", "--callback", "ftp://example.org"), 1, "not an http or https URL"),
        (("profile", "delete", "demo", "--yes"), 1, "delete"),
        (("profile", "import", "nothing.properties"), 1, "No such file"),
        (("collection", "add", "maps"), 4, "maps"),
        (("collection", "change", "maps"), 2, "Give what to change"),
        (("collection", "show", "atlases"), 3, "There is no collection 'atlases'"),
    ],
)
def test_each_mistake_has_its_code_and_its_sentence(
    ingest_cli: Waybill, arguments: tuple[str, ...], code: int, part: str
) -> None:
    result = ingest_cli(*arguments)
    assert (result.code, result.out) == (code, "")
    assert part in result.err
    assert ingest_cli(*arguments, "--json").error["message"]


def test_a_profile_is_retired_restored_and_deleted(ingest_cli: Waybill, tmp_path: Path) -> None:
    assert ingest_cli("profile", "retire", "demo", "--json").json == {"name": "demo", "state": "Retired"}
    (tmp_path / "a.txt").write_text("a")
    refused = ingest_cli("submit", "a.txt", "--profile", "demo")
    assert (refused.code, "The profile demo is Retired" in refused.err) == (1, True)
    assert ingest_cli("profile", "restore", "demo", "--json").json["state"] == "Active"
    ingest_cli("profile", "retire", "demo")
    refused = ingest_cli("profile", "delete", "demo")
    assert (refused.code, "Add --yes" in refused.err) == (1, True)
    assert ingest_cli("profile", "delete", "demo", "--yes").code == 0
    assert ingest_cli("profile", "show", "demo").code == 3


def imported(ingest_cli: Waybill, *more: str) -> Result:
    return ingest_cli("profile", "import", "merritt_demo.properties", "--json", *more)


def test_merritts_profiles_are_taken_over_and_a_second_time_nothing_changes(
    ingest_cli: Waybill, tmp_path: Path
) -> None:
    (tmp_path / "merritt_demo.properties").write_text(PROPERTIES)
    assert imported(ingest_cli, "--dry-run").json["profiles"][0]["result"] == "would be created"
    assert ingest_cli("profile", "show", "merritt_demo").code == 3
    first = imported(ingest_cli)
    assert first.code == 0
    assert first.json["profiles"][0]["result"] == "created"
    assert "'Colour' is not a setting of a profile and was ignored." in first.json["profiles"][0]["remarks"]
    assert "s3cret" not in first.out
    assert imported(ingest_cli).json["profiles"][0]["result"] == "unchanged"
    (tmp_path / "merritt_demo.properties").write_text(PROPERTIES + "Priority: 4\n")
    assert imported(ingest_cli).json["profiles"][0]["result"] == "changed"
    assert ingest_cli("profile", "show", "merritt_demo", "--json").json["profile"]["priority"] == 4


def test_a_bad_properties_file_is_refused_and_the_others_are_taken(ingest_cli: Waybill, tmp_path: Path) -> None:
    (tmp_path / "bad.properties").write_text("ProfileID: bad\nPriority: soon\n")
    (tmp_path / "merritt_demo.properties").write_text(PROPERTIES)
    result = ingest_cli("profile", "import", "bad.properties", "merritt_demo.properties", "--json")
    assert result.code == 1
    assert [row["result"] for row in result.json["profiles"]] == ["refused", "created"]
    assert result.json["profiles"][0]["faults"] == ["Priority is 'soon', and must be a number."]


def test_collections_show_whether_they_are_on_hold(ingest_cli: Waybill) -> None:
    assert ingest_cli("collection", "change", "maps", "--name", "Old maps").code == 0
    ingest_cli("hold", "--collection", "maps", "--why", "the curator asked")
    (row,) = ingest_cli("collection", "--json").json["collections"]
    assert (row["mnemonic"], row["collection"]["name"], row["collection"]["ark"]) == ("maps", "Old maps", ARK)
    assert "the curator asked" in row["on_hold"]
    assert "the curator asked" in ingest_cli("collection", "show", "maps").out
