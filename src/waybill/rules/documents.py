"""Documents as bytes: who may write them, and whose error it is when a machine cannot read them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from waybill.machine import Machine, MachineError
from waybill.record import DOCUMENT_ERRORS, Document, DocumentError, Documents, Record, StructType, encode_document

log = logging.getLogger("waybill")


def encode_documents(
    machine: Machine,
    documents: Documents,
    remove: Iterable[StructType] = (),
    *,
    record: Record | None = None,
    writer: str | None = None,
) -> dict[str, bytes | None]:
    """Encode documents, each with its version number; None removes one.

    Raises MachineError for a document that this writer may not write, or that is not of its type, and DocumentError for
    one that would overwrite a newer version.
    """
    encoded: dict[str, bytes | None] = {}
    if not documents and not remove:
        return encoded
    stored = record.documents.raw if record is not None else {}
    if isinstance(documents, Mapping):
        for name, body in documents.items():
            named = _get_document(machine, name, writer)
            if body is not None and named is not None and named.type is not None:
                _check_document(machine, named, body)
            encoded[name] = None if body is None else named.encode(body) if named is not None else encode_document(body)
    else:
        for struct in documents:
            declared = _get_document_of_type(machine, type(struct), writer)
            encoded[declared.name] = declared.encode(struct)
    for each in remove:
        declared = _get_document_of_type(machine, each, writer)
        if declared.name in stored:
            encoded[declared.name] = None
    for name in encoded.keys() & stored.keys():
        overwritten = machine.find_document(name)
        if overwritten is not None and not overwritten.can_overwrite(stored[name]):
            raise DocumentError(
                f"The document {name} of {record and record.ref} is of a newer version than {overwritten.v}, which would be "
                f"lost. Upgrade the workers, then resume it."
            )
    return encoded


def _get_document(machine: Machine, name: str, writer: str | None) -> Document | None:
    declared = machine.find_document(name)
    if declared is None and machine.documents:
        raise MachineError(
            f"{machine.name} declares no document {name}; it has {', '.join(d.name for d in machine.documents)}.",
            code="bad-documents",
        )
    return declared and _check_writer(machine, declared, writer)


def _get_document_of_type(machine: Machine, type: StructType, writer: str | None) -> Document:
    declared = machine.find_document_of_type(type)
    if declared is None:
        types = ", ".join(d.type.__name__ for d in machine.documents if d.type is not None)
        raise MachineError(
            f"{machine.name} declares no document of the type {type.__name__}; it has {types or 'none'}.",
            code="bad-documents",
        )
    return _check_writer(machine, declared, writer)


def _check_writer(machine: Machine, declared: Document, writer: str | None) -> Document:
    if writer is not None and declared.writer != writer:
        raise MachineError(
            f"The document {declared.name} of {machine.name} is written by its {declared.writer}, not by a {writer}.",
            code="bad-documents",
        )
    return declared


def _check_document(machine: Machine, declared: Document, body: Any) -> None:
    try:
        declared.check(body)
    except DOCUMENT_ERRORS as error:
        raise MachineError(
            f"The document {declared.name} is not what a {machine.name} needs: {error}.", code="bad-documents"
        ) from error


@contextmanager
def translate_document_errors(machine: Machine, what: str = "documents", *, is_read: bool = True) -> Iterator[None]:
    """Turn errors of a machine's own functions into MachineError: they read what the user sent, so the error is the
    user's.

    `is_read`: whether they read it at all; where they do not, the error is the program's and passes unchanged.
    """
    try:
        yield
    except (DocumentError, *DOCUMENT_ERRORS) as error:
        if not is_read:
            raise
        log.info("%s are not what a %s needs", what, machine.name, exc_info=error)
        raise MachineError(
            f"These {what} are not what a {machine.name} needs: {type(error).__name__}: {str(error).rstrip('.')}.",
            code="bad-documents",
        ) from error
