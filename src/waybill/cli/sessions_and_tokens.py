"""Commands about sessions (the workers that are alive), tokens (who may use the API) and links that sign in to the pages."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill import views
from waybill.cli import terminal
from waybill.cli.accounts import LIMIT, PAGE_TOKEN, SCOPE, check_scope_of, find_page_of_accounts
from waybill.cli.command_context import WHY, CommandContext, command
from waybill.errors import InputError
from waybill.sign_in import DAY, make_login_link
from waybill.text_format import format_age, format_local_time
from waybill.tokens import TOKEN, Role, issue, revoke, token_view_of
from waybill.views import ListQuery

PANEL = "Workers, tokens and sign-in"


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=("waybill sessions", "waybill sessions --json"))(sessions)
    command(app, "login-link", panel=PANEL, examples=("waybill login-link", "waybill login-link --user ada"))(
        print_login_link
    )
    tokens = typer.Typer(name="tokens", help="List, create and revoke the tokens of the HTTP API.")
    app.add_typer(tokens, rich_help_panel=PANEL)
    command(tokens, without_subcommand=True, examples=("waybill tokens", "waybill tokens --json"))(list_tokens)
    command(tokens, "list", examples=("waybill tokens list", "waybill tokens list --limit 1000 --json"))(list_tokens)
    command(
        tokens,
        "new",
        examples=(
            "waybill tokens new 'night shift' --role operator",
            "waybill tokens new laptop --user ada --role submitter --days 90",
        ),
    )(create_token)
    command(tokens, "revoke", examples=("waybill tokens revoke 3f9c0a71be42",))(revoke_token)


def list_tokens(context: CommandContext, limit: LIMIT = 50, page_token: PAGE_TOKEN = None) -> None:
    """List the tokens, page by page: who has one, and what it allows. Secrets are never shown again."""
    with context.open_store() as store:
        found, next_token = find_page_of_accounts(store, ListQuery(TOKEN.name), page_token, limit)
    tokens = [token_view_of(record) for record in found]
    if context.as_json:
        return context.print_json({"tokens": tokens, "next": next_token})
    table = terminal.make_table("id", "name", "role", "scope", "user", "state", "created", "expires")
    for token in tokens:
        created, expires = format_local_time(token["created"]), format_local_time(token["expires"])
        row = (token["id"], token["name"], token["role"], token["scope"], token["user"], token["state"], created)
        table.add_row(*row, expires)
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
    scope: SCOPE = "",
    user: Annotated[
        str, typer.Option("--user", metavar="USER", help="Whose it is: it then allows no more than its user may.")
    ] = "",
    days: Annotated[
        float | None, typer.Option("--days", help="Days until it expires.", show_default="it does not")
    ] = None,
) -> None:
    """Create a token and print it, this once."""
    lifetime = days * DAY if days is not None else None
    scope = check_scope_of(context, scope)
    with context.open_engine() as engine:
        issued = issue(engine, name, role, scope=scope, user=user, lifetime=lifetime, who=context.who)
        view = token_view_of(engine.store.get(*issued.record.ref))
    if context.as_json:
        return context.print_json({**view, "token": issued.token})
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
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="A user, who signs in with its own roles.")
    ] = None,
) -> None:
    """Print a link that signs in to the pages once, within ten minutes."""
    if user is not None and name is not None:
        raise InputError("--user says who signs in: leave out --name.", code="usage")
    who_signs_in = user or name or context.who
    with context.open_engine() as engine:
        made = make_login_link(engine, who_signs_in, role, is_user=user is not None, who=context.who)
    url = f"{context.environment.address}/login/{made.text}"
    if context.as_json:
        shown_role = role if user is None else ""
        return context.print_json({"id": made.record.id, "name": who_signs_in, "role": shown_role, "url": url})
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
