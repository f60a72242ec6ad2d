"""Uploads in pieces, for large files and bad connections: what has come stays.

    POST   /api/v1/ingest/uploads                       announces a file; returns the token of the upload and the size of its pieces
    PUT    /api/v1/ingest/uploads/<upload>?offset=N     one piece; returns where the next one begins
    GET    /api/v1/ingest/uploads/<upload>              how much has come: go on there after a lost connection
    DELETE /api/v1/ingest/uploads/<upload>              gives it up
    POST   /api/v1/ingest/batches {"upload": ...}       submits it, when all of it has come

The token names the upload and is signed for whoever announced it: it works for nobody else, and needs no record.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from waybill.apps.ingest import service
from waybill.apps.ingest.routes.context import PREFIX, IngestRequest, IngestRequestContext
from waybill.apps.ingest.routes.schemas import NewUpload, UploadView
from waybill.errors import InputError, NotFound
from waybill.files.piecewise_uploads import PiecewiseUpload
from waybill.http.errors import WRITE_STATUSES, HttpProblem, describe_responses
from waybill.http.json_io import to_json_response
from waybill.http.request_context import declare_role, make_router
from waybill.http.uploads import UploadSlots
from waybill.signed_urls import UrlSigner

UPLOAD_DAYS = 30  # days in which an upload must be submitted
SIGNER_PURPOSE = "ingest-upload"
UploadToken = Annotated[str, Path(max_length=4000, description="The token that announcing the file returned.")]
DIGEST_HEADER = "The SHA-256 of the piece, `sha-256=:BASE64:` (RFC 9530); a piece with another one is refused."


def build_upload_router(upload_slots: UploadSlots) -> APIRouter:
    router = make_router(PREFIX, "ingest batches")
    piece = {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }

    @router.post(
        "/uploads",
        summary="Announce a file that is uploaded in pieces",
        status_code=201,
        response_model=UploadView,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("submitter", somewhere=True),
    )
    def announce(context: IngestRequest, body: NewUpload) -> Response:
        """Nothing is submitted yet; pieces that nobody goes on with for a day are removed."""
        batch_id = body.batch_id or service.new_batch_id()
        upload = service.piecewise_uploads_of(context.resources, batch_id).start(batch_id, body.filename, body.size)
        return to_json_response(_to_view(context, upload, 0), 201)

    @router.put(
        "/uploads/{upload}",
        summary="Upload a piece of a file",
        response_model=UploadView,
        responses=describe_responses(*WRITE_STATUSES, 408, 410),
        **declare_role("submitter", somewhere=True, requestBody=piece),
    )
    async def put_piece(
        context: IngestRequest,
        request: Request,
        upload: UploadToken,
        offset: Annotated[
            int, Query(ge=0, le=2**63 - 1, description="Where the piece begins: a multiple of `piece_size`.")
        ],
        content_digest: Annotated[str | None, Header(max_length=200, description=DIGEST_HEADER)] = None,
    ) -> Response:
        """Safe to repeat: where it is not known whether a piece came, send it again."""
        known = await run_in_threadpool(read_token, context, upload)

        def store(chunks: Iterator[bytes]) -> int:
            data = _read_piece(chunks, known.piece_size)
            if content_digest is not None:
                _check_digest(data, content_digest)
            return service.piecewise_uploads_of(context.resources).put_piece(known, offset, data)

        return to_json_response(_to_view(context, known, await upload_slots.take(request, store), token=upload))

    @router.get(
        "/uploads/{upload}",
        summary="How much of a file has come",
        response_model=UploadView,
        responses=describe_responses(410),
        **declare_role("submitter", somewhere=True),
    )
    def show_upload(context: IngestRequest, upload: UploadToken) -> Response:
        known = read_token(context, upload)
        offset = service.piecewise_uploads_of(context.resources).find_offset(known)
        return to_json_response(_to_view(context, known, offset, token=upload))

    @router.delete(
        "/uploads/{upload}",
        summary="Give an upload up",
        status_code=204,
        response_class=Response,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("submitter", somewhere=True),
    )
    def give_up(context: IngestRequest, upload: UploadToken) -> Response:
        service.piecewise_uploads_of(context.resources).abandon(read_token(context, upload))
        return Response(status_code=204)

    return router


def make_token(context: IngestRequestContext, upload: PiecewiseUpload) -> str:
    with context.open_engine() as engine:
        signer, now = UrlSigner.from_store(engine.store, SIGNER_PURPOSE), engine.store.now()
    body = base64.urlsafe_b64encode(msgspec.json.encode(upload)).rstrip(b"=").decode()
    return f"{body}.{signer.sign_text([context.who, body], int(now) + UPLOAD_DAYS * 86400)}"


def read_token(context: IngestRequestContext, token: str) -> PiecewiseUpload:
    """The upload of a token; raises NotFound for one that is not ours, not this caller's, or too old."""
    body, _, signature = token.partition(".")
    with context.open_engine() as engine:
        signer, now = UrlSigner.from_store(engine.store, SIGNER_PURPOSE), engine.store.now()
    if not signer.is_signed([context.who, body], signature, now):
        raise NotFound(
            "This is not an upload of yours: it is misspelt, of somebody else, or too old. Announce it again."
        )
    return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=PiecewiseUpload)


def _to_view(
    context: IngestRequestContext, upload: PiecewiseUpload, offset: int, *, token: str = ""
) -> dict[str, str | int]:
    return {
        "upload": token or make_token(context, upload),
        "batch_id": upload.key,
        "filename": upload.filename,
        "size": upload.size,
        "piece_size": upload.piece_size,
        "offset": offset,
    }


def _read_piece(chunks: Iterator[bytes], max_bytes: int) -> bytes:
    piece = bytearray()
    for chunk in chunks:
        piece += chunk
        if len(piece) > max_bytes:
            raise InputError(f"The piece has more than {max_bytes:,} bytes.", code="too-large")
    return bytes(piece)


def _check_digest(data: bytes, header: str) -> None:
    algorithm, _, value = header.partition("=")
    if algorithm.strip().lower() != "sha-256" or not (value.startswith(":") and value.endswith(":")):
        raise HttpProblem(
            "bad-request", "The header Content-Digest is not `sha-256=:BASE64:`.", "Correct it, or leave it out."
        )
    try:
        expected = base64.b64decode(value[1:-1], validate=True)
    except binascii.Error:
        expected = b""
    if expected != hashlib.sha256(data).digest():
        raise InputError("The piece was damaged on its way: its SHA-256 is another one. Send it again.")
