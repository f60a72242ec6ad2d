"""Objects: a directory page by page, an object with its preview, upload, new directories, removal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from waybill.apps.compute.access import check_access
from waybill.apps.compute.entries import Entry
from waybill.apps.compute.pages.accounts import caller_of, can_write, own_account, resources_of
from waybill.apps.compute.paths import AREAS, MAX_PATH, StoragePath, is_account_name, parse_path
from waybill.apps.compute.storage import ObjectHeaders, iso_time
from waybill.errors import InputError
from waybill.http.authentication import check_csrf_token
from waybill.http.request_context import declare_role
from waybill.http.uploads import UploadSlots, read_form
from waybill.pages import PageContext, PageRequest

PAGE = 200  # entries
PREVIEW = 64 * 1024  # bytes of a text
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
TYPES = {"txt": "text/plain", "csv": "text/csv", "json": "application/json", "png": "image/png", "jpg": "image/jpeg",
         "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "html": "text/html", "pdf": "application/pdf"}  # fmt: skip
Path = Annotated[str, Query(max_length=MAX_PATH)]


def objects_url(path: StoragePath, **more: str) -> str:
    return f"/compute/objects?{urlencode({'at': str(path), **more})}"


def add_routes(router: APIRouter, upload_slots: UploadSlots) -> None:
    @router.get("/objects", **declare_role("reader", somewhere=True))
    def show_objects(context: PageRequest, at: Path = "", marker: Path = "", account: str = "") -> Response:
        if not at:
            name = account.strip() or own_account(context)
            if not is_account_name(name):
                return context.render("compute/objects.html", path=None, name=name)
            at = f"/{name}/stor"
        found = parse_path(at)
        check_access(caller_of(context), found, "read")
        entry = resources_of(context).storage.get(found)
        if entry.is_directory:
            return show_directory(context, found, marker)
        return show_object(context, found, entry)

    @router.post("/upload", **declare_role("submitter", somewhere=True, **{"x-body": "multipart/form-data"}))
    async def upload(context: PageRequest, request: Request) -> Response:
        path, count = await upload_slots.take(request, lambda chunks: receive_files(context, chunks))
        return context.redirect("/compute/objects", f"{count} uploaded", at=str(path))

    @router.post("/directory", **declare_role("submitter", somewhere=True))
    def make_directory(context: PageRequest) -> Response:
        path = parse_path(f"{context.get_field('path')}/{context.get_field('name')}")
        check_access(caller_of(context), path, "write")
        resources_of(context).storage.put_directory(path, ObjectHeaders())
        return context.redirect("/compute/objects", "the directory was made", at=str(path))

    @router.post("/remove", **declare_role("submitter", somewhere=True))
    def remove(context: PageRequest) -> Response:
        path = parse_path(context.get_field("path"))
        check_access(caller_of(context), path, "delete")
        if path.area == "jobs" and path.segments[1:2] != ("stor",):
            raise InputError("The files of a job are removed with the job, on its page.")
        resources_of(context).storage.delete(path)
        return context.redirect("/compute/objects", f"{path.name} was removed", at=str(path.parent))


def list_crumbs(path: StoragePath) -> list[dict[str, str]]:
    """The directories above, from the area on."""
    return [
        {"name": found.name, "url": objects_url(found)}
        for depth in range(len(path.segments))
        for found in [path._replace(segments=path.segments[:depth])]
    ]


def show_directory(context: PageContext, path: StoragePath, marker: str) -> Response:
    page = resources_of(context).storage.list(path, marker=marker, limit=PAGE)
    rows = [{"entry": each, "url": objects_url(path.child(each.name)), "mtime": iso_time(each.mtime)} for each in page.entries]  # fmt: skip
    return context.render(
        "compute/objects.html",
        path=path,
        name=path.account,
        crumbs=list_crumbs(path),
        areas=[(area, objects_url(StoragePath(path.account, area))) for area in AREAS],
        rows=rows,
        total=page.total,
        next_url=objects_url(path, marker=page.next.name) if page.next is not None else "",
        can_write=can_write(context) and path.area in ("stor", "public"),
    )


def show_object(context: PageContext, path: StoragePath, entry: Entry) -> Response:
    kind = entry.content_type.partition(";")[0].strip().lower()
    text = None
    if kind not in IMAGES and entry.size:
        with resources_of(context).storage.open(entry, 0, min(entry.size, PREVIEW)) as body:
            data = b"".join(body)
        text = decode_text(data, is_whole=entry.size <= PREVIEW)
    return context.render(
        "compute/object.html",
        path=path,
        crumbs=list_crumbs(path),
        stored=entry,
        mtime=iso_time(entry.mtime),
        raw_url=path.quoted(),
        is_image=kind in IMAGES,
        text=text,
        is_cut=entry.size > PREVIEW,
        can_write=can_write(context) and path.area in ("stor", "public"),
    )


def decode_text(data: bytes, *, is_whole: bool) -> str | None:
    """None: no text. A character that was cut in two at the end is left out."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(data) - 4:
            return None
        text = data[: error.start].decode()
    return None if "\0" in text else text


def receive_files(context: PageContext, chunks: Iterator[bytes]) -> tuple[StoragePath, int]:
    """The token of the page and the directory first, then the files, each stored as it arrives."""
    target: StoragePath | None = None
    is_checked, count = False, 0
    storage = resources_of(context).storage
    for part in read_form(chunks, context.request.headers.get("content-type", "")):
        if part.name == "csrf":
            check_csrf_token(context.request, part.read_text())
            is_checked = True
        elif not is_checked:
            check_csrf_token(context.request, "")  # refused: the token of the page comes before everything else
        elif part.name == "path":
            target = parse_path(part.read_text())
            check_access(caller_of(context), target, "write")
        elif part.name == "file" and part.filename and target is not None:
            path = target.child(part.filename.replace("\\", "/").rpartition("/")[2])
            parse_path(str(path))  # a name that a path may have
            storage.check_put(path)
            content_type = TYPES.get(path.name.rpartition(".")[2].lower(), "application/octet-stream")
            storage.put(path, part.data, ObjectHeaders(content_type))
            count += 1
    if target is None or not count:
        raise InputError("Nothing was sent: choose a file.")
    return target, count
