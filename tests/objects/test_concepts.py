"""The pages about objects and manifests show code that runs, and say what is so."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from waybill.manifests import Entry, glance, write
from waybill.objects import Directory
from waybill.objects.escape import PIECE
from waybill.objects.names import LONGEST
from waybill.objects.s3_writing import ONE_CONDITIONAL_PUT

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
        ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "head_knows or delete"]
        if "ObjectsSuite" in code
        else []
    )
    run = subprocess.run([sys.executable, *command, "test_shown.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_figures_are_right() -> None:
    text = (CONCEPTS / "objects.md").read_text()
    assert f"at most {LONGEST} bytes" in text
    assert f"more than {PIECE} bytes" in text
    assert f"{ONE_CONDITIONAL_PUT // 1024**2} MiB" in text


def test_a_digest_by_hand(tmp_path: Path) -> None:
    (command,) = re.findall(r"^```sh\n(.*?)^```", (CONCEPTS / "manifests.md").read_text(), re.MULTILINE | re.DOTALL)
    with Directory(tmp_path) as objects:
        write(
            objects,
            "files.jsonl",
            [Entry("a", 0, hashlib.sha256(b"").hexdigest()), Entry("b", 1, hashlib.sha256(b"b").hexdigest())],
        )
        run = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert run.stdout.split()[0] == glance(objects, "files.jsonl").sha256
