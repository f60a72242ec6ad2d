"""What commands do alike with profiles and collections: documents that people write and change, each in a record of
its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from waybill.apps.ingest.commands.counter import agreed
from waybill.apps.ingest.service.shelf import Shelf
from waybill.cli.desk import Desk
from waybill.cli.problems import Misuse


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


def act(desk: Desk, shelf: Shelf[Any], name: str, action: str, why: str, yes: bool = False) -> None:
    """An action on a profile or a collection."""
    with desk.engine() as engine:
        wanted = desk.machine(shelf.kind).action(action)
        assert wanted is not None
        confirmed = agreed(
            desk, wanted, wanted.question(shelf.record(engine, name), engine.store), f"{shelf.kind} {name}", yes
        )
        record = shelf.act(engine, name, action, who=desk.who, why=why, confirmed=confirmed)
    if desk.as_json:
        return desk.print_json({"name": name, "state": record.state})
    return desk.say(f"The {shelf.kind} {name} is {record.state.lower()}.")
