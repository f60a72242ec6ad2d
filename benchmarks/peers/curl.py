"""curl, which fetches files in parallel and keeps them, as a line for scale; and, of large files, with their digests
and one copy.

python -m benchmarks.peers.curl FOLDER URL COUNT PARALLEL                         small files, into FOLDER; nothing is synced
python -m benchmarks.peers.curl FOLDER URL COUNT PARALLEL digests copy            large files: then `sha256sum`, then `cp`
python -m benchmarks.peers.curl FOLDER URL COUNT PARALLEL digests copy sync       and the copy is synced, as all is that Waybill stores
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers.report import report
from benchmarks.web import large_name, name_of


def main(folder: Path, url: str, count: int, parallel: int, *then: str) -> None:
    fetched, copied = folder / "fetched", folder / "copied"
    for each in (fetched, copied):
        each.mkdir(parents=True)
    places = [("large", large_name(number)) if then else ("small", name_of(number)) for number in range(count)]
    listed = "".join(f'url = "{url}/{kind}/{name}"\noutput = "{fetched / name}"\n' for kind, name in places)
    (folder / "curl.conf").write_text(listed)
    fetch = [
        "curl",
        "--silent",
        "--fail",
        "--parallel",
        "--parallel-max",
        str(parallel),
        "--config",
        str(folder / "curl.conf"),
    ]
    files = [str(fetched / name) for _, name in places]
    copies = [str(copied / name) for _, name in places]
    steps = {
        "fetch": fetch,
        "digests": ["sha256sum", *files],
        "copy": ["cp", *files, str(copied)],
        "sync": ["sync", *copies],
    }
    began = time.perf_counter()
    took = {}
    for step in ("fetch", *then):
        since = time.perf_counter()
        subprocess.run(steps[step], check=True, stdout=subprocess.DEVNULL)
        took[step] = time.perf_counter() - since
    report(count, time.perf_counter() - began, took=took)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
