"""Manifests: bills of materials. An immutable list of objects with sizes and digests, streamed in bounded memory.

A manifest is a file of JSON lines in UTF-8, each ended by one `\\n`:

    {"waybill":"manifest","v":1}                                         first line; also "order":"uri" and "about":{...}
    {"uri":"a.txt","size":3,"sha256":"ba7816bf..."}                      one line for each object; more fields may follow these three
    {"waybill":"end","count":1,"bytes":3,"sha256":"...","header":"..."}  last line

`sha256` of the last line is the SHA-256 of all lines between the first and the last, each with its `\\n`; `header` is
that of the first line. Every line is **canonical**, so that equal lists have equal digests, whoever wrote them: no
spaces; the fields in the order above, further ones sorted by name, objects inside them too; in texts only `"`, `\\` and
control characters are escaped; numbers are whole and fit into 64 bits. `"order":"uri"` promises that the uris rise
strictly by code point, so that none is there twice.

Its life: `write` streams entries into an object; `read` streams them out again and checks every line, the promise, the
totals and both digests on the way. **Only who read to the end knows that the manifest is whole**: what is wrong is
raised with the number of the line.
"""

from waybill.manifests.lines import LONGEST_LINE, Entry, Header, ManifestError, Totals
from waybill.manifests.streaming import Reader, Writer, Written, glance, read, verify, write

__all__ = [
    "LONGEST_LINE",
    "Entry",
    "Header",
    "ManifestError",
    "Reader",
    "Totals",
    "Writer",
    "Written",
    "glance",
    "read",
    "verify",
    "write",
]
