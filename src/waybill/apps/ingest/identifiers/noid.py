"""NOID: names for ARKs, made by counting, with a check character that detects a wrong or two swapped characters.

    ark:/99999/fk4 + 2z13f + 2
    scheme, NAAN and shoulder; the number, written by the template; the check character

A template has one letter for each character: `d` a digit, `e` one of the 29 of the alphabet below (no vowels, so that
no words appear, and no `l`), `k` at its end the check character. A letter before them gives the order: none or `s`, by
counting; `r`, each number once in an order that is hard to guess; `z`, by counting without end (the first character is
repeated as often as needed).

Everything here is a function of its arguments: the caller keeps the counter, and saves the name before using it. The
order of `r` depends on NAAN, shoulder and template alone; it is not the order in which the `noid` program would mint.
"""

from __future__ import annotations

import hashlib
import re

from waybill.errors import InputError
from waybill.files import names

ALPHABET = "0123456789bcdfghjkmnpqrstvwxz"

_VALUES = {letter: value for value, letter in enumerate(ALPHABET)}
_SIZES = {"d": 10, "e": 29}
_TEMPLATE = re.compile(r"([rsz]?)([de]+)(k?)")
_NAAN = re.compile(r"[0-9]{5,9}")
_SHOULDER = re.compile(r"[a-z][a-z0-9]{0,31}")
_ARK = re.compile(r"ark:/([0-9]{1,16}/[a-z][a-z0-9]{1,126})")
_ROUNDS = 6


def is_ark(text: str) -> bool:
    """Whether this is an ARK as manifests and requests may hold it: `ark:/`, a number, a slash, a letter, then
    letters and digits.
    """
    return _ARK.fullmatch(text) is not None


def find_ark_fault(text: str) -> str | None:
    """Why a text is not an ARK, as a sentence; None if it is one."""
    if is_ark(text):
        return None
    naan, _, name = text.removeprefix("ark:/").partition("/")
    if not text.startswith("ark:/"):
        why = "an ARK begins with ark:/"
    elif not re.fullmatch("[0-9]{1,16}", naan):
        why = "after ark:/ come a number and a slash"
    else:
        why = (
            f"its name {names.quote_text(name)} must be 2 to 127 characters, a letter first, then letters and digits, "
            "a to z in lower case"
        )
    return f"{names.quote_text(text)} is not an ARK: {why}. Write it as ark:/99999/fk4abc."


def mint(number: int, naan: str, shoulder: str, template: str = "eeddeeddk") -> str:
    """The ARK with this number; a different one for each number from 0 up to `capacity`."""
    order, letters, check_letter = _parse_template(template)
    if not _NAAN.fullmatch(naan):
        raise InputError(f"{naan[:40]!r} is not a NAAN: it has five digits, as 99999 does.")
    if not _SHOULDER.fullmatch(shoulder):
        raise InputError(
            f"{shoulder[:40]!r} is not a shoulder: it begins with a letter and has letters and digits, as fk4 does."
        )
    limit = capacity_of(template)
    if number < 0 or (limit is not None and number >= limit):
        raise InputError(
            f"There is no ARK number {number} of {naan}/{shoulder} with the template {template}: it ends at {limit}."
        )
    if order == "r" and limit is not None:
        number = _shuffle_number(number, limit, f"{naan}/{shoulder}/{template}")
    name = f"{naan}/{shoulder}{_write_number(number, letters, endless=order == 'z')}"
    return f"ark:/{name}{compute_check_character(name) if check_letter else ''}"


def capacity_of(template: str) -> int | None:
    """The number of names that the template can make; None if it has no end."""
    order, letters, _ = _parse_template(template)
    if order == "z":
        return None
    count = 1
    for letter in letters:
        count *= _SIZES[letter]
    return count


def compute_check_character(name: str) -> str:
    """The check character of `naan/name`: each character's value times its place from 1, the sum modulo 29."""
    return ALPHABET[sum(place * _VALUES.get(letter, 0) for place, letter in enumerate(name, start=1)) % len(ALPHABET)]


def has_valid_check_character(ark: str) -> bool:
    """Whether an ARK ends with its check character; ARKs that were minted without one do not."""
    found = _ARK.fullmatch(ark)
    if found is None:
        return False
    return compute_check_character(found[1][:-1]) == found[1][-1]


def _parse_template(template: str) -> tuple[str, str, str]:
    found = _TEMPLATE.fullmatch(template)
    if found is None or len(template) > 64:
        raise InputError(
            f"{template[:80]!r} is not a template: write d and e, then perhaps k; before them perhaps r, s or z."
        )
    return found[1], found[2], found[3]


def _write_number(number: int, letters: str, *, endless: bool) -> str:
    written: list[str] = []
    for letter in reversed(letters):
        number, value = divmod(number, _SIZES[letter])
        written.append(ALPHABET[value])
    while endless and number:
        number, value = divmod(number, _SIZES[letters[0]])
        written.append(ALPHABET[value])
    return "".join(reversed(written))


def _shuffle_number(number: int, limit: int, key: str) -> int:
    """Another number below `limit`, a different one for each: a Feistel network, applied until the result is below
    `limit`.
    """
    half = max(1, ((limit - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = number >> half, number & mask
        for round in range(_ROUNDS):
            mixed = hashlib.blake2b(f"{key} {round} {right}".encode(), digest_size=16).digest()
            left, right = right, left ^ (int.from_bytes(mixed) & mask)
        number = (left << half) | right
        if number < limit:
            return number
