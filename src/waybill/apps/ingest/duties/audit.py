"""The audit: content at rest is read again, the longest ago first, and compared with the size and SHA-256 that it
should have.

    some content that is due -> read -> as it should be: noted        otherwise: the admins are told, then it is noted as damaged

The inventory keeps when each content was last read and what was found, so that a round begins where the last one ended,
wherever that ran. What was found is told before it is noted: a crash in between tells it twice, never not at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.storage import Finding as Damage
from waybill.duties import Hand
from waybill.engine import Engine
from waybill.index import Row
from waybill.notify import letter, recipients
from waybill.objects import ObjectsError
from waybill.record import Finding

DAY = 86400.0
MOST_BYTES = 20 * 2**30  # after which a round ends, so that a worker can be stopped and others get their turn
MOST_PATHS = 3  # files that are named for each damage
MOST_TOLD = 100  # damages in one letter

log = logging.getLogger("waybill.ingest")


class Damaged(NamedTuple):
    """Content that is not as it should be, and which files need it."""

    ark: str
    place: str
    words: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        needed = f" It is {', '.join(self.files)}." if self.files else ""
        return f"{self.ark}: {self.words}{needed}"


class Audited(NamedTuple):
    """What a portion came to; `files` 0: nothing was due."""

    files: int = 0
    bytes: int = 0
    damaged: tuple[Damaged, ...] = ()


def audit_some(
    outfit: Outfit,
    engine: Engine,
    *,
    before: float | None = None,
    most: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    who: str = "audit",
) -> Audited:
    """Read some of the content that was not read since `before` (by default: for the days that the settings say)."""
    settings, inventory = outfit.settings.audit, outfit.inventory
    now = engine.store.now()
    due = datetime.fromtimestamp(now - settings.days * DAY if before is None else before, UTC)
    when = datetime.fromtimestamp(now, UTC)
    files, size, bad = 0, 0, list[tuple[Row, Damage]]()
    for row, finding in _read_all(outfit, inventory.to_audit(due, most=settings.portion if most is None else most)):
        files, size = files + 1, size + int(row["size"])
        if finding is None:
            inventory.audited(row, None, when)  # safe to repeat: it says when it was read
        else:
            bad.append((row, finding))
        if stop() or size >= MOST_BYTES:
            break
    damaged = tuple(_describe(outfit, row, finding) for row, finding in bad)
    if damaged:
        _tell(outfit, engine, damaged, [str(row["audited"]) for row, _ in bad], now, who)
    for row, finding in bad:
        inventory.audited(row, finding, when)  # safe to repeat, and after it was told
    return Audited(files, size, damaged)


def _read_all(outfit: Outfit, rows: list[Row]) -> Iterator[tuple[Row, Damage | None]]:
    """Each row with what is wrong with it.

    What cannot be read is tried once more at the end, when the others have shown how things are.
    """
    again: list[Row] = []
    for row in rows:
        try:
            yield row, outfit.storage.check(row["ark"], row["place"], row["size"], row["sha256"])
        except ObjectsError:
            again.append(row)
    for row in again:
        try:
            yield row, outfit.storage.check(row["ark"], row["place"], row["size"], row["sha256"])
        except ObjectsError as error:
            # If nothing can be read, the storage is away, and this raises. If only this cannot, it is damage: a disk
            # that gave up a block.
            next(iter(outfit.objects.list(limit=1)), None)
            yield row, Damage(kind="missing", place=row["place"], words=f"{row['place']} cannot be read: {error}")


def _describe(outfit: Outfit, row: Row, finding: Damage) -> Damaged:
    paths = outfit.inventory.shelf.query("paths_of", ark=row["ark"], place=row["place"], portion=MOST_PATHS)
    return Damaged(
        row["ark"], row["place"], finding.words, tuple(f"v{path['number']} {path['path']}" for path in paths)
    )


def _tell(
    outfit: Outfit, engine: Engine, damaged: tuple[Damaged, ...], before: list[str], now: float, who: str
) -> None:
    for each in damaged:
        log.error("damaged content: %s", each)
    admins = recipients(*outfit.settings.tell.admins)
    if not admins:
        return
    # The same damage, last read at the same time, is the same letter: asked for twice, made once.
    told = "\n".join(f"{each.ark} {each.place} {at}" for each, at in zip(damaged, before, strict=True))
    key = f"audit/{hashlib.sha256(told.encode()).hexdigest()}"
    lines = [str(each) for each in damaged[:MOST_TOLD]]
    rest = f"\n... and {len(damaged) - MOST_TOLD} more" if len(damaged) > MOST_TOLD else ""
    text = (
        "Content at rest was read again and is not as it should be:\n\n"
        + "\n".join(lines)
        + rest
        + "\n\nRestore it from a copy, then audit it again: waybill ingest audit OBJECT"
    )
    count = f"{len(damaged)} files" if len(damaged) > 1 else f"a file of {damaged[0].ark}"
    new = letter(to=admins, subject=f"DAMAGED: {count}", text=text, key=key, at=now)
    engine.submit(dataclasses.replace(new, request=key), who=who)  # safe to repeat: by its request


def known_damage(outfit: Outfit) -> Iterator[Damaged]:
    """What the last audits found and nothing has mended yet."""
    after = ("", "")
    while rows := outfit.inventory.damaged(after=after):
        for row in rows:
            yield Damaged(row["ark"], row["place"], row["result"], tuple(row["files"][:MOST_PATHS]))
        after = (rows[-1]["ark"], rows[-1]["place"])


@dataclass(frozen=True)
class Audit:
    name: str = "ingest-audit"
    doc: str = "Reads content at rest again, some of it in each round, and says what was damaged."
    every: float = 60.0
    per_host: bool = False
    routine: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        outfit: Outfit = hand.outfit("job")
        done = audit_some(outfit, hand.engine, stop=hand.stop, who=hand.who)
        before = hand.memory
        if done.files:
            hand.memory.update(
                files=before.get("files", 0) + done.files,
                bytes=before.get("bytes", 0) + done.bytes,
                damaged=before.get("damaged", 0) + len(done.damaged),
            )
        for each in known_damage(outfit):
            remedy = f"restore it from a copy, then `waybill ingest audit {each.ark}`"
            yield Finding("damaged content", f"{each.ark} {each.place}", str(each), remedy, mendable=False)

    def mend(self, hand: Hand, finding: Finding) -> bool:
        return False  # what bytes they were, only a copy knows
