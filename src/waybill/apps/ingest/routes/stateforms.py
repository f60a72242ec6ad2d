"""Merritt's state documents, as XML or JSON: what its clients look for in an answer.

    <bat:batchState xmlns:bat="http://uc3.cdlib.org/ontology/mrt/ingest/batch">
      <bat:batchID>bid-...</bat:batchID> <bat:jobStates/> <bat:batchStatus>QUEUED</bat:batchStatus> ...

The JSON form has the same names, prefix and all, one level deep. A refusal has a status above 399 and is an
exc:exceptionState, whose exc:statusDescription and exc:error clients show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

import msgspec
from fastapi.responses import Response

from waybill.apps.ingest import service

Form = Literal["xml", "json"]
Pairs = Iterable[tuple[str, str]]

_UNFIT = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_SPACE = "http://uc3.cdlib.org/ontology/mrt/"
_BATCH, _SERVICE, _EXCEPTION = (
    ("bat", f"{_SPACE}ingest/batch"),
    ("ing", f"{_SPACE}ingest/service"),
    ("exc", f"{_SPACE}core/exception"),
)


def batch(form: Form, accepted: service.Accepted, warnings: Iterable[str]) -> Response:
    """A batch that was taken. Its jobs are made later: nothing is known of them yet."""
    said = accepted.submission
    pairs = [
        ("batchID", said.batch_id),
        ("jobStates", ""),
        ("batchStatus", "QUEUED"),
        ("userAgent", said.submitter),
        ("submissionDate", said.submitted),
        ("updateFlag", "true" if said.update else "false"),
        ("queueID", accepted.batch.id),
        ("state", accepted.batch.state),
        *(("warning", each) for each in warnings),
    ]
    return _answer(form, _BATCH, "batchState", pairs)


def service_state(form: Form, marks: Iterable[service.Mark]) -> Response:
    """Whether deposits are taken on, and for which collections they are not."""
    marks = list(marks)
    frozen = any(mark.sort == "queue" and mark.name == "ingest" for mark in marks)
    held = ",".join(mark.name for mark in marks if mark.sort == "collection")
    pairs = [
        ("name", "Waybill ingest"),
        ("submissionState", "frozen" if frozen else "thawed"),
        ("collectionSubmissionState", held),
    ]
    return _answer(form, _SERVICE, "ingestServiceState", pairs)


def help(form: Form, fields: Mapping[str, str]) -> Response:
    return _answer(form, _SERVICE, "ingestHelp", [("field", f"{name}: {words}") for name, words in fields.items()])


def refusal(form: Form, status: int, message: str, hint: str, headers: Mapping[str, str]) -> Response:
    pairs = [("status", str(status)), ("statusDescription", message), ("error", hint or message)]
    return _answer(form, _EXCEPTION, "exceptionState", pairs, status, headers)


def _answer(
    form: Form,
    space: tuple[str, str],
    name: str,
    pairs: Pairs,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body, kind = (
        (_json(space, name, pairs), "application/json")
        if form == "json"
        else (_xml(space, name, pairs), "application/xml")
    )
    return Response(body, status, dict(headers or {}), media_type=kind)


def _json(space: tuple[str, str], name: str, pairs: Pairs) -> bytes:
    """A name that is there more than once is a list."""
    prefix, uri = space
    inside: dict[str, str | list[str]] = {f"xmlns:{prefix}": uri}
    for key, value in pairs:
        field = f"{prefix}:{key}"
        before = inside.get(field)
        clean = plain(value)
        inside[field] = clean if before is None else [*before, clean] if isinstance(before, list) else [before, clean]
    return msgspec.json.encode({f"{prefix}:{name}": inside})


def _xml(space: tuple[str, str], name: str, pairs: Pairs) -> bytes:
    prefix, uri = space
    lines = [
        f"  <{prefix}:{key}>{escape(plain(value))}</{prefix}:{key}>" if value else f"  <{prefix}:{key}/>"
        for key, value in pairs
    ]
    root = f"{prefix}:{name}"
    text = "\n".join([f"<{root} xmlns:{prefix}={quoteattr(uri)}>", *lines, f"</{root}>"])
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def plain(text: str) -> str:
    """Without what XML cannot hold."""
    return _UNFIT.sub("?", text)
