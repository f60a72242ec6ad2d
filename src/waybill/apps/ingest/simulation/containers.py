"""Containers in the simulator: zips, tars and bags whose files have the same names everywhere and bytes of their
own; some are broken.

A `Box` says what must be stored of it, by the paths in the object: exactly that, or nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

MANY = 45  # files whose list is too long for a document
REFUSED = ("The container is not taken:", "The bag is not valid:", "The bag is not taken:")  # how reasons begin


class Box(NamedTuple):
    name: str
    data: bytes
    files: dict[str, bytes] | None  # by their paths in the object; None: it cannot be taken


def draw(rng: Random, name: str) -> Box:
    count = MANY if rng.random() < 0.04 else rng.choice((1, 2, 3))
    files = {f"{'d/' if n % 2 else ''}{n}.txt": f"{n} of {name}".encode() for n in range(count)}
    form, bag, broken = rng.choice(("zip", "tar", "tar.gz")), rng.random() < 0.3, rng.random() < 0.15
    packed, stored = _bag(files, wrong=broken and form != "zip") if bag else (files, files)
    data = _packed(form, {**packed, "../outside.txt": b"out"} if broken and not bag and form == "tar.gz" else packed)
    if broken and not (bag and form != "zip") and form != "tar.gz":
        data = data[:-30] if form == "zip" else data[:515]  # it broke off: a tar in the middle of its first file
    producer = {f"producer/{path}": body for path, body in stored.items()}
    return Box(f"{name}.{form}", data, None if broken else producer)


def _bag(files: Mapping[str, bytes], *, wrong: bool) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Its files as they lie in the container, and as they lie in the object."""
    lines = [f"{hashlib.sha256(body + b'!' * wrong).hexdigest()}  data/{path}\n" for path, body in files.items()]
    tags = {
        "bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "manifest-sha256.txt": "".join(lines).encode(),
    }
    packed = {**tags, **{f"data/{path}": body for path, body in files.items()}}
    return packed, {**files, **{f"mrt-bag/{path}": body for path, body in tags.items()}}


def _packed(form: str, files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, body in files.items():
                archive.writestr(zipfile.ZipInfo(path), body)
        return made.getvalue()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, body in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return gzip.compress(made.getvalue(), 1, mtime=0) if form == "tar.gz" else made.getvalue()
