"""Transfer: downloads files from HTTP servers into a folder, resumed, verified, and only from allowed addresses.

downloads.py        many files, several at a time, each with its own result: `download` and `probe_sizes`
file_download.py    one file: reused from an earlier attempt, or requested, resumed, verified and put in place
partial_file.py     the bytes of a file that has not arrived completely
http_fetcher.py     one request through its redirects; connections that are kept for the next download
address_policy.py   which addresses may be reached
"""

from waybill.transfer.address_policy import AddressPolicy, TransferError
from waybill.transfer.downloads import DownloadProgress, DownloadResult, RemoteFileInfo, download, probe_sizes
from waybill.transfer.file_download import DownloadRequest
from waybill.transfer.http_fetcher import FetcherCache
from waybill.transfer.partial_file import PARTIAL_FOLDER

__all__ = [
    "PARTIAL_FOLDER",
    "AddressPolicy",
    "DownloadProgress",
    "DownloadRequest",
    "DownloadResult",
    "FetcherCache",
    "RemoteFileInfo",
    "TransferError",
    "download",
    "probe_sizes",
]
