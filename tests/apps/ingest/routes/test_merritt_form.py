"""Merritt's form, sent by the real curl: as XML and JSON, as Merritt's clients read it."""

import functools
import hashlib
import io
import json
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.ingest_server import CurlResponse, IngestServer, write
from waybill.apps.ingest.routes.merritt_form import to_xml_text
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.http.authentication import TokenAuthenticator
from waybill.record import StoreUnavailable
from waybill.tokens import Role

BAT = "{http://uc3.cdlib.org/ontology/mrt/ingest/batch}"
EXC = "{http://uc3.cdlib.org/ontology/mrt/core/exception}"


def batch_of(ingest_server: IngestServer, answer: CurlResponse) -> Submission:
    assert answer.status == 200, answer.body
    root = ET.fromstring(answer.body)
    assert root.tag == f"{BAT}batchState"
    return Submission.from_batch(ingest_server.batch(root.findtext(f"{BAT}batchID") or ""))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path, "hello.txt", b"hello")


def test_the_example_of_the_manual_works(ingest_server: IngestServer, tmp_path: Path) -> None:
    manifest = (
        "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-container-batch-manifest\n"
        "https://example.org/a.zip |  |  |  |  | a.zip\n#%eof\n"
    )
    path = write(tmp_path, "example.checkm", manifest.encode())
    answer = ingest_server.curl(
        *(
            "-F",
            f"file=@{path}",
            "-F",
            "type=container-batch-manifest",
            "-F",
            "submitter=sample-user",
            "-F",
            "responseForm=xml",
        ),
        *("-F", "profile=demo"),
        path="/poster/submit",
    )
    batch = batch_of(ingest_server, answer)
    assert answer.kind.startswith("application/xml")
    root = ET.fromstring(answer.body)
    assert [root.findtext(f"{BAT}{name}") for name in ("batchStatus", "userAgent", "jobStates")] == [
        "QUEUED",
        "sample-user",
        None or "",
    ]
    assert (batch.type, batch.submitter, batch.filename, batch.update) == (
        PayloadType.CONTAINERS,
        "sample-user",
        "example.checkm",
        False,
    )
    assert batch.received_digests == {"sha256": hashlib.sha256(manifest.encode()).hexdigest()}
    with ingest_server.environment.objects.get(batch.url.removeprefix("waybill:")) as body:
        assert body.read() == manifest.encode()


def test_all_fields_of_the_form_are_taken(ingest_server: IngestServer, file: Path) -> None:
    given = {
        "profile": "demo",
        "type": "file",
        "submitter": "ann",
        "filename": "renamed.txt",
        "size": "5",
        "digestType": "SHA256",
        "digestValue": hashlib.sha256(b"hello").hexdigest().upper(),
        "primaryIdentifier": "ark:/99999/fk4abc",
        "localIdentifier": "x1; x2",
        "creator": "Ada",
        "title": "Ein Täschchen",
        "date": "1843",
        "note": "mind the step",
        "notification": "ann@example.org",
        "notificationFormat": "json",
        "responseForm": "xml",
        "DC.subject": "maps",
        "DC.type": "Text",
        "DataCite.resourceType": "Dataset",
        "retainTargetURL": "true",
    }
    sent = [part for name, value in given.items() for part in ("--form-string", f"{name}={value}")]
    batch = batch_of(ingest_server, ingest_server.curl("-F", f"file=@{file}", *sent, path="/poster/submit"))
    assert (batch.filename, batch.size, batch.primary_id, batch.local_ids) == (
        "renamed.txt",
        5,
        "ark:/99999/fk4abc",
        ("x1", "x2"),
    )
    assert (batch.creator, batch.title, batch.date, batch.note) == ("Ada", "Ein Täschchen", "1843", "mind the step")
    assert (batch.notification, batch.notification_format, batch.datacite_type) == (
        "ann@example.org",
        "json",
        "Dataset",
    )
    assert (batch.dc, batch.retain_target, batch.digest_type) == ({"subject": "maps", "type": "Text"}, True, "SHA256")
    assert batch.received_digests == {"sha256": hashlib.sha256(b"hello").hexdigest()}


