"""The schema's numbered steps. A fresh file takes all of them; an older one those it lacks; a newer one is refused.

The file itself keeps the number of its last step (user_version) and that it is one of ours (application_id). Steps lie
in migrations/ as NNNN_name.sql, named statements that are executed one by one: of several in one call SQLite runs those
after a row only once it is read.
"""

from __future__ import annotations

import re
from importlib import resources

from waybill.record import BadStore
from waybill.statements import load
from waybill.stores.sqlite.database import Database

OURS = 0x57617962  # "Wayb"
_NAME = re.compile(r"(\d{4})_[a-z_]+\.sql")


def steps() -> list[tuple[int, str]]:
    """(number, file) of each step, in order."""
    names = sorted(
        entry.name
        for entry in resources.files(__package__).joinpath("migrations").iterdir()
        if entry.name.endswith(".sql")
    )
    found = [_NAME.fullmatch(name) for name in names]
    numbers = [int(match[1]) if match else 0 for match in found]
    if numbers != list(range(1, len(names) + 1)):
        raise BadStore(
            f"The steps of the SQLite schema are not numbered from 0001 on without a gap: {', '.join(names)}."
        )
    return list(zip(numbers, names, strict=True))


def bring_up(database: Database, *, migrate: bool) -> None:
    """Make the schema the one that this driver knows, or refuse."""
    known = steps()
    latest = known[-1][0]
    with database.read():  # of one moment: another process may be making the schema just now
        present = _present(database)
    if present == latest:
        return
    if not migrate:
        raise BadStore(
            f"{database.place} has schema {present}; this Waybill needs {latest}. Let one process open it that may migrate it."
        )
    with database.write() as execute:
        present = _present(database)  # another process may have been first
        for number, name in known[present:]:
            for statement in load(__package__, f"migrations/{name}").values():
                execute(statement).fetchall()
            execute(f"pragma user_version = {number}").fetchall()
        execute(f"pragma application_id = {OURS}").fetchall()


def _present(database: Database) -> int:
    """The number of the file's last step; 0 for an empty file."""
    ((number,),) = database.execute("pragma user_version").fetchall()
    ((ours,),) = database.execute("pragma application_id").fetchall()
    ((tables,),) = database.execute("select count(*) from sqlite_schema").fetchall()
    if ours != OURS and (tables or number or ours):
        raise BadStore(
            f"{database.place} is a database of another program. Name another file for the store; it was not changed."
        )
    latest = steps()[-1][0]
    if number > latest:
        raise BadStore(
            f"{database.place} was written by a newer Waybill (schema {number}; this one knows up to {latest}). "
            "Upgrade Waybill here, or use the newer one."
        )
    return int(number)
