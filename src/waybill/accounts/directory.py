"""The users and groups: created, changed, joined, given roles and taken from them.

Every function is one commit, or says in what order it writes and why a second call is safe. Names are shared: no user and
group are called alike, not even in other letters, and a name is never given again, because histories and owners say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from typing_extensions import TypedDict

from waybill.accounts.machines import (
    ADMIN,
    ADMIN_SCOPE,
    GROUP,
    MAX_GROUPS,
    USER,
    WISHES,
    GroupDocument,
    UserDocument,
    Wish,
)
from waybill.accounts.passwords import hash_password, is_password
from waybill.accounts.roles import OWN, Grant, Identity, check_grant_scope, check_role_name
from waybill.engine import Engine
from waybill.errors import ActionRefused
from waybill.record import Record, RecordExists, RecordNotFound, Ref, Store, Visibility
from waybill.rules import find_id_problem
from waybill.step import Act, New

MAX_TEXT = 200  # characters of a name for people, an address, a description
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_MAIL_PATTERN = re.compile(r"[^@\s,;<>\"]{1,64}@[A-Za-z0-9.-]{1,190}")
_UNIX_USER_PATTERN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


class RoleView(TypedDict):
    role: str
    scope: str


class UserView(TypedDict):
    id: str
    name: str
    mail: str
    notify: list[str]
    unix_user: str
    has_password: bool
    roles: list[RoleView]
    groups: list[str]
    state: str


class GroupView(TypedDict):
    id: str
    description: str
    managers: list[str]
    members: list[str]
    subgroups: list[str]
    roles: list[RoleView]
    groups: list[str]
    state: str


# --- users


def create_user(
    engine: Engine,
    id: str,
    *,
    name: str = "",
    mail: str = "",
    unix_user: str = "",
    notify: Iterable[str] = ("failed",),
    roles: Iterable[Grant] = (),
    who: str = "",
    why: str = "",
) -> Record:
    """Create a user. Raises RecordExists for a name that a user or a group has or had."""
    grants = tuple(sorted({Grant(check_role_name(each.role), check_grant_scope(each.scope)) for each in roles}))
    document = UserDocument(
        _check_text("name", name), _check_mail(mail), _check_wishes(notify), _check_unix_user(unix_user), roles=grants
    )
    _reserve_name(engine.store, "user", id)
    why = "; ".join(filter(None, (why, *(str(each) for each in grants))))
    return engine.submit(New(USER.name, (document,), id=id, owner=id), who=who, why=why)


def change_user(
    engine: Engine,
    id: str,
    *,
    name: str | None = None,
    mail: str | None = None,
    notify: Iterable[str] | None = None,
    unix_user: str | None = None,
    who: str = "",
    why: str = "",
) -> Record:
    """Change what is given."""
    fields: dict[str, object] = {}
    if name is not None:
        fields["name"] = _check_text("name", name)
    if mail is not None:
        fields["mail"] = _check_mail(mail)
    if notify is not None:
        fields["notify"] = _check_wishes(notify)
    if unix_user is not None:
        fields["unix_user"] = _check_unix_user(unix_user)
    return engine.act(Ref(USER.name, id), "change", args=fields, who=who, why=why or ", ".join(fields)).record


def set_password(engine: Engine, id: str, password: str, *, who: str = "") -> Record:
    """Give a user another password; an empty one: none. Whoever is signed in as the user is signed out."""
    from waybill.sign_in import end_sign_ins_of

    hash = hash_password(password) if password else ""
    record = engine.act(Ref(USER.name, id), "set-password", args={"password": hash}, who=who).record
    end_sign_ins_of(engine, id, who=who, why="another password")
    return record


def disable_user(engine: Engine, id: str, *, who: str = "", why: str = "") -> Record:
    """Refuse a user, its keys, tokens and sign-ins: when this returns, everywhere. Not the last admin."""
    return _act_on_admin(engine, Ref(USER.name, id), "disable", {}, who, why)


def enable_user(engine: Engine, id: str, *, who: str = "", why: str = "") -> Record:
    return engine.act(Ref(USER.name, id), "enable", who=who, why=why).record


def delete_user(engine: Engine, id: str, *, who: str = "", why: str = "") -> Record:
    """Erase who a disabled user was. Safe to repeat: it leaves its groups one by one, and is deleted last."""
    for group in get_user(engine.store, id).document(UserDocument).groups:
        remove_member(engine, group, id, who=who, why=f"{id} is deleted")
    return engine.act(Ref(USER.name, id), "delete", who=who, why=why, confirmed=True).record


def check_password(store: Store, id: str, password: str) -> bool:
    """Return whether this is the password of an active user. It takes as long for a user that is not there."""
    record = find_account(store, USER.name, id)
    user = record.find_document(UserDocument) if record is not None and record.state == "Active" else None
    return is_password(user.password if user is not None else "", password)


# --- groups


def create_group(engine: Engine, id: str, *, description: str = "", who: str = "", why: str = "") -> Record:
    document = GroupDocument(_check_text("description", description))
    _reserve_name(engine.store, "group", id)
    return engine.submit(New(GROUP.name, (document,), id=id, owner=id), who=who, why=why)


def change_group(engine: Engine, id: str, *, description: str, who: str = "", why: str = "") -> Record:
    fields = {"description": _check_text("description", description)}
    return engine.act(Ref(GROUP.name, id), "change", args=fields, who=who, why=why).record


def close_group(engine: Engine, id: str, *, who: str = "", why: str = "") -> Record:
    return engine.act(Ref(GROUP.name, id), "close", who=who, why=why, confirmed=True).record


def add_member(engine: Engine, group: str, member: str, *, who: str = "", why: str = "") -> Record:
    """Add a user or a group to a group, in one commit of both."""
    target = find_name(engine.store, member)
    if target.kind == GROUP.name:
        if group in (member, *_list_subgroups(engine.store, member)):
            how = "itself" if group == member else f"{member}, which {group} is in"
            raise ActionRefused(f"The group {group} would be a member of itself: it is {how}. Nothing was changed.")
        return _change_membership(engine, group, target, "add-subgroup", "join", who, why)
    return _change_membership(engine, group, target, "add-member", "join", who, why)


def remove_member(engine: Engine, group: str, member: str, *, who: str = "", why: str = "") -> Record:
    target = find_name(engine.store, member)
    what = "remove-subgroup" if target.kind == GROUP.name else "remove-member"
    return _change_membership(engine, group, target, what, "leave", who, why)


def add_manager(engine: Engine, group: str, user: str, *, who: str = "", why: str = "") -> Record:
    """Let a user change the members of a group."""
    engine.store.get(USER.name, user)  # raises where there is none
    return engine.act(
        Ref(GROUP.name, group), "add-manager", args={"name": user}, who=who, why=_join_why(user, why)
    ).record


def remove_manager(engine: Engine, group: str, user: str, *, who: str = "", why: str = "") -> Record:
    return engine.act(
        Ref(GROUP.name, group), "remove-manager", args={"name": user}, who=who, why=_join_why(user, why)
    ).record


def may_manage(store: Store, identity: Identity, group: str) -> bool:
    """Whether somebody may change the members of a group: an admin, or one of its managers."""
    if identity.has_role("admin"):
        return True
    return bool(identity.user) and identity.user in get_group(store, group).document(GroupDocument).managers


# --- roles


def grant_role(engine: Engine, account: str, role: str, scope: str = "", *, who: str = "", why: str = "") -> Record:
    """Give a role to a user or a group."""
    grant = Grant(check_role_name(role), check_grant_scope(scope))
    target = find_name(engine.store, account)
    args = {"role": grant.role, "scope": grant.scope}
    return engine.act(target, "grant", args=args, who=who, why=_join_why(str(grant), why)).record


def withdraw_role(engine: Engine, account: str, role: str, scope: str = "", *, who: str = "", why: str = "") -> Record:
    """Take a role from a user or a group; not from the last admin."""
    grant = Grant(check_role_name(role), scope)
    target = find_name(engine.store, account)
    args, why = {"role": grant.role, "scope": grant.scope}, _join_why(str(grant), why)
    if grant == ADMIN and target.kind == USER.name:
        return _act_on_admin(engine, target, "withdraw", args, who, why)
    return engine.act(target, "withdraw", args=args, who=who, why=why).record


# --- who somebody is


def find_account(store: Store, kind: str, id: str) -> Record | None:
    if find_id_problem(id):
        return None
    try:
        return store.get(kind, id)
    except RecordNotFound:
        return None


def get_user(store: Store, id: str) -> Record:
    """Return the record of a user. Raises RecordNotFound."""
    return _get_account(store, USER.name, id)


def get_group(store: Store, id: str) -> Record:
    """Return the record of a group. Raises RecordNotFound."""
    return _get_account(store, GROUP.name, id)


def _get_account(store: Store, kind: str, id: str) -> Record:
    if problem := find_id_problem(id):
        raise RecordNotFound(f"There is no {kind} of this name: {problem}")
    return store.get(kind, id)


def find_name(store: Store, name: str) -> Ref:
    """Return the user or the group of this name. Raises RecordNotFound."""
    if not find_id_problem(name):
        found = store.get_many([Ref(USER.name, name), Ref(GROUP.name, name)])
        for ref in found:
            return ref
    raise RecordNotFound(f"There is no user and no group {name[:MAX_TEXT]!r}.")


def identity_of_user(store: Store, id: str) -> Identity | None:
    """Return who a user is now, with the roles of all its groups; None: there is none, or it is disabled.

    A user sees what it owns, whatever its roles.
    """
    record = find_account(store, USER.name, id)
    user = record.find_document(UserDocument) if record is not None and record.state == "Active" else None
    if user is None:
        return None
    groups = _read_groups(store, user.groups)
    grants = {Grant("reader", OWN), *user.roles, *(grant for _, group in groups for grant in group.roles)}
    return Identity.from_grants(id, grants, owners=(id, *(ref for ref, _ in groups)), user=id)


def list_mail_addresses(store: Store, owner: str, wish: Wish) -> list[str]:
    """Return whom to write about what an owner has: a user, or the direct members of a group, who wish it."""
    user = find_account(store, USER.name, owner)
    if user is not None:
        people = {user.ref: user}
    else:
        group = find_account(store, GROUP.name, owner)
        members = group.document(GroupDocument).members if group is not None and group.state == "Active" else ()
        people = store.get_many([Ref(USER.name, member) for member in members[:MAX_GROUPS]])
    documents = [each.document(UserDocument) for each in people.values() if each.state == "Active"]
    return sorted({each.mail for each in documents if each.mail and wish in each.notify})


def to_user_view(record: Record) -> UserView:
    user = record.document(UserDocument)
    return {
        "id": record.id,
        "name": user.name,
        "mail": user.mail,
        "notify": list(user.notify),
        "unix_user": user.unix_user,
        "has_password": bool(user.password),
        "roles": [{"role": grant.role, "scope": grant.scope} for grant in user.roles],
        "groups": list(user.groups),
        "state": record.state,
    }


def to_group_view(record: Record) -> GroupView:
    group = record.document(GroupDocument)
    return {
        "id": record.id,
        "description": group.description,
        "managers": list(group.managers),
        "members": list(group.members),
        "subgroups": list(group.subgroups),
        "roles": [{"role": grant.role, "scope": grant.scope} for grant in group.roles],
        "groups": list(group.groups),
        "state": record.state,
    }


# --- the last admin


def find_other_admin(store: Store, but: Ref) -> Ref | None:
    """Return an admin beside this one: a user, or a token that is no user's and does not expire."""
    from waybill.tokens import TOKEN, TokenDocument

    admins = Visibility(scopes=(ADMIN_SCOPE,))
    for kind in (USER.name, TOKEN.name):
        for record in store.find(kind, state="Active", visibility=admins, limit=2).records:
            if record.ref != but:
                return record.ref
    for record in store.each(TOKEN.name, state="Active", documents=True):  # those of before there were scopes
        if record.ref != but and record.document(TokenDocument).is_lasting_admin():
            return record.ref
    return None


