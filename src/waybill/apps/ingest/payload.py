"""The payload of a job: an http(s) URL, or `waybill:` and the name of an uploaded object.

    payload_of(submission)                 SubmissionRefused if it is neither, or if its promised digests cannot be checked
    read_small_payload(ctx, payload, n)    all bytes of a manifest, compared with what was promised
    bind_download(ctx)                     downloads files over http(s), within the limits of the settings
    copy_upload(ctx, payload, path)        copies an upload into the working folder, and compares it meanwhile

A `waybill:` URL names an upload and no other object: other objects, and those that storage keeps, cannot be read by
naming them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from waybill.apps.ingest.job_refusal import SubmissionRefused
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.storage.sources import OBJECT_SCHEME
from waybill.apps.ingest.submission import Submission
from waybill.digests import Digests, normalize_digests
from waybill.errors import InputError
from waybill.files import names
from waybill.objects import ObjectInfo, ObjectNotFound, ObjectRequestRefused, check_name
from waybill.step import StepContext
from waybill.transfer import DownloadRequest, DownloadResult, TransferError

UPLOADS_FOLDER = "ingest/payloads"

_UPLOAD_GONE_MESSAGE = "What was uploaded is no longer there."


class Payload(msgspec.Struct, frozen=True):
    url: str
    name: str  # from the depositor or the URL; may be empty, or a name that cannot be stored
    size: int | None  # promised
    digests: dict[str, str]  # promised, by the names of `waybill.digests`
    received_digests: dict[str, str] = {}  # of an upload, computed on receipt

    @property
    def upload(self) -> str:
        """The name of the uploaded object; empty for an http(s) URL."""
        return self.url.removeprefix(OBJECT_SCHEME) if is_upload(self.url) else ""


def is_upload(url: str) -> bool:
    return url.startswith(OBJECT_SCHEME)


def payload_of(submission: Submission) -> Payload:
    """The payload that a submission names; raises SubmissionRefused if it cannot be one."""
    wrong = find_url_fault(submission.url)
    if wrong:
        raise SubmissionRefused(wrong)
    promised = [submission.row_digests]
    if submission.digest_type or submission.digest_value:
        if not (submission.digest_type and submission.digest_value):
            raise SubmissionRefused("A digest needs both its algorithm and its value: give both, or neither.")
        promised.append({submission.digest_type: submission.digest_value})
    digests: dict[str, str] = {}
    try:
        received = normalize_digests(submission.received_digests)
        for each in promised:
            for algorithm, value in normalize_digests(each).items():
                if digests.setdefault(algorithm, value) != value:
                    raise InputError(f"Two different values of {algorithm} were promised.", code="unknown-digest")
    except InputError as error:
        raise SubmissionRefused(f"The digest of the payload cannot be checked: {error}") from None
    return Payload(
        submission.url, submission.filename or file_name_of(submission.url), submission.size, digests, received
    )


def find_url_fault(url: str) -> str | None:
    """Why nothing can be fetched from the URL, as a sentence; None if it can be tried.

    The sentence never repeats what may hold a password.
    """
    if not url:
        return "The job names no payload: its configuration lacks payload_url."
    if is_upload(url):
        name = url.removeprefix(OBJECT_SCHEME)
        try:
            parts = check_name(name).split("/")
        except ObjectRequestRefused:
            return "The payload is not the name of an upload."
        return (
            None
            if name.startswith(f"{UPLOADS_FOLDER}/") and len(parts) == 4
            else "The payload is not the name of an upload."
        )
    try:
        split_url = urlsplit(url)
        host, _ = split_url.hostname, split_url.port
    except ValueError:
        return "The address of the payload is not a URL."
    if split_url.scheme not in ("http", "https"):
        shown = names.quote_text(split_url.scheme) if split_url.scheme else "an address without a scheme"
        return f"The payload cannot be fetched: only http and https URLs and uploads can, not {shown}."
    if not host:
        return "The address of the payload names no host."
    return (
        "The address of the payload holds a user name or password, which cannot be sent."
        if "@" in split_url.netloc
        else None
    )


def file_name_of(url: str) -> str:
    """The last segment of the path of a URL; empty if there is none."""
    if is_upload(url):
        return url.rpartition("/")[2]
    try:
        return unquote(urlsplit(url).path.rpartition("/")[2], errors="strict")
    except ValueError:
        return ""


def get_upload_info(ctx: StepContext, payload: Payload) -> ObjectInfo:
    """The size and digest of an upload."""
    try:
        return ctx.objects.head(payload.upload)
    except ObjectNotFound:
        raise SubmissionRefused(_UPLOAD_GONE_MESSAGE) from None


def check_upload(ctx: StepContext, payload: Payload) -> None:
    """Compare an upload with what was promised. It is read again only for digests that were not computed on receipt."""
    info = get_upload_info(ctx, payload)
    known = dict(payload.received_digests)
    if info.sha256:
        known.setdefault("sha256", info.sha256)
    if payload.size is not None and payload.size != info.size:
        raise make_mismatch_error(f"{info.size} bytes came, and {payload.size} were promised")
    for algorithm, value in payload.digests.items():
        if algorithm in known and known[algorithm] != value:
            raise make_mismatch_error(f"what came has the {algorithm} {known[algorithm]}, and {value} was promised")
    unknown = {algorithm: value for algorithm, value in payload.digests.items() if algorithm not in known}
    if unknown:
        computed = Digests(unknown)
        with ctx.objects.get(payload.upload) as body:
            for chunk in body:
                ctx.check()
                computed.update(chunk)
        wrong = computed.find_mismatch(None, unknown)
        if wrong:
            raise make_mismatch_error(wrong)


def make_mismatch_error(what: str) -> SubmissionRefused:
    return SubmissionRefused(f"The payload is not what was promised: {what}.")


def read_small_payload(ctx: StepContext, payload: Payload, limit: int) -> bytes:
    """All bytes of a payload of at most `limit` bytes, compared with what was promised."""
    if payload.upload:
        if get_upload_info(ctx, payload).size > limit:
            raise SubmissionRefused(describe_too_long(limit))
        with ctx.objects.get(payload.upload) as body:
            data = b"".join(body)
        digests = Digests(payload.digests)
        digests.update(data)
        wrong = digests.find_mismatch(payload.size, payload.digests)
        if wrong:
            raise make_mismatch_error(wrong)
        return data
    folder = ctx.workdir / "payload"  # in the folder of this attempt: a second run has another
    shutil.rmtree(folder, ignore_errors=True)
    try:
        request = DownloadRequest(payload.url, "payload", size=payload.size, digests=payload.digests)
        (fetched,) = bind_download(ctx, max_bytes=limit, tries=2)([request], folder)  # the step is tried again too
        ctx.check()
        if fetched.mismatch:
            raise make_mismatch_error(fetched.reason.rstrip("."))
        if not fetched.ok and fetched.permanent:
            raise SubmissionRefused(f"The payload could not be fetched: {fetched.reason}", is_final=False)
        if not fetched.ok:
            raise TransferError(f"The payload could not be fetched: {fetched.reason}")
        return (folder / "payload").read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def describe_too_long(limit: int) -> str:
    return f"The manifest is longer than {limit:,} bytes: split it into several."


def bind_download(
    ctx: StepContext, *, max_bytes: int | None = None, tries: int | None = None
) -> Callable[..., Iterator[DownloadResult]]:
    """`waybill.transfer.download` within the limits of the settings."""
    resources = resources_of(ctx)
    limits = resources.settings.fetch
    return partial(
        resources.download,
        parallel=limits.parallel,
        tries=tries or limits.max_tries,
        timeout=limits.timeout,
        max_size=max_bytes or limits.max_bytes,
        redirects=limits.max_redirects,
        policy=resources.address_policy,
        stop=lambda: ctx.stop,
        connections=resources.connections,
    )


def copy_upload(ctx: StepContext, payload: Payload, path: Path, on_bytes: Callable[[int], None]) -> tuple[int, str]:
    """Copy an upload to a new file; returns its size and SHA-256.

    Raises SubmissionRefused if it is not what was promised, or not what was received.
    """
    expected = {**payload.received_digests, **payload.digests}
    digests = Digests(expected)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with ctx.objects.get(payload.upload) as body, open(path, "xb") as file:
            for chunk in body:
                ctx.check()
                file.write(chunk)
                digests.update(chunk)
                on_bytes(len(chunk))
    except ObjectNotFound:
        raise SubmissionRefused(_UPLOAD_GONE_MESSAGE) from None
    wrong = digests.find_mismatch(payload.size, expected)
    if wrong:
        raise make_mismatch_error(wrong)
    return digests.size, digests.sha256
