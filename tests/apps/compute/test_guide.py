"""The guide docs/how-to/run-jobs-over-objects.md: its commands of `waybill compute` do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.apps.compute.compute_server import ComputeServer

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "run-jobs-over-objects.md"


def iter_commands(text: str) -> list[tuple[str, str]]:
    """Each command with the output that the page shows for it."""
    found = []
    for block in re.findall(r"^```\n(\$.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def test_the_guide_does_what_it_says(tmp_path: Path, sqlite_compute: ComputeServer) -> None:
    text = PAGE.read_text("utf-8")
    for name, content in zip(("a.log", "b.log"), re.findall(r"```text\n(.*?)```", text, re.DOTALL), strict=True):
        (tmp_path / name).write_text(content)
    (template,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (tmp_path / "count.json").write_text(template)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "WAYBILL_DATA": str(sqlite_compute.data),
        "WAYBILL_ACCOUNT": "ada",
    }
    job, ran = "", 0
    for command, output in iter_commands(text):
        if not command.startswith("waybill compute "):
            continue
        if re.search(r"\bJOB\b", command) and not job:
            page = sqlite_compute.get("/ada/jobs?limit=1024").names
            job = page[-1]
        command = re.sub(r"\bJOB\b", job, command)
        done = subprocess.run(
            ["bash", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        ran += 1
        assert done.returncode == 0 or "rerun" in command, (command, done.stderr)
        assert not output or done.stdout == output, command
        if "--template" in command:
            assert sorted(done.stdout.split()) == ["1", "2"]
    assert ran == 11
