"""Roles, where they hold, and what follows for a record: who sees it, and who may act on it.

    reader < submitter < operator < admin       each role includes those before it

A *grant* is a role and where it holds, its scope:

    ""                       everywhere
    APPLICATION              for all records of an application
    APPLICATION/TYPE/NAME    within a collection, workspace, dataset or namespace, such as archive/workspace/atlas
    own                      for the records that its holder, or a group of the holder, owns

An `Identity` is whoever makes a request, with the grants that were in force when it was authenticated. It is the one place
that knows: `visibility_of` says which records of a machine it sees, `role_for` what it may do to one of them, and
`waybill.accounts.VisibleStore` reads a store for it. What one may not see is not there (404), what one may not do is
refused with a sentence (403).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from waybill.errors import ActionRefused
from waybill.machine import Machine
from waybill.record import Record, Visibility
from waybill.rules.inputs import check_scope

Role = Literal["reader", "submitter", "operator", "admin"]
ROLES: tuple[Role, ...] = ("reader", "submitter", "operator", "admin")
EVERYWHERE = ""
OWN = "own"
NOTHING = Visibility()

_APPLICATION_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")


class Grant(msgspec.Struct, frozen=True, order=True, omit_defaults=True, forbid_unknown_fields=True):
    """A role, and where it holds."""

    role: Role
    scope: str = EVERYWHERE

    def __str__(self) -> str:
        return f"{self.role} {describe_scope(self.scope)}"


def is_role_sufficient(role: str, needed: str) -> bool:
    """Return whether a role includes the needed one. An unknown role allows nothing and is granted to nobody."""
    return role in ROLES and needed in ROLES and ROLES.index(role) >= ROLES.index(needed)


def check_role_name(role: str) -> Role:
    """Return the role, or raise ActionRefused."""
    for each in ROLES:
        if each == role:
            return each
    raise ActionRefused(f"{role!r} is no role; the roles are {', '.join(ROLES)}, each including those before it.")


def check_grant_scope(scope: str) -> str:
    """Return where a role may hold, or raise ActionRefused."""
    if scope in (EVERYWHERE, OWN) or _APPLICATION_PATTERN.fullmatch(scope):
        return scope
    if "/" not in scope:
        raise ActionRefused(
            f"{scope!r} is no scope of a role: it is {OWN}, an application, or APPLICATION/TYPE/NAME such as archive/workspace/atlas."
        )
    return check_scope(scope)


def describe_scope(scope: str) -> str:
    return "everywhere" if not scope else "for what its holder owns" if scope == OWN else f"within {scope}"


def is_scope_within(inner: str, outer: str) -> bool:
    """Return whether whatever is in the inner scope is in the outer one."""
    return outer in (EVERYWHERE, inner) or (inner != EVERYWHERE and inner.startswith(f"{outer}/"))


def narrow_grants(grants: Iterable[Grant], role: str, scope: str = EVERYWHERE) -> tuple[Grant, ...]:
    """Return what is left of grants for a token that allows no more than this role within this scope."""
    narrowed = []
    for grant in grants:
        lower = grant.role if is_role_sufficient(role, grant.role) else check_role_name(role)
        if is_scope_within(grant.scope, scope):
            narrowed.append(Grant(lower, grant.scope))
        elif is_scope_within(scope, grant.scope):
            narrowed.append(Grant(lower, scope))
    return tuple(sorted(set(narrowed)))


class Identity(NamedTuple):
    """Who makes a request. `token`: the id of the token; `sign_in`: that of the browser's sign-in; neither: somebody on
    this machine, who needs none.
    """

    name: str
    role: Role | Literal[""]  # everywhere; empty: none that holds everywhere
    token: str | None = None
    sign_in: str | None = None
    grants: tuple[Grant, ...] = ()  # all of them, those that hold everywhere included
    owners: tuple[str, ...] = ()  # the names under which it owns records: its own, and those of its groups
    user: str = ""  # the id of its user; empty: a token, or a sign-in, of no user
    is_limited: bool = False  # a token that allows less than its user may: it changes nothing of the user itself

    @classmethod
    def from_grants(cls, name: str, grants: Iterable[Grant], **more: Any) -> Identity:
        held = tuple(sorted(set(grants)))
        return cls(name, _highest(grant.role for grant in held if grant.scope == EVERYWHERE), grants=held, **more)

    def has_role(self, role: str) -> bool:
        """Whether it has this role everywhere."""
        return is_role_sufficient(self.role, role)

    def has_role_somewhere(self, role: str) -> bool:
        """Whether it has this role for some records: which, the other methods say."""
        return self.has_role(role) or any(is_role_sufficient(grant.role, role) for grant in self.grants)

    def has_role_in(self, role: str, scope: str) -> bool:
        """Whether it has this role for whatever is in a scope: an application, or APPLICATION/TYPE/NAME."""
        return self.has_role(role) or any(
            is_role_sufficient(grant.role, role) and is_scope_within(scope, grant.scope) for grant in self.grants
        )

    def role_of(self, owner: str, scope: str, application: str) -> Role | Literal[""]:
        """The highest role for what has this owner and is within this scope, be it a record, a row of a catalogue, or a record that
        is to be made; empty: it may not even be seen.
        """
        roles: list[str] = [self.role]
        for grant in self.grants:
            if (
                (application and grant.scope == application)
                or (scope and grant.scope == scope)
                or (grant.scope == OWN and owner and owner in self.owners)
            ):
                roles.append(grant.role)
        return _highest(roles)

    def visibility_of(self, machine: Machine, application: str) -> Visibility | None:
        """Which records of a machine it sees; None: all. `application`: the one that declares the machine, "": none."""
        if self.has_role("reader") or (application and self.has_role_in("reader", application)):
            return None
        if machine.is_internal:
            return NOTHING
        scopes = tuple(grant.scope for grant in self.grants if "/" in grant.scope)
        return Visibility(self.owners if self._has_own() else (), tuple(sorted(set(scopes))))

    def role_for(self, record: Record, machine: Machine, application: str) -> Role | Literal[""]:
        """The highest role that it has for a record; empty: it may not even see it."""
        owner, scope = (record.owner, record.scope) if not machine.is_internal else ("", "")
        return self.role_of(owner, scope, application)

    def _has_own(self) -> bool:
        return any(grant.scope == OWN for grant in self.grants)


def _highest(roles: Iterable[str]) -> Role | Literal[""]:
    held = set(roles)
    return next((role for role in reversed(ROLES) if role in held), "")
