"""Commands about assemblies: ask for an object as a zip or tar, see how far it is, fetch it by its URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill import views
from waybill.apps.ingest.access import Wanted, ask, order_of
from waybill.apps.ingest.access.order import Content, Form
from waybill.apps.ingest.commands import saving
from waybill.apps.ingest.commands.batches import found
from waybill.apps.ingest.commands.counter import LIMIT, YES, agreed, outfit, serve, size_of, until_settled
from waybill.cli import shapes
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import FAILED, Missing
from waybill.record import NotFound, Record, Store

KINDS = ("access-small", "access-large")
ID = Annotated[
    str, typer.Argument(metavar="ID", help="The assembly's id, or small:ID and large:ID where both queues have it.")
]


def register(ingest: typer.Typer) -> None:
    app = typer.Typer(name="ingest access", help="Objects packed for users who ask for them.")
    ingest.add_typer(app, name="access", rich_help_panel="Objects")
    serve(app, alone=True, examples=("waybill ingest access", "waybill ingest access --json"))(list_assemblies)
    serve(app, "list", examples=("waybill ingest access list --state Failed",))(list_assemblies)
    serve(
        app,
        "request",
        examples=(
            "waybill ingest access request ark:/99999/fk4abc --watch",
            "waybill ingest access request ark:/99999/fk4abc --version 1 --form tar --file producer/a.txt --json",
        ),
    )(request)
    serve(app, "show", examples=("waybill ingest access show qid0000000001",))(show)
    serve(app, "get", examples=("waybill ingest access get qid0000000001 -o husky.zip",))(get)
    serve(app, "requeue", examples=("waybill ingest access requeue qid0000000001",))(requeue)
    serve(app, "delete", examples=("waybill ingest access delete qid0000000001",))(delete)


def list_assemblies(
    desk: Desk,
    state: Annotated[str | None, typer.Option("--state", help="Only those in this state.")] = None,
    limit: LIMIT = 30,
) -> None:
    """List assemblies of both queues, the newest first."""
    with desk.store() as store:
        now = store.now()
        rows = [
            _view(record, now)
            for kind in KINDS
            for record in found(desk, store, kind, state, None, limit, None, True)[0]
        ]
    if desk.as_json:
        return desk.print_json({"assemblies": rows})
    if not rows:
        return desk.note("There are no assemblies: `waybill ingest access request ARK` asks for one.")
    made = shapes.table("queue", "id", "state", "object", "form", "size", "expected", "message")
    for row in rows:
        made.add_row(
            row["queue"],
            row["id"],
            _state(row),
            row["object"],
            row["form"],
            size_of(row["bytes"]),
            shapes.local(row["expected"]),
            shapes.clip(row["message"]),
        )
    desk.out.print(made)
    return None


def _state(view: dict[str, Any]) -> str:
    return f"{view['state']}, expired" if view["expired"] else str(view["state"])


def _view(record: Record, now: float) -> dict[str, Any]:
    order, told = order_of(record), record.docs.get("token")
    token: dict[str, Any] = told if isinstance(told, dict) else {}
    packed = record.docs.get("packed") or {}
    size = token.get("cloud-content-byte")
    return {
        "queue": record.kind.partition("-")[2],
        "id": record.id,
        "state": record.state,
        "message": record.message,
        "object": order.object if order else "",
        "version": order.version if order else None,
        "form": order.form if order else "",
        "bytes": size if isinstance(size, int) else None,
        "expected": _text(token, "anticipated-availability-time"),
        "url": _text(token, "url"),
        "expires": views.moment(packed.get("expires", 0)),
        "expired": record.state == "Completed" and packed.get("expires", now) < now,
    }


def _text(token: dict[str, Any], name: str) -> str | None:
    """What a token says, which another service may have written; None where that is no text."""
    value = token.get(name)
    return value if isinstance(value, str) and value else None


def request(
    desk: Desk,
    ark: Annotated[str, typer.Argument(metavar="ARK", help="The object.")],
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="A version of it; 0: all.", show_default="the newest")
    ] = None,
    form: Annotated[Form, typer.Option("--form", help="How it is packed.")] = "zip",
    content: Annotated[
        Content, typer.Option("--content", help="producer: without the files that ingest added.")
    ] = "full",
    file: Annotated[
        list[str] | None, typer.Option("--file", metavar="PATH", help="Only this file; may be repeated.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Wait until it is ready; exit code 1 if it failed.")] = False,
) -> int | None:
    """Ask for an object, a version or some files of it; answered with a URL that works from when it is ready until
    it expires.
    """
    wanted = Wanted(object=ark, version=version, form=form, content=content, files=tuple(file or ()))
    with desk.engine() as engine:
        asked = ask(engine, outfit(desk), wanted, owner=desk.who, lifted=True)  # who reaches the store is an operator
        record = until_settled(desk, engine.store, asked.record.ref) if watch else asked.record
        view = _view(record, engine.store.now())
    if desk.as_json:
        desk.print_json(view)
    else:
        _say(desk, view)
    return FAILED if record.state == "Failed" else None


def _say(desk: Desk, view: dict[str, Any]) -> None:
    ready = view["state"] == "Completed"
    desk.out.print(
        shapes.fields(
            [
                ("assembly", f"{view['queue']} {view['id']}"),
                ("state", _state(view)),
                ("message", view["message"]),
                ("object", view["object"]),
                ("version", "all" if view["version"] == 0 else view["version"]),
                ("form", view["form"]),
                ("content", size_of(view["bytes"])),
                ("ready", "" if ready else f"about {shapes.local(view['expected'])}"),
                ("expires", shapes.local(view["expires"])),
            ]
        )
    )
    if view["url"] and not view["expired"]:
        desk.out.print(f"url       {view['url']}", soft_wrap=True)  # one line, so that it can be copied


def _named(store: Store, id: str) -> Record:
    queue, colon, rest = id.partition(":")
    kinds = [f"access-{queue}"] if colon else KINDS
    there = list(_there(store, kinds, rest if colon else id))
    if not there:
        raise Missing(
            f"There is no assembly {id}: those that have expired are removed, and `waybill ingest access` lists the others. "
            "`waybill ingest access request ARK` asks for one."
        )
    if len(there) > 1:
        raise Missing(f"Both queues have an assembly {id}: write small:{id} or large:{id}.")
    return there[0]


def _there(store: Store, kinds: Any, id: str) -> Iterator[Record]:
    for kind in kinds:
        try:
            yield store.get(kind, id)
        except NotFound:
            continue


def show(desk: Desk, id: ID) -> None:
    """Show an assembly: what was asked for, how far it is, its URL and until when that works."""
    with desk.store() as store:
        view = _view(_named(store, id), store.now())
    return desk.print_json(view) if desk.as_json else _say(desk, view)


def get(
    desk: Desk,
    id: ID,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is stdout.")],
    force: saving.FORCE = False,
) -> None:
    """Get the archive of an assembly that is ready, where its URL cannot be reached."""
    have = outfit(desk)
    with desk.store() as store:
        record, now = _named(store, id), store.now()
    packed = record.docs.get("packed")
    if record.state == "Completed" and isinstance(packed, dict) and packed.get("expires", now) < now:
        when = shapes.local(views.moment(packed["expires"]))
        raise Missing(f"{record.ref} expired {when}, and its archive is not given out any more. {_again(record)}")
    if record.state != "Completed" or not isinstance(packed, dict):
        raise Missing(
            f"{record.ref} is {record.state}, and there is no archive of it {'any more' if packed else 'yet'}."
        )
    target = saving.place(desk, output, force)
    saving.save(
        target, saving.verified(have.objects.get(packed["name"]), packed["sha256"], f"The archive of {record.ref}")
    )
    if desk.as_json:
        return desk.print_json(
            {"id": record.id, "file": str(target), "bytes": packed["size"], "sha256": packed["sha256"]}
        )
    return desk.note(f"{target or record.ref}: {size_of(packed['size'])}, SHA-256 {packed['sha256']}")


def _again(record: Record) -> str:
    order = order_of(record)
    if order is None:
        return "Whoever asked for it must ask again."
    more = f" --content {order.content}" if order.content != "full" else ""
    return f"`waybill ingest access request {order.object} --version {order.version} --form {order.form}{more}` asks for it again."


def requeue(desk: Desk, id: ID, why: WHY = "") -> None:
    """Try a failed assembly again."""
    return _act(desk, id, "requeue", why, False)


def delete(desk: Desk, id: ID, yes: YES = False, why: WHY = "") -> None:
    """Remove an assembly that is ready or failed; its URL stops working."""
    return _act(desk, id, "delete", why, yes)


def _act(desk: Desk, id: str, action: str, why: str, yes: bool) -> None:
    with desk.engine() as engine:
        record = _named(engine.store, id)
        wanted = desk.machine(record.kind).action(action)
        assert wanted is not None
        confirmed = agreed(desk, wanted, wanted.question(record, engine.store), str(record.ref), yes)
        acted = engine.act(record.ref, action, who=desk.who, why=why, confirmed=confirmed).record
    if desk.as_json:
        return desk.print_json({"queue": acted.kind.partition("-")[2], "id": acted.id, "state": acted.state})
    return desk.say(f"{acted.ref}: {acted.state}")
