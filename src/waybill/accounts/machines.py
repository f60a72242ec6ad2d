"""The records of accounts: users, groups and SSH keys. Built-in machines, so each has a history like any other record.

    user    create -> Active <-> Disabled -> Deleted        what identifies the person is erased; the name stays taken
    group   create -> Active -> Closed                      its roles and its ownership end
    key     add -> Active <-> Removed                       of one user
                     `--> Compromised                       never accepted again, from nobody

A user's document lists the groups that it is a direct member of, and the document of a group its members: both are written
in one commit. So who somebody is is read by following names upwards, and never by a search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from waybill.accounts.roles import EVERYWHERE, Grant, check_grant_scope, check_role_name
from waybill.errors import ActionRefused
from waybill.machine import STAY, Document, Machine, action, end, rest
from waybill.record import DocumentStruct, Record, StructType

MAX_GRANTS = 200  # roles of one account
MAX_GROUPS = 200  # groups of which an account is a direct member
MAX_MEMBERS = 5_000  # of a group: a document has at most 512 KiB
ADMIN = Grant("admin", EVERYWHERE)
ADMIN_SCOPE = "waybill/role/admin"  # the scope of the records of admins, so that they are found without a search

Wish = Literal["done", "failed"]
WISHES: tuple[Wish, ...] = ("done", "failed")


class UserDocument(DocumentStruct, frozen=True):
    """A person, or a program that stands for one."""

    name: str = ""  # for people
    mail: str = ""
    notify: tuple[Wish, ...] = ("failed",)  # what the user wants mail about
    unix_user: str = ""  # as whom an application acts for the user on its hosts
    password: str = ""  # its hash; empty: no sign-in by password
    roles: tuple[Grant, ...] = ()
    groups: tuple[str, ...] = ()  # of which the user is a direct member


class GroupDocument(DocumentStruct, frozen=True):
    """Users and groups that share roles, and own records together."""

    description: str = ""
    managers: tuple[str, ...] = ()  # users who may change the members
    members: tuple[str, ...] = ()  # users
    subgroups: tuple[str, ...] = ()  # groups whose members are members too
    roles: tuple[Grant, ...] = ()
    groups: tuple[str, ...] = ()  # of which this group is a direct member


class KeyDocument(DocumentStruct, frozen=True):
    """An SSH public key; the owner of the record is its user."""

    name: str
    line: str  # as OpenSSH writes it
    md5: str  # aa:bb:...
    sha256: str  # SHA256:...


Account = UserDocument | GroupDocument | KeyDocument
Edit = Callable[[Any, Mapping[str, Any]], Account]


def _writes(type: StructType, edit: Edit) -> Callable[[Record, Mapping[str, Any]], tuple[Account]]:
    """What an action writes. It may be taken by hand too, with whatever arguments, on a record that somebody made by hand."""

    def write(record: Record, args: Mapping[str, Any]) -> tuple[Account]:
        account = record.find_document(type)
        if account is None:
            raise ActionRefused(f"{record.ref} says nothing about an account: it was not made here.")
        try:
            return (edit(account, args),)
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise ActionRefused(f"The arguments are not those of the action: {error}.") from error

    return write


def _set_fields(account: Any, args: Mapping[str, Any]) -> Any:
    return msgspec.convert(msgspec.to_builtins(replace(account, **args)), type(account))


def _add_grant(account: Any, args: Mapping[str, Any]) -> Any:
    grant = Grant(check_role_name(args["role"]), check_grant_scope(args["scope"]))
    if isinstance(account, GroupDocument) and grant == ADMIN:
        raise ActionRefused(
            "A group cannot be admin everywhere: its managers could make anybody an admin. Give the role to users."
        )
    if grant in account.roles:
        raise ActionRefused(f"It has the role {grant} already.")
    if len(account.roles) >= MAX_GRANTS:
        raise ActionRefused(f"It has {MAX_GRANTS} roles, the most that are possible; use a group, or a wider scope.")
    return replace(account, roles=tuple(sorted((*account.roles, grant))))


def _remove_grant(account: Any, args: Mapping[str, Any]) -> Any:
    grant = Grant(check_role_name(args["role"]), args["scope"])
    if grant not in account.roles:
        raise ActionRefused(
            f"It has no role {grant}; it has {'; '.join(str(each) for each in account.roles) or 'none'}."
        )
    return replace(account, roles=tuple(each for each in account.roles if each != grant))


def _add_name(field: str, most: int, what: str) -> Edit:
    def edit(account: Any, args: Mapping[str, Any]) -> Any:
        names: tuple[str, ...] = getattr(account, field)
        if args["name"] in names:
            raise ActionRefused(f"{args['name']} is there already.")
        if len(names) >= most:
            raise ActionRefused(f"There are {most:,} {what} already, the most that are possible.")
        return replace(account, **{field: tuple(sorted((*names, args["name"])))})

    return edit


def _remove_name(field: str) -> Edit:
    def edit(account: Any, args: Mapping[str, Any]) -> Any:
        names: tuple[str, ...] = getattr(account, field)
        if args["name"] not in names:
            raise ActionRefused(f"{args['name']} is not there.")
        return replace(account, **{field: tuple(name for name in names if name != args["name"])})

    return edit


def _erase(record: Record, args: Mapping[str, Any]) -> tuple[UserDocument]:
    user = record.find_document(UserDocument)
    return (UserDocument(notify=(), groups=user.groups if user is not None else ()),)


def _scope_of_user(record: Record) -> str:
    user = record.find_document(UserDocument)
    return ADMIN_SCOPE if user is not None and ADMIN in user.roles else ""


def _account_actions(type: StructType, states: str) -> tuple[Any, ...]:
    return (
        action("change", states, STAY, "Change its description.", role="admin", writes=_writes(type, _set_fields)),
        action("grant", states, STAY, "Give it a role.", role="admin", writes=_writes(type, _add_grant)),
        action("withdraw", states, STAY, "Take a role from it.", role="admin", writes=_writes(type, _remove_grant)),
        action("join", states, STAY, "Make it a member of a group.", role="admin",
               writes=_writes(type, _add_name("groups", MAX_GROUPS, "groups"))),
        action("leave", states, STAY, "End its membership of a group.", role="admin",
               writes=_writes(type, _remove_name("groups"))),
    )  # fmt: skip


USER = Machine(
    name="user",
    plural="users",
    description="A person who signs in, sends requests and owns records.",
    made_by="`waybill users new`, or by POST /api/v1/users",
    scope_of=_scope_of_user,
    states=(
        rest("Active", description="May do what its roles allow.", settled=True),
        rest("Disabled", description="Its password, keys and tokens are refused.", settled=True),
        end("Deleted", description="Who it was is erased; its name is never given to another."),
    ),
    actions=(
        *_account_actions(UserDocument, "Active Disabled"),
        action("set-password", "Active", STAY, "Give it another password, or none.", role="admin",
               writes=_writes(UserDocument, _set_fields)),
        action("remain", "Active", STAY, "It stays an admin while another one goes.", role="admin",
               writes=lambda record, args: ()),
        action("disable", "Active", "Disabled", "Refuse it from now on.", role="admin"),
        action("enable", "Disabled", "Active", "Let it in again.", role="admin"),
        action("delete", "Disabled", "Deleted", "Erase who it was.", role="admin",
               confirm="Its name, mail address, password and roles are erased.", writes=_erase),
    ),
    documents=(
        Document("user", UserDocument, "service", "Who it is, its roles and its groups.", secret=("password",)),
    ),
)  # fmt: skip

GROUP = Machine(
    name="group",
    plural="groups",
    description="Users and groups that share roles, and own records together.",
    made_by="`waybill groups new`, or by POST /api/v1/groups",
    states=(
        rest("Active", description="Its members have its roles, and see what it owns.", settled=True),
        end("Closed", description="It gives nothing to its members any more."),
    ),
    actions=(
        *_account_actions(GroupDocument, "Active"),
        action("add-member", "Active", STAY, "Add a user.", role="admin",
               writes=_writes(GroupDocument, _add_name("members", MAX_MEMBERS, "members"))),
        action("remove-member", "Active", STAY, "Remove a user.", role="admin",
               writes=_writes(GroupDocument, _remove_name("members"))),
        action("add-subgroup", "Active", STAY, "Add a group.", role="admin",
               writes=_writes(GroupDocument, _add_name("subgroups", MAX_GROUPS, "groups in it"))),
        action("remove-subgroup", "Active", STAY, "Remove a group.", role="admin",
               writes=_writes(GroupDocument, _remove_name("subgroups"))),
        action("add-manager", "Active", STAY, "Let a user change the members.", role="admin",
               writes=_writes(GroupDocument, _add_name("managers", MAX_GROUPS, "managers"))),
        action("remove-manager", "Active", STAY, "Take that from a user.", role="admin",
               writes=_writes(GroupDocument, _remove_name("managers"))),
        action("close", "Active", "Closed", "End it for good.", role="admin",
               confirm="Its members lose its roles, and nobody sees any more what it owns but by other roles."),
    ),
    documents=(Document("group", GroupDocument, "service", "Its members, managers and roles."),),
)  # fmt: skip

KEY = Machine(
    name="key",
    plural="SSH keys",
    description="The SSH public key of a user.",
    made_by="`waybill keys add`, or by POST /api/v1/users/{name}/keys",
    states=(
        rest("Active", description="Signatures by it are accepted.", settled=True),
        rest("Removed", description="It is refused; it can be added again.", settled=True),
        end("Compromised", description="It is refused for ever, from everybody."),
    ),
    actions=(
        action("remove", "Active", "Removed", "Refuse it from now on.", role="admin"),
        action("restore", "Removed", "Active", "Accept it again.", role="admin",
               writes=_writes(KeyDocument, lambda key, args: replace(key, name=args.get("name", key.name)))),
        action("mark-compromised", "Active Removed", "Compromised", "Others have it: never accept it again.", role="admin"),
    ),
    documents=(Document("key", KeyDocument, "service", "The key, and its fingerprints."),),
)  # fmt: skip

ACCOUNT_KINDS = frozenset((USER.name, GROUP.name, KEY.name))
