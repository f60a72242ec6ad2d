"""Every page as a person uses it: looked at, acted on, with and without JavaScript."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, OpenPage, Site
from tests.servers.process import wait_until
from waybill.demo import ParcelLabel, ShipmentOrder
from waybill.record import Record, Ref
from waybill.step import New

PATHS = [
    "/",
    "/records/parcel",
    "/records/parcel?state=Failed&order=oldest",
    "/failures",
    "/waiting",
    "/search?q=parcel",
    "/search?q=a",
    "/admin",
    "/admin/holds",
    "/admin/locks",
    "/admin/doctor?run=1",
    "/admin/settings",
    "/admin/tokens",
    "/admin/sign-ins",
    "/docs",
    "/admin/users",
    "/admin/users/ada",
    "/admin/groups",
    "/admin/groups/atlas",
    "/account",
    "/ingest?whose=all",
    "/ingest/deposit",
    "/ingest/deposits/demo-photograph",
    "/ingest/deposits/demo-scan",
    "/ingest/objects",
    "/ingest/profiles",
    "/ingest/profiles/demo_content",
    "/ingest/collections",
    "/ingest/collections/atlases",
    "/ingest/disk-space",
    "/ingest/damaged",
]


def find_one(site: Site, kind: str, state: str) -> Record:
    with site.engine() as engine:
        return engine.store.find(kind, state=state, limit=1).records[0]


def submit_failing_parcel(site: Site, n: int = 1) -> list[Record]:
    """Parcels without a house: number 5 of every eleven fails at once."""
    with site.engine() as engine:
        made = [
            engine.submit(New("parcel", (ParcelLabel(5, "mule", "5 Quay Street"),), owner="tester")) for _ in range(n)
        ]
        wait_until(
            lambda: all(engine.store.get(*r.ref).state == "Failed" for r in made), "the parcels to fail", seconds=60
        )
        return made


def wait_for_state(page: Page, state: str) -> None:
    expect(page.locator("h1 .badge")).to_have_text(state)


def test_the_printed_link_opens_the_page_with_one_click_and_only_once(site: Site, open_page: OpenPage) -> None:
    page = open_page(None)
    page.goto(site.printed["login_url"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name="Parcels", exact=True)).to_be_visible()
    cookie = next(each for each in page.context.cookies() if each["name"] == "waybill_sign_in")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    again = open_page(None)
    assert again.goto(site.printed["login_url"]).status == 410  # type: ignore[union-attr]
    expect(again.get_by_text("has been used")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.goto("/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault_for_a_screen_reader(site: Site, open_page: OpenPage, scheme: str) -> None:
    page = open_page("admin", color_scheme=scheme)
    failed = find_one(site, "parcel", "Failed")
    with_children = find_one(site, "shipment", "Incomplete")
    for path in [
        *PATHS,
        f"/records/parcel/{failed.id}",
        f"/records/parcel/{failed.id}/act/resume",
        f"/records/shipment/{with_children.id}",
    ]:
        page.goto(path)
        rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}  # all else is the same in the dark
        found = Axe().run(page, options={"resultTypes": ["violations"], **rules}).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"][:200]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert not serious, (path, serious)


@pytest.mark.parametrize("width", [360, 1400])
def test_no_page_is_wider_than_the_window(site: Site, open_page: OpenPage, width: int) -> None:
    page = open_page("admin", viewport={"width": width, "height": 800})
    failed = find_one(site, "parcel", "Failed")
    for path in [*PATHS, f"/records/parcel/{failed.id}"]:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_record_is_resumed_with_a_reason_and_its_page_follows_it(site: Site, open_page: OpenPage) -> None:
    (record,) = submit_failing_parcel(site)
    page = open_page("operator")
    page.goto(f"/records/parcel/{record.id}")
    wait_for_state(page, "Failed")
    page.get_by_role("link", name="resume").click()
    page.get_by_label("Why").fill("the neighbours take it")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status").filter(has_text="resume")).to_be_visible()
    wait_for_state(page, "Delivered")
    expect(page.get_by_role("region", name="History")).to_contain_text("the neighbours take it")
    expect(page.get_by_role("region", name="Attempts")).to_contain_text("There is no such house")


def test_an_operator_sees_the_traceback_of_an_attempt_and_a_reader_does_not(site: Site, open_page: OpenPage) -> None:
    with site.engine() as engine:
        retried = next(
            parcel
            for parcel in engine.store.each("parcel", state="Delivered")
            if any(entry.cause == "retry" for entry in engine.store.history(*parcel.ref))
        )
    page, other = open_page("operator"), open_page("reader")
    for each in (page, other):
        each.goto(f"/records/parcel/{retried.id}")
    page.get_by_text("traceback and").first.click()
    expect(page.get_by_label("Traceback").first).to_contain_text("ConnectionError")
    expect(other.get_by_role("region", name="Attempts")).to_contain_text("the carrier does not answer")
    assert other.get_by_text("traceback").count() == 0


def test_the_rows_of_a_list_are_searched_and_downloaded(site: Site, open_page: OpenPage) -> None:
    job = find_one(site, "job", "Completed")
    page = open_page("reader")
    page.goto(f"/records/job/{job.id}")
    page.get_by_text("downloaded", exact=True).click()
    page.get_by_role("link", name="Its rows").first.click()
    rows = page.get_by_role("region", name="Rows")
    expect(rows).to_contain_text(".")
    page.get_by_label("Text in a row").fill("not in any of them")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_contain_text("No row has this text")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download all").click()
    assert download.value.path().read_text().count("\n") >= 1


def test_the_api_is_described_with_examples_for_every_route(site: Site, open_page: OpenPage) -> None:
    page = open_page(None)
    page.goto("/docs")  # open, as the description for programs is
    description = page.request.get("/openapi.json").json()
    routes = [(method.upper(), path) for path, methods in description["paths"].items() for method in methods]
    shown = page.locator("details.route")
    expect(shown).to_have_count(len(routes))
    assert page.locator("details.route pre:first-of-type").count() == len(routes)
    first = page.locator("#post-api-v1-ingest-batches")
    first.locator("summary").click()
    expect(first.locator("pre").first).to_contain_text("A husky in the snow")
    expect(page.get_by_role("region", name="Codes")).to_contain_text("lock-unavailable")


def test_a_group_of_failures_is_previewed_and_resumed_at_once(site: Site, open_page: OpenPage) -> None:
    made = submit_failing_parcel(site, 3)
    page = open_page("operator")
    page.goto("/failures")
    row = page.get_by_role("row").filter(has_text="There is no such house")
    expect(row).to_have_count(1)
    row.get_by_role("button", name=re.compile("resume")).click()
    for record in made:
        expect(page.get_by_role("region", name="Concerned")).to_contain_text(record.id)
    # one that moves after the preview is left out, and named
    with site.engine() as engine:
        engine.act(Ref("parcel", made[0].id), "give-up", confirmed=True)
    page.get_by_label("Why").fill("tried at the neighbours")
    page.get_by_role("button", name=re.compile("Resume")).click()
    expect(page.get_by_role("heading", name=re.compile("done for"))).to_be_visible()
    expect(page.get_by_role("region", name="Left out")).to_contain_text(made[0].id)
    with site.engine() as engine:
        assert {entry.why for entry in engine.store.history("parcel", made[1].id)} >= {"tried at the neighbours"}


def test_a_selection_is_kept_over_pages_and_acted_on(site: Site, open_page: OpenPage) -> None:
    made = submit_failing_parcel(site, 2)
    page = open_page("operator")
    page.goto("/records/parcel?state=Failed")
    for record in made:
        page.get_by_label(f"Select {record.id}").check()
    page.goto("/records/parcel?state=Failed")  # ticked still, as on another page of the same list
    expect(page.locator("#selected-count")).to_have_text("2 selected")
    page.get_by_role("button", name="give-up").click()
    page.get_by_label("A returned parcel is not sent again.").check()
    page.get_by_role("button", name="Give-up 2").click()
    expect(page.get_by_role("heading", name="Give-up: done for 2 parcels")).to_be_visible()
    assert all(find_state(site, record) == "Returned" for record in made)


def find_state(site: Site, record: Record) -> str:
    with site.engine() as engine:
        return engine.store.get(*record.ref).state


def test_numbers_follow_a_submission_live(site: Site, open_page: OpenPage) -> None:
    submit_failing_parcel(site, 1)
    page = open_page("reader")
    number = page.locator('[data-count="parcel Failed"]')
    before = int(number.inner_text())
    submit_failing_parcel(site, 1)
    expect(number).to_have_text(str(before + 1))


def test_a_list_says_that_it_has_changed_and_does_not_move(site: Site, open_page: OpenPage) -> None:
    submit_failing_parcel(site, 1)
    page = open_page("reader")
    page.goto("/records/parcel?state=Failed")
    rows = page.locator("table.rows tbody tr")
    first = rows.first.inner_text()
    page.wait_for_function("() => document.body.dataset.heard === 'yes'")
    submit_failing_parcel(site, 1)
    expect(page.get_by_role("link", name=re.compile("1 new: show"))).to_be_visible()
    assert rows.first.inner_text() == first
    page.get_by_role("link", name="1 new: show").click()
    assert rows.first.inner_text() != first


def test_a_hold_is_set_and_released(site: Site, open_page: OpenPage) -> None:
    page = open_page("operator")
    page.goto("/admin/holds")
    page.get_by_label("Name", exact=False).fill("queue/shipment")
    page.get_by_label("Why").fill("the night shift sleeps")
    page.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("region", name="Holds")).to_contain_text("the night shift sleeps")
    with site.engine() as engine:
        shipment = engine.submit(New("shipment", (ShipmentOrder(1),)))
    page.goto(f"/records/shipment/{shipment.id}")
    expect(page.locator(".why")).to_contain_text("Its queue is paused")
    page.goto("/waiting")
    expect(page.get_by_role("region", name="Their queue is paused", exact=True)).to_contain_text(shipment.id)
    page.goto("/")
    page.locator(".item").filter(has_text="queue/shipment").get_by_role("button", name="Release").click()
    page.goto(f"/records/shipment/{shipment.id}")
    wait_for_state(page, "Delivered")


def test_everything_works_without_javascript(site: Site, open_page: OpenPage) -> None:
    (record,) = submit_failing_parcel(site)
    page = open_page("operator", java_script_enabled=False)
    page.goto("/records/parcel")
    page.locator("select[name=state]").select_option("Failed")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name=record.id).click()
    page.get_by_role("link", name="give-up").click()
    page.get_by_label("A returned parcel is not sent again.").check()
    page.get_by_role("button", name="Give-up").click()
    wait_for_state(page, "Returned")


def test_a_stale_button_changes_nothing_and_says_why(site: Site, open_page: OpenPage) -> None:
    (record,) = submit_failing_parcel(site)
    page = open_page("operator")
    page.goto(f"/records/parcel/{record.id}")
    wait_for_state(page, "Failed")
    page.goto(f"/records/parcel/{record.id}/act/resume")
    with site.engine() as engine:
        engine.act(record.ref, "give-up", confirmed=True)
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("has moved since the page was shown")).to_be_visible()
    assert find_state(site, record) == "Returned"


def test_a_reader_has_no_buttons_and_a_stranger_no_pages(site: Site, open_page: OpenPage) -> None:
    failed = find_one(site, "parcel", "Failed")
    page = open_page("reader")
    page.goto(f"/records/parcel/{failed.id}")
    expect(page.get_by_text("This needs the role operator.").first).to_be_visible()
    expect(page.get_by_role("link", name="resume")).to_have_count(0)
    assert page.goto("/admin/tokens").status == 403  # type: ignore[union-attr]
    stranger = open_page(None)
    for path in [*PATHS, f"/records/parcel/{failed.id}"]:
        stranger.goto(path)
        assert path == "/docs" or "/login" in stranger.url, path


def test_names_of_any_script_are_shown_as_they_are(site: Site, open_page: OpenPage) -> None:
    hostile = "<script>document.title='taken'</script> שלום " + "x" * 2000
    with site.engine() as engine:
        record = engine.submit(
            New("parcel", (ParcelLabel(1, hostile, hostile),), owner="<b>עברית</b>"), why=hostile[:900]
        )
    page = open_page("reader", viewport={"width": 360, "height": 800})
    for path in (f"/records/parcel/{record.id}", "/records/parcel"):
        page.goto(path)
        assert "taken" not in page.title()
        expect(page.get_by_text("<b>עברית</b>").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_keys_go_to_pages_and_walk_rows(site: Site, open_page: OpenPage) -> None:
    page = open_page("operator")
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/failures")
    page.keyboard.press("/")
    page.keyboard.type(find_one(site, "parcel", "Delivered").id)
    page.keyboard.press("Enter")
    wait_for_state(page, "Delivered")


def test_a_depositor_signs_in_by_password_and_sees_its_own_and_nothing_else(site: Site, open_page: OpenPage) -> None:
    with site.engine() as engine:
        own = engine.submit(New("parcel", (ParcelLabel(1, "mule", "1 Quay Street"),), owner="ada"))
    other = find_one(site, "parcel", "Failed")
    page = open_page(None)
    page.goto(f"/records/parcel/{own.id}")
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill("wrong horse battery")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("no user of this name and password")
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name=own.id)).to_be_visible()
    answer = page.goto(f"/records/parcel/{other.id}")
    assert answer is not None
    assert answer.status == 404
    page.goto("/records/parcel")
    expect(page.get_by_role("link", name=own.id)).to_be_visible()
    expect(page.get_by_role("link", name=other.id)).to_have_count(0)
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    page.get_by_role("link", name="ada", exact=True).click()
    expect(page.get_by_text("You may: reader what it owns; submitter what it owns")).to_be_visible()


def test_an_admin_makes_a_user_and_puts_it_into_a_group(site: Site, open_page: OpenPage) -> None:
    page = open_page("admin")
    page.goto("/admin/users")
    page.get_by_label("User", exact=True).fill("bob")
    page.get_by_label("Role").select_option("operator")
    page.get_by_label("Within").fill("ingest")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("region", name="Roles")).to_contain_text("operator within ingest")
    page.goto("/admin/groups/atlas")
    page.get_by_label("A user or a group").fill("bob")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("listitem").filter(has_text="bob")).to_be_visible()
