"""Words that somebody outside gives to a record: whose it is, and the key of a request.

The same on the command line and over HTTP.
"""

from __future__ import annotations

import re

LONGEST_NAME = 200  # characters
REQUEST = r"^[\x21-\x7e]{1,200}$"


def printable(text: str) -> str:
    """The text, or ValueError."""
    if not text.isprintable():
        raise ValueError("it holds a character that cannot be printed, such as a line break or a control character")
    return text


def owner(text: str) -> str:
    if not 1 <= len(text) <= LONGEST_NAME:
        raise ValueError(f"it has 1 to {LONGEST_NAME} characters")
    return printable(text)


def request(text: str) -> str:
    if not re.fullmatch(REQUEST, text):
        raise ValueError("it has 1 to 200 printable ASCII characters, and no blank")
    return text
