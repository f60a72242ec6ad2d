"""What steps, routes and commands use: the settings and the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from photolab.catalogue import PHOTOS
from waybill.index import CatalogueTables

if TYPE_CHECKING:
    from waybill.environment import Environment


class LabSettings(msgspec.Struct, frozen=True):
    max_photos: int = 36  # photos of one roll, at most
    keep_days: float = 90.0  # days after which a roll that nobody collects is discarded


class LabResources:
    def __init__(self, environment: Environment) -> None:
        self.settings = msgspec.convert(environment.config.app.get("photolab", {}), LabSettings)
        self._open_index = environment.open_index

    @contextmanager
    def open_catalogue(self) -> Iterator[CatalogueTables]:
        """A connection of the thread that calls."""
        with closing(self._open_index()) as index:
            yield index.open_catalogue(PHOTOS)
