"""The community's validator, ocfl-py. Of the registered layouts it knows two; the one that is used here is described
to it.
"""

import hashlib
import logging
from pathlib import Path
from typing import Any

from ocfl.layout import Layout  # type: ignore[import-untyped]
from ocfl.layout_registry import add_layout  # type: ignore[import-untyped]
from ocfl.storage_root import StorageRoot  # type: ignore[import-untyped]

LAYOUT = "0004-hashed-n-tuple-storage-layout"


class HashedNTuples(Layout):  # type: ignore[misc]
    """The registered layout 0004, from its description."""

    def __init__(self) -> None:
        self.NAME = LAYOUT
        self.DESCRIPTION = ""
        self.config_read: dict[str, Any] = {}
        self.PARAMS = {
            name: self._keep(name) for name in ("digestAlgorithm", "tupleSize", "numberOfTuples", "shortObjectRoot")
        }

    def _keep(self, name: str) -> Any:
        return lambda value: self.config_read.__setitem__(name, value)

    def identifier_to_path(self, identifier: str) -> str:
        config = self.config_read
        digest = hashlib.new(config["digestAlgorithm"], identifier.encode()).hexdigest()
        size, count = config["tupleSize"], config["numberOfTuples"]
        tuples = [digest[n * size : (n + 1) * size] for n in range(count)]
        return "/".join([*tuples, digest[size * count :] if config["shortObjectRoot"] else digest])


add_layout(LAYOUT, HashedNTuples)


def run_community_validator(root: Path, warnings: bool) -> tuple[int, list[str]]:
    logging.disable(logging.CRITICAL)
    try:
        validator = StorageRoot(str(root))
        validator.registered_extensions.append(LAYOUT)  # it is registered, and the validator's list is older
        validator.validate(log_warnings=warnings)
    finally:
        logging.disable(logging.NOTSET)
    return validator.num_objects or 0, [
        *validator.log.messages,
        *(f"{path}: {words}" for path, words in validator.errors),
    ]
