"""The settings of lots: the table [app.lots] of the settings file, checked when a process starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from waybill.errors import InputError

Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class LotsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # seconds after the end of a lot in which arrivals that were stamped before it are still written
    margin: Seconds = 1.0
    # bytes that are kept of the standard output, and of the standard error, of an attempt
    output: Positive = 1024 * 1024
    notify: tuple[str, ...] = ()  # who gets a mail when a lot is overdue, beside those whom the dataset names
    podman: str = ""  # the program that runs containers; "": podman or docker, whichever is found


def read(table: Mapping[str, Any]) -> LotsSettings:
    try:
        return msgspec.convert(dict(table), LotsSettings)
    except msgspec.ValidationError as error:
        raise InputError(f"The settings [app.lots] cannot be used: {error}", code="bad-config") from None
