"""Entries of the old queues: every status, every form of payload, every queue; and bytes that are none of that.

The streams and the XML below were written by Java 17 itself (ObjectOutputStream, java.beans.XMLEncoder,
Properties.storeToXML and .store).
"""

import base64
import struct
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.merritt.import_plans import ImportPlan, plan_import
from waybill.apps.ingest.merritt.queue_entries import LegacyQueue, LegacyQueueEntry, LegacyStatus, decode_entry
from waybill.errors import FormatError

PATH = "/ingest/mrtQ-02100000000003"
SAID = {"batchID": "bid-1", "jobID": "jid-1", "title": "Grüße 😀 & <x>", "empty": "", "same": "bid-1"}
CLASS = (
    "rO0ABXNyABRqYXZhLnV0aWwuUHJvcGVydGllczkS0HpwNj6YAgABTAAIZGVmYXVsdHN0ABZMamF2YS91dGlsL1Byb3BlcnRpZXM7eHIA"
    "E2phdmEudXRpbC5IYXNodGFibGUTuw8lIUrkuAMAAkYACmxvYWRGYWN0b3JJAAl0aHJlc2hvbGR4cD9AAAAAAAA"
)
STREAM = base64.b64decode(
    CLASS + "GdwgAAAAJAAAABXQABWVtcHR5dAAAdAAFdGl0bGV0ABRHcsO8w59lIO2gve24gCAmIDx4PnQAB2JhdGNoSUR0AAViaWQtMXQA"
    "BHNhbWVxAH4ACXQABWpvYklEdAAFamlkLTF4cA=="
)
STREAM_WITH_DEFAULTS = base64.b64decode(
    CLASS + "CdwgAAAADAAAAAXQABWpvYklEdAAFamlkLTJ4c3EAfgAAP0AAAAAAAAJ3CAAAAAMAAAABdAAHcHJvZmlsZXQABGRlbW94cA=="
)
STREAM_OF_OTHERS = base64.b64decode(
    CLASS
    + "FdwgAAAAHAAAAA3QAB2xvY2FsSUR0AANhO2J0AAZ1cGRhdGVzcgARamF2YS5sYW5nLkJvb2xlYW7NIHKA1Zz67gIAAVoABXZhbHVleHABdAAEc2l6ZXNy"
    "AA5qYXZhLmxhbmcuTG9uZzuL5JDMjyPfAgABSgAFdmFsdWV4cgAQamF2YS5sYW5nLk51bWJlcoaslR0LlOCLAgAAeHAAAAAAAAAADHhw"
)
STREAM_OF_A_LIST = base64.b64decode(
    CLASS + "CdwgAAAADAAAAAXQABGxpc3RzcgATamF2YS51dGlsLkFycmF5TGlzdHiB0h2Zx2GdAwABSQAEc2l6ZXhwAAAAAHcEAAAAAHh4cA=="
)
LONG_STREAM = base64.b64decode(CLASS + "CdwgAAAADAAAAAXQABGxvbmd8AAAAAAABEXA=") + b"y" * 70_000 + b"xp"
XML = """<?xml version="1.0" encoding="UTF-8"?>
<java version="17.0.15" class="java.beans.XMLDecoder">
 <object class="java.util.Properties">
  <void method="put">
   <string>jobID</string>
   <string>jid-1</string>
  </void>
  <void method="put">
   <string>same</string>
   <string>bid-1</string>
  </void>
  <void method="put">
   <string>batchID</string>
   <string>bid-1</string>
  </void>
  <void method="put">
   <string>title</string>
   <string>Grüße 😀 &amp; &lt;x&gt;</string>
  </void>
  <void method="put">
   <string>empty</string>
   <string></string>
  </void>
 </object>
</java>
""".encode()
STORED_XML = b"""<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<!DOCTYPE properties SYSTEM "http://java.sun.com/dtd/properties.dtd">
<properties>
<comment>c</comment>
<entry key="jobID">jid-1</entry>
<entry key="empty"></entry>
</properties>
"""
TEXT = b"""#c
#Mon Nov 16 00:11:35 UTC 2026
jobID=jid-1
same=bid-1
batchID=bid-1
title=Gr\\u00FC\\u00DFe \\uD83D\\uDE00 & <x>
empty=
"""


def entry(payload: bytes, *, status: int = 0, time: int = 1_600_000_000_000, path: str = PATH) -> LegacyQueueEntry:
    return decode_entry(path, struct.pack(">Bq", status, time) + payload)


