"""Every route and every action, for every role, where it holds, and every way not to be let in.

The routes are read from the server: one that EXPECTED does not name fails the test, so that nobody adds one without saying who
may use it. The actions are read from the machine. What must come out follows from three lines, `role_for`, which know nothing
of how the server decides.
"""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture
from waybill import accounts, config
from waybill.accounts import ROLES, Grant, is_role_sufficient
from waybill.application import Application
from waybill.environment import Environment
from waybill.machine import STAY, Document, Machine, action, end, rest
from waybill.notify import make_mail
from waybill.record import Record, Ref
from waybill.sign_in import make_login_link
from waybill.step import New
from waybill.tokens import issue, revoke

API = "/api/v1"
NORTH, SOUTH = "harbour/quay/north", "harbour/quay/south"
PLACES = {"everywhere": "", "application": "harbour", "scope": NORTH, "own": "own"}


def scope_of(record: Record) -> str:
    quay = record.documents.get("berth", {}).get("quay", "")
    return f"harbour/quay/{quay}" if quay else ""


def make_machine(name: str) -> Machine:
    return Machine(
        name=name, plural=f"{name}s", prefix=name, description="It lies there.", scope_of=scope_of,
        states=(rest("Moored", description="It lies there."), end("Sunk", description="It lies deeper.")),
        actions=(
            action("hail", "Moored", STAY, "Call it.", role="submitter"),
            action("tow", "Moored", STAY, "Pull it.", role="operator"),
            action("scuttle", "Moored", STAY, "Threaten it.", role="admin"),
            action("sink", "Moored", "Sunk", "Sink it.", role="admin"),
        ),
        documents=(Document("berth", None, "service", "Where."),),
    )  # fmt: skip


SHIP, BARGE = make_machine("ship"), make_machine("barge")
HARBOUR = Application("harbour", "Ships.", (SHIP,))
ISLAND = Application("island", "Barges.", (BARGE,))
ACTIONS = [each for each in SHIP.actions if each.target == STAY]


class Moored(NamedTuple):
    """A record of the test: what decides who sees it."""

    ref: Ref
    application: str
    owner: str = ""
    scope: str = ""


class Person(NamedTuple):
    role: str
    place: str
    headers: dict[str, str]
    browser: TestClient


def role_for(person: Person, record: Moored) -> str:
    """The role of a person for a record. Everybody is the user `ROLE-PLACE`, and sees what is theirs."""
    is_own = bool(record.owner) and record.owner == f"{person.role}-{person.place}"
    scope = PLACES[person.place]
    holds = (person.place == "everywhere" or record.application == scope or (record.scope != "" and record.scope == scope)
             or (person.place == "own" and is_own))  # fmt: skip
    return person.role if holds else "reader" if is_own else ""


def expected_status(person: Person, record: Moored, needed: str) -> int:
    held = role_for(person, record)
    if not held:
        return 404
    return 200 if is_role_sufficient(held, needed) else 403


