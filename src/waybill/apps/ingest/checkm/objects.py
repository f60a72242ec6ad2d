"""Objects: which rows of a batch are of one and the same object, as far as the manifest itself says it.

All names of a row, its ARK and its local ids, are names of one object; and so are those of every row that shares one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Name = tuple[str, str]  # sort and name: an ARK that somebody uses as a local id is another name


@dataclass(eq=False)
class _Object:
    names: set[Name] = field(default_factory=set)
    line: int = 0  # the last one that names it


class Objects:
    def __init__(self) -> None:
        self._of: dict[Name, _Object] = {}

    def take(self, line: int, primary_id: str, local_ids: Sequence[str]) -> dict[int, str]:
        """The lines above that are for the object of this one, the last of each that was known as another until now; each with a name that
        both have."""
        named = [*([("ark", primary_id)] if primary_id else []), *(("local", local) for local in local_ids)]
        above: dict[int, str] = {}
        known: list[_Object] = []
        for name in named:
            if (found := self._of.get(name)) is not None and found not in known:
                known.append(found)
                above.setdefault(found.line, name[1])
        one = max(known, key=lambda each: len(each.names), default=_Object())  # the smaller are entered into the largest
        for other in known:
            if other is not one:
                self._of.update(dict.fromkeys(other.names, one))
                one.names |= other.names
        self._of.update(dict.fromkeys(named, one))
        one.names.update(named)
        one.line = line
        return above
