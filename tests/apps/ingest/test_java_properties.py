"""Java's properties files.

What Java itself makes of the same bytes was looked up with java.util.Properties of Java 17.
"""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.merritt.java_properties import MAX_BYTES, read
from waybill.errors import FormatError


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"# c\n! c\n  # c\n\n \t\n", {}),
        (b"a=1\nb:2\nc 3\nd\t=\t4\ne = : 5\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ": 5"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=a", {"": "a"}),
        (b"a= b \n", {"a": "b "}),
        (b"a=1\ra=2\r\na=3", {"a": "3"}),
        (b"a = one \\\n   two\\\n\n#b", {"a": "one two"}),
        (b"a = 1 \\\n # no comment", {"a": "1 # no comment"}),
        (b"\\\n # a comment\nb=1", {"b": "1"}),
        (b"a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        (b"a=x\\", {"a": "x"}),
        (rb"a\ b\=\:c=\t\n\q\"\'", {"a b=:c": "\t\nq\"'"}),
        (rb"a=Gr\u00FC\u00DFe \uD83D\uDE00", {"a": "Grüße 😀"}),
        ("a=Grüße 😀".encode(), {"a": "Grüße 😀"}),
        ("\ufeffa=é".encode(), {"a": "é"}),
        ("a=Grüße".encode("iso-8859-1"), {"a": "Grüße"}),
        (rb"\u0061=\\u0062", {"a": "\\u0062"}),
    ],
)
def test_as_java_reads_it(data: bytes, expected: dict[str, str]) -> None:
    assert read(data) == expected


@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        (rb"a=\u12", 1, "four hex digits"),
        (b"a=1\n# c\nb=\\uXYZW", 3, "four hex digits"),
        (b"a=1\\\n\\\n  \\u+123", 1, "four hex digits"),
        (rb"a=\uD83D", 1, "surrogate"),
        (b"a" * (MAX_BYTES + 1), 0, "longer than"),
    ],
)
def test_what_cannot_be_read(data: bytes, line: int, why: str) -> None:
    with pytest.raises(FormatError, match=why) as caught:
        read(data)
    assert caught.value.line == line


PIECES = st.lists(
    st.sampled_from(["a", "=", ":", " ", "\\", "\n", "\r", "\r\n", "#", "\\u0041", "\\u", "\\uD83D", "é", "\t", "\f"])
)


@given(st.one_of(st.binary(), PIECES.map(lambda pieces: "".join(pieces).encode())))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(FormatError):
        for key, value in read(data).items():
            (key + value).encode()


@given(st.dictionaries(st.text(alphabet="aé😀 =:#\\\n\t", min_size=1), st.text(alphabet="aé😀 =:#\\\n\t")))
def test_what_was_escaped_is_read_as_it_was(said: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))

    assert read("\n".join(f"{escaped(key)}={escaped(value)}" for key, value in said.items()).encode()) == said
