"""The files of a migration: listed, locked, shared out among archives, packed, restored and removed.

entries.py       what is recorded of a file, and lists of that
source_tree.py   a file set by descriptors: opened again, compared, read by nobody's path
listing.py       a file set, as it is found
locking.py       owner and write bits taken, and given back
planning.py      which files go into which archive, and where in it
tar_headers.py   pax headers, written by hand because there are many
packing.py       an archive as a source of bytes
tar_reading.py   an archive read again, which may be anybody's
unpacking.py     an archive to files of a target
restoring.py     owners, modes, times and links, when all archives are unpacked
removal.py       the originals of a MIGRATE
access.py        all that is done with a user's rights, by a process that has become the user

The life of a PUT, as its steps call it:

    with open_access(user) as access:                         # None: as this process itself
        file_set, paths = access.find_file_set(paths)
        found = write_entry_list(objects, NAME, access.list_files(file_set, paths, report))  # durable, before:
        locked = access.lock_files(file_set, read_entry_list(objects, found), report)         # the first change
        for archive in plan_archives(locked, limits): ...     # store archive.entries with write_entry_list
    source = TarSource(file_set, entries_of_one_archive)      # storage.put(batch, name, source)
    source.entries, source.sha256                             # with digests, when it was sent
    unlock_files(file_set, found_entries, report)     # or, of a MIGRATE:
    remove_originals(file_set, packed_entries, report)

and of a GET:

    with open_access(user) as access:
        target = access.make_target(path)
        links = find_link_sources(all_entries, selection)
        access.unpack_archive(chunks, entries_of_one_archive, target, options, report)
        access.finish_restore(target, all_entries, options, report)

What runs twice does no harm: each function says why.
"""

from waybill.apps.archive.files.access import FileAccess, UserIdentity, find_user, open_access
from waybill.apps.archive.files.entries import (
    EntryKind,
    FileEntry,
    FileFailure,
    FileSet,
    ReportFailure,
    decode_entries,
    encode_entries,
    from_manifest_entry,
    read_entry_list,
    to_manifest_entry,
    to_printable,
    write_entry_list,
)
from waybill.apps.archive.files.errors import FILE_ERROR_CODES, AccessRefused, ArchiveInvalid, FileSetChanged
from waybill.apps.archive.files.locking import unlock_files
from waybill.apps.archive.files.packing import TarSource, write_staged_archive
from waybill.apps.archive.files.planning import ArchiveLimits, PlannedArchive, plan_archives
from waybill.apps.archive.files.removal import RemovalCounts, remove_originals
from waybill.apps.archive.files.restoring import OwnerPolicy, RestoreOptions, UnpackedCounts
from waybill.apps.archive.files.selection import Selection, find_link_sources
from waybill.apps.archive.files.source_tree import SourceTree, find_changed

__all__ = [
    "FILE_ERROR_CODES",
    "AccessRefused",
    "ArchiveInvalid",
    "ArchiveLimits",
    "EntryKind",
    "FileAccess",
    "FileEntry",
    "FileFailure",
    "FileSet",
    "FileSetChanged",
    "OwnerPolicy",
    "PlannedArchive",
    "RemovalCounts",
    "ReportFailure",
    "RestoreOptions",
    "Selection",
    "SourceTree",
    "TarSource",
    "UnpackedCounts",
    "UserIdentity",
    "decode_entries",
    "encode_entries",
    "find_changed",
    "find_link_sources",
    "find_user",
    "from_manifest_entry",
    "open_access",
    "plan_archives",
    "read_entry_list",
    "remove_originals",
    "to_manifest_entry",
    "to_printable",
    "unlock_files",
    "write_entry_list",
    "write_staged_archive",
]