def test_an_erc_fills_what_the_other_fields_do_not_say(ingest_server: IngestServer, file: Path) -> None:
    erc = "erc:\nwho: Ada\nwhat: Notes\nwhen: 1843\nwhere: ark:/99999/fk4erc\nwhere: loc-1\n"
    batch = batch_of(
        ingest_server,
        ingest_server.curl(
            "-F",
            f"file=@{file}",
            "-F",
            "profile=demo",
            "-F",
            "title=Other",
            "--form-string",
            f"erc={erc}",
            path="/poster/submit",
        ),
    )
    assert (batch.creator, batch.title, batch.date, batch.primary_id, batch.local_ids) == (
        "Ada",
        "Other",
        "1843",
        "ark:/99999/fk4erc",
        ("loc-1",),
    )


def test_json_is_answered_where_it_is_asked_for(ingest_server: IngestServer, file: Path) -> None:
    sent = ("-F", f"file=@{file}", "-F", "profile=demo")
    for more in (
        ("-F", "responseForm=json"),
        ("-H", "Accept: application/json"),
        ("-F", "responseForm=json", "-H", "Accept: text/xml"),
    ):
        answer = ingest_server.curl(*sent, *more, path="/poster/submit")
        assert (answer.status, answer.kind) == (200, "application/json")
        state = answer.json()["bat:batchState"]
        assert state["bat:batchStatus"] == "QUEUED"
        assert ingest_server.batch(state["bat:batchID"]).state == "Pending"
    options: tuple[str, ...]
    for options in (
        (),
        ("-H", "Accept: */*"),
        ("-F", "responseForm=xml", "-H", "Accept: application/json"),
        ("-F", "responseForm=turtle"),
    ):
        assert ingest_server.curl(*sent, *options, path="/poster/submit").kind.startswith("application/xml")


def test_unknown_fields_are_left_out_with_a_warning(ingest_server: IngestServer, file: Path) -> None:
    answer = ingest_server.curl(
        "-F",
        f"file=@{file}",
        "-F",
        "profile=demo",
        "-F",
        "colour=red",
        "-F",
        "responseForm=json",
        path="/poster/submit",
    )
    assert answer.status == 200
    assert answer.json()["bat:batchState"]["bat:warning"] == "The field 'colour' is not known and was ignored."


@pytest.mark.parametrize(
    ("path", "update", "ark"),
    [
        ("/poster/submit", False, ""),
        ("/poster/add", False, ""),
        ("/poster/update/ark/99999/fk4path", True, "ark:/99999/fk4path"),
        ("/poster/add/ark:/99999/fk4path", False, "ark:/99999/fk4path"),
    ],
)
def test_the_path_says_add_or_update_and_which_object(
    ingest_server: IngestServer, file: Path, path: str, update: bool, ark: str
) -> None:
    batch = batch_of(ingest_server, ingest_server.curl("-F", f"file=@{file}", "-F", "profile=demo", path=path))
    assert (batch.update, batch.primary_id) == (update, ark)


def test_an_update_names_the_object_that_it_updates(ingest_server: IngestServer, file: Path) -> None:
    sent = ("-F", f"file=@{file}", "-F", "profile=demo")
    before = ingest_server.count(), len(ingest_server.payloads())
    for more in ((), ("-F", "type=file")):
        answer = ingest_server.curl(*sent, *more, path="/poster/update")
        assert (answer.status, ET.fromstring(answer.body).findtext(f"{EXC}statusDescription")) == (
            400,
            "An update needs the object that it updates: give its ARK (the primary identifier), or a local id.",
        )
    with ingest_server.client("submitter") as client:
        response = client.post(
            "/api/v1/ingest/batches", json={"profile": "demo", "url": "https://example.org/a.txt", "update": True}
        )
    assert (response.status_code, "An update needs the object" in response.text) == (400, True)
    assert (ingest_server.count(), len(ingest_server.payloads())) == before
    assert batch_of(
        ingest_server, ingest_server.curl(*sent, "-F", "localIdentifier=x1", path="/poster/update")
    ).local_ids == ("x1",)


def test_two_different_identifiers_are_refused(ingest_server: IngestServer, file: Path) -> None:
    answer = ingest_server.curl(
        "-F",
        f"file=@{file}",
        "-F",
        "profile=demo",
        "-F",
        "primaryIdentifier=ark:/99999/fk4other",
        path="/poster/update/ark/99999/fk4path",
    )
    assert answer.status == 400
    assert "two identifiers" in (ET.fromstring(answer.body).findtext(f"{EXC}statusDescription") or "")


