"""What the files of a migration can be wrong with, sorted by what follows.

AccessRefused     the user may not do this, or there is no such user, folder or path: say so and stop
FileSetChanged    the folder of the set is no longer there, or is another one: say so and stop
ArchiveInvalid    an archive is not what was packed, or would lead out of its target
"""

from __future__ import annotations

from waybill.errors import FAILED, MISSING, ErrorCode, WaybillError

FILE_ERROR_CODES = {
    "file-access-refused": ErrorCode(403, FAILED, "The user may not do this with the files.", "Correct the request."),
    "file-set-changed": ErrorCode(
        409, MISSING, "The folder of the files is gone, or is another one.", "Put it back, or cancel the request."
    ),
    "archive-invalid": ErrorCode(500, FAILED, "An archive is not what was packed.", "Tell the server's operator."),
}


class AccessRefused(WaybillError):
    """The user may not do this with the files."""

    code = "file-access-refused"


class FileSetChanged(WaybillError):
    """The folder of the files is gone, or is another one."""

    code = "file-set-changed"


class ArchiveInvalid(WaybillError):
    """An archive is not what was packed."""

    code = "archive-invalid"


class FileRefused(WaybillError):
    """One file cannot be locked or restored; the text is the reason."""

    code = "file-access-refused"
