"""The pages of compute in a browser: objects are uploaded, shown and removed; a job is started, watched, and its failures
run again. Roles and accounts hold for pages as for the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.apps.compute.compute_server import ComputeServer
from tests.browser.conftest import BROWSER_OPTIONS, CHROMIUM
from waybill import config
from waybill.engine import Engine
from waybill.environment import Environment
from waybill.sign_in import make_login_link
from waybill.tokens import Role

OpenPage = Callable[..., Page]
REFUSED = re.compile("status of 40[34]")
# A picture of one pixel.
DOT = "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000" \
      "000d49444154789c6360000002000001e221bc330000000049454e44ae426082"  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_OPTIONS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeServer]:
    with ComputeServer(tmp_path_factory.mktemp("pages"), open_loopback=False) as server:
        yield server


@pytest.fixture
def open_page(closed: ComputeServer, browser: Browser) -> Iterator[OpenPage]:
    contexts: list[BrowserContext] = []
    problems: list[str] = []
    environment = Environment.from_config(config.load(env={}, overrides={"data": closed.data}))

    def open_one(name: str, role: Role, *, javascript: bool = True) -> Page:
        context = browser.new_context(base_url=closed.url, locale="en-GB", java_script_enabled=javascript)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console", lambda m: problems.append(m.text) if m.type == "error" and not REFUSED.search(m.text) else None
        )
        with closing(environment.open_store()) as store:
            link = make_login_link(Engine(store, environment.machines), name, role).text
        page.goto(f"/login/{link}")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{closed.url}/")
        return page

    yield open_one
    for context in contexts:
        context.close()
    environment.close()
    assert not problems, problems


def check_accessibility(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("javascript", [True, False], ids=["scripts", "plain"])
def test_objects_are_uploaded_shown_and_removed(open_page: OpenPage, tmp_path: Path, javascript: bool) -> None:
    name = "alice" if javascript else "anna"
    page = open_page(name, "submitter", javascript=javascript)
    (tmp_path / "notes & <b>.txt").write_text("first line\n<script>alert(1)</script>\n")
    (tmp_path / "dot.png").write_bytes(bytes.fromhex(DOT))
    page.get_by_role("link", name="Objects").click()
    page.get_by_label("New directory").fill("papers")
    page.get_by_role("button", name="Make").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("papers")
    page.get_by_label("Files").set_input_files([tmp_path / "notes & <b>.txt", tmp_path / "dot.png"])
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("2 uploaded")).to_be_visible()
    if javascript:
        check_accessibility(page)
    page.get_by_role("link", name="notes & <b>.txt").click()
    expect(page.get_by_label("Preview")).to_contain_text("<script>alert(1)</script>")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_text().startswith("first line")
    page.get_by_role("button", name="Remove this object").click()
    expect(page.get_by_text("was removed")).to_be_visible()
    page.get_by_role("link", name="dot.png").click()
    expect(page.get_by_alt_text("The picture dot.png")).to_be_visible()
    page.goto("/compute/objects?at=/nobody1/stor")
    expect(page.get_by_text("not allowed to access")).to_be_visible()


def test_a_job_is_started_watched_and_its_failures_run_again(open_page: OpenPage, closed: ComputeServer) -> None:
    page = open_page("walter", "submitter")
    page.goto("/compute/objects")
    page.get_by_label("New directory").fill("in")
    page.get_by_role("button", name="Make").click()
    for name, text in (("a.txt", b"one\n"), ("b.txt", b"two\n"), ("c.txt", b"bad\n")):
        page.get_by_label("Files").set_input_files({"name": name, "mimeType": "text/plain", "buffer": text})
        page.get_by_role("button", name="Upload").click()
        expect(page.get_by_role("link", name=name)).to_be_visible()
    page.goto("/compute/jobs")
    page.get_by_label("Command, run once").fill(
        "if grep -q bad; then echo it is bad >&2; exit 3; fi; sleep 1; echo fine"
    )
    page.get_by_label("Name (optional)").fill("look")
    page.get_by_label("All objects below").fill("/walter/stor/in")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("the job was started")).to_be_visible()
    expect(page.locator("h1 .badge")).to_have_text("done", timeout=30_000)  # without anybody loading the page again
    expect(page.locator("#tail li")).to_have_count(2)
    expect(page.locator("#errors")).to_contain_text("user command exited with code 3")
    expect(page.locator("#errors pre")).to_have_text("it is bad\n")
    expect(page.locator("#timings svg")).to_have_count(1)
    check_accessibility(page)
    page.locator("#tail a").first.click()
    expect(page.get_by_label("Preview")).to_have_text("fine\n")
    page.go_back()
    page.get_by_role("button", name="Run the failed inputs again").click()
    expect(page.get_by_text("this is the new job")).to_be_visible()
    expect(page.locator("h1 .badge")).to_have_text("done", timeout=30_000)
    expect(page.locator("[data-stat=tasks]")).to_have_text("1")
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("the job was removed")).to_be_visible()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    check_accessibility(page)


def test_a_sign_in_opens_its_own_account_only_and_readers_change_nothing(
    open_page: OpenPage, closed: ComputeServer
) -> None:
    writer = open_page("wanda", "submitter")
    writer.goto("/compute/objects")
    writer.get_by_label("Files").set_input_files({"name": "s.txt", "mimeType": "text/plain", "buffer": b"secret"})
    writer.get_by_role("button", name="Upload").click()
    assert writer.request.get("/wanda/stor/s.txt").text() == "secret"
    reader = open_page("rosa", "reader")
    assert reader.request.get("/wanda/stor/s.txt").status == 403
    reader.goto("/compute/jobs?account=wanda")
    expect(reader.get_by_text("was not found")).to_be_visible()
    reader.goto("/compute/objects")
    expect(reader.get_by_role("button", name="Upload")).to_have_count(0)
    token = re.search(r'name="csrf-token" content="([^"]*)"', reader.content())
    assert token is not None
    refused = reader.request.put("/rosa/stor/x", data="x", headers={"x-csrf-token": token[1]})
    assert refused.status == 403
    operator = open_page("otto", "operator")
    operator.goto("/compute/objects?account=wanda")
    expect(operator.get_by_role("link", name="s.txt")).to_be_visible()
