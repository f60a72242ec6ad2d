"""Objects: which rows of a batch are of one and the same object.

All names of a row, its ARK and its local ids, are names of one object; and so are those of every row that shares one of
them. The manifest itself says that much. `related` also knows to which ARKs local ids belong already: rows that share
no name may be of one object too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from waybill.apps.ingest.checkm.rows import Row

Name = tuple[str, str]  # sort and name: an ARK that somebody uses as a local id is another name


@dataclass(eq=False)
class _Object:
    names: set[Name] = field(default_factory=set)
    line: int = 0  # the last one that names it


class Objects:
    def __init__(self) -> None:
        self._of: dict[Name, _Object] = {}

    def take(self, line: int, primary_id: str, local_ids: Sequence[str], belongs: Iterable[str] = ()) -> dict[int, str]:
        """The lines above that are for the object of this one, the last of each that was known as another until now;
        each with a name that both have. `belongs`: the ARKs to which its local ids are known to belong.
        """
        arks = dict.fromkeys((*([primary_id] if primary_id else []), *belongs))
        named = [*(("ark", ark) for ark in arks), *(("local", local) for local in local_ids)]
        above: dict[int, str] = {}
        known: list[_Object] = []
        for name in named:
            if (found := self._of.get(name)) is not None and found not in known:
                known.append(found)
                above.setdefault(found.line, name[1])
        # the smaller are entered into the largest
        one = max(known, key=lambda each: len(each.names), default=_Object())
        for other in known:
            if other is not one:
                self._of.update(dict.fromkeys(other.names, one))
                one.names |= other.names
        self._of.update(dict.fromkeys(named, one))
        one.names.update(named)
        one.line = line
        return above


def related(rows: Sequence[Row], ark_of: Callable[[str], str | None]) -> Iterator[tuple[Row, str]]:
    """The rows of a batch, each with the lines that it follows, and with the ARK by which it follows more of them
    than the manifest says.

    `ark_of` says to which object a local id belongs already; it is asked once for each.
    """
    objects = Objects()
    known: dict[str, str | None] = {}
    for row in rows:
        for local in row.local_ids if len(rows) > 1 else ():
            if local not in known:
                known[local] = ark_of(local)
        belongs = [ark for local in row.local_ids if (ark := known.get(local))]
        above = objects.take(row.line, row.primary_id, row.local_ids, belongs)
        more = next((above[line] for line in above if line not in row.follows), "")
        yield (msgspec.structs.replace(row, follows=tuple(above)) if tuple(above) != row.follows else row), more