def test_the_token_is_the_password_of_basic_authentication(ingest_server: IngestServer, file: Path) -> None:
    sent = ("-F", f"file=@{file}", "-F", "profile=demo")
    assert ingest_server.curl(*sent, path="/poster/submit", scheme="basic").status == 200
    before = ingest_server.count(), len(ingest_server.payloads())
    options: tuple[str, ...]
    for options in (
        (),
        ("-u", "ann:wrong"),
        ("-H", "Authorization: Basic !!"),
        ("-u", f"{ingest_server.tokens['submitter']}:"),
    ):
        answer = ingest_server.curl(*sent, *options, path="/poster/submit", role=None)
        assert answer.status == 401
        assert "token" in read_xml_error(answer) or "password" in read_xml_error(answer)
    answer = ingest_server.curl(*sent, path="/poster/submit", role="reader")
    assert answer.status == 403
    assert "needs the role submitter" in read_xml_error(answer)
    assert (ingest_server.count(), len(ingest_server.payloads())) == before


@pytest.mark.parametrize(
    ("role", "path", "status"),
    [(None, "/poster/submit", 401), (None, "/poster/help", 401), ("reader", "/poster/add", 403)],
)
def test_who_may_not_is_told_so_in_merritts_form(
    ingest_server: IngestServer, role: Role | None, path: str, status: int
) -> None:
    with ingest_server.client(role) as client:
        ask = functools.partial(client.request, "GET" if path.endswith("help") else "POST", path)
        xml, as_json = ask(), ask(headers={"accept": "application/json"})
    assert (xml.status_code, xml.headers["content-type"].partition(";")[0]) == (status, "application/xml")
    assert ET.fromstring(xml.text).findtext(f"{EXC}status") == str(status)
    assert (as_json.status_code, as_json.headers["content-type"]) == (status, "application/json")
    assert as_json.json()["exc:exceptionState"]["exc:status"] == str(status)
    assert ("WWW-Authenticate" in xml.headers) == (status == 401)


def test_a_store_that_is_away_says_nothing_of_itself_to_who_is_not_known(
    ingest_server: IngestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(guard: TokenAuthenticator, request: object) -> None:
        raise StoreUnavailable("postgresql://somebody@db.inside is away")

    monkeypatch.setattr(TokenAuthenticator, "authenticate", away)
    answer = ingest_server.curl(path="/poster/state", role=None)
    assert answer.status == 503
    assert "db.inside" not in answer.body.decode()
    assert read_xml_error(answer) == "The server's store cannot be used now."


def read_xml_error(answer: CurlResponse) -> str:
    assert answer.kind.partition(";")[0] == "application/xml"
    return ET.fromstring(answer.body).findtext(f"{EXC}statusDescription") or ""


def test_without_a_token_only_an_open_loopback_takes_it(tmp_path: Path, file: Path) -> None:
    with IngestFixture(tmp_path / "open") as ingest, IngestServer(ingest, open_loopback=True).open() as ingest_server:
        sent = ("-F", f"file=@{file}", "-F", "profile=demo")
        assert ingest_server.curl(*sent, path="/poster/submit", role=None).status == 200
        assert (
            ingest_server.curl(*sent, "-H", "X-Forwarded-For: 10.0.0.1", path="/poster/submit", role=None).status == 401
        )


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (("-F", "profile=nobody"), 404, "no profile 'nobody'"),
        ((), 400, "profile is missing"),
        (("-F", "profile=demo", "-F", "type=parcel"), 400, "'parcel' is not a type"),
        (("-F", "profile=demo", "-F", "digestType=MD5"), 400, "value of the digest is missing"),
        (
            ("-F", "profile=demo", "-F", "digestType=Alder-32", "-F", "digestValue=x"),
            400,
            "'x' is not an Adler-32 in hex",
        ),
        (("-F", "profile=demo", "-F", "size=many"), 400, "not a size"),
        (("-F", "profile=demo", "-F", "size=6"), 400, "5 bytes came, and 6 were announced"),
        (("-F", "profile=demo", "-F", "batchID=bid-late"), 400, "must come before the file"),
        (("-F", "profile=demo", "-F", "primaryIdentifier=doi:1"), 400, "not an ARK"),
        (("-F", "profile=demo", "-F", "filename=../a"), 400, "not a name"),
    ],
)
def test_what_cannot_be_taken_is_refused_and_leaves_nothing(
    ingest_server: IngestServer, file: Path, sent: tuple[str, ...], status: int, says: str
) -> None:
    before = ingest_server.count(), len(ingest_server.payloads())
    xml = ingest_server.curl("-F", f"file=@{file}", *sent, path="/poster/submit")
    assert xml.status == status, xml.body
    assert says in (ET.fromstring(xml.body).findtext(f"{EXC}statusDescription") or "")
    assert ET.fromstring(xml.body).findtext(f"{EXC}error")
    as_json = ingest_server.curl("-F", f"file=@{file}", *sent, "-F", "responseForm=json", path="/poster/submit")
    assert says in as_json.json()["exc:exceptionState"]["exc:statusDescription"]
    assert (ingest_server.count(), len(ingest_server.payloads())) == before


