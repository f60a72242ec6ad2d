"""The codes of archive's errors, beside those of its storages and files."""

from __future__ import annotations

from waybill.apps.archive.files import FILE_ERROR_CODES
from waybill.apps.archive.storages import STORAGE_ERROR_CODES
from waybill.errors import FAILED, MISSING, ErrorCode

ERROR_CODES = {
    **STORAGE_ERROR_CODES,
    **FILE_ERROR_CODES,
    "unknown-storage": ErrorCode(404, MISSING, "There is no such storage.", "GET /api/v1/archive/storages lists them."),
    "unknown-workspace": ErrorCode(
        404, MISSING, "There is no such workspace.", "GET /api/v1/archive/quotas lists those that you may use."
    ),
    "unknown-migration": ErrorCode(
        404, MISSING, "There is no such migration.", "GET /api/v1/archive/migrations lists them."
    ),
    "not-yours": ErrorCode(
        403, FAILED, "The migration belongs to somebody else.", "Ask its owner, or a manager of its workspace."
    ),
    "paths-in-use": ErrorCode(
        409, FAILED, "Some of these files are just being archived by another request.", "Wait for it, or cancel it."
    ),
    "quota-used-up": ErrorCode(
        403,
        FAILED,
        "The quota of the workspace on this storage is used up.",
        "Delete a migration, or ask for a larger quota.",
    ),
}