def act_keeping_an_admin(engine: Engine, ref: Ref, action: str, *, who: str = "", why: str = "") -> Record:
    """Act on an admin that ceases to be one. Raises ActionRefused for the last one."""
    return _act_on_admin(engine, ref, action, {}, who, why)


def _act_on_admin(engine: Engine, ref: Ref, action: str, args: Mapping[str, object], who: str, why: str) -> Record:
    """The other admin is written in the same commit, so that two who remove each other cannot both succeed."""
    record = engine.store.get(*ref)
    witnesses: tuple[Act, ...] = ()
    if record.state == "Active" and _is_admin(record):
        other = find_other_admin(engine.store, ref)
        if other is None:
            raise ActionRefused(
                f"{ref} is the last admin: without it nobody could change roles any more. Make another admin first."
            )
        witnesses = (Act(other, "remain", why=f"{action} of {ref}"),)
    return engine.act(ref, action, args=args or None, who=who, why=why, acts=witnesses).record


def _is_admin(record: Record) -> bool:
    from waybill.tokens import TokenDocument

    if record.kind == USER.name:
        return ADMIN in record.document(UserDocument).roles
    return record.document(TokenDocument).is_lasting_admin()


# --- inside


def _change_membership(
    engine: Engine, group: str, member: Ref, action: str, of_member: str, who: str, why: str
) -> Record:
    act = Act(member, of_member, {"name": group}, _join_why(group, why))
    name, why = {"name": member.id}, _join_why(member.id, why)
    return engine.act(Ref(GROUP.name, group), action, args=name, who=who, why=why, acts=(act,)).record


