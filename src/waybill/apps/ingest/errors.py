"""The error codes of ingest, beside those of every application (waybill.errors)."""

from __future__ import annotations

from waybill.errors import FAILED, MISSING, USAGE, ErrorCode

_AUDIT = "Tell the server's operator: `waybill ingest audit`."

ERROR_CODES = {
    "bad-profile": ErrorCode(422, FAILED, "A profile has faults.", "Correct it and send it again."),
    "submission-refused": ErrorCode(
        422, FAILED, "What was submitted cannot be ingested.", "Submit it again, corrected."
    ),
    "local-id-taken": ErrorCode(409, FAILED, "A local id belongs to another object of the same owner.", "Use another."),
    "inventory-conflict": ErrorCode(409, FAILED, "The inventory has other data for this version.", _AUDIT),
    "ark-taken": ErrorCode(409, FAILED, "An ARK belongs to another request.", "Draw another one."),
    "storage-failed": ErrorCode(409, FAILED, "The storage service could not do this.", _AUDIT),
    "not-in-storage": ErrorCode(404, MISSING, "The storage has no such object, version or file.", "Check the name."),
    "invalid-deposit": ErrorCode(422, FAILED, "The deposit is not valid.", "Correct it and send it again."),
    "deletion-target-missing": ErrorCode(422, FAILED, "A file to be deleted does not exist.", "Leave it out."),
    "storage-damaged": ErrorCode(409, FAILED, "The stored data is damaged.", _AUDIT),
    "concurrent-write": ErrorCode(
        409, FAILED, "Another writer has written this object meanwhile.", "Try again.", "", 2
    ),
    "source-missing": ErrorCode(409, FAILED, "A working file does not exist, or is not a file.", "Try again.", "", 2),
    "bad-search": ErrorCode(400, USAGE, "The filters cannot be combined.", "Use fewer filters."),
    "not-recorded": ErrorCode(
        403,
        FAILED,
        "The inventory does not have the object, so its files are closed.",
        "Ask again when it is recorded.",
    ),
    "embargo": ErrorCode(
        403, FAILED, "The files of the object are under embargo.", "Ask again when it has ended, or ask an operator."
    ),
}
