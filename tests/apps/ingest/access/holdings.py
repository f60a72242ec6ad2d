"""Objects at rest in a site: written to its storage and recorded in its inventory, without an ingest."""

from collections.abc import Mapping
from typing import Any

from tests.apps.ingest.site import Site
from tests.apps.ingest.storage.yard import Bytes
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.storage import OcflStorage, Stored
from waybill.objects import Directory

ARK = "ark:/99999/fk4abc"


class Holdings:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.sources = Bytes()
        self.outfit: Outfit = site.depot.outfit("job")
        self.storage = OcflStorage(site.depot.objects, "ocfl", self.sources)
        self._count = 0

    def add(self, files: Mapping[str, bytes], ark: str = ARK, *, record: bool = True, **more: Any) -> Stored:
        """A new version."""
        self._count += 1
        stored = self.storage.write(self.sources.deposit(f"request {self._count}", files, ark, **more))
        if record:
            self.outfit.inventory.record(stored, self.storage)
        return stored

    def flip(self, ark: str, path: str, number: int = 0) -> str:
        """Change one byte of a file at rest; where it lies."""
        objects = self.site.depot.objects
        assert isinstance(objects, Directory)
        number = number or self.storage.stored(ark).version
        row = self.outfit.inventory.file(ark, number, path)
        assert row is not None
        with self.storage.read(ark, row["place"]) as body:
            name = body.info.name
        file = objects.root / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.chmod(0o644)
        file.write_bytes(data)
        return str(row["place"])
