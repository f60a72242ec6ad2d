"""How fast manifests are written and read, and in how much memory. Run: python benchmarks/manifests.py [lines] [folder]

The lines are those of a real manifest (an address of 60 characters, a size, a digest), without and with a further
field. Reading checks everything. Files go to a folder without fsync, so that the disk does not count.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

from waybill import manifests
from waybill.objects import DirectoryObjects


def entries(count: int, *, extra: bool) -> Iterator[manifests.ManifestEntry]:
    for number in range(count):
        more = {"mime": "text/plain"} if extra else {}
        yield manifests.ManifestEntry(
            f"s3://bucket/some/longer/path/of/a/dataset/file-{number:09d}.dat", number, f"{number:064x}", more
        )


def timed(what: str, count: int, work: Callable[[], object]) -> None:
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{what:<28} {count:>11,} lines {seconds:8.2f} s {count / seconds:>11,.0f} lines/s   peak so far {peak} MiB")


def read(objects: DirectoryObjects, name: str) -> int:
    with manifests.open_manifest(objects, name) as reader:
        return sum(1 for _ in reader)


def write(objects: DirectoryObjects, count: int, *, extra: bool) -> None:
    manifests.write_manifest(objects, "m", entries(count, extra=extra), ordered=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with (
        tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as root,
        DirectoryObjects(root, fsync=False) as objects,
    ):
        timed("making the entries only", count, lambda: sum(1 for _ in entries(count, extra=False)))
        for kind in ("plain", "further fields in all"):
            extra = kind != "plain"
            timed(f"write, {kind}", count, partial(write, objects, count, extra=extra))
            timed(f"read, {kind}", count, lambda: read(objects, "m"))
            timed(f"verify, {kind}", count, lambda: manifests.verify_manifest(objects, "m"))
        print(f"one file has {objects.head('m').size / count:.0f} bytes a line")


if __name__ == "__main__":
    main()
