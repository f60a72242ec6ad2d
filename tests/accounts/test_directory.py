"""Users, groups, roles, keys and tokens: who somebody is, on every store."""

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from waybill import accounts, tokens
from waybill.accounts import Grant, Identity, directory
from waybill.engine import Engine
from waybill.record import RecordExists, RecordNotFound, Ref, Store
from waybill.rules import ActionRefused
from waybill.sign_in import identify_sign_in, make_login_link, sign_in_with_link, sign_in_with_password


def identity_of(engine: Engine, user: str) -> Identity:
    identity = accounts.identity_of_user(engine.store, user)
    assert identity is not None
    return identity


def make_key_line(comment: str = "laptop") -> str:
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    return f"{line} {comment}"


def test_a_user_has_its_own_roles_and_those_of_its_groups_and_of_the_groups_they_are_in(engine: Engine) -> None:
    accounts.create_user(engine, "ada", mail="ada@example.org", who="root")
    for group in ("readers", "team", "company"):
        accounts.create_group(engine, group, who="root")
    accounts.add_member(engine, "team", "ada", who="root")
    accounts.add_member(engine, "company", "team", who="root")
    accounts.grant_role(engine, "ada", "submitter", "ingest/collection/maps", who="root")
    accounts.grant_role(engine, "company", "operator", "archive", who="root")
    accounts.grant_role(engine, "readers", "admin", "archive", who="root")
    ada = identity_of(engine, "ada")
    assert ada.owners == ("ada", "team", "company")
    assert ada.grants == (
        Grant("operator", "archive"), Grant("reader", "own"), Grant("submitter", "ingest/collection/maps"),
    )  # fmt: skip
    assert (ada.role, ada.has_role_somewhere("operator"), ada.has_role_somewhere("admin")) == ("", True, False)
    accounts.close_group(engine, "company", who="root")
    accounts.remove_member(engine, "team", "ada", who="root")
    assert identity_of(engine, "ada").grants == (Grant("reader", "own"), Grant("submitter", "ingest/collection/maps"))
    causes = [(entry.cause, entry.why) for entry in engine.store.history("user", "ada")]
    assert causes == [
        ("submit", ""),
        ("join", "team"),
        ("grant", "submitter within ingest/collection/maps"),
        ("leave", "team"),
    ]


def test_a_group_is_no_member_of_itself_however_far_around(engine: Engine) -> None:
    for group in ("one", "two", "three"):
        accounts.create_group(engine, group)
    accounts.add_member(engine, "one", "two")
    accounts.add_member(engine, "two", "three")
    for container, member in (("one", "one"), ("two", "one"), ("three", "one")):
        with pytest.raises(ActionRefused, match=f"The group {container} would be a member of itself"):
            accounts.add_member(engine, container, member)
    assert accounts.to_group_view(engine.store.get("group", "three"))["subgroups"] == []


def test_a_name_is_of_one_account_whatever_its_letters_case_and_is_never_given_again(engine: Engine) -> None:
    accounts.create_user(engine, "Ada")
    for create in (accounts.create_user, accounts.create_group):
        with pytest.raises(RecordExists, match="there is, or was, a user Ada"):
            create(engine, "ada")
    accounts.disable_user(engine, "Ada")
    accounts.delete_user(engine, "Ada")
    with pytest.raises(RecordExists):
        accounts.create_user(engine, "Ada")
    for name in ("", "-x", "a b", "own", "x" * 65, "a/b"):
        with pytest.raises(ActionRefused, match=r"is no name of a user|is a word of the scopes"):
            accounts.create_user(engine, name)


def test_who_is_deleted_is_erased_and_leaves_its_groups(engine: Engine) -> None:
    accounts.create_user(engine, "ada", name="Ada L.", mail="ada@example.org", roles=[Grant("operator")])
    accounts.create_group(engine, "team")
    accounts.add_member(engine, "team", "ada")
    accounts.disable_user(engine, "ada", why="left")
    accounts.delete_user(engine, "ada")
    view = accounts.to_user_view(engine.store.get("user", "ada"))
    assert (view["name"], view["mail"], view["roles"], view["state"]) == ("", "", [], "Deleted")
    assert accounts.to_group_view(engine.store.get("group", "team"))["members"] == []


@pytest.mark.parametrize("leave", ["disable", "withdraw", "revoke"])
def test_the_last_admin_cannot_be_removed(engine: Engine, leave: str) -> None:
    token = tokens.issue(engine, "first", "admin").record.id
    tokens.issue(engine, "short", "admin", lifetime=60)
    tokens.issue(engine, "within", "admin", scope="ingest")
    accounts.create_user(engine, "ada", roles=[Grant("admin")])
    leaves: dict[str, Callable[[], object]] = {
        "disable": lambda: accounts.disable_user(engine, "ada"),
        "withdraw": lambda: accounts.withdraw_role(engine, "ada", "admin"),
        "revoke": lambda: tokens.revoke(engine, token),
    }
    if leave == "revoke":
        accounts.create_user(engine, "bob", roles=[Grant("operator")])
        accounts.disable_user(engine, "bob")
        accounts.disable_user(engine, "ada")
    else:
        tokens.revoke(engine, token)
        assert [entry.cause for entry in engine.store.history("user", "ada")] == ["submit", "remain"]
    with pytest.raises(ActionRefused, match="is the last admin"):
        leaves[leave]()
    accounts.create_user(engine, "eve")
    accounts.grant_role(engine, "eve", "admin")
    leaves[leave]()
    with pytest.raises(ActionRefused, match="is the last admin"):
        accounts.disable_user(engine, "eve")


