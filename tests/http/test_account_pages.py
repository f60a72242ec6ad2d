"""Signing in by password, what a user changes of itself on /account, and what admins and managers change in Admin."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from starlette.testclient import TestClient

from tests.accounts.test_ssh_keys import KNOWN
from tests.http.api_fixture import ApiFixture
from waybill import accounts
from waybill.accounts import Grant
from waybill.environment import Environment
from waybill.sign_in import make_login_link

PASSWORD = "correct horse battery"
HTML = {"Accept": "text/html"}


@pytest.fixture
def site(environment: Environment) -> Iterator[ApiFixture]:
    with closing(ApiFixture(environment, with_pages=True, hosts=["waybill.example.org"])) as site:
        with site.engine() as engine:
            accounts.create_user(engine, "ada", mail="ada@example.org", roles=[Grant("submitter", "own")])
            accounts.set_password(engine, "ada", PASSWORD)
        yield site


def sign_in(
    site: ApiFixture, user: str = "ada", password: str = PASSWORD, **options: str
) -> tuple[TestClient, int, str]:
    client = site.client(**options)
    client.headers.update(HTML)
    answer = client.post("/login", data={"user": user, "password": password, "to": "/records/crate"})
    return client, answer.status_code, answer.text


def browser_of(site: ApiFixture, user: str) -> TestClient:
    with site.engine() as engine:
        link = make_login_link(engine, user, "reader", is_user=True).text
    client = site.client()
    client.headers.update(HTML)
    assert client.post(f"/login/{link}").status_code == 303
    return client


def send(client: TestClient, path: str, **fields: str) -> tuple[int, str]:
    csrf = client.get("/account").text.split('name="csrf-token" content="')[1].split('"')[0]
    answer = client.post(path, data={"csrf": csrf, **fields})
    return answer.status_code, answer.text


def test_a_password_signs_in_and_the_cookie_is_safe(site: ApiFixture) -> None:
    client, status, _ = sign_in(site)
    assert status == 303
    assert client.get("/records/crate").status_code == 200
    assert client.get("/admin/users").status_code == 403
    assert "ada" in client.get("/account").text
    secure = site.client(base="https://waybill.example.org")
    cookie = secure.post("/login", data={"user": "ada", "password": PASSWORD}).headers["set-cookie"]
    assert all(each in cookie for each in ("Secure", "HttpOnly", "SameSite=lax"))
    elsewhere, status, text = sign_in(site, base="http://waybill.example.org")
    assert (status, "without TLS" in text) == (403, True)
    assert not elsewhere.cookies


def test_wrong_tries_are_answered_alike_and_limited(site: ApiFixture) -> None:
    wrong_name = sign_in(site, "eve")
    wrong_password = sign_in(site, "ada", "wrong horse battery", address="192.0.2.1")
    assert wrong_name[1:] == wrong_password[1:]
    assert wrong_name[1] == 403
    assert PASSWORD not in wrong_name[2]
    for n in range(9):  # from everywhere: it is the user who is tried
        assert sign_in(site, "ada", "wrong horse battery", address=f"192.0.2.{n}")[1] == 403
    status, text = sign_in(site, "ada", address="192.0.2.99")[1:]
    assert (status, "Too many wrong tries" in text) == (503, True)
    assert browser_of(site, "ada").get("/account").status_code == 200  # the other ways in stay open


def test_a_user_changes_what_is_its_own_and_no_more(site: ApiFixture) -> None:
    client, _, _ = sign_in(site)
    assert send(client, "/account", do="change", name="Ada L.", mail="ada@example.com")[0] == 303
    assert send(client, "/account", do="add key", line=KNOWN)[0] == 303
    status, text = send(client, "/account", do="new token", name="laptop", role="admin", days="90")
    token = text.split("wb_")[1].split("<")[0]
    me = site.client().get("/api/v1/me", headers={"Authorization": f"Bearer wb_{token}"}).json()
    assert (status, me["user"], me["role"]) == (200, "ada", "")
    for do in ("disable", "give role", "delete", "nothing"):
        assert send(client, "/account", do=do, role="admin")[0] == 403
    text = client.get("/account").text
    assert "Ada L." in text
    assert "35:8b:db:ae" in text
    assert send(client, "/account", do="set password", old="wrong", password="x" * 12, again="x" * 12)[0] == 403
    assert send(client, "/account", do="set password", old=PASSWORD, password="x" * 12, again="y" * 12)[0] == 400
    assert send(client, "/account", do="set password", old=PASSWORD, password="x" * 12, again="x" * 12)[0] == 303
    assert client.get("/account").status_code == 303  # signed out
    assert sign_in(site, "ada", "x" * 12)[1] == 303


def test_an_admin_makes_users_and_groups_and_a_manager_changes_members(site: ApiFixture) -> None:
    admin = site.browser("admin")
    assert "no user" in admin.get("/account").text
    assert send(admin, "/admin/users", id="bob", role="operator", scope="crates")[0] == 303
    status, text = send(admin, "/admin/users", id="eve", role="operator", scope="nothing")
    assert (status, "There is no application" in text) == (400, True)
    assert send(admin, "/admin/groups", id="atlas", description="<b>atlas</b>")[0] == 303
    assert send(admin, "/admin/groups/atlas", do="add manager", member="bob")[0] == 303
    assert send(admin, "/admin/groups/atlas", do="give role", role="reader", scope="crates/shelf/high")[0] == 303
    manager = browser_of(site, "bob")
    assert send(manager, "/admin/groups/atlas", do="add", member="ada")[0] == 303
    assert send(manager, "/admin/groups/atlas", do="give role", role="reader", scope="own")[0] == 403
    assert send(manager, "/admin/groups/atlas", do="close")[0] == 403
    assert send(browser_of(site, "ada"), "/admin/groups/atlas", do="add", member="bob")[0] == 403
    assert "&lt;b&gt;atlas" in manager.get("/admin/groups/atlas").text
    assert "within crates/shelf/high" in admin.get("/admin/groups/atlas").text
    text = admin.get("/admin/users/ada").text
    assert "atlas" in text
    assert PASSWORD not in text
    assert "argon2" not in text
    assert "operator within crates" in admin.get("/admin/users").text
    assert send(admin, "/admin/users/ada", do="disable", why="has left")[0] == 303
    assert sign_in(site)[1] == 403
    assert send(admin, "/admin/users/ada", do="delete")[0] == 303
    assert "has left" in admin.get("/admin/users/ada").text
    assert send(admin, "/admin/groups/atlas", do="close")[0] == 303
    for path in ("/admin/users/nobody", "/admin/groups/nobody"):
        assert admin.get(path).status_code == 404
