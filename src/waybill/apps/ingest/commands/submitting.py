"""The command that deposits: a file from this disk, or what a URL leads to, becomes a batch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import wrap_file

from waybill.apps.ingest import service, submission
from waybill.apps.ingest.checkm import glance
from waybill.apps.ingest.commands.counter import opened, outfit, serve
from waybill.apps.ingest.commands.following import follow
from waybill.apps.ingest.submission import DC, Submission, Type
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import FAILED, Misuse
from waybill.rules import Refused

PANEL = "Depositing"
HEAD = 4096  # bytes that tell a manifest
MANIFEST = ".checkm"  # how the name of one ends
LARGE = 8 * 1024 * 1024  # bytes from which on an upload shows how far it is
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*:.*", re.DOTALL)


def register(app: typer.Typer) -> None:
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest submit photo.tif --profile demo_content --title 'A husky' --local-id husky-1 --watch",
            "waybill ingest submit photos.zip --profile demo_content --digest md5:47d321056e60944a06973793c7b5841e",
            "waybill ingest submit https://example.org/batch.checkm --profile demo_content --type container-batch-manifest --watch --json",
            "waybill ingest submit more.zip --profile demo_content --primary-id ark:/99999/fk4abc --update",
        ),
    )(submit)


def submit(
    desk: Desk,
    payload: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="What to deposit: a file here, - for stdin, or an http(s) URL.")
    ],
    profile: Annotated[str, typer.Option("--profile", metavar="NAME", help="The profile whose rules hold for it.")],
    type: Annotated[
        Type | None, typer.Option("--type", help="What it is; otherwise its first bytes and its name say so.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="What it is called.")] = "",
    creator: Annotated[str, typer.Option("--creator", help="Who made it.")] = "",
    date: Annotated[str, typer.Option("--date", help="When it was made.")] = "",
    local_id: Annotated[
        list[str] | None, typer.Option("--local-id", metavar="ID", help="Its id with you; may be repeated.")
    ] = None,
    primary_id: Annotated[
        str, typer.Option("--primary-id", metavar="ARK", help="The ARK of the object, if it has one.")
    ] = "",
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Keep what the object has and this does not replace; needs its ARK or a local id."
        ),
    ] = False,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="PATH", help="With --update: take this file away.")
    ] = None,
    digest: Annotated[
        str, typer.Option("--digest", metavar="TYPE:HEX", help="What the payload must turn out to be.")
    ] = "",
    filename: Annotated[
        str, typer.Option("--filename", metavar="NAME", help="Its name, when the file or URL has another.")
    ] = "",
    dc: Annotated[
        list[str] | None, typer.Option("--dc", metavar="WORD=TEXT", help="A Dublin Core element; may be repeated.")
    ] = None,
    notify: Annotated[
        str, typer.Option("--notify", metavar="ADDRESS", help="Who gets the report, in place of the profile's.")
    ] = "",
    note: Annotated[str, typer.Option("--note", help="A note for those who look after it.")] = "",
    batch_id: Annotated[
        str, typer.Option("--batch-id", metavar="ID", help="Your own batchID: asked twice, made once.")
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow it to its end; exit code 1 if anything failed.")
    ] = False,
    why: WHY = "",
) -> int | None:
    """Deposit a file, a container, or what a manifest lists.

    The payload is checked, stored, recorded and reported by the workers.
    """
    name, digest_type, digest_value = _name(payload, filename), *_digest(digest)
    said = Submission(
        profile=profile,
        url=payload if _is_url(payload) else "",
        type=type,
        filename=name,
        digest_type=digest_type,
        digest_value=digest_value,
        update=update,
        creator=creator,
        title=title,
        date=date,
        primary_id=primary_id,
        local_ids=submission.local_ids(";".join(local_id or ())),
        notification=notify,
        note=note,
        batch_id=batch_id,
        dc=_words(dc),
        deletions=tuple(delete or ()),
    )
    if not _is_url(payload) and payload != "-" and _has_faults(desk, Path(payload), name, type):
        return FAILED
    with desk.engine() as engine:
        with _opened(desk, payload) as data:  # until it is sent: its progress must be gone before the batch's is shown
            accepted = service.submit(engine, outfit(desk), said, data, who=desk.who, why=why)
        batch = accepted.batch
        if desk.as_json and not watch:
            desk.print_json({**service.batch_view(engine, batch), "repeated": accepted.repeated})
            return None
        if not desk.as_json:
            was = "was submitted before" if accepted.repeated else "is submitted"
            desk.say(f"{batch.id} {was} (batchID {accepted.batch_id})")
        if watch:
            return follow(desk, engine, batch.ref)
    desk.note(f"waybill ingest watch {batch.id} follows it.")
    return None


def _is_url(payload: str) -> bool:
    return bool(_URL.fullmatch(payload)) and not Path(payload).exists()


def _name(payload: str, filename: str) -> str:
    if payload == "-" and not filename:
        raise Misuse("What comes from stdin has no name: give --filename.")
    return filename or ("" if _is_url(payload) else Path(payload).name)


def _digest(text: str) -> tuple[str, str]:
    kind, colon, value = text.rpartition(":")
    if text and not (colon and kind and value):
        raise Misuse(f"--digest {text!r} is not TYPE:HEX, such as sha-256:9f86d081...")
    return kind, value


def _words(pairs: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs or ():
        word, equals, text = pair.partition("=")
        if not equals or word not in DC:
            raise Misuse(f"--dc {pair!r} is not WORD=TEXT; the words are {', '.join(DC)}.")
        found[word] = f"{found[word]};{text}" if word in found else text
    return found


def _has_faults(desk: Desk, file: Path, name: str, type: Type | None) -> bool:
    """A manifest is read before it is sent: its faults are said at once, with their lines.

    What is large is looked at by the workers.
    """
    with opened(file) as source:
        # then it is to be one, also if it does not look like one
        said_or_named = type is not None or name.lower().endswith(MANIFEST)
        if type in (Type.FILE, Type.CONTAINER) or not (said_or_named or glance(source.read(HEAD))):
            return False
    report = service.check_payload(file, filename=name, type=type)
    if report.good:
        for remark in report.remarks:
            desk.note(str(remark))
        return False
    if desk.as_json:
        raise Refused(
            f"{file} was not submitted: {report.complaints[0]} `waybill ingest check` tells all {len(report.complaints)}."
        )
    for note in report.complaints:
        desk.err.print(str(note))
    desk.err.print(f"{file} was not submitted: correct it first, or submit it as it is with --type file.")
    return True


@contextmanager
def _opened(desk: Desk, payload: str) -> Iterator[BinaryIO | None]:
    if _is_url(payload):
        yield None
    elif payload == "-":
        yield sys.stdin.buffer
    else:
        path = Path(payload)
        with opened(path) as source:
            if desk.interactive and path.stat().st_size > LARGE:
                with wrap_file(
                    source, path.stat().st_size, description=path.name, console=desk.err, transient=True
                ) as shown:
                    yield shown
            else:
                yield source