# What each route needs: a role everywhere; a role "somewhere"; or it is about one record, or one account, and the tests below say.
EVERYWHERE: dict[str, tuple[str, Any]] = {
    "GET /metrics": ("reader", None),
    f"GET {API}/holds": ("reader", None),
    f"PUT {API}/holds/{{name:path}}": ("operator", {}),
    f"DELETE {API}/holds/{{name:path}}": ("operator", None),
    f"GET {API}/sessions": ("reader", None),
    f"GET {API}/events": ("reader", None),
    f"GET {API}/tokens": ("admin", None),
    f"POST {API}/tokens": ("admin", {"name": "new", "role": "reader"}),
    f"DELETE {API}/tokens/{{id}}": ("admin", None),
    f"GET {API}/users": ("admin", None),
    f"POST {API}/users": ("admin", {"id": "-"}),
    f"PUT {API}/users/{{name}}/state": ("admin", {"state": "Active"}),
    f"POST {API}/users/{{name}}/roles": ("admin", {"role": "reader", "scope": "harbour"}),
    f"DELETE {API}/users/{{name}}/roles/{{role}}": ("admin", None),
    f"GET {API}/groups": ("admin", None),
    f"POST {API}/groups": ("admin", {"id": "-"}),
    f"DELETE {API}/groups/{{name}}": ("admin", None),
    f"POST {API}/groups/{{name}}/roles": ("admin", {"role": "reader", "scope": "harbour"}),
    f"DELETE {API}/groups/{{name}}/roles/{{role}}": ("admin", None),
    "GET /admin": ("reader", None),
    "GET /admin/holds": ("reader", None),
    "POST /admin/holds/set": ("operator", {"name": "quay/x"}),
    "POST /admin/holds/clear": ("operator", {"name": "quay/x"}),
    "GET /admin/locks": ("operator", None),
    "GET /admin/doctor": ("operator", None),
    "POST /admin/doctor": ("operator", {"rule": "none"}),
    "GET /admin/settings": ("admin", None),
    "GET /admin/users": ("admin", None),
    "POST /admin/users": ("admin", {"id": "-"}),
    "GET /admin/users/{name}": ("admin", None),
    "POST /admin/users/{name}": ("admin", {"do": "nothing"}),
    "GET /admin/groups": ("admin", None),
    "POST /admin/groups": ("admin", {"id": "-"}),
    "GET /admin/tokens": ("admin", None),
    "POST /admin/tokens/new": ("admin", {"name": "new", "role": "reader"}),
    "POST /admin/tokens/revoke": ("admin", {"id": "none"}),
    "GET /admin/sign-ins": ("admin", None),
    "POST /admin/sign-ins/end": ("admin", {"id": "none"}),
}
SOMEWHERE: dict[str, tuple[str, Any]] = {
    f"GET {API}/me": ("reader", None),
    f"GET {API}/machines": ("reader", None),
    f"GET {API}/machines/{{kind}}": ("reader", None),
    f"GET {API}/machines/{{kind}}/figure.svg": ("reader", None),
    f"GET {API}/counts/{{kind}}": ("reader", None),
    f"GET {API}/records/{{kind}}": ("reader", None),
    "GET /": ("reader", None),
    "GET /failures": ("reader", None),
    "GET /waiting": ("reader", None),
    "GET /search": ("reader", None),
    "GET /records/{kind}": ("reader", None),
}
ACCOUNTS = {  # of `/users/{name}` and `/groups/{name}`: theirs, or an admin's
    f"{method} {API}/users/{{name}}{rest}"
    for method, rest in [("GET", ""), ("PATCH", ""), ("PUT", "/password"), ("GET", "/history"), ("GET", "/keys"),
                         ("POST", "/keys"), ("DELETE", "/keys/{key:path}")]
} | {
    f"{method} {API}/groups/{{name}}{rest}"
    for method, rest in [("GET", ""), ("GET", "/history"), ("PUT", "/members/{member}"), ("DELETE", "/members/{member}"),
                         ("PUT", "/managers/{member}"), ("DELETE", "/managers/{member}")]
}  # fmt: skip
RECORDS = {
    f"GET {API}/records/{{kind}}/{{id}}", f"GET {API}/records/{{kind}}/{{id}}/history", f"POST {API}/records/{{kind}}",
    f"POST {API}/records/{{kind}}/{{id}}/{{action}}", f"PUT {API}/records/{{kind}}/{{id}}/priority", f"GET {API}/changes",
    "GET /records/{kind}/{id}", "GET /records/{kind}/{id}/act/{name}", "POST /records/{kind}/{id}/act/{name}",
    "POST /records/{kind}/{id}/priority", "POST /actions/preview", "POST /actions/run", "POST /failures/preview", "GET /live",
    "GET /records/{kind}/{id}/lists/{document}", "GET /records/{kind}/{id}/lists/{document}/download", f"GET {API}/trace", "GET /trace",
}  # fmt: skip
# for whoever the account is: tests/http/test_account_pages.py
STREAMS = {f"GET {API}/events/stream": "reader"}  # need a role everywhere, and do not end for whoever has it
OWN_PAGES = {"GET /account", "POST /account", "GET /admin/groups/{name}", "POST /admin/groups/{name}"}
OPEN = {
    "GET /", "GET /health", "GET /ready", "GET /login", "GET /login/{text}", "POST /login/{text}", "POST /login", "POST /logout",
    "GET /static/{name:path}", "GET /docs",
}  # fmt: skip


