"""SMTP: one message to the mail server, and what it says of each recipient.

    smtp://host:25        plain: for a server on this machine or in the same house
    starttls://host:587   plain at first, encrypted before anything is said
    smtps://host:465      encrypted from the first byte

What the server says decides: a recipient is accepted, refused for good (5xx) or refused for now (4xx); a server that
cannot be reached, does not let us in or has no time is `MailTrouble`, and nothing was sent.
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

from waybill.config import MAIL_SCHEMES, Mail

TIMEOUT = 60.0  # seconds for each answer of the server


class MailTrouble(Exception):
    """The mail server could not take the letter now; nothing was sent."""


class Refused(Exception):
    """The mail server will not take the letter, whoever it is for."""


@dataclass
class Delivery:
    """What became of one attempt, for each address."""

    accepted: list[str] = field(default_factory=list)
    later: dict[str, str] = field(default_factory=dict)  # refused for now, with the server's words
    refused: dict[str, str] = field(default_factory=dict)  # refused for good


def send(mail: Mail, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
    """Hand it to the server for these recipients. MailTrouble, Refused."""
    try:
        server = _connected(mail)
        try:
            delivery = _handed_over(server, mail.sender, message, recipients)
            # the letter is with the server: what it says to our goodbye changes nothing
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
            return delivery
        finally:
            server.close()
    except smtplib.SMTPAuthenticationError as error:
        raise MailTrouble(
            f"The mail server does not let {mail.user!r} in: {_words(error.smtp_code, error.smtp_error)}"
        ) from None
    except smtplib.SMTPNotSupportedError as error:
        raise MailTrouble(f"The mail server cannot do what is asked of it: {error}") from None
    except smtplib.SMTPResponseException as error:
        raise MailTrouble(f"The mail server said {_words(error.smtp_code, error.smtp_error)}") from None
    except (smtplib.SMTPException, OSError) as error:
        raise MailTrouble(f"The mail server at {mail.url} cannot be reached: {error}") from None


def _connected(mail: Mail) -> smtplib.SMTP:
    parts = urlsplit(mail.url)
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
            server.ehlo_or_helo_if_needed()  # what was said in the clear counts no more
        if mail.user:
            if parts.scheme == "smtp" and host not in ("localhost", "127.0.0.1", "::1"):
                raise MailTrouble(
                    "A password is not sent over a plain connection: set mail.url to starttls://... or smtps://..."
                )
            server.login(mail.user, mail.password)
    except BaseException:
        server.close()
        raise
    return server


def _handed_over(server: smtplib.SMTP, sender: str, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
    """The dialogue, spoken here so that each recipient's answer is known, also when the letter itself is refused
    after them.
    """
    international = not all(each.isascii() for each in (sender, *recipients))
    if international and not server.has_extn("smtputf8"):
        raise Refused("An address is not ASCII, and the mail server takes no such addresses (SMTPUTF8).")
    options = [*(["SMTPUTF8"] if international else []), *(["BODY=8BITMIME"] if international else [])]
    body = message.as_bytes(policy=SMTPUTF8 if international else SMTP)
    code, words = server.mail(sender, options)
    if code != 250:
        raise smtplib.SMTPSenderRefused(code, words, sender)
    delivery = Delivery()
    for address in recipients:
        code, words = server.rcpt(address)
        if code in (250, 251):
            delivery.accepted.append(address)
        elif code >= 500:
            delivery.refused[address] = _words(code, words)
        else:
            delivery.later[address] = _words(code, words)
            if code == 421:
                raise smtplib.SMTPResponseException(code, words)
    if not delivery.accepted:
        server.rset()
        return delivery
    try:
        code, words = server.data(body)
    except smtplib.SMTPDataError as error:
        code, words = error.smtp_code, _bytes(error.smtp_error)
    if code >= 500:
        raise Refused(f"The mail server will not take the letter: {_words(code, words)}")
    if code != 250:
        raise MailTrouble(f"The mail server did not take the letter: {_words(code, words)}")
    return delivery


def _bytes(words: bytes | str) -> bytes:
    return words if isinstance(words, bytes) else words.encode()


def _words(code: int, words: bytes | str) -> str:
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
    return f"{code} {' '.join(text.split())}"[:300]