@pytest.mark.parametrize(
    ("args", "path", "status", "says"),
    [
        ((), "/poster/submit", 405, "/poster/submit takes only POST, not GET."),
        (("-X", "DELETE"), "/poster/update/ark/99999/fk4path", 405, "takes only POST, not DELETE."),
        (("-X", "PUT"), "/poster/help", 405, "/poster/help takes only GET, not PUT."),
        (("-F", "profile=demo"), "/poster/help", 405, "/poster/help takes only GET, not POST."),
        (("-X", "POST"), "/poster/state", 405, "/poster/state takes only GET, not POST."),
        (("-F", "profile=demo"), "/poster/parcel", 422, "verb: Input should be 'submit', 'add' or 'update'"),
        (
            ("-F", "profile=demo"),
            f"/poster/update/ark/99999/{'x' * 201}",
            422,
            "path objectid: String should have at most 200",
        ),
        ((), f"/poster/state?t={'x' * 21}", 422, "query t: String should have at most 20"),
        ((), "/poster/submit/ark", 404, "There is no such route."),
        ((), "/poster/", 404, "There is no such route."),
    ],
)
def test_also_a_wrong_route_or_method_or_parameter_is_answered_in_merritts_form(
    ingest_server: IngestServer, args: tuple[str, ...], path: str, status: int, says: str
) -> None:
    xml = ingest_server.curl(*args, path=path)
    assert (xml.status, xml.kind.partition(";")[0]) == (status, "application/xml"), xml.body
    assert says in (ET.fromstring(xml.body).findtext(f"{EXC}statusDescription") or "")
    response = ingest_server.curl(*args, "-H", "Accept: application/json", path=path)
    assert (response.status, response.kind) == (status, "application/json")
    assert says in response.json()["exc:exceptionState"]["exc:statusDescription"]
    assert ingest_server.curl(*args, path=path, role=None).status == 401  # before anything else


def test_a_method_that_a_route_of_the_form_has_not_is_answered_with_those_that_it_has(
    ingest_server: IngestServer,
) -> None:
    with ingest_server.client("submitter") as client:
        assert client.put("/poster/submit").headers["Allow"] == "POST"
        assert client.put("/poster/state").headers["Allow"] == "GET"


def test_an_unknown_profile_is_answered_with_where_to_find_the_known_ones(
    ingest_server: IngestServer, file: Path
) -> None:
    response = ingest_server.curl(
        "-F", f"file=@{file}", "-F", "profile=nope", "-F", "responseForm=json", path="/poster/submit"
    ).json()
    message = response["exc:exceptionState"]["exc:statusDescription"]
    assert message.startswith("There is no profile 'nope': ")
    assert message.endswith(" GET /api/v1/ingest/profiles lists them.")
    with ingest_server.client("reader") as client:
        assert "demo" in client.get("/api/v1/ingest/profiles").text


def test_a_form_without_a_file_and_one_with_two_are_refused(ingest_server: IngestServer, file: Path) -> None:
    before = ingest_server.count(), len(ingest_server.payloads())
    assert "no file" in ingest_server.curl("-F", "profile=demo", path="/poster/submit").body.decode()
    two = ingest_server.curl("-F", f"file=@{file}", "-F", f"file=@{file}", "-F", "profile=demo", path="/poster/submit")
    assert (two.status, "two files" in two.body.decode()) == (400, True)
    plain = ingest_server.curl("-d", "profile=demo", path="/poster/submit")
    assert (plain.status, "multipart/form-data" in plain.body.decode()) == (400, True)
    assert (ingest_server.count(), len(ingest_server.payloads())) == before


