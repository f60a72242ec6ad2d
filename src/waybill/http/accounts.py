"""Users, groups and SSH keys over HTTP: what admins change, what a user may change of itself, what managers change of a group.

Everybody may read and change what is theirs: `/users/{name}` of the caller itself, its keys and its password. All else needs
an admin; the members of a group are changed by its managers too. To others an account is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import Field
from typing_extensions import TypedDict

from waybill import accounts, views
from waybill.accounts import GROUP, USER, GroupView, Identity, KeyView, Role, UserView
from waybill.accounts.directory import MAX_TEXT
from waybill.accounts.passwords import MAX_LENGTH
from waybill.accounts.roles import check_grant_scope
from waybill.accounts.ssh_keys import MAX_LINE
from waybill.engine import Engine
from waybill.http.api_services import ApiServices
from waybill.http.authentication import check_role, require_role
from waybill.http.errors import WRITE_STATUSES, HttpProblem, describe_responses
from waybill.http.json_io import Name, RequestBody, Text, to_json_response
from waybill.record import MAX_PAGE, Record, RecordNotFound, Store
from waybill.views.view_types import HistoryEntryView

Line = Annotated[str, Field(max_length=MAX_TEXT)]
ScopeText = Annotated[
    str, Field(max_length=MAX_TEXT, description="Empty: everywhere; own; an application; APPLICATION/TYPE/NAME.")
]


class UserFieldsBody(RequestBody):
    name: Line | None = Field(None, description="For people.")
    mail: Line | None = None
    notify: list[Literal["done", "failed"]] | None = Field(None, description="What the user wants mail about.")
    unix_user: Line | None = Field(None, description="As whom an application acts for the user.")
    why: Text = ""


class NewUserBody(UserFieldsBody):
    id: Name


class NewGroupBody(RequestBody):
    id: Name
    description: Line = ""
    why: Text = ""


class RoleBody(RequestBody):
    role: Role
    scope: ScopeText = ""
    why: Text = ""


class StateBody(RequestBody):
    state: Literal["Active", "Disabled", "Deleted"]
    why: Text = ""


class PasswordBody(RequestBody):
    password: Annotated[str, Field(max_length=MAX_LENGTH)] = Field(description="Empty: no sign-in by password.")
    old: Annotated[str, Field(max_length=MAX_LENGTH)] = Field("", description="The present one, from the user itself.")


class NewKeyBody(RequestBody):
    line: Annotated[str, Field(max_length=MAX_LINE)] = Field(description="As in the file id_ed25519.pub.")
    name: Annotated[str, Field(max_length=100)] = ""


class UsersView(TypedDict):
    users: list[UserView]
    next: str | None


class GroupsView(TypedDict):
    groups: list[GroupView]
    next: str | None


class KeysView(TypedDict):
    keys: list[KeyView]


class AccountHistoryView(TypedDict):
    entries: list[HistoryEntryView]


PageToken = Annotated[str | None, Query(description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
WhoParameter = Annotated[Identity, require_role("reader", somewhere=True)]
AdminParameter = Annotated[Identity, require_role("admin")]
NameInPath = Annotated[Name, Path()]
WRITES: dict[str, Any] = {"responses": describe_responses(*WRITE_STATUSES)}


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("accounts")

    def list_accounts(kind: str, page_token: str | None, limit: int) -> tuple[list[Record], str | None]:
        with services.connections.open_store() as store:
            page, next_token = views.find_page(
                store,
                views.ListQuery(kind),
                page_token,
                limit=limit,
                documents=True,
                tokens_of=services.get_page_tokens,
            )
        return page.records, next_token

    def change(make: Callable[[Engine], Record], status: int = 200) -> Response:
        """Write, and answer with what the account is then."""
        with services.connections.open_engine() as engine:
            record = engine.store.get(*make(engine).ref)
        is_user = record.kind == USER.name
        return to_json_response(accounts.to_user_view(record) if is_user else accounts.to_group_view(record), status)

    # --- users

    @routes.get("/users", summary="All users", response_model=UsersView)
    def list_users(identity: AdminParameter, page_token: PageToken = None, limit: Limit = 100) -> Response:
        records, next_token = list_accounts(USER.name, page_token, limit)
        return to_json_response({"users": [accounts.to_user_view(each) for each in records], "next": next_token})

    @routes.post("/users", summary="Create a user", status_code=201, response_model=UserView, **WRITES)
    def create_user(identity: AdminParameter, body: NewUserBody) -> Response:
        def make(engine: Engine) -> Record:
            return accounts.create_user(
                engine,
                body.id,
                name=body.name or "",
                mail=body.mail or "",
                notify=body.notify if body.notify is not None else ("failed",),
                unix_user=body.unix_user or "",
                who=identity.name,
                why=body.why,
            )

        return change(make, 201)

    @routes.get("/users/{name}", summary="One user", response_model=UserView)
    def get_user(identity: WhoParameter, name: NameInPath) -> Response:
        """A user may read itself."""
        check_may_see_user(identity, name)
        with services.connections.open_store() as store:
            return to_json_response(accounts.to_user_view(accounts.get_user(store, name)))

    @routes.patch("/users/{name}", summary="Change a user", response_model=UserView, **WRITES)
    def change_user(identity: WhoParameter, name: NameInPath, body: UserFieldsBody) -> Response:
        """What is not given stays. A user may change itself, but not its Unix user."""
        check_may_change_user(identity, name)
        if body.unix_user is not None:
            check_role(identity, "admin")
        return change(
            lambda engine: accounts.change_user(
                engine,
                name,
                name=body.name,
                mail=body.mail,
                notify=body.notify,
                unix_user=body.unix_user,
                who=identity.name,
                why=body.why,
            )
        )

    @routes.put("/users/{name}/state", summary="Disable, enable or delete a user", response_model=UserView, **WRITES)
    def set_user_state(identity: AdminParameter, name: NameInPath, body: StateBody) -> Response:
        """Disabled: refused everywhere from then on; not the last admin. Deleted: erased, once it is disabled."""
        changes = {
            "Active": accounts.enable_user, "Disabled": accounts.disable_user, "Deleted": accounts.delete_user,
        }  # fmt: skip

        def make(engine: Engine) -> Record:
            accounts.get_user(engine.store, name)
            return changes[body.state](engine, name, who=identity.name, why=body.why)

        return change(make)

    @routes.put("/users/{name}/password", summary="Set a password", response_model=UserView, **WRITES)
    def set_password(identity: WhoParameter, name: NameInPath, body: PasswordBody) -> Response:
        """A user gives its present password too, if it has one. Its sign-ins end."""
        check_may_change_user(identity, name)

        def make(engine: Engine) -> Record:
            user = accounts.get_user(engine.store, name).document(accounts.UserDocument)
            is_own = not identity.has_role("admin")
            if is_own and user.password and not accounts.check_password(engine.store, name, body.old):
                raise HttpProblem("forbidden", "`old` is not the present password.", "Nothing was changed.")
            return accounts.set_password(engine, name, body.password, who=identity.name)

        return change(make)

    @routes.get("/users/{name}/history", summary="What was done to a user", response_model=AccountHistoryView)
    def get_user_history(identity: WhoParameter, name: NameInPath) -> Response:
        check_may_see_user(identity, name)
        return to_history_response(lambda store: accounts.get_user(store, name))

    # --- keys

    @routes.get("/users/{name}/keys", summary="The SSH keys of a user", response_model=KeysView)
    def list_keys(identity: WhoParameter, name: NameInPath) -> Response:
        check_may_see_user(identity, name)
        with services.connections.open_store() as store:
            accounts.get_user(store, name)
            keys = [accounts.to_key_view(record) for record in accounts.list_keys(store, name)]
        return to_json_response({"keys": keys})

    @routes.post("/users/{name}/keys", summary="Add an SSH key", status_code=201, response_model=KeyView, **WRITES)
    def add_key(identity: WhoParameter, name: NameInPath, body: NewKeyBody) -> Response:
        check_may_change_user(identity, name)
        with services.connections.open_engine() as engine:
            accounts.get_user(engine.store, name)
            record = accounts.add_key(engine, name, body.line, name=body.name, who=identity.name)
        return to_json_response(accounts.to_key_view(record), 201)

    @routes.delete("/users/{name}/keys/{key:path}", summary="Remove an SSH key", response_model=KeyView, **WRITES)
    def remove_key(
        identity: WhoParameter,
        name: NameInPath,
        key: Annotated[Name, Path(description="Its id, one of its fingerprints, or its name.")],
        compromised: Annotated[bool, Query(description="Others have it: never accept it again.")] = False,
    ) -> Response:
        check_may_change_user(identity, name)
        with services.connections.open_engine() as engine:
            accounts.get_user(engine.store, name)
            record = accounts.remove_key(engine, name, key, is_compromised=compromised, who=identity.name)
            return to_json_response(accounts.to_key_view(engine.store.get(*record.ref)))

    # --- groups

    @routes.get("/groups", summary="All groups", response_model=GroupsView)
    def list_groups(identity: AdminParameter, page_token: PageToken = None, limit: Limit = 100) -> Response:
        records, next_token = list_accounts(GROUP.name, page_token, limit)
        return to_json_response({"groups": [accounts.to_group_view(each) for each in records], "next": next_token})

    @routes.post("/groups", summary="Create a group", status_code=201, response_model=GroupView, **WRITES)
    def create_group(identity: AdminParameter, body: NewGroupBody) -> Response:
        return change(
            lambda engine: accounts.create_group(
                engine, body.id, description=body.description, who=identity.name, why=body.why
            ),
            201,
        )

    @routes.get("/groups/{name}", summary="One group", response_model=GroupView)
    def get_group(identity: WhoParameter, name: NameInPath) -> Response:
        """Its members and managers may read it."""
        with services.connections.open_store() as store:
            check_may_see_group(store, identity, name)
            return to_json_response(accounts.to_group_view(accounts.get_group(store, name)))

    @routes.delete("/groups/{name}", summary="Close a group for good", response_model=GroupView, **WRITES)
    def close_group(identity: AdminParameter, name: NameInPath) -> Response:
        def make(engine: Engine) -> Record:
            accounts.get_group(engine.store, name)
            return accounts.close_group(engine, name, who=identity.name)

        return change(make)

    @routes.get("/groups/{name}/history", summary="What was done to a group", response_model=AccountHistoryView)
    def get_group_history(identity: WhoParameter, name: NameInPath) -> Response:
        def read(store: Store) -> Record:
            check_may_see_group(store, identity, name)
            return accounts.get_group(store, name)

        return to_history_response(read)

    def change_members(
        identity: Identity, name: str, act: Callable[..., Record], member: str, *, is_admin_needed: bool = False
    ) -> Response:
        def make(engine: Engine) -> Record:
            check_may_see_group(engine.store, identity, name)
            if is_admin_needed or not accounts.may_manage(engine.store, identity, name):
                check_role(identity, "admin")
            return act(engine, name, member, who=identity.name)

        return change(make)

    @routes.put("/groups/{name}/members/{member}", summary="Add a user or a group", response_model=GroupView, **WRITES)
    def add_member(identity: WhoParameter, name: NameInPath, member: NameInPath) -> Response:
        """For admins, and the group's managers. A group that would be a member of itself is refused."""
        return change_members(identity, name, accounts.add_member, member)

    @routes.delete(
        "/groups/{name}/members/{member}", summary="Remove a user or a group", response_model=GroupView, **WRITES
    )
    def remove_member(identity: WhoParameter, name: NameInPath, member: NameInPath) -> Response:
        return change_members(identity, name, accounts.remove_member, member)

    @routes.put("/groups/{name}/managers/{member}", summary="Make a user a manager", response_model=GroupView, **WRITES)
    def add_manager(identity: WhoParameter, name: NameInPath, member: NameInPath) -> Response:
        return change_members(identity, name, accounts.add_manager, member, is_admin_needed=True)

    @routes.delete(
        "/groups/{name}/managers/{member}", summary="Make a manager no manager", response_model=GroupView, **WRITES
    )
    def remove_manager(identity: WhoParameter, name: NameInPath, member: NameInPath) -> Response:
        return change_members(identity, name, accounts.remove_manager, member, is_admin_needed=True)

    # --- roles, of users and groups

    def check_scope(scope: str) -> str:
        name = check_grant_scope(scope).partition("/")[0]
        names = [each.name for each in services.environment.applications]
        if name and name != accounts.OWN and name not in names:
            raise HttpProblem("invalid", f"There is no application {name!r}.", f"There are {', '.join(names)}.")
        return scope

    def add_role_routes(prefix: str, read: Callable[[Store, str], Record], view: Any) -> None:
        @routes.post(f"{prefix}/{{name}}/roles", summary="Give a role", response_model=view, **WRITES)
        def grant_role(identity: AdminParameter, name: NameInPath, body: RoleBody) -> Response:
            scope = check_scope(body.scope)

            def make(engine: Engine) -> Record:
                read(engine.store, name)
                return accounts.grant_role(engine, name, body.role, scope, who=identity.name, why=body.why)

            return change(make)

        @routes.delete(f"{prefix}/{{name}}/roles/{{role}}", summary="Take a role", response_model=view, **WRITES)
        def withdraw_role(
            identity: AdminParameter,
            name: NameInPath,
            role: Annotated[Role, Path()],
            scope: Annotated[ScopeText, Query()] = "",
        ) -> Response:
            """Not from the last admin."""

            def make(engine: Engine) -> Record:
                read(engine.store, name)
                return accounts.withdraw_role(engine, name, role, scope, who=identity.name)

            return change(make)

    add_role_routes("/users", accounts.get_user, UserView)
    add_role_routes("/groups", accounts.get_group, GroupView)

    def to_history_response(read: Callable[[Store], Record]) -> Response:
        with services.connections.open_store() as store:
            entries = store.history(*read(store).ref)
        return to_json_response({"entries": [views.to_history_entry_view(entry) for entry in entries]})

    return routes


def check_may_see_user(identity: Identity, name: str) -> None:
    """Raise unless somebody is this user, or an admin."""
    if identity.user != name and not identity.has_role("admin"):
        raise RecordNotFound(f"There is no user {name!r}.")


def check_may_change_user(identity: Identity, name: str) -> None:
    """Raise unless somebody is this user, by more than a token that allows less than the user may, or an admin."""
    check_may_see_user(identity, name)
    if identity.is_limited and not identity.has_role("admin"):
        raise HttpProblem(
            "forbidden",
            f"This token allows less than {name} may, and cannot change who {name} is.",
            "Sign in, or use a token of the role admin: it allows what its user may.",
        )


def check_may_see_group(store: Store, identity: Identity, name: str) -> None:
    """Raise unless somebody is in a group, manages it, or is an admin."""
    if identity.has_role("admin") or name in identity.owners:
        return
    if not accounts.may_manage(store, identity, name):
        raise RecordNotFound(f"There is no group {name!r}.")
