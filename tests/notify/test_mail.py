"""Mail is sent once, to every recipient, however the mail server behaves."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.notify.smtp_server import SmtpServer
from waybill.config import MailSettings
from waybill.machine import Backoff
from waybill.notify import MailAttachment, make_mail, parse_recipients
from waybill.notify import mail as mail_module
from waybill.notify.mail import MAX_ATTACHMENT_BYTES, MailMessage, compose_message
from waybill.notify.smtp import send
from waybill.objects import open_objects
from waybill.record import Record
from waybill.sim.memory_objects import MemoryObjects
from waybill.step import New
from waybill.transfer.address_policy import TransferError

AT = 1_700_000_000.0
NO_OBJECTS = MemoryObjects(lambda: AT, lambda what: None)  # for messages without attachments


def new_mail(**fields: Any) -> New:
    usual: dict[str, Any] = {
        "to": ["jane@example.org"],
        "subject": "OK",
        "text": "Done.\n",
        "key": "batch bid1 report 1",
        "at": AT,
    }
    return make_mail(**(usual | fields))


@contextmanager
def send_by_worker(
    folder: Path, server: SmtpServer, *new_records: New, **more: Any
) -> Iterator[tuple[IngestFixture, list[Record]]]:
    """Create mail records, and start a worker that sends them."""
    with IngestFixture(folder, mail__url=server.url, mail__sender="waybill@example.org", **more) as ingest:
        with ingest.engine() as engine:
            made = [engine.submit(new) for new in new_records]
        with ingest.workers(queues=["mail"]):
            yield ingest, made


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_mail_waiting_to_sent(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with (
        SmtpServer() as server,
        send_by_worker(tmp_path, server, new_mail(text="Grüße 🐕\n"), store=url) as (ingest, (made,)),
    ):
        sent = ingest.wait("mail", made.id, "Sent")
        (received,) = server.messages
        assert (received.sender, received.recipients) == ("waybill@example.org", ("jane@example.org",))
        assert received.message["From"] == "waybill@example.org"
        assert received.message["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"
        assert received.message["Auto-Submitted"] == "auto-generated"
        assert received.message.get_content().strip() == "Grüße 🐕"
        assert received.raw.isascii()
        assert sent.documents["delivery"]["accepted"] == ["jane@example.org"]


def test_the_message_id_follows_from_the_key(tmp_path: Path) -> None:
    with (
        SmtpServer() as server,
        send_by_worker(tmp_path, server, new_mail(), new_mail(), new_mail(key="another")) as (_, __),
    ):
        ids = [received.message["Message-ID"] for received in server.wait(3)]
        assert len(set(ids)) == 2
        assert all(id.endswith("@example.org>") for id in ids)


def test_an_unavailable_mail_server_delays_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_module, "_BACKOFF", Backoff(0.05, 1, 0.05))
    server = SmtpServer()
    with send_by_worker(tmp_path, server, new_mail()) as (ingest, (made,)):
        with ingest.engine() as engine:
            while not any(entry.cause == "retry" for entry in engine.store.history("mail", made.id)):
                engine.store.watch(0.05)
        with server:
            sent = ingest.wait("mail", made.id, "Sent")
    assert len(server.messages) == 1
    assert sent.message == ""


def test_back_off_grows_to_an_hour_and_never_ends() -> None:
    machine = mail_module.make_mail_machine(MailSettings())
    waiting = machine.find_state("Waiting")
    assert waiting is not None
    assert [waiting.backoff.compute_delay(n) for n in (0, 1, 6, 7, 1000)] == [30, 60, 1920, 3600, 3600]
    assert waiting.max_tries > 10**6


@pytest.mark.parametrize("answer", ["451 later", "421 busy"])
def test_mail_that_is_deferred_is_sent_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(mail_module, "_BACKOFF", Backoff(0.05, 1, 0.05))
    with SmtpServer() as server:
        server.data = answer
        with send_by_worker(tmp_path, server, new_mail()) as (ingest, (made,)):
            with ingest.engine() as engine:
                while not any(entry.cause == "retry" for entry in engine.store.history("mail", made.id)):
                    engine.store.watch(0.05)
            server.data = ""
            ingest.wait("mail", made.id, "Sent")
        assert len(server.messages) == 1


def test_a_recipient_who_has_it_does_not_get_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One recipient is refused for now, one for good, one accepted."""
    monkeypatch.setattr(mail_module, "_BACKOFF", Backoff(0.05, 1, 0.05))
    with SmtpServer() as server:
        server.recipients |= {"b@example.org": "450 greylisted", "c@example.org": "550 no such user"}
        with send_by_worker(
            tmp_path, server, new_mail(to=["a@example.org", "b@example.org"], bcc=["c@example.org"])
        ) as (ingest, (made,)):
            with ingest.engine() as engine:
                while engine.store.get("mail", made.id).documents.get("delivery", {}).get("rounds", 0) < 2:
                    engine.store.watch(0.05)
            del server.recipients["b@example.org"]
            sent = ingest.wait("mail", made.id, "Sent")
        assert [received.recipients for received in server.messages] == [("a@example.org",), ("b@example.org",)]
        assert server.tried_recipients.count("a@example.org") == 1
        assert server.tried_recipients.count("c@example.org") == 1
        assert len({received.message["Message-ID"] for received in server.messages}) == 1
        assert sent.documents["delivery"]["refused"] == {"c@example.org": "550 no such user"}
        assert sent.message == "Not for c@example.org: refused."


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_mail_waiting_to_undeliverable_and_resend(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with SmtpServer() as server:
        server.recipients["jane@example.org"] = "550 no such user"
        with send_by_worker(tmp_path, server, new_mail(), store=url) as (ingest, (made,)):
            refused = ingest.wait("mail", made.id, "Undeliverable")
            assert refused.message == "jane@example.org: 550 no such user"
            del server.recipients["jane@example.org"]
            with ingest.engine() as engine:
                engine.act(made.ref, "resend")
            ingest.wait("mail", made.id, "Sent")
        assert len(server.messages) == 1


def test_mail_is_sent_again_to_another_address(tmp_path: Path) -> None:
    with SmtpServer() as server:
        server.recipients["jane@example.org"] = "550 no such user"
        with send_by_worker(tmp_path, server, new_mail()) as (ingest, (made,)):
            ingest.wait("mail", made.id, "Undeliverable")
            with ingest.engine() as engine:
                engine.act(made.ref, "resend", args={"to": "june@example.org"})
            ingest.wait("mail", made.id, "Sent")
        assert [received.recipients for received in server.messages] == [("june@example.org",)]


def test_mail_undeliverable_to_dropped(tmp_path: Path) -> None:
    with SmtpServer() as server:
        server.data = "554 spam"
        with send_by_worker(tmp_path, server, new_mail()) as (ingest, (made,)):
            assert (
                ingest.wait("mail", made.id, "Undeliverable").message
                == "The mail server will not take the message: 554 spam"
            )
            with ingest.engine() as engine:
                engine.act(made.ref, "drop", confirmed=True)
            assert ingest.get("mail", made.id).state == "Dropped"


def test_without_a_mail_server_mail_waits_and_says_why(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        with ingest.engine() as engine:
            made = engine.submit(new_mail())
        with ingest.workers(queues=["mail"]):
            with ingest.engine() as engine:
                while not (record := engine.store.get("mail", made.id)).message:
                    engine.store.watch(0.05)
        assert (record.state, record.message) == ("Waiting", "No mail server is named: set mail.url.")


def test_sent_mail_is_kept_for_thirty_days() -> None:
    sent = mail_module.make_mail_machine(MailSettings()).find_state("Sent")
    assert sent is not None
    assert sent.keep == 30 * 86400


# --- what is in it


def test_attachments_come_from_objects_and_from_texts(tmp_path: Path) -> None:
    with SmtpServer() as server, IngestFixture(tmp_path, mail__url=server.url) as ingest:
        ingest.environment.objects.put("ingest/reports/1/failed.json", b'{"failedJobs":[]}')
        files = [
            MailAttachment("failed.json", object="ingest/reports/1/failed.json"),
            MailAttachment("notes.txt", "text/plain", text="Grüße"),
            MailAttachment("gone.json", object="ingest/reports/1/gone.json"),
        ]
        with ingest.engine() as engine:
            engine.submit(new_mail(attachments=files))
        with ingest.workers(queues=["mail"]):
            (received,) = server.wait()
        found = {part.get_filename(): part for part in received.message.iter_attachments()}
        assert found["failed.json"].get_content() == b'{"failedJobs":[]}'
        assert found["failed.json"].get_content_type() == "application/json"
        assert found["notes.txt"].get_payload(decode=True) == "Grüße".encode()
        body = received.message.get_body()
        assert body is not None
        assert "gone.json is too large to be sent, or no longer there" in body.get_content()


def test_an_attachment_that_is_too_large_is_named_instead(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    objects.put("large.json", b"x" * (MAX_ATTACHMENT_BYTES + 1))
    written = MailMessage(
        ("jane@example.org",), "OK", "Done.", "1", AT, attachments=(MailAttachment("large.json", object="large.json"),)
    )
    message = compose_message(written, "waybill@example.org", objects)
    assert "large.json is too large to be sent" in message.get_content()


@given(st.text(), st.text(), st.lists(st.text(), max_size=4))
def test_no_text_adds_a_header_or_a_recipient(subject: str, text: str, addresses: list[str]) -> None:
    """Whatever a depositor writes into titles and addresses."""
    nasty = [*addresses, "a@b.c\r\nBcc: evil@example.org", subject]
    new = make_mail(
        to=parse_recipients(*nasty), subject=f"{subject}\r\nBcc: evil@example.org", text=text, key="k", at=AT
    )
    (written,) = new.documents
    assert isinstance(written, MailMessage)
    message = compose_message(written, "waybill@example.org", NO_OBJECTS)
    assert message["Bcc"] is None
    head = message.as_bytes().partition(b"\n\n")[0].replace(b"\r", b"")
    assert sum(line.lower().startswith(b"bcc:") for line in head.split(b"\n")) == 0
    assert all("\n" not in each and "\r" not in each for each in (*written.to, written.subject))


@given(st.lists(st.text(), max_size=5))
def test_addresses_are_found_in_any_text(texts: list[str]) -> None:
    for found in parse_recipients(*texts):
        assert found.count("@") == 1
        assert found.isprintable()
        assert not set(" ,;<>") & set(found)


def test_addresses_are_found_once_however_they_are_written() -> None:
    text = "Jane <jane@example.org>, joe@example.org; jane@example.org\nnobody, @x, a@b@c, jörg@example.org"
    assert parse_recipients(text) == ("jane@example.org", "joe@example.org", "jörg@example.org")


# --- the dialogue with the server


def build_message() -> Any:
    return compose_message(
        MailMessage(("jane@example.org",), "OK", "Done.", "1", AT), "waybill@example.org", NO_OBJECTS
    )


@pytest.mark.filterwarnings("ignore:Requiring AUTH")  # the server's own, of a test on loopback
def test_a_login_with_the_right_password_is_accepted_and_a_wrong_one_delays() -> None:
    with SmtpServer(account=("me", "hush")) as server:
        assert send(
            MailSettings(server.url, "waybill@example.org", "me", "hush"), build_message(), ["jane@example.org"]
        ).accepted == ["jane@example.org"]
        with pytest.raises(TransferError, match="refuses the login of 'me'") as refused:
            send(MailSettings(server.url, "waybill@example.org", "me", "wrong"), build_message(), ["jane@example.org"])
        assert "wrong" not in str(refused.value)
        assert len(server.messages) == 1


def test_a_sender_that_is_refused_delays_and_fails_nothing() -> None:
    with SmtpServer() as server:
        server.sender = "550 who are you"
        with pytest.raises(TransferError, match="550 who are you"):
            send(MailSettings(server.url, "waybill@example.org"), build_message(), ["jane@example.org"])


def test_a_password_is_not_sent_in_the_clear() -> None:
    with SmtpServer(host="127.0.0.2") as server:  # for all we know somewhere else
        with pytest.raises(TransferError, match="A password is not sent over a plain connection"):
            send(MailSettings(server.url, "waybill@example.org", "me", "hush"), build_message(), ["jane@example.org"])
        assert server.messages == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *(
            "-addext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost",
            "-keyout",
            str(folder / "key.pem"),
            "-out",
            str(folder / "cert.pem"),
        ),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def _tls(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.mark.parametrize("scheme", ["starttls", "smtps"])
def test_an_encrypted_connection_is_trusted_only_with_a_certificate(
    certificate: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = (
        {"ssl_context": _tls(certificate)}
        if scheme == "smtps"
        else {"tls_context": _tls(certificate), "require_starttls": True}
    )
    with SmtpServer(**options) as server:
        mail = MailSettings(server.url.replace("smtp:", f"{scheme}:"), "waybill@example.org")
        with pytest.raises(TransferError, match="CERTIFICATE_VERIFY_FAILED"):
            send(mail, build_message(), ["jane@example.org"])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        assert send(mail, build_message(), ["jane@example.org"]).accepted == ["jane@example.org"]
        assert len(server.messages) == 1


def test_a_non_ascii_address_needs_a_server_with_smtputf8() -> None:
    with SmtpServer(enable_SMTPUTF8=True) as server:
        assert send(
            MailSettings(server.url, "waybill@example.org"), build_message(), ["jörg@example.org"]
        ).accepted == ["jörg@example.org"]
    with SmtpServer(enable_SMTPUTF8=False) as server:
        with pytest.raises(Exception, match="SMTPUTF8"):
            send(MailSettings(server.url, "waybill@example.org"), build_message(), ["jörg@example.org"])
