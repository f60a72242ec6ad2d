"""The records of every kind over HTTP, on the embedded default."""

import re
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture, settle_now
from waybill.record import Change, CommitGroup
from waybill.step import Done

API = "/api/v1"


def ids(answer: object) -> list[str]:
    return [r["id"] for r in answer.json()["records"]]  # type: ignore[attr-defined]


def test_a_submission_is_answered_with_the_record_and_can_be_read_back(submitter: TestClient) -> None:
    made = submitter.post(
        f"{API}/records/crate",
        json={"documents": {"label": {"to": "Ada"}}, "priority": 3, "owner": "ada", "why": "a gift"},
    )
    assert made.status_code == 201
    assert made.headers["location"] == f"{API}/records/crate/{made.json()['id']}"
    read = submitter.get(made.headers["location"]).json()
    assert read["state"] == "Packing"
    assert read["type"] == "work"
    assert read["state_description"] == "Puts the goods into the crate."
    assert (read["priority"], read["owner"]) == (3, "ada")
    assert read["documents"] == {"label": {"v": 1, "to": "Ada"}}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", read["created"])
    (line,) = submitter.get(f"{made.headers['location']}/history").json()["entries"]
    assert (line["cause"], line["who"], line["why"]) == ("submit", "the submitter", "a gift")
    assert (line["before"], line["after"]) == (None, "Packing")


def test_a_repeated_submission_is_answered_with_the_first_record_and_200(submitter: TestClient) -> None:
    """A11: creation is repeatable by the caller's key."""
    body, key = {"documents": {"label": {"to": "Ada"}}}, {"Idempotency-Key": "order-17"}
    first = submitter.post(f"{API}/records/crate", json=body, headers=key)
    again = submitter.post(f"{API}/records/crate", json={**body, "priority": 1}, headers=key)
    as_field = submitter.post(f"{API}/records/crate", json={**body, "idempotency_key": "order-17"})
    assert (first.status_code, again.status_code, as_field.status_code) == (201, 200, 200)
    assert first.json()["id"] == again.json()["id"] == as_field.json()["id"]
    assert submitter.get(f"{API}/counts/crate").json()["total"] == 1


def test_a_key_that_made_another_record_is_refused(submitter: TestClient) -> None:
    body, key = {"documents": {"way": {"road": "north"}}}, {"Idempotency-Key": "k"}
    assert submitter.post(f"{API}/records/box", json={**body, "id": "b1"}, headers=key).status_code == 201
    other = submitter.post(f"{API}/records/box", json={**body, "id": "b2"}, headers=key)
    assert other.status_code == 409
    assert "made box b1" in other.json()["error"]["message"]
    assert submitter.get(f"{API}/records/box/b2").status_code == 404


def test_an_id_that_is_taken_is_refused(submitter: TestClient) -> None:
    body = {"id": "b1", "documents": {"way": {"road": "north"}}}
    assert submitter.post(f"{API}/records/box", json=body).status_code == 201
    again = submitter.post(f"{API}/records/box", json=body)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "exists")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"documents": {"lable": {}}}, 422, "declares no document lable"),
        ({"documents": {}, "priority": 100}, 422, "priority"),
        ({"documents": {}, "priority": True}, 422, "priority"),
        ({"documents": {}, "colour": "red"}, 422, "colour"),
        ({"documents": {}, "id": "a/b"}, 409, "is no id"),
        ({"documents": {}, "id": ""}, 409, "1 to 200"),
        ({"documents": {}, "owner": "a\x00b"}, 422, "owner"),
        ({"documents": []}, 422, "documents"),
        ([], 422, "body"),
    ],
)
def test_a_wrong_submission_says_what_is_wrong_and_writes_nothing(
    submitter: TestClient, body: object, status: int, words: str
) -> None:
    refused = submitter.post(f"{API}/records/crate", json=body)
    assert refused.status_code == status, refused.text
    assert words in refused.json()["error"]["message"]
    assert submitter.get(f"{API}/counts/crate").json()["total"] == 0


