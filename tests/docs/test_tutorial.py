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
COLD = 4  # the minute that a cold oven does not get beyond
IN_A_COLD_OVEN = f"""
        while minute == {COLD} and not os.path.exists("warm"):
            ctx.check()
            time.sleep(0.05)"""


class Kitchen:
    """A reader's shell in a new folder, with the variables that the tutorial exports."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "bakery.py"
        shutil.copy(CODE, self.code)
        exported = re.search(r"^\$ export (.*)$", PAGE, re.MULTILINE)
        assert exported is not None
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")}
        self.env = clean | dict(pair.split("=", 1) for pair in exported[1].split())
        self.folder = folder
        self.workers: list[subprocess.Popen[str]] = []

    def cool_down(self) -> None:
        """The same bakery, in which the baker waits for `warm_up` in the midst, however fast or slow the machine is."""
        text = self.code.read_text()
        assert text.count(MINUTE) == 1
        self.code.write_text("import os\n" + text.replace(MINUTE, IN_A_COLD_OVEN.strip()))

    def warm_up(self) -> None:
        (self.folder / "warm").touch()

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
def kitchen(tmp_path: Path) -> Iterator[Kitchen]:
    made = Kitchen(tmp_path)
    yield made
    for worker in made.workers:
        if worker.poll() is None:
            worker.kill()
        worker.communicate()


def test_a_loaf_is_baked(kitchen: Kitchen) -> None:
    kitchen.waybill("migrate")
    loaf = kitchen.waybill("submit", "loaf")
    baker = kitchen.work()
    assert "Baking → Baked" in kitchen.waybill("watch", "loaf", loaf)
    baker.send_signal(signal.SIGTERM)
    assert baker.wait(timeout=60) == 0


def test_a_loaf_survives_the_baker(kitchen: Kitchen) -> None:
    kitchen.cool_down()
    assert "Kneading → Baking" in kitchen.waybill("machines", "list", "loaf")
    assert "Kneading --> Baking" in kitchen.waybill("machines", "draw", "loaf")
    kitchen.waybill("migrate")
    loaf = kitchen.waybill("submit", "loaf")

    def minutes() -> int:
        return int(kitchen.show("show", "loaf", loaf)["docs"].get("oven", {"minutes": 0})["minutes"])

    first = kitchen.work()
    wait_until(lambda: minutes() == COLD - 1, "three minutes in the oven", seconds=60, every=0.1)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    left = kitchen.show("show", "loaf", loaf)
    had = left["docs"]["oven"]["minutes"]
    assert (left["state"], left["message"], had) == ("Baking", "", COLD - 1), "it was killed in the middle"
    assert left["session"], "held by the session of a worker that is gone"

    kitchen.warm_up()
    second = kitchen.work()
    watched = kitchen.waybill("watch", "loaf", loaf)
    assert "Baking → Baked" in watched
    history = kitchen.show("history", "loaf", loaf)["lines"]
    assert [(line["event"], line["before"], line["after"]) for line in history] == [
        ("submit", None, "Kneading"),
        ("done", "Kneading", "Baking"),
        ("done", "Baking", "Baked"),
    ]
    done = kitchen.show("show", "loaf", loaf)
    assert (done["state"], done["message"], done["docs"]["oven"]["minutes"]) == ("Baked", "golden brown", 10)
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0
    # Each write moves the version by one: the end of the dead session, the claim, the missing minutes, the last step.
    # Had the second baker begun with the first minute again, there would be more.
    assert done["version"] - left["version"] <= (10 - had) + 3


def test_stopped_in_good_order_it_goes_on_as_well(kitchen: Kitchen) -> None:
    """SIGTERM in the middle: the step stops at its next check, and nothing has failed."""
    kitchen.cool_down()
    kitchen.waybill("migrate")
    loaf = kitchen.waybill("submit", "loaf")
    first = kitchen.work()
    wait_until(
        lambda: "oven" in kitchen.show("show", "loaf", loaf)["docs"], "the oven to be lit", seconds=60, every=0.1
    )
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=60) == 0
    between = kitchen.show("show", "loaf", loaf)
    assert (between["state"], between["session"], between["tries"]) == ("Baking", None, 0)
    kitchen.warm_up()
    second = kitchen.work()
    kitchen.waybill("watch", "loaf", loaf)
    assert [line["after"] for line in kitchen.show("history", "loaf", loaf)["lines"]] == ["Kneading", "Baking", "Baked"]
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0
