"""Letters: what people are told by mail, each a record that any worker sends.

    Waiting -> Sent                                    a mail server that is away delays it, for as long as it takes
    Waiting -> Undeliverable -> (resend) -> Waiting    refused for good, by everyone it is for
                             -> (drop) -> Dropped

A letter can be sent twice only if the worker dies between the server's yes and its own commit; its Message-ID is then
the same, and the receiver's mail program shows one. Recipients that have had it are written down and are not written to
again.

Its document `letter` holds all but the attachments, which are objects or short texts.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from waybill.config import Mail
from waybill.machine import Backoff, Document, Machine, action, end, rest, work
from waybill.notify.composing import compose
from waybill.notify.smtp import Delivery, Refused, send
from waybill.record import Record
from waybill.rules import Refused as Refusal
from waybill.step import Context, Done, Fail, New, Outcome, Step, Wait

DAY = 86400.0
MOST = 100  # recipients of one letter
LONGEST_TEXT = 64_000  # characters
_FOR_EVER = 10**9  # tries
_BACKOFF = Backoff(30, 2, 3600)
_NAMES = uuid.UUID("b1a3e6c4-4c0b-5c56-9f5c-0e6f4c4b8a55")
_ADDRESS = re.compile(r"[^@\s,;<>()\[\]\\\"\x00-\x1f\x7f]{1,64}@[^@\s,;:<>()\[\]\\\"\x00-\x1f\x7f]{1,255}")


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that goes with a letter: the object of that name, or a short text."""

    name: str
    type: str = "application/json"
    object: str = ""
    text: str = ""


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    to: tuple[str, ...]
    subject: str
    text: str
    number: str  # of its Message-ID, before the @
    at: float  # seconds since 1970: its date
    bcc: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    v: int = 1


def letter(
    *,
    to: Iterable[str],
    subject: str,
    text: str,
    key: str,
    at: float,
    bcc: Iterable[str] = (),
    attachments: Sequence[Attachment] = (),
) -> New:
    """A letter to be made with something else. `key` names what it tells of: the same key is the same letter to
    whoever gets it twice.
    """
    written = Letter(
        tuple(dict.fromkeys(to))[:MOST],
        _one_line(subject),
        text[:LONGEST_TEXT],
        str(uuid.uuid5(_NAMES, key)),
        at,
        tuple(dict.fromkeys(bcc))[:MOST],
        tuple(attachments),
    )
    return New("letter", {"letter": msgspec.to_builtins(written)}, child=False, priority=5)


def recipients(*texts: str) -> tuple[str, ...]:
    """The mail addresses in texts that people wrote, each once; what is no address is left out."""
    words = (word for text in texts for word in re.split(r"[\s,;<>]+", text) if word)
    return tuple(dict.fromkeys(word for word in words if word.isprintable() and _ADDRESS.fullmatch(word)))


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:250]


# --- the machine


def letter_machine(mail: Mail) -> Machine:
    """The machine, whose step sends by these settings."""
    machine = Machine(
        name="letter",
        plural="letters",
        prefix="letter",
        doc="Mail on its way. A mail server that is away delays it, and loses nothing.",
        made_by="steps that have something to tell",
        states=(
            work(
                "Waiting",
                "Sent",
                "To be handed to the mail server.",
                fails="Undeliverable",
                tries=_FOR_EVER,
                backoff=_BACKOFF,
            ),
            rest(
                "Undeliverable",
                "The mail server refused it for good: mend the address and send it again, or drop it.",
                settled=True,
            ),
            end("Sent", "The mail server has taken it.", keep=30 * DAY),
            end("Dropped", "Given up by an operator.", keep=30 * DAY),
        ),
        actions=(
            action("resend", "Undeliverable", "Waiting", "Try again; `to` gives other addresses.", writes=_readdressed),
            action(
                "drop", "Waiting Undeliverable", "Dropped", "Do not send it.", claimed="wait", confirm="Nobody gets it."
            ),
        ),
        documents=(
            Document("letter", "service", "To whom, what about, the text, and which objects go with it."),
            Document("delivery", "step", "Who has had it, who was refused and why."),
        ),
    )
    machine.step("Waiting")(sending(mail))
    return machine


def _readdressed(record: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Other addresses, if some are given; and everyone who has not had it is written to."""
    wanted = args.get("to")
    if not wanted:
        return {"delivery": {"accepted": record.docs.get("delivery", {}).get("accepted", [])}}
    found = recipients(*([wanted] if isinstance(wanted, str) else [str(each) for each in wanted]))
    if not found:
        raise Refusal("`to` names no mail address.")
    return {"letter": {**record.docs["letter"], "to": found, "bcc": []}, "delivery": {}}


def sending(mail: Mail) -> Step:
    def waiting(record: Record, ctx: Context) -> Outcome:
        """Safe to repeat: those who have had it are left out, and the Message-ID is the same."""
        if not mail.url:
            return Wait(600, "No mail server is named: set mail.url.")
        written = msgspec.convert(record.docs["letter"], Letter)
        known = record.docs.get("delivery", {})
        accepted, refused = list(known.get("accepted", ())), dict(known.get("refused", {}))
        open_yet = [
            each for each in dict.fromkeys((*written.to, *written.bcc)) if each not in accepted and each not in refused
        ]
        if open_yet:
            message = compose(written, mail.sender, ctx.objects)
            ctx.check()
            try:
                came = send(mail, message, open_yet)
            except Refused as error:
                raise Fail(str(error)) from None
        else:
            came = Delivery()
        accepted, refused = accepted + came.accepted, refused | came.refused
        if came.later:
            why = "; ".join(f"{address}: {said}" for address, said in sorted(came.later.items())[:3])
            delay = _BACKOFF.delay(int(known.get("rounds", 0)))
            docs = {"delivery": {"accepted": accepted, "refused": refused, "rounds": int(known.get("rounds", 0)) + 1}}
            return Wait(delay, f"The mail server asks for another try: {why}", docs=docs)
        if not accepted:
            ctx.save({"delivery": {"accepted": [], "refused": refused}})
            raise Fail(
                "; ".join(f"{address}: {said}" for address, said in sorted(refused.items())[:3])
                or "It is addressed to nobody."
            )
        said = f"Not for {', '.join(sorted(refused))}: refused." if refused else ""
        return Done({"delivery": {"accepted": accepted, "refused": refused}}, message=said)

    return waiting