@pytest.mark.parametrize("order", [1, -1])
def test_a_text_in_place_of_the_file_is_refused_and_it_is_said_how_to_send_one(
    ingest_server: IngestServer, order: int
) -> None:
    before = ingest_server.count(), len(ingest_server.payloads())
    sent = [("-F", "file=http://example.org/a.txt"), ("-F", "profile=demo"), ("-F", "filename=a.txt")][::order]
    text = ingest_server.curl(*(word for pair in sent for word in pair), path="/poster/submit")
    assert (text.status, "file=@NAME" in text.body.decode(), "/api/v1/ingest/batches" in text.body.decode()) == (
        400,
        True,
        True,
    )
    assert (ingest_server.count(), len(ingest_server.payloads())) == before


def test_the_same_batch_id_twice_is_one_batch(ingest_server: IngestServer, file: Path) -> None:
    sent = ("-F", "batchID=bid-twice", "-F", f"file=@{file}", "-F", "profile=demo", "-F", "responseForm=json")
    first, again = (ingest_server.curl(*sent, path="/poster/submit").json()["bat:batchState"] for _ in range(2))
    assert first == again
    other = ingest_server.curl(
        *sent[:3], f"file=@{write(file.parent, 'other.txt', b'other')}", *sent[4:], path="/poster/submit"
    )
    assert other.status == 409


def test_fields_after_the_file_count_too(ingest_server: IngestServer, file: Path) -> None:
    sha1 = hashlib.sha1(b"hello").hexdigest()
    batch = batch_of(
        ingest_server,
        ingest_server.curl(
            "-F",
            f"file=@{file}",
            "-F",
            "profile=demo",
            "-F",
            "digestType=SHA-1",
            "-F",
            f"digestValue={sha1}",
            path="/poster/submit",
        ),
    )
    assert batch.received_digests["sha1"] == sha1


def test_the_type_is_guessed_when_none_is_given(ingest_server: IngestServer, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("a", "b")
    path = write(tmp_path, "a.zip", packed.getvalue())
    assert (
        batch_of(
            ingest_server, ingest_server.curl("-F", f"file=@{path}", "-F", "profile=demo", path="/poster/submit")
        ).type
        is PayloadType.CONTAINER
    )
    as_file = ingest_server.curl("-F", f"file=@{path}", "-F", "type=file", "-F", "profile=demo", path="/poster/submit")
    assert batch_of(ingest_server, as_file).type is PayloadType.FILE


def test_a_large_upload_is_kept_whole_and_never_in_memory(ingest_server: IngestServer, tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as out:
        out.truncate(300 * 2**20)
    before = _peak()
    batch = batch_of(
        ingest_server, ingest_server.curl("-F", f"file=@{path}", "-F", "profile=demo", path="/poster/submit")
    )
    assert batch.size == 300 * 2**20
    assert ingest_server.environment.objects.head(batch.url.removeprefix("waybill:")).size == 300 * 2**20
    assert _peak() - before < 100 * 2**20


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_the_service_tells_its_state_and_its_fields(ingest_server: IngestServer) -> None:
    xml = ingest_server.curl(path="/poster/state", role="reader")
    assert (xml.status, b"<ing:submissionState>thawed" in xml.body) == (200, True)
    with ingest_server.client("operator") as client:
        client.put("/api/v1/ingest/pauses/ingest").raise_for_status()
        client.put("/api/v1/ingest/holds/maps").raise_for_status()
        state = ingest_server.curl(path="/poster/state?t=json", role="reader").json()["ing:ingestServiceState"]
        client.delete("/api/v1/ingest/pauses/ingest").raise_for_status()
        client.delete("/api/v1/ingest/holds/maps").raise_for_status()
    assert (state["ing:submissionState"], state["ing:collectionSubmissionState"]) == ("frozen", "maps")
    decoded = json.loads(ingest_server.curl("-H", "Accept: application/json", path="/poster/help", role="reader").body)[
        "ing:ingestHelp"
    ]["ing:field"]
    assert any(line.startswith("digestType: ") for line in decoded)
    assert ingest_server.curl(path="/poster/state", role=None).status == 401


@given(st.text())
def test_any_text_can_stand_in_xml(text: str) -> None:
    assert ET.fromstring(f"<a>{escape(to_xml_text(text))}</a>").tag == "a"
