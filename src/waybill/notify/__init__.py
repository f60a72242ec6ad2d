"""Notices: what is to be told to people by mail, and to programs by webhooks, as records that any worker delivers.

    return Done(spawn=(letter(to=["jane@example.org"], subject="...", text="...", key=..., at=ctx.now()), *events(hooks,
    ...)))

A notice is made in the commit of what it tells of, so no crash announces what did not happen or forgets what did; and a
server that is away delays it and nothing else.

letters.py    the machine `letter`, and `letter()`, which makes one
composing.py  from a letter to the message that is sent
smtp.py       one message to the mail server
events.py     the machine `event`, CloudEvents 1.0, and `events()`, which makes one for each webhook that wants it
posting.py    one HTTP request, only to where it may go
"""

from waybill.notify.events import event_machine, events
from waybill.notify.letters import Attachment, letter, letter_machine, recipients
from waybill.notify.posting import Answer, NotPosted, post

__all__ = [
    "Answer",
    "Attachment",
    "NotPosted",
    "event_machine",
    "events",
    "letter",
    "letter_machine",
    "post",
    "recipients",
]
