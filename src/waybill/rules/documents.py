"""Documents as bytes: who may write them, which versions are read, and whose error it is when a machine cannot read
them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from waybill.machine import Machine, MachineError
from waybill.record import Record, encode_document
from waybill.rules.errors import UnknownKind
from waybill.step import Fail

log = logging.getLogger("waybill")


def encode_documents(
    machine: Machine, documents: Mapping[str, Any], writer: str | None = None
) -> dict[str, bytes | None]:
    """Encode documents, each with its version number. Raises MachineError for one that this writer may not write."""
    encoded: dict[str, bytes | None] = {}
    for name, body in documents.items():
        declared = machine.find_document(name)
        if machine.documents:
            if declared is None:
                raise MachineError(
                    f"{machine.name} declares no document {name}; it has {', '.join(d.name for d in machine.documents)}."
                )
            if writer is not None and declared.writer != writer:
                raise MachineError(
                    f"The document {name} of {machine.name} is written by its {declared.writer}, not by a {writer}."
                )
        if declared is not None and declared.v is not None and isinstance(body, dict) and "v" not in body:
            body = {"v": declared.v, **body}
        encoded[name] = None if body is None else encode_document(body)
    return encoded


def read_document(machine: Machine, record: Record, name: str) -> Any:
    """Return a document of the declared version or the one before. The reader must keep fields that it does not know."""
    body, declared = record.documents[name], machine.find_document(name)
    if declared is not None and declared.v is not None and isinstance(body, dict):
        version = body.get("v", declared.v)
        if version not in (declared.v, declared.v - 1):
            raise Fail(
                f"The document {name} of {record.ref} is of version {version}; this release reads {declared.v} and {declared.v - 1}. "
                f"Upgrade the workers."
            )
    return body


@contextmanager
def translate_document_errors(machine: Machine, what: str = "documents", *, is_read: bool = True) -> Iterator[None]:
    """Turn errors of a machine's own functions into MachineError: they read what the user sent, so the error is the
    user's.

    `is_read`: whether they read it at all; where they do not, the error is the program's and passes unchanged.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if not is_read or isinstance(error, UnknownKind):
            raise
        log.info("%s are not what a %s needs", what, machine.name, exc_info=error)
        raise MachineError(
            f"These {what} are not what a {machine.name} needs: {type(error).__name__}: {error}."
        ) from error