class Harbour(ApiFixture):
    """The server, its people and its records; and a client for whoever has only a header."""

    def __init__(self, environment: Environment, stack: ExitStack) -> None:
        super().__init__(environment, with_pages=True)
        self.anyone = stack.enter_context(self.client())
        with self.engine() as engine:
            self.people = [
                self._make_person(engine, role, place, stack) for role, place in itertools.product(ROLES, PLACES)
            ]
            owners = [f"{person.role}-{person.place}" for person in self.people]
            self.records = [
                *(self._moor(engine, "ship", owner, "south") for owner in owners),
                self._moor(engine, "ship", "somebody", "north"),
                self._moor(engine, "ship", "somebody", "south"),
                self._moor(engine, "ship", "", ""),
                self._moor(engine, "barge", "somebody", ""),
            ]
            mail = make_mail(to=["ada@example.org"], subject="x", text="x", key="k", at=engine.store.now())
            self.mail = Moored(engine.submit(New(mail.kind, mail.documents, owner=owners[-1])).ref, "")
            self.refused = self._make_refused(engine)

    def _make_person(self, engine: Any, role: str, place: str, stack: ExitStack) -> Person:
        name = f"{role}-{place}"
        accounts.create_user(engine, name, roles=[Grant(role, PLACES[place])])  # type: ignore[arg-type]
        token = issue(engine, name, "admin", user=name).token
        browser = stack.enter_context(self.client())
        browser.headers["Accept"] = "text/html"
        link = make_login_link(engine, name, "reader", is_user=True).text
        assert browser.post(f"/login/{link}").status_code == 303
        return Person(role, place, {"Authorization": f"Bearer {token}"}, browser)

    def _moor(self, engine: Any, kind: str, owner: str, quay: str) -> Moored:
        record = engine.submit(New(kind, {"berth": {"quay": quay}}, owner=owner))
        return Moored(record.ref, "harbour" if kind == "ship" else "island", owner, record.scope)

    def _make_refused(self, engine: Any) -> dict[str, dict[str, str]]:
        """Headers that let nobody in, for each reason."""
        expired = issue(engine, "expired", "admin", lifetime=1e-6).token
        revoked = issue(engine, "revoked", "admin")
        revoke(engine, revoked.record.id)
        accounts.create_user(engine, "disabled", roles=[Grant("admin")])
        disabled = issue(engine, "disabled", "admin", user="disabled").token
        accounts.disable_user(engine, "disabled")
        tokens = {
            "expired": expired,
            "revoked": revoked.token,
            "disabled": disabled,
            "misspelt": f"{revoked.token[:-1]}_",
        }
        return {"none": {}, **{why: {"Authorization": f"Bearer {token}"} for why, token in tokens.items()}}

    def routes(self) -> Iterator[tuple[str, APIRoute]]:
        def flatten(routes: Any) -> Iterator[APIRoute]:
            for route in routes:
                if isinstance(route, APIRoute):
                    yield route
                elif hasattr(route, "original_router"):
                    yield from flatten(route.original_router.routes)

        for route in flatten(self.app.router.routes):
            for method in sorted(route.methods or ()):
                yield f"{method} {route.path}", route


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    folder = tmp_path_factory.mktemp("harbour")
    environment = Environment.from_config(config.load(env={}, overrides={"data": folder / "data"}), [HARBOUR, ISLAND])
    with ExitStack() as stack:
        made = Harbour(environment, stack)
        with closing(made):
            yield made


def fill(path: str, **values: str) -> str:
    names = {
        "kind": "ship",
        "id": "none",
        "action": "hail",
        "name": "nobody",
        "role": "reader",
        "member": "nobody",
        "key": "k",
        **values,
    }
    return path.replace(":path}", "}").format(**names)


def request(harbour: Harbour, person: Person | dict[str, str], route: str, body: Any = None, **values: str) -> int:
    """The status of a request by token for the API, by browser for pages; a redirect of a page is as good as 200."""
    method, path = route.split(" ", 1)
    path = fill(path, **values)
    if path.startswith("/api/") or path == "/metrics" or isinstance(person, dict):
        headers = person if isinstance(person, dict) else person.headers
        return harbour.anyone.request(method, path, json=body, headers=headers).status_code
    form = {**(body or {}), "csrf": csrf_of(person.browser)} if method == "POST" else None
    return person.browser.request(method, path, data=form).status_code


