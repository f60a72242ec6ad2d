"""Composing: from a letter to the message that is sent, the same each time.

Whatever is in the letter, it cannot add a header: values are single lines, addresses have been looked at, and the
library refuses the rest.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import TYPE_CHECKING

from waybill.objects import NotFound, Objects

if TYPE_CHECKING:
    from waybill.notify.letters import Attachment, Letter

MOST = 10 * 1024 * 1024  # bytes of all attachments: more is refused by many servers
_POLICY = SMTP.clone(cte_type="7bit")  # so that no server on the way has a reason to change it


def compose(letter: Letter, sender: str, objects: Objects) -> EmailMessage:
    """The message, without those who get a blind copy. An attachment that is gone or too large is named instead."""
    message = EmailMessage(policy=_POLICY)
    message["From"] = _address(sender)
    message["To"] = [_address(each) for each in letter.to] or "undisclosed-recipients:;"
    message["Subject"] = letter.subject
    message["Date"] = datetime.fromtimestamp(letter.at, UTC)
    message["Message-ID"] = f"<{letter.number}@{sender.rpartition('@')[2].encode('idna').decode()}>"
    message["Auto-Submitted"] = "auto-generated"
    bodies, remarks, room = [], [], MOST
    for each in letter.attachments:
        body = _body(each, objects, room)
        if body is None:
            remarks.append(f"{each.name} is too large to be sent, or no longer there: {each.object}")
        else:
            room -= len(body)
            bodies.append((each, body))
    message.set_content("\n".join([letter.text.rstrip("\n"), *(["", *remarks] if remarks else []), ""]))
    for each, body in bodies:
        main, _, sub = each.type.partition("/")
        message.add_attachment(body, maintype=main, subtype=sub or "octet-stream", filename=each.name)
    return message


def _address(text: str) -> Address:
    user, _, domain = text.rpartition("@")
    return Address(username=user, domain=domain)


def _body(attachment: Attachment, objects: Objects, room: int) -> bytes | None:
    if not attachment.object:
        body = attachment.text.encode()
        return body if len(body) <= room else None
    try:
        with objects.get(attachment.object, end=room + 1) as found:
            body = b"".join(found)
    except NotFound:
        return None
    return body if len(body) <= room else None
