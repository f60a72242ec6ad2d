"""NOID: names for ARKs, made by counting, with a check character that finds a wrong or two exchanged characters.

    ark:/99999/fk4 + 2z13f + 2
    scheme, NAAN and shoulder; the number, written by the template; the check character

A template has one letter for each character: `d` a digit, `e` one of the 29 of the alphabet below (no vowels, so that
no words appear, and no `l`), `k` at its end the check character. What is before it says the order: nothing or `s`, by
counting; `r`, each number once in an order that nobody guesses; `z`, by counting and without end (the first character
is repeated as often as needed).

Everything here is a function of its arguments: whoever mints keeps the counter, and writes the name down before using
it. The order of `r` depends on NAAN, shoulder and template alone; it is not the order in which the `noid` program would
mint.
"""

from __future__ import annotations

import hashlib
import re

from waybill.apps.ingest import names

ALPHABET = "0123456789bcdfghjkmnpqrstvwxz"

_VALUE = {letter: value for value, letter in enumerate(ALPHABET)}
_SIZE = {"d": 10, "e": 29}
_TEMPLATE = re.compile(r"([rsz]?)([de]+)(k?)")
_NAAN = re.compile(r"[0-9]{5,9}")
_SHOULDER = re.compile(r"[a-z][a-z0-9]{0,31}")
_ARK = re.compile(r"ark:/([0-9]{1,16}/[a-z][a-z0-9]{1,126})")
_ROUNDS = 6


class NoidError(Exception):
    """This cannot be minted."""

    permanent = True


def is_ark(text: str) -> bool:
    """Whether this is an ARK as manifests and requests may hold it: `ark:/`, a number, a slash, a letter, then
    letters and digits.
    """
    return _ARK.fullmatch(text) is not None


def fault_of_ark(text: str) -> str | None:
    """Why this is none, as a sentence; None if it is one."""
    if is_ark(text):
        return None
    naan, _, name = text.removeprefix("ark:/").partition("/")
    if not text.startswith("ark:/"):
        why = "an ARK begins with ark:/"
    elif not re.fullmatch("[0-9]{1,16}", naan):
        why = "after ark:/ come a number and a slash"
    else:
        why = f"its name {names.shown(name)} must be 2 to 127 characters, a letter first, then letters and digits, a to z in lower case"
    return f"{names.shown(text)} is not an ARK: {why}. Write it as ark:/99999/fk4abc."


def mint(number: int, naan: str, shoulder: str, template: str = "eeddeeddk") -> str:
    """The ARK with this number; a different one for each number from 0 up to `capacity`."""
    order, letters, check_letter = _parts(template)
    if not _NAAN.fullmatch(naan):
        raise NoidError(f"{naan[:40]!r} is not a NAAN: it has five digits, as 99999 does.")
    if not _SHOULDER.fullmatch(shoulder):
        raise NoidError(
            f"{shoulder[:40]!r} is not a shoulder: it begins with a letter and has letters and digits, as fk4 does."
        )
    most = capacity(template)
    if number < 0 or (most is not None and number >= most):
        raise NoidError(
            f"There is no ARK number {number} of {naan}/{shoulder} with the template {template}: it ends at {most}."
        )
    if order == "r" and most is not None:
        number = _shuffled(number, most, f"{naan}/{shoulder}/{template}")
    name = f"{naan}/{shoulder}{_written(number, letters, endless=order == 'z')}"
    return f"ark:/{name}{check_character(name) if check_letter else ''}"


def capacity(template: str) -> int | None:
    """How many names the template can make; None if there is no end."""
    order, letters, _ = _parts(template)
    if order == "z":
        return None
    count = 1
    for letter in letters:
        count *= _SIZE[letter]
    return count


def drawn(request: str, template: str, turn: int = 0) -> int:
    """A number for a request's name, always the same for the same name and turn: the next turn is for when it was
    taken.
    """
    most = capacity(template)
    if most is None:
        raise NoidError(f"A number cannot be drawn for the template {template}, which has no end.")
    return int.from_bytes(hashlib.sha256(f"{turn} {request}".encode("utf-8", "surrogatepass")).digest()) % most


def check_character(name: str) -> str:
    """The check character of `naan/name`: each character's value times its place from 1, the sum modulo 29."""
    return ALPHABET[sum(place * _VALUE.get(letter, 0) for place, letter in enumerate(name, start=1)) % len(ALPHABET)]


def check(ark: str) -> bool:
    """Whether this is an ARK whose last character is right; ARKs that were minted without a check character are not."""
    found = _ARK.fullmatch(ark)
    if found is None:
        return False
    return check_character(found[1][:-1]) == found[1][-1]


def _parts(template: str) -> tuple[str, str, str]:
    found = _TEMPLATE.fullmatch(template)
    if found is None or len(template) > 64:
        raise NoidError(
            f"{template[:80]!r} is not a template: write d and e, then perhaps k; before them perhaps r, s or z."
        )
    return found[1], found[2], found[3]


def _written(number: int, letters: str, *, endless: bool) -> str:
    written: list[str] = []
    for letter in reversed(letters):
        number, value = divmod(number, _SIZE[letter])
        written.append(ALPHABET[value])
    while endless and number:
        number, value = divmod(number, _SIZE[letters[0]])
        written.append(ALPHABET[value])
    return "".join(reversed(written))


def _shuffled(number: int, most: int, key: str) -> int:
    """Another number below `most`, a different one for each: a Feistel network, walked until it comes back below
    `most`.
    """
    half = max(1, ((most - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = number >> half, number & mask
        for turn in range(_ROUNDS):
            mixed = hashlib.blake2b(f"{key} {turn} {right}".encode(), digest_size=16).digest()
            left, right = right, left ^ (int.from_bytes(mixed) & mask)
        number = (left << half) | right
        if number < most:
            return number
