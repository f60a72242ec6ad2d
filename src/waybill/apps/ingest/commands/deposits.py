"""`waybill ingest submit` and `check`.

`submit` makes a batch of a local file, of stdin or of what a URL leads to. A manifest is checked before it is sent, so
that its faults are reported at once with their line numbers; large payloads are checked by the workers.

`check` lists every complaint about a payload with its line or file. Nothing is submitted and nothing is fetched.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer
from rich.progress import wrap_file

from waybill.apps.ingest import service, settings
from waybill.apps.ingest.commands.batch_watch import follow_batch
from waybill.apps.ingest.commands.support import register_command, resources_of
from waybill.apps.ingest.formats.checkm import detect_kind
from waybill.apps.ingest.submission import DC_ELEMENTS, PayloadType, Submission, parse_local_ids
from waybill.cli.command_context import WHY, CommandContext
from waybill.cli.terminal import format_size, pluralize
from waybill.errors import FAILED, InputError, NotFound
from waybill.rules import ActionRefused

PANEL = "Deposits"
HEAD_SIZE = 4096  # bytes by which a manifest is recognized
MANIFEST_SUFFIX = ".checkm"
PROGRESS_FROM = 8 * 1024 * 1024  # bytes; a larger upload shows a progress bar
TYPE_DESCRIPTIONS: dict[PayloadType | None, tuple[str, str]] = {
    PayloadType.OBJECT: ("an object of {}", "file"),
    PayloadType.MANIFESTS: ("a batch of {}, each with a manifest of its own", "object"),
    PayloadType.CONTAINERS: ("a batch of {}, each a container", "object"),
    PayloadType.FILES: ("a batch of {}, each one file", "object"),
}
_URL_PATTERN = re.compile("[A-Za-z][A-Za-z0-9+.-]*:.*", re.DOTALL)


def register(app: typer.Typer) -> None:
    register_command(
        app,
        "submit",
        panel=PANEL,
        examples=(
            "waybill ingest submit photo.tif --profile demo_content --title 'A husky' --local-id husky-1 --watch",
            "waybill ingest submit photos.zip --profile demo_content --digest md5:47d321056e60944a06973793c7b5841e",
            "waybill ingest submit https://example.org/batch.checkm --profile demo_content --type container-batch-manifest --watch --json",
            "waybill ingest submit more.zip --profile demo_content --primary-id ark:/99999/fk4abc --update",
        ),
    )(submit)
    register_command(
        app,
        "check",
        panel=PANEL,
        examples=(
            "waybill ingest check photos.checkm",
            "waybill ingest check photos.checkm --type container-batch-manifest --json",
            "waybill ingest check bag.zip",
        ),
    )(check)


def submit(
    context: CommandContext,
    payload: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="What to deposit: a file here, - for stdin, or an http(s) URL.")
    ],
    profile: Annotated[str, typer.Option("--profile", metavar="NAME", help="The profile whose rules apply.")],
    type: Annotated[
        PayloadType | None,
        typer.Option("--type", help="What it is; by default guessed from its first bytes and its name."),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Its title.")] = "",
    creator: Annotated[str, typer.Option("--creator", help="Who made it.")] = "",
    date: Annotated[str, typer.Option("--date", help="When it was made.")] = "",
    local_id: Annotated[
        list[str] | None, typer.Option("--local-id", metavar="ID", help="Your own id of the object; may be repeated.")
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
        list[str] | None,
        typer.Option("--delete", metavar="PATH", help="With --update: delete this file from the object."),
    ] = None,
    digest: Annotated[
        str, typer.Option("--digest", metavar="TYPE:HEX", help="The digest that the payload must have.")
    ] = "",
    filename: Annotated[
        str, typer.Option("--filename", metavar="NAME", help="Its name, if not that of the file or URL.")
    ] = "",
    dc: Annotated[
        list[str] | None, typer.Option("--dc", metavar="WORD=TEXT", help="A Dublin Core element; may be repeated.")
    ] = None,
    notify: Annotated[
        str,
        typer.Option("--notify", metavar="ADDRESS", help="Who gets the report, instead of the profile's addresses."),
    ] = "",
    note: Annotated[str, typer.Option("--note", help="A note for the curators.")] = "",
    batch_id: Annotated[
        str, typer.Option("--batch-id", metavar="ID", help="Your own batchID: submitting it twice makes one batch.")
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow it to its end; exit code 1 if anything failed.")
    ] = False,
    why: WHY = "",
) -> int | None:
    """Deposit a file, a container, or what a manifest lists.

    The payload is checked, stored, recorded and reported by the workers.
    """
    name, digest_type, digest_value = _choose_name(payload, filename), *_parse_digest(digest)
    new_submission = Submission(
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
        local_ids=parse_local_ids(";".join(local_id or ())),
        notification=notify,
        note=note,
        batch_id=batch_id,
        dc=_parse_dublin_core(dc),
        deletions=tuple(delete or ()),
    )
    if not _is_url(payload) and payload != "-" and _has_faults(context, Path(payload), name, type):
        return FAILED
    with context.open_engine() as engine:
        # closed before the batch is followed: two progress bars must not be shown at once
        with _open_payload(context, payload) as data:
            accepted = service.submit_deposit(
                engine, resources_of(context), new_submission, data, who=context.who, why=why
            )
        batch = accepted.batch
        if context.as_json and not watch:
            context.print_json({**service.build_batch_view(engine, batch), "is_repeated": accepted.is_repeated})
            return None
        if not context.as_json:
            result = "was submitted before" if accepted.is_repeated else "is submitted"
            context.print_line(f"{batch.id} {result} (batchID {accepted.batch_id})")
        if watch:
            return follow_batch(context, engine, batch.ref)
    context.print_note(f"waybill ingest watch {batch.id} follows it.")
    return None


def _is_url(payload: str) -> bool:
    return bool(_URL_PATTERN.fullmatch(payload)) and not Path(payload).exists()


def _choose_name(payload: str, filename: str) -> str:
    if payload == "-" and not filename:
        raise InputError("A payload from stdin has no name: give --filename.", code="usage")
    return filename or ("" if _is_url(payload) else Path(payload).name)


def _parse_digest(text: str) -> tuple[str, str]:
    kind, colon, value = text.rpartition(":")
    if text and not (colon and kind and value):
        raise InputError(f"--digest {text!r} is not TYPE:HEX, such as sha-256:9f86d081...", code="usage")
    return kind, value


def _parse_dublin_core(pairs: list[str] | None) -> dict[str, str]:
    elements: dict[str, str] = {}
    for pair in pairs or ():
        word, equals, text = pair.partition("=")
        if not equals or word not in DC_ELEMENTS:
            raise InputError(f"--dc {pair!r} is not WORD=TEXT; the words are {', '.join(DC_ELEMENTS)}.", code="usage")
        elements[word] = f"{elements[word]};{text}" if word in elements else text
    return elements


def _has_faults(context: CommandContext, file: Path, name: str, type: PayloadType | None) -> bool:
    """Check a manifest before it is sent and print its faults. Other payloads are checked by the workers."""
    if type in (PayloadType.FILE, PayloadType.CONTAINER):
        return False
    with _open_file(file) as source:
        # a payload that is declared or named as a manifest is checked as one even if it does not look like one
        is_declared = type is not None or name.lower().endswith(MANIFEST_SUFFIX)
        if not is_declared and detect_kind(source.read(HEAD_SIZE)) is None:
            return False
    report = service.check_payload(file, filename=name, payload_type=type)
    if report.is_good:
        for remark in report.remarks:
            context.print_note(str(remark))
        return False
    if context.as_json:
        raise ActionRefused(
            f"{file} was not submitted: {report.complaints[0]} `waybill ingest check` lists all {len(report.complaints)}."
        )
    for note in report.complaints:
        context.err.print(str(note))
    context.err.print(f"{file} was not submitted: correct it first, or submit it as it is with --type file.")
    return True


def _open_file(file: Path) -> BinaryIO:
    """Open a depositor's file for reading."""
    if not file.exists():
        raise NotFound(f"There is no file {file} here; a remote file is named by its URL, https://...")
    if file.is_dir():
        raise InputError(f"{file} is a folder: pack it as a zip or a tar, which becomes one object.", code="usage")
    if not file.is_file():
        raise InputError(
            f"{file} is neither a file nor a folder; to read from a pipe, give - and --filename.", code="usage"
        )
    return file.open("rb")


