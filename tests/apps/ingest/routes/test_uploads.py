"""Forms are read part by part, whatever the chunks they come in; what is no form is refused in a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.routes.merritt_form import to_xml_text
from waybill.apps.ingest.routes.uploads import BadForm, read_form

TYPE = "multipart/form-data; boundary=B"


def form(*parts: tuple[str, str | None, bytes]) -> bytes:
    body = b""
    for name, filename, data in parts:
        extra = f'; filename="{filename}"' if filename is not None else ""
        body += f'--B\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode() + data + b"\r\n"
    return body + b"--B--\r\n"


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    found = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


PARTS = st.lists(
    st.tuples(
        st.text("abc.", min_size=1, max_size=8), st.none() | st.text("abc.é", max_size=8), st.binary(max_size=200)
    ),
    max_size=5,
)


@given(PARTS, st.lists(st.integers(0, 60), max_size=20))
def test_a_form_comes_as_it_was_sent_in_any_chunks(
    parts: list[tuple[str, str | None, bytes]], sizes: list[int]
) -> None:
    chunks = pieces(form(*parts), sizes)
    assert [(part.name, part.filename, b"".join(part.data)) for part in read_form(chunks, TYPE)] == parts


@given(PARTS, st.data())
def test_a_form_that_ends_early_is_refused(parts: list[tuple[str, str | None, bytes]], data: st.DataObject) -> None:
    whole = form(*parts)
    cut = data.draw(st.integers(0, len(whole) - 5))  # without the last --B-- it is not whole
    with pytest.raises(BadForm):
        list(read_form([whole[:cut]], TYPE))


@given(st.lists(st.binary(max_size=300), max_size=4), st.text(max_size=60) | st.just(TYPE))
def test_any_bytes_are_a_form_or_are_refused(chunks: list[bytes], kind: str) -> None:
    try:
        for part in read_form(chunks, kind):
            assert isinstance(part.name, str)
    except BadForm as refusal:
        assert str(refusal)  # noqa: PT017


def test_what_nobody_reads_is_skipped() -> None:
    body = form(("a", None, b"x" * 100_000), ("b", None, b"2"))
    assert [part.name for part in read_form(pieces(body, [1000] * 50), TYPE)] == ["a", "b"]


def test_a_field_has_an_end_and_is_text() -> None:
    with pytest.raises(BadForm, match="more than"):
        next(read_form([form(("a", None, b"x" * 100_000))], TYPE)).read_text()
    with pytest.raises(BadForm, match="not UTF-8"):
        next(read_form([form(("a", None, b"\xff"))], TYPE)).read_text()


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(BadForm, match="more than 200 parts"):
        list(read_form([form(*[("a", None, b"")] * 201)], TYPE))


def test_a_part_without_a_name_is_refused() -> None:
    with pytest.raises(BadForm, match="has no name"):
        list(read_form([b"--B\r\nContent-Type: text/plain\r\n\r\nx\r\n--B--\r\n"], TYPE))


@given(st.text())
def test_any_text_can_stand_in_xml(text: str) -> None:
    import xml.etree.ElementTree as ET
    from xml.sax.saxutils import escape

    assert ET.fromstring(f"<a>{escape(to_xml_text(text))}</a>").tag == "a"
