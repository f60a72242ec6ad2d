"""The test file in the guide for authors of drivers runs as it is printed there."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-store.md"


def test_the_guides_test_file_runs_the_whole_suite(tmp_path: Path) -> None:
    found = re.search(r"```python\n(# test_my_store\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_my_store.py").write_text(found[1])
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "test_my_store.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 100
