"""Writing a version: from a deposit to a version at rest, so that a crash anywhere leaves the version before it, or
this one.

    1  the root inventory is read; a request that made a version before is answered with it
    2  content, each under its SHA-256:          <object>/v2/content/<sha256>, read back and compared
    3  the version's manifest, a file like any:  <object>/v2/content/<sha256>
    4  <object>/v2/inventory.json and its sidecar; for a new object its declaration
    5  <object>/inventory.json                   **the version is there**, or the write was Late
    6  <object>/inventory.json.sha512            and what an earlier try left behind is removed

What is small is written together: a new object as one folder, which is there at once with all that is in it, where the
object store can do that; else 2 to 4 in one go, and 5 and 6 in another, so that the folders are synced once and not for
each file.

Content that is named by its digest cannot be confused with another try's: what is there and reads back right is used,
and two writers of the same version never overwrite each other's bytes. Nothing of another's is removed before step 5
has succeeded, for until then it may be the other one who wins. A crash before 5 leaves content that nobody refers to, a
crash after 5 an old sidecar: the next write, or `recover`, removes the one and writes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.contents import Contents
from waybill.apps.ingest.storage.healing import heal
from waybill.apps.ingest.storage.holding import (
    MOST_TOGETHER,
    SMALL,
    Held,
    Write,
    etag_of,
    load,
    put_all,
    put_as_folder,
    stored_in,
)
from waybill.apps.ingest.storage.inventories import Written, declaration
from waybill.apps.ingest.storage.ocfl_inventory import Algorithm, Content, NewVersion
from waybill.apps.ingest.storage.planning import Wanted, entries, planned
from waybill.apps.ingest.storage.protocol import MANIFEST, Deposit, Late, Sources, Stored
from waybill.apps.ingest.storage.recovery import agrees_at_a_glance, confirm, mend, remove_below
from waybill.manifests import Header, Writer
from waybill.objects import Objects, can_put_whole


class VersionWriter:
    """One write of one object."""

    def __init__(
        self,
        objects: Objects,
        root: str,
        sources: Sources,
        *,
        algorithm: Algorithm,
        threads: int,
        now: Callable[[], datetime],
        check: Callable[[], None],
    ) -> None:
        self._objects, self._root, self._sources = objects, root, sources
        self._algorithm, self._threads, self._now, self._check = algorithm, threads, now, check

    @property
    def _contents(self) -> Contents:
        """By the algorithm of the object, which is known once its inventory is read."""
        return Contents(
            self._objects,
            self._root,
            self._sources,
            algorithm=self._algorithm,
            threads=self._threads,
            check=self._check,
        )

    def write(self, deposit: Deposit) -> Stored:
        stored = self._write(deposit, whole=True)
        if stored is None:  # another was first, or it cannot be done so here: what is there is looked at anew
            stored = self._write(deposit, whole=False)
        assert stored is not None
        return stored

    def _write(self, deposit: Deposit, *, whole: bool) -> Stored | None:
        """`whole`: a new object that is small may be written as one folder; None if that could not be, and nothing
        was written.
        """
        held = load(self._objects, self._root)
        if held is not None:
            for version in held.inventory.described():
                if version.request == deposit.request:
                    # The version is there; what should agree with it may not, and the last of it may not be durable.
                    mend(self._objects, held)
                    confirm(self._objects, held)
                    return stored_in(self._objects, held, version.number)
            if not agrees_at_a_glance(self._objects, held):
                mend(self._objects, held)
            self._algorithm = held.inventory.algorithm
        files = planned(self._objects, deposit, held)
        number = held.inventory.number + 1 if held else 1
        folder = f"{self._root}/v{number}"
        left = next(iter(self._objects.list(folder, limit=1)), None) is not None  # by a try that was interrupted
        if (
            whole
            and held is None
            and not left
            and can_put_whole(self._objects)
            and _are_small(files, _missing(files, {}))
        ):
            return self._write_whole(deposit, files)
        # Which version of them a try may replace is settled now: a writer that was overtaken must not replace what came
        # later.
        main, beside = self._names()
        etags = {name: etag_of(self._objects, f"{folder}/{name}") if left else None for name in (main, beside)}
        etags["above"] = etag_of(self._objects, f"{self._root}/{beside}") if held else None

        contents = {c.sha256: c for c in held.inventory.contents() if c.sha256} if held else {}
        if held is not None and deposit.damaged:
            heal(
                self._objects,
                self._root,
                self._sources,
                contents=held.inventory.contents(),
                damaged=set(deposit.damaged),
                files=files,
                check=self._check,
            )
        missing = _missing(files, contents)
        writes: list[Write] = []  # what is small is written together, in the end
        if not left and _are_small(files, missing):
            new = self._contents.take_all(files, missing, number, writes)
        else:
            new = self._contents.keep_all(files, missing, f"v{number}/content", left)
        contents.update((content.sha256, content) for content in new)
        made, stored = self._describe(deposit, files, contents, number, new, writes)
        try:
            self._publish(held, made, etags, writes)
        except Late:
            # Published by this write, whose answer was lost, or by another run of the same request: that one's manifest
            # need not be ours, and what lies beside it is not ours to remove.
            if (there := self._published(number, deposit.request)) is None:
                raise
            return there
        if left:
            mine = {content.place.removeprefix(f"v{number}/") for content in new}
            remove_below(self._objects, folder, lambda name, info: name.startswith("content/") and name not in mine)
        return stored

    def _write_whole(self, deposit: Deposit, files: dict[str, Wanted]) -> Stored | None:
        """A new object, at once; None if it cannot be written so, and nothing was."""
        writes: list[Write] = []
        new = self._contents.take_all(files, _missing(files, {}), 1, writes)
        made, stored = self._describe(deposit, files, {content.sha256: content for content in new}, 1, new, writes)
        inventory = Written.of(None, made)
        writes += [*inventory.at(f"{self._root}/v1"), declaration(self._root), *inventory.at(self._root)]
        self._check()
        return stored if put_as_folder(self._objects, self._root, writes) else None

    def _describe(
        self,
        deposit: Deposit,
        files: dict[str, Wanted],
        contents: dict[bytes, Content],
        number: int,
        new: list[Content],
        writes: list[Write],
    ) -> tuple[NewVersion, Stored]:
        """The version, its manifest added to what is new and to what is written; and what is answered once it is
        there.
        """
        created = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        manifest, size = self._keep_manifest(deposit, files, contents, number, created, writes)
        new.append(manifest)
        states = {path: contents[wanted.sha256].digest for path, wanted in files.items()}
        states[MANIFEST] = manifest.digest
        made = NewVersion(
            deposit.object,
            number,
            self._algorithm,
            created,
            deposit.message,
            deposit.request,
            deposit.user,
            deposit.address,
            new,
            states,
        )
        return made, Stored(
            object=deposit.object,
            version=number,
            request=deposit.request,
            created=created,
            place=manifest.place,
            sha256=manifest.sha256.hex(),
            size=size,
        )

    def _keep_manifest(
        self,
        deposit: Deposit,
        files: dict[str, Wanted],
        contents: dict[bytes, Content],
        number: int,
        created: str,
        writes: list[Write],
    ) -> tuple[Content, int]:
        about = {
            "object": deposit.object,
            "version": number,
            "request": deposit.request,
            "created": created,
            "mode": deposit.mode,
            "about": dict(deposit.about),
        }
        places = {sha256: content.place for sha256, content in contents.items()}

        def written() -> Iterable[bytes]:
            return Writer(Header(ordered=True, about=about)).portions(entries(files, places))

        size, sha256, digest = ocfl.digest_of(written(), self._algorithm)
        place = f"v{number}/content/{sha256}"
        writes.append(Write(f"{self._root}/{place}", written, size, sha256))
        return Content(place, bytes.fromhex(digest), bytes.fromhex(sha256)), size

    def _names(self) -> tuple[str, str]:
        return ocfl.FILE, ocfl.sidecar(self._algorithm)

    def _publish(self, held: Held | None, new: NewVersion, etags: dict[str, str | None], writes: list[Write]) -> None:
        inventory = Written.of(held.inventory if held else None, new)
        main, beside = self._names()
        writes += inventory.at(f"{self._root}/v{new.number}", etags[main], etags[beside])
        if held is None:
            writes.append(declaration(self._root))
        put_all(self._objects, writes)
        self._check()
        put_all(self._objects, inventory.at(self._root, held.etag if held else None, etags["above"]))

    def _published(self, number: int, request: str) -> Stored | None:
        """The version that the request made, if it made one; what was written beside somebody's newest is theirs
        again.
        """
        held = load(self._objects, self._root)
        if held is None:
            return None
        if held.inventory.number == number:
            mend(self._objects, held)
        if not any((version.number, version.request) == (number, request) for version in held.inventory.described()):
            return None
        confirm(self._objects, held)
        return stored_in(self._objects, held, number)


def _are_small(files: dict[str, Wanted], missing: dict[bytes, str]) -> bool:
    """Whether all of it may be held in memory, and written together."""
    return len(missing) < MOST_TOGETHER // 2 and sum(files[path].size for path in missing.values()) < SMALL // 2


def _missing(files: dict[str, Wanted], known: dict[bytes, Content]) -> dict[bytes, str]:
    """Content that the object does not have yet, in the order of the digests, each with the path of one file that
    has it.
    """
    missing: dict[bytes, str] = {}
    for path, wanted in files.items():
        if wanted.sha256 not in known:
            missing.setdefault(wanted.sha256, path)
    return dict(sorted(missing.items()))
