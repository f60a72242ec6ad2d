"""Contents: what the payload of a batch is, and the rows of one that lists objects.

One that lists objects (a manifest of manifests, of containers, of single files) is fetched and read strictly; any other
is one object.
"""

from __future__ import annotations

from waybill.apps.ingest.checkm import LIMIT, Kind, Manifest, glance, read
from waybill.apps.ingest.steps import payload
from waybill.apps.ingest.submission import Submission, Type
from waybill.step import Context

_KINDS = {Type.MANIFESTS: Kind.MANIFESTS, Type.CONTAINERS: Kind.CONTAINERS, Type.FILES: Kind.FILES}
_TYPES = {
    Kind.MANIFESTS: Type.MANIFESTS,
    Kind.CONTAINERS: Type.CONTAINERS,
    Kind.FILES: Type.FILES,
    Kind.OBJECT: Type.OBJECT,
}
_MANIFEST = ".checkm"  # what may be one, of which nobody said what it is
_CONTAINERS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")


def contents(ctx: Context, said: Submission) -> tuple[Type, Manifest | None]:
    """Of which kind it is, and its manifest if it lists objects.

    Unfit, Trouble or BadManifest, if that cannot be told.
    """
    body: bytes | None = None
    kind_or_none = said.type
    if kind_or_none is None and _name(said).endswith(_MANIFEST):
        body = payload.small(ctx, payload.of(said), LIMIT)
        found = glance(body)
        # whose strict reader says what is wrong with it, line by line
        kind_or_none = _TYPES[found] if found else Type.OBJECT
    kind = kind_or_none or (Type.CONTAINER if _name(said).endswith(_CONTAINERS) else Type.FILE)
    if not kind.batch:
        return kind, None
    return kind, read(payload.small(ctx, payload.of(said), LIMIT) if body is None else body, kind=_KINDS[kind])


def _name(said: Submission) -> str:
    return (said.filename or payload.last_of(said.url)).lower()