def described(said: Mapping[str, object], *, status: int = 0, path: str = PATH) -> ImportPlan:
    return plan_import(entry(msgspec.json.encode(said), status=status, path=path))


@pytest.mark.parametrize("payload", [msgspec.json.encode(SAID), STREAM, XML, TEXT])
def test_every_form_says_the_same(payload: bytes) -> None:
    assert entry(payload).payload == SAID


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", {}),
        (b"\0", {}),
        (STREAM_WITH_DEFAULTS, {"profile": "demo", "jobID": "jid-2"}),
        (STREAM_OF_OTHERS, {"localID": "a;b", "update": "true", "size": "12"}),
        (LONG_STREAM, {"long": "y" * 70_000}),
        (STORED_XML, {"jobID": "jid-1", "empty": ""}),
        (
            b'<java><object><void method="put"><string>a</string><string>x<char code="#1"/>y</string></void></object></java>',
            {"a": "x\x01y"},
        ),
        (
            b'<java><object><void method="put"><string>a</string><string><char code="#d83d"/></string></void></object></java>',
            {"a": "\ufffd"},
        ),
        (
            b'<java><object><void method="put"><string>a</string><boolean>true</boolean></void></object></java>',
            {"a": "true"},
        ),
        (
            b"<job:state xmlns:job='urn:x'><job:jobID>j</job:jobID><job:more><job:title> t </job:title></job:more></job:state>",
            {"jobID": "j", "title": "t"},
        ),
        (b'{"update": true, "size": 7, "list": ["a"]}', {"update": True, "size": 7, "list": ["a"]}),
        ("title=Grüße".encode("iso-8859-1"), {"title": "Grüße"}),
    ],
)
def test_other_payloads(payload: bytes, said: dict[str, object]) -> None:
    assert entry(payload).payload == said


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"\x00\x01\x02\xff", "neither JSON nor XML nor properties"),
        (b"-- = x\n", "neither JSON nor XML nor properties"),
        (b"a=\\u12", "neither JSON nor XML nor properties"),
        (b"{broken", "begins like JSON"),
        (b'{"a": "\\ud83d"}', "begins like JSON"),
        (b"{" * 100_000, "begins like JSON"),
        (b"<broken", "begins like XML"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "begins like XML"),
        (STREAM[:100], "Java object that ends too early"),
        (STREAM[:4], "Java object that ends too early"),
        (STREAM_OF_A_LIST, "Java object that has keys or values that are not texts"),
        (base64.b64decode("rO0ABXQABHRleHQ="), "is not a java.util.Properties"),
        (STREAM[:4] + b"\x75", "holds more than texts and numbers"),
        (STREAM[:4] + b"\x73" * 1000, "nested too deep"),
        (b" " * 5_000_000, "longer than"),
    ],
)
def test_payloads_that_cannot_be_read(payload: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why) as caught:
        entry(payload)
    assert PATH in str(caught.value)


@pytest.mark.parametrize(
    ("time", "written"),
    [
        (1_600_000_000, datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)),
        (1_600_000_000_123, datetime(2020, 9, 13, 12, 26, 40, 123_000, tzinfo=UTC)),
        (99_999_999_999, datetime(5138, 11, 16, 9, 46, 39, tzinfo=UTC)),
        (100_000_000_000, datetime(1973, 3, 3, 9, 46, 40, tzinfo=UTC)),
        (0, None),
        (-1, None),
        (2**63 - 1, None),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (253_402_300_800_000, None),
    ],
)
def test_seconds_and_milliseconds(time: int, written: datetime | None) -> None:
    assert entry(b"", time=time).written_at == written


@pytest.mark.parametrize(
    ("path", "queue", "priority", "worker", "number"),
    [
        ("/ingest/mrtQ-02100000000003", LegacyQueue.INGEST, 2, "10", 3),
        ("/ingest/mrtQ-0210000000003", LegacyQueue.INGEST, 2, "1", 3),
        ("/ingest/mrtQ-050000212177", LegacyQueue.INGEST, 5, "", 212177),
        ("/mrt.inventory.full/mrtQ-000000025100", LegacyQueue.INVENTORY, 0, "", 25100),
        ("/accessSmall.1/mrtQ-0000000007", LegacyQueue.ACCESS_SMALL, None, "", 7),
        ("/chroot/accessLarge.1/mrtQ-0000000007", LegacyQueue.ACCESS_LARGE, None, "", 7),
    ],
)
def test_names(path: str, queue: LegacyQueue, priority: int | None, worker: str, number: int) -> None:
    found = entry(b"", path=path)
    assert (found.queue, found.priority, found.worker, found.number) == (queue, priority, worker, number)


