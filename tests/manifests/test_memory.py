"""Memory does not grow with the number of lines: written and read in a process of its own, whose peak is looked at."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import Budget

SCRIPT = """
import resource, sys
from waybill import manifests
from waybill.objects import DirectoryObjects

def entries(count):
    for number in range(count):
        extra = {"mime": "text/plain"} if number % 100 == 0 else {}
        yield manifests.ManifestEntry(f"s3://bucket/some/path/file-{number:09d}.dat", number, f"{number:064x}", extra)

with DirectoryObjects(sys.argv[1], fsync=False) as objects:
    count = int(sys.argv[2])
    written = manifests.write_manifest(objects, "m", entries(count), ordered=True)
    with manifests.open_manifest(objects, "m") as reader:
        assert sum(1 for _ in reader) == count
    assert manifests.verify_manifest(objects, "m") == written.totals
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(folder: Path, count: int) -> int:
    """Kilobytes."""
    run = subprocess.run([sys.executable, "-c", SCRIPT, folder, str(count)], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.timeout(3600)
def test_many_lines_take_no_more_memory_than_few(tmp_path: Path, budget: Budget) -> None:
    few = peak(tmp_path / "few", 30_000)
    many = peak(tmp_path / "many", budget.pick(small=300_000, long=10_000_000))
    assert many - few < 20_000
