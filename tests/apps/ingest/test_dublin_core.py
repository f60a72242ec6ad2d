"""Dublin Core files, and XML from strangers."""

from contextlib import suppress
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.formats.dublin_core import ELEMENTS, from_form, read, write
from waybill.apps.ingest.formats.safe_xml import parse
from waybill.errors import FormatError

BILLION = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))


def test_the_file() -> None:
    data = write({"creator": ["Müller & Söhne <mbH>"], "title": ["Big Hunt 😀"], "subject": ["a", "b"]})
    assert data.decode() == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<DublinCore xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:dc="http://purl.org/dc/elements/1.1/">\n'
        "  <dc:title>Big Hunt 😀</dc:title>\n"
        "  <dc:creator>Müller &amp; Söhne &lt;mbH&gt;</dc:creator>\n"
        "  <dc:subject>a</dc:subject>\n"
        "  <dc:subject>b</dc:subject>\n"
        "</DublinCore>\n"
    )
    assert read(data) == {"title": ["Big Hunt 😀"], "creator": ["Müller & Söhne <mbH>"], "subject": ["a", "b"]}


def test_a_form_repeats_some_elements() -> None:
    fields = {"title": "One; and two", "subject": "a; b;;a ", "creator": "Seneca, Tracy", "date": " ", "other": "x"}
    assert from_form(fields) == {"title": ["One; and two"], "creator": ["Seneca, Tracy"], "subject": ["a", "b"]}


def test_the_depositors_file_is_read_whatever_it_is_wrapped_in() -> None:
    data = b"""<?xml version="1.0" encoding="ISO-8859-1"?><!-- x --><?y z?>
    <oai_dc:dc xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/" xmlns="http://purl.org/dc/elements/1.1/" xmlns:t="http://purl.org/dc/terms/">
      <title> Gr\xfc\xdfe <b>aus</b> K\xf6ln </title> <t:creator>A</t:creator> <t:extent>7</t:extent> <unknown>u</unknown> <date/>
      <x:other xmlns:x="urn:x"><title xml:lang="en">Greetings</title></x:other>
    </oai_dc:dc>"""
    assert read(data) == {"title": ["Grüße aus Köln", "Greetings"], "creator": ["A"]}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no element found"),
        (b"<a>", "no element found"),
        (b"<a></b>", "mismatched tag"),
        (b"\n\n<a>&nbsp;</a>", "Line 3: it is not well-formed XML .undefined entity"),
        (b"<a>\xff</a>", "not well-formed"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "encoding is not known"),
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', "encoding"),
        (f'<!DOCTYPE a [<!ENTITY e0 "ha">{BILLION}]><a>&e9;</a>'.encode(), "Line 1: it declares a document type"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "document type"),
        (b'<!DOCTYPE a SYSTEM "http://127.0.0.1/a.dtd"><a/>', "document type"),
        (b"<a>" * 101 + b"</a>" * 101, "more than 100 deep"),
        (b"<a>" + b"<b/>" * 100_000 + b"</a>", "more than 100,000 elements"),
        (b"<a>" + b"x" * 5_000_000 + b"</a>", "longer than"),
    ],
)
def test_xml_that_is_not_taken(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read(data)


@pytest.mark.parametrize("value", ["a\x00", "\x1b[31m", "\ud83d", "\ufffe"])
def test_what_xml_cannot_express_is_not_written(value: str) -> None:
    with pytest.raises(FormatError, match="cannot express"):
        write({"title": [value]})


def test_other_elements_are_not_written() -> None:
    with pytest.raises(FormatError, match="is not an element of Dublin Core"):
        write({"titel": ["x"]})


@given(st.dictionaries(st.sampled_from(ELEMENTS), st.lists(st.text(), min_size=1, max_size=3)))
def test_what_was_written_is_read_as_it_was(description: dict[str, list[str]]) -> None:
    with suppress(FormatError):
        expected = {name: [value.strip() for value in values if value.strip()] for name, values in description.items()}
        assert read(write(description)) == {name: expected[name] for name in ELEMENTS if expected.get(name)}


MARKUP = st.lists(
    st.sampled_from(
        [
            "<a>",
            "</a>",
            "<dc:title xmlns:dc='http://purl.org/dc/elements/1.1/'>",
            "</dc:title>",
            "x",
            "&amp;",
            "&#0;",
            "<!--",
            "-->",
            "<?x?>",
            "<!DOCTYPE a>",
            "]]>",
            "é",
            " xmlns=''",
        ]
    )
)


@given(st.one_of(st.binary(), MARKUP.map(lambda parts: "".join(parts).encode())))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(FormatError):
        read(data)
    with suppress(FormatError):
        assert ElementTree.tostring(parse(data)) == ElementTree.tostring(ElementTree.fromstring(data))
