"""An object store that calls before and after everything that changes it: to die there, or to be overtaken there."""

from collections.abc import Callable, Iterator
from typing import Any

from waybill.objects import ObjectBody, ObjectInfo, Objects, ObjectStoreCapabilities, UnsupportedObjectOperation


class Died(BaseException):
    """No clean-up runs, as none would in a dead process."""


class Tripwire:
    def __init__(self, objects: Objects, at: Callable[[int], None], *, conditional: bool = True) -> None:
        """`at` is told the number of the moment.

        Without `conditional` conditions are refused, as some S3 servers cannot keep them.
        """
        self._objects, self._at, self._conditional = objects, at, conditional
        self._moment = 0
        self._looked = False

    @property
    def capabilities(self) -> ObjectStoreCapabilities:
        return self._objects.capabilities

    def put(
        self, name: str, data: Any, *, if_absent: bool = False, if_match: str | None = None, **more: Any
    ) -> ObjectInfo:
        if not self._conditional and (if_absent or if_match is not None):
            self._at(self._moment + 1)
            self._looked = True
            raise UnsupportedObjectOperation
        return self._around(lambda: self._objects.put(name, data, if_absent=if_absent, if_match=if_match, **more))

    def delete(self, name: str) -> bool:
        return self._around(lambda: self._objects.delete(name))

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> ObjectBody:
        return self._objects.get(name, start=start, end=end)

    def head(self, name: str) -> ObjectInfo:
        return self._objects.head(name)

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        return self._objects.list(prefix, after=after, limit=limit)

    def _around(self, work: Callable[[], Any]) -> Any:
        # between a look and its write nobody is overtaken here: that is what such a store cannot notice
        if not self._looked:
            self._at(self._moment + 1)
        self._looked = False
        done = work()
        self._at(self._moment + 2)
        self._moment += 2
        return done