def _read_groups(store: Store, names: Iterable[str]) -> list[tuple[str, GroupDocument]]:
    """Return these groups and those that they are in, each once, level by level; not those that are closed."""
    found: list[tuple[str, GroupDocument]] = []
    seen: set[str] = set()
    level = sorted(set(names))
    while level and len(seen) < MAX_GROUPS:
        seen.update(level)
        records = store.get_many([Ref(GROUP.name, name) for name in level])
        groups = [(each.id, each.document(GroupDocument)) for each in records.values() if each.state == "Active"]
        found += sorted(groups, key=lambda pair: pair[0])
        level = sorted({name for _, group in groups for name in group.groups} - seen)
    return found


def _list_subgroups(store: Store, group: str) -> Iterator[str]:
    """Yield the groups that are in a group, at any depth, each once."""
    seen, level = {group}, [group]
    while level:
        records = store.get_many([Ref(GROUP.name, name) for name in level])
        below = {name for each in records.values() for name in each.document(GroupDocument).subgroups} - seen
        yield from sorted(below)
        seen |= below
        level = sorted(below)


def _reserve_name(store: Store, kind: str, id: str) -> None:
    """Names are unique over users and groups, whatever the case of their letters. Safe to repeat for the same one."""
    if not NAME_PATTERN.fullmatch(id):
        raise ActionRefused(
            f"{id[:MAX_TEXT]!r} is no name of a {kind}: it has 1 to 64 letters, digits and . _ @ + -, and begins with a letter or a digit."
        )
    if id.lower() == OWN:
        raise ActionRefused(f"{id} is a word of the scopes and cannot be the name of a {kind}.")
    holder = store.remember(f"account {id.lower()}", f"{kind} {id}")
    if holder != f"{kind} {id}":
        raise RecordExists(f"The name is taken: there is, or was, a {holder}. Choose another.")


def _check_text(what: str, text: str) -> str:
    if len(text) > MAX_TEXT or not text.isprintable():
        raise ActionRefused(f"The {what} has at most {MAX_TEXT} printable characters.")
    return text.strip()


def _check_mail(mail: str) -> str:
    if mail and not _MAIL_PATTERN.fullmatch(mail):
        raise ActionRefused(f"{mail[:MAX_TEXT]!r} is no mail address.")
    return mail


def _check_unix_user(name: str) -> str:
    if name == "root" or (name and not _UNIX_USER_PATTERN.fullmatch(name)):
        raise ActionRefused(f"{name[:40]!r} cannot be the Unix user of anybody: write the name of an ordinary user.")
    return name


def _check_wishes(wishes: Iterable[str]) -> tuple[Wish, ...]:
    wanted = set(wishes)
    if unknown := sorted(wanted - set(WISHES)):
        raise ActionRefused(f"{unknown[0]!r} is nothing to be notified of; there are {' and '.join(WISHES)}.")
    return tuple(wish for wish in WISHES if wish in wanted)


def _join_why(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what
