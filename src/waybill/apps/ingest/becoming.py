"""What an entry of an old queue becomes: a job with its documents, or an assembly, in the state in which the entry
was.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from waybill.apps.ingest import mnemonics, submission
from waybill.apps.ingest.legacy import Described, Entry
from waybill.apps.ingest.profile import BadProfile, Profile, from_document
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import NotFound, Record
from waybill.rules import bad_id
from waybill.step import New


class Becoming:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._collections: dict[str, list[str]] = {}  # by the name of the profile

    def job(self, entry: Entry, told: Described, batch_id: str, batch: Record | None) -> New:
        said = self.placed({**told.configuration, "batchID": batch_id})
        if entry.written is not None and not said.get("submissionDate"):
            said["submissionDate"] = entry.written.isoformat(timespec="seconds")
        documents = {
            "configuration": {**submission.read(said).document(), **said},  # in both vocabularies
            "identifiers": told.identifiers,
            "metadata": {**told.metadata, "erc_where": told.identifiers.get("primary_id", "")},
            **({"inventory": told.inventory} if told.inventory else {}),
        }
        machine = self._engine.machines["job"]
        return New(
            "job",
            documents,
            state=told.state,
            owner=submission.read(said).submitter,
            priority=told.priority,
            request=told.request,
            last_done=_last_done(machine, told),
            message=told.message,
            parent=batch.ref if batch is not None else None,
        )

    def assembly(self, entry: Entry, told: Described) -> New:
        kind = "access-large" if told.large else "access-small"
        last = _last_done(self._engine.machines[kind], told)
        return New(
            kind,
            {"token": told.token},
            state=told.state,
            priority=told.priority,
            request=told.request,
            last_done=last,
            message=told.message,
        )

    def placed(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """With the collections by which it is held, where its profile is known here."""
        name = submission.read(said).profile
        if name not in self._collections:
            self._collections[name] = list(self._mnemonics(name))
        return (
            {**said, "collections": self._collections[name]}
            if self._collections[name] and not said.get("collections")
            else {**said}
        )

    def _mnemonics(self, profile: str) -> tuple[str, ...]:
        try:
            known = self._engine.store.get("profile", profile) if profile and bad_id(profile) is None else None
            return (
                mnemonics.of(from_document(Profile, known.docs.get("profile")), self._arks) if known is not None else ()
            )
        except (NotFound, BadProfile):
            return ()

    @cached_property
    def _arks(self) -> dict[str, str]:
        return mnemonics.by_ark(self._engine.store.find)


def _last_done(machine: Machine, told: Described) -> str | None:
    """What resume goes on after: the table decides, in which there may be a state between those that the old queues
    knew.
    """
    over = (
        told.state if told.state not in ("Failed", "Deleted", "Held") else told.path[-2] if len(told.path) > 1 else ""
    )
    state = machine.state(over)
    return (
        machine.before(over, told.last_done or None)
        if state is not None and state.then is not None
        else told.last_done or None
    )
