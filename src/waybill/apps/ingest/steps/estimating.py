"""Estimating: each file's server is asked for its size, several at a time, so that the disk and the queue know what
comes.

What a server does not say, or cannot be asked (404, silence), is unknown, and so is then the whole: this state never
fails, it is Downloading that will say what cannot be had. `space_needed` is -1 for unknown. A container will need its
size twice at least: packed, and unpacked beside it.

A job that is large, or may be, becomes less urgent. That is reckoned from its first priority, which `files` keeps once
it was changed: a second estimate does not add twice, and what an operator has set since counts as first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from waybill.apps.ingest import lists, priority
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.lists import BadList
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.steps import payload
from waybill.apps.ingest.steps.pending import listed
from waybill.apps.ingest.steps.refusal import Trouble, Unfit
from waybill.apps.ingest.submission import Type
from waybill.objects import ObjectsError
from waybill.record import Record
from waybill.step import Context, Done, Outcome
from waybill.transfer import Fetch

UNKNOWN = -1
PATIENCE = 10  # times the time-out of one request, after which the sizes of the rest are unknown


def estimating(job: Record, ctx: Context) -> Outcome:
    docs: dict[str, Any] = {}
    said = ""
    try:
        if "files" not in job.docs:  # it was led here by another service
            docs["files"] = listed(job, ctx)
        files = docs.get("files") or job.docs["files"]
        needed = _needed(ctx, files)
    except (Unfit, Trouble, ObjectsError, BadList, msgspec.DecodeError) as error:
        needed, said = UNKNOWN, f"Its size is not known: {error}"
    docs["space_needed"] = needed
    urgency, changed = weighed(
        job, docs.get("files", job.docs.get("files")), needed, outfit_of(ctx).settings.fetch.large
    )
    return Done(docs | changed, message=said, priority=urgency)


def _needed(ctx: Context, files: dict[str, Any]) -> int:
    total, unknown = 0, False
    for size in _sizes(ctx, files):
        total, unknown = total + (size or 0), unknown or size is None
    if unknown:
        return UNKNOWN
    return known(2 * total if files.get("type") == Type.CONTAINER else total)


def known(total: int) -> int:
    """As it is written: nothing at all is one byte, since 0 is read as "unknown"."""
    return max(1, total)


def _sizes(ctx: Context, files: dict[str, Any]) -> Iterator[int | None]:
    outfit = outfit_of(ctx)
    limits = outfit.settings.fetch
    declared: dict[str, int | None] = {}  # no more than a manifest has
    asked: list[Fetch] = []
    for row in lists.each(ctx.objects, files, Row):
        if payload.is_upload(row.url):
            yield ctx.objects.head(row.url.removeprefix(payload.SCHEME)).size
        else:
            declared[row.name] = row.size
            asked.append(Fetch(row.url, row.name))
    until = ctx.now() + PATIENCE * limits.timeout
    offers = outfit.look(
        asked,
        parallel=limits.parallel,
        timeout=limits.timeout,
        redirects=limits.redirects,
        reach=outfit.reach,
        stop=lambda: ctx.stop or ctx.now() > until,
        connections=outfit.connections,
    )
    for offer in offers if asked else ():
        ctx.check()
        yield declared[offer.name] if offer.size is None else offer.size


def weighed(job: Record, files: dict[str, Any] | None, needed: int, large: int) -> tuple[int | None, dict[str, Any]]:
    """The priority, if it changes, and what must be remembered of it."""
    if files is None:
        return None, {}  # nothing can be remembered, so nothing is added
    kept = files.get("priority") or {}
    first = kept["first"] if kept.get("last") == job.priority else job.priority
    last = priority.weighed(first, needed, large)
    if last == job.priority:
        return None, {}
    return last, {"files": {**files, "priority": {"first": first, "last": last}}}