def test_two_admins_who_disable_each_other_at_once_cannot_both_succeed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("ada", "eve"):
        accounts.create_user(engine, user, roles=[Grant("admin")])
    find_other_admin = directory.find_other_admin

    def find_and_be_overtaken(store: Store, but: Ref) -> Ref | None:
        other = find_other_admin(store, but)
        monkeypatch.setattr(directory, "find_other_admin", find_other_admin)
        accounts.disable_user(engine, "eve", who="ada")  # between the look and the commit of the other
        return other

    monkeypatch.setattr(directory, "find_other_admin", find_and_be_overtaken)
    with pytest.raises(ActionRefused, match="remain needs it to be Active"):
        accounts.disable_user(engine, "ada", who="eve")
    assert [engine.store.get("user", user).state for user in ("ada", "eve")] == ["Active", "Disabled"]


def test_a_group_is_not_admin_everywhere(engine: Engine) -> None:
    accounts.create_group(engine, "admins")
    with pytest.raises(ActionRefused, match="its managers could make anybody an admin"):
        accounts.grant_role(engine, "admins", "admin")
    with pytest.raises(ActionRefused, match="is no scope of a role"):
        accounts.grant_role(engine, "admins", "reader", "Ingest!")
    with pytest.raises(ActionRefused, match="'king' is no role"):
        accounts.grant_role(engine, "admins", "king")
    with pytest.raises(ActionRefused, match="It has no role reader within ingest"):
        accounts.withdraw_role(engine, "admins", "reader", "ingest")


def test_managers_and_nobody_else_change_members(engine: Engine) -> None:
    for user in ("ada", "bob"):
        accounts.create_user(engine, user)
    accounts.create_group(engine, "team")
    accounts.add_manager(engine, "team", "ada")
    assert accounts.may_manage(engine.store, identity_of(engine, "ada"), "team")
    assert not accounts.may_manage(engine.store, identity_of(engine, "bob"), "team")
    assert not accounts.may_manage(engine.store, Identity("ada", "operator"), "team")  # a token that is no user's
    accounts.remove_manager(engine, "team", "ada")
    assert not accounts.may_manage(engine.store, identity_of(engine, "ada"), "team")


def test_a_token_allows_what_its_user_may_now_and_no_more_than_its_own_role_and_scope(engine: Engine) -> None:
    accounts.create_user(engine, "ada", roles=[Grant("operator"), Grant("admin", "ingest")])

    def allowed(role: str = "admin", scope: str = "") -> tuple[Grant, ...]:
        issued = tokens.issue(engine, "laptop", role, user="ada", scope=scope)
        identity = tokens.identify(engine.store, issued.token)
        assert identity is not None
        assert (identity.name, identity.user) == ("ada", "ada")
        return identity.grants

    assert allowed() == (Grant("admin", "ingest"), Grant("operator"), Grant("reader", "own"))
    assert allowed(role="reader") == (Grant("reader"), Grant("reader", "ingest"), Grant("reader", "own"))
    assert allowed(scope="ingest/collection/maps") == (
        Grant("admin", "ingest/collection/maps"), Grant("operator", "ingest/collection/maps"),
    )  # fmt: skip
    assert allowed(scope="own") == (Grant("operator", "own"), Grant("reader", "own"))
    issued = tokens.issue(engine, "laptop", "reader", user="ada")
    accounts.disable_user(engine, "ada")
    assert tokens.identify(engine.store, issued.token) is None
    with pytest.raises(ActionRefused, match="is not active"):
        tokens.issue(engine, "laptop", "reader", user="ada")
    accounts.enable_user(engine, "ada")
    assert tokens.identify(engine.store, issued.token) is not None


