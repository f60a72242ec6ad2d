"""Names of files: which are taken, and which cannot stand beside each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.files.names import FileNames, find_fault, quote_text


@pytest.mark.parametrize(
    "name",
    ["a", "a/b/c.txt", "a b.txt", "Grüße.txt", "ملف.txt", "😀/🐘.jpg", "..a", "a..", "a|b", "x" * 255, "mrt-erc.txt"],
)
def test_names_that_are_taken(name: str) -> None:
    assert find_fault(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("/etc/passwd", "begins with a slash"),
        ("../x", "'..'"),
        ("a/../../x", "'..'"),
        ("a/./x", "'.'"),
        ("a//x", "two in a row"),
        ("a/", "ends with a slash"),
        ("a\\b", "position 1"),
        ("a\nb", "position 1"),
        ("a\x00b", "position 1"),
        ("\ud83d", "surrogate"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
        ("d/" * 500 + "x", "too long"),
        (".partial/x", "unfinished"),
    ],
)
def test_names_that_are_refused(name: str, why: str) -> None:
    assert why in (find_fault(name) or "")


def test_a_name_is_taken_once() -> None:
    names = FileNames()
    assert names.add_file("a/b") is None
    assert "twice" in (names.add_file("a/b") or "")
    assert len(names) == 1


def test_composed_and_decomposed_are_the_same_name() -> None:
    names = FileNames()
    assert names.add_file("caf\u00e9") is None
    assert "separate accents" in (names.add_file("cafe\u0301") or "")


def test_a_file_is_no_folder() -> None:
    names = FileNames()
    assert names.add_file("a/b/c") is None
    assert "folder of 'a/b/c'" in (names.add_file("a/b") or "")
    assert "which is a file" in (names.add_file("a/b/c/d") or "")
    assert names.add_file("a/bb") is None


def test_case_matters_unless_the_disk_ignores_it() -> None:
    names = FileNames()
    assert names.add_file("Readme") is None
    assert names.add_file("README") is None
    careless = FileNames(ignoring_case=True)
    assert careless.add_file("Readme") is None
    assert "upper and lower case" in (careless.add_file("README") or "")


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_has_a_fault_or_none_and_can_be_shown(name: str) -> None:
    found = find_fault(name)
    assert found is None or found.endswith(".")
    assert quote_text(name).isprintable()
    if found is None:
        assert FileNames().add_file(name) is None
