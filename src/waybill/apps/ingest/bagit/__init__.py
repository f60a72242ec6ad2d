"""BagIt: a folder that says of itself what it holds (RFC 8493, versions 0.97 and 1.0), and whether it really does.

    bagit.txt                    the version, and the encoding of the files beside it
    manifest-sha256.txt          digest and name of each payload file; there may be several, for several algorithms
    tagmanifest-sha256.txt       the same for the files beside it
    bag-info.txt                 about the bag; `Payload-Oxum: bytes.files` is checked
    fetch.txt                    payload files that are elsewhere: listed, never fetched; a bag that lacks them is not complete
    data/                        the payload

`find` looks for the bag in an unpacked container. `validate` reads everything once and answers with a report: every
problem, each a sentence with its file, and remarks on what is odd but harmless. Links are never followed.
"""

from waybill.apps.ingest.bagit.report import Problem, Report
from waybill.apps.ingest.bagit.tagfiles import Fetch
from waybill.apps.ingest.bagit.validating import find, validate

__all__ = ["Fetch", "Problem", "Report", "find", "validate"]
