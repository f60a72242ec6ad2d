"""Payload: what a job is made from, wherever it lies: an http(s) URL, or `waybill:` and the name of an object that
was uploaded.

    payload = of(submission)               Unfit, if it is neither, or what was promised of it cannot be checked
    small(ctx, payload, limit)             all its bytes, if they are few and what was promised: manifests
    fetch(ctx, wanted, into)               files over http(s), within the limits of the settings
    take_upload(ctx, payload, path)        an uploaded object as a file of the working folder, compared while it is copied

A URL never leads to an object but to an upload: objects of others, and those that storage keeps, cannot be had by
naming them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.steps.refusal import Trouble, Unfit
from waybill.apps.ingest.submission import Submission
from waybill.digests import Digests, UnknownDigest, promised
from waybill.objects import NotFound
from waybill.objects.names import check_name
from waybill.objects.protocol import ObjectInfo, Refused
from waybill.step import Context
from waybill.transfer import Fetch, Fetched, Progress

SCHEME = "waybill:"
UPLOADS = "ingest/payloads/"

_GONE = "What was uploaded is no longer there."


class Payload(msgspec.Struct, frozen=True):
    url: str
    name: str  # as the depositor or the URL says it; may be empty, and need not be a name that can be kept
    size: int | None  # promised
    digests: dict[str, str]  # promised, by the names of `waybill.digests`
    received: dict[str, str] = {}  # of an upload, taken as it came

    @property
    def upload(self) -> str:
        """The name of the object; empty for what lies elsewhere."""
        return self.url.removeprefix(SCHEME) if is_upload(self.url) else ""


def is_upload(url: str) -> bool:
    return url.startswith(SCHEME)


def of(said: Submission) -> Payload:
    """The payload that a submission names; Unfit with a sentence, if it cannot be one."""
    wrong = fault(said.url)
    if wrong:
        raise Unfit(wrong)
    promises = [said.digests_of_row]
    if said.digest_type or said.digest_value:
        if not (said.digest_type and said.digest_value):
            raise Unfit("A digest needs both its algorithm and its value: give both, or neither.")
        promises.append({said.digest_type: said.digest_value})
    digests: dict[str, str] = {}
    try:
        received = promised(said.received)
        for each in promises:
            for algorithm, value in promised(each).items():
                if digests.setdefault(algorithm, value) != value:
                    raise UnknownDigest(f"Two different values of {algorithm} were promised.")
    except UnknownDigest as error:
        raise Unfit(f"The digest of the payload cannot be checked: {error}") from None
    return Payload(said.url, said.filename or last_of(said.url), said.size, digests, received)


def fault(url: str) -> str | None:
    """Why nothing can be fetched from there, as a sentence; None if it can be tried.

    Never repeats what may hold a password.
    """
    if not url:
        return "The job names no payload: its configuration lacks payload_url."
    if is_upload(url):
        name = url.removeprefix(SCHEME)
        try:
            parts = check_name(name).split("/")
        except Refused:
            return "The payload is not the name of an upload."
        return None if name.startswith(UPLOADS) and len(parts) == 4 else "The payload is not the name of an upload."
    try:
        parts_of = urlsplit(url)
        host, _ = parts_of.hostname, parts_of.port
    except ValueError:
        return "The address of the payload is not a URL."
    if parts_of.scheme not in ("http", "https"):
        shown = names.shown(parts_of.scheme) if parts_of.scheme else "an address without a scheme"
        return f"The payload cannot be fetched: only http and https URLs and uploads can, not {shown}."
    if not host:
        return "The address of the payload names no host."
    return (
        "The address of the payload holds a user name or password, which cannot be sent."
        if "@" in parts_of.netloc
        else None
    )


def last_of(url: str) -> str:
    """The name that the path of a URL ends with; empty if it ends with none."""
    if is_upload(url):
        return url.rpartition("/")[2]
    try:
        return unquote(urlsplit(url).path.rpartition("/")[2], errors="strict")
    except ValueError:
        return ""


def info(ctx: Context, payload: Payload) -> ObjectInfo:
    """What is known of an upload."""
    try:
        return ctx.objects.head(payload.upload)
    except NotFound:
        raise Unfit(_GONE) from None


def check_upload(ctx: Context, payload: Payload) -> None:
    """That what was uploaded is what was promised. What is known since it came is not read again."""
    came = info(ctx, payload)
    known = dict(payload.received)
    if came.sha256:
        known.setdefault("sha256", came.sha256)
    if payload.size is not None and payload.size != came.size:
        raise mismatch(f"{came.size} bytes came, and {payload.size} were promised")
    for algorithm, value in payload.digests.items():
        if algorithm in known and known[algorithm] != value:
            raise mismatch(f"what came has the {algorithm} {known[algorithm]}, and {value} was promised")
    unknown = {algorithm: value for algorithm, value in payload.digests.items() if algorithm not in known}
    if unknown:
        read = Digests(unknown)
        with ctx.objects.get(payload.upload) as body:
            for portion in body:
                ctx.check()
                read.update(portion)
        wrong = read.fault(None, unknown)
        if wrong:
            raise mismatch(wrong)


def mismatch(what: str) -> Unfit:
    return Unfit(f"The payload is not what was promised: {what}.")


def small(ctx: Context, payload: Payload, limit: int) -> bytes:
    """All bytes of a payload that may not have more than so many, compared with what was promised."""
    if payload.upload:
        if info(ctx, payload).size > limit:
            raise Unfit(too_long(limit))
        with ctx.objects.get(payload.upload) as body:
            data = b"".join(body)
        came = Digests(payload.digests)
        came.update(data)
        wrong = came.fault(payload.size, payload.digests)
        if wrong:
            raise mismatch(wrong)
        return data
    into = ctx.workdir / "payload"  # the attempt's own: a second run has another
    shutil.rmtree(into, ignore_errors=True)
    try:
        wanted = Fetch(payload.url, "payload", size=payload.size, digests=payload.digests)
        (fetched,) = fetch(ctx, [wanted], into, largest=limit, tries=2)  # the state tries again too
        ctx.check()
        if fetched.mismatch:
            raise mismatch(fetched.reason.rstrip("."))
        if not fetched.ok and fetched.permanent:
            raise Unfit(f"The payload could not be fetched: {fetched.reason}", final=False)
        if not fetched.ok:
            raise Trouble(f"The payload could not be fetched: {fetched.reason}")
        return (into / "payload").read_bytes()
    finally:
        shutil.rmtree(into, ignore_errors=True)


def too_long(limit: int) -> str:
    return f"The manifest is longer than {limit:,} bytes: split it into several."


def fetch(
    ctx: Context,
    wanted: Iterable[Fetch],
    into: Path,
    *,
    earlier: Sequence[Path] = (),
    largest: int | None = None,
    tries: int | None = None,
    full: Callable[[], bool] = lambda: False,
    progress: Callable[[Progress], None] = lambda progress: None,
    offered: Callable[[str, int], bool] = lambda name, size: True,
) -> Iterator[Fetched]:
    """Files over http(s), within the limits of the settings. `full`: no more may be written now; `offered`: may so
    many bytes come?
    """
    outfit = outfit_of(ctx)
    limits = outfit.settings.fetch
    return outfit.download(
        wanted,
        into,
        earlier=earlier,
        parallel=limits.parallel,
        tries=tries or limits.tries,
        timeout=limits.timeout,
        largest=largest or limits.largest,
        redirects=limits.redirects,
        reach=outfit.reach,
        stop=lambda: ctx.stop or full(),
        progress=progress,
        offered=offered,
        connections=outfit.connections,
    )


def take_upload(ctx: Context, payload: Payload, path: Path, came: Callable[[int], None]) -> tuple[int, str]:
    """What was uploaded, as a new file; its size and SHA-256.

    Unfit if it is not what was promised, or not what came.
    """
    wanted = {**payload.received, **payload.digests}
    digests = Digests(wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with ctx.objects.get(payload.upload) as body, open(path, "xb") as file:
            for portion in body:
                ctx.check()
                file.write(portion)
                digests.update(portion)
                came(len(portion))
    except NotFound:
        raise Unfit(_GONE) from None
    wrong = digests.fault(payload.size, wanted)
    if wrong:
        raise mismatch(wrong)
    return digests.size, digests.sha256
