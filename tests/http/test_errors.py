"""Every refusal has one shape, whoever makes it: {"error": {"code", "message", "hint"}}."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.http.api_fixture import CRATE, ApiFixture
from waybill import record as nouns
from waybill.errors import InputError, NotFound, WaybillError
from waybill.http.errors import describe_error
from waybill.machine import MachineError
from waybill.rules import ActionRefused

API = "/api/v1"


def check_shape(answer: Any) -> dict[str, str]:
    assert answer.headers["content-type"] == "application/json", answer.headers
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, str] = body["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["message"][-1] in ".!?", error
    assert error["code"] == error["code"].lower()
    assert error["hint"], error
    return error


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nowhere", None, 404, "no-route"),
        ("GET", "/nowhere/at/all", None, 404, "no-route"),
        ("GET", f"{API}/machines/", None, 404, "no-route"),
        ("DELETE", f"{API}/machines", None, 405, "no-method"),
        ("PATCH", "/health", None, 405, "no-method"),
        ("GET", f"{API}/records/nothing", None, 404, "unknown-kind"),
        ("GET", f"{API}/records/crate/nothing", None, 404, "not-found"),
        ("GET", f"{API}/records/crate?limit=many", None, 422, "invalid"),
        ("POST", f"{API}/records/crate", b"{", 400, "bad-json"),
        ("POST", f"{API}/records/crate", b"[" * 100_000, 400, "bad-json"),
        ("POST", f"{API}/records/crate", b'{"documents": {"label": NaN}}', 400, "bad-json"),
        ("POST", f"{API}/records/crate", b'{"documents": {"label": "\\ud800"}}', 400, "bad-json"),
        ("POST", f"{API}/records/crate", b'"\xff"', 400, "bad-json"),
        ("POST", f"{API}/records/crate", b"", 422, "invalid"),
        ("POST", f"{API}/records/crate", b'{"documents": 3}', 422, "invalid"),
        ("POST", f"{API}/records/crate", b'{"documents": {}, "idempotency_key": "a b"}', 422, "invalid"),
        ("PUT", f"{API}/holds/a//b", None, 422, "bad-name"),
        ("PUT", f"{API}/holds/queue/nope", None, 422, "unknown-queue"),
        ("PUT", f"{API}/holds/queue/crate.Nowhere", None, 422, "unknown-queue"),
        ("PUT", f"{API}/holds/a%20", None, 422, "bad-name"),
        ("PUT", f"{API}/holds/a%07b", None, 422, "invalid"),
        ("PUT", f"{API}/holds/{'a' * 201}", None, 422, "invalid"),
        ("DELETE", f"{API}/holds/never/set", None, 404, "unknown-hold"),
        ("DELETE", f"{API}/tokens/nothing", None, 404, "not-found"),
        ("POST", f"{API}/tokens", b'{"name": "x", "role": "king"}', 422, "invalid"),
    ],
)
def test_refusals_have_one_shape(
    admin: TestClient, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    answer = admin.request(method, path, content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert check_shape(answer)["code"] == code


def test_a_body_that_is_no_json_is_415(admin: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = admin.post(f"{API}/records/crate", content=b'{"documents": {}}', headers={"Content-Type": kind})
        assert answer.status_code == 415
        check_shape(answer)


def test_a_body_above_the_limit_is_413_whether_it_says_its_length_or_not(admin: TestClient) -> None:
    large = b'{"why": "' + b"x" * (1024 * 1024) + b'"}'
    headers = {"Content-Type": "application/json"}
    response = admin.post(f"{API}/records/crate", content=large, headers=headers)
    chunked = admin.post(f"{API}/records/crate", content=iter([large[:500_000], large[500_000:]]), headers=headers)
    assert "transfer-encoding" in chunked.request.headers
    assert (response.status_code, chunked.status_code) == (413, 413)
    assert check_shape(response) == check_shape(chunked)


def test_what_the_server_does_wrong_is_an_incident_and_not_a_traceback(
    api: ApiFixture, operator: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ref = api.submit()
    monkeypatch.setattr("waybill.engine.Engine.set_priority", lambda *args, **kwargs: dict[str, str]()["secret detail"])
    answer = operator.put(f"{API}/records/crate/{ref.id}/priority", json={"priority": 1})
    assert answer.status_code == 500
    error = check_shape(answer)
    assert "secret detail" not in answer.text
    incident = error["message"].split()[-1].rstrip(".")
    assert any(incident in line.getMessage() and line.exc_info for line in caplog.records)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (nouns.RecordNotFound(), 404),
        (NotFound("There is no kind 'x'; there are none.", code="unknown-kind"), 404),
        (nouns.Conflict(), 409),
        (nouns.RecordBusy(), 409),
        (nouns.ParentClosed(), 409),
        (nouns.ClaimLost(), 409),
        (nouns.LockUnavailable(), 409),
        (nouns.RecordExists(), 409),
        (nouns.SessionLost(), 409),
        (ActionRefused("Not now."), 409),
        (nouns.CommitTooLarge(), 413),
        (nouns.StoreUnavailable(), 503),
        (nouns.BadStore(), 503),
        (nouns.CommitOutcomeUnknown(), 504),
        (InputError(code="bad-page-token"), 400),
        (MachineError("No such document.", code="bad-documents"), 422),
    ],
)
def test_every_refusal_of_store_and_engine_has_its_status(error: WaybillError, status: int) -> None:
    found, words, headers = describe_error(error)
    assert found == status
    assert words["message"] == str(error)
    assert words["hint"]
    assert ("Retry-After" in headers) == (status in (503, 504))
    assert words["code"] == error.code


def test_every_store_error_is_known_here() -> None:
    """A new kind of refusal in record/refusals.py must be given its status."""

    def below(kind: type[nouns.StoreError]) -> set[type[nouns.StoreError]]:
        here = {k for k in kind.__subclasses__() if k.__module__.startswith(nouns.__name__)}
        return here.union(*(below(k) for k in here))

    assert {describe_error(kind())[0] for kind in below(nouns.StoreError)} <= {404, 409, 413, 503, 504}
    assert len(below(nouns.StoreError)) == 12


def test_an_unknown_outcome_says_how_to_repeat(
    api: ApiFixture, submitter: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A11: it may have been written."""
    with api.engine() as engine:
        kind = type(engine.store)
    real = kind.commit

    def cut(store: Any, groups: Any) -> Any:
        real(store, groups)
        raise nouns.CommitOutcomeUnknown

    key = {"Idempotency-Key": "once"}
    with monkeypatch.context() as patch:
        patch.setattr(kind, "commit", cut)
        answer = submitter.post(f"{API}/records/crate", json={"documents": {"label": {}}}, headers=key)
    assert answer.status_code == 504
    assert "Idempotency-Key" in check_shape(answer)["hint"]
    assert submitter.post(f"{API}/records/crate", json={"documents": {"label": {}}}, headers=key).status_code == 200
    assert submitter.get(f"{API}/counts/crate").json()["total"] == 1


def test_a_mark_whose_name_leads_to_no_route_is_answered_as_described(admin: TestClient) -> None:
    """A line break ends what a route takes for a name: the answer is that of no route, and the description has it."""
    described = admin.get("/openapi.json").json()["paths"][f"{API}/holds/{{name}}"]
    for method in ("PUT", "DELETE"):
        answer = admin.request(method, f"{API}/holds/%0Aa")
        assert check_shape(answer)["code"] == "no-route"
        assert str(answer.status_code) in described[method.lower()]["responses"]


def test_the_openapi_description_names_the_shape(anyone: TestClient) -> None:
    spec = anyone.get("/openapi.json").json()
    described = [
        (path, method, status)
        for path, methods in spec["paths"].items()
        if path != "/ready"  # its "no" is no refusal
        for method, operation in methods.items()
        for status, response in operation["responses"].items()
        if int(status) >= 400
        and response["content"]["application/json"]["schema"] != {"$ref": "#/components/schemas/ErrorBody"}
    ]
    assert described == []
    assert set(spec["components"]["schemas"]["ErrorView"]["required"]) == {"code", "message", "hint"}
    assert CRATE.name not in spec["paths"]
