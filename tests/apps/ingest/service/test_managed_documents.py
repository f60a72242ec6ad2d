"""Profiles and collections: put, changed, retired, imported; and passwords that nobody is shown."""

import logging

import pytest

from tests.apps.ingest.service.service_caller import ServiceCaller
from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.service import COLLECTIONS, PROFILES
from waybill.apps.ingest.submission import PayloadType
from waybill.errors import InputError, NotFound
from waybill.record import RecordDocuments
from waybill.rules import ActionRefused

SECRET = "hunter2-hunter2"
CALLBACK = {"url": "https://example.org/done", "user": "ann", "password": SECRET}


def kept(caller: ServiceCaller, name: str = "demo") -> dict[str, object]:
    """As the store has it."""
    return dict(caller.engine.store.get("profile", name).documents["profile"])


def shown(caller: ServiceCaller, name: str = "demo") -> str:
    """Everything that anybody can be shown of it."""
    record = caller.engine.store.get("profile", name)
    lines = [views.to_history_entry_view(line) for line in caller.engine.store.history("profile", name)]
    return str(views.to_record_view(record, caller.engine.machines, documents=True)) + str(lines)


def test_a_profile_is_made_changed_retired_restored_and_deleted(caller: ServiceCaller) -> None:
    record, made = PROFILES.put(caller.engine, {"name": "new", "description": "one"}, who="admin")
    assert (record.id, record.state, made) == ("new", "Active", True)
    record, made = PROFILES.put(caller.engine, {"name": "new", "description": "two"}, who="admin", why="better")
    assert (PROFILES.read(caller.engine.store.get("profile", "new")).description, made) == ("two", False)
    assert PROFILES.act(caller.engine, "new", "retire", who="admin").state == "Retired"
    with pytest.raises(ActionRefused, match="new is Retired"):
        PROFILES.put(caller.engine, {"name": "new"}, who="admin")
    assert PROFILES.act(caller.engine, "new", "restore", who="admin").state == "Active"
    PROFILES.act(caller.engine, "new", "retire", who="admin")
    with pytest.raises(ActionRefused, match="Confirm"):
        PROFILES.act(caller.engine, "new", "delete", who="admin")
    PROFILES.act(caller.engine, "new", "delete", who="admin", confirmed=True)
    with pytest.raises(NotFound, match="no profile 'new'"):
        PROFILES.get_record(caller.engine, "new")
    events = [line.cause for line in caller.engine.store.history("profile", "new")]
    assert events == ["submit", "change", "retire", "restore", "retire", "delete"]
    assert PROFILES.put(caller.engine, {"name": "new"}, who="admin")[1] is True, "and its name can be used again"


def test_the_password_of_a_callback_is_written_and_never_shown(
    caller: ServiceCaller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    PROFILES.put(caller.engine, {"name": "demo", "callback": CALLBACK}, who="admin", why="callback")
    assert PROFILES.require_active(caller.engine, "demo").callback.password == SECRET
    assert SECRET not in shown(caller)
    assert "example.org/done" in shown(caller), "and the rest of the callback is shown"
    assert SECRET not in repr(PROFILES.require_active(caller.engine, "demo"))
    assert SECRET not in caplog.text


def test_a_change_without_the_password_keeps_it_with_its_url_and_user(caller: ServiceCaller) -> None:
    PROFILES.put(caller.engine, {"name": "demo", "callback": CALLBACK}, who="admin")
    seen = views.to_public_documents(
        caller.engine.machines["profile"], caller.engine.store.get("profile", "demo").documents
    )["profile"]
    assert "password" not in seen["callback"]
    PROFILES.put(caller.engine, {**seen, "description": "other words"}, who="admin")
    assert PROFILES.require_active(caller.engine, "demo").callback.password == SECRET
    elsewhere = {**seen["callback"], "url": "https://elsewhere.example.org"}
    PROFILES.put(caller.engine, {**seen, "callback": elsewhere}, who="admin")
    assert PROFILES.require_active(caller.engine, "demo").callback.password == "", "it is not sent to another place"
    PROFILES.put(caller.engine, {"name": "demo", "callback": CALLBACK}, who="admin")
    PROFILES.put(caller.engine, {"name": "demo", "callback": {**CALLBACK, "password": ""}}, who="admin")
    assert PROFILES.require_active(caller.engine, "demo").callback.password == ""


def test_a_change_through_the_action_is_checked_too(caller: ServiceCaller) -> None:
    ref = caller.engine.store.get("profile", "demo").ref
    for args, says in (({"name": "demo", "priority": 100}, "99"), ({"name": "other"}, "cannot change"), ({}, "name")):
        with pytest.raises(ActionRefused, match=says):
            caller.engine.act(ref, "change", who="admin", args=args)
    assert kept(caller)["name"] == "demo"


def test_a_password_in_a_url_is_refused_without_being_repeated(caller: ServiceCaller) -> None:
    with pytest.raises(InputError, match="without user name and password") as refusal:
        PROFILES.put(
            caller.engine, {"name": "demo", "callback": {"url": f"https://ann:{SECRET}@example.org/"}}, who="admin"
        )
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    "document", [None, [], "x", {}, {"name": "a b"}, {"name": "x", "priority": "high"}, {"name": "../up"}]
)
def test_what_is_no_profile_is_refused(caller: ServiceCaller, document: object) -> None:
    with pytest.raises(InputError):
        PROFILES.put(caller.engine, document, who="admin")


