"""Who asks, and what it may do to whose storage.

An account owns everything below `/account`. Others read its `public`; an operator may do everything; a running task acts
for the owner of its job, and alone may write into the storage of that job. What belongs to another account is refused
whether it exists or not, so that nobody learns of names that are not its own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from waybill.accounts import OWN, Identity, is_role_sufficient
from waybill.apps.compute.errors import MantaError, not_found
from waybill.apps.compute.paths import StoragePath

APPLICATION = "compute"
Access = Literal["read", "write", "delete"]


class Caller(NamedTuple):
    """`account`: empty for somebody who did not say. `job`: of a running task, its job. `accounts`: others that it acts for,
    such as the groups of a user.
    """

    account: str = ""
    is_operator: bool = False
    job: str = ""
    accounts: tuple[str, ...] = ()
    can_write: bool = True


ANONYMOUS = Caller()


def check_access(caller: Caller, path: StoragePath, access: Access) -> None:
    """Raise unless the caller may do this below the account of the path."""
    if access == "read" and path.area == "public":
        return
    if not may_act_for(caller, path.account):
        if path.job_id and caller.account:
            raise not_found(str(path))
        _refuse(caller, path)
    if access != "read" and not caller.can_write:
        raise MantaError("AuthorizationFailed", f"{caller.account} may only read: it needs the role submitter")
    if path.area == "jobs" and access == "write":
        in_storage = len(path.segments) > 2 and path.segments[1] == "stor"
        if not (in_storage and caller.job == path.job_id):
            _refuse(caller, path)
    if path.area == "reports" and access == "write" and not caller.is_operator:
        _refuse(caller, path)


def may_act_for(caller: Caller, account: str) -> bool:
    return caller.account == account or account in caller.accounts or caller.is_operator


def caller_of(identity: Identity) -> Caller:
    """An identity of the engine as this protocol knows one: a user acts for itself and for its groups. The role of a
    submitter, for what it owns or in this application, lets it write; that of an operator opens all accounts.
    """
    can_write = identity.has_role_in("submitter", APPLICATION) or any(
        grant.scope == OWN and is_role_sufficient(grant.role, "submitter") for grant in identity.grants
    )
    return Caller(
        identity.name, identity.has_role_in("operator", APPLICATION), accounts=identity.owners, can_write=can_write
    )


def _refuse(caller: Caller, path: StoragePath) -> None:
    if not caller.account:
        raise MantaError(
            "AuthorizationRequired", "Authorization is required", headers={"WWW-Authenticate": "Signature"}
        )
    raise MantaError("AuthorizationFailed", f"{caller.account} is not allowed to access {path}")
