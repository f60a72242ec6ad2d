"""The documents that are shared with Merritt's services: their bytes, and what is read of what those wrote."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest import machine  # noqa: F401 - declares the documents
from waybill.apps.ingest.documents import (
    AssemblyToken,
    BatchReport,
    InventoryRequest,
    JobCounts,
    ReportedChanges,
    SpaceNeeded,
    StoreRequest,
)
from waybill.apps.ingest.submission import BatchSubmission, JobConfiguration, JobIdentifiers, JobMetadata, Submission
from waybill.manifests.record_lists import RecordList
from waybill.record import StructType, document_of, encode_document

REPORT = BatchReport(
    last_modified="2026-01-02 03:04:05 +0000",
    status="Failed",
    report=2,
    counts=JobCounts(3, 1, 0),
    failed_jobs=("jid0000000001",),
    successful_jobs=(),
    whole=False,
    manifest_url="http://w/report",
    jobs=RecordList(count=0, rows=()),
)
WRITTEN: list[tuple[msgspec.Struct, bytes]] = [
    (SpaceNeeded(1000), b"1000"),
    (SpaceNeeded(0), b"1"),
    (SpaceNeeded(None), b"-1"),
    (JobIdentifiers("ark:/99999/x", ("a", "b")), b'{"primary_id":"ark:/99999/x","local_id":["a","b"]}'),
    (JobIdentifiers(), b'{"primary_id":"","local_id":[]}'),
    (JobMetadata("who", "what", ""), b'{"erc_who":"who","erc_what":"what","erc_when":"","erc_where":""}'),
    (
        StoreRequest("file:///m", "add/9502/ark:/99999/x"),
        b'{"manifest_url":"file:///m","mode":"add/9502/ark:/99999/x","delete":""}',
    ),
    (InventoryRequest("http://m", "add"), b'{"manifest_url":"http://m","mode":"add"}'),
    (
        REPORT,
        b'{"last_modified":"2026-01-02 03:04:05 +0000","status":"Failed","report":2,'
        b'"counts":{"completed":3,"failed":1,"deleted":0},"failed_jobs":["jid0000000001"],"successful_jobs":[],'
        b'"whole":false,"manifest_url":"http://w/report","jobs":{"count":0,"rows":[]}}',
    ),
    (
        msgspec.structs.replace(
            REPORT,
            jobs=RecordList(count=9, list="o", sha256="s"),
            since=ReportedChanges("then", 1, 2, 3),
            warnings=4,
            reason="r",
            remark="k",
        ),
        b'{"last_modified":"2026-01-02 03:04:05 +0000","status":"Failed","report":2,'
        b'"counts":{"completed":3,"failed":1,"deleted":0},"failed_jobs":["jid0000000001"],"successful_jobs":[],'
        b'"whole":false,"manifest_url":"http://w/report","jobs":{"count":9,"list":"o","sha256":"s"},'
        b'"since":{"last_modified":"then","completed":1,"deleted":2,"unresolved":3},"warnings":4,"reason":"r","remark":"k"}',
    ),
    (
        AssemblyToken.create("t", "http://a/t", 7, "Pending", 0.0),
        b'{"token":"t","delivery-node":0,"cloud-content-byte":7,"status":"Pending","url":"http://a/t",'
        b'"anticipated-availability-time":"1970-01-01T00:00:00Z"}',
    ),
    (
        JobConfiguration(Submission(profile="p", url="http://x/a", title="T")),
        b'{"profile":"p","profile_name":"p","payload_url":"http://x/a","submission_mode":"add","title":"T",'
        b'"erc_what":"T","update":false}',
    ),
    (
        BatchSubmission(Submission(profile="p", url="", local_ids=("a",), update=True)),
        b'{"profile":"p","profile_name":"p","submission_mode":"update","localID":"a","update":true}',
    ),
]


@pytest.mark.parametrize(("document", "raw"), WRITTEN, ids=[type(each).__name__ for each, _ in WRITTEN])
def test_shared_documents_are_written_byte_for_byte(document: msgspec.Struct, raw: bytes) -> None:
    declared = document_of(type(document))
    assert declared.encode(document) == raw
    if raw not in (b"1",):  # 0 bytes are written as 1
        assert declared.decode(raw) == document


SHARED: list[StructType] = [*dict.fromkeys(type(each) for each, _ in WRITTEN)]


@pytest.mark.parametrize("type", SHARED)
@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", b'"x"', b"7.5", b"\xff", b'{"a":"\xff"}', b"[" * 5000])
def test_whatever_another_service_left_is_read(type: StructType, raw: bytes) -> None:
    assert isinstance(document_of(type).decode(raw), type)


@given(
    st.dictionaries(
        st.sampled_from(
            ["primary_id", "local_id", "erc_who", "manifest_url", "mode", "delete", "token", "report", "jobs"]
        ),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=3),
    )
)
def test_fields_of_another_form_are_left_out(fields: dict[str, Any]) -> None:
    for each in SHARED:
        assert isinstance(document_of(each).decode(encode_document(fields)), each)


def test_a_token_of_another_service_keeps_its_fields() -> None:
    raw = b'{"url":"u","signature":"x","cloud-content-byte":"many","status":"Pending"}'
    declared = document_of(AssemblyToken)
    token: AssemblyToken = declared.decode(raw)
    assert (token.url, token.token, token.content_bytes, token.ready_at) == ("u", "", 0, "")
    assert declared.encode(token.with_status("Failed")) == raw.replace(b"Pending", b"Failed")


def test_a_report_of_another_service_has_a_number_and_no_list() -> None:
    report = BatchReport.parse(b'{"last_modified":"then","failed_jobs":[]}')
    assert (report.last_modified, report.report, report.jobs) == ("then", 1, None)
