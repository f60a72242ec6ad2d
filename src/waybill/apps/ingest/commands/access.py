"""`waybill ingest access`: request an object as a zip or tar, see how far it is, fetch the archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill import views
from waybill.apps.ingest.access import AssemblyRequest, request_assembly
from waybill.apps.ingest.commands.support import register_command, resources_of
from waybill.apps.ingest.documents import ArchiveContent, ArchiveForm, AssemblyOrder, AssemblyToken, PackedArchive
from waybill.cli import downloads, terminal
from waybill.cli.actions import YES, confirm_on_record
from waybill.cli.command_context import WHY, CommandContext
from waybill.cli.followed_records import wait_until_settled
from waybill.cli.records import LIMIT, find_page
from waybill.cli.terminal import format_size
from waybill.errors import FAILED, NotFound
from waybill.record import Record, RecordNotFound, Store
from waybill.text_format import clip_line, format_local_time
from waybill.views import ListQuery

KINDS = ("access-small", "access-large")
ASSEMBLY_ID = Annotated[
    str, typer.Argument(metavar="ID", help="The assembly's id, or small:ID and large:ID where both queues have it.")
]


def register(ingest: typer.Typer) -> None:
    app = typer.Typer(name="ingest access", help="Objects packed on request.")
    ingest.add_typer(app, name="access", rich_help_panel="Objects")
    register_command(app, without_subcommand=True, examples=("waybill ingest access", "waybill ingest access --json"))(
        list_assemblies
    )
    register_command(app, "list", examples=("waybill ingest access list --state Failed",))(list_assemblies)
    register_command(
        app,
        "request",
        examples=(
            "waybill ingest access request ark:/99999/fk4abc --watch",
            "waybill ingest access request ark:/99999/fk4abc --version 1 --form tar --file producer/a.txt --json",
        ),
    )(request)
    register_command(app, "show", examples=("waybill ingest access show qid0000000001",))(show)
    register_command(app, "get", examples=("waybill ingest access get qid0000000001 -o husky.zip",))(get)
    register_command(app, "requeue", examples=("waybill ingest access requeue qid0000000001",))(requeue)
    register_command(app, "delete", examples=("waybill ingest access delete qid0000000001",))(delete)


def list_assemblies(
    context: CommandContext,
    state: Annotated[str | None, typer.Option("--state", help="Only those in this state.")] = None,
    limit: LIMIT = 30,
) -> None:
    """List assemblies of both queues, the newest first."""
    with context.open_store() as store:
        now = store.now()
        rows = [
            _to_view(record, now)
            for kind in KINDS
            for record in find_page(context, store, ListQuery(kind, state, newest=True), None, limit, documents=True)[
                0
            ].records
        ]
    if context.as_json:
        return context.print_json({"assemblies": rows})
    if not rows:
        return context.print_note("There are no assemblies: `waybill ingest access request ARK` makes one.")
    table = terminal.make_table(
        "queue", "id", "state", "object", "form", "size", "expected", "message", unfolded=("id", "object")
    )
    for row in rows:
        table.add_row(
            row["queue"],
            row["id"],
            _format_state(row),
            row["object"],
            row["form"],
            format_size(row["bytes"]),
            format_local_time(row["expected"]),
            clip_line(row["message"]),
        )
    context.out.print(table)
    return None


def _format_state(view: dict[str, Any]) -> str:
    return f"{view['state']}, expired" if view["expired"] else str(view["state"])


def _to_view(record: Record, now: float) -> dict[str, Any]:
    order, packed = record.find_document(AssemblyOrder), record.find_document(PackedArchive)
    token = record.find_document(AssemblyToken) or AssemblyToken({})
    return {
        "queue": record.kind.partition("-")[2],
        "id": record.id,
        "state": record.state,
        "message": record.message,
        "object": order.object if order else "",
        "version": order.version if order else None,
        "form": order.form if order else "",
        "bytes": token.content_bytes or None,
        "expected": token.ready_at or None,
        "url": token.url or None,
        "expires": views.format_time(packed.expires if packed is not None else 0),
        "expired": record.state == "Completed" and packed is not None and packed.expires < now,
    }


def request(
    context: CommandContext,
    ark: Annotated[str, typer.Argument(metavar="ARK", help="The object.")],
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="A version of it; 0: all.", show_default="the newest")
    ] = None,
    form: Annotated[ArchiveForm, typer.Option("--form", help="The archive format.")] = "zip",
    content: Annotated[
        ArchiveContent, typer.Option("--content", help="producer: without the files that ingest added.")
    ] = "full",
    file: Annotated[
        list[str] | None, typer.Option("--file", metavar="PATH", help="Only this file; may be repeated.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Wait until it is ready; exit code 1 if it failed.")] = False,
) -> int | None:
    """Request an object, a version or some files of it. The URL works from when the archive is ready until it expires."""
    assembly_request = AssemblyRequest(object=ark, version=version, form=form, content=content, files=tuple(file or ()))
    with context.open_engine() as engine:
        # whoever reaches the store is an operator
        requested = request_assembly(
            engine, resources_of(context), assembly_request, owner=context.who, ignores_embargo=True
        )
        record = wait_until_settled(context, engine.store, requested.record.ref) if watch else requested.record
        view = _to_view(record, engine.store.now())
    if context.as_json:
        context.print_json(view)
    else:
        _print_assembly(context, view)
    return FAILED if record.state == "Failed" else None


def _print_assembly(context: CommandContext, view: dict[str, Any]) -> None:
    ready = view["state"] == "Completed"
    context.out.print(
        terminal.make_field_table(
            [
                ("assembly", f"{view['queue']} {view['id']}"),
                ("state", _format_state(view)),
                ("message", view["message"]),
                ("object", view["object"]),
                ("version", "all" if view["version"] == 0 else view["version"]),
                ("form", view["form"]),
                ("content", format_size(view["bytes"])),
                ("ready", "" if ready else f"about {format_local_time(view['expected'])}"),
                ("expires", format_local_time(view["expires"])),
            ]
        )
    )
    if view["url"] and not view["expired"]:
        context.out.print(f"url       {view['url']}", soft_wrap=True)  # one line, so that it can be copied


def _find_assembly(store: Store, id: str) -> Record:
    queue, colon, rest = id.partition(":")
    kinds = [f"access-{queue}"] if colon else KINDS
    matches = list(_iter_matches(store, kinds, rest if colon else id))
    if not matches:
        raise NotFound(
            f"There is no assembly {id}: expired ones are removed, and `waybill ingest access` lists the others. "
            "`waybill ingest access request ARK` makes a new one."
        )
    if len(matches) > 1:
        raise NotFound(f"Both queues have an assembly {id}: write small:{id} or large:{id}.")
    return matches[0]


def _iter_matches(store: Store, kinds: Any, id: str) -> Iterator[Record]:
    for kind in kinds:
        try:
            yield store.get(kind, id)
        except RecordNotFound:
            continue


def show(context: CommandContext, id: ASSEMBLY_ID) -> None:
    """Show an assembly: what was requested, its state, its URL and when that expires."""
    with context.open_store() as store:
        view = _to_view(_find_assembly(store, id), store.now())
    return context.print_json(view) if context.as_json else _print_assembly(context, view)


def get(
    context: CommandContext,
    id: ASSEMBLY_ID,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is stdout.")],
    force: downloads.FORCE = False,
) -> None:
    """Get the archive of a completed assembly without its URL."""
    resources = resources_of(context)
    with context.open_store() as store:
        record, now = _find_assembly(store, id), store.now()
    packed = record.find_document(PackedArchive)
    if record.state == "Completed" and packed is not None and packed.expires < now:
        when = format_local_time(views.format_time(packed.expires))
        raise NotFound(
            f"{record.ref} expired {when}, and its archive is no longer available. {_suggest_request(record)}"
        )
    if record.state != "Completed" or packed is None:
        raise NotFound(
            f"{record.ref} is {record.state}: its archive {'no longer exists' if packed else 'is not ready yet'}."
        )
    target = downloads.resolve_output(context, output, force)
    downloads.save_chunks(
        target,
        downloads.verify_chunks(resources.objects.get(packed.name), packed.sha256, f"The archive of {record.ref}"),
    )
    if context.as_json:
        return context.print_json({"id": record.id, "file": str(target), "bytes": packed.size, "sha256": packed.sha256})
    return context.print_note(f"{target or record.ref}: {format_size(packed.size)}, SHA-256 {packed.sha256}")


def _suggest_request(record: Record) -> str:
    order = record.find_document(AssemblyOrder)
    if order is None:
        return "It must be requested again."
    more = f" --content {order.content}" if order.content != "full" else ""
    return f"`waybill ingest access request {order.object} --version {order.version} --form {order.form}{more}` requests it again."


def requeue(context: CommandContext, id: ASSEMBLY_ID, why: WHY = "") -> None:
    """Retry a failed assembly."""
    return _act(context, id, "requeue", why, False)


def delete(context: CommandContext, id: ASSEMBLY_ID, yes: YES = False, why: WHY = "") -> None:
    """Remove a completed or failed assembly; its URL stops working."""
    return _act(context, id, "delete", why, yes)


def _act(context: CommandContext, id: str, action: str, why: str, yes: bool) -> None:
    with context.open_engine() as engine:
        record = _find_assembly(engine.store, id)
        wanted = context.get_machine(record.kind).find_action(action)
        assert wanted is not None
        confirmed = confirm_on_record(context, wanted, record, engine.store, yes)
        acted = engine.act(record.ref, action, who=context.who, why=why, confirmed=confirmed).record
    if context.as_json:
        return context.print_json({"queue": acted.kind.partition("-")[2], "id": acted.id, "state": acted.state})
    return context.print_line(f"{acted.ref}: {acted.state}")
