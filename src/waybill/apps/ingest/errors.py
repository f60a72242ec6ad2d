"""The error codes of ingest, beside those of every application (waybill.errors)."""

from __future__ import annotations

from waybill.errors import FAILED, USAGE, ErrorCode

ERROR_CODES = {
    "bad-search": ErrorCode(400, USAGE, "The filters cannot be combined.", "Use fewer filters."),
    "embargo": ErrorCode(
        403, FAILED, "The files of the object are under embargo.", "Ask again when it has ended, or ask an operator."
    ),
}
