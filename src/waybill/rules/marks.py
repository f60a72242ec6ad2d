"""The names of marks: paths of a few words, such as queue/parcel or carrier/mule, that every store can keep."""

from __future__ import annotations

from waybill.rules.refusals import Refused

LONGEST_MARK = 200  # characters


class BadMark(Refused):
    """This is no name of a mark."""


def check_mark(name: str) -> None:
    """A mark is a node on ZooKeeper, where not every text can be one; what is refused there is refused everywhere."""
    if not 1 <= len(name) <= LONGEST_MARK or not name.isprintable() or name != name.strip():
        raise BadMark(f"A mark's name is 1 to {LONGEST_MARK} printable characters without a blank at either end, such as carrier/mule.")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise BadMark(f"{name!r} is no name of a mark: its parts are parted by single slashes, such as carrier/mule.")
