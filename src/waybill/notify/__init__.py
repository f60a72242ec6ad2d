"""Notifications to people by mail and to programs by webhooks, as records that any worker delivers.

    return Done(spawn=(make_mail(to=["jane@example.org"], subject="...", text="...", key=..., at=ctx.now()),))

A notification is created in the commit of what it reports, so no crash announces what did not happen or forgets what
did. A server that is unavailable delays the notification and nothing else.

mail.py       the machine `mail`, `make_mail`, and the message that is sent
smtp.py       one message to the mail server
webhooks.py   webhooks as subscribers of events, CloudEvents 1.0, and the machine `webhook_delivery` of refused events
http_post.py  one HTTP request, only to an allowed address
"""

from waybill.notify.http_post import HttpPostAnswer, post
from waybill.notify.mail import MailAttachment, make_mail, make_mail_machine, parse_recipients
from waybill.notify.webhooks import make_webhook_machine, make_webhook_subscribers

__all__ = [
    "HttpPostAnswer",
    "MailAttachment",
    "make_mail",
    "make_mail_machine",
    "make_webhook_machine",
    "make_webhook_subscribers",
    "parse_recipients",
    "post",
]