@pytest.mark.parametrize(
    ("path", "data", "why"),
    [
        ("", b"", "is not an entry"),
        ("/ingest", bytes(9), "is not an entry"),
        ("/ingest/lock", bytes(9), "is not an entry"),
        ("/jobs/mrtQ-0000000007", bytes(9), "is not an entry"),
        ("/ingest/mrtQ-١٢٣٤٥٦٧٨٩٠", bytes(9), "is not an entry"),
        (PATH, None, "has 0 bytes"),
        (PATH, b"", "has 0 bytes"),
        (PATH, bytes(8), "has 8 bytes"),
        (PATH, b"\x06" + bytes(8), "the status 6"),
        (PATH, b"\xff" + bytes(8), "the status 255"),
    ],
)
def test_what_is_no_entry(path: str, data: bytes | None, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        decode_entry(path, data)


WHOLE = ("Pending", "Estimating", "Provisioning", "Downloading", "Processing", "Recording", "Notify", "Completed")


@pytest.mark.parametrize(
    ("queue", "status", "path", "last_done"),
    [
        ("ingest", LegacyStatus.Pending, ("Pending",), ""),
        ("ingest", LegacyStatus.Consumed, ("Pending", "Estimating"), "Pending"),
        ("ingest", LegacyStatus.Deleted, ("Pending", "Held", "Deleted"), ""),
        ("ingest", LegacyStatus.Failed, ("Pending", "Estimating", "Failed"), "Pending"),
        ("ingest", LegacyStatus.Completed, WHOLE, "Notify"),
        ("ingest", LegacyStatus.Held, ("Pending", "Held"), ""),
        ("mrt.inventory.full", LegacyStatus.Pending, WHOLE[:6], "Processing"),
        ("mrt.inventory.full", LegacyStatus.Consumed, WHOLE[:6], "Processing"),
        ("mrt.inventory.full", LegacyStatus.Deleted, (*WHOLE[:6], "Failed", "Deleted"), "Processing"),
        ("mrt.inventory.full", LegacyStatus.Failed, (*WHOLE[:6], "Failed"), "Processing"),
        ("mrt.inventory.full", LegacyStatus.Completed, WHOLE, "Notify"),
        ("mrt.inventory.full", LegacyStatus.Held, (*WHOLE[:6], "Failed"), "Processing"),
        ("accessSmall.1", LegacyStatus.Pending, ("Pending", "Processing", "Failed"), "Pending"),
        ("accessSmall.1", LegacyStatus.Consumed, ("Pending", "Processing", "Failed"), "Pending"),
        ("accessLarge.1", LegacyStatus.Deleted, ("Pending", "Processing", "Failed", "Deleted"), "Pending"),
        ("accessLarge.1", LegacyStatus.Failed, ("Pending", "Processing", "Failed"), "Pending"),
        ("accessLarge.1", LegacyStatus.Completed, ("Pending", "Processing", "Completed"), "Processing"),
        ("accessLarge.1", LegacyStatus.Held, ("Pending", "Processing", "Failed"), "Pending"),
    ],
)
def test_every_status_of_every_queue(queue: str, status: LegacyStatus, path: tuple[str, ...], last_done: str) -> None:
    found = described({"batchID": "b"}, status=status.value, path=f"/{queue}/mrtQ-0210000000003")
    assert (found.state_path, found.state, found.last_done) == (path, path[-1], last_done)
    assert any("was held" in remark for remark in found.remarks) == (
        status is LegacyStatus.Held and queue == "mrt.inventory.full"
    )
    if queue.startswith("access"):
        assert [remark in found.message for remark in found.remarks] == ([True] if found.state == "Failed" else [])
        assert ("request it again" in found.message) == (found.state == "Failed")
    begins = {LegacyStatus.Failed: "It had failed in", LegacyStatus.Held: "It was held in"}.get(status)
    if begins is not None:
        assert found.message.startswith(f"{begins} the old queue, entry /{queue}/mrtQ-0210000000003.")


@pytest.mark.parametrize("status", list(LegacyStatus))
def test_an_ingest_job_without_a_payload_is_remarked_unless_it_is_over(status: LegacyStatus) -> None:
    found = described({"batchID": "b"}, status=status.value)
    assert any("no payload_url" in remark for remark in found.remarks) == (
        status not in (LegacyStatus.Completed, LegacyStatus.Deleted)
    )
    assert described({"batchID": "b", "payload_url": "http://x/a"}, status=status.value).remarks == []


def test_an_ingest_job() -> None:
    fields = {
        "batchID": "bid-1",
        "jobID": "jid-1",
        "profile": "demo",
        "submitter": "me",
        "filename": "a.zip",
        "type": "container",
        "update": "true",
        "title": "T",
        "creator": "C",
        "objectID": "ark:/99999/fk4abc",
        "localID": "x; y;x",
        "queuePriority": "07",
        "payload_url": "http://example.org/a.zip",
    }
    found = described(fields)
    assert (found.idempotency_key, found.kind, found.batch, found.priority) == (
        "legacy/ingest/mrtQ-02100000000003",
        "job",
        "bid-1",
        2,
    )
    assert found.configuration == {**fields, "update": True}
    assert found.submission["migrated"] is True
    assert found.submission["profile"] == "demo"
    assert "jobID" not in found.submission
    assert found.identifiers == {"primary_id": "ark:/99999/fk4abc", "local_id": ["x", "y"]}
    assert found.metadata == {"erc_who": "C", "erc_what": "T", "erc_when": ""}
    assert found.inventory == found.token == {}
    assert found.remarks == []


def test_entries_of_one_batch_are_jobs_of_one_batch_and_stay_apart() -> None:
    one, other = described({"batchID": "b"}), described({"batchID": "b"}, path="/ingest/mrtQ-02100000000004")
    assert one.batch == other.batch
    assert one.idempotency_key != other.idempotency_key


def test_an_entry_without_a_batch_becomes_one() -> None:
    found = described({})
    assert found.batch == "legacy-mrtQ-02100000000003"
    assert "names no batch" in found.remarks[0]


def test_an_inventory_job() -> None:
    payload = b"<java><object><void method='put'><string>manifestURL</string><string>http://store/manifest/1</string></void></object></java>"
    found = plan_import(entry(payload, path="/mrt.inventory.full/mrtQ-000000025100"))
    assert found.inventory == {"manifest_url": "http://store/manifest/1", "mode": "add"}
    assert "names no manifest" in described({"batchID": "b"}, path="/mrt.inventory.full/mrtQ-000000025100").remarks[0]


def test_an_assembly() -> None:
    token = {
        "token": "t",
        "delivery-node": 7001,
        "cloud-content-byte": 12,
        "status": 201,
        "url": "u",
        "anticipated-availability-time": "soon",
    }
    found = described(token, path="/accessLarge.1/mrtQ-0000000007")
    assert (found.kind, found.is_large, found.token, found.batch) == ("access", True, token, "")
    assert not described(token, path="/accessSmall.1/mrtQ-0000000007").is_large


@pytest.mark.parametrize(
    ("said", "priority"),
    [({"queuePriority": "07"}, 7), ({"priority": 12}, 12), ({"priority": "1000"}, 99), ({}, 5), ({"priority": "x"}, 5)],
)
def test_the_priority_of_a_name_without_one(said: dict[str, object], priority: int) -> None:
    assert described(said, path="/accessSmall.1/mrtQ-0000000007").priority == priority


PAYLOADS = [
    msgspec.json.encode(SAID),
    STREAM,
    STREAM_WITH_DEFAULTS,
    STREAM_OF_OTHERS,
    STREAM_OF_A_LIST,
    XML,
    STORED_XML,
    TEXT,
]
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 500),
        st.sampled_from([0, 1, 0x70, 0x71, 0x72, 0x73, 0x74, 0x77, 0x78, 0x7C, 0x80, 0xED, 0xFF, 60, 123]),
    ),
    max_size=4,
)


@given(
    st.one_of(st.binary(), st.sampled_from(PAYLOADS)),
    CHANGES,
    st.integers(0, 7),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([f"{queue}/mrtQ-0210000000003" for queue in LegacyQueue]),
)
def test_any_bytes_are_described_or_refused(
    payload: bytes, changes: list[tuple[int, int]], status: int, time: int, path: str
) -> None:
    changed = bytearray(payload)
    for at, value in changes:
        if at < len(changed):
            changed[at] = value
    with suppress(FormatError):
        found = plan_import(entry(bytes(changed), status=status, time=time, path=path))
        assert 0 <= found.priority <= 99
        msgspec.json.encode(found)


@given(st.text(), st.binary())
def test_any_path_is_an_entry_or_not(path: str, data: bytes) -> None:
    with suppress(FormatError):
        decode_entry(path, data)
