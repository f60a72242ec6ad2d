"""Who is let in, as what, and how tokens are made, kept and ended."""

import os
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture, make_environment
from waybill.environment import Environment
from waybill.errors import InputError
from waybill.record import Ref
from waybill.rules import ActionRefused
from waybill.tokens import ensure_admin_token, find_token, identify, is_role_sufficient, issue, read_token, revoke

API = "/api/v1"
RANKS = ["reader", "submitter", "operator", "admin"]

# What each role may do, from least to most; a route not named here is found by test_every_route_is_guarded.
NEEDS: list[tuple[str, str, Any, str]] = [
    ("GET", "/me", None, "reader"),
    ("GET", "/machines", None, "reader"),
    ("GET", "/machines/crate", None, "reader"),
    ("GET", "/machines/crate/figure.svg", None, "reader"),
    ("GET", "/records/crate", None, "reader"),
    ("GET", "/records/crate/x", None, "reader"),
    ("GET", "/records/crate/x/history", None, "reader"),
    ("GET", "/counts/crate", None, "reader"),
    ("GET", "/holds", None, "reader"),
    ("GET", "/sessions", None, "reader"),
    ("GET", "/events", None, "reader"),
    ("POST", "/records/crate", {"documents": {"label": {}}}, "submitter"),
    ("POST", "/records/crate/x/resume", {}, "submitter"),
    ("POST", "/records/crate/x/scrap", {}, "operator"),
    ("PUT", "/records/crate/x/priority", {"priority": 1}, "operator"),
    ("PUT", "/holds/road/north", {}, "operator"),
    ("DELETE", "/holds/road/north", None, "operator"),
    ("POST", "/records/crate/x/forget", {}, "admin"),
    ("GET", "/tokens", None, "admin"),
    ("POST", "/tokens", {"name": "new", "role": "reader"}, "admin"),
    ("DELETE", "/tokens/x", None, "admin"),
    ("GET", "/users", None, "admin"),
    ("POST", "/users", {"id": "new"}, "admin"),
    ("GET", "/groups", None, "admin"),
    ("POST", "/groups", {"id": "new"}, "admin"),
]


@pytest.mark.parametrize(("method", "path", "body", "needed"), NEEDS)
def test_roles_include_one_another(api: ApiFixture, method: str, path: str, body: object, needed: str) -> None:
    for rank, role in enumerate(RANKS):
        answer = api.client(role).request(method, API + path, json=body)
        if rank >= RANKS.index(needed):
            assert answer.status_code not in (401, 403), (role, answer.text)
        else:
            assert answer.status_code == 403, (role, answer.text)
            assert f"needs the role {needed}" in answer.json()["error"]["message"]


def test_an_unknown_role_allows_nothing_and_is_allowed_to_nobody() -> None:
    assert [[is_role_sufficient(role, needed) for needed in RANKS] for role in RANKS] == [
        [i >= j for j in range(4)] for i in range(4)
    ]
    assert not any(is_role_sufficient(role, "king") or is_role_sufficient("king", role) for role in [*RANKS, "king"])


def test_every_route_is_guarded(api: ApiFixture, anyone: TestClient) -> None:
    spec = anyone.get("/openapi.json").json()
    for path, methods in spec["paths"].items():
        for method in methods:
            answer = anyone.request(
                method, path.format(kind="crate", id="x", action="a", name="m", member="m", key="k", role="reader")
            )
            if path in ("/", "/health", "/ready"):
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.json()["error"]["code"] == "no-token"


def test_who_am_i(operator: TestClient) -> None:
    me = operator.get(f"{API}/me").json()
    assert (me["name"], me["role"]) == ("the operator", "operator")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer wb_",
        "Bearer wb_x_y",
        "bearer nonsense",
        "Bearer wb_{id}_" + "A" * 43,
        "Bearer {token}x",
        "Bearer\t{token}",
        "Bearer {token} {token}",
        "Bearer \xff",
    ],
)
def test_what_is_no_token_is_401(api: ApiFixture, anyone: TestClient, header: str) -> None:
    token = api.tokens["admin"]
    sent = header.format(token=token, id=token.split("_")[1]).encode("latin-1")
    answer = anyone.get(f"{API}/me", headers={b"Authorization": sent})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith('Bearer realm="waybill"')
    assert token not in answer.text


