"""Profiles and collections: put, changed, retired, imported; and passwords that nobody is shown."""

import logging

import pytest

from tests.apps.ingest.service.desk import Desk
from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.service import COLLECTIONS, PROFILES, Missing, Unfit
from waybill.apps.ingest.submission import Type
from waybill.record import Docs
from waybill.rules import Refused

SECRET = "hunter2-hunter2"
CALLBACK = {"url": "https://example.org/done", "user": "ann", "password": SECRET}


def kept(desk: Desk, name: str = "demo") -> dict[str, object]:
    """As the store has it."""
    return dict(desk.engine.store.get("profile", name).docs["profile"])


def shown(desk: Desk, name: str = "demo") -> str:
    """Everything that anybody can be shown of it."""
    record = desk.engine.store.get("profile", name)
    lines = [views.line(line) for line in desk.engine.store.history("profile", name)]
    return str(views.record(record, desk.engine.machines, docs=True)) + str(lines)


def test_a_profile_is_made_changed_retired_restored_and_deleted(desk: Desk) -> None:
    record, made = PROFILES.put(desk.engine, {"name": "new", "description": "one"}, who="admin")
    assert (record.id, record.state, made) == ("new", "Active", True)
    record, made = PROFILES.put(desk.engine, {"name": "new", "description": "two"}, who="admin", why="better")
    assert (PROFILES.read(desk.engine.store.get("profile", "new")).description, made) == ("two", False)
    assert PROFILES.act(desk.engine, "new", "retire", who="admin").state == "Retired"
    with pytest.raises(Refused, match="new is Retired"):
        PROFILES.put(desk.engine, {"name": "new"}, who="admin")
    assert PROFILES.act(desk.engine, "new", "restore", who="admin").state == "Active"
    PROFILES.act(desk.engine, "new", "retire", who="admin")
    with pytest.raises(Refused, match="Confirm"):
        PROFILES.act(desk.engine, "new", "delete", who="admin")
    PROFILES.act(desk.engine, "new", "delete", who="admin", confirmed=True)
    with pytest.raises(Missing, match="no profile 'new'"):
        PROFILES.record(desk.engine, "new")
    events = [line.event for line in desk.engine.store.history("profile", "new")]
    assert events == ["submit", "change", "retire", "restore", "retire", "delete"]
    assert PROFILES.put(desk.engine, {"name": "new"}, who="admin")[1] is True, "and its name can be used again"


def test_the_password_of_a_callback_is_written_and_never_shown(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    PROFILES.put(desk.engine, {"name": "demo", "callback": CALLBACK}, who="admin", why="callback")
    assert PROFILES.usable(desk.engine, "demo").callback.password == SECRET
    assert SECRET not in shown(desk)
    assert "example.org/done" in shown(desk), "and the rest of the callback is shown"
    assert SECRET not in repr(PROFILES.usable(desk.engine, "demo"))
    assert SECRET not in caplog.text


def test_a_change_without_the_password_keeps_it_with_its_url_and_user(desk: Desk) -> None:
    PROFILES.put(desk.engine, {"name": "demo", "callback": CALLBACK}, who="admin")
    seen = views.documents(desk.engine.machines["profile"], desk.engine.store.get("profile", "demo").docs)["profile"]
    assert "password" not in seen["callback"]
    PROFILES.put(desk.engine, {**seen, "description": "other words"}, who="admin")
    assert PROFILES.usable(desk.engine, "demo").callback.password == SECRET
    elsewhere = {**seen["callback"], "url": "https://elsewhere.example.org"}
    PROFILES.put(desk.engine, {**seen, "callback": elsewhere}, who="admin")
    assert PROFILES.usable(desk.engine, "demo").callback.password == "", "it is not sent to another place"
    PROFILES.put(desk.engine, {"name": "demo", "callback": CALLBACK}, who="admin")
    PROFILES.put(desk.engine, {"name": "demo", "callback": {**CALLBACK, "password": ""}}, who="admin")
    assert PROFILES.usable(desk.engine, "demo").callback.password == ""


def test_a_change_through_the_action_is_checked_too(desk: Desk) -> None:
    ref = desk.engine.store.get("profile", "demo").ref
    for args, says in (({"name": "demo", "priority": 100}, "99"), ({"name": "other"}, "cannot change"), ({}, "name")):
        with pytest.raises(Refused, match=says):
            desk.engine.act(ref, "change", who="admin", args=args)
    assert kept(desk)["name"] == "demo"


def test_a_password_in_a_url_is_refused_without_being_repeated(desk: Desk) -> None:
    with pytest.raises(Unfit, match="without user name and password") as refusal:
        PROFILES.put(
            desk.engine, {"name": "demo", "callback": {"url": f"https://ann:{SECRET}@example.org/"}}, who="admin"
        )
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    "document", [None, [], "x", {}, {"name": "a b"}, {"name": "x", "priority": "high"}, {"name": "../up"}]
)
def test_what_is_no_profile_is_refused(desk: Desk, document: object) -> None:
    with pytest.raises(Unfit):
        PROFILES.put(desk.engine, document, who="admin")


