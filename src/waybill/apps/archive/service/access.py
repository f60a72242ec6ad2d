"""Who may do what: members of a workspace see and get its migrations; the owner and its managers delete them.

`Caller.is_operator` is whoever administers this server: it may do everything that a manager may, in every workspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from waybill.apps.archive.catalogue import MigrationRow
from waybill.errors import ActionRefused

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources


@dataclass(frozen=True, slots=True)
class Caller:
    name: str  # the user in whose name files are read and written
    is_operator: bool = False


def check_member(resources: ArchiveResources, caller: Caller, workspace: str) -> None:
    resources.get_workspace(workspace)
    if not (caller.is_operator or resources.is_member(caller.name, workspace)):
        raise ActionRefused(f"{caller.name} is no member of the workspace {workspace}.", code="not-yours")


def can_read(resources: ArchiveResources, caller: Caller, row: MigrationRow) -> bool:
    if caller.is_operator or caller.name == row.owner:
        return True
    # A workspace that the settings no longer have lets nobody in.
    return row.workspace in resources.settings.workspaces and resources.is_member(caller.name, row.workspace)


def check_read(resources: ArchiveResources, caller: Caller, row: MigrationRow) -> None:
    if not can_read(resources, caller, row):
        raise ActionRefused(
            f"Migration {row.number} is in the workspace {row.workspace}, of which {caller.name} is no member.",
            code="not-yours",
        )


def check_write(resources: ArchiveResources, caller: Caller, row: MigrationRow) -> None:
    """Of DELETE, MOVE, undelete and cancel."""
    if caller.is_operator or caller.name == row.owner:
        return
    if row.workspace in resources.settings.workspaces and resources.is_manager(caller.name, row.workspace):
        return
    raise ActionRefused(
        f"Migration {row.number} belongs to {row.owner}; only its owner and the managers of {row.workspace} may change it.",
        code="not-yours",
    )
