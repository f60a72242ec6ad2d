"""get, find, tally: readings of many records, page by page in the order of their creation."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.record import MAX_PAGE, NotFound, Page, Record, Ref
from waybill.stores.zookeeper import places
from waybill.stores.zookeeper.kin import Kin
from waybill.stores.zookeeper.layout import Layout, layout_of
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.names import plain, quote
from waybill.stores.zookeeper.seen import Seen, look, look_one
from waybill.stores.zookeeper.wire import names


class Finder:
    def __init__(self, link: Link, kin: Kin) -> None:
        self._link = link
        self._kin = kin

    def see(self, ref: Ref, docs: bool) -> Seen:
        """The record's nodes; NotFound only when the leader does not know it either."""
        if not ref.id:  # no node has an empty name
            raise NotFound(f"There is no {ref.kind} without an id.")
        seen = look_one(self._link, ref, docs)
        if seen is None:
            self._link.sync()
            seen = look_one(self._link, ref, docs)
        if seen is None:
            raise NotFound(f"There is no {ref}.")
        return seen

    def requested(self, kind: str, request: str) -> Seen:
        """By the note of the request; a batch also by its batchID, which may be another service's."""
        paths = [places.request(kind, request)] if request else []
        if kind == "batch" and request and "/" not in request and request not in (".", ".."):
            paths.append(f"/batch-uuids/{request}")
        for look_again in (False, True):
            if look_again:
                self._link.sync()  # what another connection made a moment ago may not have come to our server yet
            for node in self._link.nodes(paths) if paths else ():
                id = node.data.decode(errors="replace") if node is not None else ""
                if layout_of(kind).id_of(quote(id)):  # others may have written anything
                    seen = look_one(self._link, Ref(kind, id), docs=True)
                    if seen is not None:
                        return seen
        raise NotFound(f"No {kind} was made by the request {request}.")

    def find(
        self,
        kind: str,
        state: str | None,
        parent: Ref | None,
        owner: str | None,
        after: int | None,
        newest: bool,
        limit: int,
        docs: bool,
    ) -> Page:
        layout, limit = layout_of(kind), max(1, min(limit, MAX_PAGE))
        if parent is not None:
            order = self._kin.children(kind, parent)
        elif owner is not None:
            order = self._owned(kind, owner)
        elif state is not None:
            order = self._queued(layout, [state])
        else:
            order = self._all(layout)
        if after is not None:
            order = [each for each in order if (each[0] < after if newest else each[0] > after)]
        if newest:
            order.reverse()
        records: list[Record] = []
        place = 0
        # one more than asked for tells whether there is another page
        while place < len(order) and len(records) <= limit:
            part = order[place : place + limit + 1 - len(records)]
            place += len(part)
            for seen in look(self._link, [Ref(kind, id) for _, id in part], docs):
                if seen is not None and (state is None or seen.state == state):
                    records.append(seen.record())
        return Page(records[:limit], records[limit - 1].seq if len(records) > limit else None)

    def tally(self, kind: str) -> dict[str, int]:
        layout = layout_of(kind)
        folders = sorted(self._link.names(layout.queue))
        nodes = self._link.nodes([f"{layout.queue}/{folder}" for folder in folders]) if folders else []
        counts = {
            layout.state_of(folder): node.children
            for folder, node in zip(folders, nodes, strict=True)
            if node is not None
        }
        return {state: count for state, count in counts.items() if state is not None and count}

    def _all(self, layout: Layout) -> list[tuple[int, str]]:
        """(seq, id) of all records of a kind.

        Their homes are listed in one reading, so none is missed that moves meanwhile.
        """
        if layout.prefix:
            return sorted((layout.number(name), name) for name in self._link.names(layout.homes) if layout.id_of(name))
        homes, folders = self._link.read([names(layout.homes), names(layout.queue)])
        ids = [plain(name) for name in homes or ()]
        known = {id: seq for seq, id in self._queued(layout, [plain(folder) for folder in folders or ()])}
        missing = [id for id in ids if id not in known]
        known.update(
            (seen.ref.id, seen.seq)
            for seen in look(self._link, [Ref(layout.kind, id) for id in missing])
            if seen is not None
        )
        return sorted((known[id], id) for id in ids if id in known)

    def _queued(self, layout: Layout, states: Iterable[str]) -> list[tuple[int, str]]:
        listed = self._link.read([names(layout.folder(state)) for state in states])
        entries = (layout.parse(name) for found in listed for name in found or ())
        return sorted({(entry.seq, entry.id) for entry in entries if entry is not None})

    def _owned(self, kind: str, owner: str) -> list[tuple[int, str]]:
        if not owner:
            return []
        pairs = (name.partition("~") for name in self._link.names(places.owner_folder(owner, kind)))
        return sorted((int(seq), plain(id)) for seq, _, id in pairs)
