"""A small demonstration of ingest: a collection, a profile, and deposits that need no network. Loaded only with
`--demo`.

    a photograph        one file, stored as it is
    a field notebook    a zip: the files of one object
    a parcel of maps    a bag, which is validated
    a damaged scan      its digest is wrong, so it fails for good and its batch is reported as failed
    an atlas            its collection is on hold until it is released

Loading it twice creates nothing twice: records that exist already, in whatever state, stay as they are.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from waybill.apps.ingest import service
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.submission import Submission
from waybill.engine import Engine
from waybill.record import RecordNotFound

if TYPE_CHECKING:
    from waybill.environment import Environment

DEMO_USER = "demo"
OWNER = "ark:/99999/fk4demoowner"
COLLECTIONS = {"demo": "ark:/99999/fk4demo", "atlases": "ark:/99999/fk4atlases"}
PROFILES = {"demo_content": "demo", "demo_atlases": "atlases"}


def load_demo(environment: Environment, engine: Engine) -> None:
    resources = cast(IngestResources, environment.resources_of("ingest"))
    if not _has_record(engine, "profile", "demo_content"):
        _create_profiles(engine)
    for submission, data in _build_deposits():
        try:
            engine.store.get_by_idempotency_key("batch", submission.batch_id)
        except RecordNotFound:
            service.submit_deposit(engine, resources, submission, [data], who=DEMO_USER, why="the demonstration")


def _create_profiles(engine: Engine) -> None:
    for mnemonic, ark in COLLECTIONS.items():
        service.COLLECTIONS.put(
            engine, {"mnemonic": mnemonic, "ark": ark, "name": f"Demonstration: {mnemonic}"}, who=DEMO_USER
        )
    service.hold_collection(engine, "atlases", who=DEMO_USER, why="to show what a hold does")
    for name, mnemonic in PROFILES.items():
        body = {
            "name": name,
            "owner": OWNER,
            "collections": [COLLECTIONS[mnemonic]],
            "description": "For the demonstration.",
        }
        service.PROFILES.put(engine, body, who=DEMO_USER)


def _has_record(engine: Engine, kind: str, id: str) -> bool:
    try:
        engine.store.get(kind, id)
    except RecordNotFound:
        return False
    return True


def _build_deposits() -> list[tuple[Submission, bytes]]:
    photograph = b"P2\n4 2\n9\n0 3 6 9\n9 6 3 0\n"  # a very small one
    notebook = {
        "page-1.txt": b"Left at dawn.\n",
        "page-2.txt": b"Rain; one husky, one chicken.\n",
        "index.txt": b"page-1\npage-2\n",
    }
    return [
        (
            _build_submission(
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
            _build_submission(
                "notebook",
                "notebook.zip",
                title="Field notebook",
                creator="Jane Doe",
                date="1911",
                local="demo-notebook",
            ),
            _build_zip(notebook),
        ),
        (
            _build_submission("maps", "maps.zip", title="Maps of the bay", local="demo-maps"),
            _build_zip(_build_bag({"bay.txt": b"~~~~\n", "hills.txt": b"^^^^\n"})),
        ),
        (
            _build_submission(
                "scan", "scan.txt", title="A damaged scan", digest=hashlib.sha256(b"what it was").hexdigest()
            ),
            b"what came\n",
        ),
        (
            _build_submission("atlas", "atlas.txt", profile="demo_atlases", title="An atlas", local="demo-atlas"),
            b"Here be dragons.\n",
        ),
    ]


def _build_submission(
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
        submitter=DEMO_USER,
    )


def _build_bag(files: Mapping[str, bytes]) -> dict[str, bytes]:
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  data/{name}\n" for name, data in files.items())
    return {
        "bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "manifest-sha256.txt": lines.encode(),
        **{f"data/{name}": data for name, data in files.items()},
    }


def _build_zip(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without the time of packing: the same bytes each time
    return packed.getvalue()
