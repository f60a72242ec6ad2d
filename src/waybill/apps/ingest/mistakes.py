"""Mistakes: all that is wrong with a document which people write, each with its place, what stands there and what must.

    for where, words in mistakes(Profile, document): ...     ("collections.1", "is 'x', and must be an ARK such as ark:/13030/m5abc")

A rule says in words what it wants: the `description` of its msgspec.Meta. Secrets are not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from waybill.apps.ingest import names

_SECRET = ("password",)
_WANTED = {str: "a text", int: "a number", bool: "true or false", tuple: "a list", dict: "a table of fields"}


def mistakes(kind: type[msgspec.Struct], document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Each as its place and what is wrong there; fields that the kind does not have are not looked at."""
    for field in msgspec.structs.fields(kind):
        where = f"{above}{field.name}"
        if field.name in document:
            yield from _of_value(field.type, document[field.name], where)
        elif field.required:
            yield where, "is missing"


def _of_value(wanted: Any, value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct) and isinstance(value, dict):
        yield from mistakes(wanted, value, f"{where}.")
    elif get_origin(wanted) is tuple and isinstance(value, (list, tuple)):
        for number, each in enumerate(value, start=1):
            yield from _of_value(get_args(wanted)[0], each, f"{where}.{number}")
    elif not _fits(wanted, value):
        there = "is not right" if where.rpartition(".")[2] in _SECRET else f"is {_shown(value)}"
        yield where, f"{there}, and must be {_rule(wanted)}"


def _fits(wanted: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, wanted)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _rule(wanted: Any) -> str:
    origin = get_origin(wanted)
    if origin is Annotated:
        plain, *metas = get_args(wanted)
        return next(
            (meta.description for meta in metas if isinstance(meta, msgspec.Meta) and meta.description), _rule(plain)
        )
    if origin in (Union, UnionType):
        return " or ".join(_rule(each) for each in get_args(wanted) if each is not NoneType)
    if origin is Literal:
        return " or ".join(map(str, get_args(wanted)))
    return _WANTED.get(origin or wanted, "a table of fields")


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a table of fields" if isinstance(value, dict) else "a list"
    return names.shown(value) if isinstance(value, str) else names.shown(str(value))[1:-1]
