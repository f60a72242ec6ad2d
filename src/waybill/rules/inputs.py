"""Checks of names and numbers that come from outside: owners, idempotency keys, ids, priorities, holds. The same on the
command line and over HTTP.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from waybill.errors import ActionRefused, InputError, NotFound
from waybill.machine import Machine
from waybill.rules.machines import Machines

MAX_NAME_LENGTH = 200  # characters
IDEMPOTENCY_KEY_PATTERN = r"^[\x21-\x7e]{1,200}$"


def check_printable(text: str) -> str:
    """Return the text, or raise ValueError."""
    if not text.isprintable():
        raise ValueError("it holds a character that cannot be printed, such as a line break or a control character")
    return text


def check_owner(text: str) -> str:
    if not 1 <= len(text) <= MAX_NAME_LENGTH:
        raise ValueError(f"it has 1 to {MAX_NAME_LENGTH} characters")
    return check_printable(text)


def check_idempotency_key(text: str) -> str:
    if not re.fullmatch(IDEMPOTENCY_KEY_PATTERN, text):
        raise ValueError("it has 1 to 200 printable ASCII characters, and no blank")
    return text


# not in an id: slashes, spaces, control characters, lone surrogates
_ID_FORBIDDEN = re.compile(r"[\x00-\x20/\x7f-\x9f\ud800-\udfff]")


def find_id_problem(id: str) -> str | None:
    """Return why this cannot be the id of a record, or None: ids are parts of paths, URLs and znode names."""
    if not id or len(id.encode(errors="replace")) > 200:  # a name of a file has at most 255 bytes
        return "An id has 1 to 200 characters, and fewer where they are not ASCII: 200 bytes."
    if _ID_FORBIDDEN.search(id) or id in (".", "..") or id.endswith("*"):
        return f"{id!r} is no id: no slash, no space, no control character, no star at its end, not . or .."
    return None


def check_scope(scope: str) -> str:
    """Return the scope, or raise ActionRefused: APPLICATION/TYPE/NAME, or empty."""
    parts = scope.split("/")
    if scope and (len(parts) != 3 or not all(parts) or len(scope) > MAX_NAME_LENGTH or not scope.isprintable()):
        raise ActionRefused(
            f"{scope!r} is no scope: it is APPLICATION/TYPE/NAME, such as archive/workspace/atlas, of at most {MAX_NAME_LENGTH} characters."
        )
    return scope


PRIORITY = "priority"  # the one action request that every machine accepts and that stops no step
DEFAULT_PRIORITY = 5


def check_priority(priority: int) -> None:
    if not isinstance(priority, int) or not 0 <= priority <= 99:
        raise ActionRefused(f"A priority is a number from 0 to 99, lower first; {priority} is not.")


QUEUE_PREFIX = "queue/"  # of the holds that pause work: a machine's own queue, and queue/KIND.STATE
MAX_HOLD_NAME = 200  # characters


def check_hold_name(name: str) -> None:
    """Raise InputError for a name that not every store can keep.

    The name of a hold is a path of a few words, such as carrier/mule. On ZooKeeper it is a node, and not every text can
    name a node; what is refused there is refused everywhere.
    """
    if not 1 <= len(name) <= MAX_HOLD_NAME or not name.isprintable() or name != name.strip():
        raise InputError(
            f"The name of a hold is 1 to {MAX_HOLD_NAME} printable characters without a blank at either end, such as carrier/mule.",
            code="bad-name",
        )
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise InputError(
            f"{name!r} is not the name of a hold: its parts are separated by single slashes, such as carrier/mule.",
            code="bad-name",
        )


def list_pause_holds(machine: Machine, state: str) -> set[str]:
    """Return the holds that pause work in a state: any one of them does."""
    return {machine.queue, f"{QUEUE_PREFIX}{machine.name}.{state}"}


def check_hold_is_heeded(name: str, machines: Machines) -> None:
    """Raise NotFound for a hold that no record heeds: its operator would believe that something is held."""
    if name.startswith(QUEUE_PREFIX):
        return  # check_queue knows those
    heeding = [machine for machine in machines.values() if machine.hold_names is not None]
    if any(not machine.hold_prefixes for machine in heeding):
        return
    prefixes = sorted({prefix for machine in heeding for prefix in machine.hold_prefixes})
    if any(name.startswith(prefix) if prefix.endswith("/") else name == prefix for prefix in prefixes):
        return
    word = name.rpartition("/")[2]
    possible = [f"{prefix}{word}" if prefix.endswith("/") else prefix for prefix in prefixes]
    kinds = [machine.queue for machine in machines.values() if word in (machine.name, machine.plural)]
    near = sorted({*kinds, *possible}, key=lambda each: -SequenceMatcher(None, name, each).ratio())[:3]
    raise NotFound(
        f"No record heeds a hold {name!r}"
        + (f"; these would work: {', '.join(near)}." if near else ": no kind can be held."),
        code="unknown-hold-name",
    )


def check_queue(name: str, machines: Machines) -> None:
    """Raise NotFound for a queue that no machine has: a hold with a misspelt name would pause nothing, and its
    operator would believe that work is paused.
    """
    if not name.startswith(QUEUE_PREFIX) or name in (queues := {machine.queue for machine in machines.values()}):
        return
    kind, dot, state = name.removeprefix(QUEUE_PREFIX).partition(".")
    if dot and kind in machines:
        states = [s.name for s in machines[kind].list_work_states()]
        if state not in states:
            raise NotFound(
                f"{name} is no queue: no work is done on a {kind} in {state!r}, but in {', '.join(states) or 'no state'}.",
                code="unknown-queue",
            )
        return
    there = ", ".join(sorted(queue for queue in queues if queue.startswith(QUEUE_PREFIX)))
    raise NotFound(
        f"{name} is no queue; there are {there or 'none'}, and {QUEUE_PREFIX}KIND.STATE for a single state.",
        code="unknown-queue",
    )