def test_the_scheme_is_not_case_sensitive(api: ApiFixture, anyone: TestClient) -> None:
    assert anyone.get(f"{API}/me", headers={"Authorization": f"bearer {api.tokens['reader']}"}).status_code == 200


def test_a_token_is_not_taken_from_the_url(api: ApiFixture, anyone: TestClient) -> None:
    for name in ("token", "access_token", "authorization"):
        assert anyone.get(f"{API}/me", params={name: api.tokens["admin"]}).status_code == 401


def test_a_token_is_made_shown_once_used_and_revoked(api: ApiFixture, admin: TestClient, anyone: TestClient) -> None:
    made = admin.post(f"{API}/tokens", json={"name": "the crane", "role": "submitter"})
    assert made.status_code == 201
    token = made.json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert anyone.get(f"{API}/me", headers=bearer).json() == {
        "name": "the crane",
        "role": "submitter",
        "grants": [{"role": "submitter", "scope": ""}],
        "owners": [],
        "user": "",
        "token": made.json()["id"],
    }
    listed = admin.get(f"{API}/tokens")
    assert "the crane" in listed.text
    secret = token.split("_", 2)[2]
    assert secret not in listed.text
    assert "hash" not in listed.text
    gone = admin.delete(f"{API}/tokens/{made.json()['id']}")
    assert (gone.status_code, gone.json()["state"]) == (200, "Revoked")
    assert anyone.get(f"{API}/me", headers=bearer).status_code == 401
    assert admin.delete(f"{API}/tokens/{made.json()['id']}").status_code == 409
    with api.engine() as engine:
        assert [line.cause for line in engine.store.history("token", made.json()["id"])] == ["submit", "revoke"]


def test_tokens_are_listed_page_by_page(admin: TestClient) -> None:
    first = admin.get(f"{API}/tokens", params={"limit": 3}).json()
    second = admin.get(f"{API}/tokens", params={"limit": 3, "page_token": first["next"]}).json()
    assert [t["name"] for t in first["tokens"] + second["tokens"]] == [f"the {role}" for role in RANKS]
    assert second["next"] is None
    assert admin.get(f"{API}/records/crate", params={"page_token": first["next"]}).status_code == 400


def test_no_secret_is_kept_anywhere(api: ApiFixture, tmp_path: Path) -> None:
    """Only hashes at rest: the store's files hold no secret that opens anything."""
    secrets = [token.split("_", 2)[2].encode() for token in api.tokens.values()]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret in content], path
    with api.engine() as engine:
        record = engine.store.find("token", documents=True).records[0]
        assert len(record.documents["token"]["hash"]) == 64


def test_a_secret_of_another_token_does_not_open_this_one(api: ApiFixture) -> None:
    with api.engine() as engine:
        one, two = issue(engine, "one", "reader").token, issue(engine, "two", "admin").token
        mixed = f"wb_{two.split('_')[1]}_{one.split('_', 2)[2]}"
        assert identify(engine.store, mixed) is None
        assert identify(engine.store, two) is not None


