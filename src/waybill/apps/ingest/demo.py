"""A small demonstration of ingest: a collection, a profile, and deposits that need no network. Loaded only with
`--demo`.

    a photograph        one file, stored as it is
    a field notebook    a zip: the files of one object
    a parcel of maps    a bag, which is validated
    a damaged scan      its digest is wrong, so it fails for good and its batch is reported as failed
    an atlas            its collection is on hold until somebody releases it

Asked twice, made once: what is there already, also by another name or in another state, stays as people have left it.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from waybill.apps.ingest import service
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.submission import Submission
from waybill.engine import Engine
from waybill.record import NotFound

if TYPE_CHECKING:
    from waybill.depot import Depot

WHO = "demo"
OWNER = "ark:/99999/fk4demoowner"
COLLECTIONS = {"demo": "ark:/99999/fk4demo", "atlases": "ark:/99999/fk4atlases"}
PROFILES = {"demo_content": "demo", "demo_atlases": "atlases"}


def demonstrate(depot: Depot, engine: Engine) -> None:
    outfit = cast(Outfit, depot.outfit("batch"))
    if not _is_there(engine, "profile", "demo_content"):
        _furnish(engine)
    for said, data in _deposits():
        try:
            engine.store.requested("batch", said.batch_id)
        except NotFound:
            service.submit(engine, outfit, said, [data], who=WHO, why="the demonstration")


def _furnish(engine: Engine) -> None:
    for mnemonic, ark in COLLECTIONS.items():
        service.COLLECTIONS.put(
            engine, {"mnemonic": mnemonic, "ark": ark, "name": f"Demonstration: {mnemonic}"}, who=WHO
        )
    service.hold(engine, "atlases", who=WHO, why="to show what a hold does")
    for name, mnemonic in PROFILES.items():
        body = {
            "name": name,
            "owner": OWNER,
            "collections": [COLLECTIONS[mnemonic]],
            "description": "For the demonstration.",
        }
        service.PROFILES.put(engine, body, who=WHO)


def _is_there(engine: Engine, kind: str, id: str) -> bool:
    try:
        engine.store.get(kind, id)
    except NotFound:
        return False
    return True


def _deposits() -> list[tuple[Submission, bytes]]:
    photograph = b"P2\n4 2\n9\n0 3 6 9\n9 6 3 0\n"  # a very small one
    notebook = {
        "page-1.txt": b"Left at dawn.\n",
        "page-2.txt": b"Rain; one husky, one chicken.\n",
        "index.txt": b"page-1\npage-2\n",
    }
    return [
        (
            _said(
                "photograph",
                "husky.pgm",
                title="A husky in the snow",
                creator="T. Seneca",
                date="2009",
                local="demo-husky",
            ),
            photograph,
        ),
        (
            _said(
                "notebook",
                "notebook.zip",
                title="Field notebook",
                creator="Jane Doe",
                date="1911",
                local="demo-notebook",
            ),
            _zip(notebook),
        ),
        (
            _said("maps", "maps.zip", title="Maps of the bay", local="demo-maps"),
            _zip(_bag({"bay.txt": b"~~~~\n", "hills.txt": b"^^^^\n"})),
        ),
        (
            _said("scan", "scan.txt", title="A damaged scan", digest=hashlib.sha256(b"what it was").hexdigest()),
            b"what came\n",
        ),
        (
            _said("atlas", "atlas.txt", profile="demo_atlases", title="An atlas", local="demo-atlas"),
            b"Here be dragons.\n",
        ),
    ]


def _said(
    name: str,
    filename: str,
    *,
    title: str,
    creator: str = "",
    date: str = "",
    local: str = "",
    digest: str = "",
    profile: str = "demo_content",
) -> Submission:
    return Submission(
        profile=profile,
        url="",
        filename=filename,
        title=title,
        creator=creator,
        date=date,
        local_ids=(local,) if local else (),
        digest_type="sha-256" if digest else "",
        digest_value=digest,
        batch_id=f"demo-{name}",
        submitter=WHO,
    )


def _bag(files: Mapping[str, bytes]) -> dict[str, bytes]:
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  data/{name}\n" for name, data in files.items())
    return {
        "bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "manifest-sha256.txt": lines.encode(),
        **{f"data/{name}": data for name, data in files.items()},
    }


def _zip(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without the time of packing: the same bytes each time
    return packed.getvalue()
