"""Commands about accounts: users, groups, their roles, and SSH keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill import accounts, views
from waybill.accounts import GROUP, KEY, USER, Grant, GroupView, Role, UserView
from waybill.accounts.roles import check_grant_scope, describe_scope
from waybill.cli import terminal
from waybill.cli.command_context import WHY, CommandContext, command
from waybill.errors import InputError
from waybill.record import MAX_PAGE, Record, Store
from waybill.text_format import format_local_time
from waybill.views import ListQuery, PageTokens

PANEL = "Accounts"
LIMIT = Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many a page has.")]
PAGE_TOKEN = Annotated[
    str | None, typer.Option("--page-token", help="Continue after an earlier page, which printed this token.")
]
USER_NAME = Annotated[str, typer.Argument(metavar="USER", help="The name of the user.")]
GROUP_NAME = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]
ACCOUNT = Annotated[str, typer.Argument(metavar="NAME", help="The name of a user or a group.")]
ROLE = Annotated[
    Role, typer.Argument(metavar="ROLE", help="reader, submitter, operator or admin; each includes those before it.")
]
SCOPE = Annotated[
    str,
    typer.Option(
        "--in",
        metavar="SCOPE",
        help="Where it holds: own, an application, or APPLICATION/TYPE/NAME such as archive/workspace/atlas.",
        show_default="everywhere",
    ),
]
FULL_NAME = Annotated[str | None, typer.Option("--name", help="The name for people.")]
MAIL = Annotated[str | None, typer.Option("--mail", help="The mail address.")]
NOTIFY = Annotated[
    str | None, typer.Option("--notify", metavar="done,failed", help="What the user wants mail about; '' for nothing.")
]
UNIX_USER = Annotated[str | None, typer.Option("--unix-user", help="As whom an application acts for the user.")]


def register(app: typer.Typer) -> None:
    users = typer.Typer(name="users", help="Who may sign in, send requests and own records.")
    app.add_typer(users, rich_help_panel=PANEL)
    command(users, without_subcommand=True, examples=("waybill users", "waybill users --json"))(list_users)
    command(users, "list", examples=("waybill users list --limit 1000 --json",))(list_users)
    command(users, "show", examples=("waybill users show ada", "waybill users show ada --json"))(show_user)
    command(users, "new", examples=("waybill users new ada --mail ada@example.org --role submitter --in own",))(
        new_user
    )
    command(users, "change", examples=("waybill users change ada --mail ada@example.com --notify done,failed",))(
        change_user
    )
    command(users, "password", examples=("waybill users password ada", "waybill users password ada --remove"))(
        set_password
    )
    command(users, "grant", examples=("waybill users grant ada operator --in archive/workspace/atlas",))(grant)
    command(users, "withdraw", examples=("waybill users withdraw ada operator --in archive/workspace/atlas",))(withdraw)
    command(users, "disable", examples=("waybill users disable ada --why 'has left'",))(disable_user)
    command(users, "enable", examples=("waybill users enable ada",))(enable_user)
    command(users, "delete", examples=("waybill users delete ada --yes",))(delete_user)
    groups = typer.Typer(name="groups", help="Users and groups that share roles, and own records together.")
    app.add_typer(groups, rich_help_panel=PANEL)
    command(groups, without_subcommand=True, examples=("waybill groups", "waybill groups --json"))(list_groups)
    command(groups, "list", examples=("waybill groups list --limit 1000 --json",))(list_groups)
    command(groups, "show", examples=("waybill groups show atlas",))(show_group)
    command(groups, "new", examples=("waybill groups new atlas --description 'the atlas project'",))(new_group)
    command(groups, "add", examples=("waybill groups add atlas ada", "waybill groups add atlas ada --manager"))(
        add_member
    )
    command(groups, "remove", examples=("waybill groups remove atlas ada",))(remove_member)
    command(groups, "grant", examples=("waybill groups grant atlas submitter --in archive/workspace/atlas",))(grant)
    command(groups, "withdraw", examples=("waybill groups withdraw atlas submitter --in archive/workspace/atlas",))(
        withdraw
    )
    command(groups, "close", examples=("waybill groups close atlas --yes",))(close_group)
    keys = typer.Typer(name="keys", help="The SSH public keys of users.")
    app.add_typer(keys, rich_help_panel=PANEL)
    command(keys, without_subcommand=True, examples=("waybill keys", "waybill keys --json"))(list_keys)
    command(keys, "list", examples=("waybill keys list --user ada",))(list_keys)
    command(keys, "add", examples=("waybill keys add ada ~/.ssh/id_ed25519.pub", "waybill keys add ada -"))(add_key)
    command(keys, "remove", examples=("waybill keys remove ada laptop --why 'a new laptop'",))(remove_key)


# --- users


def list_users(context: CommandContext, limit: LIMIT = 50, page_token: PAGE_TOKEN = None) -> None:
    """List the users, page by page."""
    found, next_token = _find_accounts(context, USER.name, limit, page_token)
    users = [accounts.to_user_view(record) for record in found]
    if context.as_json:
        return context.print_json({"users": users, "next": next_token})
    table = terminal.make_table("user", "name", "mail", "roles", "groups", "state", unfolded=("user",))
    for user in users:
        table.add_row(
            user["id"], user["name"], user["mail"], _describe_roles(user), ", ".join(user["groups"]), user["state"]
        )
    return _print_page(context, table, "users", next_token)


def show_user(context: CommandContext, name: USER_NAME) -> None:
    """Show a user: who it is, its roles and groups, its keys, and what was done to it."""
    with context.open_store() as store:
        record = accounts.get_user(store, name)
        user = accounts.to_user_view(record)
        keys = [accounts.to_key_view(each) for each in accounts.list_keys(store, name)]
        history = [views.to_history_entry_view(entry) for entry in store.history(*record.ref)]
        identity = accounts.identity_of_user(store, name)
    effective = sorted(identity.grants) if identity is not None else []
    if context.as_json:
        may = [{"role": grant.role, "scope": grant.scope} for grant in effective]
        return context.print_json({**user, "may": may, "keys": keys, "history": history})
    _print_fields(context, {**user, "notify": ", ".join(user["notify"]), "has_password": "yes" if user["has_password"] else "no",
                            "roles": _describe_roles(user), "groups": ", ".join(user["groups"]),
                            "may": "; ".join(str(grant) for grant in effective) or "nothing",
                            "keys": ", ".join(f"{key['name']} ({key['sha256']})" for key in keys)})  # fmt: skip
    return _print_history(context, history)


def new_user(
    context: CommandContext,
    user: USER_NAME,
    name: FULL_NAME = None,
    mail: MAIL = None,
    notify: NOTIFY = None,
    unix_user: UNIX_USER = None,
    role: Annotated[Role | None, typer.Option("--role", help="A first role.")] = None,
    scope: SCOPE = "",
    why: WHY = "",
) -> None:
    """Create a user. `waybill users password`, `waybill keys add` or `waybill login-link --user` let it in."""
    if scope and role is None:
        raise InputError("--in says where a role holds: give --role too.", code="usage")
    roles = [Grant(role, check_scope_of(context, scope))] if role is not None else []
    with context.open_engine() as engine:
        record = accounts.create_user(
            engine,
            user,
            name=name or "",
            mail=mail or "",
            notify=_parse_wishes(notify) if notify is not None else ("failed",),
            unix_user=unix_user or "",
            roles=roles,
            who=context.who,
            why=why,
        )
        return _print_user(context, engine.store.get(*record.ref), f"The user {user} is created.")


def change_user(
    context: CommandContext,
    user: USER_NAME,
    name: FULL_NAME = None,
    mail: MAIL = None,
    notify: NOTIFY = None,
    unix_user: UNIX_USER = None,
    why: WHY = "",
) -> None:
    """Change what is given of a user."""
    wishes = _parse_wishes(notify) if notify is not None else None
    if all(each is None for each in (name, mail, notify, unix_user)):
        raise InputError("Nothing is given to be changed; see --help.", code="usage")
    with context.open_engine() as engine:
        record = accounts.change_user(
            engine, user, name=name, mail=mail, notify=wishes, unix_user=unix_user, who=context.who, why=why
        )
        return _print_user(context, engine.store.get(*record.ref), f"The user {user} is changed.")


def set_password(
    context: CommandContext,
    user: USER_NAME,
    remove: Annotated[bool, typer.Option("--remove", help="No sign-in by password any more.")] = False,
) -> None:
    """Give a user another password, which is asked for, or read from stdin. Its sign-ins end."""
    password = "" if remove else _read_password(context)
    with context.open_engine() as engine:
        record = accounts.set_password(engine, user, password, who=context.who)
        said = f"{user} has no password any more." if remove else f"The password of {user} is set."
        return _print_user(context, engine.store.get(*record.ref), said)


def grant(context: CommandContext, account: ACCOUNT, role: ROLE, scope: SCOPE = "", why: WHY = "") -> None:
    """Give a role to a user or a group, everywhere or within a scope."""
    with context.open_engine() as engine:
        record = accounts.grant_role(engine, account, role, check_scope_of(context, scope), who=context.who, why=why)
        return _print_account(context, engine.store.get(*record.ref), f"{account} is {role} {describe_scope(scope)}.")


def withdraw(context: CommandContext, account: ACCOUNT, role: ROLE, scope: SCOPE = "", why: WHY = "") -> None:
    """Take a role from a user or a group; not from the last admin."""
    with context.open_engine() as engine:
        record = accounts.withdraw_role(engine, account, role, scope, who=context.who, why=why)
        return _print_account(
            context, engine.store.get(*record.ref), f"{account} is not {role} {describe_scope(scope)} any more."
        )


def disable_user(context: CommandContext, user: USER_NAME, why: WHY = "") -> None:
    """Refuse a user, its keys, tokens and sign-ins from now on. Not the last admin."""
    with context.open_engine() as engine:
        record = accounts.disable_user(engine, user, who=context.who, why=why)
        return _print_user(context, engine.store.get(*record.ref), f"{user} is disabled.")


def enable_user(context: CommandContext, user: USER_NAME, why: WHY = "") -> None:
    """Let a disabled user in again."""
    with context.open_engine() as engine:
        record = accounts.enable_user(engine, user, who=context.who, why=why)
        return _print_user(context, engine.store.get(*record.ref), f"{user} is let in again.")


def delete_user(
    context: CommandContext,
    user: USER_NAME,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    why: WHY = "",
) -> None:
    """Erase who a disabled user was. Its name stays taken, and its records stay."""
    _confirm(context, yes, f"The name, mail address, password and roles of {user} are erased.")
    with context.open_engine() as engine:
        record = accounts.delete_user(engine, user, who=context.who, why=why)
        return _print_user(context, engine.store.get(*record.ref), f"{user} is deleted.")


# --- groups


def list_groups(context: CommandContext, limit: LIMIT = 50, page_token: PAGE_TOKEN = None) -> None:
    """List the groups, page by page."""
    found, next_token = _find_accounts(context, GROUP.name, limit, page_token)
    groups = [accounts.to_group_view(record) for record in found]
    if context.as_json:
        return context.print_json({"groups": groups, "next": next_token})
    table = terminal.make_table("group", "description", "roles", "managers", "members", "state", unfolded=("group",))
    for group in groups:
        members = terminal.pluralize(len(group["members"]), "user")
        if group["subgroups"]:
            members += ", " + terminal.pluralize(len(group["subgroups"]), "group")
        table.add_row(
            group["id"],
            group["description"],
            _describe_roles(group),
            ", ".join(group["managers"]),
            members,
            group["state"],
        )
    return _print_page(context, table, "groups", next_token)


def show_group(context: CommandContext, name: GROUP_NAME) -> None:
    """Show a group: its members, managers and roles, and what was done to it."""
    with context.open_store() as store:
        record = accounts.get_group(store, name)
        history = [views.to_history_entry_view(entry) for entry in store.history(*record.ref)]
    group = accounts.to_group_view(record)
    if context.as_json:
        return context.print_json({**group, "history": history})
    lists = {field: ", ".join(group[field]) for field in ("managers", "members", "subgroups", "groups")}
    _print_fields(context, {**group, **lists, "roles": _describe_roles(group)})
    return _print_history(context, history)


def new_group(
    context: CommandContext,
    group: GROUP_NAME,
    description: Annotated[str, typer.Option("--description", help="What it is, for people.")] = "",
    why: WHY = "",
) -> None:
    """Create a group."""
    with context.open_engine() as engine:
        record = accounts.create_group(engine, group, description=description, who=context.who, why=why)
        return _print_account(context, engine.store.get(*record.ref), f"The group {group} is created.")


def add_member(
    context: CommandContext,
    group: GROUP_NAME,
    member: ACCOUNT,
    manager: Annotated[bool, typer.Option("--manager", help="As a manager, who may change the members.")] = False,
    why: WHY = "",
) -> None:
    """Add a user or a group to a group."""
    with context.open_engine() as engine:
        add = accounts.add_manager if manager else accounts.add_member
        record = add(engine, group, member, who=context.who, why=why)
        what = "a manager" if manager else "a member"
        return _print_account(context, engine.store.get(*record.ref), f"{member} is {what} of {group}.")


def remove_member(
    context: CommandContext,
    group: GROUP_NAME,
    member: ACCOUNT,
    manager: Annotated[bool, typer.Option("--manager", help="As a manager.")] = False,
    why: WHY = "",
) -> None:
    """Remove a user or a group from a group."""
    with context.open_engine() as engine:
        remove = accounts.remove_manager if manager else accounts.remove_member
        record = remove(engine, group, member, who=context.who, why=why)
        what = "no manager" if manager else "no member"
        return _print_account(context, engine.store.get(*record.ref), f"{member} is {what} of {group} any more.")


def close_group(
    context: CommandContext,
    group: GROUP_NAME,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    why: WHY = "",
) -> None:
    """End a group for good: it gives nothing to its members any more."""
    _confirm(context, yes, f"The members of {group} lose its roles, and do not see any more what it owns.")
    with context.open_engine() as engine:
        record = accounts.close_group(engine, group, who=context.who, why=why)
        return _print_account(context, engine.store.get(*record.ref), f"{group} is closed.")


# --- keys


def list_keys(
    context: CommandContext,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Only those of this user.")] = None,
    limit: LIMIT = 50,
    page_token: PAGE_TOKEN = None,
) -> None:
    """List the SSH keys, page by page."""
    with context.open_store() as store:
        if user is not None:
            accounts.get_user(store, user)
        found, next_token = find_page_of_accounts(store, ListQuery(KEY.name, owner=user), page_token, limit)
    keys = [accounts.to_key_view(record) for record in found]
    if context.as_json:
        return context.print_json({"keys": keys, "next": next_token})
    table = terminal.make_table("user", "name", "type", "bits", "MD5", "SHA256", "state", unfolded=("MD5", "SHA256"))
    for key in keys:
        row = (key["user"], key["name"], key["type"], str(key["bits"]), key["md5"], key["sha256"], key["state"])
        table.add_row(*row)
    return _print_page(context, table, "keys", next_token)


def add_key(
    context: CommandContext,
    user: USER_NAME,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The public key, such as ~/.ssh/id_ed25519.pub; - for stdin.")
    ],
    name: Annotated[str, typer.Option("--name", help="Its name.", show_default="the comment in the file")] = "",
) -> None:
    """Add an SSH public key to a user."""
    line = _read_key(file)
    with context.open_engine() as engine:
        record = accounts.add_key(engine, user, line, name=name, who=context.who)
    key = accounts.to_key_view(record)
    if context.as_json:
        return context.print_json(key)
    return context.print_line(f"{user} has the key {key['name']}: {key['md5']}, {key['sha256']}.")


def remove_key(
    context: CommandContext,
    user: USER_NAME,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its name, or one of its fingerprints.")],
    compromised: Annotated[
        bool, typer.Option("--compromised", help="Others have it: never accept it again, from anybody.")
    ] = False,
    why: WHY = "",
) -> None:
    """Refuse a key from now on."""
    with context.open_engine() as engine:
        record = accounts.remove_key(engine, user, key, is_compromised=compromised, who=context.who, why=why)
        record = engine.store.get(KEY.name, record.id)
    if context.as_json:
        return context.print_json(accounts.to_key_view(record))
    return context.print_line(f"The key {key} of {user} is {record.state.lower()}.")


# --- inside


def check_scope_of(context: CommandContext, scope: str) -> str:
    """Return the scope of a role, or raise: a misspelt application would give nothing to anybody."""
    name = check_grant_scope(scope).partition("/")[0]
    names = [each.name for each in context.environment.applications]
    if name and name != accounts.OWN and name not in names:
        raise InputError(f"There is no application {name!r}; there are {', '.join(names)}.", code="usage")
    return scope


def _find_accounts(
    context: CommandContext, kind: str, limit: int, page_token: str | None
) -> tuple[list[Record], str | None]:
    with context.open_store() as store:
        return find_page_of_accounts(store, ListQuery(kind), page_token, limit)


def find_page_of_accounts(
    store: Store, query: ListQuery, page_token: str | None, limit: int
) -> tuple[list[Record], str | None]:
    after = None
    if page_token is not None:
        token_query, after = PageTokens.from_store(store).verify(page_token)
        if token_query != query:
            raise InputError("This page token belongs to another list; start again without it.", code="bad-page-token")
    page = store.find(query.kind, owner=query.owner, after=after, limit=limit, documents=True)
    # Signing the first token of a store writes its secret: a list of one page is readable even when the disk is full.
    return page.records, PageTokens.from_store(store).sign(query, page.after) if page.after is not None else None


def _print_page(context: CommandContext, table: Any, what: str, next_token: str | None) -> None:
    context.out.print(table)
    if next_token:
        context.print_note(f"There are more: waybill {what} list --page-token {next_token}")


def _print_user(context: CommandContext, record: Record, said: str) -> None:
    return context.print_json(accounts.to_user_view(record)) if context.as_json else context.print_line(said)


def _print_account(context: CommandContext, record: Record, said: str) -> None:
    if not context.as_json:
        return context.print_line(said)
    is_user = record.kind == USER.name
    return context.print_json(accounts.to_user_view(record) if is_user else accounts.to_group_view(record))


def _print_fields(context: CommandContext, fields: Mapping[str, Any]) -> None:
    table = terminal.make_table("", "")
    table.show_header = False
    for name, value in fields.items():
        if value:
            table.add_row(name.replace("_", " "), str(value))
    context.out.print(table)


def _print_history(context: CommandContext, history: list[Any]) -> None:
    table = terminal.make_table("at", "what", "who", "why")
    for entry in history:
        table.add_row(format_local_time(entry["at"]), entry["cause"], entry["who"], entry["why"])
    context.out.print("")
    context.out.print(table)


def _describe_roles(account: UserView | GroupView) -> str:
    return "; ".join(f"{role['role']} {describe_scope(role['scope'])}" for role in account["roles"])


def _parse_wishes(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _confirm(context: CommandContext, yes: bool, what: str) -> None:
    if not yes and not (context.is_interactive and typer.confirm(f"{what} Go on?", err=True)):
        raise InputError(f"{what} Repeat the command with --yes.", code="usage")


def _read_password(context: CommandContext) -> str:
    if context.is_interactive:
        return str(typer.prompt("New password", hide_input=True, confirmation_prompt="Again", err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _read_key(file: str) -> str:
    if file == "-":
        return sys.stdin.read(100_000)
    try:
        with Path(file).expanduser().open("rb") as opened:
            return opened.read(100_000).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.", code="usage") from error