def test_a_token_that_expires_is_refused_from_then_on(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = tokens.issue(engine, "night shift", "operator", lifetime=3600)
    assert tokens.identify(engine.store, issued.token) is not None
    later = engine.store.now() + 3601
    monkeypatch.setattr(engine.store, "now", lambda: later)
    assert tokens.identify(engine.store, issued.token) is None
    assert not tokens.is_active(engine.store, issued.record.id)
    for lifetime in (0, -1, 1e12):
        with pytest.raises(ActionRefused, match="A token lasts up to"):
            tokens.issue(engine, "x", "reader", lifetime=lifetime)


def test_a_password_signs_in_until_it_changes_or_its_user_is_disabled(engine: Engine) -> None:
    accounts.create_user(engine, "ada", roles=[Grant("submitter")])
    assert sign_in_with_password(engine, "ada", "") is None
    with pytest.raises(ActionRefused, match="has 10 to 500 characters"):
        accounts.set_password(engine, "ada", "short")
    accounts.set_password(engine, "ada", "correct horse battery")
    assert "correct" not in str(engine.store.get("user", "ada").documents.raw)
    assert sign_in_with_password(engine, "ada", "correct horse batterie") is None
    assert sign_in_with_password(engine, "eve", "correct horse battery") is None
    made = sign_in_with_password(engine, "ada", "correct horse battery")
    assert made is not None
    signed_in = identify_sign_in(engine.store, made.text)
    assert signed_in is not None
    assert (signed_in.user, signed_in.role) == ("ada", "submitter")
    accounts.disable_user(engine, "ada")
    assert identify_sign_in(engine.store, made.text) is None
    assert sign_in_with_password(engine, "ada", "correct horse battery") is None
    accounts.enable_user(engine, "ada")
    assert identify_sign_in(engine.store, made.text) is not None
    accounts.set_password(engine, "ada", "another horse battery")
    assert identify_sign_in(engine.store, made.text) is None


def test_a_link_for_a_user_signs_in_with_its_roles(engine: Engine) -> None:
    accounts.create_user(engine, "ada", roles=[Grant("operator", "ingest")])
    made = sign_in_with_link(engine, make_login_link(engine, "ada", "admin", is_user=True).text)
    assert made is not None
    identity = identify_sign_in(engine.store, made.text)
    assert identity is not None
    assert (identity.user, identity.role, identity.has_role_in("operator", "ingest")) == ("ada", "", True)


def test_a_key_is_found_by_each_of_its_fingerprints_while_it_and_its_user_are_accepted(engine: Engine) -> None:
    accounts.create_user(engine, "ada")
    accounts.create_user(engine, "bob")
    line = make_key_line()
    record = accounts.add_key(engine, "ada", line)
    assert accounts.add_key(engine, "ada", line).version == record.version
    view = accounts.to_key_view(record)
    for fingerprint in (view["md5"], f"MD5:{view['md5']}", view["md5"].upper(), view["sha256"], view["id"]):
        found = accounts.find_key(engine.store, fingerprint)
        assert found is not None
        assert (found.user, found.key.line) == ("ada", line)
    for wrong in ("", "zz", "aa:bb", "SHA256:" + "A" * 43, "00" * 16):
        assert accounts.find_key(engine.store, wrong) is None
    with pytest.raises(ActionRefused, match="as that of another user"):
        accounts.add_key(engine, "bob", line)
    with pytest.raises(RecordNotFound):
        accounts.remove_key(engine, "bob", view["md5"])
    accounts.disable_user(engine, "ada")
    assert accounts.find_key(engine.store, view["md5"]) is None
    accounts.enable_user(engine, "ada")
    accounts.remove_key(engine, "ada", "laptop")
    assert accounts.find_key(engine.store, view["md5"]) is None
    assert accounts.list_keys(engine.store, "ada") == []
    accounts.add_key(engine, "ada", line)
    assert accounts.find_key(engine.store, view["md5"]) is not None
    accounts.remove_key(engine, "ada", view["sha256"], is_compromised=True)
    with pytest.raises(ActionRefused, match="compromised"):
        accounts.add_key(engine, "ada", line)


def test_mail_goes_to_the_user_or_the_members_of_the_group_who_wish_it(engine: Engine) -> None:
    accounts.create_user(engine, "ada", mail="ada@example.org", notify=("done", "failed"))
    accounts.create_user(engine, "bob", mail="bob@example.org", notify=())
    accounts.create_group(engine, "team")
    for user in ("ada", "bob"):
        accounts.add_member(engine, "team", user)
    assert accounts.list_mail_addresses(engine.store, "team", "done") == ["ada@example.org"]
    assert accounts.list_mail_addresses(engine.store, "bob", "failed") == []
    assert accounts.list_mail_addresses(engine.store, "nobody", "failed") == []
    accounts.change_user(engine, "bob", notify=("failed",))
    assert accounts.list_mail_addresses(engine.store, "bob", "failed") == ["bob@example.org"]
    for bad in (
        {"mail": "no address"},
        {"unix_user": "root"},
        {"unix_user": "a b"},
        {"notify": ["always"]},
        {"name": "x\n"},
    ):
        with pytest.raises(ActionRefused):
            accounts.change_user(engine, "bob", **bad)  # type: ignore[arg-type]
    assert accounts.to_user_view(engine.store.get("user", "bob"))["unix_user"] == ""


def test_an_account_that_is_not_there_is_not_found(engine: Engine) -> None:
    for name in ("nobody", "a/b", ""):
        with pytest.raises(RecordNotFound):
            accounts.grant_role(engine, name, "reader")
    assert engine.store.find("user").records == []
    assert Ref("user", "nobody") not in engine.store.get_many([Ref("user", "nobody")])
