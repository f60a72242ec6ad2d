"""A shelf: documents that people write and deposits refer to, profiles and collections alike.

    put -> Active -> change ... -> retire -> Retired -> restore, or delete -> gone

What is put is checked whole before it is kept. Every change is a line of the record's history; what the document said
before is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from waybill.apps.ingest import names
from waybill.apps.ingest.profile import BadProfile, Collection, Profile, from_document, name_of, to_document
from waybill.apps.ingest.service.refusals import NotKept, Unfit
from waybill.engine import Engine
from waybill.record import Exists, NotFound, Page, Record, Ref
from waybill.rules import bad_id
from waybill.step import New

T = TypeVar("T", Profile, Collection)
PORTION = 200


@dataclass(frozen=True)
class Shelf(Generic[T]):
    type: type[T]

    @property
    def kind(self) -> str:
        return self.type.__name__.lower()

    def record(self, engine: Engine, name: str) -> Record:
        """With its document; NotKept if there is none of this name."""
        try:
            found = engine.store.get(self.kind, name) if bad_id(name) is None else None
        except NotFound:
            found = None
        if found is None or found.state == "Deleted":
            raise NotKept(self.kind, name)
        return found

    def read(self, record: Record) -> T:
        """What its document says; Unfit for one that another release or hand has written so that it cannot be read."""
        try:
            return from_document(self.type, record.docs.get(self.kind))
        except BadProfile as error:
            raise Unfit(f"The {self.kind} {record.id} cannot be read: {error}") from None

    def put(self, engine: Engine, document: object, *, name: str = "", who: str, why: str = "") -> tuple[Record, bool]:
        """Make it, or change the one of this name; the record, and whether it was made. What is Retired is refused:
        restore it first.
        """
        thing = self._checked(document)
        if name and name_of(thing) != name:
            raise Unfit(
                f"This is the {self.kind} {names.shown(name_of(thing))}, and it was sent as {names.shown(name)}."
            )
        new = New(self.kind, {self.kind: to_document(thing)}, id=name_of(thing))
        try:
            # Safe to repeat: an id exists once, and the same change written twice says the same.
            return engine.submit(new, who=who, why=why), True
        except Exists:
            if engine.store.get(self.kind, name_of(thing)).state != "Deleted":
                return self.change(engine, name_of(thing), document, who=who, why=why), False
        # safe to repeat: it is gone then
        engine.remove(Ref(self.kind, name_of(thing)), who=who, why="its name is used again")
        return engine.submit(new, who=who, why=why), True

    def change(self, engine: Engine, name: str, document: object, *, who: str, why: str = "") -> Record:
        self._checked(document)
        args = dict(document) if isinstance(document, dict) else {}
        return self.act(engine, name, "change", args=args, who=who, why=why)

    def act(
        self,
        engine: Engine,
        name: str,
        action: str,
        *,
        who: str,
        why: str = "",
        confirmed: bool = False,
        args: dict[str, Any] | None = None,
    ) -> Record:
        """change, retire, restore or delete."""
        record = self.record(engine, name)
        return engine.act(Ref(self.kind, record.id), action, who=who, why=why, args=args, confirmed=confirmed).record

    def page(self, engine: Engine, *, state: str | None = None, after: int | None = None, limit: int = 100) -> Page:
        return engine.store.find(self.kind, state=state, after=after, limit=limit, docs=True)

    def each(self, engine: Engine, *, state: str | None = None) -> Iterator[Record]:
        after: int | None = None
        while True:
            page = self.page(engine, state=state, after=after, limit=PORTION)
            yield from page.records
            if page.after is None:
                return
            after = page.after

    def usable(self, engine: Engine, name: str) -> T:
        """One that a new deposit may name."""
        record = self.record(engine, name)
        if record.state != "Active":
            raise Unfit(f"The {self.kind} {record.id} is {record.state}: {_state(engine, record)}")
        return self.read(record)

    def _checked(self, document: object) -> T:
        try:
            return from_document(self.type, document)
        except BadProfile as error:
            raise Unfit(str(error)) from None


def _state(engine: Engine, record: Record) -> str:
    state = engine.machines[record.kind].state(record.state)
    return state.doc if state is not None else "this release does not know that state."


PROFILES = Shelf(Profile)
COLLECTIONS = Shelf(Collection)
