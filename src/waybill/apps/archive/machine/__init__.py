"""The machines of archive: a migration is a set of files, a request is one operation on it, a quota is a budget of bytes.

    migration   where the files are: ON_DISK, PUTTING, ON_STORAGE, FAILED, DELETING, DELETED
    request     PUT, MIGRATE, GET, DELETE and MOVE, each through its stages
    intake      objects of another application on their way into a migration
    quota       how many bytes a workspace may have on a storage, has, and has reserved

Requests and intakes have steps. What a step does to its migration and to a quota are acts in the commit of the request, so all
three are always of one mind.
"""

from waybill.apps.archive.machine.documents import (
    Cancelled,
    DeleteRequest,
    Failing,
    GetPlan,
    GetRequest,
    GetSelection,
    MigrationCharge,
    MigrationDocument,
    MigrationFiles,
    MoveCharge,
    MoveRequest,
    Notice,
    Progress,
    PutAttempts,
    QuotaDocument,
    Released,
    RequestDocument,
    RequestKind,
    RequestReport,
    StoppedRequest,
)
from waybill.apps.archive.machine.intake import INTAKE, IntakeDocument, IntakeResult
from waybill.apps.archive.machine.migration import MIGRATION
from waybill.apps.archive.machine.quota import QUOTA
from waybill.apps.archive.machine.request import FLOWS, REQUEST, has_passed

MACHINES = (MIGRATION, REQUEST, QUOTA, INTAKE)

__all__ = [
    "FLOWS",
    "INTAKE",
    "MACHINES",
    "MIGRATION",
    "QUOTA",
    "REQUEST",
    "Cancelled",
    "DeleteRequest",
    "Failing",
    "GetPlan",
    "GetRequest",
    "GetSelection",
    "IntakeDocument",
    "IntakeResult",
    "MigrationCharge",
    "MigrationDocument",
    "MigrationFiles",
    "MoveCharge",
    "MoveRequest",
    "Notice",
    "Progress",
    "PutAttempts",
    "QuotaDocument",
    "Released",
    "RequestDocument",
    "RequestKind",
    "RequestReport",
    "StoppedRequest",
    "has_passed",
]