def test_the_name_in_the_document_and_the_one_it_is_sent_as_agree(desk: Desk) -> None:
    with pytest.raises(Unfit, match="sent as 'b'"):
        PROFILES.put(desk.engine, {"name": "a"}, name="b", who="admin")


def test_fields_of_a_newer_release_are_kept(desk: Desk) -> None:
    PROFILES.put(desk.engine, {"name": "demo", "novelty": {"a": 1}}, who="admin")
    assert kept(desk)["novelty"] == {"a": 1}


def test_profiles_are_listed_page_by_page(desk: Desk) -> None:
    for n in range(3):
        PROFILES.put(desk.engine, {"name": f"p{n}"}, who="admin")
    first = PROFILES.page(desk.engine, limit=2)
    rest = PROFILES.page(desk.engine, after=first.after, limit=10)
    assert [r.id for r in (*first.records, *rest.records)] == ["demo", "p0", "p1", "p2"]
    PROFILES.act(desk.engine, "p1", "retire", who="admin")
    assert [r.id for r in PROFILES.each(desk.engine, state="Retired")] == ["p1"]


def test_a_properties_file_of_merritt_is_imported(desk: Desk) -> None:
    data = (
        b"ProfileID: far_content\nOwner: ark:/13030/j2x\nCollection.1: ark:/13030/m5maps\nPriority: 12\n"
        b"CallbackURL: https://ann:"
        + SECRET.encode()
        + b"@example.org/cb\nNotification.1: ann@example.org\nOddity: 1\n"
    )
    record, remarks = service.import_profile(desk.engine, data, who="admin")
    assert record.id == "far_content"
    profile = PROFILES.usable(desk.engine, "far_content")
    assert (profile.priority, profile.mail.to, profile.callback.password) == (12, ("ann@example.org",), SECRET)
    assert any("'Oddity' has no place" in remark for remark in remarks)
    assert SECRET not in shown(desk, "far_content") + str(remarks)
    assert desk.submit(b"x", profile="far_content").submission.collections == ("maps",)
    with pytest.raises(Unfit, match="must be a number"):
        service.import_profile(desk.engine, b"ProfileID: a\nPriority: high\n", who="admin")


def test_a_profile_that_another_hand_has_damaged_is_named(desk: Desk) -> None:
    from msgspec.structs import replace

    record = desk.engine.store.get("profile", "demo")
    with pytest.raises(Unfit, match="profile demo cannot be read"):
        PROFILES.read(replace(record, docs=Docs({"profile": b"[]"})))


def test_collections_are_kept_by_their_mnemonic(desk: Desk) -> None:
    record, made = COLLECTIONS.put(
        desk.engine, {"mnemonic": "maps", "ark": "ark:/13030/m5maps", "name": "Maps"}, who="admin"
    )
    assert (record.id, made, COLLECTIONS.usable(desk.engine, "maps").name) == ("maps", False, "Maps")


@pytest.mark.parametrize("state", ["Pending", "Held", "Failed"])
def test_a_profile_is_not_deleted_while_a_deposit_needs_it(desk: Desk, state: str) -> None:
    """Its jobs would go on without it: on another shoulder, and without the callback."""
    PROFILES.put(desk.engine, {"name": "new"}, who="admin")
    batch = desk.submit(b"no manifest", profile="new", type=Type.FILES).batch
    desk.submit(b"hello", profile="demo")
    if state == "Held":
        desk.engine.act(batch.ref, "hold", who="admin")
    elif state == "Failed":
        desk.site.lead(batch.ref, "Failed")
    PROFILES.act(desk.engine, "new", "retire", who="admin")
    with pytest.raises(Refused, match=batch.id):
        PROFILES.act(desk.engine, "new", "delete", who="admin", confirmed=True)
    if state == "Pending":
        desk.engine.act(batch.ref, "hold", who="admin")
    desk.engine.act(batch.ref, "delete", who="admin", confirmed=True)
    assert PROFILES.act(desk.engine, "new", "delete", who="admin", confirmed=True).state == "Deleted"
