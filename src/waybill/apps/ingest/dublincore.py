"""Dublin Core: fifteen elements that describe an object, as `mrt-dc.xml`; written for each object, and read if the
depositor sent one.

    <DublinCore xmlns:xsi="..." xmlns:dc="http://purl.org/dc/elements/1.1/">
      <dc:title>Big Hunt</dc:title>
      <dc:creator>Seneca, Tracy</dc:creator>
    </DublinCore>

Any element may be there several times. In a form, where each has one field, subject, creator, relation and identifier
repeat with `;`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from waybill.apps.ingest import names
from waybill.apps.ingest.safexml import BadXml, parse

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
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

DublinCore = Mapping[str, Sequence[str]]  # element -> its values


class BadDublinCore(Exception):
    """The description is not what it should be."""

    permanent = True


def from_form(fields: Mapping[str, str]) -> dict[str, list[str]]:
    """The description in a form: {"title": "a", "subject": "b; c"}; what is empty is left out."""
    found: dict[str, list[str]] = {}
    for name in ELEMENTS:
        text = fields.get(name, "")
        values = text.split(";") if name in REPEATED else [text]
        kept = list(dict.fromkeys(value.strip() for value in values if value.strip()))
        if kept:
            found[name] = kept
    return found


def write(description: DublinCore) -> bytes:
    """The file; the elements come in the order above."""
    unknown = sorted(set(description) - set(ELEMENTS))
    if unknown:
        raise BadDublinCore(
            f"{names.shown(unknown[0])} is not an element of Dublin Core: there are {', '.join(ELEMENTS)}."
        )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<DublinCore xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:dc="{NAMESPACE}">',
    ]
    for name in ELEMENTS:
        for value in description.get(name, ()):
            if _UNFIT.search(value):
                raise BadDublinCore(f"The {name} {names.shown(value)} holds a character that XML cannot express.")
            lines.append(f"  <dc:{name}>{escape(value, {chr(13): '&#13;'})}</dc:{name}>")
    return "\n".join([*lines, "</DublinCore>", ""]).encode()


def read(data: bytes) -> dict[str, list[str]]:
    """The description, wherever in the file its elements are; other elements are passed over, and dcterms count as
    their namesakes.
    """
    try:
        root = parse(data)
    except BadXml as error:
        raise BadDublinCore(str(error)) from None
    found: dict[str, list[str]] = {}
    for element in root.iter():
        space, _, name = element.tag.removeprefix("{").rpartition("}")
        value = "".join(element.itertext()).strip()
        if space in (NAMESPACE, _TERMS) and name in ELEMENTS and value:
            found.setdefault(name, []).append(value)
    return {name: found[name] for name in ELEMENTS if name in found}