@contextmanager
def _open_payload(context: CommandContext, payload: str) -> Iterator[BinaryIO | None]:
    if _is_url(payload):
        yield None
    elif payload == "-":
        yield sys.stdin.buffer
    else:
        path = Path(payload)
        with _open_file(path) as source:
            if context.is_interactive and path.stat().st_size > PROGRESS_FROM:
                with wrap_file(
                    source, path.stat().st_size, description=path.name, console=context.err, transient=True
                ) as shown:
                    yield shown
            else:
                yield source


def check(
    context: CommandContext,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A checkm manifest, a container or a bag; - reads a manifest from stdin."),
    ],
    type: Annotated[
        PayloadType | None,
        typer.Option("--type", help="The type it will be submitted as; by default the manifest's own."),
    ] = None,
) -> int | None:
    """Check a payload before it is submitted: list every complaint with its line or file. Exit code 1 if there is one.

    URLs of a manifest that would be refused by the settings here are listed too: hosts are looked up, but no server is
    contacted.
    """
    address_policy = settings.read(context.config.app.get("ingest", {})).fetch.build_address_policy()
    if str(file) == "-":
        with tempfile.NamedTemporaryFile(suffix=".checkm") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
            report = service.check_payload(Path(copy.name), payload_type=type, address_policy=address_policy)
    else:
        _open_file(file).close()
        report = service.check_payload(file, payload_type=type, address_policy=address_policy)
    _print_check(context, file, report)
    return None if report.is_good else FAILED


def _print_check(context: CommandContext, file: Path, report: service.PayloadCheckReport) -> None:
    if context.as_json:
        return context.print_json({"file": str(file), "is_good": report.is_good, **msgspec.to_builtins(report)})
    for note in (*report.complaints, *report.remarks):
        context.print_line(str(note))
    count = len(report.complaints)
    if count:
        return context.print_note(f"{file}: {pluralize(count, 'complaint')}. It would be refused as it is.")
    words, noun = TYPE_DESCRIPTIONS.get(report.type, (f"a {report.format} of {{}}", "file"))
    contents = words.format(pluralize(report.count, noun)) if report.format != "file" else "a file, stored as it is"
    size = f", {format_size(report.total_bytes)}" if report.total_bytes else ""
    source = " according to the manifest" if size and report.format == "manifest" else ""
    return context.print_line(f"{file} is good: {contents}{size}{source}.")
