"""Everything of this folder again, as an unprivileged user: no uid of its own, no control group, no loop image.

The runner then has the same user as the commands; what keeps them from it is tested by the same corpus. Where the suite
runs without root, the other files have done that already.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from waybill import sandbox

UID = 1_899_999_999
CHECKOUT = Path(__file__).parents[2]


def test_the_corpus_without_root(tmp_path_factory):
    if os.geteuid() != 0:
        return
    folder = tmp_path_factory.mktemp("unprivileged")
    report = run_unprivileged(folder, ["tests/sandbox", "--deselect", "tests/sandbox/test_without_root.py"])
    assert report.returncode == 0, report.stdout[-8000:] + report.stderr[-2000:]
    assert " passed" in report.stdout


def run_unprivileged(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """pytest as a user who has no rights, in a mount namespace where that user can reach Python and the checkout."""
    needed = {Path(sys.base_prefix), Path(sys.prefix), CHECKOUT, Path(sandbox.__file__).parents[2]}
    work = Path("/tmp") / f"waybill-unprivileged-{os.getpid()}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={work}/pytest", *arguments]
    switch = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--"]
    script = "\n".join(
        [
            "set -e",
            *make_reachable(needed, folder),
            f"mkdir -m 700 {work}",
            f"chown {UID}:{UID} {work}",
            f"cd {shlex.quote(str(CHECKOUT))}",
            f"status=0; {shlex.join([*switch, *command])} || status=$?",
            f"rm -rf {work}",
            "exit $status",
        ]
    )
    environment = {**os.environ, "HOME": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script],
        capture_output=True, text=True, env=environment, timeout=280, check=False,
    )  # fmt: skip


def make_reachable(paths: set[Path], folder: Path) -> list[str]:
    """The lines that replace a folder that only root may enter by an empty one, with only `paths` in it."""
    closed = {path: next((p for p in reversed(path.parents) if not p.stat().st_mode & 0o001), None) for path in paths}
    moved = [(path, folder / str(number)) for number, path in enumerate(sorted(paths)) if closed[path] is not None]
    lines = [
        f"mkdir {shlex.quote(str(kept))}; mount --rbind {shlex.quote(str(path))} {shlex.quote(str(kept))}"
        for path, kept in moved
    ]
    lines += [
        f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(parent))}" for parent in {closed[path] for path, _ in moved}
    ]
    lines += [
        f"mkdir -p {shlex.quote(str(path))}; mount --rbind {shlex.quote(str(kept))} {shlex.quote(str(path))}"
        for path, kept in moved
    ]
    return lines
