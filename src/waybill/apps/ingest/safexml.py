"""XML from strangers: read with the standard library's parser, after everything was refused that makes XML dangerous.

A document type is where entities are declared, and entities are how a few lines become gigabytes or the contents of a
file: so there is no document type, no entity but the five of XML itself, and a limit to size, depth and number of
elements.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

LIMIT = 5_000_000  # bytes
DEEPEST = 100
MOST_ELEMENTS = 100_000


class BadXml(Exception):
    """This XML is not taken."""

    permanent = True


def parse(data: bytes, *, limit: int = LIMIT) -> Element:
    """The root element; names are `{namespace}name`, comments and instructions are passed over."""
    if len(data) > limit:
        raise BadXml(f"It is longer than {limit:,} bytes.")
    reading = _Reading()
    try:
        reading.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadXml(f"Line {error.lineno}: it is not well-formed XML ({expat.ErrorString(error.code)}).") from None
    except (ValueError, LookupError):  # an encoding that nobody knows, or that is not what it says
        raise BadXml("Its encoding is not known: save it as UTF-8.") from None
    return reading.root()


class _Reading:
    def __init__(self) -> None:
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._document_type
        self._tree = TreeBuilder()
        self._depth = 0
        self._count = 0

    def root(self) -> Element:
        return self._tree.close()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > DEEPEST:
            raise BadXml(f"Line {self.parser.CurrentLineNumber}: its elements are nested more than {DEEPEST} deep.")
        if self._count > MOST_ELEMENTS:
            raise BadXml(f"Line {self.parser.CurrentLineNumber}: it has more than {MOST_ELEMENTS:,} elements.")
        self._tree.start(_name(name), {_name(key): value for key, value in attributes.items()})

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._tree.end(_name(name))

    def _text(self, text: str) -> None:
        self._tree.data(text)

    def _document_type(self, *declared: object) -> None:
        raise BadXml(
            f"Line {self.parser.CurrentLineNumber}: it declares a document type (DOCTYPE), which is not taken: remove the line."
        )


def _name(name: str) -> str:
    return "{" + name if "}" in name else name
