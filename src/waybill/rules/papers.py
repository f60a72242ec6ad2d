"""Documents as bytes: who may write them, which versions are read, and whose mistake it is when a machine cannot
read them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from waybill.machine import Machine, MachineError
from waybill.record import Record, encode
from waybill.rules.machines import UnknownKind
from waybill.step import Fail

log = logging.getLogger("waybill")


def documents(machine: Machine, docs: Mapping[str, Any], writer: str | None = None) -> dict[str, bytes | None]:
    """The bytes of documents, each with its version number; refuses what the table does not let this writer write."""
    written: dict[str, bytes | None] = {}
    for name, body in docs.items():
        declared = machine.document(name)
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
        written[name] = None if body is None else encode(body)
    return written


def read(machine: Machine, record: Record, name: str) -> Any:
    """A document, of the version that the table declares or the one before; unknown fields are the reader's to keep."""
    body, declared = record.docs[name], machine.document(name)
    if declared is not None and declared.v is not None and isinstance(body, dict):
        written = body.get("v", declared.v)
        if written not in (declared.v, declared.v - 1):
            raise Fail(
                f"The document {name} of {record.ref} is of version {written}; this release reads {declared.v} and {declared.v - 1}. "
                f"Upgrade the workers."
            )
    return body


@contextmanager
def users_documents(machine: Machine, what: str = "documents", *, read: bool = True) -> Iterator[None]:
    """A machine's own functions look into what the user sent and may stumble over it: that is the user's mistake,
    not the program's.

    `read`: whether they look at all; where they do not, it is the program's.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if not read or isinstance(error, UnknownKind):
            raise
        log.info("%s that a %s cannot take", what, machine.name, exc_info=error)
        raise MachineError(
            f"These {what} are not what a {machine.name} needs: {type(error).__name__}: {error}."
        ) from error
