"""Mail to people: each message is a record that any worker sends.

    Waiting -> Sent                                    an unavailable mail server delays it, for as long as it takes
    Waiting -> Undeliverable -> (resend) -> Waiting    refused for good, for every recipient
                             -> (drop) -> Dropped

A message can be sent twice only if the worker dies between the server's acceptance and its own commit; the Message-ID
is then the same, and the receiver's mail program shows one. Recipients for whom the server has accepted it are recorded
and do not get it again.

The document `mail` holds everything except the attachments, which are objects or short texts. Nothing in it can add a
header to the message: values are single lines, addresses are checked, and the library refuses the rest.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.config import MailSettings
from waybill.machine import UPKEEP_POOL, Backoff, Document, Machine, action, end, rest, work
from waybill.notify.smtp import SmtpDelivery, SmtpRefused, send
from waybill.objects import ObjectNotFound, Objects
from waybill.record import DocumentStruct, Record
from waybill.rules import ActionRefused
from waybill.step import Done, Fail, New, Outcome, Step, StepContext, Wait

DAY = 86400.0
MAX_RECIPIENTS = 100
MAX_TEXT = 64_000  # characters
_UNLIMITED_TRIES = 10**9
_BACKOFF = Backoff(30, 2, 3600)
MAX_ATTACHMENT_BYTES = 10 * 1024 * 1024  # of all attachments: many servers refuse more
_MESSAGE_POLICY = SMTP.clone(cte_type="7bit")  # so that no server on the way has a reason to re-encode it
_MESSAGE_ID_NAMESPACE = uuid.UUID("b1a3e6c4-4c0b-5c56-9f5c-0e6f4c4b8a55")
_ADDRESS_PATTERN = re.compile(r"[^@\s,;<>()\[\]\\\"\x00-\x1f\x7f]{1,64}@[^@\s,;:<>()\[\]\\\"\x00-\x1f\x7f]{1,255}")


class MailAttachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attached file: the object of that name, or a short text."""

    name: str
    type: str = "application/json"
    object: str = ""
    text: str = ""


class MailMessage(DocumentStruct, frozen=True):
    to: tuple[str, ...]
    subject: str
    text: str
    message_id: str  # the part of the Message-ID before the @
    at: float  # seconds since 1970: its date
    bcc: tuple[str, ...] = ()
    attachments: tuple[MailAttachment, ...] = ()


class MailDelivery(DocumentStruct, frozen=True):
    """Who has the message, and who was refused and why."""

    accepted: tuple[str, ...] = ()
    refused: dict[str, str] = msgspec.field(default_factory=dict)  # by address
    rounds: int = 0  # how often the server asked for another try


def make_mail(
    *,
    to: Iterable[str],
    subject: str,
    text: str,
    key: str,
    at: float,
    bcc: Iterable[str] = (),
    attachments: Sequence[MailAttachment] = (),
) -> New:
    """Return a new mail record. `key` names what it reports: two messages with the same key have the same Message-ID."""
    message = MailMessage(
        tuple(dict.fromkeys(to))[:MAX_RECIPIENTS],
        _to_one_line(subject),
        text[:MAX_TEXT],
        str(uuid.uuid5(_MESSAGE_ID_NAMESPACE, key)),
        at,
        tuple(dict.fromkeys(bcc))[:MAX_RECIPIENTS],
        tuple(attachments),
    )
    return New("mail", (message,), is_child=False, priority=5)


def parse_recipients(*texts: str) -> tuple[str, ...]:
    """Return the mail addresses in texts that people wrote, each once; what is no address is left out."""
    words = (word for text in texts for word in re.split(r"[\s,;<>]+", text) if word)
    return tuple(dict.fromkeys(word for word in words if word.isprintable() and _ADDRESS_PATTERN.fullmatch(word)))


def _to_one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:250]


def make_mail_machine(settings: MailSettings) -> Machine:
    """Return the machine, whose step sends with these settings."""
    return Machine(
        name="mail",
        plural="mail",
        prefix="mail",
        description="One mail message. An unavailable mail server delays it, and loses nothing.",
        is_internal=True,
        made_by="steps that notify somebody",
        steps={"Waiting": make_send_step(settings)},
        states=(
            work(
                "Waiting",
                to="Sent",
                description="To be handed to the mail server.",
                on_fail="Undeliverable",
                max_tries=_UNLIMITED_TRIES,
                backoff=_BACKOFF,
                pool=UPKEEP_POOL,
            ),
            rest(
                "Undeliverable",
                description="The mail server refused it for good: correct the address and resend it, or drop it.",
                settled=True,
            ),
            end("Sent", description="The mail server has taken it.", keep=30 * DAY),
            end("Dropped", description="Given up by an operator.", keep=30 * DAY),
        ),
        actions=(
            action(
                "resend",
                "Undeliverable",
                "Waiting",
                "Try again; `to` gives other addresses.",
                writes=_write_new_recipients,
            ),
            action(
                "drop",
                "Waiting Undeliverable",
                "Dropped",
                "Do not send it.",
                when_claimed="wait",
                confirm="Nobody gets it.",
            ),
        ),
        documents=(
            Document("mail", MailMessage, "service", "To whom, what about, the text, and which objects go with it."),
            Document("delivery", MailDelivery, "step", "Who has had it, who was refused and why."),
        ),
    )


