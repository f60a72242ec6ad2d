"""One Waybill with its demonstration, as a process, and one Chromium, for all tests of a worker.

    site           the running server: `site.url`, `site.engine()` on its store, `site.login_link(role)`
    open_page      open_page(role="operator") -> a page of a fresh browser context, signed in; None: a stranger

Every page is watched: a violation of the content security policy, an error of a script or an answer of 500 fails the test that saw it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.servers.process import wait_until
from waybill import accounts, config
from waybill.accounts import Grant
from waybill.engine import Engine
from waybill.environment import Environment
from waybill.sign_in import make_login_link
from waybill.tokens import Role

PASSWORD = "correct horse battery"  # of the user ada
CHROMIUM = "/usr/bin/chromium"
BROWSER_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
TIMEOUT = 20_000  # milliseconds
expect.set_options(timeout=TIMEOUT)


class Site:
    """A Waybill in a process of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.environment = Environment.from_config(config.load(env={}, overrides={"data": data}), demo=True)
        env = {**os.environ, "WAYBILL_DATA": str(data), "WAYBILL_LOG_LEVEL": "warning"}
        self.log = data.parent / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "waybill", "up", "--demo", "--port", "0", "--json"],
            env=env,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            cwd=data.parent,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.printed: dict[str, Any] = json.loads(line)
        self.url = self.printed["url"].rstrip("/")

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        with closing(self.environment.open_store()) as store:
            yield self.environment.make_engine(store)

    def login_link(self, role: Role, name: str | None = None) -> str:
        with self.engine() as engine:
            return f"{self.url}/login/{make_login_link(engine, name or f'the {role}', role).text}"

    def count(self, kind: str, state: str) -> int:
        with self.engine() as engine:
            return engine.store.count_by_state(kind).get(state, 0)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("site") / "data")
    try:
        # the demonstration has come to rest: every parcel has arrived or failed
        wait_until(
            lambda: running.count("shipment", "Incomplete") + running.count("shipment", "Delivered") == 6,
            "the parcels to arrive",
            seconds=120,
        )
        with running.engine() as engine:
            accounts.create_user(
                engine, "ada", name="Ada L.", mail="ada@example.org", roles=[Grant("submitter", "own")]
            )
            accounts.set_password(engine, "ada", PASSWORD)
            accounts.create_group(engine, "atlas", description="the atlas project")
            accounts.add_member(engine, "atlas", "ada")
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_OPTIONS)
        yield running
        running.close()


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(site: Site, browser: Browser) -> Iterator[OpenPage]:
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def watch(page: Page) -> None:
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        page.on(
            "console", lambda message: problems.append(f"{page.url}: {message.text}") if _is_problem(message) else None
        )
        page.on(
            "response",
            lambda answer: problems.append(f"{answer.url}: {answer.status}") if answer.status in (500, 501) else None,
        )

    def open_one(role: Role | None = "operator", **options: Any) -> Page:
        context = browser.new_context(base_url=site.url, locale="en-GB", **options)
        contexts.append(context)
        context.on("page", watch)
        page = context.new_page()
        if role is not None:
            page.goto(site.login_link(role))
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(f"{site.url}/")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not problems, problems


def _is_problem(message: Any) -> bool:
    """What a browser reports of a page: a refused script or style. An answer that a test provokes is none."""
    return message.type == "error" and "Failed to load resource" not in message.text
