"""Mints ARKs for objects that have none, by counting.

The counter of a shoulder is a record (kind `minter`), from which a process draws a block of numbers at a time and hands
them out from memory. A number is drawn by one process only; numbers that a process had left when it died are never used.
The caller saves the ARK of a job **before** anything is done with it: a second run of the job finds it, and draws no
other.

    number from the block  ->  ARK  ->  saved with the job  ->  registered with EZID, if the profile says so  ->  used

Also where EZID registers the ARKs, Waybill chooses them: registering an ARK with the name of its request may be repeated
for ever, whereas an ARK that EZID chose would be lost with its answer.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from waybill.apps.ingest.identifiers import noid
from waybill.apps.ingest.identifiers.ezid import EzidClient
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.settings import MinterSettings
from waybill.engine import Engine
from waybill.files.names import quote_text
from waybill.record import Record, RecordExists, RecordNotFound, Ref, Store
from waybill.rules import ActionRefused, Machines
from waybill.step import Fail, New

BLOCK_SIZE = 100  # numbers that a process draws at a time
EZID_USER = "WAYBILL_INGEST_EZID_USER"
EZID_PASSWORD = "WAYBILL_INGEST_EZID_PASSWORD"

RunOnStore = Callable[
    [Callable[[Store], Record]], Record
]  # runs a function on the thread of the store: `ctx.run_on_store`


class Shoulder(NamedTuple):
    """Where ARKs are minted: NAAN, shoulder and template; and the EZID that registers them, if any."""

    naan: str
    shoulder: str
    template: str
    ezid_url: str = ""  # the address of EZID

    @property
    def minter(self) -> Ref:
        return Ref("minter", f"{self.naan}-{self.shoulder}")

    @property
    def prefix(self) -> str:
        return f"ark:/{self.naan}/{self.shoulder}"


def shoulder_of(profile: Profile, defaults: MinterSettings) -> Shoulder:
    """The shoulder of the profile; the settings fill in what it does not say."""
    minter = profile.minter
    naan, shoulder = minter.naan, minter.shoulder
    address, _, named = minter.url.partition("/shoulder/")
    if named:
        url_naan, _, url_shoulder = unquote(named).removeprefix("ark:/").strip("/").partition("/")
        naan, shoulder = naan or url_naan, shoulder or url_shoulder
    return Shoulder(naan or defaults.naan, shoulder or defaults.shoulder, defaults.template, address)


class NumberBlocks:
    """The numbers that this process has drawn and not used. May be used from many threads."""

    def __init__(self, size: int = BLOCK_SIZE) -> None:
        self._size = size
        self._unused: dict[Ref, deque[int]] = {}
        self._lock = threading.Lock()

    def mint(self, shoulder: Shoulder, machines: Machines, run_on_store: RunOnStore) -> str:
        """An ARK that no other caller gets."""
        return noid.mint(
            self._next_number(shoulder.minter, machines, run_on_store),
            shoulder.naan,
            shoulder.shoulder,
            shoulder.template,
        )

    def _next_number(self, minter: Ref, machines: Machines, run_on_store: RunOnStore) -> int:
        while True:
            with self._lock:
                if unused := self._unused.setdefault(minter, deque()):
                    return unused.popleft()
            # Outside the lock, because it waits for the store: two threads that find none draw two blocks, and both are used.
            end = int(
                run_on_store(lambda store: draw_numbers(Engine(store, machines), minter, self._size)).documents[
                    "numbers"
                ]["next"]
            )
            with self._lock:
                self._unused[minter].extend(range(end - self._size, end))


def draw_numbers(engine: Engine, minter: Ref, count: int) -> Record:
    """Draw the next `count` numbers, which end before the `next` of the returned record. The first call creates the record."""
    try:
        engine.store.get(*minter)
    except RecordNotFound:
        with suppress(RecordExists):  # another process was faster: both draw from the same record
            engine.submit(
                New(minter.kind, id=minter.id, documents={"numbers": {"next": 0}}, is_child=False),
                why="the first ARK of the shoulder",
            )
    try:
        return engine.act(minter, "draw", args={"count": count}, why="numbers for ARKs").record
    except ActionRefused as error:
        raise Fail(f"No ARK can be minted on {minter.id}: {error}") from error


def connect_ezid(shoulder: Shoulder, hosts: Collection[str], env: Mapping[str, str] = os.environ) -> EzidClient:
    """A client for the shoulder's EZID. It tries once: the step is retried later, and occupies no worker meanwhile.

    `hosts` are those that the settings name: whoever writes profiles must not choose who gets the password.
    """
    if (host := _host_of(shoulder.ezid_url)) not in hosts:
        raise Fail(
            f"The minter of the profile is at {quote_text(host)}, and EZID's password is only sent to {' or '.join(hosts) or 'nobody'}: "
            "correct the profile, or name the host in app.ingest.minter.ezid_hosts; then resume."
        )
    user, password = env.get(EZID_USER, ""), env.get(EZID_PASSWORD, "")
    if not user or not password:
        raise Fail(
            f"EZID keeps the ARKs of {shoulder.prefix} and asks for a password: set {EZID_USER} and {EZID_PASSWORD}, then resume."
        )
    return EzidClient(shoulder.ezid_url, user, password, pauses=())


def _host_of(url: str) -> str:
    """The host of a URL as settings write it: with its port, unless that is the one of https."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url[:200]
    return (parts.hostname or "") + (f":{port}" if port not in (None, 443) or parts.scheme != "https" else "")
