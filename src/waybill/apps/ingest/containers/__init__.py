"""Containers: zip and tar files (also .tar.gz and .tar.bz2), unpacked into a folder without ever leaving it.

A container comes from a stranger. Its names may point elsewhere, its files may be links, two may have one name, and a
few kilobytes may unpack to terabytes. Nothing of that is corrected silently: whatever is refused is refused with a
sentence about the file, all of them are told at once, and the container is not taken.

    kind_of       by its first bytes, never by its name
    look          every file with its size before anything is unpacked; of a compressed tar this reads it all
    unpack        each file as soon as it lies in the folder, with its size and SHA-256; then BadContainer, if anything was refused

entries.py   what is in a container, and the limits           zips.py, tars.py   the two formats
unpacking.py the walk through it                              folder.py          writing below one folder

Both formats are read here, not by the standard library, which takes a damaged tar for a short one, holds all entries in
memory, and knows names of zips in one encoding. Compression is the standard library's. Owners, modes and times are not
kept; nor are empty folders.
"""

from waybill.apps.ingest.containers.entries import BadContainer, Complaint, Kind, Limits
from waybill.apps.ingest.containers.unpacking import File, Member, kind_of, look, unpack

__all__ = ["BadContainer", "Complaint", "File", "Kind", "Limits", "Member", "kind_of", "look", "unpack"]
