"""What the author of a driver gives to the suite: a fresh store, its clock, and ways to make it fail.

    open ... tick ... expire_session | simulate_outage | lose_answer ... race ... close

Subclass `StoreHarness`, implement the five abstract methods, and change the names below that the driver's layout fixes. A
feature that a store may lack is declared in the harness and never guessed; where it is missing, the suite tests that the
store refuses or does the lesser thing.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from waybill.record import Ref, Store, StoreError


class StoreHarness(ABC):
    """One fresh, empty store for one test.

    What one connection commits, the next call of any other connection must see: a driver that lists its queues ahead of
    claims keeps no such lists here. The suite opens at most one session at a time on a connection.
    """

    kind = "parcel"  # what most tests are about; its records may have a parent
    id_prefix = "pcl"  # of minted ids: "pcl*"
    parent_kind = "crate"
    parent_id_prefix = "crt"
    states: Sequence[str] = ("Packing", "Weighing", "Sending")  # of `kind`: three work states
    rest_state = "Shelved"  # of `kind`: not worked on, and open
    end_state = "Sent"  # of `kind`: closed
    parent_states: Sequence[str] = ("Filling", "Sealing")  # of `parent_kind`: two work states
    parent_end_state = "Shipped"  # of `parent_kind`: closed
    # three documents that `kind` may have, for any JSON
    document_names: Sequence[str] = ("label", "contents", "receipt")
    required_documents: Mapping[str, bytes] = {}  # documents that each new record of `kind` must have, by name
    parent_required_documents: Mapping[str, bytes] = {}  # the same for `parent_kind`
    lock_family = "ark"  # of locks: "ark/NAME"
    hold_family = "collections"  # of holds: "collections/NAME"

    needs_parent = False  # a record of `kind` cannot be without a parent
    accepts_ids = True  # a caller may choose the ids of `kind`; otherwise all are minted and a given id is refused
    has_queue_positions = (
        True  # records have a queue position; otherwise the order inside a priority is that of creation
    )
    stores_open = True  # `open` is stored as it is written; otherwise it follows from the state
    allows_many_hosts = (
        True  # workers of several hosts share the store; otherwise a second host is refused with BadStore
    )
    # `check` names what block_record blocks; otherwise maintain_indexes alone unblocks it, as where other programs remove
    # locks and holds too
    check_finds_stale_blocks = True
    has_foreign_locks = (
        False  # other programs lock records too; then take_foreign_lock and release_foreign_lock are given
    )

    has_shared_locks = True  # locks may be shared and counted; otherwise a record that asks for one is refused

    # of the sessions that tests let expire, in seconds of the store's clock: much longer than a test may be paused
    ttl = 3600.0
    rounds = 10  # of each race

    @abstractmethod
    def open(self) -> Store:
        """Another connection to the store."""

    @abstractmethod
    def tick(self, seconds: float) -> None:
        """Advance the store's clock."""

    @abstractmethod
    def expire_session(self, store: Store, session: str) -> None:
        """Let that session of that connection expire, as the session of a paused or killed worker does; `store` stays
        usable, as a late worker's does.

        Where sessions are rows: advance the clock in steps past the ttl, while another connection calls reap_sessions()
        after each, until it returns the name. Sessions with a longer ttl continue.
        """

    @abstractmethod
    def simulate_outage(self, seconds: float) -> None:
        """The store is unavailable for so long, by its own clock; then it is back, and the connections are as after such
        an outage.
        """

    @abstractmethod
    def lose_answer(self, store: Store) -> AbstractContextManager[Any]:
        """A context in which the next commit of that connection is written and its answer is lost; the connection is
        usable afterwards.
        """

    def take_foreign_lock(self, ref: Ref) -> None:
        """Another program locks the record."""
        raise NotImplementedError

    def release_foreign_lock(self, ref: Ref) -> None:
        """The other program unlocks the record, having changed nothing."""
        raise NotImplementedError

    def block_record(self, ref: Ref, blocked_by: str) -> bool:
        """Block the record directly in the store's data, by a lock that no record owns ("lock NAME") or a hold that is not
        set ("hold NAME").

        Returns False, and does nothing, where there is no way to do so.
        """
        return False

    def race(self, *calls: Callable[[], Any]) -> list[Any]:
        """Run the calls at the same time, each on a connection of its own; their answers in order, a refusal as the
        error itself.
        """
        return race_in_threads(*calls)

    def close(self) -> None:  # noqa: B027 - a harness may have nothing to close
        """Close all connections that were opened, and remove the store."""


def race_in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Start the calls together, one thread each. Errors other than refusals are raised here."""
    answers: list[Any] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(index: int, call: Callable[[], Any]) -> None:
        try:
            start.wait(120)
            answers[index] = call()
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread, below
            answers[index] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        if thread.is_alive():
            raise AssertionError("A call did not return within two minutes: a deadlock, or a wait without a limit.")
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, StoreError):
            raise answer
    return answers
