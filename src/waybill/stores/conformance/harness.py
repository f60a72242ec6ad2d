"""What a driver's author gives to the suite: a fresh store, its clock, and ways to hurt it.

    open ... tick ... expire | outage | lose_answer ... race ... close

Subclass `Harness`, give the five abstract methods, and change those words below that the driver's layout fixes. A
feature that a store may lack is asked of the harness and never guessed; where it is lacking the suite tests that the
store refuses or does the lesser thing.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from waybill.record import Ref, Store, StoreError


class Harness(ABC):
    """One fresh, empty store for one test.

    Its connections show what was committed to the very next call of any other connection: a driver that lists its
    queues ahead of claims does not keep such lists here. The suite opens at most one session at a time on a connection.
    """

    kind = "parcel"  # what most tests are about; its records may have a parent
    prefix = "pcl"  # of minted ids: "pcl*"
    parent_kind = "crate"
    parent_prefix = "crt"
    states: Sequence[str] = ("Packing", "Weighing", "Sending")  # of `kind`: three that are worked on
    rest = "Shelved"  # of `kind`: nobody works on it, and it is open
    end = "Sent"  # of `kind`: closed
    parent_states: Sequence[str] = ("Filling", "Sealing")  # of `parent_kind`: two that are worked on
    parent_end = "Shipped"  # of `parent_kind`: closed
    documents: Sequence[str] = ("label", "contents", "receipt")  # three that `kind` may have and any JSON may go into
    required: Mapping[str, bytes] = {}  # documents that each new record of `kind` must have, by name
    parent_required: Mapping[str, bytes] = {}  # the same for `parent_kind`
    key_family = "ark"  # of exclusive keys: "ark/NAME"
    gate_family = "collections"  # of marks that stop records: "collections/NAME"

    needs_parent = False  # a record of `kind` cannot be without a parent
    own_ids = True  # a caller may name the ids of `kind`; otherwise all are minted and a given id is refused
    has_turns = True  # records keep a turn; otherwise the order inside a priority is that of creation
    keeps_open = True  # records keep `open` as it is written; otherwise the state alone says it
    many_hosts = True  # workers of several hosts share the store; otherwise a second host is refused with BadStore
    # `check` names what `strand` parks; otherwise `sweep` alone frees it, as where others free keys and marks too
    names_stranded = True
    has_foreign_locks = False  # others than Waybill hold records too; then foreign_lock and foreign_unlock are given

    # of the sessions that tests let die, in seconds of the store's clock: much longer than a test may stand still
    ttl = 3600.0
    rounds = 10  # of each race

    @abstractmethod
    def open(self) -> Store:
        """Another connection to the store."""

    @abstractmethod
    def tick(self, seconds: float) -> None:
        """Move the store's clock on."""

    @abstractmethod
    def expire(self, store: Store, session: str) -> None:
        """Let that session of that connection die, as a paused or killed worker's does; `store` stays usable, as a
        late worker.

        Where sessions are rows: move the clock on in steps past the ttl, while another connection calls reap() at each,
        until it answers the name. Sessions with a longer ttl live on.
        """

    @abstractmethod
    def outage(self, seconds: float) -> None:
        """Nobody can reach the store for so long, by its own clock; then it is back, and the connections are as
        after such an outage.
        """

    @abstractmethod
    def lose_answer(self, store: Store) -> AbstractContextManager[Any]:
        """Within it the next commit of that connection is really written and its answer is lost; the connection is
        usable afterwards.
        """

    def foreign_lock(self, ref: Ref) -> None:
        """Somebody who is not Waybill holds the record."""
        raise NotImplementedError

    def foreign_unlock(self, ref: Ref) -> None:
        """The foreigner lets go, having changed nothing."""
        raise NotImplementedError

    def strand(self, ref: Ref, reason: str) -> bool:
        """Park the record by hand, past all verbs, on a key that is free ("key NAME") or a mark that is off ("mark
        NAME").

        False, with nothing done: there is no way to do so.
        """
        return False

    def race(self, *calls: Callable[[], Any]) -> list[Any]:
        """Run the calls at the same time, each on a connection of its own; their answers in order, a refusal as the
        error itself.
        """
        return race_in_threads(*calls)

    def close(self) -> None:  # noqa: B027 - nothing to do is a fair answer
        """Close all connections that were opened, and remove the store."""


def race_in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Start the calls together, one thread each. Errors other than refusals are raised here."""
    answers: list[Any] = [None] * len(calls)
    line = threading.Barrier(len(calls))

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            line.wait(120)
            answers[place] = call()
        except BaseException as error:  # noqa: BLE001 - carried to the test's own thread, below
            answers[place] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        if thread.is_alive():
            raise AssertionError("A call did not come back within two minutes: a deadlock, or a wait without a limit.")
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, StoreError):
            raise answer
    return answers
