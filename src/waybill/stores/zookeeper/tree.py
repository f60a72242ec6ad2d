"""The tree as one connection of ours knows it: the link, and what it may remember of the tree between two calls.

Nothing here is needed to be right. Folders that were seen need not be made again; a record that we hold need not be
read again before it is moved; both are found out when a transaction is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from waybill.record import Ref
from waybill.stores.zookeeper.layout import MERRITT_FOLDERS, WAYBILL_FOLDERS
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.plan import parent_of
from waybill.stores.zookeeper.seen import Seen
from waybill.stores.zookeeper.wire import NO_NODE, NODE_EXISTS, Failure, Op

_MOST_FOLDERS = 200_000


class Tree:
    def __init__(self, link: Link, clock: Callable[[], float], max_names: int) -> None:
        self.link = link
        self.now = clock
        self.max_names = max_names
        self.folders: set[str] = {*MERRITT_FOLDERS, *WAYBILL_FOLDERS}
        self.held: dict[Ref, Seen] = {}  # what sessions of this connection hold
        self.turns: dict[str, int] = {}  # kind -> the highest turn that was handed out
        self.rings: Callable[[], None] = lambda: None  # something may have become claimable

    def know(self, folder: str) -> None:
        if len(self.folders) > _MOST_FOLDERS:
            self.folders = {*MERRITT_FOLDERS, *WAYBILL_FOLDERS}
        self.folders.add(folder)

    def write(self, ops: Sequence[Op]) -> tuple[Op, int] | None:
        """One transaction with folders that may be there already; None, or the refused operation and the error."""
        while True:
            wanted = [op for op in ops if op.means != "folder" or op.path not in self.folders]
            outcome = self.link.write(wanted)
            if not isinstance(outcome, Failure):
                self.learn(wanted)
                return None
            refused = wanted[outcome.place]
            if refused.means == "folder" and outcome.code == NODE_EXISTS:
                self.know(refused.path)
                continue
            if outcome.code == NO_NODE:
                self.doubt(refused.path)
            return refused, outcome.code

    def learn(self, written: Sequence[Op]) -> None:
        """Folders that were made or taken away."""
        for op in written:
            if op.creates and op.means == "folder":
                self.know(op.path)
            elif op.deletes:
                self.folders.discard(op.path)

    def doubt(self, path: str) -> None:
        """Something in the way to this node is not there."""
        while path.count("/") > 1:
            path = parent_of(path)
            self.folders.discard(path)
