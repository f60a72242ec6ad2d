"""`waybill users|groups|keys|tokens`: what they do, what they say, and what they refuse."""

from pathlib import Path

from tests.accounts.test_ssh_keys import KNOWN
from tests.cli.conftest import Waybill


def test_a_user_from_its_first_day_to_its_last(waybill: Waybill, tmp_path: Path) -> None:
    made = waybill("users", "new", "ada", "--mail", "ada@example.org", "--role", "submitter", "--in", "own", "--json")
    assert made.json["roles"] == [{"role": "submitter", "scope": "own"}]
    assert waybill("users", "change", "ada", "--name", "Ada L.", "--notify", "done,failed").code == 0
    assert waybill("groups", "new", "atlas", "--description", "the atlas project").code == 0
    assert "ada is a member of atlas" in waybill("groups", "add", "atlas", "ada").out
    assert "atlas is reader within demo" in waybill("groups", "grant", "atlas", "reader", "--in", "demo").out
    (tmp_path / "key.pub").write_text(KNOWN)
    assert "35:8b:db:ae" in waybill("keys", "add", "ada", tmp_path / "key.pub").out
    assert "laptop" in waybill("keys", "list", "--user", "ada").out
    token = waybill("tokens", "new", "laptop", "--user", "ada", "--role", "submitter", "--days", 90, "--json").json
    assert (token["user"], token["role"], token["expires"] > token["created"]) == ("ada", "submitter", True)
    shown = waybill("users", "show", "ada", "--json").json
    assert shown["may"] == [
        {"role": "reader", "scope": "demo"}, {"role": "reader", "scope": "own"}, {"role": "submitter", "scope": "own"},
    ]  # fmt: skip
    assert [key["md5"][:5] for key in shown["keys"]] == ["35:8b"]
    assert [entry["cause"] for entry in shown["history"]] == ["submit", "change", "join"]
    assert "Ada L." in waybill("users").out
    assert "1 user" in waybill("groups").out
    assert "ada@example.org" in waybill("users", "show", "ada").out
    assert waybill("users", "disable", "ada", "--why", "has left").code == 0
    refused = waybill("users", "delete", "ada")
    assert (refused.code, "Repeat the command with --yes" in refused.err) == (2, True)
    assert waybill("users", "delete", "ada", "--yes", "--json").json["state"] == "Deleted"
    assert waybill("groups", "show", "atlas", "--json").json["members"] == []
    assert waybill("groups", "close", "atlas", "--yes").code == 0


def test_what_is_wrong_is_said_and_nothing_is_changed(waybill: Waybill, tmp_path: Path) -> None:
    assert waybill("users", "new", "ada", "--role", "admin").code == 0
    (tmp_path / "bad.pub").write_text("ssh-rsa garbage")
    for arguments, code, why in [
        (("users", "disable", "ada"), 1, "is the last admin"),
        (("users", "withdraw", "ada", "admin"), 1, "is the last admin"),
        (("users", "new", "Ada"), 4, "there is, or was, a user ada"),
        (("users", "new", "bob", "--role", "reader", "--in", "nowhere"), 2, "There is no application 'nowhere'"),
        (("users", "new", "bob", "--in", "demo"), 2, "give --role too"),
        (("users", "grant", "nobody", "reader"), 3, "There is no user and no group 'nobody'"),
        (("users", "change", "ada"), 2, "Nothing is given"),
        (("users", "change", "ada", "--unix-user", "root"), 1, "cannot be the Unix user"),
        (("keys", "add", "ada", tmp_path / "bad.pub"), 1, "its base64 is not complete"),
        (("keys", "add", "ada", tmp_path / "none.pub"), 2, "cannot be read"),
        (("keys", "remove", "ada", "laptop"), 3, "ada has no key 'laptop'"),
        (("tokens", "new", "x", "--user", "nobody"), 3, "nobody"),
        (("tokens", "new", "x", "--days", "0"), 1, "A token lasts up to"),
        (("groups", "add", "nothing", "ada"), 3, "nothing"),
        (("login-link", "--user", "nobody"), 3, "nobody"),
        (("login-link", "--user", "ada", "--name", "x"), 2, "leave out --name"),
    ]:
        refused = waybill(*arguments)
        assert (refused.code, why in refused.err) == (code, True), (arguments, refused)
    assert waybill("users", "show", "ada", "--json").json["state"] == "Active"
    assert len(waybill("users", "list", "--json").json["users"]) == 1


def test_a_group_in_itself_is_refused(waybill: Waybill) -> None:
    for name in ("one", "two"):
        assert waybill("groups", "new", name).code == 0
    assert waybill("groups", "add", "one", "two").code == 0
    refused = waybill("groups", "add", "two", "one", "--json")
    assert (refused.code, refused.error["code"]) == (1, "refused")
    assert "would be a member of itself" in refused.error["message"]
