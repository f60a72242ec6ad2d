"""Where the store's own notes about records lie: pure functions from what is noted to the node's path.

/waybill/parked/KIND/STATE/REASON~ID         cannot be claimed now: wMILLISECONDS (until then), c (children), kHASH (key), mHASH (mark)
/waybill/waiting/KEY/PP-TURN-SEQ~KIND~ID     waits for that key, most urgent first
/waybill/asks/KIND~ID                        was asked something while a worker held it
/waybill/requests/KIND/REQUEST               the id of the record that this request made
/waybill/owners/OWNER/KIND/SEQ~ID            whose it is
/waybill/kin/KIND/ID                         a parent: the last turn given to its children, kind by kind
/waybill/kin/KIND/ID/open|shut/CHILD         its children (jobs excepted: Merritt's folders list them); CHILD = KIND~SEQ~STATE~ID
/waybill/sessions/SESSION                    ephemeral: a worker's session, who it is and how far it is
/waybill/workers/SESSION                     stays when the session dies, until reap tells its name
"""

from __future__ import annotations

from typing import NamedTuple

from waybill.record import Ref
from waybill.stores.zookeeper.names import checksum, plain, quote

PARKED, WAITING, ASKS, KIN, SESSIONS, WORKERS = (
    f"/waybill/{name}" for name in ("parked", "waiting", "asks", "kin", "sessions", "workers")
)
BELL, SEQ, LAYOUT = "/waybill/bell", "/waybill/seq", "/waybill/layout"


def milliseconds(time: float) -> int:
    """Rounded up: a wait is never due too early."""
    return -int(-time * 1000 // 1)


def hash_of(reason: str) -> str:
    """What a node's name says of "key NAME" or "mark NAME"."""
    return f"{reason[0]}{checksum(reason):08x}"


def parked_folder(kind: str, state: str) -> str:
    return f"{PARKED}/{quote(kind)}/{quote(state)}"


def parked(kind: str, state: str, id: str, reason: str, wake_at: float) -> str:
    code = f"w{milliseconds(wake_at):015d}" if reason == "wait" else "c" if reason == "children" else hash_of(reason)
    return f"{parked_folder(kind, state)}/{code}~{quote(id)}"


class Parked(NamedTuple):
    code: str  # "w" | "c" | "k" | "m"
    until: float  # when a wait is due
    id: str


def parse_parked(name: str) -> Parked:
    head, _, id = name.partition("~")
    until = int(head[1:]) / 1000 if head[0] == "w" else 0.0
    return Parked(head[0], until, plain(id))


def waiting_folder(key: str) -> str:
    return f"{WAITING}/{quote(key)}"


def waiting_name(priority: int, turn: int, seq: int, ref: Ref) -> str:
    return f"{priority:02d}-{turn:012d}-{seq:012d}~{quote(ref.kind)}~{quote(ref.id)}"


def ask(ref: Ref) -> str:
    return f"{ASKS}/{quote(ref.kind)}~{quote(ref.id)}"


def ref_of(name: str) -> Ref:
    """The record that a name ends with: ...KIND~ID."""
    *_, kind, id = name.split("~")
    return Ref(plain(kind), plain(id))


def request(kind: str, request: str) -> str:
    return f"/waybill/requests/{quote(kind)}/{quote(request)}"


def owner_folder(owner: str, kind: str) -> str:
    return f"/waybill/owners/{quote(owner)}/{quote(kind)}"


def owner(owner: str, kind: str, seq: int, id: str) -> str:
    return f"{owner_folder(owner, kind)}/{seq:012d}~{quote(id)}"


def kin(parent: Ref) -> str:
    return f"{KIN}/{quote(parent.kind)}/{quote(parent.id)}"


class Child(NamedTuple):
    kind: str
    seq: int
    state: str
    id: str


def child_name(kind: str, seq: int, state: str, id: str) -> str:
    return f"{quote(kind)}~{seq:012d}~{quote(state)}~{quote(id)}"


def parse_child(name: str) -> Child:
    kind, seq, state, id = name.split("~")
    return Child(plain(kind), int(seq), plain(state), plain(id))


def session(name: str) -> str:
    return f"{SESSIONS}/{name}"


def worker(name: str) -> str:
    return f"{WORKERS}/{name}"


def turn(kind: str) -> str:
    """How far the turn of a kind has come."""
    return f"/waybill/kinds/{quote(kind)}/turn"
