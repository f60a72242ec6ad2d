"""Documents that users write and deposits refer to: profiles and collections.

    put -> Active -> change ... -> retire -> Retired -> restore, or delete -> removed

A document is checked completely before it is stored. Every change is an entry of the record's history; the earlier
content is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from waybill.apps.ingest.machine.managed_documents import MANAGED
from waybill.apps.ingest.merritt import profile_import
from waybill.apps.ingest.profile import BadProfile, Collection, Profile, from_document, name_of, to_document
from waybill.apps.ingest.resources import IngestResources
from waybill.engine import Engine
from waybill.errors import InputError, NotFound
from waybill.files import names
from waybill.record import Page, Record, RecordExists, RecordNotFound, Ref
from waybill.rules import find_id_problem
from waybill.step import New

T = TypeVar("T", Profile, Collection)


@dataclass(frozen=True)
class ManagedDocuments(Generic[T]):
    document_type: type[T]

    @property
    def kind(self) -> str:
        return self.document_type.__name__.lower()

    def get_record(self, engine: Engine, name: str) -> Record:
        """The record with its document; raises NotFound if there is none of this name."""
        try:
            found = engine.store.get(self.kind, name) if find_id_problem(name) is None else None
        except RecordNotFound:
            found = None
        if found is None or found.state == MANAGED.deleted:
            raise NotFound(
                f"There is no {self.kind} {names.quote_text(name)}: `waybill ingest {self.kind}` or "
                f"GET /api/v1/ingest/{self.kind}s lists them."
            )
        return found

    def read(self, record: Record) -> T:
        """The document of a record; raises InputError if it was written by something else and cannot be read."""
        try:
            return from_document(self.document_type, record.documents.get(self.kind))
        except BadProfile as error:
            raise InputError(f"The {self.kind} {record.id} cannot be read: {error}") from None

    def put(self, engine: Engine, document: object, *, name: str = "", who: str, why: str = "") -> tuple[Record, bool]:
        """Create the document, or change the one of this name; returns the record, and whether it was created. A retired
        one is refused: restore it first.
        """
        checked = self._check_document(document)
        if name and name_of(checked) != name:
            raise InputError(
                f"This is the {self.kind} {names.quote_text(name_of(checked))}, and it was sent as {names.quote_text(name)}."
            )
        new = New(self.kind, {self.kind: to_document(checked)}, id=name_of(checked))
        try:
            # Safe to repeat: an id exists once, and the same change twice has the same result.
            return engine.submit(new, who=who, why=why), True
        except RecordExists:
            if engine.store.get(self.kind, name_of(checked)).state != MANAGED.deleted:
                return self.change(engine, name_of(checked), document, who=who, why=why), False
        # safe to repeat: it is removed then
        engine.remove(Ref(self.kind, name_of(checked)), who=who, why="its name is used again")
        return engine.submit(new, who=who, why=why), True

    def change(self, engine: Engine, name: str, document: object, *, who: str, why: str = "") -> Record:
        self._check_document(document)
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
        record = self.get_record(engine, name)
        return engine.act(Ref(self.kind, record.id), action, who=who, why=why, args=args, confirmed=confirmed).record

    def get_page(self, engine: Engine, *, state: str | None = None, after: int | None = None, limit: int = 100) -> Page:
        return engine.store.find(self.kind, state=state, after=after, limit=limit, documents=True)

    def read_all(self, engine: Engine, *, state: str | None = None) -> Iterator[Record]:
        return engine.store.each(self.kind, state=state, documents=True)

    def require_active(self, engine: Engine, name: str) -> T:
        """The document, if new deposits may name it; raises InputError otherwise."""
        record = self.get_record(engine, name)
        if record.state != MANAGED.initial:
            raise InputError(f"The {self.kind} {record.id} is {record.state}: {_describe_state(engine, record)}")
        return self.read(record)

    def _check_document(self, document: object) -> T:
        try:
            return from_document(self.document_type, document)
        except BadProfile as error:
            raise InputError(str(error)) from None


def _describe_state(engine: Engine, record: Record) -> str:
    state = engine.machines[record.kind].find_state(record.state)
    return state.description if state is not None else "this release does not know that state."


PROFILES = ManagedDocuments(Profile)
COLLECTIONS = ManagedDocuments(Collection)


# --- profiles


def require_active_profile(engine: Engine, name: str) -> Profile:
    """The profile that a new deposit names; raises InputError if it is not active."""
    if not name:
        raise InputError("The profile is missing: every deposit names one.")
    return PROFILES.require_active(engine, name)


def import_profile(engine: Engine, data: bytes, name: str = "", *, who: str, why: str = "") -> tuple[Record, list[str]]:
    """Store the profile of one of Merritt's properties files; returns its record, and remarks on properties that have no
    counterpart.
    """
    try:
        imported = profile_import.import_profile(data, name)
    except BadProfile as error:
        raise InputError(str(error)) from None
    record, _ = PROFILES.put(engine, to_document(imported.profile), who=who, why=why or "imported")
    return record, imported.remarks


# --- collections


def require_active_mnemonics(engine: Engine, resources: IngestResources, profile: Profile) -> tuple[str, ...]:
    """The mnemonics of the profile's collections that exist here; raises InputError if one of them is retired.

    A profile names collections by their ARKs. Deposits of a collection that does not exist here can still be held, by
    the name of the profile.
    """
    if not profile.collections:
        return ()
    mnemonics: list[str] = []
    for record in COLLECTIONS.read_all(engine):
        collection = COLLECTIONS.read(record)
        if collection.ark and collection.ark in profile.collections:
            if record.state != MANAGED.initial:
                raise InputError(
                    f"The collection {record.id} of the profile {profile.name} is {record.state}: nothing new goes into it."
                )
            mnemonics.append(record.id)
    return tuple(mnemonics)
