"""The codes of the errors of lots."""

from __future__ import annotations

from waybill.errors import FAILED, ErrorCode

ERROR_CODES = {
    "workload-failed": ErrorCode(
        422,
        FAILED,
        "A workload did not do its work; the message says why.",
        "Look at its output, and mend the command.",
    )
}
