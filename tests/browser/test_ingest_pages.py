"""The pages of ingest, as a depositor and an operator use them."""

import re
from pathlib import Path

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import OpenPage, Site

PIECE = 8 * 1024 * 1024
BAD_MANIFEST = """#%checkm_0.7
#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest
#%prefix | mrt: | http://merritt.cdlib.org/terms#
#%prefix | nfo: | http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#
#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | mrt:mimeType
https://example.org/a.txt | sha-256 | not-a-digest | 12 | | a.txt | text/plain
https://example.org/b.txt | | | many | | b.txt | text/plain
#%eof
"""


def wait_for_deposit(page: Page, state: str) -> None:
    expect(page.locator("h1 .badge")).to_have_text(state)


def test_a_depositor_drops_files_follows_them_and_finds_them_in_the_inventory(
    site: Site, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page("submitter")
    page.get_by_role("link", name="Deposit files").click()
    page.get_by_label("Profile").select_option("demo_content")
    names = ["<script>taken<b> שלום.txt", "second.txt"]
    files = [
        {"name": name, "mimeType": "text/plain", "buffer": f"content {n}".encode()} for n, name in enumerate(names)
    ]
    page.locator("input[type=file]").set_input_files(files)  # type: ignore[arg-type]
    expect(page.get_by_role("listitem").filter(has_text="second.txt")).to_be_visible()  # the script has them
    page.get_by_role("button", name="Deposit", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="2 of 2 received")).to_be_visible()
    page.get_by_role("listitem").filter(has_text="taken").get_by_role("link", name="Follow it").click()
    wait_for_deposit(page, "Completed")  # live: nobody reloads
    expect(page.locator("h1")).to_contain_text(names[0])
    page.get_by_role("region", name="Objects").get_by_role("link", name=names[0]).click()
    file = page.get_by_role("region", name="Files").get_by_role("link", name=f"producer/{names[0]}")
    with page.expect_download() as download:
        file.click()
    assert Path(download.value.path()).read_bytes() == b"content 0"
    # all of it, as an archive
    page.get_by_role("button", name="Pack it").click()
    archive = page.locator("#assemblies").get_by_role("link")
    with page.expect_download() as download:
        archive.click()
    assert Path(download.value.path()).read_bytes().startswith(b"PK")
    page.goto("/ingest")
    expect(page.get_by_role("region", name="Deposits").get_by_role("link", name="second.txt")).to_be_visible()


def test_a_large_file_goes_on_where_it_stopped_after_a_reload(site: Site, open_page: OpenPage, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * (4096 * 20))  # three pieces
    page = open_page("submitter")
    offsets: list[int] = []

    def watch(route: Route) -> None:
        offset = int(re.search(r"offset=([0-9]+)", route.request.url)[1])  # type: ignore[index]
        offsets.append(offset)
        if offsets == [0, PIECE]:
            route.abort()  # the line is lost in the second piece
        else:
            route.continue_()

    page.route("**/api/v1/ingest/uploads/*offset=*", watch)
    page.goto("/ingest/deposit")
    page.get_by_label("Profile").select_option("demo_content")
    page.locator("input[type=file]").set_input_files(large)
    page.get_by_role("button", name="Deposit", exact=True).click()
    expect(page.get_by_text("The connection is lost")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.reload()
    expect(page.get_by_text("Unfinished: large.bin")).to_be_visible()
    page.get_by_label("Profile").select_option("demo_content")
    page.locator("input[type=file]").set_input_files(large)
    offsets.clear()
    page.get_by_role("button", name="Deposit", exact=True).click()
    page.wait_for_url("**/ingest/deposits/*")
    assert offsets == [PIECE, 2 * PIECE]  # the first piece is not sent again
    wait_for_deposit(page, "Completed")
    expect(page.locator(".facts")).to_contain_text("large.bin")


def test_a_manifest_with_faults_is_not_sent_and_each_line_says_why(site: Site, open_page: OpenPage) -> None:
    before = site.count("batch", "Completed") + site.count("batch", "Failed")
    for has_scripts in (True, False):
        page = open_page("submitter", java_script_enabled=has_scripts)
        page.goto("/ingest/deposit")
        page.get_by_label("Profile").select_option("demo_content")
        page.get_by_label("A manifest").check()
        page.get_by_label("Manifest", exact=True).fill(BAD_MANIFEST)
        page.get_by_role("button", name="Deposit", exact=True).click()
        faults = page.get_by_role("list", name="Faults")
        expect(faults).to_contain_text("Line 6")
        expect(faults).to_contain_text("Line 7")
    assert site.count("batch", "Completed") + site.count("batch", "Failed") == before


def test_a_file_is_deposited_without_javascript(site: Site, open_page: OpenPage) -> None:
    page = open_page("submitter", java_script_enabled=False)
    page.goto("/ingest/deposit")
    page.get_by_label("Profile").select_option("demo_content")
    page.get_by_label("Title").fill("Plain")
    page.locator("input[type=file]").set_input_files({"name": "plain.txt", "mimeType": "text/plain", "buffer": b"x"})
    page.get_by_role("button", name="Deposit", exact=True).click()
    page.wait_for_url("**/ingest/deposits/*")
    expect(page.locator("h1")).to_contain_text("Plain")


def test_an_operator_releases_a_collection_and_what_it_held_goes_on(site: Site, open_page: OpenPage) -> None:
    page = open_page("operator")
    page.goto("/ingest/deposits/demo-atlas")
    wait_for_deposit(page, "Held")
    page.goto("/ingest/collections")
    page.get_by_role("link", name="Release …").click()
    page.get_by_label("Why").fill("the rights are cleared")
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("status").filter(has_text="atlases is released")).to_be_visible()
    page.goto("/ingest/deposits/demo-atlas")
    wait_for_deposit(page, "Completed")
    page.goto("/ingest/collections/atlases")
    page.get_by_label("Why").fill("to show what a hold does")
    page.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("status").filter(has_text="on hold")).to_be_visible()
