"""Objects: named bytes, in a directory (the default) or in S3, behind one protocol.

    with open_objects("/var/lib/waybill/objects") as objects:
        objects.put("jobs/42/files.jsonl", data)

protocol.py is the contract, conformance/ the suite that every driver passes; directory.py and s3.py are the drivers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import parse_qs, unquote, urlsplit

from waybill.objects.directory import Directory
from waybill.objects.names import check_name, check_prefix
from waybill.objects.protocol import (
    PART_LEAST,
    PART_MOST,
    AlreadyThere,
    Body,
    Conditions,
    Damaged,
    Data,
    NoSpace,
    NotAllowed,
    NotFound,
    ObjectInfo,
    Objects,
    ObjectsError,
    PartInfo,
    Precondition,
    Refused,
    Swept,
    Unavailable,
    Unsupported,
    Upload,
    is_not_found,
    is_permanent,
    measure,
)
from waybill.objects.several import Put, put_several
from waybill.objects.signing import Credentials
from waybill.objects.whole import can_put_whole, put_whole

__all__ = [
    "PART_LEAST",
    "PART_MOST",
    "AlreadyThere",
    "Body",
    "Conditions",
    "Credentials",
    "Damaged",
    "Data",
    "Directory",
    "NoSpace",
    "NotAllowed",
    "NotFound",
    "ObjectInfo",
    "Objects",
    "ObjectsError",
    "PartInfo",
    "Precondition",
    "Put",
    "Refused",
    "Swept",
    "Unavailable",
    "Unsupported",
    "Upload",
    "can_put_whole",
    "check_name",
    "check_prefix",
    "is_not_found",
    "is_permanent",
    "measure",
    "open_objects",
    "put_several",
    "put_whole",
]


def open_objects(
    url: str | os.PathLike[str],
    *,
    credentials: Credentials | Callable[[], Credentials] | None = None,
    probe: bool = True,
) -> Objects:
    """Open an object store by its address: a path, `file:///path`, or
    `s3://bucket/prefix?endpoint=https://...&region=...`.

    Credentials never stand in an address: they are passed in, or come from the environment (AWS_ACCESS_KEY_ID and its
    like). An S3 server is asked at once what its conditional writes are worth; `probe=False` puts that off until
    someone needs to know.
    """
    address = os.fspath(url)
    if "://" not in address:
        return Directory(address)
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None:
        raise Refused(
            "An address of objects holds no credentials: pass them in, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path.startswith("/"):
            raise Refused(f"{address!r} is not the address of a directory: write file:///path, or just the path.")
        return Directory(unquote(parts.path))
    if parts.scheme != "s3":
        raise Refused(
            f"{parts.scheme}:// is not an address of objects: use a path, file:///path or s3://bucket/prefix."
        )
    options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    endpoint, region = options.pop("endpoint", None), options.pop("region", None)
    if options:
        raise Refused(
            f"An address of objects may say endpoint and region, not {', '.join(sorted(options))}; credentials never."
        )
    if not parts.netloc or (
        endpoint is not None and (urlsplit(endpoint).scheme not in ("http", "https") or "@" in endpoint)
    ):
        raise Refused("An address in S3 is s3://bucket/prefix?endpoint=https://host, without credentials.")
    try:
        from waybill.objects.s3 import S3
    except ImportError as error:
        raise Refused("Objects in S3 need the package obstore: pip install 'waybill[s3]'.") from error
    objects = S3(
        parts.netloc, unquote(parts.path).strip("/"), endpoint=endpoint, region=region, credentials=credentials
    )
    if probe:
        _ = objects.conditions
    return objects
