"""The inventory over HTTP: search and browse objects, versions and files, and download stored content.

    GET /api/v1/ingest/objects                                    a page of objects; by ARK, owner, local id, collection, words
    GET /api/v1/ingest/objects/<ark>                              one object
    GET /api/v1/ingest/objects/<ark>/versions                     its versions
    GET /api/v1/ingest/objects/<ark>/versions/<n>                 one version; 0: the newest
    GET /api/v1/ingest/objects/<ark>/versions/<n>/manifest        its storage manifest as stored; also by a signed URL
    GET /api/v1/ingest/objects/<ark>/versions/<n>/files           its files
    GET /api/v1/ingest/objects/<ark>/versions/<n>/files/<path>    the bytes of one, or a range of them
    GET /api/v1/ingest/damaged                                    content that the last audits found damaged
    GET /m/<ark>                                                  redirects to the object; the target of ARKs registered with EZID

An ARK in a path may be percent-encoded (`ark%3A%2F99999%2Ffk4x`) or not.
"""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import RedirectResponse
from starlette.convertors import Convertor, register_url_convertor

from waybill.apps.ingest.access.orders import FILES_HINT, SEARCH_HINT
from waybill.apps.ingest.embargo import explain_closed
from waybill.apps.ingest.identifiers.noid import is_ark
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.routes.context import (
    PREFIX,
    IngestRequest,
    IngestRequestContext,
    file_path_of,
    object_path_of,
    version_path_of,
)
from waybill.apps.ingest.storage import MANIFEST_PATH
from waybill.files.names import quote_text
from waybill.http.downloads import DownloadContent, send_content
from waybill.http.errors import HttpProblem, describe_responses
from waybill.http.json_io import to_json_response
from waybill.http.request_context import RequestContext, allow_signed_urls, make_router
from waybill.index import Row
from waybill.record import RecordNotFound, Store
from waybill.signed_urls import UrlSigner
from waybill.tokens import Identity

AUDIT_HINT = "Tell the server's operator: `waybill ingest audit`."
MAX_TEXT_LENGTH = 1000  # characters of a search parameter


class ArkConvertor(Convertor[str]):
    """A whole ARK, which contains slashes; any path may follow it."""

    regex = "ark:/?[^/]+/[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("ark", ArkConvertor())

Ark = Annotated[str, Path(max_length=MAX_TEXT_LENGTH, description="The object's ARK.")]
VersionNumber = Annotated[int, Path(ge=0, le=2**31, description="The number of the version; 0: the newest.")]
SearchText = Annotated[str, Query(max_length=MAX_TEXT_LENGTH)]
Expires = Annotated[int, Query(ge=0, le=2**53, description="Until when a signed URL works, in seconds since 1970.")]
Signature = Annotated[str, Query(max_length=MAX_TEXT_LENGTH, description="Of a signed URL, which needs no token.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Rows in a page.")]


