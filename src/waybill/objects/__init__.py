"""Objects: named bytes, in a directory (the default) or in S3, behind one interface.

    with open_objects("/var/lib/waybill/objects") as objects:
        objects.put("jobs/42/files.jsonl", data)

protocol.py is the interface, conformance/ the test suite that every driver passes; directory.py and s3.py are the
drivers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import parse_qs, unquote, urlsplit

from waybill.objects.bulk_puts import ObjectPut, can_put_new_folder, put_new_folder, put_several
from waybill.objects.directory import DirectoryObjects
from waybill.objects.directory_folders import open_beneath
from waybill.objects.protocol import (
    MAX_PART_NUMBER,
    MIN_PART_SIZE,
    ContentMismatch,
    ObjectBody,
    ObjectData,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectRequestRefused,
    Objects,
    ObjectsError,
    ObjectStoreCapabilities,
    ObjectStoreUnavailable,
    ObjectUpload,
    PartInfo,
    PreconditionFailed,
    SweepResult,
    UnsupportedObjectOperation,
    check_name,
    check_prefix,
    is_not_found,
    is_permanent,
    measure,
)
from waybill.objects.s3_signing import S3Credentials
from waybill.objects.streams import CheckedStream, StreamedBody, iter_chunks

__all__ = [
    "MAX_PART_NUMBER",
    "MIN_PART_SIZE",
    "CheckedStream",
    "ContentMismatch",
    "DirectoryObjects",
    "ObjectBody",
    "ObjectData",
    "ObjectExists",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectPut",
    "ObjectRequestRefused",
    "ObjectStoreCapabilities",
    "ObjectStoreUnavailable",
    "ObjectUpload",
    "Objects",
    "ObjectsError",
    "PartInfo",
    "PreconditionFailed",
    "S3Credentials",
    "StreamedBody",
    "SweepResult",
    "UnsupportedObjectOperation",
    "can_put_new_folder",
    "check_name",
    "check_prefix",
    "is_not_found",
    "is_permanent",
    "iter_chunks",
    "measure",
    "open_beneath",
    "open_objects",
    "put_new_folder",
    "put_several",
]


def open_objects(
    url: str | os.PathLike[str],
    *,
    credentials: S3Credentials | Callable[[], S3Credentials] | None = None,
    probe: bool = True,
    tries: int = 5,
) -> Objects:
    """Open an object store by its address: a path, `file:///path`, or
    `s3://bucket/prefix?endpoint=https://...&region=...`.

    An address never contains credentials: they are passed in, or come from the environment (AWS_ACCESS_KEY_ID and
    others). An S3 server is probed at once for its conditional writes; with `probe=False`, when they are first needed.
    A request that failed because of the server or the network is sent up to `tries` times.
    """
    address = os.fspath(url)
    if "://" not in address:
        return DirectoryObjects(address)
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None:
        raise ObjectRequestRefused(
            "An address of objects cannot contain credentials: pass them in, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path.startswith("/"):
            raise ObjectRequestRefused(
                f"{address!r} is not the address of a directory: write file:///path, or just the path."
            )
        return DirectoryObjects(unquote(parts.path))
    if parts.scheme != "s3":
        raise ObjectRequestRefused(
            f"{parts.scheme}:// is not an address of objects: use a path, file:///path or s3://bucket/prefix."
        )
    options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    endpoint, region = options.pop("endpoint", None), options.pop("region", None)
    if options:
        raise ObjectRequestRefused(
            f"An address of objects may have endpoint and region, not {', '.join(sorted(options))}; it never contains credentials."
        )
    if not parts.netloc or (
        endpoint is not None and (urlsplit(endpoint).scheme not in ("http", "https") or "@" in endpoint)
    ):
        raise ObjectRequestRefused("An address in S3 is s3://bucket/prefix?endpoint=https://host, without credentials.")
    try:
        from waybill.objects.s3 import S3Objects
    except ImportError as error:
        raise ObjectRequestRefused(
            "Objects in S3 need the package obstore: pip install 'waybill-engine[s3]'."
        ) from error
    objects = S3Objects(
        parts.netloc,
        unquote(parts.path).strip("/"),
        endpoint=endpoint,
        region=region,
        credentials=credentials,
        tries=tries,
    )
    if probe:
        _ = objects.capabilities
    return objects
