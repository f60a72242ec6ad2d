"""What the tests of the storage share: deposits of bytes in memory, and all that validators have to say about a
storage root.

Every root is held against the rules of the specification (ocfl_rules.py), and against the community's validator
(community.py).
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.apps.ingest.storage.community import run_community_validator
from tests.apps.ingest.storage.ocfl_rules import find_broken_rules
from waybill.apps.ingest.storage import Deposit, FileToStore, OcflStorage
from waybill.objects import Objects

ARK = "ark:/99999/fk4abc"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Bytes:
    """Sources that are bytes of a test, by name; counts how often each was opened."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.opened: dict[str, int] = {}

    @contextmanager
    def __call__(self, source: str) -> Iterator[bytes]:
        self.opened[source] = self.opened.get(source, 0) + 1
        yield self.held[source]

    def deposit(self, request: str, files: Mapping[str, bytes], object_id: str = ARK, **more: Any) -> Deposit:
        rows = []
        for path, data in files.items():
            self.held[sha256(data)] = data
            rows.append(FileToStore(path, len(data), sha256(data), sha256(data), "text/plain"))
        return Deposit(object=object_id, request=request, files=rows, **more)


def said_by_validator(root: Path, *, warnings: bool = True) -> tuple[int, list[str]]:
    """How many objects there are, and all that anyone has to say about them."""
    count, said = find_broken_rules(root)
    seen, more = run_community_validator(root, warnings)
    return count, [*said, *more, *([] if seen == count else [f"the validator saw {seen} objects, not {count}"])]


def copy_storage(objects: Objects, prefix: str, target: Path) -> Path:
    """What lies below a prefix, as files of a folder, for a validator that reads folders."""
    for info in objects.list(prefix):
        file = target / info.name
        file.parent.mkdir(parents=True, exist_ok=True)
        with objects.get(info.name) as body:
            file.write_bytes(body.read())
    return target / prefix


def files_of(storage: OcflStorage, number: int = 0, object_id: str = ARK) -> dict[str, bytes]:
    """All files of a version by their paths, read through its manifest."""
    found = {}
    with storage.open_manifest(storage.get_version(object_id, number)) as reader:
        for entry in reader:
            with storage.read(object_id, entry.extra["place"]) as body:
                found[entry.uri] = body.read()
    return found
