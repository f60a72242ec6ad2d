"""The pages about objects and manifests show code that runs, and say what is so."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from waybill.manifests import ManifestEntry, read_stated_totals, write_manifest
from waybill.objects import DirectoryObjects
from waybill.objects.directory_files import MAX_COMPONENT_BYTES
from waybill.objects.protocol import MAX_NAME_BYTES
from waybill.objects.s3_writer import MAX_CONDITIONAL_PUT

CONCEPTS = Path(__file__).resolve().parents[2] / "docs" / "concepts"
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}")
    for page in ("objects.md", "manifests.md")
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", (CONCEPTS / page).read_text(), re.MULTILINE | re.DOTALL)
    )
]


@pytest.mark.parametrize("code", BLOCKS)
def test_the_code_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "test_shown.py").write_text(code)
    command = (
        ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "head_returns or delete"]
        if "ObjectsSuite" in code
        else []
    )
    run = subprocess.run([sys.executable, *command, "test_shown.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_figures_are_right() -> None:
    text = (CONCEPTS / "objects.md").read_text()
    assert f"at most {MAX_NAME_BYTES} bytes" in text
    assert f"more than {MAX_COMPONENT_BYTES} bytes" in text
    assert f"{MAX_CONDITIONAL_PUT // 1024**2} MiB" in text


def test_a_digest_by_hand(tmp_path: Path) -> None:
    (command,) = re.findall(r"^```sh\n(.*?)^```", (CONCEPTS / "manifests.md").read_text(), re.MULTILINE | re.DOTALL)
    with DirectoryObjects(tmp_path) as objects:
        write_manifest(
            objects,
            "files.jsonl",
            [
                ManifestEntry("a", 0, hashlib.sha256(b"").hexdigest()),
                ManifestEntry("b", 1, hashlib.sha256(b"b").hexdigest()),
            ],
        )
        run = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert run.stdout.split()[0] == read_stated_totals(objects, "files.jsonl").sha256
