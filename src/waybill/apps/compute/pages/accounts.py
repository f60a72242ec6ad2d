"""Whose objects and jobs a page shows: one's own, or, for operators, those of any account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.apps.compute import access
from waybill.apps.compute.access import Caller, may_act_for
from waybill.apps.compute.errors import MantaError, not_found
from waybill.apps.compute.jobs import Jobs
from waybill.apps.compute.paths import is_account_name
from waybill.pages import PageContext

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources


def resources_of(context: PageContext) -> ComputeResources:
    found: ComputeResources = context.environment.resources_of("compute")
    return found


def jobs_of(context: PageContext) -> Jobs:
    return Jobs(resources_of(context), context.open_engine)


def caller_of(context: PageContext) -> Caller:
    return access.caller_of(context.user)


def can_write(context: PageContext) -> bool:
    return caller_of(context).can_write


def own_account(context: PageContext) -> str:
    """The account of who looks; empty where the name of the sign-in is none."""
    return context.user.name if is_account_name(context.user.name) else ""


def check_account(context: PageContext, account: str) -> str:
    """Raise not found unless the page may show this account, and forbidden where it may not change it."""
    if not is_account_name(account) or not may_act_for(caller_of(context), account):
        raise not_found(f"/{account}")
    if context.request.method not in ("GET", "HEAD") and not can_write(context):
        raise MantaError("AuthorizationFailed", f"{context.user.name} may only read: it needs the role submitter")
    return account
