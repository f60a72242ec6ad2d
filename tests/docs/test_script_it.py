"""The script of "Script it" does what it says for every exit code, with and without `set -e`."""

import os
import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "script-it.md"
(SCRIPT,) = [
    block
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    if "waybill act" in block
]


@pytest.mark.parametrize("options", [(), ("-eu",)])
@pytest.mark.parametrize(
    ("code", "said", "ends"),
    [
        (0, "went on\n", 0),
        (1, "", 1),
        (3, "no such parcel\nwent on\n", 0),
        (4, "a worker has claimed it; try again\nwent on\n", 0),
        (5, "the store is unavailable\n", 75),
    ],
)
def test_the_script_tells_exit_codes_apart(
    tmp_path: Path, options: tuple[str, ...], code: int, said: str, ends: int
) -> None:
    fake = tmp_path / "waybill"
    fake.write_text(f'#!/bin/sh\necho "$@"\nexit {code}\n')
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "id": "pcl0000000001"}
    script = f"{SCRIPT}echo went on\n"
    done = subprocess.run(
        ["sh", *options, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == (said, "", ends)
    assert (tmp_path / "result.json").read_text() == "act parcel pcl0000000001 resume --json\n"
