"""Parses untrusted XML with the standard library's parser, and refuses what makes XML dangerous.

Entities can expand a few lines to gigabytes, or to the contents of a file, and are declared in a document type. So a
document type is refused, only the five entities of XML itself exist, and size, depth and number of elements are
limited.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from waybill.errors import FormatError

MAX_BYTES = 5_000_000  # bytes
MAX_DEPTH = 100
MAX_ELEMENTS = 100_000


def parse(data: bytes, *, limit: int = MAX_BYTES) -> Element:
    """Return the root element; names are `{namespace}name`, comments and processing instructions are ignored."""
    if len(data) > limit:
        raise FormatError(f"It is longer than {limit:,} bytes.")
    parser = _SafeXmlParser()
    try:
        parser.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise FormatError(
            f"Line {error.lineno}: it is not well-formed XML ({expat.ErrorString(error.code)})."
        ) from None
    except (ValueError, LookupError):  # an unknown or wrong encoding
        raise FormatError("Its encoding is not known: save it as UTF-8.") from None
    return parser.close()


class _SafeXmlParser:
    def __init__(self) -> None:
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._add_text
        self.parser.StartDoctypeDeclHandler = self._refuse_document_type
        self._tree = TreeBuilder()
        self._depth = 0
        self._count = 0

    def close(self) -> Element:
        return self._tree.close()

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise FormatError(
                f"Line {self.parser.CurrentLineNumber}: its elements are nested more than {MAX_DEPTH} deep."
            )
        if self._count > MAX_ELEMENTS:
            raise FormatError(f"Line {self.parser.CurrentLineNumber}: it has more than {MAX_ELEMENTS:,} elements.")
        self._tree.start(
            _qualified_name_of(name), {_qualified_name_of(key): value for key, value in attributes.items()}
        )

    def _end_element(self, name: str) -> None:
        self._depth -= 1
        self._tree.end(_qualified_name_of(name))

    def _add_text(self, text: str) -> None:
        self._tree.data(text)

    def _refuse_document_type(self, *declared: object) -> None:
        raise FormatError(
            f"Line {self.parser.CurrentLineNumber}: it declares a document type (DOCTYPE), which is not allowed: remove the line."
        )


def _qualified_name_of(name: str) -> str:
    return "{" + name if "}" in name else name
