"""Profiles and collections: documents, and profiles imported from properties files."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.merritt.profile_import import import_profile
from waybill.apps.ingest.profile import (
    BadProfile,
    Collection,
    Profile,
    ProfileCallback,
    ProfileMail,
    ProfileMinter,
    from_document,
    to_document,
)

FILE = """\
# A profile as one of Merritt's looks
ProfileID: demo_content
ProfileDescription: Grüße aus Köln
Identifier-scheme: ARK
Identifier-namespace: 99999
Collection.1: ark:/13030/m5qv8jks
Collection.10: ark:/13030/c
Collection.2: ark:/13030/b
Type: MRT-curatorial
Role: MRT-content
Aggregate:
Owner: ark:/13030/j2rn30xp
Context: demo
Notification.1: john@example.org
Notification.2: jane@example.org
NotificationType: verbose
NotificationSuppression: full
CallbackURL: https://me:p%40ss@example.org/done
Priority: 7
StorageService: http://store.example.org:8080/
StorageNode: 9501
ObjectMinterURL: https://ezid.cdlib.org/shoulder/ark:/99999/fk4
EZID_co-owner: merritt
SuppressDublinCoreLocalID: true
CreationDate: 2019-01-01T00:00:00-08:00
ModificationDate: 2020-01-01T00:00:00-08:00
HandlerProcess.2: org.example.process.HandlerMinter
HandlerProcess.1: org.example.process.HandlerCorroborate
HandlerNotify.1: org.example.notify.HandlerCallback
Colour: blue
"""
DEMO = Profile(
    name="demo_content",
    description="Grüße aus Köln",
    collections=("ark:/13030/m5qv8jks", "ark:/13030/b", "ark:/13030/c"),
    owner="ark:/13030/j2rn30xp",
    context="demo",
    type="MRT-curatorial",
    role="MRT-content",
    minter=ProfileMinter(
        naan="99999", shoulder="fk4", url="https://ezid.cdlib.org/shoulder/ark:/99999/fk4", co_owner="merritt"
    ),
    mail=ProfileMail(to=("john@example.org", "jane@example.org"), kind="verbose", suppressed=True),
    callback=ProfileCallback("https://example.org/done", "me", "p@ss"),
    priority=7,
    storage_service="http://store.example.org:8080/",
    storage_node=9501,
    local_id_in_dublin_core=False,
    created="2019-01-01T00:00:00-08:00",
    modified="2020-01-01T00:00:00-08:00",
    handlers={"HandlerProcess": ("Corroborate", "Minter"), "HandlerNotify": ("Callback",)},
)


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1"])
def test_a_profile_is_imported(encoding: str) -> None:
    found = import_profile(FILE.encode(encoding))
    assert found.profile == DEMO
    assert [remark.split()[0] for remark in found.remarks] == ["CallbackURL", "'Colour'"]


def test_the_name_of_the_file_wins() -> None:
    found = import_profile(b"ProfileID: a\n", name="b_content")
    assert found.profile == Profile(name="b_content")
    assert "is called 'b_content'" in found.remarks[0]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no settings"),
        ("Owner: ark:/1/a", "ProfileID is missing."),
        ("\xff\xfe\0", "It contains no setting of a profile"),
        ("Colour: red\nShape.1: round", "It contains no setting of a profile"),
        ("ProfileID: a b", "ProfileID is 'a b', and must be letters, digits and _ . @ -, at most 128 of them"),
        ("ProfileID: a\nPriority: high", "Priority is 'high', and must be a number"),
        ("ProfileID: a\nPriority: 100", "Priority is 100, and must be a number from 0 to 99."),
        (
            f"ProfileID: a\nCallbackURL: https://a:{'p' * 5000}@example.org",
            "The password of CallbackURL is not right, and must be a text",
        ),
        (
            "ProfileID: a\nObjectMinterURL: https://e/shoulder/ark:/99999/4fk",
            "The shoulder of ObjectMinterURL is '4fk', and must be small",
        ),
        ("ProfileID: a\nStorageNode: x", "StorageNode is 'x'"),
        ("ProfileID: a\nIdentifier-scheme: DOI", "only ARKs are minted"),
        (
            "ProfileID: a\nIdentifier-namespace: abc",
            "Identifier-namespace is 'abc', and must be a number of 5 to 9 digits",
        ),
        ("ProfileID: a\nNotification.1: nobody", "'nobody' is not a mail address"),
        ("ProfileID: a\nCallbackURL: ftp://example.org", "The URL of the callback"),
        ("ProfileID: a\nCallbackURL: https://[x", "The URL of the callback"),
        ("ProfileID: a\nOwner: ${OWNER}", "Owner is '${OWNER}', and must be an ARK such as ark:/13030/m5abc"),
        (
            "ProfileID: a\nCollection.1: ark:/13030/${X}",
            "Collection (1 in their order) is 'ark:/13030/${X}', and must be an ARK",
        ),
        ("ProfileID: a\\u12", "four hex digits"),
    ],
)
def test_a_profile_with_faults(text: str, fault: str) -> None:
    with pytest.raises(BadProfile) as caught:
        import_profile(text.encode())
    assert fault in str(caught.value)
    assert caught.value.faults


def test_several_addresses_in_one_line_and_names_before_them_are_read() -> None:
    found = import_profile(
        b"ProfileID: a\nNotification.1: b@example.org, c@example.org\nNotification.2: Jane Doe <jane@example.org>\n"
    )
    assert found.profile.mail.to == ("b@example.org", "c@example.org", "jane@example.org")
    assert "Notification 'Jane Doe <jane@example.org>' was read as jane@example.org." in found.remarks


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(BadProfile) as caught:
        import_profile(b"ProfileID: a\nPriority: x\nStorageNode: y\n")
    assert len(caught.value.faults) == 2


def test_faults_of_all_sorts_are_reported_at_once_in_the_words_of_the_file_and_without_patterns() -> None:
    file = (
        b"ProfileID: a b\nPriority: x\nOwner: me\nCollection.1: ark:/13030/c\nCollection.7: here\nIdentifier-namespace: 1\n"
        b"Notification.1: nobody\nCallbackURL: ftp://example.org\nContext: \\u12\n"
    )
    with pytest.raises(BadProfile) as caught:
        import_profile(file)
    begins = (
        "Line 9: \\u",
        "Priority is 'x'",
        "ProfileID is 'a b'",
        "Collection (2 in their order) is 'here'",
        "Owner is 'me'",
        "Identifier-namespace is '1'",
        "'nobody' is not a mail",
        "The URL of the callback",
    )
    assert len(caught.value.faults) == len(begins)
    for begin in begins:
        assert any(fault.startswith(begin) for fault in caught.value.faults), (begin, caught.value.faults)
    assert not any(sign in str(caught.value) for sign in ("regex", "[A-Za-z", "\\Z", "$."))


def test_of_many_faults_the_first_are_reported_and_how_many_more_there_are() -> None:
    with pytest.raises(BadProfile) as caught:
        import_profile("".join(["ProfileID: a\n", *(f"Collection.{n}: x\n" for n in range(1, 51))]).encode())
    assert (len(caught.value.faults), caught.value.faults[-1]) == (21, "And 30 more.")


def test_a_document_that_a_user_sends_is_refused_with_all_faults_in_words() -> None:
    with pytest.raises(BadProfile) as caught:
        from_document(
            Profile, {"name": 7, "owner": ["x"], "mail": {"to": "x"}, "priority": "high", "minter": {"scheme": "DOI"}}
        )
    assert caught.value.faults == [
        "name is 7, and must be letters, digits and _ . @ -, at most 128 of them, and the first a letter or a digit.",
        "owner is a list, and must be an ARK such as ark:/13030/m5abc, of at most 256 characters and without blanks, $ and |.",
        "minter.scheme is 'DOI', and must be ARK.",
        "mail.to is 'x', and must be a list.",
        "priority is 'high', and must be a number from 0 to 99.",
    ]


def test_a_minter_that_contradicts_itself_is_remarked() -> None:
    found = import_profile(
        b"ProfileID: a\nIdentifier-namespace: 13030\nObjectMinterURL: https://ezid.example.org/shoulder/ark:/99999/fk4\n"
    )
    assert "mints under 99999" in found.remarks[0]
    assert found.profile.minter.naan == "99999"


@pytest.mark.parametrize("thing", [DEMO, Profile(name="a"), Collection("demo", "Demo", "ark:/13030/m5qv8jks")])
def test_a_document_and_back(thing: Profile | Collection) -> None:
    document = msgspec.json.decode(msgspec.json.encode(to_document(thing)))
    assert document["v"] == 1
    assert from_document(type(thing), document) == thing


def test_fields_of_a_newer_version_are_kept() -> None:
    thing = from_document(Collection, {"mnemonic": "demo", "colour": "blue", "v": 1})
    assert to_document(thing) == {"mnemonic": "demo", "colour": "blue", "v": 1}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {1: 2},
        {"name": 7},
        {"name": "a", "v": 2},
        {"name": "a", "priority": -1},
        {"name": "a\n"},
        {"name": "a", "owner": "ark:/1/a\n"},
    ],
)
def test_other_things_are_no_profiles(document: object) -> None:
    with pytest.raises(BadProfile):
        from_document(Profile, document)


def test_a_password_is_not_shown() -> None:
    assert "p@ss" not in repr(DEMO)


KEY = st.sampled_from([line.partition(":")[0] for line in FILE.splitlines()[1:]])


@given(
    st.one_of(
        st.binary(),
        st.lists(st.tuples(KEY, st.text())).map(
            lambda said: "\n".join(f"{key}: {value}" for key, value in said).encode()
        ),
    )
)
def test_any_bytes_are_imported_or_refused(data: bytes) -> None:
    with suppress(BadProfile):
        profile = import_profile(data, name="a").profile
        assert from_document(Profile, to_document(profile)) == profile


VALUES: list[object] = [
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    "",
    "a",
    "ark:/1/a",
    [],
    ["a"],
    [None],
    {},
    {"url": 7},
    {"to": ["x"]},
    {"a": ["b"]},
    {"a": {}},
]
FIELD = st.sampled_from([*Profile.__struct_fields__, *Collection.__struct_fields__, "v", "colour", ""])


@given(st.dictionaries(FIELD, st.sampled_from(VALUES)))
def test_any_json_is_a_profile_or_refused(document: dict[str, object]) -> None:
    kinds: list[type[Profile | Collection]] = [Profile, Collection]
    for kind in kinds:
        with suppress(BadProfile):
            from_document(kind, document)
