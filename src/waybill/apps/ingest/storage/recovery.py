"""Recovery: what an interrupted write left is finished or removed, so that a validator finds nothing to say.

    the root inventory is there        a version is at rest. Whatever should agree with it and does not is written again: its sidecar, the
                                       inventory and sidecar of the newest version, the declaration. Content that no version refers to,
                                       and versions after the newest, are removed.
    it is not there                    there is no object, and everything below its root is removed.
    it is there and not to be believed nothing is touched.

Only names that a write of ours can have made are removed. What a person or another program put into an object stays,
for `verify` to name. A directory also keeps empty folders of a write that died before its first file; they go as well.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.holding import DECLARATION, Held, etag_of, load, put_checked, sidecar_data, sidecar_of
from waybill.apps.ingest.storage.protocol import Late, Recovered, Unsound
from waybill.objects import NotFound, ObjectInfo, Objects

PORTION = 1000  # names that are looked at before some are removed

_CONTENT = re.compile(r"v(?P<number>[1-9][0-9]*)/content/(?P<sha256>[0-9a-f]{64})")
_OURS = re.compile(r"v(?P<number>[1-9][0-9]*)/(content/[0-9a-f]{64}|inventory\.json(\.sha256|\.sha512)?)")
_OF_A_NEW_OBJECT = {DECLARATION[0], ocfl.sidecar("sha256"), ocfl.sidecar("sha512")}
_PROBE = "0" * 64


def recover(
    objects: Objects, root: str, *, old: Callable[[ObjectInfo], bool] = lambda info: True, folders: bool = True
) -> Recovered:
    """Recover the object at this root. `old` says which leftovers may go; `folders` is for directories."""
    held = load(objects, root)
    if held is None:
        removed = remove_below(
            objects, root, lambda name, info: old(info) and bool(_OURS.fullmatch(name) or name in _OF_A_NEW_OBJECT)
        )
        if folders:
            _drop_folders(objects, f"{root}/v1/content")
        return Recovered(removed=removed)
    mended = mend(objects, held)
    places = {place for places in held.inventory.manifest.values() for place in places}
    head = held.inventory.number

    def needless(name: str, info: ObjectInfo) -> bool:
        ours = _OURS.fullmatch(name)
        if ours is None or name in places or not old(info):
            return False
        return int(ours["number"]) > head or _CONTENT.fullmatch(name) is not None

    removed = remove_below(objects, root, needless)
    if folders:
        _drop_folders(objects, f"{root}/v{head + 1}/content")
    return Recovered(mended=mended, removed=removed)


def mend(objects: Objects, held: Held) -> tuple[str, ...]:
    """Let everything agree with the root inventory; what had to be written again."""
    mended: list[str] = []
    root, algorithm = held.root, held.inventory.algorithm
    folder = f"{root}/{held.inventory.head}"
    if not _agrees(objects, f"{folder}/{ocfl.FILE}", held):
        _check_present(objects, held)
        with objects.get(f"{root}/{ocfl.FILE}") as body:
            objects.put(f"{folder}/{ocfl.FILE}", body, size=held.size)
        if not _agrees(objects, f"{folder}/{ocfl.FILE}", held):
            raise Unsound(f"{folder}/{ocfl.FILE} was written again and still differs from the one above it.")
        mended.append(f"{held.inventory.head}/{ocfl.FILE}")
    side, name = sidecar_data(held.digest), ocfl.sidecar(algorithm)
    for place, at in ((f"{held.inventory.head}/{name}", folder), (name, root)):
        if sidecar_of(objects, at, algorithm) != held.digest:
            _check_present(objects, held)
            put_checked(objects, f"{at}/{name}", lambda: [side], len(side), hashlib.sha256(side).hexdigest())
            mended.append(place)
    name, words = DECLARATION
    try:
        objects.head(f"{root}/{name}")
    except NotFound:
        put_checked(objects, f"{root}/{name}", lambda: [words], len(words), hashlib.sha256(words).hexdigest())
        mended.append(name)
    return tuple(mended)


def confirm(objects: Objects, held: Held) -> None:
    """Make a version durable that somebody else has written and perhaps not synced, before its writer died.

    Its sidecar is written again as it is: whoever puts an object makes the folders above it durable, as far as he does
    not know that they are. What lies inside the version was synced before the version was there.
    """
    _check_present(objects, held)
    side = sidecar_data(held.digest)
    name = f"{held.root}/{ocfl.sidecar(held.inventory.algorithm)}"
    put_checked(objects, name, lambda: [side], len(side), hashlib.sha256(side).hexdigest())


def _check_present(objects: Objects, held: Held) -> None:
    """What does not agree with an inventory that was just replaced agrees with the new one: whoever writes it is not
    to be disturbed.
    """
    if etag_of(objects, f"{held.root}/{ocfl.FILE}") != held.etag:
        raise Late(f"{held.root}/{ocfl.FILE} was written by someone else meanwhile: what is beside it is theirs.")


def agrees_at_a_glance(objects: Objects, held: Held) -> bool:
    """Whether the sidecars say what they should: cheap, and enough before a write, which replaces what else could be
    wrong.
    """
    algorithm = held.inventory.algorithm
    return all(
        sidecar_of(objects, folder, algorithm) == held.digest
        for folder in (held.root, f"{held.root}/{held.inventory.head}")
    )


def remove_below(objects: Objects, root: str, needless: Callable[[str, ObjectInfo], bool]) -> tuple[str, ...]:
    """Remove the needless below a root; the names of the first thousand, relative to it."""
    removed: list[str] = []
    after = ""
    while True:
        page = list(itertools.islice(objects.list(root, after=after), PORTION))
        for info in page:
            name = info.name.removeprefix(f"{root}/")
            if needless(name, info):
                objects.delete(info.name)
                if len(removed) < PORTION:
                    removed.append(name)
        if len(page) < PORTION:
            return tuple(removed)
        after = page[-1].name


def _agrees(objects: Objects, name: str, held: Held) -> bool:
    try:
        with objects.get(name) as body:
            size, _, digest = ocfl.digest_of(body, held.inventory.algorithm)
    except NotFound:
        return False
    return (size, digest) == (held.size, held.digest)


def _drop_folders(objects: Objects, folder: str) -> None:
    """Empty folders show in no listing.

    But whoever deletes an object of a folder also removes the folders that become empty.
    """
    objects.put(f"{folder}/{_PROBE}", b"")
    objects.delete(f"{folder}/{_PROBE}")