def build_object_router() -> APIRouter:
    router = make_router(PREFIX, "ingest objects")

    @router.get("/objects", summary="Objects in the order of their ARKs, page by page")
    def search(
        context: IngestRequest,
        ark: SearchText = "",
        owner: SearchText = "",
        local_id: SearchText = "",
        collection: SearchText = "",
        text: SearchText = "",
        after: SearchText = "",
        limit: Limit = 100,
    ) -> Response:
        """By ARK, local id, or words of title, creator and date; a collection narrows words, an owner everything."""
        page = context.resources.inventory.search(
            ark=_clean(ark),
            owner=_clean(owner),
            local_id=_clean(local_id),
            collection=_clean(collection),
            text=_clean(text),
            after=_clean(after),
            limit=limit,
        )
        return to_json_response({"objects": [_to_object_view(row) for row in page.rows], "next": page.next or None})

    @router.get("/objects/{ark:ark}", summary="One object")
    def get_object(context: IngestRequest, ark: Ark) -> Response:
        return to_json_response(_to_object_view(_find_object(context.resources.inventory, ark)))

    @router.get("/objects/{ark:ark}/versions", summary="Versions of an object, oldest first")
    def list_versions(
        context: IngestRequest, ark: Ark, after: Annotated[int, Query(ge=0, le=2**31)] = 0, limit: Limit = 100
    ) -> Response:
        inventory = context.resources.inventory
        _find_object(inventory, ark)
        rows = inventory.list_versions(ark, after=after, limit=limit)
        return to_json_response(
            {
                "versions": [_to_version_view(row) for row in rows],
                "next": rows[-1]["number"] if len(rows) == limit else None,
            }
        )

    @router.get("/objects/{ark:ark}/versions/{number}", summary="One version of an object")
    def get_version(context: IngestRequest, ark: Ark, number: VersionNumber) -> Response:
        return to_json_response(_to_version_view(_find_version(context.resources.inventory, ark, number)))

    @router.get("/objects/{ark:ark}/versions/{number}/files", summary="Files of a version by their paths, page by page")
    def list_files(
        context: IngestRequest, ark: Ark, number: VersionNumber, after: SearchText = "", limit: Limit = 100
    ) -> Response:
        inventory = context.resources.inventory
        row = _find_version(inventory, ark, number)
        page = inventory.list_files(ark, row["number"], after=_clean(after), limit=limit)
        return to_json_response(
            {"files": [_to_file_view(ark, row["number"], each) for each in page.rows], "next": page.next or None}
        )

    def fetch_file(
        context: IngestRequest, ark: Ark, number: VersionNumber, path: Annotated[str, Path(max_length=MAX_TEXT_LENGTH)]
    ) -> Response:
        row = _find_version(context.resources.inventory, ark, number)
        check_embargo(context.identity, ark, _find_object(context.resources.inventory, ark))
        return send_file(context, ark, row["number"], path)

    def fetch_manifest(
        context: IngestRequest, ark: Ark, number: VersionNumber, expires: Expires = 0, signature: Signature = ""
    ) -> Response:
        row = _find_version(context.resources.inventory, ark, number)
        return send_file(context, ark, row["number"], MANIFEST_PATH)

    def send_file(context: IngestRequestContext, ark: str, number: int, path: str) -> Response:
        row = context.resources.inventory.get_file(ark, number, path) if path == _clean(path) else None
        if row is None:
            raise RecordNotFound(f"Version {number} of {ark} has no file {quote_text(path)}.", hint=FILES_HINT)
        storage = context.resources.storage
        content = DownloadContent(
            lambda start, end: storage.read(ark, row["place"], start=start, end=end),
            row["size"],
            row["sha256"],
            row["mime"],
            path.rpartition("/")[2],
            f"{quote_text(path)} in version {number} of {ark}",
            AUDIT_HINT,
        )
        return send_content(context.request, content)

    for pattern, function, summary, more in (
        (
            "/objects/{ark:ark}/versions/{number}/manifest",
            fetch_manifest,
            "The storage manifest of a version",
            allow_signed_urls("reader", _get_signer, ("ark", "number")),
        ),
        (
            "/objects/{ark:ark}/versions/{number}/files/{path:path}",
            fetch_file,
            "The bytes of a file, or a range of them",
            {},
        ),
    ):
        responses = describe_responses(416, 500)
        router.get(pattern, summary=summary, response_class=Response, responses=responses, **more)(function)
        router.head(pattern, include_in_schema=False, **more)(function)

    @router.get("/damaged", summary="Content that the last audits found damaged, page by page")
    def list_damaged(context: IngestRequest, after: SearchText = "", limit: Limit = 100) -> Response:
        """`after` is the `next` of the page before."""
        ark, _, place = _clean(after).partition(" ")
        rows = context.resources.inventory.list_damaged(after=(ark, place), limit=limit)
        next_place = f"{rows[-1]['ark']} {rows[-1]['place']}" if len(rows) == limit else None
        return to_json_response({"damaged": rows, "next": next_place})

    return router


def _clean(text: str) -> str:
    """Return the text without what the database cannot compare."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _find_object(inventory: Inventory, ark: str) -> Row:
    row = inventory.get_object(ark) if ark == _clean(ark) else None
    if row is None:
        raise RecordNotFound(f"There is no object {quote_text(ark)} in the inventory.", hint=SEARCH_HINT)
    return row


def _find_version(inventory: Inventory, ark: str, number: int) -> Row:
    head = int(_find_object(inventory, ark)["head"])
    rows = inventory.list_versions(ark, after=(number or head) - 1, limit=1)
    if not rows or rows[0]["number"] != (number or head):
        raise RecordNotFound(f"{ark} has no version {number}; its newest is {head}.", hint=SEARCH_HINT)
    return rows[0]


def _to_object_view(row: Row) -> dict[str, Any]:
    return {**row, "url": object_path_of(row["ark"])}


def _to_version_view(row: Row) -> dict[str, Any]:
    url = version_path_of(row["ark"], row["number"])
    shown = {name: row[name] for name in ("ark", "number", "request", "created", "files", "bytes")}
    return {**shown, "url": url, "manifest": {"url": f"{url}/manifest", "size": row["size"], "sha256": row["sha256"]}}


def _to_file_view(ark: str, number: int, row: Row) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("path", "size", "sha256", "mime")},
        "url": file_path_of(ark, number, row["path"]),
    }


def _get_signer(context: RequestContext, store: Store) -> UrlSigner:
    resources: IngestResources = context.environment.resources_of("ingest")
    return resources.get_manifest_signer(lambda read: read(store))


def check_embargo(identity: Identity | None, ark: str, row: Row | None) -> None:
    """Raise 403 if the object is closed and the request is not by an operator.

    `identity` None: the client is not authenticated, as at the URL of an assembly.
    """
    if identity is not None and identity.has_role("operator"):
        return
    code, why = explain_closed(ark, row, time.time())
    if code:
        raise HttpProblem(code, why, "Ask again when it is open, or ask an operator.")


def build_landing_router() -> APIRouter:
    router = APIRouter(tags=["ingest objects"])

    @router.get(
        "/m/{ark:path}",
        summary="Redirect an ARK to its object",
        status_code=307,
        response_class=RedirectResponse,
        responses=describe_responses(404, 422),
        openapi_extra={"x-role": "open"},
    )
    def redirect_ark(ark: str) -> Response:
        """The ARK may be percent-encoded once or twice, as Merritt's targets are."""
        wanted = unquote(ark)
        if not is_ark(wanted):
            raise HttpProblem("not-found", "This is not an ARK.", "It is written as ark:/99999/fk4abc.")
        return RedirectResponse(f"/api/v1/ingest/objects/{quote(wanted, safe='')}", 307)

    return router
