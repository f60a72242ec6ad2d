"""A real mail server in a test: takes mail over SMTP on loopback, and refuses as it is told.

with Mailbox() as box:
    box.url                                          smtp://127.0.0.1:PORT
    box.recipients["jane@example.org"] = "550 no"    what it answers to a recipient
    box.data = "451 later"                           what it answers to a letter
    box.letters                                      what came: sender, recipients, message
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from tests.servers.ports import free_port


class Came(NamedTuple):
    sender: str
    recipients: tuple[str, ...]
    message: EmailMessage
    raw: bytes


class Mailbox:
    def __init__(
        self, port: int = 0, *, host: str = "127.0.0.1", account: tuple[str, str] | None = None, **options: Any
    ) -> None:
        """`account`: the user and password that it asks for. `options`: of aiosmtpd's SMTP."""
        self.letters: list[Came] = []
        self.recipients: dict[str, str] = {}
        self.data = ""
        self.sender = ""
        # called with each letter before it is taken
        self.reads: Callable[[EmailMessage], object] = lambda message: None
        self.asked: list[str] = []  # recipients, in the order in which they were asked for
        self._came = threading.Condition()
        self._account = account
        if account:
            options |= {"authenticator": self._authenticate, "auth_required": True, "auth_require_tls": False}
        self.port = port or free_port()
        self._controller = Controller(self, hostname=host, port=self.port, ready_timeout=60.0, **options)
        self.url = f"smtp://{host}:{self.port}"

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.stop()

    def wait(self, count: int = 1, patience: float = 120.0) -> list[Came]:
        """The letters, once so many have come."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.letters) >= count, patience), (
                f"{len(self.letters)} of {count} letters came"
            )
            return list(self.letters)

    def _authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        return AuthResult(success=(data.login.decode(), data.password.decode()) == self._account, handled=False)

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if self.sender:
            return self.sender
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        self.asked.append(address)
        if address in self.recipients:
            return self.recipients[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.data:
            return self.data
        message = cast(EmailMessage, message_from_bytes(envelope.content, policy=policy.default))
        self.reads(message)
        with self._came:
            self.letters.append(Came(envelope.mail_from, tuple(envelope.rcpt_tos), message, envelope.content))
            self._came.notify_all()
        return "250 OK"