def test_documents_that_a_machine_stumbles_over_are_the_users_mistake(submitter: TestClient) -> None:
    refused = submitter.post(f"{API}/records/box", json={"id": "b1", "documents": {"way": {"rode": "north"}}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad-documents")
    assert "road" in refused.json()["error"]["message"]


def test_a_document_larger_than_a_store_takes_is_refused(submitter: TestClient) -> None:
    refused = submitter.post(f"{API}/records/crate", json={"documents": {"label": {"to": "x" * 600_000}}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too-large")
    assert "manifest" in refused.json()["error"]["message"] + refused.json()["error"]["hint"]


def test_pages_follow_creation_order_both_ways_and_show_each_record_once(api: ApiFixture, reader: TestClient) -> None:
    """B6: page tokens hold seq, filter and direction, signed."""
    made = [api.submit().id for _ in range(7)]
    for order, wanted in (("oldest", made), ("newest", made[::-1])):
        seen: list[str] = []
        page = reader.get(f"{API}/records/crate", params={"order": order, "limit": 3})
        while True:
            assert page.status_code == 200
            seen += ids(page)
            if (token := page.json()["next"]) is None:
                break
            api.submit()  # a record that comes while somebody reads
            page = reader.get(f"{API}/records/crate", params={"page_token": token, "limit": 3})
        assert [id for id in seen if id in made] == wanted
        assert len(seen) == len(set(seen))


def test_lists_are_filtered_by_state_parent_or_owner(api: ApiFixture, reader: TestClient) -> None:
    mine, other = api.submit(owner="ada"), api.submit(owner="bob")
    api.fail(other)
    assert ids(reader.get(f"{API}/records/crate", params={"state": "Failed"})) == [other.id]
    assert ids(reader.get(f"{API}/records/crate", params={"owner": "ada"})) == [mine.id]
    assert ids(reader.get(f"{API}/records/box", params={"parent": f"crate:{mine.id}"})) == []
    assert ids(reader.get(f"{API}/records/crate")) == [mine.id, other.id]


def test_a_list_shows_documents_only_when_asked(api: ApiFixture, reader: TestClient) -> None:
    api.submit()
    assert reader.get(f"{API}/records/crate").json()["records"][0]["documents"] is None
    assert (
        reader.get(f"{API}/records/crate", params={"documents": "true"}).json()["records"][0]["documents"]["label"][
            "to"
        ]
        == "Ada"
    )


@pytest.mark.parametrize(
    ("path", "params", "status", "code", "words"),
    [
        ("records/crat", {}, 404, "unknown-kind", "there are activity, box, crate"),
        ("records/crate", {"state": "Flying"}, 400, "unknown-state", "it has Packing, Travelling"),
        ("records/crate", {"state": "Failed", "owner": "ada"}, 400, "bad-query", "at most one filter"),
        ("records/crate", {"parent": "crate"}, 400, "bad-query", "names no record"),
        ("records/crate", {"parent": "cart:1"}, 404, "unknown-kind", "'cart'"),
        ("records/crate", {"order": "sideways"}, 422, "invalid", "query order"),
        ("records/crate", {"limit": "0"}, 422, "invalid", "query limit"),
        ("records/crate", {"limit": "1001"}, 422, "invalid", "query limit"),
        ("records/crate", {"page_token": "AAAA"}, 400, "bad-page-token", "page token"),
        ("records/crate", {"page_token": "é"}, 400, "bad-page-token", "page token"),
        ("records/crate/crt0000000099", {}, 404, "not-found", ""),
        ("records/crate/a%00b", {}, 404, "not-found", "is no id"),
        ("records/crate/none/history", {}, 404, "not-found", ""),
        ("counts/crat", {}, 404, "unknown-kind", "'crat'"),
        ("machines/crat", {}, 404, "unknown-kind", "'crat'"),
        ("machines/crat/figure.svg", {}, 404, "unknown-kind", "'crat'"),
    ],
)
def test_what_does_not_exist_is_said_in_a_sentence(
    reader: TestClient, path: str, params: dict[str, str], status: int, code: str, words: str
) -> None:
    refused = reader.get(f"{API}/{path}", params=params)
    assert refused.status_code == status, refused.text
    error = refused.json()["error"]
    assert error["code"] == code
    assert words in error["message"]
    assert error["message"].endswith((".", "none", "..")), error["message"]
    assert error["hint"]


def test_a_token_of_one_list_does_not_open_another(api: ApiFixture, reader: TestClient) -> None:
    for _ in range(3):
        api.submit(owner="ada")
    token = reader.get(f"{API}/records/crate", params={"owner": "ada", "limit": 1}).json()["next"]
    assert reader.get(f"{API}/records/crate", params={"page_token": token, "owner": "ada"}).status_code == 200
    for other in ({"owner": "bob"}, {"state": "Failed"}, {"order": "newest"}):
        refused = reader.get(f"{API}/records/crate", params={"page_token": token, **other})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad-page-token"), other
    assert reader.get(f"{API}/records/box", params={"page_token": token}).status_code == 400


def test_records_in_a_state_that_is_not_declared_are_shown(api: ApiFixture, reader: TestClient) -> None:
    """B15: shown, never claimed."""
    ref = api.submit()
    with api.engine() as engine:
        record = engine.store.get(*ref)
        engine.store.commit([CommitGroup((Change(record, replace(record, state="Bygone"), "seen from outside"),))])
    shown = reader.get(f"{API}/records/crate", params={"state": "Bygone"}).json()["records"][0]
    assert (shown["state"], shown["type"], shown["actions"]) == ("Bygone", None, [])
    counted = reader.get(f"{API}/counts/crate").json()["states"][-1]
    assert (counted["state"], counted["count"], counted["type"]) == ("Bygone", 1, None)


def test_an_action_moves_the_record_and_says_what_came_of_it(api: ApiFixture, operator: TestClient) -> None:
    ref = api.submit()
    api.fail(ref)
    done = operator.post(f"{API}/records/crate/{ref.id}/resume", json={"why": "lighter now"})
    assert done.status_code == 200
    assert done.json()["pending"] is False
    assert done.json()["record"]["state"] == "Packing"
    last = operator.get(f"{API}/records/crate/{ref.id}/history").json()["entries"][-1]
    assert (last["cause"], last["who"], last["why"]) == ("resume", "the operator", "lighter now")


def test_an_action_needs_no_body(api: ApiFixture, operator: TestClient) -> None:
    ref = api.submit()
    api.fail(ref)
    assert operator.post(f"{API}/records/crate/{ref.id}/resume").status_code == 200


def test_a_guard_that_refuses_is_heard_word_for_word(api: ApiFixture, operator: TestClient) -> None:
    ref = api.submit()
    api.fail(ref)
    refused = operator.post(f"{API}/records/crate/{ref.id}/inspect")
    assert refused.status_code == 409
    assert refused.json()["error"] == {
        "code": "refused",
        "message": "The crate is not sealed: write it on its label first.",
        "hint": refused.json()["error"]["hint"],
    }
    shown = {a["name"]: a for a in operator.get(f"{API}/records/crate/{ref.id}").json()["actions"]}
    assert shown["inspect"]["why_not"] == "The crate is not sealed: write it on its label first."
    assert shown["resume"]["why_not"] is None
    assert shown["resume"]["target"] == "Packing"


def test_an_action_of_another_state_is_refused_with_what_is_possible(api: ApiFixture, operator: TestClient) -> None:
    refused = operator.post(f"{API}/records/crate/{api.submit().id}/resume")
    assert refused.status_code == 409
    assert "Possible now: relabel, scrap" in refused.json()["error"]["message"]


def test_an_unknown_action_is_404_with_those_there_are(api: ApiFixture, operator: TestClient) -> None:
    refused = operator.post(f"{API}/records/crate/{api.submit().id}/fly")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown-action")
    assert "resume, relabel, inspect, scrap, forget" in refused.json()["error"]["message"]


def test_an_action_that_must_be_confirmed_is_refused_until_it_is(api: ApiFixture, operator: TestClient) -> None:
    ref = api.submit()
    path = f"{API}/records/crate/{ref.id}/scrap"
    refused = operator.post(path)
    assert refused.status_code == 409
    assert "What is in it is lost." in refused.json()["error"]["message"]
    assert operator.get(f"{API}/records/crate/{ref.id}").json()["state"] == "Packing"
    assert operator.post(path, json={"confirmed": True}).json()["record"]["state"] == "Scrapped"


def test_arguments_of_an_action_are_written_and_wrong_ones_are_refused(api: ApiFixture, operator: TestClient) -> None:
    ref = api.submit()
    path = f"{API}/records/crate/{ref.id}/relabel"
    refused = operator.post(path, json={"args": {"for": "Bob"}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad-documents")
    assert operator.post(path, json={"args": {"to": "Bob"}}).status_code == 200
    assert operator.get(f"{API}/records/crate/{ref.id}").json()["documents"]["label"]["to"] == "Bob"


def test_a_held_record_is_asked_and_answers_202_or_refuses(api: ApiFixture, operator: TestClient) -> None:
    """B11: a request to whoever holds the claim."""
    ref = api.submit()
    with api.worker(ref) as (engine, record):
        response = operator.post(f"{API}/records/crate/{ref.id}/scrap", json={"confirmed": True})
        assert (response.status_code, response.json()["pending"]) == (202, True)
        (ask,) = engine.store.renew_session(str(record.session)).action_requests
        assert (ask.action, ask.who) == ("scrap", "the operator")
        refused = operator.post(f"{API}/records/crate/{ref.id}/relabel", json={"args": {"to": "Bob"}})
        assert refused.status_code == 409
        assert "A worker has claimed" in refused.json()["error"]["message"]
        settle_now(engine, record, Done())


def test_priority_is_set_in_any_state(api: ApiFixture, operator: TestClient) -> None:
    ref = api.submit()
    assert (
        operator.put(f"{API}/records/crate/{ref.id}/priority", json={"priority": 0, "why": "urgent"}).json()["record"][
            "priority"
        ]
        == 0
    )
    assert operator.put(f"{API}/records/crate/{ref.id}/priority", json={"priority": 100}).status_code == 422
    with api.worker(ref):
        assert operator.put(f"{API}/records/crate/{ref.id}/priority", json={"priority": 9}).status_code == 202


def test_progress_of_a_held_record_is_shown(api: ApiFixture, reader: TestClient) -> None:
    """B12: progress travels with the session."""
    ref = api.submit()
    with api.worker(ref, {f"crate {ref.id}": [3, 12, "boxes", "Packing"]}):
        wanted = {"done": 3, "total": 12, "unit": "boxes", "fraction": 0.25}
        assert reader.get(f"{API}/records/crate/{ref.id}").json()["progress"] == wanted
        assert reader.get(f"{API}/records/crate").json()["records"][0]["progress"] == wanted
        (session,) = reader.get(f"{API}/sessions").json()["sessions"]
        assert session["host"] == "elsewhere"
        assert session["steps"] == [{"kind": "crate", "id": ref.id, "progress": wanted}]
    assert reader.get(f"{API}/sessions").json()["sessions"] == []


def test_a_worker_that_is_gone_is_called_expired(api: ApiFixture, reader: TestClient) -> None:
    with api.engine() as engine:
        session = engine.store.open_session(host="h", ttl=60.0, about={})
        (seen,) = reader.get(f"{API}/sessions").json()["sessions"]
        assert (seen["name"], seen["expired"]) == (session, False)
        engine.store.close_session(session)
        gone = engine.store.open_session(host="h", ttl=1e-9, about={})  # as after kill -9, when the ttl has passed
        (seen,) = reader.get(f"{API}/sessions").json()["sessions"]
        assert (seen["name"], seen["expired"]) == (gone, True)


def test_tally_counts_every_declared_state_and_the_children_of_one(api: ApiFixture, reader: TestClient) -> None:
    api.fail(api.submit())
    api.submit()
    counts = {s["state"]: s["count"] for s in reader.get(f"{API}/counts/crate").json()["states"]}
    assert counts == {"Packing": 1, "Travelling": 0, "Failed": 1, "Arrived": 0, "Scrapped": 0}
    of_one = reader.get(f"{API}/counts/box", params={"parent": "crate:x"}).json()
    assert (of_one["total"], of_one["parent"]) == (0, {"kind": "crate", "id": "x"})


def test_ids_with_odd_characters_find_their_way(submitter: TestClient) -> None:
    odd = "ark:99999%fk4?é#&+=\u00a0;'\""
    made = submitter.post(f"{API}/records/box", json={"id": odd, "documents": {"way": {"road": "north"}}})
    assert made.status_code == 201, made.text
    read = submitter.get(f"{API}/records/box/{quote(odd, safe='')}")
    assert read.status_code == 200
    assert read.json()["id"] == odd
    assert submitter.get(made.headers["location"]).json()["id"] == odd


def test_the_system_makes_its_own_records(submitter: TestClient, admin: TestClient) -> None:
    assert submitter.post(f"{API}/records/token", json={"id": "x", "documents": {}}).status_code == 403
    assert admin.post(f"{API}/records/token", json={"id": "x", "documents": {}}).status_code == 403
    assert admin.get(f"{API}/records/token").status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("GET", "/counts/crate?paren=crate:c1", "parent"),
        ("GET", "/changes?knd=crate", "kind, id, parent"),
        ("GET", "/machines?kind=crate", "none"),
        ("GET", "/holds?name=x", "none"),
        ("GET", "/tokens?limt=5", "state, user, page_token, limit"),
        ("POST", "/records/crate?idempotency_key=r1", "none"),
    ],
)
def test_a_parameter_that_a_route_does_not_know_is_refused(
    api: ApiFixture, admin: TestClient, method: str, path: str, known: str
) -> None:
    refused = admin.request(method, f"{API}{path}", json={} if method == "POST" else None)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad-query")
    assert refused.json()["error"]["message"].endswith(f"; it has {known}.")
    assert admin.get(f"{API}/counts/crate").json()["total"] == 0


@pytest.mark.parametrize("query", ["stat=Failed", "newest=maybe", "state=Packing&%F0%9F%93%A6=1"])
def test_a_parameter_that_a_list_does_not_know_is_refused_and_the_known_ones_are_named(
    api: ApiFixture, reader: TestClient, query: str
) -> None:
    api.submit()
    refused = reader.get(f"{API}/records/crate?{query}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad-query")
    assert "it has state, parent, owner, order, page_token, limit, documents." in refused.json()["error"]["message"]
