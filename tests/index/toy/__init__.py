"""A catalogue for tests: the files that some manifests name."""

from collections.abc import Iterable
from dataclasses import dataclass

from waybill.index import CatalogueTables


@dataclass(frozen=True)
class Bill:
    """What the toy is built from: a manifest's name and its lines."""

    name: str
    files: Iterable[tuple[str, int]]


@dataclass(frozen=True)
class Toy:
    name: str = "toy"
    package: str = "tests.index.toy"

    def clear(self, shelf: CatalogueTables) -> int:
        return shelf.execute("clear_some", portion=2)

    def enter(self, shelf: CatalogueTables, source: Bill) -> None:
        with shelf.transaction():
            shelf.execute("forget", bill=source.name)
            for path, size in source.files:
                shelf.execute("enter", path=path, size=size, bill=source.name)


TOY = Toy()
