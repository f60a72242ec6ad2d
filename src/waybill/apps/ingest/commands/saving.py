"""Saving what comes out of storage: into a file, whole and verified or not at all, or to stdout as it comes, a
short one after it was verified.

A file that is there already is written over only with --force.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.desk import Desk
from waybill.cli.problems import Misuse
from waybill.objects import Body
from waybill.rules import Refused

STDOUT = "-"
SHORT = 1024 * 1024  # bytes
FORCE = Annotated[bool, typer.Option("--force", help="Write over a file that is there already.")]


def place(desk: Desk, output: Path | None, force: bool) -> Path | None:
    """The file to be written, which may be; None for stdout."""
    if output is None or str(output) == STDOUT:
        if desk.as_json:
            raise Misuse("With --json the bytes need a place of their own: give -o FILE.")
        return None
    if output.exists() and not output.is_file():
        raise Refused(f"{output} is there already, and is no file: give another name.")
    if output.exists() and not force:
        raise Refused(f"{output} is there already: give another name, or --force to write over it.")
    return output


def save(target: Path | None, portions: Iterator[bytes]) -> None:
    if target is None:
        held: list[bytes] = []  # back, so that a short file is compared before anything of it is let go
        for portion in portions:
            held.append(portion)
            if sum(map(len, held)) > SHORT:
                sys.stdout.buffer.writelines(held)
                held.clear()
        sys.stdout.buffer.writelines(held)
        sys.stdout.buffer.flush()
        return
    beside = target.with_name(f".{target.name[:200]}.part{os.getpid()}")
    try:
        with beside.open("xb") as file:
            for portion in portions:
                file.write(portion)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def verified(body: Body, sha256: str, what: str) -> Iterator[bytes]:
    """The bytes as they come; Refused at their end if they are not those that they should be."""
    digest = hashlib.sha256()
    with body:
        for portion in body:
            digest.update(portion)
            yield portion
    if digest.hexdigest() != sha256:
        raise Refused(f"{what} is damaged: its SHA-256 is {digest.hexdigest()}, not {sha256}.")
