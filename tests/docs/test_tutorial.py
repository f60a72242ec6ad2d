"""The tutorial's code runs, and a `kill -9` in the middle loses nothing and repeats nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.process import wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs"
CODE = DOCS / "tutorial" / "bakery.py"
PAGE = (DOCS / "tutorial.md").read_text()


def test_the_page_shows_the_code_that_is_run_and_it_has_thirty_lines() -> None:
    (shown,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == CODE.read_text()
    assert len([line for line in shown.splitlines() if line.strip()]) <= 30


MINUTE = "time.sleep(0.5)"
BARRIER = 4  # the minute at which the step waits
WAIT_AT_BARRIER = f"""
        while minute == {BARRIER} and not os.path.exists("continue"):
            ctx.check()
            time.sleep(0.05)"""


class TutorialShell:
    """The shell of a reader in a new folder, with the variables that the tutorial exports."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "bakery.py"
        shutil.copy(CODE, self.code)
        exported = re.search(r"^\$ export (.*)$", PAGE, re.MULTILINE)
        assert exported is not None
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")}
        self.env = clean | dict(pair.split("=", 1) for pair in exported[1].split())
        self.folder = folder
        self.workers: list[subprocess.Popen[str]] = []

    def add_barrier(self) -> None:
        """Make the step wait for `remove_barrier` in the middle, however fast or slow the machine is."""
        text = self.code.read_text()
        assert text.count(MINUTE) == 1
        self.code.write_text("import os\n" + text.replace(MINUTE, WAIT_AT_BARRIER.strip()))

    def remove_barrier(self) -> None:
        (self.folder / "continue").touch()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "waybill", *arguments]

    def waybill(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def show(self, *arguments: str) -> Any:
        return json.loads(self.waybill(*arguments, "--json"))

    def work(self) -> subprocess.Popen[str]:
        self.workers.append(
            subprocess.Popen(self.command("work"), cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True)
        )
        return self.workers[-1]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[TutorialShell]:
    shell = TutorialShell(tmp_path)
    yield shell
    for worker in shell.workers:
        if worker.poll() is None:
            worker.kill()
        worker.communicate()


def test_the_script_bakes_a_loaf_and_the_command_line_finds_it(shell: TutorialShell) -> None:
    clean = {name: value for name, value in shell.env.items() if not name.startswith("WAYBILL_")}
    script = [sys.executable, str(shell.code)]
    done = subprocess.run(script, cwd=shell.folder, env=clean, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "Baked\n"), done.stderr
    (loaf,) = shell.show("ls", "loaf")["records"]
    assert (loaf["state"], loaf["message"]) == ("Baked", "golden brown")
    assert "resume" in shell.waybill("machines", "list", "loaf")


def test_a_loaf_is_baked(shell: TutorialShell) -> None:
    shell.waybill("migrate")
    loaf = shell.waybill("submit", "loaf")
    worker = shell.work()
    assert "Baking → Baked" in shell.waybill("watch", "loaf", loaf)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0


def test_a_loaf_survives_a_killed_worker(shell: TutorialShell) -> None:
    shell.add_barrier()
    assert "Kneading → Baking" in shell.waybill("machines", "list", "loaf")
    assert "Kneading --> Baking" in shell.waybill("machines", "draw", "loaf")
    shell.waybill("migrate")
    loaf = shell.waybill("submit", "loaf")

    def minutes() -> int:
        return int(shell.show("show", "loaf", loaf)["documents"].get("oven", {"minutes": 0})["minutes"])

    first = shell.work()
    wait_until(lambda: minutes() == BARRIER - 1, "three minutes in the oven", seconds=60, every=0.1)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    left = shell.show("show", "loaf", loaf)
    had = left["documents"]["oven"]["minutes"]
    assert (left["state"], left["message"], had) == ("Baking", "", BARRIER - 1), "it was killed in the middle"
    assert left["session"], "the session of the killed worker still claims it"

    shell.remove_barrier()
    second = shell.work()
    watched = shell.waybill("watch", "loaf", loaf)
    assert "Baking → Baked" in watched
    history = shell.show("history", "loaf", loaf)["entries"]
    assert [(entry["cause"], entry["before"], entry["after"]) for entry in history] == [
        ("submit", None, "Kneading"),
        ("done", "Kneading", "Baking"),
        ("done", "Baking", "Baked"),
    ]
    done = shell.show("show", "loaf", loaf)
    assert (done["state"], done["message"], done["documents"]["oven"]["minutes"]) == ("Baked", "golden brown", 10)
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0
    # Each write moves the version by one: the end of the dead session, the claim, the missing minutes, the last step.
    # Had the second worker begun with the first minute again, there would be more.
    assert done["version"] - left["version"] <= (10 - had) + 3


def test_stopped_in_good_order_it_goes_on_as_well(shell: TutorialShell) -> None:
    """SIGTERM in the middle: the step stops at its next check, and nothing has failed."""
    shell.add_barrier()
    shell.waybill("migrate")
    loaf = shell.waybill("submit", "loaf")
    first = shell.work()
    wait_until(
        lambda: "oven" in shell.show("show", "loaf", loaf)["documents"], "the oven to be lit", seconds=60, every=0.1
    )
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=60) == 0
    between = shell.show("show", "loaf", loaf)
    assert (between["state"], between["session"], between["error_count"]) == ("Baking", None, 0)
    shell.remove_barrier()
    second = shell.work()
    shell.waybill("watch", "loaf", loaf)
    assert [entry["after"] for entry in shell.show("history", "loaf", loaf)["entries"]] == [
        "Kneading",
        "Baking",
        "Baked",
    ]
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0