_csrf: dict[int, str] = {}


def csrf_of(browser: TestClient) -> str:
    if id(browser) not in _csrf:
        text = browser.get("/").text
        _csrf[id(browser)] = text.split('name="csrf-token" content="')[1].split('"')[0]
    return _csrf[id(browser)]


def test_every_route_says_who_may_use_it(harbour: Harbour) -> None:
    there = {name for name, _ in harbour.routes()}
    assert there - set(EVERYWHERE) - set(SOMEWHERE) - ACCOUNTS - RECORDS - OWN_PAGES - set(STREAMS) - OPEN == set()
    assert (set(EVERYWHERE) | set(SOMEWHERE) | ACCOUNTS | RECORDS) - there == set()


@pytest.mark.parametrize("why", ["none", "expired", "revoked", "disabled", "misspelt"])
def test_nobody_is_let_in_without_a_valid_token(harbour: Harbour, why: str) -> None:
    for name, _ in harbour.routes():
        if name in OPEN or not name.split(" ")[1].startswith(("/api/", "/metrics")):
            continue
        assert request(harbour, harbour.refused[why], name, {}) == 401, name
    for name in ["GET /", "GET /records/{kind}", "GET /admin", "GET /live"]:  # pages send a browser to the sign-in
        answer = harbour.anyone.get(fill(name.split(" ")[1]), headers={"Accept": "text/html", **harbour.refused[why]})
        assert (answer.status_code, answer.headers["location"].split("?")[0]) == (303, "/login"), name


def test_what_is_no_record_needs_a_role_that_holds_everywhere(harbour: Harbour) -> None:
    for person, (name, (needed, body)) in itertools.product(harbour.people, EVERYWHERE.items()):
        may = person.place == "everywhere" and is_role_sufficient(person.role, needed)
        status = request(harbour, person, name, body)
        assert (status != 403) == may, (name, person.role, person.place, status)
        assert status < 500
    for person, (name, needed) in itertools.product(harbour.people, STREAMS.items()):
        if person.place != "everywhere" or not is_role_sufficient(person.role, needed):
            assert request(harbour, person, name) == 403, (name, person.role, person.place)


def test_lists_and_pages_are_for_whoever_may_see_something(harbour: Harbour) -> None:
    for person, name in itertools.product(harbour.people, SOMEWHERE):
        assert request(harbour, person, name) == 200, (name, person.role, person.place)


def test_records_are_read_by_whoever_may_see_them_and_are_not_there_for_others(harbour: Harbour) -> None:
    routes = [f"GET {API}/records/{{kind}}/{{id}}", f"GET {API}/records/{{kind}}/{{id}}/history", "GET /records/{kind}/{id}",
              f"GET {API}/counts/ship?parent={{kind}}:{{id}}"]  # fmt: skip
    for person, record, name in itertools.product(harbour.people, harbour.records, routes):
        status = request(harbour, person, name, kind=record.ref.kind, id=record.ref.id)
        assert status == expected_status(person, record, "reader"), (name, person.role, person.place, record)
    for person, name in itertools.product(harbour.people, routes[:3]):  # whoever owns what the mail is about
        status = request(harbour, person, name, kind="mail", id=harbour.mail.ref.id)
        assert status == (200 if person.place == "everywhere" else 404), (name, person.role, person.place)


def test_every_action_needs_its_role_for_the_record(harbour: Harbour) -> None:
    for person, record, each in itertools.product(harbour.people, harbour.records, ACTIONS):
        needed = expected_status(person, record, each.role)
        where = {"kind": record.ref.kind, "id": record.ref.id, "name": each.name, "action": each.name}
        status = request(harbour, person, f"POST {API}/records/{{kind}}/{{id}}/{{action}}", {}, **where)
        assert status == needed, (person.role, person.place, record, each.name)
        if record.owner == "somebody":  # the pages ask the same; a few records show it
            page = request(harbour, person, "GET /records/{kind}/{id}/act/{name}", **where)
            assert page == needed or (page, needed) == (403, 404), (person.role, person.place, record, each.name)