def _write_new_recipients(record: Record, args: Mapping[str, Any]) -> tuple[msgspec.Struct, ...]:
    """Use other addresses, if some are given; everyone who has not received it is tried again."""
    new_recipients = args.get("to")
    if not new_recipients:
        return (MailDelivery(_delivery_of(record).accepted),)
    texts = [new_recipients] if isinstance(new_recipients, str) else [str(each) for each in new_recipients]
    addresses = parse_recipients(*texts)
    if not addresses:
        raise ActionRefused("`to` names no mail address.")
    return (replace(record.document(MailMessage), to=addresses, bcc=()), MailDelivery())


def _delivery_of(record: Record) -> MailDelivery:
    return record.find_document(MailDelivery) or MailDelivery()


def make_send_step(settings: MailSettings) -> Step:
    def send_waiting(record: Record, ctx: StepContext) -> Outcome:
        """Safe to repeat: recipients who have it are left out, and the Message-ID is the same."""
        if not settings.url:
            return Wait(600, "No mail server is named: set mail.url.")
        mail, known = record.document(MailMessage), _delivery_of(record)
        pending = [
            each
            for each in dict.fromkeys((*mail.to, *mail.bcc))
            if each not in known.accepted and each not in known.refused
        ]
        if pending:
            message = compose_message(mail, settings.sender, ctx.objects)
            ctx.check()
            try:
                delivery = send(settings, message, pending)
            except SmtpRefused as error:
                raise Fail(str(error)) from None
        else:
            delivery = SmtpDelivery()
        total = MailDelivery((*known.accepted, *delivery.accepted), known.refused | delivery.refused)
        refused = total.refused
        if delivery.deferred:
            why = "; ".join(f"{address}: {reply}" for address, reply in sorted(delivery.deferred.items())[:3])
            return Wait(
                _BACKOFF.compute_delay(known.rounds),
                f"The mail server asks for another try: {why}",
                documents=(replace(total, rounds=known.rounds + 1),),
            )
        if not total.accepted:
            ctx.save((total,))
            raise Fail(
                "; ".join(f"{address}: {reply}" for address, reply in sorted(refused.items())[:3])
                or "It has no recipient."
            )
        remark = f"Not for {', '.join(sorted(refused))}: refused." if refused else ""
        return Done((total,), message=remark)

    return send_waiting


def compose_message(mail: MailMessage, sender: str, objects: Objects) -> EmailMessage:
    """Return the message, the same each time, without the recipients of a blind copy. An attachment that is missing or
    too large is named instead.
    """
    message = EmailMessage(policy=_MESSAGE_POLICY)
    message["From"] = _parse_address(sender)
    message["To"] = [_parse_address(each) for each in mail.to] or "undisclosed-recipients:;"
    message["Subject"] = mail.subject
    message["Date"] = datetime.fromtimestamp(mail.at, UTC)
    message["Message-ID"] = f"<{mail.message_id}@{sender.rpartition('@')[2].encode('idna').decode()}>"
    message["Auto-Submitted"] = "auto-generated"
    bodies, remarks, bytes_left = [], [], MAX_ATTACHMENT_BYTES
    for each in mail.attachments:
        body = _read_attachment(each, objects, bytes_left)
        if body is None:
            remarks.append(f"{each.name} is too large to be sent, or no longer there: {each.object}")
        else:
            bytes_left -= len(body)
            bodies.append((each, body))
    message.set_content("\n".join([mail.text.rstrip("\n"), *(["", *remarks] if remarks else []), ""]))
    for each, body in bodies:
        main, _, sub = each.type.partition("/")
        message.add_attachment(body, maintype=main, subtype=sub or "octet-stream", filename=each.name)
    return message


def _parse_address(text: str) -> Address:
    user, _, domain = text.rpartition("@")
    return Address(username=user, domain=domain)


def _read_attachment(attachment: MailAttachment, objects: Objects, max_bytes: int) -> bytes | None:
    if not attachment.object:
        body = attachment.text.encode()
        return body if len(body) <= max_bytes else None
    try:
        with objects.get(attachment.object, end=max_bytes + 1) as chunks:
            body = b"".join(chunks)
    except ObjectNotFound:
        return None
    return body if len(body) <= max_bytes else None
