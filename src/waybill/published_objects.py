"""What one application gives to others: the objects of a thing, by the key of that thing (`waybill.tracing`).

An event says which thing is there, `ark:/99999/fk4a` in version 3 or `waybill:lots/lot/orders/1/…` in generation 1. Whoever
hears of it, and wants its bytes, asks for its objects here, without knowing which application has them:

    for each in environment.list_objects_of(key, number):
        with environment.objects.get(each.object) as body: ...

An application answers with `Application.published_objects`. A version and a generation never change, so the answer is the same
whenever it is asked for, in any process and after any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias


class PublishedObject(NamedTuple):
    """One object of a thing."""

    name: str  # what its users call it: a relative path, unique in the thing
    object: str  # its name in the object store of Waybill
    size: int
    sha256: str = ""  # empty: not known


# The objects of (key, number), in a fixed order and in bounded memory; None: the thing is none of this application's. Raises
# NotFound when the version or generation is gone, InputError when its bytes are not in the object store of Waybill.
ObjectLister: TypeAlias = Callable[[str, int], Iterator[PublishedObject] | None]
