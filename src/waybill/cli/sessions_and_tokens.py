"""Commands about sessions (the workers that are alive), tokens (who may use the API) and links that sign in to the pages."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill import views
from waybill.cli import terminal
from waybill.cli.command_context import WHY, CommandContext, command
from waybill.errors import InputError
from waybill.record import MAX_PAGE
from waybill.sign_in import make_login_link
from waybill.text_format import format_age, format_local_time
from waybill.tokens import TOKEN, Role, issue, revoke, token_view_of
from waybill.views import ListQuery, PageTokens

PANEL = "Workers, tokens and sign-in"


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=("waybill sessions", "waybill sessions --json"))(sessions)
    command(
        app,
        "login-link",
        panel=PANEL,
        examples=("waybill login-link", "waybill login-link --name 'night shift' --role operator"),
    )(print_login_link)
    tokens = typer.Typer(name="tokens", help="List, create and revoke the tokens of the HTTP API.")
    app.add_typer(tokens, rich_help_panel=PANEL)
    command(tokens, without_subcommand=True, examples=("waybill tokens", "waybill tokens --json"))(list_tokens)
    command(tokens, "list", examples=("waybill tokens list", "waybill tokens list --limit 1000 --json"))(list_tokens)
    command(tokens, "new", examples=("waybill tokens new 'night shift' --role operator",))(create_token)
    command(tokens, "revoke", examples=("waybill tokens revoke 3f9c0a71be42",))(revoke_token)


def list_tokens(
    context: CommandContext,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many tokens a page has.")] = 50,
    page_token: Annotated[
        str | None, typer.Option("--page-token", help="Continue after an earlier page, which printed this token.")
    ] = None,
) -> None:
    """List the tokens, page by page: who has one, and what it allows. Secrets are never shown again."""
    query, after = ListQuery(TOKEN.name), None
    with context.open_store() as store:
        if page_token is not None:
            token_query, after = PageTokens.from_store(store).verify(page_token)
            if token_query != query:
                raise InputError(
                    "This page token belongs to another list; start again without it.", code="bad-page-token"
                )
        page = store.find(TOKEN.name, after=after, limit=limit, documents=True)
        # Signing the first token of a store writes its secret. A list of one page is readable even when the disk is full.
        next_token = PageTokens.from_store(store).sign(query, page.after) if page.after is not None else None
    tokens = [token_view_of(record) for record in page.records]
    if context.as_json:
        return context.print_json({"tokens": tokens, "next": next_token})
    table = terminal.make_table("id", "name", "role", "state", "created")
    for token in tokens:
        table.add_row(token["id"], token["name"], token["role"], token["state"], format_local_time(token["created"]))
    context.out.print(table)
    if next_token:
        context.print_note(f"There are more: waybill tokens list --page-token {next_token}")
    return None


def create_token(
    context: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will hold it.")],
    role: Annotated[
        Role, typer.Option("--role", help="What it allows; each role includes those before it.")
    ] = "reader",
) -> None:
    """Create a token and print it, this once."""
    with context.open_engine() as engine:
        issued = issue(engine, name, role, who=context.who)
    if context.as_json:
        return context.print_json({"id": issued.record.id, "name": name, "role": role, "token": issued.token})
    context.print_line(issued.token)
    return context.print_note("Keep it: it cannot be shown again.")


def revoke_token(
    context: CommandContext,
    id: Annotated[str, typer.Argument(metavar="ID", help="The token's id; `waybill tokens` lists them.")],
    why: WHY = "",
) -> None:
    """Revoke a token: from now on it is refused."""
    with context.open_engine() as engine:
        record = revoke(engine, id, who=context.who, why=why)
    if context.as_json:
        return context.print_json({"id": id, "state": record.state})
    return context.print_line(f"The token {id} is {record.state.lower()}.")


def print_login_link(
    context: CommandContext,
    name: Annotated[str | None, typer.Option("--name", help="Who signs in.", show_default="you")] = None,
    role: Annotated[
        Role, typer.Option("--role", help="What they may do; each role includes those before it.")
    ] = "admin",
) -> None:
    """Print a link that signs in to the pages once, within ten minutes."""
    with context.open_engine() as engine:
        made = make_login_link(engine, name or context.who, role, who=context.who)
    url = f"{context.environment.address}/login/{made.text}"
    if context.as_json:
        return context.print_json({"id": made.record.id, "name": name or context.who, "role": role, "url": url})
    context.out.print(url, soft_wrap=True)
    return context.print_note("It works once, for ten minutes. Send it only to whom it is for.")


def sessions(context: CommandContext) -> None:
    """List the workers and the records that they work on. A worker that has expired is gone; the next one frees its
    claims.
    """
    with context.open_store() as store:
        now = store.now()
        found = [views.to_session_view(session, now) for session in store.list_sessions()]
    if context.as_json:
        return context.print_json({"sessions": found})
    if not found:
        return context.print_note("No worker is alive; `waybill work` starts one.")
    table = terminal.make_table("session", "host", "process", "since", "", "works on")
    for session in found:
        table.add_row(
            session["name"],
            session["host"],
            str(session["about"].get("pid", "")),
            format_age(session["since"]),
            f"expired {format_age(session['expires'])}" if session["expired"] else "alive",
            ", ".join(f"{step['kind']} {step['id']}" for step in session["steps"]),
        )
    context.out.print(table)
    return None
