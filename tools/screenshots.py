"""Write the pictures of docs/pictures anew: the pages of a demonstration that runs in a temporary folder.

make screenshots
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from tests.browser.conftest import BROWSER_OPTIONS, CHROMIUM, Site
from tests.servers.process import wait_until

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
MAX_BYTES = 200_000  # of a picture
WIDTH, HEIGHT = 1240, 760


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Site(Path(folder) / "data")
        try:
            wait_until(
                lambda: site.count("shipment", "Incomplete") == 6, "the demonstration to come to rest", seconds=120
            )
            wait_until(lambda: site.count("batch", "Completed") == 3, "the deposits to be stored", seconds=120)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_OPTIONS)
            take_pictures(site, browser)
            browser.close()
        finally:
            site.stop()


def take_pictures(site: Site, browser: Browser) -> None:
    with site.engine() as engine:
        failed = engine.store.find("parcel", state="Failed", limit=1).records[0]
    light = open_page(site, browser)
    for name, path in (
        ("home", "/"),
        ("failures", "/failures"),
        ("record", f"/records/parcel/{failed.id}"),
        ("deposits", "/ingest?whose=all"),
        ("deposit", "/ingest/deposit"),
        ("api", "/docs#post-api-v1-ingest-batches"),
    ):
        take_picture(light, name, path)
    take_picture(open_page(site, browser, color_scheme="dark"), "home-dark", "/")
    take_picture(open_page(site, browser, viewport={"width": 390, "height": 760}), "home-phone", "/")


def open_page(site: Site, browser: Browser, **options: Any) -> Page:
    options = {"viewport": {"width": WIDTH, "height": HEIGHT}, "locale": "en-GB", **options}
    page = browser.new_context(base_url=site.url, **options).new_page()
    page.goto(site.login_link("operator", "ada"))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.url}/")
    return page


def take_picture(page: Page, name: str, path: str) -> None:
    page.goto(path)
    page.wait_for_function("() => document.body.dataset.heard === 'yes'")  # it is live
    if "#" in path:
        page.locator(f"#{path.partition('#')[2]} summary").click()
    page.wait_for_timeout(700)  # the part that is loaded once more
    target = PICTURES / f"{name}.png"
    page.screenshot(path=target)
    if (size := target.stat().st_size) > MAX_BYTES:
        raise SystemExit(f"{target} has {size:,} bytes; at most {MAX_BYTES:,}.")
    print(f"{target.relative_to(PICTURES.parents[1])}  {size:,} bytes")


if __name__ == "__main__":
    main()
