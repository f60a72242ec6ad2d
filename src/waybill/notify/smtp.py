"""SMTP: one message to the mail server, and its reply for each recipient.

    smtp://host:25        unencrypted: for a server on this machine or in the same network
    starttls://host:587   unencrypted at first, encrypted before anything is sent
    smtps://host:465      encrypted from the first byte

The server's reply decides: a recipient is accepted, refused for good (5xx) or deferred (4xx). A server that cannot be
reached, refuses the login or is busy raises `TransferError`, and nothing was sent.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from urllib.parse import urlsplit

from waybill.config import MAIL_SCHEMES, MailSettings
from waybill.transfer.address_policy import TransferError

TIMEOUT = 60.0  # seconds for each reply of the server


class SmtpRefused(TransferError):
    """The mail server will not take the message, for any recipient."""

    code = "transfer-refused"


@dataclass
class SmtpDelivery:
    """The result of one attempt, for each address."""

    accepted: list[str] = field(default_factory=list)
    deferred: dict[str, str] = field(default_factory=dict)  # refused for now, with the server's reply
    refused: dict[str, str] = field(default_factory=dict)  # refused for good


def send(settings: MailSettings, message: EmailMessage, recipients: Sequence[str]) -> SmtpDelivery:
    """Send the message to these recipients. Raises TransferError or SmtpRefused."""
    try:
        server = _connect(settings)
        try:
            delivery = _transmit(server, settings.sender, message, recipients)
            # the server has the message: its reply to QUIT changes nothing
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
            return delivery
        finally:
            server.close()
    except smtplib.SMTPAuthenticationError as error:
        raise TransferError(
            f"The mail server refuses the login of {settings.user!r}: {_format_reply(error.smtp_code, error.smtp_error)}"
        ) from None
    except smtplib.SMTPNotSupportedError as error:
        raise TransferError(f"The mail server lacks an extension that is needed: {error}") from None
    except smtplib.SMTPResponseException as error:
        raise TransferError(f"The mail server replied {_format_reply(error.smtp_code, error.smtp_error)}") from None
    except (smtplib.SMTPException, OSError) as error:
        raise TransferError(f"The mail server at {settings.url} cannot be reached: {error}") from None


def _connect(settings: MailSettings) -> smtplib.SMTP:
    parts = urlsplit(settings.url)
    host, port = parts.hostname or "localhost", parts.port or MAIL_SCHEMES[parts.scheme]
    name = socket.getfqdn() if parts.hostname not in ("localhost", "127.0.0.1", "::1") else "localhost"
    server: smtplib.SMTP
    if parts.scheme == "smtps":
        server = smtplib.SMTP_SSL(
            host, port, timeout=TIMEOUT, local_hostname=name, context=ssl.create_default_context()
        )
    else:
        server = smtplib.SMTP(host, port, timeout=TIMEOUT, local_hostname=name)
    try:
        server.ehlo_or_helo_if_needed()
        if parts.scheme == "starttls":
            server.starttls(context=ssl.create_default_context())
            server.ehlo_or_helo_if_needed()  # what was negotiated before encryption is void
        if settings.user:
            if parts.scheme == "smtp" and host not in ("localhost", "127.0.0.1", "::1"):
                raise TransferError(
                    "A password is not sent over a plain connection: set mail.url to starttls://... or smtps://..."
                )
            server.login(settings.user, settings.password)
    except BaseException:
        server.close()
        raise
    return server


def _transmit(server: smtplib.SMTP, sender: str, message: EmailMessage, recipients: Sequence[str]) -> SmtpDelivery:
    """Run the SMTP dialogue here, so that the reply for each recipient is known, also when the message itself is refused
    after them.
    """
    international = not all(each.isascii() for each in (sender, *recipients))
    if international and not server.has_extn("smtputf8"):
        raise SmtpRefused("An address is not ASCII, and the mail server takes no such addresses (SMTPUTF8).")
    options = [*(["SMTPUTF8"] if international else []), *(["BODY=8BITMIME"] if international else [])]
    body = message.as_bytes(policy=SMTPUTF8 if international else SMTP)
    code, reply = server.mail(sender, options)
    if code != 250:
        raise smtplib.SMTPSenderRefused(code, reply, sender)
    delivery = SmtpDelivery()
    for address in recipients:
        code, reply = server.rcpt(address)
        if code in (250, 251):
            delivery.accepted.append(address)
        elif code >= 500:
            delivery.refused[address] = _format_reply(code, reply)
        else:
            delivery.deferred[address] = _format_reply(code, reply)
            if code == 421:
                raise smtplib.SMTPResponseException(code, reply)
    if not delivery.accepted:
        server.rset()
        return delivery
    try:
        code, reply = server.data(body)
    except smtplib.SMTPDataError as error:
        code, reply = error.smtp_code, _to_bytes(error.smtp_error)
    if code >= 500:
        raise SmtpRefused(f"The mail server will not take the message: {_format_reply(code, reply)}")
    if code != 250:
        raise TransferError(f"The mail server did not take the message: {_format_reply(code, reply)}")
    return delivery


def _to_bytes(reply: bytes | str) -> bytes:
    return reply if isinstance(reply, bytes) else reply.encode()


def _format_reply(code: int, reply: bytes | str) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    return f"{code} {' '.join(text.split())}"[:300]
