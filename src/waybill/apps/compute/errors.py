"""Refusals in Manta's words: a code, a status and a sentence, answered as `{"code", "message"}`.

Clients look at the code: node-manta appends "Error" to it, python-manta compares it. A refusal of the engine that passes
through a request of the protocol becomes the nearest of Manta's codes (`to_manta_error`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from waybill.errors import WaybillError
from waybill.objects import ObjectStoreUnavailable
from waybill.record import CommitOutcomeUnknown, StoreUnavailable

log = logging.getLogger("waybill.compute")

STATUS_BY_CODE: dict[str, int] = {
    "AccountDoesNotExist": 403,
    "AuthorizationFailed": 403,
    "AuthorizationRequired": 401,
    "BadRequest": 400,
    "ConcurrentRequest": 409,
    "ContentLengthRequired": 411,
    "ContentMD5Mismatch": 400,
    "DirectoryDoesNotExist": 404,
    "DirectoryLimitExceeded": 409,
    "DirectoryNotEmpty": 400,
    "EntityAlreadyExists": 409,
    "InternalError": 500,
    "InvalidAlgorithm": 401,
    "InvalidArgument": 400,
    "InvalidDurabilityLevel": 400,
    "InvalidHeader": 400,
    "InvalidJob": 400,
    "InvalidJobState": 409,
    "InvalidKeyId": 403,
    "InvalidLink": 400,
    "InvalidParameter": 400,
    "InvalidResource": 400,
    "InvalidRoleTag": 409,
    "InvalidSignature": 403,
    "InvalidUpdate": 400,
    "KeyDoesNotExist": 403,
    "LinkNotObject": 400,
    "LocationRequired": 400,
    "MaxContentLengthExceeded": 413,
    "MethodNotAllowed": 405,
    "NotAcceptable": 406,
    "NotEnoughSpace": 507,
    "NotImplemented": 501,
    "OperationNotAllowedOnDirectory": 400,
    "OperationNotAllowedOnRootDirectory": 400,
    "ParentNotDirectory": 400,
    "PreSignedRequest": 403,
    "PreconditionFailed": 412,
    "RequestEntityTooLarge": 413,
    "RequestExpired": 400,
    "RequestedRangeNotSatisfiable": 416,
    "ResourceNotFound": 404,
    "ServiceUnavailable": 503,
    "SourceObjectNotFound": 404,
    "UploadAbandoned": 499,
    "UploadTimeout": 408,
    "UserDoesNotExist": 403,
}


class MantaError(WaybillError):
    """A refusal in Manta's words."""

    code = "refused"

    def __init__(self, manta_code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.manta_code = manta_code
        self.status = STATUS_BY_CODE[manta_code]
        self.headers = dict(headers or {})
        # Of the command line and the native API.
        if self.status == 404:
            self.code = "unknown-name"
        elif self.status == 403:
            self.code = "forbidden"
        elif self.status in (400, 413):
            self.code = "invalid-request"


def not_found(path: str) -> MantaError:
    return MantaError("ResourceNotFound", f"{path} was not found")


def to_manta_error(error: Exception) -> MantaError:
    """The refusal that tells a client of an error that is not Manta's own."""
    if isinstance(error, MantaError):
        return error
    if isinstance(error, (StoreUnavailable, ObjectStoreUnavailable)):
        return MantaError("ServiceUnavailable", str(error), headers={"Retry-After": "2"})
    if isinstance(error, CommitOutcomeUnknown):
        return MantaError("ServiceUnavailable", f"It may have been written: {error}", headers={"Retry-After": "2"})
    if isinstance(error, OSError) and error.errno == 28:
        return MantaError("NotEnoughSpace", "The server has no space left.")
    log.error("a request of the storage protocol failed", exc_info=error)
    return MantaError("InternalError", "The server failed; its log says why.")
