"""Manifests: immutable lists of objects with their sizes and digests, streamed in bounded memory.

A manifest is a file of JSON lines in UTF-8, each ended by one `\\n`:

    {"waybill":"manifest","v":1}                                         first line; also "order", "loose" and "about"
    {"uri":"a.txt","size":3,"sha256":"ba7816bf..."}                      one line for each object; more fields may follow
    {"waybill":"end","count":1,"bytes":3,"sha256":"...","header":"..."}  last line

`sha256` of the last line is the SHA-256 of all lines between the first and the last, each with its `\\n`; `header` is
that of the first line. Every line is **canonical**, so that equal lists have equal digests, whatever program wrote them:
no spaces; the fields in the order above, further ones sorted by name, objects inside them too; in strings only `"`, `\\`
and control characters are escaped; numbers are integers that fit into 64 bits. `"order":"uri"` declares that the uris
are strictly ascending by code point, so that none occurs twice.

`"loose":true` declares that the entries are files as they were found: a line may lack `sha256`, and a uri that is not
UTF-8 is there as `"uri_base64"`. In memory such a uri is as `os.fsdecode` returns it. Who opens a loose manifest says
that it can do without digests; everybody else is refused.

The life of a manifest: `write_manifest` streams entries into an object; `open_manifest` streams them out and checks
every line, the order, the totals and both digests. **A manifest is known to be complete only after it was read to the
end**; ManifestError has the number of the line that is wrong.

record_lists.py stores lists of any typed rows, without this format: for the use of one record.
"""

from waybill.manifests.lines import LONGEST_LINE, ManifestEntry, ManifestError, ManifestHeader, ManifestTotals
from waybill.manifests.streams import (
    ManifestReader,
    ManifestWriter,
    WrittenManifest,
    open_manifest,
    read_stated_totals,
    verify_manifest,
    write_manifest,
)

__all__ = [
    "LONGEST_LINE",
    "ManifestEntry",
    "ManifestError",
    "ManifestHeader",
    "ManifestReader",
    "ManifestTotals",
    "ManifestWriter",
    "WrittenManifest",
    "open_manifest",
    "read_stated_totals",
    "verify_manifest",
    "write_manifest",
]
