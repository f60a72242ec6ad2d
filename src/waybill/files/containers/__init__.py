"""Containers: zip and tar files (also .tar.gz and .tar.bz2), unpacked into a folder and never outside of it, and packed
as streams.

A container that is read is untrusted. Its names may point outside, its files may be links, two files may have one name, and a few
kilobytes may unpack to terabytes. Nothing of that is corrected silently: each refused file has a complaint, all
complaints are reported together, and the container is refused.

    kind_of         by its first bytes, never by its name
    list_members    every file with its size before anything is unpacked; reads a compressed tar completely
    unpack          yields each file when it is written, with its size and SHA-256; then raises BadContainer if anything was refused

entries.py   the types: kinds, name endings, members, limits, complaints      zips.py, tars.py   the two formats
unpacker.py  listing and unpacking, the same for both formats; the target folder
packer.py    zips and tars written as streams      member_names.py   names that every disk can hold

Both formats are read here and not by the standard library, which takes a damaged tar for a short one, keeps all entries
in memory, and decodes names of zips in one encoding only. Compression is the standard library's. Owners, modes, times
and empty folders are not kept.
"""

from waybill.files.containers.entries import (
    CONTAINER_ENDINGS,
    BadContainer,
    ContainerComplaint,
    ContainerKind,
    ContainerLimits,
    ContainerMember,
    UnpackedFile,
)
from waybill.files.containers.member_names import MemberNames
from waybill.files.containers.packer import (
    MemberToPack,
    UploadPartSizes,
    ZipPacker,
    compress_gzip,
    pack_tar,
    store_container,
)
from waybill.files.containers.unpacker import kind_of, list_members, unpack

__all__ = [
    "CONTAINER_ENDINGS",
    "BadContainer",
    "ContainerComplaint",
    "ContainerKind",
    "ContainerLimits",
    "ContainerMember",
    "MemberNames",
    "MemberToPack",
    "UnpackedFile",
    "UploadPartSizes",
    "ZipPacker",
    "compress_gzip",
    "kind_of",
    "list_members",
    "pack_tar",
    "store_container",
    "unpack",
]
