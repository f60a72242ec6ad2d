"""What was asked for, in two vocabularies, whoever wrote it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest import submission
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.record import Record, RecordDocuments, Ref, encode_document

WHOLE = Submission(
    profile="p",
    url="http://x.test/a",
    type=PayloadType.CONTAINERS,
    filename="a.checkm",
    size=7,
    digest_type="md5",
    digest_value="ab" * 16,
    received_digests={"sha256": "cd" * 32},
    update=True,
    submitter="jane",
    owner="ark:/99999/o",
    collections=("c", "d"),
    creator="who",
    title="what",
    date="when",
    primary_id="ark:/99999/x1",
    local_ids=("a", "b"),
    notification="jane@example.org",
    notification_format="json",
    response_form="xml",
    note="n",
    datacite_type="Dataset",
    dc={"title": "t", "type": "x"},
    batch_id="bid-1",
    job_id="jid-1",
    submitted_at="2026-11-16T00:00:00Z",
    retain_target=True,
    row_digests={"md5": "ef" * 16},
    deletions=("old.txt",),
    is_profile_checked=True,
)


def test_what_was_written_is_read_again() -> None:
    assert Submission.from_document(msgspec.json.decode(encode_document(WHOLE.to_document()))) == WHOLE


def test_both_vocabularies_are_written() -> None:
    document = WHOLE.to_document()
    assert (document["profile"], document["profile_name"]) == ("p", "p")
    assert (document["type"], document["payload_type"]) == ("batchManifestContainer", "container_batch_manifest")
    assert (document["update"], document["submission_mode"]) == (True, "update")
    assert (document["title"], document["erc_what"], document["localID"]) == ("what", "what", "a;b")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {"profile_name": "p", "payload_url": "u", "payload_type": "object_manifest", "submission_mode": "update"},
            (PayloadType.OBJECT, True),
        ),
        (
            {"profile": "p", "type": "manifest", "update": False, "submission_mode": "update"},
            (PayloadType.OBJECT, False),
        ),
        ({"type": "batchManifestFile", "update": "yes"}, (PayloadType.FILES, False)),
        ({"type": "batch-manifest"}, (PayloadType.MANIFESTS, False)),
        ({"type": "something new"}, (None, False)),
        ({}, (None, False)),
    ],
)
def test_either_vocabulary_is_read(said: dict[str, Any], expected: tuple[PayloadType | None, bool]) -> None:
    found = Submission.from_document(said)
    assert (found.type, found.update) == expected


def test_update_is_written_also_when_it_is_false() -> None:
    assert Submission(profile="p", url="u").to_document()["update"] is False


def job(**docs: bytes) -> Record:
    return Record(
        "job", "jid0000000001", "Pending", parent=Ref("batch", "bid0000000000"), documents=RecordDocuments(docs)
    )


def test_identifiers_found_since_stand_before_those_submitted() -> None:
    ids = encode_document({"primary_id": "ark:/99999/new", "local_id": ["z"]})
    said = Submission.from_job(job(configuration=encode_document(WHOLE.to_document()), identifiers=ids))
    assert (said.primary_id, said.local_ids) == ("ark:/99999/new", ("z",))


def test_empty_ids_do_not_hide_those_submitted() -> None:
    ids = encode_document({"primary_id": "", "local_id": []})
    said = Submission.from_job(job(configuration=encode_document(WHOLE.to_document()), identifiers=ids))
    assert (said.primary_id, said.local_ids) == ("ark:/99999/x1", ("a", "b"))


@pytest.mark.parametrize(
    "raw", [b"", b"null", b"[]", b"{", b'"x"', b"7", b'{"size":"' + b"9" * 5000 + b'"}', b"[" * 5000]
)
def test_empty_nodes_are_read(raw: bytes) -> None:
    said = Submission.from_job(job(configuration=raw, identifiers=raw))
    assert (said.profile, said.size, said.batch_id, said.job_id) == ("", None, "bid0000000000", "jid0000000001")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["profile", "type", "size", "update", "local_id", "localID", "collections", "received", "delete"]
                )
                | st.text(),
                inner,
            )
        ),
    )
)
def test_whatever_others_wrote_is_read(document: object) -> None:
    said = Submission.from_document(document)
    again = Submission.from_document(msgspec.json.decode(encode_document(said.to_document())))
    assert again.profile == said.profile
    assert submission.choose_folder_name(said.batch_id, "bid0000000000").replace(
        "/", ""
    ) == submission.choose_folder_name(said.batch_id, "bid0000000000")


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "x" * 200, "ü", ".hidden", "a\n"])
def test_no_name_of_a_folder_leads_elsewhere(name: str) -> None:
    assert submission.choose_folder_name(name, "bid0000000000") == "bid0000000000"