def test_secrets_are_compared_in_constant_time_even_for_ids_that_do_not_exist(
    api: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return False

    monkeypatch.setattr("waybill.tokens.hmac.compare_digest", compare)
    with api.engine() as engine:
        for token in (api.tokens["admin"], "wb_none_" + "A" * 43):
            assert identify(engine.store, token) is None
    assert [len(a) == len(b) == 64 for a, b in compared] == [True, True]


def test_names_and_roles_of_tokens_are_checked(api: ApiFixture) -> None:
    with api.engine() as engine:
        for name, role in (
            ("", "reader"),
            ("  ", "reader"),
            ("x" * 101, "reader"),
            ("a\nb", "reader"),
            ("x", "king"),
            ("x", ""),
        ):
            with pytest.raises(ActionRefused):
                issue(engine, name, role)


# --- the embedded default's first admin token


def test_the_first_start_leaves_an_admin_token_that_only_its_owner_can_read(environment: Environment) -> None:
    path = environment.config.data / "admin.token"
    with closing(environment.open_store()) as store:
        token = ensure_admin_token(environment.make_engine(store), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text().strip() == token == find_token(environment.config.data, {})
        identity = identify(store, str(token))
        assert identity is not None
        assert identity.role == "admin"
        assert ensure_admin_token(environment.make_engine(store), path) == token
        assert sum(store.count_by_state("token").values()) == 1
        assert [p.name for p in environment.config.data.iterdir() if p.name.startswith(".admin")] == []


def test_the_environment_wins_over_the_file(environment: Environment) -> None:
    with closing(environment.open_store()) as store:
        ensure_admin_token(environment.make_engine(store), environment.config.data / "admin.token")
    assert find_token(environment.config.data, {"WAYBILL_TOKEN": "wb_mine"}) == "wb_mine"
    assert find_token(environment.config.data / "elsewhere", {}) is None


def test_a_crash_between_file_and_record_is_repaired_by_the_next_start(environment: Environment) -> None:
    path = environment.config.data / "admin.token"
    with closing(environment.open_store()) as store:
        engine = environment.make_engine(store)
        submit, engine.submit = engine.submit, _crash  # type: ignore[method-assign, assignment]
        with pytest.raises(SystemExit):
            ensure_admin_token(engine, path)
        left = path.read_text().strip()
        assert identify(store, left) is None
        engine.submit = submit  # type: ignore[method-assign]
        assert ensure_admin_token(engine, path) == left
        assert identify(store, left) is not None


def _crash(*args: object, **kwargs: object) -> None:
    raise SystemExit


def test_processes_that_start_together_end_with_the_same_token(environment: Environment) -> None:
    path, found, start = environment.config.data / "admin.token", [], threading.Barrier(4)
    environment.open_store().close()

    def begin() -> None:
        with closing(environment.open_store()) as store:
            start.wait(60)
            found.append(ensure_admin_token(environment.make_engine(store), path))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 4
    assert set(found) == {path.read_text().strip()}


def test_a_revoked_or_removed_admin_token_is_not_made_again(environment: Environment) -> None:
    path = environment.config.data / "admin.token"
    with closing(environment.open_store()) as store:
        engine = environment.make_engine(store)
        token = str(ensure_admin_token(engine, path))
        issue(engine, "another", "admin")  # the last admin could not go
        revoke(engine, token.split("_")[1], who="somebody")
        assert ensure_admin_token(engine, path) == token
        assert identify(store, token) is None
        path.unlink()
        assert ensure_admin_token(engine, path) is None
        assert not path.exists()
        assert store.get(*Ref("token", token.split("_")[1])).state == "Revoked"


def test_a_token_file_that_others_can_read_is_refused(environment: Environment) -> None:
    path = environment.config.data / "admin.token"
    with closing(environment.open_store()) as store:
        ensure_admin_token(environment.make_engine(store), path)
        os.chmod(path, 0o640)
        with pytest.raises(InputError, match="chmod 600"):
            read_token(path)
        path.write_text("rubbish")
        os.chmod(path, 0o600)
        with pytest.raises(InputError, match="does not hold a token"):
            ensure_admin_token(environment.make_engine(store), path)


# --- the open loopback


def test_an_open_loopback_lets_in_whoever_comes_from_this_machine_and_nobody_else(tmp_path: Path) -> None:
    api = ApiFixture(make_environment(tmp_path / "data"), open_loopback=True)
    with api.client() as here:
        me = here.get(f"{API}/me").json()
        assert (me["name"], me["role"], me["grants"]) == ("loopback", "admin", [{"role": "admin", "scope": ""}])
        assert here.get("/metrics").status_code == 200
        assert here.get(f"{API}/me", headers={"Authorization": "Bearer wb_wrong"}).status_code == 401
        assert here.get(f"{API}/me", headers={"X-Forwarded-For": "203.0.113.5"}).status_code == 401
    with api.client(address="192.0.2.7") as elsewhere:
        assert elsewhere.get(f"{API}/me").status_code == 401
    with api.client(address="::1", base="http://[::1]:8700") as six:
        assert six.get(f"{API}/me").status_code == 200


def test_the_loopback_is_closed_by_default(anyone: TestClient) -> None:
    assert anyone.get(f"{API}/me").status_code == 401
    assert anyone.get("/metrics").status_code == 401