def test_the_name_in_the_document_and_the_one_it_is_sent_as_agree(caller: ServiceCaller) -> None:
    with pytest.raises(InputError, match="sent as 'b'"):
        PROFILES.put(caller.engine, {"name": "a"}, name="b", who="admin")


def test_fields_of_a_newer_release_are_kept(caller: ServiceCaller) -> None:
    PROFILES.put(caller.engine, {"name": "demo", "novelty": {"a": 1}}, who="admin")
    assert kept(caller)["novelty"] == {"a": 1}


def test_profiles_are_listed_page_by_page(caller: ServiceCaller) -> None:
    for n in range(3):
        PROFILES.put(caller.engine, {"name": f"p{n}"}, who="admin")
    first = PROFILES.get_page(caller.engine, limit=2)
    rest = PROFILES.get_page(caller.engine, after=first.after, limit=10)
    assert [r.id for r in (*first.records, *rest.records)] == ["demo", "p0", "p1", "p2"]
    PROFILES.act(caller.engine, "p1", "retire", who="admin")
    assert [r.id for r in PROFILES.read_all(caller.engine, state="Retired")] == ["p1"]


def test_a_properties_file_of_merritt_is_imported(caller: ServiceCaller) -> None:
    data = (
        b"ProfileID: far_content\nOwner: ark:/13030/j2x\nCollection.1: ark:/13030/m5maps\nPriority: 12\n"
        b"CallbackURL: https://ann:"
        + SECRET.encode()
        + b"@example.org/cb\nNotification.1: ann@example.org\nOddity: 1\n"
    )
    record, remarks = service.import_profile(caller.engine, data, who="admin")
    assert record.id == "far_content"
    profile = PROFILES.require_active(caller.engine, "far_content")
    assert (profile.priority, profile.mail.to, profile.callback.password) == (12, ("ann@example.org",), SECRET)
    assert any("'Oddity' is not a setting" in remark for remark in remarks)
    assert SECRET not in shown(caller, "far_content") + str(remarks)
    assert caller.submit(b"x", profile="far_content").submission.collections == ("maps",)
    with pytest.raises(InputError, match="must be a number"):
        service.import_profile(caller.engine, b"ProfileID: a\nPriority: high\n", who="admin")


def test_a_profile_that_another_hand_has_damaged_is_named(caller: ServiceCaller) -> None:
    from msgspec.structs import replace

    record = caller.engine.store.get("profile", "demo")
    with pytest.raises(InputError, match="profile demo cannot be read"):
        PROFILES.read(replace(record, documents=RecordDocuments({"profile": b"[]"})))


def test_collections_are_kept_by_their_mnemonic(caller: ServiceCaller) -> None:
    record, made = COLLECTIONS.put(
        caller.engine, {"mnemonic": "maps", "ark": "ark:/13030/m5maps", "name": "Maps"}, who="admin"
    )
    assert (record.id, made, COLLECTIONS.require_active(caller.engine, "maps").name) == ("maps", False, "Maps")


@pytest.mark.parametrize("state", ["Pending", "Held", "Failed"])
def test_a_profile_is_not_deleted_while_a_deposit_needs_it(caller: ServiceCaller, state: str) -> None:
    """Its jobs would go on without it: on another shoulder, and without the callback."""
    PROFILES.put(caller.engine, {"name": "new"}, who="admin")
    batch = caller.submit(b"no manifest", profile="new", type=PayloadType.FILES).batch
    caller.submit(b"hello", profile="demo")
    if state == "Held":
        caller.engine.act(batch.ref, "hold", who="admin")
    elif state == "Failed":
        caller.ingest.step_until(batch.ref, "Failed")
    PROFILES.act(caller.engine, "new", "retire", who="admin")
    with pytest.raises(ActionRefused, match=batch.id):
        PROFILES.act(caller.engine, "new", "delete", who="admin", confirmed=True)
    if state == "Pending":
        caller.engine.act(batch.ref, "hold", who="admin")
    caller.engine.act(batch.ref, "delete", who="admin", confirmed=True)
    assert PROFILES.act(caller.engine, "new", "delete", who="admin", confirmed=True).state == "Deleted"
