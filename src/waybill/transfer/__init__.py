"""Transfer: files from HTTP servers into a folder, resumed, verified, and only from where they may come.

downloading.py   many files, several at a time, each with its own answer: `download` and `look`
fetching.py      one file: taken over, tried, resumed, verified, named
partial.py       what has come of it so far
asking.py        one request through its redirects, and whether its failure is worth another try
connections.py   connections that are kept for the next download
reach.py         which addresses may be reached
"""

from waybill.transfer.connections import Connections
from waybill.transfer.downloading import Fetched, Offer, Progress, download, look
from waybill.transfer.fetching import Fetch
from waybill.transfer.reach import OutOfReach, Reach

__all__ = ["Connections", "Fetch", "Fetched", "Offer", "OutOfReach", "Progress", "Reach", "download", "look"]
