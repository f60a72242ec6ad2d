"""The guide for authors of applications shows the sample application, file by file, as it is."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "sample"
PAGE = (ROOT / "docs" / "how-to" / "write-an-application.md").read_text("utf-8")
LISTINGS = dict(re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


def test_every_listing_is_a_file_of_the_sample_as_it_is() -> None:
    assert LISTINGS
    for name, text in LISTINGS.items():
        assert text == (SAMPLE / name).read_text("utf-8"), f"copy {name} into the page"


def test_every_file_of_the_sample_is_shown() -> None:
    files = {path.relative_to(SAMPLE).as_posix(): path.read_text("utf-8") for path in SAMPLE.rglob("*.py")}
    shown = {name for name, text in files.items() if not re.fullmatch(r'(""".*""")?\s*', text)}
    assert shown - {"test_photolab_runs.py"} == set(LISTINGS)


def test_the_listings_name_what_the_page_explains() -> None:
    application = LISTINGS["photolab/application.py"]
    for seam in ("machines", "resources", "settings", "routes", "commands", "maintenance", "events", "has_catalogues"):
        assert f"    {seam}=" in application
