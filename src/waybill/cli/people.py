"""Commands about who works and who may ask: sessions and tokens."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from waybill import views
from waybill.cli import shapes
from waybill.cli.desk import WHY, Desk, command
from waybill.cli.problems import Misuse
from waybill.record import MAX_PAGE, Record
from waybill.tokens import TOKEN, Role, issue, revoke
from waybill.views import PageTokens, Query

PANEL = "Workers and tokens"


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=("waybill sessions", "waybill sessions --json"))(sessions)
    tokens = typer.Typer(name="tokens", help="List, make and revoke the tokens of the HTTP API.")
    app.add_typer(tokens, rich_help_panel=PANEL)
    command(tokens, alone=True, examples=("waybill tokens", "waybill tokens --json"))(list_tokens)
    command(tokens, "list", examples=("waybill tokens list", "waybill tokens list --limit 1000 --json"))(list_tokens)
    command(tokens, "new", examples=("waybill tokens new 'night shift' --role operator",))(new_token)
    command(tokens, "revoke", examples=("waybill tokens revoke 3f9c0a71be42",))(revoke_token)


def list_tokens(
    desk: Desk,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many tokens a page has.")] = 50,
    token: Annotated[
        str | None, typer.Option("--token", help="Go on after an earlier page; it is printed with that page.")
    ] = None,
) -> None:
    """List the tokens, page by page: who has one, and what it allows. Secrets are never shown again."""
    query, after = Query(TOKEN.name), None
    with desk.store() as store:
        if token is not None:
            asked, after = PageTokens.of(store).verify(token)
            if asked != query:
                raise Misuse("This token belongs to another list; begin again without it.")
        page = store.find(TOKEN.name, after=after, limit=limit, docs=True)
        # The first to sign a token writes the store's secret; a list of one page can be read from a disk that is full.
        further = PageTokens.of(store).sign(query, page.after) if page.after is not None else None
    found = [_shown(record) for record in page.records]
    if desk.as_json:
        return desk.print_json({"tokens": found, "next": further})
    made = shapes.table("id", "name", "role", "state", "made")
    for each in found:
        made.add_row(each["id"], each["name"], each["role"], each["state"], shapes.local(each["created"]))
    desk.out.print(made)
    if further:
        desk.note(f"There are more: waybill tokens list --token {further}")
    return None


def _shown(record: Record) -> dict[str, Any]:
    about = record.docs.get("token") or {}
    return {
        "id": record.id,
        "name": about.get("name", ""),
        "role": about.get("role", ""),
        "state": record.state,
        "created": views.moment(record.created),
    }


def new_token(
    desk: Desk,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will hold it.")],
    role: Annotated[
        Role, typer.Option("--role", help="What it allows; each role includes those before it.")
    ] = "reader",
) -> None:
    """Make a token and show it, this once."""
    with desk.engine() as engine:
        issued = issue(engine, name, role, who=desk.who)
    if desk.as_json:
        return desk.print_json({"id": issued.record.id, "name": name, "role": role, "token": issued.token})
    desk.say(issued.token)
    return desk.note("Keep it: it cannot be shown again.")


def revoke_token(
    desk: Desk,
    id: Annotated[str, typer.Argument(metavar="ID", help="The token's id; `waybill tokens` lists them.")],
    why: WHY = "",
) -> None:
    """Revoke a token: from then on it is refused everywhere."""
    with desk.engine() as engine:
        record = revoke(engine, id, who=desk.who, why=why)
    if desk.as_json:
        return desk.print_json({"id": id, "state": record.state})
    return desk.say(f"The token {id} is {record.state.lower()}.")


def sessions(desk: Desk) -> None:
    """List the workers and what they are busy with. One that has expired is gone; the next worker frees what it
    held.
    """
    with desk.store() as store:
        now = store.now()
        found = [views.session(s, now) for s in store.sessions()]
    if desk.as_json:
        return desk.print_json({"sessions": found})
    if not found:
        return desk.note("No worker is alive; `waybill work` starts one.")
    made = shapes.table("session", "host", "process", "since", "", "busy with")
    for s in found:
        busy = ", ".join(f"{step['kind']} {step['id']}" for step in s["steps"])
        alive = f"expired {shapes.age(s['expires'])}" if s["expired"] else "alive"
        made.add_row(s["name"], s["host"], str(s["about"].get("pid", "")), shapes.age(s["since"]), alive, busy)
    desk.out.print(made)
    return None
