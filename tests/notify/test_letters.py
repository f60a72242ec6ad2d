"""Letters: sent once, to everyone they are for, however the mail server behaves."""

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

from tests.apps.ingest.site import Site
from tests.notify.mailbox import Mailbox
from waybill.config import Mail
from waybill.machine import Backoff
from waybill.notify import Attachment, letter, recipients
from waybill.notify import letters as module
from waybill.notify.composing import MOST, compose
from waybill.notify.letters import Letter
from waybill.notify.smtp import MailTrouble, send
from waybill.objects import open_objects
from waybill.record import Record
from waybill.sim.objects import MemoryObjects
from waybill.step import New

AT = 1_700_000_000.0
NO_OBJECTS = MemoryObjects(lambda: AT, lambda what: None)  # for letters without attachments


def a_letter(**said: Any) -> New:
    return letter(
        **(
            {"to": ["jane@example.org"], "subject": "OK", "text": "Done.\n", "key": "batch bid1 report 1", "at": AT}
            | said
        )
    )


@contextmanager
def posted(folder: Path, box: Mailbox, *news: New, **more: Any) -> Iterator[tuple[Site, list[Record]]]:
    """Letters in a store, and a worker that sends them."""
    with Site(folder, mail__url=box.url, mail__sender="waybill@example.org", **more) as site:
        with site.engine() as engine:
            made = [engine.submit(new) for new in news]
        with site.workers(roles=["letter"]):
            yield site, made


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_letter_waiting_to_sent(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with Mailbox() as box, posted(tmp_path, box, a_letter(text="Grüße 🐕\n"), store=url) as (site, (made,)):
        sent = site.wait("letter", made.id, "Sent")
        (came,) = box.letters
        assert (came.sender, came.recipients) == ("waybill@example.org", ("jane@example.org",))
        assert came.message["From"] == "waybill@example.org"
        assert came.message["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"
        assert came.message["Auto-Submitted"] == "auto-generated"
        assert came.message.get_content().strip() == "Grüße 🐕"
        assert came.raw.isascii()
        assert sent.docs["delivery"]["accepted"] == ["jane@example.org"]


def test_the_number_of_a_letter_follows_from_what_it_tells_of(tmp_path: Path) -> None:
    with Mailbox() as box, posted(tmp_path, box, a_letter(), a_letter(), a_letter(key="another")) as (_, __):
        ids = [came.message["Message-ID"] for came in box.wait(3)]
        assert len(set(ids)) == 2
        assert all(id.endswith("@example.org>") for id in ids)


def test_a_mail_server_that_is_away_delays_a_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACKOFF", Backoff(0.05, 1, 0.05))
    box = Mailbox()
    with posted(tmp_path, box, a_letter()) as (site, (made,)):
        with site.engine() as engine:
            while not any(line.event == "retry" for line in engine.store.history("letter", made.id)):
                engine.store.watch(0.05)
        with box:
            sent = site.wait("letter", made.id, "Sent")
    assert len(box.letters) == 1
    assert sent.message == ""


def test_back_off_grows_to_an_hour_and_never_ends() -> None:
    machine = module.letter_machine(Mail())
    waiting = machine.state("Waiting")
    assert waiting is not None
    assert [waiting.backoff.delay(n) for n in (0, 1, 6, 7, 1000)] == [30, 60, 1920, 3600, 3600]
    assert waiting.tries > 10**6


@pytest.mark.parametrize("answer", ["451 later", "421 busy"])
def test_a_letter_that_is_refused_for_now_is_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(module, "_BACKOFF", Backoff(0.05, 1, 0.05))
    with Mailbox() as box:
        box.data = answer
        with posted(tmp_path, box, a_letter()) as (site, (made,)):
            with site.engine() as engine:
                while not any(line.event == "retry" for line in engine.store.history("letter", made.id)):
                    engine.store.watch(0.05)
            box.data = ""
            site.wait("letter", made.id, "Sent")
        assert len(box.letters) == 1


def test_who_has_had_it_does_not_get_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One recipient is refused for now, one for good, one accepted."""
    monkeypatch.setattr(module, "_BACKOFF", Backoff(0.05, 1, 0.05))
    with Mailbox() as box:
        box.recipients |= {"b@example.org": "450 greylisted", "c@example.org": "550 no such user"}
        with posted(tmp_path, box, a_letter(to=["a@example.org", "b@example.org"], bcc=["c@example.org"])) as (
            site,
            (made,),
        ):
            with site.engine() as engine:
                while engine.store.get("letter", made.id).docs.get("delivery", {}).get("rounds", 0) < 2:
                    engine.store.watch(0.05)
            del box.recipients["b@example.org"]
            sent = site.wait("letter", made.id, "Sent")
        assert [came.recipients for came in box.letters] == [("a@example.org",), ("b@example.org",)]
        assert box.asked.count("a@example.org") == 1
        assert box.asked.count("c@example.org") == 1
        assert len({came.message["Message-ID"] for came in box.letters}) == 1
        assert sent.docs["delivery"]["refused"] == {"c@example.org": "550 no such user"}
        assert sent.message == "Not for c@example.org: refused."


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_letter_waiting_to_undeliverable_and_resend(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with Mailbox() as box:
        box.recipients["jane@example.org"] = "550 no such user"
        with posted(tmp_path, box, a_letter(), store=url) as (site, (made,)):
            refused = site.wait("letter", made.id, "Undeliverable")
            assert refused.message == "jane@example.org: 550 no such user"
            del box.recipients["jane@example.org"]
            with site.engine() as engine:
                engine.act(made.ref, "resend")
            site.wait("letter", made.id, "Sent")
        assert len(box.letters) == 1


def test_a_letter_is_sent_again_to_another_address(tmp_path: Path) -> None:
    with Mailbox() as box:
        box.recipients["jane@example.org"] = "550 no such user"
        with posted(tmp_path, box, a_letter()) as (site, (made,)):
            site.wait("letter", made.id, "Undeliverable")
            with site.engine() as engine:
                engine.act(made.ref, "resend", args={"to": "june@example.org"})
            site.wait("letter", made.id, "Sent")
        assert [came.recipients for came in box.letters] == [("june@example.org",)]


def test_letter_undeliverable_to_dropped(tmp_path: Path) -> None:
    with Mailbox() as box:
        box.data = "554 spam"
        with posted(tmp_path, box, a_letter()) as (site, (made,)):
            assert (
                site.wait("letter", made.id, "Undeliverable").message
                == "The mail server will not take the letter: 554 spam"
            )
            with site.engine() as engine:
                engine.act(made.ref, "drop", confirmed=True)
            assert site.get("letter", made.id).state == "Dropped"


def test_without_a_mail_server_a_letter_waits_and_says_why(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        with site.engine() as engine:
            made = engine.submit(a_letter())
        with site.workers(roles=["letter"]):
            with site.engine() as engine:
                while not (record := engine.store.get("letter", made.id)).message:
                    engine.store.watch(0.05)
        assert (record.state, record.message) == ("Waiting", "No mail server is named: set mail.url.")


def test_sent_letters_are_kept_for_thirty_days() -> None:
    sent = module.letter_machine(Mail()).state("Sent")
    assert sent is not None
    assert sent.keep == 30 * 86400


# --- what is in it


def test_attachments_come_from_objects_and_from_texts(tmp_path: Path) -> None:
    with Mailbox() as box, Site(tmp_path, mail__url=box.url) as site:
        site.depot.objects.put("ingest/reports/1/failed.json", b'{"failedJobs":[]}')
        files = [
            Attachment("failed.json", object="ingest/reports/1/failed.json"),
            Attachment("notes.txt", "text/plain", text="Grüße"),
            Attachment("gone.json", object="ingest/reports/1/gone.json"),
        ]
        with site.engine() as engine:
            engine.submit(a_letter(attachments=files))
        with site.workers(roles=["letter"]):
            (came,) = box.wait()
        found = {part.get_filename(): part for part in came.message.iter_attachments()}
        assert found["failed.json"].get_content() == b'{"failedJobs":[]}'
        assert found["failed.json"].get_content_type() == "application/json"
        assert found["notes.txt"].get_payload(decode=True) == "Grüße".encode()
        body = came.message.get_body()
        assert body is not None
        assert "gone.json is too large to be sent, or no longer there" in body.get_content()


def test_an_attachment_that_is_too_large_is_named_instead(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    objects.put("large.json", b"x" * (MOST + 1))
    written = Letter(
        ("jane@example.org",), "OK", "Done.", "1", AT, attachments=(Attachment("large.json", object="large.json"),)
    )
    message = compose(written, "waybill@example.org", objects)
    assert "large.json is too large to be sent" in message.get_content()


@given(st.text(), st.text(), st.lists(st.text(), max_size=4))
def test_no_text_adds_a_header_or_a_recipient(subject: str, text: str, addresses: list[str]) -> None:
    """Whatever a depositor writes into titles and addresses."""
    nasty = [*addresses, "a@b.c\r\nBcc: evil@example.org", subject]
    new = letter(to=recipients(*nasty), subject=f"{subject}\r\nBcc: evil@example.org", text=text, key="k", at=AT)
    body = new.docs["letter"]
    written = Letter(tuple(body["to"]), body["subject"], body["text"], body["number"], AT)
    message = compose(written, "waybill@example.org", NO_OBJECTS)
    assert message["Bcc"] is None
    head = message.as_bytes().partition(b"\n\n")[0].replace(b"\r", b"")
    assert sum(line.lower().startswith(b"bcc:") for line in head.split(b"\n")) == 0
    assert all("\n" not in each and "\r" not in each for each in (*body["to"], body["subject"]))


@given(st.lists(st.text(), max_size=5))
def test_addresses_are_found_in_any_text(texts: list[str]) -> None:
    for found in recipients(*texts):
        assert found.count("@") == 1
        assert found.isprintable()
        assert not set(" ,;<>") & set(found)


def test_addresses_are_found_once_however_they_are_written() -> None:
    text = "Jane <jane@example.org>, joe@example.org; jane@example.org\nnobody, @x, a@b@c, jörg@example.org"
    assert recipients(text) == ("jane@example.org", "joe@example.org", "jörg@example.org")


# --- the dialogue with the server


def a_message(**said: Any) -> Any:
    return compose(Letter(("jane@example.org",), "OK", "Done.", "1", AT), "waybill@example.org", NO_OBJECTS)


@pytest.mark.filterwarnings("ignore:Requiring AUTH")  # the server's own, of a test on loopback
def test_a_user_is_let_in_by_his_password_and_a_wrong_one_delays() -> None:
    with Mailbox(account=("me", "hush")) as box:
        assert send(Mail(box.url, "waybill@example.org", "me", "hush"), a_message(), ["jane@example.org"]).accepted == [
            "jane@example.org"
        ]
        with pytest.raises(MailTrouble, match="does not let 'me' in") as trouble:
            send(Mail(box.url, "waybill@example.org", "me", "wrong"), a_message(), ["jane@example.org"])
        assert "wrong" not in str(trouble.value)
        assert len(box.letters) == 1


def test_a_sender_that_is_refused_delays_and_fails_nothing() -> None:
    with Mailbox() as box:
        box.sender = "550 who are you"
        with pytest.raises(MailTrouble, match="550 who are you"):
            send(Mail(box.url, "waybill@example.org"), a_message(), ["jane@example.org"])


def test_a_password_is_not_sent_in_the_clear() -> None:
    with Mailbox(host="127.0.0.2") as box:  # for all we know somewhere else
        with pytest.raises(MailTrouble, match="A password is not sent over a plain connection"):
            send(Mail(box.url, "waybill@example.org", "me", "hush"), a_message(), ["jane@example.org"])
        assert box.letters == []


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
    with Mailbox(**options) as box:
        mail = Mail(box.url.replace("smtp:", f"{scheme}:"), "waybill@example.org")
        with pytest.raises(MailTrouble, match="CERTIFICATE_VERIFY_FAILED"):
            send(mail, a_message(), ["jane@example.org"])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        assert send(mail, a_message(), ["jane@example.org"]).accepted == ["jane@example.org"]
        assert len(box.letters) == 1


def test_an_address_in_letters_of_the_world_needs_a_server_that_takes_them() -> None:
    with Mailbox(enable_SMTPUTF8=True) as box:
        assert send(Mail(box.url, "waybill@example.org"), a_message(), ["jörg@example.org"]).accepted == [
            "jörg@example.org"
        ]
    with Mailbox(enable_SMTPUTF8=False) as box:
        with pytest.raises(Exception, match="SMTPUTF8"):
            send(Mail(box.url, "waybill@example.org"), a_message(), ["jörg@example.org"])