def test_a_page_acts_on_one_record_and_on_many_for_whom_it_may(harbour: Harbour) -> None:
    tow = next(each for each in ACTIONS if each.name == "tow")
    for person in harbour.people:
        with harbour.engine() as engine:
            moored = {m.ref: engine.store.get(*m.ref) for m in harbour.records if m.ref.kind == "ship"}
        fields = {ref: json.dumps([ref.id, record.version, record.state]) for ref, record in moored.items()}
        allowed = {m.ref for m in harbour.records if m.ref in moored and expected_status(person, m, tow.role) == 200}
        seen = {m.ref for m in harbour.records if m.ref in moored and role_for(person, m)}
        has_role = is_role_sufficient(person.role, "operator")
        for ref in [next(iter(moored)), next(reversed(moored))]:
            status = request(
                harbour, person, "POST /records/{kind}/{id}/priority", {"priority": "5"}, kind=ref.kind, id=ref.id
            )
            wanted = 303 if ref in allowed else 403 if ref in seen or not has_role else 404
            assert status == wanted, (person.role, person.place, ref)
        form = {
            "csrf": csrf_of(person.browser),
            "kind": "ship",
            "action": "tow",
            "why": "",
            "id": [ref.id for ref in moored],
        }
        preview = person.browser.post("/actions/preview", data=form)
        assert preview.status_code == (200 if has_role else 403)
        for ref in moored:
            assert (f">{ref.id}<" in preview.text or f"{ref.id}" in preview.text) == (has_role and ref in seen), ref
        done = person.browser.post("/actions/run", data={**form, "selected": list(fields.values())})
        assert done.status_code == (200 if has_role else 403)
        with harbour.engine() as engine:
            moved = {ref for ref, record in moored.items() if engine.store.get(*ref).version > record.version}
        assert moved - {next(iter(moored)), next(reversed(moored))} <= allowed, (person.role, person.place)
        assert allowed - moved <= {next(iter(moored)), next(reversed(moored))}, (person.role, person.place)


def test_lists_counts_searches_and_pages_hold_what_may_be_seen_and_nothing_else(harbour: Harbour) -> None:
    for person, kind in itertools.product(harbour.people, ("ship", "barge", "mail")):
        records = [m for m in harbour.records if m.ref.kind == kind]
        seen = {m.ref.id for m in records if role_for(person, m)}
        others = {m.ref.id for m in records} - seen
        if kind == "mail" and person.place == "everywhere":
            seen = {harbour.mail.ref.id}
        about = (person.role, person.place, kind)
        listed: set[str] = set()
        token: str | None = None
        while True:
            params = {"limit": "3", **({"page_token": token} if token else {})}
            page = harbour.anyone.get(f"{API}/records/{kind}", params=params, headers=person.headers).json()
            listed |= {record["id"] for record in page["records"]}
            if (token := page["next"]) is None:
                break
        assert listed == seen, about
        for filters in ({"state": "Moored"}, {"owner": "somebody"}):
            if kind == "mail":
                continue
            page = harbour.anyone.get(f"{API}/records/{kind}", params=filters, headers=person.headers).json()
            wanted = {m.ref.id for m in records if m.ref.id in seen and filters.get("owner", m.owner) == m.owner}
            assert {record["id"] for record in page["records"]} == wanted, (about, filters)
        counts = harbour.anyone.get(f"{API}/counts/{kind}", headers=person.headers).json()
        assert counts["total"] == len(seen), about
        for path in (f"/records/{kind}", "/search?q=somebody", "/waiting", "/failures"):
            text = person.browser.get(path).text
            assert not [id for id in others if id in text], (about, path)
            if path.startswith("/records"):
                assert not [id for id in seen if id not in text], (about, path)
    for person, record in itertools.product(harbour.people, harbour.records):
        found = person.browser.get("/search", params={"q": record.ref.id})
        assert (found.status_code == 303) == bool(role_for(person, record)), (person.role, person.place, record)


