"""Documents as bytes: who may write them, and which versions are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waybill.machine import Machine, MachineError
from waybill.record import Record, encode
from waybill.step import Fail


def documents(machine: Machine, docs: Mapping[str, Any], writer: str | None = None) -> dict[str, bytes | None]:
    """The bytes of documents, each with its version number; refuses what the table does not let this writer write."""
    written: dict[str, bytes | None] = {}
    for name, body in docs.items():
        declared = machine.document(name)
        if machine.documents:
            if declared is None:
                raise MachineError(f"{machine.name} declares no document {name}; it has {', '.join(d.name for d in machine.documents)}.")
            if writer is not None and declared.writer != writer:
                raise MachineError(f"The document {name} of {machine.name} is written by its {declared.writer}, not by a {writer}.")
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
