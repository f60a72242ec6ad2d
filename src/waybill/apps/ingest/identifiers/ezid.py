"""A client of EZID, the service that registers ARKs with their metadata and target URLs.

A job must never get two ARKs, and an answer can be lost on its way back. So there are two ways to get a new one:

    create   the caller chooses the ARK (noid.py) and saves it; then EZID registers it. The name of the request is part of the metadata,
             as `waybill.request`: if the ARK exists already, that tells whether it is the caller's own, so this may be repeated for ever.
    mint     EZID chooses. This is tried again only if EZID cannot have received the request; otherwise TransferError is raised, and
             an operator must check.

Messages are ANVL lines with escapes; the first line of an answer starts with `success:` or `error:`. What EZID refuses is
a permanent error; a request without an answer is tried again, `pauses` seconds apart. Certificates are verified,
redirects are not followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from waybill.apps.ingest.formats import anvl
from waybill.apps.ingest.formats.anvl import AnvlElement, escape, to_one_line
from waybill.apps.ingest.identifiers.noid import is_ark
from waybill.errors import FormatError
from waybill.transfer import TransferError

PAUSES = (5.0, 15.0)
REQUEST_LABEL = "waybill.request"

_MAX_ANSWER_BYTES = 1_000_000
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_RETRY_STATUSES = {408, 425, 429}
_NOT_BEGUN_STATUSES = {429, 503}  # with an error message of EZID itself: nothing was done


class EzidMetadata(msgspec.Struct, frozen=True):
    """The metadata of an ARK; empty fields are not sent."""

    who: str = ""
    what: str = ""
    when: str = ""
    where: tuple[str, ...] = ()  # the ARK, local ids
    creator: str = ""  # the profile's context
    target: str = ""  # where the ARK leads
    co_owner: str = ""
    reserved: bool = False  # not resolvable: for objects that only administrators see

    def to_elements(self) -> list[AnvlElement]:
        citation = [
            ("who", self.who),
            ("what", self.what),
            ("when", self.when),
            *(("where", place) for place in self.where),
        ]
        # A citation is itself ANVL, inside one value: its own line breaks are escaped, and colons of its values too.
        erc = "".join(f"{label}: {escape(to_one_line(value), ':') or anvl.MISSING}%0A" for label, value in citation)
        elements = [
            ("erc", erc),
            ("mrt.creator", escape(self.creator)),
            ("_target", escape(self.target)),
            ("_owner", escape(self.co_owner)),
        ]
        if self.reserved:
            elements += [("_status", "reserved"), ("_export", "no")]
        return [AnvlElement(label, value) for label, value in elements if value]


class _EzidAnswer(NamedTuple):
    status: int
    outcome: str  # "success" or "error"; empty if this is no answer of EZID's
    text: str  # the rest of the line
    elements: list[AnvlElement]

    @property
    def ok(self) -> bool:
        return self.outcome == "success" and 200 <= self.status < 300


class EzidClient:
    """A client for one account. `pause` waits so many seconds; `client` makes the HTTP client."""

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        *,
        pauses: Sequence[float] = PAUSES,
        timeout: float = 30.0,
        pause: Callable[[float], None] = time.sleep,
        client: Callable[[], httpx2.Client] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise TransferError(
                f"The address of EZID must begin with https://, since a password is sent to it: {url!r} does not.",
                code="transfer-refused",
            )
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        self._auth = httpx2.BasicAuth(user, password)
        self._pauses, self._pause, self._timeout = tuple(pauses), pause, timeout
        self._client = client() if client else httpx2.Client(timeout=timeout, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def create(self, ark: str, request: str, description: EzidMetadata) -> str:
        """Register the ARK for this request. Nothing changes if the request has it already; raises TransferError if another has it."""
        body = _build_body(AnvlElement(REQUEST_LABEL, escape(to_one_line(request))), *description.to_elements())
        answer = self._request_with_retries("PUT", f"/id/{_quote_path(ark)}", body)
        if not answer.ok and "already exists" in answer.text:
            found = self.look_up(ark)
            if found is None or dict(found).get(REQUEST_LABEL) != to_one_line(request):
                raise TransferError(
                    f"{ark} is there already, and not for the request {request!r}: another must be drawn.",
                    code="ark-taken",
                )
            return ark
        _raise_if_refused(answer)
        return ark

    def mint(self, shoulder: str, request: str, description: EzidMetadata) -> str:
        """A new ARK on the shoulder (`ark:/99999/fk4`), chosen by EZID."""
        body = _build_body(AnvlElement(REQUEST_LABEL, escape(to_one_line(request))), *description.to_elements())
        answer = self._request_with_retries("POST", f"/shoulder/{_quote_path(shoulder)}", body, repeatable=False)
        _raise_if_refused(answer)
        ark = answer.text.partition("|")[0].strip()
        if not is_ark(ark) or not ark.startswith(shoulder):
            raise TransferError(
                f"EZID was asked for an ARK on {shoulder}, and answered {answer.text[:200]!r}: look for the request {request!r} there.",
                code="outcome-unknown",
            )
        return ark

    def update(self, ark: str, description: EzidMetadata) -> None:
        """Replace the metadata of the ARK; register it if EZID does not know it."""
        body = _build_body(*description.to_elements())
        answer = self._request_with_retries("POST", f"/id/{_quote_path(ark)}", body)
        if not answer.ok and "no such identifier" in answer.text:
            answer = self._request_with_retries("PUT", f"/id/{_quote_path(ark)}?update_if_exists=yes", body)
        _raise_if_refused(answer)

    def look_up(self, ark: str) -> list[AnvlElement] | None:
        """The metadata of the ARK; None if EZID does not know it."""
        answer = self._request_with_retries("GET", f"/id/{_quote_path(ark)}", b"")
        if not answer.ok and "no such identifier" in answer.text:
            return None
        _raise_if_refused(answer)
        return answer.elements

    def _request_with_retries(self, method: str, path: str, body: bytes, *, repeatable: bool = True) -> _EzidAnswer:
        reason = ""
        for attempt in range(len(self._pauses) + 1):
            if attempt:
                self._pause(self._pauses[attempt - 1])
            try:
                answer = self._request_once(method, path, body)
                if answer.outcome and answer.status < 500 and answer.status not in _RETRY_STATUSES:
                    return answer
                reason = f"it answered {answer.status} {answer.text}".rstrip()
                was_received = not (answer.outcome == "error" and answer.status in _NOT_BEGUN_STATUSES)
            except TransferError as error:
                if not error.is_retryable:
                    raise
                reason, was_received = str(error), error.code == "outcome-unknown"
            if was_received and not repeatable:
                raise TransferError(
                    f"EZID may have minted an ARK that nobody knows: {reason}. Look for {path} there before trying again.",
                    code="outcome-unknown",
                )
        raise TransferError(f"EZID did not do it in {len(self._pauses) + 1} tries: {reason}.")

    def _request_once(self, method: str, path: str, body: bytes) -> _EzidAnswer:
        headers = {"content-type": "text/plain; charset=UTF-8", "accept": "text/plain"}
        received = bytearray()
        try:
            with self._client.stream(
                method, self._url + path, content=body, headers=headers, auth=self._auth, timeout=self._timeout
            ) as answer:
                for chunk in answer.iter_bytes():
                    received += chunk
                    if len(received) > _MAX_ANSWER_BYTES:
                        raise TransferError("its answer has no end", code="outcome-unknown")
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise TransferError(f"no connection ({error})") from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise TransferError(f"EZID cannot be asked: {error}.", code="transfer-refused") from error
        except httpx2.HTTPError as error:
            raise TransferError(f"the connection was cut ({type(error).__name__})", code="outcome-unknown") from error
        return _parse_answer(answer.status_code, bytes(received))


def target_url_of(base: str, ark: str) -> str:
    """The target URL of an ARK: the page of the object.

    The ARK is percent-encoded here, and once more by the escapes of the message.
    """
    return f"{base.rstrip('/')}/m/{quote(ark, safe='')}"


def _parse_answer(status: int, data: bytes) -> _EzidAnswer:
    try:
        (label, text), *elements = anvl.read(data, escaped=True)
    except (FormatError, ValueError):
        return _EzidAnswer(status, "", "", [])
    if label not in ("success", "error"):
        return _EzidAnswer(status, "", "", [])
    return _EzidAnswer(status, label, text, elements)


def _raise_if_refused(answer: _EzidAnswer) -> None:
    if answer.ok:
        return
    if answer.status == 401:
        raise TransferError(
            "EZID does not know this user name and password: correct them in the configuration.",
            code="transfer-refused",
        )
    raise TransferError(f"EZID refused it: {answer.text} ({answer.status}).", code="transfer-refused")


def _build_body(*elements: AnvlElement) -> bytes:
    return _encode_lines(f"{label}: {value}\n" for label, value in elements)


def _encode_lines(lines: Iterable[str]) -> bytes:
    try:
        return "".join(lines).encode()
    except UnicodeEncodeError:
        raise TransferError(
            "A text for EZID holds half of a surrogate pair, which UTF-8 cannot express.", code="transfer-refused"
        ) from None


def _quote_path(identifier: str) -> str:
    return quote(identifier, safe=":/")