def test_live_changes_of_what_may_not_be_seen_are_not_there(harbour: Harbour) -> None:
    hidden = next(m for m in harbour.records if m.owner == "somebody" and m.scope == SOUTH)
    for person in harbour.people:
        if role_for(person, hidden):
            continue
        for query in (f"kind=ship&id={hidden.ref.id}", f"kind=ship&parent=ship:{hidden.ref.id}"):
            answer = harbour.anyone.get(f"{API}/changes?{query}", headers=person.headers)
            assert answer.status_code == 404, (person.role, person.place)


def test_whoever_may_submit_submits_for_themselves_and_within_their_scope(harbour: Harbour) -> None:
    for person, kind, quay, owner in itertools.product(
        harbour.people, ("ship", "barge"), ("north", "south", ""), (None, "somebody")
    ):
        name = f"{person.role}-{person.place}"
        scope = f"harbour/quay/{quay}" if quay else ""
        would = Moored(Ref(kind, ""), "harbour" if kind == "ship" else "island", owner or name, scope)
        body = {"documents": {"berth": {"quay": quay}}, **({"owner": owner} if owner else {})}
        answer = harbour.anyone.post(f"{API}/records/{kind}", json=body, headers=person.headers)
        may = is_role_sufficient(role_for(person, would), "submitter")
        assert answer.status_code == (201 if may else 403), (name, would, answer.text)
        if may:
            assert answer.json()["owner"] == (owner or name)
            harbour.records.append(Moored(Ref(kind, answer.json()["id"]), would.application, owner or name, scope))


def test_an_idempotency_key_shows_nobody_the_record_of_another(harbour: Harbour) -> None:
    people = {(person.role, person.place): person for person in harbour.people}
    body = {"documents": {"berth": {"quay": "south"}}, "idempotency_key": "one"}
    made = harbour.anyone.post(f"{API}/records/ship", json=body, headers=people["admin", "everywhere"].headers)
    harbour.records.append(Moored(Ref("ship", made.json()["id"]), "harbour", "admin-everywhere", SOUTH))
    again = harbour.anyone.post(f"{API}/records/ship", json=body, headers=people["submitter", "own"].headers)
    assert (made.status_code, again.status_code) == (201, 409)
    assert made.json()["id"] not in again.text


def test_a_trace_leaves_out_what_may_not_be_seen(harbour: Harbour) -> None:
    """The applications of the test tell no trace: nothing is found, by anybody, and nobody is let in without a token."""
    for person, record in itertools.product(harbour.people, harbour.records[-4:]):
        answer = harbour.anyone.get(f"{API}/trace", params={"of": record.ref.id}, headers=person.headers)
        assert answer.status_code in (200, 404)
        assert role_for(person, record) or record.owner not in answer.text or not record.owner


def test_accounts_are_their_own_and_an_admins(harbour: Harbour) -> None:
    with harbour.engine() as engine:
        accounts.create_group(engine, "crew")
        accounts.create_user(engine, "newcomer")
        for member in ("reader-own", "submitter-own"):
            accounts.add_member(engine, "crew", member)
        accounts.add_manager(engine, "crew", "operator-own")
    bodies = {"PATCH": {"name": "x"}, "PUT password": {"password": "correct horse battery"}, "POST": {"line": "no key"}}
    for person, name in itertools.product(harbour.people, sorted(ACCOUNTS)):
        method, path = name.split(" ")
        me, is_admin = f"{person.role}-{person.place}", person.role == "admin" and person.place == "everywhere"
        if "/users/" in path:
            body = bodies.get(f"PUT {path.rsplit('/')[-1]}", bodies.get(method))
            if not path.endswith("/password"):
                assert request(harbour, person, name, body, name=me) not in (401, 403, 500), (name, me)
            status = request(harbour, person, name, body, name="newcomer")
            assert (status not in (403, 404) or "/keys/" in path) == is_admin or (is_admin, status) == (False, 404), (
                name,
                me,
            )
            assert is_admin or status == 404
            continue
        status = request(harbour, person, name, name="crew", member="newcomer")
        sees = is_admin or me in ("reader-own", "submitter-own", "operator-own")
        may = is_admin or method == "GET" or (me == "operator-own" and "/members/" in path)
        assert status in ((200, 409) if sees and may else (403,) if sees else (404,)), (name, me, status)
