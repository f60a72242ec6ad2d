"""Payloads: what an entry says, in whichever form it was written, as keys and values.

The form is told by the first bytes: JSON by `{`, XML by `<`, an object of Java's by its magic number; what else is
text, is properties.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element

import msgspec

from waybill.apps.ingest import properties, safexml
from waybill.apps.ingest.legacy.javastream import MAGIC, BadStream, read_properties

LIMIT = 4 * 1024 * 1024  # bytes; a node of ZooKeeper has one MiB

_KEY = re.compile(r"[A-Za-z_][\w.:-]*")
# What java.util.Properties.storeToXML writes: the only document type that is taken, since it declares nothing here.
_JAVA_DOCTYPE = re.compile(rb'<!DOCTYPE properties SYSTEM "http://java\.sun\.com/dtd/properties\.dtd">')


class LegacyError(Exception):
    """This is not an entry of an old queue, or a damaged one."""

    permanent = True


def read_payload(data: bytes) -> dict[str, Any]:
    if len(data) > LIMIT:
        raise LegacyError(f"its payload is longer than {LIMIT:,} bytes.")
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
        found = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise LegacyError("its payload begins like JSON and is none.") from None
    return found


def _from_java(data: bytes) -> dict[str, str]:
    try:
        return read_properties(data)
    except BadStream as error:
        raise LegacyError(f"its payload is a Java object that {error}.") from None


def _from_properties(data: bytes) -> dict[str, str]:
    try:
        found = properties.read(data)
    except properties.BadProperties:
        found = {}
    if not found or not all(_KEY.fullmatch(key) for key in found):
        raise LegacyError("its payload is neither JSON nor XML nor properties.")
    return found


def _from_xml(data: bytes) -> dict[str, str]:
    try:
        root = safexml.parse(_JAVA_DOCTYPE.sub(b"", data, count=1))
    except safexml.BadXml as error:
        raise LegacyError(f"its payload begins like XML and is none. {error}") from None
    if root.tag == "java":  # java.beans.XMLEncoder: calls of put(key, value)
        puts = [list(call) for call in root.iter("void") if call.get("method") == "put"]
        return {_value(pair[0]): _value(pair[1]) for pair in puts if len(pair) == 2}
    if root.tag == "properties":
        return {entry.get("key", ""): entry.text or "" for entry in root.iter("entry")}
    leaves = (element for element in root.iter() if not len(element))
    return {element.tag.rpartition("}")[2]: (element.text or "").strip() for element in leaves}


def _value(element: Element) -> str:
    """The text of a <string>, in which <char code="#1f"/> stands for what XML cannot hold; of a <boolean> or <int>
    too.
    """
    parts = [element.text or ""]
    for below in element:
        code = below.get("code", "").removeprefix("#")
        if below.tag == "char" and re.fullmatch("[0-9a-f]{1,4}", code):
            parts.append(chr(int(code, 16)))
        parts.append(below.tail or "")
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
