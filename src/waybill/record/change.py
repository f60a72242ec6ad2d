"""A change moves a record, and a group of changes is written whole or not at all. What a change is, follows from its
two sides:

    before  after   sessions              event   meaning
    None    record  -                     set     create; an id that ends in "*" is minted by the store: prefix + ten digits
    record  None    same as before        set     remove, with documents, history and keys
    record  record  mine -> mine          ""      save: a checkpoint under the claim, no history line
    record  record  mine -> mine          set     go on: the next state under the same claim; answered with or without the claim
    record  record  mine -> None          any     release: the claim ends with this commit
    record  record  None -> None          any     act: nobody may hold the record

Times are the store's own; a change carries a delay, never a time.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from waybill.record.refusals import TooLarge
from waybill.record.thing import Record, Ref

MAX_DOCUMENT = 512 * 1024  # bytes of one document
MAX_GROUP = 900 * 1024  # bytes of all documents and messages of a group: a ZooKeeper transaction is limited to 1 MiB
MAX_CHANGES = 1000  # changes in a group
MAX_MESSAGE = 4096  # characters of a message or a reason


class Change(msgspec.Struct, frozen=True, gc=False):
    """From `before` to `after`. See the head of this module for what the pair means."""

    before: Record | None
    after: Record | None
    event: str = ""  # what happened, for history: "done", "fail", an action's name; "": no history line
    who: str = ""
    why: str = ""
    docs: Mapping[str, bytes | None] = {}  # the documents it writes, or removes with None
    delay: float = 0.0  # with parked "wait": seconds from now, by the store's clock
    closes: bool = False  # refuse with Conflict while a child of this record is open, seen in the commit itself
    answers: bool = False  # this change settles what was asked of the record

    @property
    def ref(self) -> Ref:
        record = self.after if self.after is not None else self.before
        if record is None:
            raise ValueError("a change needs a before or an after")
        return Ref(record.kind, record.id)

    @property
    def saves(self) -> bool:
        return self.before is not None and self.after is not None and self.after.session is not None and not self.event

    @property
    def goes_on(self) -> bool:
        return (
            self.before is not None and self.after is not None and self.after.session is not None and bool(self.event)
        )


class Group(msgspec.Struct, frozen=True, gc=False):
    """Changes that are written together or not at all, and parents to call: a nudge is not versioned and never a
    Conflict.
    """

    changes: tuple[Change, ...]
    nudges: tuple[Ref, ...] = ()


def check_group(group: Group) -> None:
    """Raise TooLarge for a group that some store could not take; the limits are the same on all."""
    if len(group.changes) > MAX_CHANGES:
        raise TooLarge(f"{len(group.changes)} changes in one group; at most {MAX_CHANGES}. Write in portions.")
    total = 0
    for change in group.changes:
        if change.after is not None:
            after = change.after
            total += len(after.message) + len(change.why) + len(change.who) + len(after.owner) + len(after.host) + 256
            total += len(after.id) + len(after.request or "") if change.before is None else 0
            total += sum(map(len, after.keys)) + sum(map(len, after.gates)) if after.keys or after.gates else 0
        for name, body in change.docs.items():
            total += len(name)
            if body is None:
                continue
            if len(body) > MAX_DOCUMENT:
                raise TooLarge(
                    f"document {name} of {change.ref} has {len(body)} bytes; at most {MAX_DOCUMENT}. Put bulk into a manifest."
                )
            total += len(body)
    if total > MAX_GROUP:
        raise TooLarge(f"one group of {total} bytes; at most {MAX_GROUP}. Write in portions.")
