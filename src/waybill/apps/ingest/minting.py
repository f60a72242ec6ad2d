"""Minting: an ARK for an object that has none, by counting, and EZID told of it where a profile says so.

A shoulder's counter is a record (kind `minter`), from which a process draws a block of numbers at a time and hands them
out from memory. A number is drawn by one process only; what a process had left when it died is never used. Which ARK a
job gets is written down by the caller **before** anything is done with it: a second run of the job finds it, and draws
no other.

    number from the block  ->  ARK  ->  saved with the job  ->  EZID is told (`register`)  ->  used

Where EZID keeps the ARKs, it is we who choose: EZID is told of an ARK together with the name of the request, which may
be repeated for ever, whereas an ARK that EZID chose would be lost with its answer.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

from waybill.apps.ingest import noid
from waybill.apps.ingest.ezid import Ezid
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.settings import Minting
from waybill.engine import Engine
from waybill.record import Exists, NotFound, Record, Ref, Store
from waybill.rules import Machines, Refused
from waybill.step import Fail, New

BLOCK = 100  # numbers that a process draws at a time
USER = "WAYBILL_INGEST_EZID_USER"
PASSWORD = "WAYBILL_INGEST_EZID_PASSWORD"

Call = Callable[[Callable[[Store], Record]], Record]  # runs a question on the thread that owns the store: `ctx.call`


class Shoulder(NamedTuple):
    """Where ARKs are minted: by whose number, on which shoulder, written how; and the EZID that keeps them, if one
    does.
    """

    naan: str
    shoulder: str
    template: str
    ezid: str = ""  # the address of EZID

    @property
    def minter(self) -> Ref:
        return Ref("minter", f"{self.naan}-{self.shoulder}")

    @property
    def prefix(self) -> str:
        return f"ark:/{self.naan}/{self.shoulder}"


def shoulder_of(profile: Profile, usual: Minting) -> Shoulder:
    """What the profile says, and the settings for what it does not say."""
    told = profile.minter
    naan, shoulder = told.naan, told.shoulder
    address, _, named = told.url.partition("/shoulder/")
    if named:
        said_naan, _, said_shoulder = unquote(named).removeprefix("ark:/").strip("/").partition("/")
        naan, shoulder = naan or said_naan, shoulder or said_shoulder
    return Shoulder(naan or usual.naan, shoulder or usual.shoulder, usual.template, address)


class Blocks:
    """The numbers that this process has drawn and not used yet. May be used from many threads."""

    def __init__(self, size: int = BLOCK) -> None:
        self._size = size
        self._drawn: dict[Ref, deque[int]] = {}
        self._lock = threading.Lock()

    def mint(self, shoulder: Shoulder, machines: Machines, call: Call) -> str:
        """An ARK that nobody else gets."""
        return noid.mint(
            self._number(shoulder.minter, machines, call), shoulder.naan, shoulder.shoulder, shoulder.template
        )

    def _number(self, minter: Ref, machines: Machines, call: Call) -> int:
        while True:
            with self._lock:
                if drawn := self._drawn.setdefault(minter, deque()):
                    return drawn.popleft()
            # Outside the lock, for it waits for the store: two threads that find none draw two blocks, and use both.
            end = int(call(lambda store: draw(Engine(store, machines), minter, self._size)).docs["numbers"]["next"])
            with self._lock:
                self._drawn[minter].extend(range(end - self._size, end))


def draw(engine: Engine, minter: Ref, count: int) -> Record:
    """Draw the next numbers: up to, and without, the `next` of the record that is answered.

    Whoever draws first makes the record.
    """
    try:
        engine.store.get(*minter)
    except NotFound:
        with suppress(Exists):  # another process was first: both draw from the same record
            engine.submit(
                New(minter.kind, id=minter.id, docs={"numbers": {"next": 0}}, child=False),
                why="the first ARK of the shoulder",
            )
    try:
        return engine.act(minter, "draw", args={"count": count}, why="numbers for ARKs").record
    except Refused as error:
        raise Fail(f"No ARK can be minted on {minter.id}: {error}") from error


def connect(shoulder: Shoulder, env: Mapping[str, str] = os.environ) -> Ezid:
    """A client for the shoulder's EZID. It tries once: a step that failed is run again later, and holds no worker
    meanwhile.
    """
    user, password = env.get(USER, ""), env.get(PASSWORD, "")
    if not user or not password:
        raise Fail(
            f"EZID keeps the ARKs of {shoulder.prefix} and asks for a password: set {USER} and {PASSWORD}, then resume."
        )
    return Ezid(shoulder.ezid, user, password, pauses=())
