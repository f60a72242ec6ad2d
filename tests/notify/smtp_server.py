"""A real mail server in a test: accepts mail over SMTP on loopback, and refuses what the test says.

with SmtpServer() as server:
    server.url                                          smtp://127.0.0.1:PORT
    server.recipients["jane@example.org"] = "550 no"    its reply to a recipient
    server.data = "451 later"                           its reply to a message
    server.messages                                     what it accepted: sender, recipients, message
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from tests.servers.ports import free_port


class ReceivedMail(NamedTuple):
    sender: str
    recipients: tuple[str, ...]
    message: EmailMessage
    raw: bytes


class SmtpServer:
    def __init__(
        self, port: int = 0, *, host: str = "127.0.0.1", account: tuple[str, str] | None = None, **options: Any
    ) -> None:
        """`account`: the user and password that it requires. `options`: of aiosmtpd's SMTP."""
        self.messages: list[ReceivedMail] = []
        self.recipients: dict[str, str] = {}
        self.data = ""
        self.sender = ""
        # called with each message before it is accepted
        self.on_message: Callable[[EmailMessage], object] = lambda message: None
        self.tried_recipients: list[str] = []  # in the order of the RCPT commands
        self._received = threading.Condition()
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

    def wait(self, count: int = 1, patience: float = 120.0) -> list[ReceivedMail]:
        """Return the messages, once so many were received."""
        with self._received:
            assert self._received.wait_for(lambda: len(self.messages) >= count, patience), (
                f"{len(self.messages)} of {count} messages were received"
            )
            return list(self.messages)

    def _authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        return AuthResult(success=(data.login.decode(), data.password.decode()) == self._account, handled=False)

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if self.sender:
            return self.sender
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        self.tried_recipients.append(address)
        if address in self.recipients:
            return self.recipients[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.data:
            return self.data
        message = message_from_bytes(envelope.content, policy=policy.default)
        self.on_message(message)
        with self._received:
            self.messages.append(ReceivedMail(envelope.mail_from, tuple(envelope.rcpt_tos), message, envelope.content))
            self._received.notify_all()
        return "250 OK"
