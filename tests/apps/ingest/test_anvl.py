"""ANVL: elements, citations, embargoes, deletions."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.formats.anvl import (
    MAX_BYTES,
    AnvlElement,
    Erc,
    escape,
    read,
    read_deletions,
    read_embargo,
    read_erc,
    write,
    write_deletions,
    write_erc,
)
from waybill.errors import FormatError


def test_elements_comments_and_values_that_go_on() -> None:
    data = "\ufeff# a comment\r\nerc:\r\nwho: Lederberg,\r\n  Joshua \r\n\r\nwhat:Studies: of Human\twhat\r\nempty:\r\n".encode()
    assert read(data) == [("erc", ""), ("who", "Lederberg, Joshua"), ("what", "Studies: of Human\twhat"), ("empty", "")]


@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        (b"who: a\nwhat", 2, "no label"),
        (b": a", 1, "no label"),
        (b"  a", 1, "none before it"),
        (b"who: a\nwhat: caf\xe9", 2, "Byte 10 is not UTF-8"),
        (b"a" * (MAX_BYTES + 1), 0, "longer than"),
    ],
)
def test_text_that_is_no_anvl(data: bytes, line: int, why: str) -> None:
    with pytest.raises(FormatError, match=why) as caught:
        read(data)
    assert caught.value.line == line


def test_percent_stands_for_itself_unless_it_escapes() -> None:
    assert read(b"a: 100%25\n") == [("a", "100%25")]
    assert read(b"a%3Ab: 100%25%0Amore\n", escaped=True) == [("a:b", "100%\nmore")]
    assert escape("50% a:b\r\n") == "50%25 a:b%0D%0A"
    assert escape("a:b", ":") == "a%3Ab"


def test_a_citation_is_written_with_codes_for_what_is_missing() -> None:
    erc = Erc(who="Seneca, Tracy", what="Big\n Hunt", where=("ark:/99999/fk42z13f2", "loc001"))
    assert write_erc(erc).decode() == (
        "erc:\nwho: Seneca, Tracy\nwhat: Big Hunt\nwhen: (:unas)\nwhere: ark:/99999/fk42z13f2\nwhere: loc001\n"
    )
    assert write_erc(Erc()).count(b"(:unas)") == 4


def test_a_citation_is_read() -> None:
    data = (
        "erc:\nWho: A\nwho: B\nwhat: 100% Käse\nwhen: (:unas)\nwhere: ark:/1/a\nwhere: x\nwhere: x\nother: y\n".encode()
    )
    assert read_erc(data) == Erc("A; B", "100% Käse", "", ("ark:/1/a", "x"))
    assert read_erc(b"erc: Gibbon | Decline | 1781 | http://x/a\n") == Erc("Gibbon", "Decline", "1781", ("http://x/a",))
    assert read_erc(b"") == Erc()


TEXT = st.text(alphabet=st.sampled_from("aé😀%:|# ;\t"), max_size=8)


@given(TEXT, TEXT, TEXT)
def test_a_citation_that_was_written_is_read_as_it_was(who: str, what: str, when: str) -> None:
    found = read_erc(write_erc(Erc(who, what, when, ("ark:/1/a",))))
    assert (found.who, found.what, found.when) == tuple(" ".join(text.split()) for text in (who, what, when))


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("embargoEndDate:none", None),
        ("embargoEndDate: None\n", None),
        ("embargoEndDate:", None),
        ("embargoEndDate: 2031-01-01\n", datetime(2031, 1, 1, tzinfo=UTC)),
        ("# x\nembargoenddate: 2031-01-01T00:00:01+12:45", datetime(2030, 12, 31, 11, 15, 1, tzinfo=UTC)),
        ("embargoEndDate: 2031-01-01T00:00:00Z", datetime(2031, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_embargo(text: str, until: datetime | None) -> None:
    assert read_embargo(text.encode()) == until


@pytest.mark.parametrize(
    "text", ["", "embargo: 2031-01-01", "embargoEndDate: soon", "embargoEndDate: 0001-01-01T00:00:00+14:00", "what"]
)
def test_an_embargo_that_cannot_be_read_is_not_passed_over(text: str) -> None:
    with pytest.raises(FormatError):
        read_embargo(text.encode())


def test_deletions() -> None:
    assert read_deletions("a.txt\r\n\nb/ü 😀.txt\na.txt".encode()) == ["a.txt", "b/ü 😀.txt"]
    assert read_deletions(write_deletions(["a", "b/c"])) == ["a", "b/c"]
    assert read_deletions(b"") == []


@pytest.mark.parametrize(("data", "line"), [(b"a\n../b", 2), (b"/etc/passwd", 1), (b"a\n\nb\xff", 3)])
def test_deletions_with_a_fault(data: bytes, line: int) -> None:
    with pytest.raises(FormatError) as caught:
        read_deletions(data)
    assert caught.value.line == line


def test_what_the_format_cannot_express_is_not_written() -> None:
    for label in ("", "a:b", "a\nb", "#a", " a"):
        with pytest.raises(FormatError, match="is not a label"):
            write([AnvlElement(label, "x")])
    with pytest.raises(FormatError, match="surrogate"):
        write([AnvlElement("a", "\ud83d")])


@given(st.lists(st.tuples(st.text(alphabet="aé:%\n\r", min_size=1), st.text(alphabet="aé:%\n\r "))))
def test_messages_carry_every_text(elements: list[tuple[str, str]]) -> None:
    found = read(write([AnvlElement(*each) for each in elements], escaped=True), escaped=True)
    assert found == [(label, value.strip(" ")) for label, value in elements]


@given(st.one_of(st.binary(), st.text(alphabet="aewhot:%| \t\r\n#é0123456789-TZ").map(str.encode)))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for reader in (read, read_erc, read_embargo, read_deletions):
        with suppress(FormatError):
            reader(data)
    with suppress(FormatError):
        read(data, escaped=True)
