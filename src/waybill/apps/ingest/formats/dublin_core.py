"""Dublin Core: fifteen elements that describe an object, as `mrt-dc.xml`; written for each object, and read if the
deposit contains one.

    <DublinCore xmlns:xsi="..." xmlns:dc="http://purl.org/dc/elements/1.1/">
      <dc:title>Big Hunt</dc:title>
      <dc:creator>Seneca, Tracy</dc:creator>
    </DublinCore>

Any element may be repeated. In a form, where each has one field, the values of subject, creator, relation and
identifier are separated by `;`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from waybill.apps.ingest.formats.safe_xml import parse
from waybill.errors import FormatError
from waybill.files import names

NAMESPACE = "http://purl.org/dc/elements/1.1/"
ELEMENTS = (
    "title",
    "creator",
    "subject",
    "description",
    "publisher",
    "contributor",
    "date",
    "type",
    "format",
    "identifier",
    "source",
    "language",
    "relation",
    "coverage",
    "rights",
)
REPEATED = frozenset({"subject", "creator", "relation", "identifier"})

_TERMS = "http://purl.org/dc/terms/"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

DublinCore = Mapping[str, Sequence[str]]  # element -> its values


def from_form(fields: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the description of form fields: {"title": "a", "subject": "b; c"}; empty fields are left out."""
    description: dict[str, list[str]] = {}
    for name in ELEMENTS:
        text = fields.get(name, "")
        values = text.split(";") if name in REPEATED else [text]
        unique = list(dict.fromkeys(value.strip() for value in values if value.strip()))
        if unique:
            description[name] = unique
    return description


def write(description: DublinCore) -> bytes:
    """Write the file, with the elements in the order of ELEMENTS."""
    unknown = sorted(set(description) - set(ELEMENTS))
    if unknown:
        raise FormatError(
            f"{names.quote_text(unknown[0])} is not an element of Dublin Core: there are {', '.join(ELEMENTS)}."
        )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<DublinCore xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:dc="{NAMESPACE}">',
    ]
    for name in ELEMENTS:
        for value in description.get(name, ()):
            if _NOT_XML.search(value):
                raise FormatError(f"The {name} {names.quote_text(value)} contains a character that XML cannot express.")
            lines.append(f"  <dc:{name}>{escape(value, {chr(13): '&#13;'})}</dc:{name}>")
    return "\n".join([*lines, "</DublinCore>", ""]).encode()


def read(data: bytes) -> dict[str, list[str]]:
    """Read the elements anywhere in the file; other elements are ignored, and dcterms count as the elements of the same
    name.
    """
    try:
        root = parse(data)
    except FormatError as error:
        raise FormatError(str(error)) from None
    description: dict[str, list[str]] = {}
    for element in root.iter():
        space, _, name = element.tag.removeprefix("{").rpartition("}")
        value = "".join(element.itertext()).strip()
        if space in (NAMESPACE, _TERMS) and name in ELEMENTS and value:
            description.setdefault(name, []).append(value)
    return {name: description[name] for name in ELEMENTS if name in description}
