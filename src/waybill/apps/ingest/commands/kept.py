"""What commands do alike with profiles and collections: documents that people write and change, each in a record of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from waybill.apps.ingest.commands.counter import agreed
from waybill.cli.desk import Desk
from waybill.cli.problems import Misuse
from waybill.record import MAX_PAGE, Record, Ref


def each(desk: Desk, kind: str) -> Iterable[Record]:
    with desk.store() as store:
        after: int | None = None
        while True:
            page = store.find(kind, after=after, limit=MAX_PAGE, docs=True)
            yield from page.records
            if (after := page.after) is None:
                return


def read_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        document = msgspec.json.decode(file.read_bytes())
    except msgspec.DecodeError as error:
        raise Misuse(f"{file} is not JSON: {error}.") from error
    return document if isinstance(document, dict) else {}


def merged(document: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    both = dict(document)
    for key, value in given.items():
        there = both.get(key)
        both[key] = {**there, **value} if isinstance(value, dict) and isinstance(there, dict) else value
    return both


def act(desk: Desk, kind: str, name: str, action: str, why: str, yes: bool = False) -> None:
    """An action on a profile or a collection."""
    with desk.engine() as engine:
        wanted = desk.machine(kind).action(action)
        assert wanted is not None
        confirmed = agreed(desk, wanted, wanted.question(engine.store.get(kind, name), engine.store), f"{kind} {name}", yes)
        record = engine.act(Ref(kind, name), action, who=desk.who, why=why, confirmed=confirmed).record
    if desk.as_json:
        return desk.print_json({"name": name, "state": record.state})
    return desk.say(f"The {kind} {name} is {record.state.lower()}.")
