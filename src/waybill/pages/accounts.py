"""Accounts in Admin: users, groups, SSH keys, their roles and scopes; and `/account`, which a user has of itself.

    /admin/users             all users, and a new one            /admin/users/NAME      one: roles, keys, tokens, what was done to it
    /admin/groups            all groups, and a new one           /admin/groups/NAME     one: members, managers, roles
    /account                 who I am and what I may do; my password, keys and tokens

Every form names what it does in its field `do`; the functions of waybill.accounts do it and say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from waybill import accounts, views
from waybill.accounts import GROUP, USER, Role
from waybill.accounts.machines import WISHES
from waybill.accounts.roles import ROLES, check_grant_scope, check_role_name
from waybill.engine import Engine
from waybill.errors import InputError
from waybill.http.accounts import check_may_change_user, check_may_see_group
from waybill.http.authentication import check_role
from waybill.http.errors import HttpProblem
from waybill.http.request_context import declare_role
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Store
from waybill.sign_in import DAY
from waybill.tokens import TOKEN, issue, revoke, token_view_of
from waybill.views import ListQuery
from waybill.views.view_types import HistoryEntryView

PAGE_LENGTH = 100
MAX_SHOWN = 200  # tokens of a user, entries of a history

Name = Annotated[str, Path(max_length=200)]
PageToken = Annotated[str | None, Query(max_length=2000)]
Work = Callable[[Engine], object]


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/admin/users", **declare_role("admin"))
    def show_users(context: PageRequest, page_token: PageToken = None) -> Response:
        with context.connections.open_store() as store:
            page, next_token = context.find_page(store, ListQuery(USER.name), page_token, limit=PAGE_LENGTH)
        users = [accounts.to_user_view(record) for record in page.records]
        return context.render("admin/users.html", users=users, next=next_token, roles=ROLES)

    @routes.post("/admin/users", **declare_role("admin"))
    def create_user(context: PageRequest) -> Response:
        id, role = context.get_field("id"), context.get_field("role")
        roles = [accounts.Grant(check_role_name(role), read_scope(context))] if role else []
        with context.connections.open_engine() as engine:
            accounts.create_user(
                engine, id, name=context.get_field("name"), mail=context.get_field("mail"), roles=roles, who=context.who
            )
        return context.redirect(f"/admin/users/{id}", f"the user {id} is created")

    @routes.get("/admin/users/{name}", **declare_role("admin"))
    def show_user(context: PageRequest, name: Name) -> Response:
        return render_user(context, name)

    @routes.post("/admin/users/{name}", **declare_role("admin"))
    def change_user(context: PageRequest, name: Name) -> Response:
        return act_on_user(context, name, f"/admin/users/{name}")

    @routes.get("/admin/groups", **declare_role("admin"))
    def show_groups(context: PageRequest, page_token: PageToken = None) -> Response:
        with context.connections.open_store() as store:
            page, next_token = context.find_page(store, ListQuery(GROUP.name), page_token, limit=PAGE_LENGTH)
        groups = [accounts.to_group_view(record) for record in page.records]
        return context.render("admin/groups.html", groups=groups, next=next_token)

    @routes.post("/admin/groups", **declare_role("admin"))
    def create_group(context: PageRequest) -> Response:
        id = context.get_field("id")
        with context.connections.open_engine() as engine:
            accounts.create_group(engine, id, description=context.get_field("description"), who=context.who)
        return context.redirect(f"/admin/groups/{id}", f"the group {id} is created")

    @routes.get("/admin/groups/{name}", **declare_role("reader", somewhere=True))
    def show_group(context: PageRequest, name: Name) -> Response:
        """For admins, and for those who are in the group or manage it."""
        with context.connections.open_store() as store:
            check_may_see_group(store, context.user, name)
            record = accounts.get_group(store, name)
            history = read_history(store, GROUP.name, name)
            may_manage = accounts.may_manage(store, context.user, name)
        group = accounts.to_group_view(record)
        return context.render("admin/group.html", group=group, history=history, may_manage=may_manage, roles=ROLES)

    @routes.post("/admin/groups/{name}", **declare_role("reader", somewhere=True))
    def change_group(context: PageRequest, name: Name) -> Response:
        do, why, who = context.get_field("do"), context.get_reason(), context.who
        member = context.get_field("member")
        changes: dict[str, Work] = {
            "add": lambda engine: accounts.add_member(engine, name, member, who=who, why=why),
            "remove": lambda engine: accounts.remove_member(engine, name, member, who=who, why=why),
            "add manager": lambda engine: accounts.add_manager(engine, name, member, who=who, why=why),
            "remove manager": lambda engine: accounts.remove_manager(engine, name, member, who=who, why=why),
            "close": lambda engine: accounts.close_group(engine, name, who=who, why=why),
            **make_role_changes(context, name),
        }
        with context.connections.open_engine() as engine:
            check_may_see_group(engine.store, context.user, name)
            if do not in ("add", "remove") or not accounts.may_manage(engine.store, context.user, name):
                check_role(context.user, "admin")
            find_change(changes, do)(engine)
        return context.redirect(f"/admin/groups/{name}", f"{do}: done")

    @routes.get("/account", **declare_role("reader", somewhere=True))
    def show_account(context: PageRequest) -> Response:
        if not context.user.user:
            return context.render("account.html", user=None, issued=None)
        return render_user(context, context.user.user)

    @routes.post("/account", **declare_role("reader", somewhere=True))
    def change_account(context: PageRequest) -> Response:
        check_may_change_user(context.user, context.user.user or " ")
        return act_on_user(context, context.user.user, "/account")

    return routes


def render_user(context: PageContext, name: str, issued: str | None = None) -> Response:
    with context.connections.open_store() as store:
        record = accounts.get_user(store, name)
        keys = [accounts.to_key_view(each) for each in accounts.list_keys(store, name)]
        tokens = store.find(TOKEN.name, owner=name, newest=True, limit=MAX_SHOWN, documents=True).records
        history = read_history(store, USER.name, name)
        identity = accounts.identity_of_user(store, name)
    return context.render(
        "account.html" if context.user.user == name and not context.can("admin") else "admin/user.html",
        user=accounts.to_user_view(record),
        keys=keys,
        tokens=[view for view in map(token_view_of, tokens) if view["user"] == name and view["state"] == "Active"],
        history=history,
        may=sorted(identity.grants) if identity is not None else [],
        roles=ROLES,
        wishes=WISHES,
        issued=issued,
    )


def act_on_user(context: PageContext, name: str, back: str) -> Response:
    """Do what the form of a user says: what users may do of themselves, and the rest for admins."""
    do, why, who = context.get_field("do"), context.get_reason(), context.who
    if do == "new token":
        return _create_token(context, name)
    changes: dict[str, Work] = {
        "change": lambda engine: accounts.change_user(
            engine,
            name,
            name=context.get_field("name"),
            mail=context.get_field("mail"),
            notify=context.form.get("notify", []),
            who=who,
            why=why,
        ),
        "set password": lambda engine: _set_password(context, engine, name),
        "add key": lambda engine: accounts.add_key(
            engine, name, context.get_field("line"), name=context.get_field("name"), who=who
        ),
        "remove key": lambda engine: accounts.remove_key(engine, name, context.get_field("key"), who=who, why=why),
        "revoke token": lambda engine: _revoke_token(context, engine, name),
    }
    if do not in changes:
        check_role(context.user, "admin")
        changes = {
            "disable": lambda engine: accounts.disable_user(engine, name, who=who, why=why),
            "enable": lambda engine: accounts.enable_user(engine, name, who=who, why=why),
            "delete": lambda engine: accounts.delete_user(engine, name, who=who, why=why),
            **make_role_changes(context, name),
        }
    with context.connections.open_engine() as engine:
        accounts.get_user(engine.store, name)
        find_change(changes, do)(engine)
    return context.redirect("/login" if do == "set password" and back == "/account" else back, f"{do}: done")


def make_role_changes(context: PageContext, name: str) -> dict[str, Work]:
    role, scope, why, who = context.get_field("role"), context.get_field("scope"), context.get_reason(), context.who
    return {
        "give role": lambda engine: accounts.grant_role(engine, name, role, read_scope(context), who=who, why=why),
        "take role": lambda engine: accounts.withdraw_role(engine, name, role, scope, who=who, why=why),
    }


def find_change(changes: dict[str, Work], do: str) -> Work:
    if do not in changes:
        raise HttpProblem("bad-request", "The form does not say what to do.", "Load the page again.")
    return changes[do]


def read_scope(context: PageContext) -> str:
    """The scope of a role in a form; a misspelt application would give nothing to anybody."""
    scope = check_grant_scope(context.get_field("scope"))
    name, names = scope.partition("/")[0], [each.name for each in context.environment.applications]
    if name and name != accounts.OWN and name not in names:
        raise InputError(f"There is no application {name!r}; there are {', '.join(names)}.")
    return scope


def read_days(context: PageContext) -> float | None:
    """The seconds until a token expires; None: it does not."""
    days = context.get_field("days")
    if days and not (days.isdecimal() and len(days) < 5 and 0 < int(days) <= 3650):
        raise InputError(f"{days[:20]!r} is no number of days from 1 to 3650; empty: it does not expire.")
    return int(days) * DAY if days else None


def read_history(store: Store, kind: str, id: str) -> list[HistoryEntryView]:
    entries = store.history(kind, id)[-MAX_SHOWN:]
    return [views.to_history_entry_view(entry) for entry in reversed(entries)]


def _set_password(context: PageContext, engine: Engine, name: str) -> object:
    new = context.form.get("password", [""])[0]
    user = accounts.get_user(engine.store, name).document(accounts.UserDocument)
    old = context.form.get("old", [""])[0]
    if not context.can("admin") and user.password and not accounts.check_password(engine.store, name, old):
        raise InputError("The present password is another one. Nothing was changed.", code="forbidden")
    if new != context.form.get("again", [""])[0]:
        raise InputError("The two passwords differ. Nothing was changed.")
    return accounts.set_password(engine, name, new, who=context.who)


def _create_token(context: PageContext, name: str) -> Response:
    role: Role = check_role_name(context.get_field("role"))
    with context.connections.open_engine() as engine:
        issued = issue(
            engine,
            context.get_field("name"),
            role,
            scope=read_scope(context),
            user=name,
            lifetime=read_days(context),
            who=context.who,
        )
    return render_user(context, name, issued.token)


def _revoke_token(context: PageContext, engine: Engine, name: str) -> object:
    id = context.get_field("id")
    record = engine.store.get(TOKEN.name, id)
    if record.owner != name:
        raise HttpProblem("not-found", f"{name} has no token {id}.", "Load the page again.")
    return revoke(engine, id, who=context.who, why=context.get_reason())
