"""The inventory over HTTP: search and browse objects, versions and files, and fetch what is at rest.

    GET /api/v1/ingest/objects                                    a page of objects; by ARK, owner, local id, collection, words
    GET /api/v1/ingest/objects/<ark>                              one object
    GET /api/v1/ingest/objects/<ark>/versions                     its versions
    GET /api/v1/ingest/objects/<ark>/versions/<n>                 one version; 0: the newest
    GET /api/v1/ingest/objects/<ark>/versions/<n>/manifest        its storage manifest, as it is at rest; also by a signed URL
    GET /api/v1/ingest/objects/<ark>/versions/<n>/files           its files
    GET /api/v1/ingest/objects/<ark>/versions/<n>/files/<path>    the bytes of one, or a range of them
    GET /api/v1/ingest/damaged                                    content that the last audits found damaged

An ARK in a path may be quoted (`ark%3A%2F99999%2Ffk4x`) or stand as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.convertors import Convertor, register_url_convertor

from waybill.apps.ingest.access.asking import LISTED, SEARCH
from waybill.apps.ingest.inventory import BadSearch, Inventory
from waybill.apps.ingest.names import shown
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.routes.answers import answer, file_path, object_path, refusal, version_path
from waybill.apps.ingest.routes.closing import closed_to
from waybill.apps.ingest.routes.counter import STRICT
from waybill.apps.ingest.routes.sealed import signed_or
from waybill.apps.ingest.routes.sending import Sent, send
from waybill.apps.ingest.storage import MANIFEST
from waybill.http.errors import responses
from waybill.index import Row
from waybill.record import NotFound

if TYPE_CHECKING:
    from waybill.depot import Depot

LONGEST = 1000  # characters of anything that is looked for


class ArkConvertor(Convertor[str]):
    """A whole ARK, in which there are slashes; what follows it in a path can hold any names."""

    regex = "ark:/?[^/]+/[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("ark", ArkConvertor())

Ark = Annotated[str, Path(max_length=LONGEST, description="The object's ARK.")]
Number = Annotated[int, Path(ge=0, le=2**31, description="The number of the version; 0: the newest.")]
Word = Annotated[str, Query(max_length=LONGEST)]
Expires = Annotated[int, Query(ge=0, le=2**53, description="Until when a signed URL works, in seconds since 1970.")]
Signature = Annotated[str, Query(max_length=LONGEST, description="Of a signed URL, which needs no token.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Rows in a page.")]


def router(depot: Depot) -> APIRouter:
    refusals = responses(400, 401, 403, 404, 416, 422, 500, 503)
    routes = APIRouter(prefix="/api/v1/ingest", tags=["ingest objects"], responses=refusals, dependencies=STRICT)

    def outfit() -> Outfit:
        return cast(Outfit, depot.outfit("job"))

    @routes.get("/objects", summary="Objects in the order of their ARKs, page by page")
    def search(
        ark: Word = "",
        owner: Word = "",
        local_id: Word = "",
        collection: Word = "",
        text: Word = "",
        after: Word = "",
        limit: Limit = 100,
    ) -> Response:
        """By ARK, by local id, or by words of title, creator and date; a collection narrows words, an owner
        everything.
        """
        try:
            page = outfit().inventory.search(
                ark=_clean(ark),
                owner=_clean(owner),
                local_id=_clean(local_id),
                collection=_clean(collection),
                text=_clean(text),
                after=_clean(after),
                most=limit,
            )
        except BadSearch as error:
            return refusal(400, "bad-search", str(error), "Leave something away.")
        return answer({"objects": [_object(row) for row in page.rows], "next": page.next or None})

    @routes.get("/objects/{ark:ark}", summary="One object")
    def one(ark: Ark) -> Response:
        return answer(_object(_found(outfit().inventory, ark)))

    @routes.get("/objects/{ark:ark}/versions", summary="Versions of an object, oldest first")
    def versions(ark: Ark, after: Annotated[int, Query(ge=0, le=2**31)] = 0, limit: Limit = 100) -> Response:
        inventory = outfit().inventory
        _found(inventory, ark)
        rows = inventory.versions(ark, after=after, most=limit)
        return answer(
            {"versions": [_version(row) for row in rows], "next": rows[-1]["number"] if len(rows) == limit else None}
        )

    @routes.get("/objects/{ark:ark}/versions/{number}", summary="One version of an object")
    def version(ark: Ark, number: Number) -> Response:
        return answer(_version(_numbered(outfit().inventory, ark, number)))

    @routes.get("/objects/{ark:ark}/versions/{number}/files", summary="Files of a version by their paths, page by page")
    def files(ark: Ark, number: Number, after: Word = "", limit: Limit = 100) -> Response:
        inventory = outfit().inventory
        row = _numbered(inventory, ark, number)
        page = inventory.files(ark, row["number"], after=_clean(after), most=limit)
        return answer({"files": [_file(ark, row["number"], each) for each in page.rows], "next": page.next or None})

    def fetch(request: Request, ark: Ark, number: Number, path: Annotated[str, Path(max_length=LONGEST)]) -> Response:
        row = _numbered(outfit().inventory, ark, number)
        if closed := closed_to(request, _found(outfit().inventory, ark)):
            return closed
        return _send(request, ark, row["number"], path)

    def manifest(
        request: Request, ark: Ark, number: Number, expires: Expires = 0, signature: Signature = ""
    ) -> Response:
        row = _numbered(outfit().inventory, ark, number)
        return _send(request, ark, row["number"], MANIFEST)

    def _send(request: Request, ark: str, number: int, path: str) -> Response:
        found = outfit().inventory.file(ark, number, path) if path == _clean(path) else None
        if found is None:
            raise NotFound(f"Version {number} of {ark} has no file {shown(path)}.", LISTED)
        storage = outfit().storage
        words = f"{shown(path)} in version {number} of {ark}"
        place, size, sha256, mime = found["place"], found["size"], found["sha256"], found["mime"]
        opened = lambda start, end: storage.read(ark, place, start=start, end=end)  # noqa: E731 - typed by Sent
        return send(request, Sent(opened, size, sha256, mime, path.rpartition("/")[2], words))

    for pattern, function, summary, more in (
        (
            "/objects/{ark:ark}/versions/{number}/manifest",
            manifest,
            "The storage manifest of a version",
            signed_or("reader"),
        ),
        (
            "/objects/{ark:ark}/versions/{number}/files/{path:path}",
            fetch,
            "The bytes of a file, or a range of them",
            {},
        ),
    ):
        routes.get(pattern, summary=summary, response_class=Response, **more)(function)
        routes.head(pattern, include_in_schema=False, **more)(function)

    @routes.get("/damaged", summary="Content that the last audits found damaged, page by page")
    def damaged(after: Word = "", limit: Limit = 100) -> Response:
        """`after` is the `next` of the page before."""
        ark, _, place = _clean(after).partition(" ")
        rows = outfit().inventory.damaged(after=(ark, place), most=limit)
        following = f"{rows[-1]['ark']} {rows[-1]['place']}" if len(rows) == limit else None
        return answer({"damaged": rows, "next": following})

    return routes


def _clean(text: str) -> str:
    """As the database can compare it."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _found(inventory: Inventory, ark: str) -> Row:
    row = inventory.object(ark) if ark == _clean(ark) else None
    if row is None:
        raise NotFound(f"There is no object {shown(ark)} in the inventory.", SEARCH)
    return row


def _numbered(inventory: Inventory, ark: str, number: int) -> Row:
    head = int(_found(inventory, ark)["head"])
    rows = inventory.versions(ark, after=(number or head) - 1, most=1)
    if not rows or rows[0]["number"] != (number or head):
        raise NotFound(f"{ark} has no version {number}; its newest is {head}.", SEARCH)
    return rows[0]


def _object(row: Row) -> dict[str, Any]:
    return {**row, "url": object_path(row["ark"])}


def _version(row: Row) -> dict[str, Any]:
    url = version_path(row["ark"], row["number"])
    shown = {name: row[name] for name in ("ark", "number", "request", "created", "files", "bytes")}
    return {**shown, "url": url, "manifest": {"url": f"{url}/manifest", "size": row["size"], "sha256": row["sha256"]}}


def _file(ark: str, number: int, row: Row) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("path", "size", "sha256", "mime")},
        "url": file_path(ark, number, row["path"]),
    }
