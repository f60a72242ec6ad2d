"""Whatever is sent, the answer is one that the description names, of the shape it names, and never a 500.

Schemathesis makes requests from the OpenAPI description, right ones and wrong ones, for a real store; hypothesis makes
page tokens and Authorization headers of its own.
"""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.budget import Budget
from tests.http.api_fixture import ApiFixture, make_environment, run_server
from waybill.errors import InputError
from waybill.record import Ref
from waybill.tokens import ROLES, issue
from waybill.views import ListQuery, PageTokens

API = "/api/v1"
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> ApiFixture:
    api = ApiFixture(make_environment(tmp_path_factory.mktemp("fuzz") / "data"))
    for n in range(5):
        ref = api.submit(owner="ada")
        if n % 2:
            api.fail(ref)
    api.submit("box", {"way": {"road": "north"}}, id="b1")
    return api


def known(api: ApiFixture) -> dict[str, st.SearchStrategy[str]]:
    """Names that lead somewhere, so that not all requests end at "there is no such kind"."""
    with api.engine() as engine:
        crates = [r.id for r in engine.store.find("crate").records]
        spare = [issue(engine, "spare", "reader").record.id for _ in range(3)]
    return {
        "kind": st.sampled_from(["crate", "crate", "box", "token"]),
        "id": st.sampled_from([*crates, "b1", *spare]),
        "action": st.sampled_from([a.name for a in api.environment.machines["crate"].actions]),
        "name": st.sampled_from(["road/north", "queue/crate"]),
    }


def operations(url: str) -> Iterator[Any]:
    schema: Any = schemathesis.openapi.from_url(f"{url}/openapi.json")
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        # a stream has no end; test_change_stream.py and test_events.py have their refusals
        if operation.path not in (f"{API}/changes", f"{API}/events/stream"):
            yield operation


@pytest.fixture(scope="module")
def url(api: ApiFixture) -> Iterator[str]:
    with run_server(api) as url:
        yield url


def test_any_request_is_answered_as_described(api: ApiFixture, url: str, budget: Budget) -> None:
    names = known(api)
    headers = {"Authorization": f"Bearer {api.tokens['admin']}"}
    seen: dict[int, int] = {}
    for operation in operations(url):
        for mode in GenerationMode:

            @settings(
                max_examples=budget.pick(small=8, long=250),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(operation.as_strategy(generation_mode=mode), st.data())
            def ask(case: Any, data: st.DataObject) -> None:
                for name in case.path_parameters or {}:
                    if name in names and data.draw(st.integers(0, 3)):
                        case.path_parameters[name] = data.draw(names[name])
                answer = case.call(headers=headers, timeout=60)
                seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
                case.validate_response(answer, checks=CHECKS)

            # a route without parameters cannot be asked wrongly
            with suppress(Unsatisfiable) if mode.is_negative else nullcontext():
                ask()
    assert {200, 404, 422} <= set(seen), seen


# --- page tokens

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
QUERIES = st.builds(
    ListQuery, TEXTS, st.none() | TEXTS, st.none() | st.builds(Ref, TEXTS, TEXTS), st.none() | TEXTS, st.booleans()
)
PLACES = st.integers(0, 2**63 - 1)


@given(TEXTS, QUERIES, PLACES)
def test_a_page_token_holds_what_was_asked_and_where_it_ended(secret: str, query: ListQuery, after: int) -> None:
    tokens = PageTokens(secret)
    token = tokens.sign(query, after)
    assert token is not None
    assert tokens.verify(token) == (query, after)
    assert tokens.sign(query, None) is None


@given(QUERIES, PLACES, st.data())
def test_a_page_token_that_was_changed_is_refused(query: ListQuery, after: int, data: st.DataObject) -> None:
    tokens = PageTokens("secret")
    token = str(tokens.sign(query, after))
    changed = data.draw(
        st.one_of(
            st.integers(0, len(token) - 1).map(lambda n: token[:n]),
            st.tuples(st.integers(0, len(token) - 1), st.characters()).map(
                lambda p: token[: p[0]] + p[1] + token[p[0] + 1 :]
            ),
            st.text(min_size=1, max_size=9).map(lambda more: token + more),
        ).filter(lambda text: text != token)
    )
    try:
        # the last letter has bits to spare: another letter can mean the same bytes
        assert tokens.verify(changed) == (query, after)
        assert changed[:-1] == token[:-1]
    except InputError:
        pass
    with pytest.raises(InputError):
        PageTokens("another secret").verify(token)


@given(st.text())
def test_any_text_is_no_page_token(text: str) -> None:
    with pytest.raises(InputError):
        PageTokens("secret").verify(text)


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_as_a_page_token_is_refused_over_http(api: ApiFixture, text: str) -> None:
    client = api.client("reader")
    answer = client.get(f"{API}/records/crate", params={"page_token": text})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad-page-token")


# --- who asks

HEADERS = st.binary(max_size=80).map(lambda raw: bytes(b if b >= 32 and b != 127 else 32 for b in raw))


@given(
    st.one_of(
        HEADERS,
        st.tuples(st.sampled_from([b"Bearer ", b"bearer wb_", b"Bearer wb_x_", b"Basic "]), HEADERS).map(b"".join),
    ),
    st.booleans(),
)
def test_any_authorization_is_refused_over_http(api: ApiFixture, header: bytes, cookie: bool) -> None:
    name = b"Cookie" if cookie else b"Authorization"
    answer = api.client().get(f"{API}/me", headers={name: (b"waybill_sign_in=" if cookie else b"") + header})
    assert answer.status_code == 401
    assert set(answer.json()["error"]) == {"code", "message", "hint"}


@given(st.sampled_from(ROLES), st.integers(0, 60), st.characters(min_codepoint=33, max_codepoint=126))
def test_a_token_with_one_letter_changed_opens_nothing(api: ApiFixture, role: str, place: int, letter: str) -> None:
    token = api.tokens[role]
    changed = token[: place % len(token)] + letter + token[place % len(token) + 1 :]
    answer = api.client().get(f"{API}/me", headers={"Authorization": f"Bearer {changed}"})
    assert answer.status_code == (200 if changed == token else 401)
