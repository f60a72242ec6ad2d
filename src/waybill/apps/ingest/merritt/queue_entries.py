"""Decodes entries of the queues that Merritt had before its batches and jobs.

The name of an entry is mrtQ-, a priority of two digits, a worker and a sequence number. Its bytes are a status, a time,
and a payload of keys and values, which was written as JSON, XML, properties or a serialized Java object.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any
from xml.etree.ElementTree import Element

import msgspec

from waybill.apps.ingest.formats import safe_xml
from waybill.apps.ingest.merritt import java_properties
from waybill.apps.ingest.merritt.java_serialization import MAGIC, read_properties
from waybill.errors import FormatError
from waybill.files.names import quote_text

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024  # bytes; a ZooKeeper node has at most one MiB

_PROPERTY_NAME = re.compile(r"[A-Za-z_][\w.:-]*")
# Written by java.util.Properties.storeToXML: the only document type that is accepted, since it declares nothing.
_JAVA_DOCTYPE = re.compile(rb'<!DOCTYPE properties SYSTEM "http://java\.sun\.com/dtd/properties\.dtd">')
_HEAD_LENGTH = 9
_NAME = re.compile(r"mrtQ-([0-9]{10,40})")
_NUMBER_DIGITS = 10  # digits that ZooKeeper adds
_MAX_SECONDS = 10**11  # as seconds the year 5138, as milliseconds 1973
_MAX_MILLISECONDS = 253_402_300_800_000  # the year 10000, in milliseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LegacyQueue(StrEnum):
    INGEST = "/ingest"
    INVENTORY = "/mrt.inventory.full"
    ACCESS_SMALL = "/accessSmall.1"
    ACCESS_LARGE = "/accessLarge.1"


class LegacyStatus(Enum):
    """The first byte of an entry."""

    Pending = 0
    Consumed = 1  # claimed by a worker
    Deleted = 2
    Failed = 3
    Completed = 4
    Held = 5


class LegacyQueueEntry(msgspec.Struct, frozen=True):
    queue: LegacyQueue
    name: str
    priority: int | None  # from the name; None if it has none
    worker: str
    number: int
    status: LegacyStatus
    written_at: datetime | None
    payload: dict[str, Any]


def decode_entry(path: str, data: bytes | None) -> LegacyQueueEntry:
    """Decode the entry at a path such as `/ingest/mrtQ-02100000000003`; raise FormatError if it is none."""
    folder, _, name = path.rpartition("/")
    queue = next((each for each in LegacyQueue if folder == each or folder.endswith(str(each))), None)
    found = _NAME.fullmatch(name)
    if queue is None or found is None:
        raise FormatError(f"{quote_text(path)} is not an entry of an old queue.")
    if data is None or len(data) < _HEAD_LENGTH:
        raise FormatError(
            f"{quote_text(path)} has {len(data or b'')} bytes, but an entry begins with {_HEAD_LENGTH}: status and time."
        )
    try:
        status = LegacyStatus(data[0])
    except ValueError:
        raise FormatError(
            f"{quote_text(path)} has the status {data[0]}, but only 0 to {len(LegacyStatus) - 1} exist."
        ) from None
    try:
        payload = read_payload(data[_HEAD_LENGTH:])
    except FormatError as error:
        raise FormatError(f"{quote_text(path)} cannot be read: {error}") from None
    prefix = found[1][:-_NUMBER_DIGITS]
    return LegacyQueueEntry(
        queue=queue,
        name=name,
        priority=int(prefix[:2]) if len(prefix) >= 2 else None,
        worker=prefix[2:],
        number=int(found[1][-_NUMBER_DIGITS:]),
        status=status,
        written_at=_parse_time(int.from_bytes(data[1:_HEAD_LENGTH], signed=True)),
        payload=payload,
    )


def _parse_time(number: int) -> datetime | None:
    """Return the time in seconds or milliseconds; None for 0 and for numbers that can be neither."""
    milliseconds = number * 1000 if 0 < number < _MAX_SECONDS else number
    return _EPOCH + timedelta(milliseconds=milliseconds) if 0 < milliseconds < _MAX_MILLISECONDS else None


def read_payload(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_PAYLOAD_BYTES:
        raise FormatError(f"its payload is longer than {MAX_PAYLOAD_BYTES:,} bytes.")
    text = data.strip(b"\0 \t\r\n").removeprefix(b"\xef\xbb\xbf")
    if not text:
        return {}
    if data.startswith(MAGIC):
        return dict(_from_java(data))
    if text.startswith(b"{"):
        return _from_json(text)
    return dict(_from_xml(text) if text.startswith(b"<") else _from_properties(text))


def _from_json(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FormatError("its payload begins like JSON but is not valid JSON.") from None


def _from_java(data: bytes) -> dict[str, str]:
    try:
        return read_properties(data)
    except FormatError as error:
        raise FormatError(f"its payload is a Java object that {error}.") from None


def _from_properties(data: bytes) -> dict[str, str]:
    try:
        found = java_properties.read(data)
    except FormatError:
        found = {}
    if not found or not all(_PROPERTY_NAME.fullmatch(key) for key in found):
        raise FormatError("its payload is neither JSON nor XML nor properties.")
    return found


def _from_xml(data: bytes) -> dict[str, str]:
    try:
        root = safe_xml.parse(_JAVA_DOCTYPE.sub(b"", data, count=1))
    except FormatError as error:
        raise FormatError(f"its payload begins like XML but is not valid. {error}") from None
    if root.tag == "java":  # java.beans.XMLEncoder: calls of put(key, value)
        puts = [list(call) for call in root.iter("void") if call.get("method") == "put"]
        return {_value_of(pair[0]): _value_of(pair[1]) for pair in puts if len(pair) == 2}
    if root.tag == "properties":
        return {entry.get("key", ""): entry.text or "" for entry in root.iter("entry")}
    leaves = (element for element in root.iter() if not len(element))
    return {element.tag.rpartition("}")[2]: (element.text or "").strip() for element in leaves}


def _value_of(element: Element) -> str:
    """Return the text of a <string>, <boolean> or <int>; <char code="#1f"/> stands for what XML cannot hold."""
    parts = [element.text or ""]
    for child in element:
        code = child.get("code", "").removeprefix("#")
        if child.tag == "char" and re.fullmatch("[0-9a-f]{1,4}", code):
            parts.append(chr(int(code, 16)))
        parts.append(child.tail or "")
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
