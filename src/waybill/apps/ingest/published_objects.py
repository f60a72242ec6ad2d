"""The files of a version of an object, for other applications."""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.ingest.identifiers.noid import is_ark
from waybill.apps.ingest.inventory.catalogue import is_foreign_place
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage import MANIFEST_PATH, NotInStorage, OcflStorage
from waybill.errors import InputError, NotFound
from waybill.published_objects import PublishedObject


def list_version_objects(resources: IngestResources, key: str, number: int) -> Iterator[PublishedObject] | None:
    if not is_ark(key):
        return None
    storage = resources.storage
    if not isinstance(storage, OcflStorage):
        raise InputError(f"{key} is stored by another service; its bytes are not in the object store of this one.")
    return _iter_files(storage, key, number)


def _iter_files(storage: OcflStorage, ark: str, number: int) -> Iterator[PublishedObject]:
    try:
        with storage.open_manifest(storage.get_version(ark, number)) as manifest:
            for entry in manifest:
                place = str(entry.extra["place"])
                if is_foreign_place(place):
                    raise InputError(f"The files of {ark} are stored by another service, not here.")
                if entry.uri != MANIFEST_PATH:
                    yield PublishedObject(entry.uri, storage.object_name_of(ark, place), entry.size, entry.sha256)
    except NotInStorage as error:
        raise NotFound(str(error)) from error
