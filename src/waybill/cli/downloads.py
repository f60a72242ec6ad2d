"""Saves what a command fetches: to a file, complete and verified or not at all; or to stdout as it arrives.

Of what goes to stdout only the first bytes are buffered, so that a short file is verified before any of it is written.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.command_context import CommandContext
from waybill.errors import InputError
from waybill.objects import ObjectBody
from waybill.rules import ActionRefused

STDOUT = "-"
BUFFERED_SIZE = 1024 * 1024  # bytes kept back from stdout until they are verified
FORCE = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def resolve_output(context: CommandContext, output: Path | None, force: bool) -> Path | None:
    """Return the file to write, after checking that it may be written; None means stdout."""
    if output is None or str(output) == STDOUT:
        if context.as_json:
            raise InputError("With --json the bytes cannot go to stdout: give -o FILE.", code="usage")
        return None
    if output.exists() and not output.is_file():
        raise ActionRefused(f"{output} exists and is not a file: give another name.")
    if output.exists() and not force:
        raise ActionRefused(f"{output} exists: give another name, or --force to overwrite it.")
    return output


def save_chunks(target: Path | None, chunks: Iterator[bytes]) -> None:
    if target is None:
        buffered: list[bytes] = []
        for chunk in chunks:
            buffered.append(chunk)
            if sum(map(len, buffered)) > BUFFERED_SIZE:
                sys.stdout.buffer.writelines(buffered)
                buffered.clear()
        sys.stdout.buffer.writelines(buffered)
        sys.stdout.buffer.flush()
        return
    partial = target.with_name(f".{target.name[:200]}.part{os.getpid()}")
    try:
        with partial.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def verify_chunks(body: ObjectBody, sha256: str, what: str) -> Iterator[bytes]:
    """Yield the bytes as they arrive; raise ActionRefused at the end if the digest differs."""
    digest = hashlib.sha256()
    with body:
        for chunk in body:
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != sha256:
        raise ActionRefused(f"{what} is damaged: its SHA-256 is {digest.hexdigest()}, not {sha256}.")
