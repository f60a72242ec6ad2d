"""Variables that are ours: each is a setting, or listed beside them with what it is for."""

import re
from pathlib import Path

from waybill.config import OTHER_VARIABLES, SETTINGS, find_unknown_variables

ROOT = Path(__file__).parents[2]


def test_the_variables_of_makefile_and_tools_are_ours() -> None:
    """Whoever sets one to run the tests is not told that it is perhaps misspelt."""
    used = {
        name
        for path in [ROOT / "Makefile", ROOT / "tests" / "budget.py", *(ROOT / "tools").iterdir()]
        if path.is_file()
        for name in re.findall(r"\bWAYBILL_[A-Z_]+", path.read_text())
    }
    assert "WAYBILL_BUDGET" in used
    assert find_unknown_variables(dict.fromkeys(used, "x")) == []


def test_what_an_open_loopback_opens_is_said() -> None:
    (setting,) = [setting for setting in SETTINGS if setting.name == "open_loopback"]
    assert "without a token, as admin" in setting.description
    assert "loopback" in setting.description


def test_other_variables_are_no_settings() -> None:
    assert not set(OTHER_VARIABLES) & {setting.variable for setting in SETTINGS}
