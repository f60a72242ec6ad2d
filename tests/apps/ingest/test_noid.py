"""NOID: check characters of public ARKs, counting by template, and an order that nobody guesses."""

import itertools
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.identifiers.noid import (
    ALPHABET,
    capacity_of,
    find_ark_fault,
    has_valid_check_character,
    is_ark,
    mint,
)
from waybill.errors import InputError

# Published by others: the example of the NOID paper, and ARKs that EZID has minted.
PUBLIC = [
    "ark:/13030/xf93gt2q",
    "ark:/99999/fk42z13f2",
    "ark:/99999/fk4rx9d523",
    "ark:/99999/fk43f4wd4v",
    "ark:/99999/fk4tq65d6k",
    "ark:/13030/m5qv8jks",
    "ark:/13030/j2rn30xp",
]


def _check_character(name: str) -> str:
    """The rule once more, in other words: values of 0 to 28 and nothing for the rest, places from 1, the remainder
    of 29.
    """
    values = {**{str(n): n for n in range(10)}, **dict(zip("bcdfghjkmnpqrstvwxz", itertools.count(10), strict=False))}
    total = 0
    for index in range(len(name)):
        total += (index + 1) * values.get(name[index], 0)
    return {value: letter for letter, value in values.items()}[total % 29]


@pytest.mark.parametrize("ark", PUBLIC)
def test_public_arks_are_right(ark: str) -> None:
    assert has_valid_check_character(ark)
    assert is_ark(ark)
    assert find_ark_fault(ark) is None


@pytest.mark.parametrize("ark", PUBLIC)
def test_one_wrong_character_is_found(ark: str) -> None:
    for at in range(len("ark:/13030/x"), len(ark)):
        for letter in ALPHABET:
            if letter != ark[at]:
                assert not has_valid_check_character(ark[:at] + letter + ark[at + 1 :])


@pytest.mark.parametrize("ark", PUBLIC)
def test_two_exchanged_neighbours_are_found(ark: str) -> None:
    for at in range(len("ark:/13030/x"), len(ark) - 1):
        exchanged = ark[:at] + ark[at + 1] + ark[at] + ark[at + 2 :]
        assert exchanged == ark or not has_valid_check_character(exchanged)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ark:/",
        "ark:/13030/",
        "ark:13030/xf93gt2q",
        "ark:/13030/xf93gt2q\n",
        "doi:10.1/x",
        "ark:/13030/Xf93gt2q",
        "ark:/१/ab",
    ],
)
def test_other_texts_are_no_arks(text: str) -> None:
    assert not has_valid_check_character(text)
    assert not is_ark(text)
    assert str(find_ark_fault(text)).endswith("Write it as ark:/99999/fk4abc.")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ark:/99999/x", "its name 'x' must be 2 to 127 characters"),
        ("ark:/99999/Fk4", "in lower case"),
        ("ark:/abc/fk4", "after ark:/ come a number and a slash"),
        ("ark:/99999", "its name '' must be"),
        ("doi:10.1/x", "an ARK begins with ark:/"),
    ],
)
def test_the_fault_of_a_text_that_is_no_ark_is_named(text: str, why: str) -> None:
    assert why in str(find_ark_fault(text))


def test_counting() -> None:
    assert mint(0, "13030", "xf", "eddk") == "ark:/13030/xf000" + _check_character("13030/xf000")
    assert [mint(n, "99999", "fk4", "ed") for n in (0, 9, 10, 289)] == [
        f"ark:/99999/fk4{x}" for x in ("00", "09", "10", "z9")
    ]
    assert capacity_of("ed") == 290
    assert capacity_of("eeddeeddk") == 29**4 * 10**4


def test_counting_ends() -> None:
    with pytest.raises(InputError, match="it ends at 290"):
        mint(290, "99999", "fk4", "edk")
    with pytest.raises(InputError):
        mint(-1, "99999", "fk4", "zedk")


def test_counting_without_end() -> None:
    assert capacity_of("zed") is None
    names = [mint(n, "99999", "fk4", "zed") for n in (289, 290, 291, 290 * 29)]
    assert names == [f"ark:/99999/fk4{x}" for x in ("z9", "100", "101", "1000")]


@pytest.mark.parametrize("template", ["rdd", "red", "rd", "re", "reek"])
def test_the_shuffled_order_has_each_name_once(template: str) -> None:
    count = capacity_of(template)
    assert count is not None
    names = [mint(n, "99999", "fk4", template) for n in range(count)]
    counted = [mint(n, "99999", "fk4", template.removeprefix("r")) for n in range(count)]
    assert sorted(names) == sorted(counted)
    assert names != counted
    assert names != [mint(n, "99999", "b2", template).replace("b2", "fk4") for n in range(count)]


@given(st.integers(0, 29**4 * 10**4 - 1), st.sampled_from(["eeddeeddk", "reeddeeddk", "seeddeeddk", "zeeddeeddk"]))
def test_what_is_minted_is_right(number: int, template: str) -> None:
    ark = mint(number, "99999", "fk4", template)
    assert has_valid_check_character(ark)
    assert ark[-1] == _check_character(ark.removeprefix("ark:/")[:-1])
    assert len(ark) == len("ark:/99999/fk4eeddeeddk")


def test_no_two_of_many_shuffled_numbers_are_equal() -> None:
    numbers = Random(4).sample(range(29**4 * 10**4), 2000)
    assert len({mint(number, "99999", "fk4", "reeddeeddk") for number in numbers}) == 2000


@pytest.mark.parametrize("template", ["", "k", "ke", "x", "eekk", "rk", "zr", "e" * 65])
def test_other_texts_are_no_templates(template: str) -> None:
    with pytest.raises(InputError, match="is not a template"):
        mint(0, "99999", "fk4", template)


@pytest.mark.parametrize(
    ("naan", "shoulder"),
    [("9999", "fk4"), ("99999/", "fk4"), ("99999", ""), ("99999", "4k"), ("99999", "FK4"), ("", "")],
)
def test_other_texts_are_no_naans_or_shoulders(naan: str, shoulder: str) -> None:
    with pytest.raises(InputError):
        mint(0, naan, shoulder, "edk")


@given(st.text(), st.text(), st.text(), st.integers())
def test_anything_is_minted_or_refused(naan: str, shoulder: str, template: str, number: int) -> None:
    with suppress(InputError):
        assert mint(number, naan, shoulder, template).startswith("ark:/")
    assert has_valid_check_character(naan) in (True, False)
