"""A record is let go, or moved, without an answer of its step.

It waits for its children or a key, rests under a mark, was made or moved by another service or release, or lost its
host.
"""

from __future__ import annotations

from msgspec.structs import replace

from waybill.machine import Machine, MachineError, State
from waybill.record import Change, Record
from waybill.rules.entering import declared, enter, gates_in, leaving
from waybill.rules.keys import keys_in

HELD_BY = "held by "  # begins the message of what rests under a mark


def children_are_made(state: State, record: Record) -> bool:
    """Whether a join has only to wait. Without the document the children were made by others, and not by its step."""
    return state.opens is None or state.opens not in record.docs or bool(record.docs[state.opens].get("whole"))


def look(record: Record, who: str = "") -> Change:
    """A join with open children goes on waiting for them; a nudge that came meanwhile keeps it awake."""
    return Change(record, replace(record, session=None, parked="children"), "", who)


def wait_for_key(machine: Machine, record: Record, keys: tuple[str, ...], key: str, who: str = "") -> Change:
    """A step asked for a key that another record holds: let go, ask for it, and run again when it is free."""
    return Change(record, replace(record, session=None, keys=keys, parked=f"key {key}"), "", who)


def release(record: Record, who: str = "") -> Change:
    """Give the record back as it is: the worker must go, and nothing has failed."""
    return Change(record, replace(record, session=None), "", who)


def hold(machine: Machine, record: Record, mark: str, who: str = "") -> Change:
    state = declared(machine, record)
    if state.holds is None:
        raise MachineError(f"{machine.name}.{state.name} has no state to be held in.")
    held = enter(machine, record, state.holds, session=None, message=f"{HELD_BY}{mark}", **leaving(machine, record))
    return Change(record, held, "hold", who, f"{mark} is set")


def refit(machine: Machine, record: Record, who: str = "") -> Change | None:
    """Another service made it, or led it into its state, and knows no table: let it go with the marks and keys that
    the table asks for.

    None: it has them. The next claim heeds the marks and takes the keys, or leaves it to wait.
    """
    state = declared(machine, record)
    gates = gates_in(machine, state, record)
    keys = keys_in(machine, state, record)
    if (gates, keys) == (record.gates, record.keys):
        return None
    return Change(record, replace(record, session=None, gates=gates, keys=keys), "", who)


def remake(machine: Machine, record: Record, who: str = "") -> Change:
    """Its host is gone with its files. Safe to repeat: the change is fenced by the version that was read."""
    state = declared(machine, record)
    target = state.remakes or record.state
    why = f"the host {record.host} is gone, and its working files with it"
    return Change(record, enter(machine, record, target, host="", message=why), "remake", who, why)


def reckon(machine: Machine, record: Record, who: str = "") -> Change | None:
    """Whether its parent waits for it is noted as another release's table said: note it as this one says. None: that
    is the same.
    """
    state = machine.state(record.state)
    if state is None or state.open == record.open:
        return None
    why = f"by the table now in force {state.name} is {'open' if state.open else 'settled'}"
    return Change(record, replace(record, open=state.open), "reckon", who, why)
