"""Objects at rest in a ingest: written to its storage and recorded in its inventory, without an ingest."""

from collections.abc import Mapping
from typing import Any

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.storage.yard import Bytes
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage import OcflStorage, StoredVersion
from waybill.objects import DirectoryObjects

ARK = "ark:/99999/fk4abc"


class StoredObjects:
    def __init__(self, ingest: IngestFixture) -> None:
        self.ingest = ingest
        self.sources = Bytes()
        self.resources: IngestResources = ingest.environment.resources_of("ingest")
        self.storage = OcflStorage(ingest.environment.objects, "ocfl", self.sources)
        self._count = 0

    def add(self, files: Mapping[str, bytes], ark: str = ARK, *, record: bool = True, **more: Any) -> StoredVersion:
        """A new version."""
        self._count += 1
        stored = self.storage.write(self.sources.deposit(f"request {self._count}", files, ark, **more))
        if record:
            self.resources.inventory.record(stored, self.storage)
        return stored

    def flip(self, ark: str, path: str, number: int = 0) -> str:
        """Change one byte of a file at rest; where it lies."""
        objects = self.ingest.environment.objects
        assert isinstance(objects, DirectoryObjects)
        number = number or self.storage.get_version(ark).version
        row = self.resources.inventory.get_file(ark, number, path)
        assert row is not None
        with self.storage.read(ark, row["place"]) as body:
            name = body.info.name
        file = objects.root / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.chmod(0o644)
        file.write_bytes(data)
        return str(row["place"])
