"""A server of archive in a process of its own: its commands, its API, its pages in a browser, and kill -9."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect, sync_playwright

from tests.apps.archive.archive_fixture import read_tree
from tests.apps.archive.archive_server import ArchiveServer
from tests.browser.conftest import BROWSER_OPTIONS, CHROMIUM
from waybill.apps.archive.machine.request import PUT_FLOW


def make_files(root: Path, count: int) -> Path:
    for n in range(count):
        path = root / f"folder{n % 7}" / f"file{n:04}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(1 + n * 37 % 5000))
    return root


def test_a_server_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Wherever the kills strike, the originals go only when everything is on storage, and all of it comes back."""
    source = make_files(tmp_path / "set", 300)
    before = read_tree(source)
    # small archives, so that there are many stages to strike in
    settings = f'[app.archive.storages.disk]\npath = "{tmp_path}/storage"\nminimum = "20k"\nmaximum = "40k"'
    server = ArchiveServer(tmp_path, settings=settings)
    server.waybill("archive", "create-storage", "disk")
    server.waybill("migrate")
    server.waybill("archive", "migrate", str(source), "--label", "killed")
    for stage in ("PUT_START", "PUTTING", "VERIFY_GETTING", "PUT_TIDY"):
        server.start()
        server.wait_for(1, *PUT_FLOW[PUT_FLOW.index(stage) :])
        server.kill()
    with server:
        server.wait_for(1, "PUT_COMPLETED")
        assert not source.exists()
        server.waybill("archive", "get", "1", str(tmp_path / "restored"))
        server.wait_for(2, "GET_COMPLETED")
        assert read_tree(tmp_path / "restored") == before
        shown = server.waybill("archive", "show", "1")
        (quota,) = server.waybill("archive", "quota")["quotas"]
        assert (shown["state"], quota["used"], quota["reserved"]) == ("ON_STORAGE", shown["bytes"], 0)
        assert server.waybill("archive", "search", "--name", "file0007.dat")["path"] == f"{source}/folder0/file0007.dat"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[ArchiveServer, Page]]:
    with ArchiveServer(tmp_path) as server, sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_OPTIONS)
        yield server, running.new_context(base_url=server.url, locale="en-GB").new_page()
        running.close()


def test_files_are_found_restored_and_deleted_in_the_browser(page: tuple[ArchiveServer, Page], tmp_path: Path) -> None:
    server, browser = page
    source = make_files(tmp_path / "set", 20)
    server.waybill("archive", "put", str(source), "--label", "The set <b>")
    server.wait_for(1, "PUT_COMPLETED")
    browser.goto("/archive")
    assert Axe().run(browser).violations_count == 0
    browser.get_by_role("link", name="Find files").click()
    browser.get_by_label("By").select_option("name")
    browser.get_by_label("Text").fill("file0003.dat")
    browser.get_by_role("button", name="Find", exact=True).click()
    expect(browser.get_by_text(f"{source}/folder3/file0003.dat")).to_be_visible()
    browser.get_by_role("region", name="Files").get_by_role("link", name="1", exact=True).click()
    expect(browser.get_by_role("heading", level=1)).to_contain_text("The set <b>")
    assert Axe().run(browser).violations_count == 0
    browser.get_by_label("Into this folder").fill(str(tmp_path / "restored"))
    browser.get_by_text("Choose files").click()
    browser.get_by_label("folder3/file0003.dat").check()
    browser.get_by_role("button", name="Restore").click()
    expect(browser.get_by_text("restores it")).to_be_visible()
    # nobody is called `loopback` here, and root reads and writes for nobody who has no name
    refused = server.wait_for(2, "FAILED")
    assert "loopback" in refused["message"]
    browser.reload()
    browser.get_by_role("button", name="Delete it from the storage").click()
    expect(browser.get_by_text("deletes it")).to_be_visible()
    server.wait_for(3, "DELETE_COMPLETED")
    assert source.exists()
