"""EZID: a service that keeps ARKs and says where they lead; asked for new ones, and told what they stand for.

A job must never get two ARKs, and an answer can be lost on its way back. So there are two ways to a new one:

    create   the caller chooses the ARK (noid.py) and writes it down; EZID is told of it. The name of the request goes with it, as
             `waybill.request`: whoever finds the ARK there already can tell whether it is its own, so this may be repeated for ever.
    mint     EZID chooses. This is tried again only when EZID cannot have heard it; otherwise it is Unsure, and a person must look.

Messages are ANVL lines with escapes; the answer's first line begins with `success:` or `error:`. What EZID refuses is
refused for good; what does not answer is tried again, `pauses` seconds apart. Certificates are checked, redirects are
not followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from waybill.apps.ingest import anvl
from waybill.apps.ingest.anvl import Element, escape, one_line
from waybill.apps.ingest.noid import is_ark

PAUSES = (5.0, 15.0)
REQUEST = "waybill.request"

_LONGEST_ANSWER = 1_000_000
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_LATER = {408, 425, 429}
_NOT_BEGUN = {429, 503}  # with an error in EZID's own words: nothing was done


class EzidError(Exception):
    """EZID could not do it."""

    permanent = False


class Refused(EzidError):
    """EZID understood, and will not do it."""

    permanent = True


class Taken(EzidError):
    """The ARK belongs to somebody else: draw another."""


class Unavailable(EzidError):
    """EZID did not answer."""


class Unsure(EzidError):
    """An ARK may have been minted, and nobody was told which."""

    permanent = True


class Description(msgspec.Struct, frozen=True):
    """What EZID is told of an ARK; what is empty is not sent."""

    who: str = ""
    what: str = ""
    when: str = ""
    where: tuple[str, ...] = ()  # the ARK, local ids
    creator: str = ""  # the profile's context
    target: str = ""  # where the ARK leads
    co_owner: str = ""
    reserved: bool = False  # known to EZID alone: for objects that only administrators see

    def elements(self) -> list[Element]:
        cited = [
            ("who", self.who),
            ("what", self.what),
            ("when", self.when),
            *(("where", place) for place in self.where),
        ]
        # A citation is itself ANVL, inside one value: its own line breaks are escaped, and colons of its values too.
        erc = "".join(f"{label}: {escape(one_line(value), ':') or anvl.MISSING}%0A" for label, value in cited)
        said = [
            ("erc", erc),
            ("mrt.creator", escape(self.creator)),
            ("_target", escape(self.target)),
            ("_owner", escape(self.co_owner)),
        ]
        if self.reserved:
            said += [("_status", "reserved"), ("_export", "no")]
        return [Element(label, value) for label, value in said if value]


class _Answer(NamedTuple):
    status: int
    said: str  # "success" or "error"; empty if this is no answer of EZID's
    text: str  # what follows
    elements: list[Element]

    @property
    def ok(self) -> bool:
        return self.said == "success" and 200 <= self.status < 300


class _NotAnswered(Exception):
    """The server may have heard it, or not."""

    def __init__(self, reason: str, *, heard: bool) -> None:
        super().__init__(reason)
        self.heard = heard


class Ezid:
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
            raise Refused(
                f"The address of EZID must begin with https://, since a password is sent to it: {url!r} does not."
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

    def create(self, ark: str, request: str, description: Description) -> str:
        """Register the ARK for this request; the same again if it is already its own, Taken if it is another's."""
        body = _body(Element(REQUEST, escape(one_line(request))), *description.elements())
        answer = self._ask("PUT", f"/id/{_path(ark)}", body)
        if not answer.ok and "already exists" in answer.text:
            found = self.look_up(ark)
            if found is None or dict(found).get(REQUEST) != one_line(request):
                raise Taken(f"{ark} is there already, and not for the request {request!r}: another must be drawn.")
            return ark
        _check(answer)
        return ark

    def mint(self, shoulder: str, request: str, description: Description) -> str:
        """A new ARK on the shoulder (`ark:/99999/fk4`), chosen by EZID."""
        body = _body(Element(REQUEST, escape(one_line(request))), *description.elements())
        answer = self._ask("POST", f"/shoulder/{_path(shoulder)}", body, repeatable=False)
        _check(answer)
        ark = answer.text.partition("|")[0].strip()
        if not is_ark(ark) or not ark.startswith(shoulder):
            raise Unsure(
                f"EZID was asked for an ARK on {shoulder}, and answered {answer.text[:200]!r}: look for the request {request!r} there."
            )
        return ark

    def update(self, ark: str, description: Description) -> None:
        """Tell EZID anew what the ARK stands for; if it does not know the ARK, it learns it."""
        body = _body(*description.elements())
        answer = self._ask("POST", f"/id/{_path(ark)}", body)
        if not answer.ok and "no such identifier" in answer.text:
            answer = self._ask("PUT", f"/id/{_path(ark)}?update_if_exists=yes", body)
        _check(answer)

    def look_up(self, ark: str) -> list[Element] | None:
        """All that EZID knows of the ARK; None if it does not know it."""
        answer = self._ask("GET", f"/id/{_path(ark)}", b"")
        if not answer.ok and "no such identifier" in answer.text:
            return None
        _check(answer)
        return answer.elements

    def _ask(self, method: str, path: str, body: bytes, *, repeatable: bool = True) -> _Answer:
        reason = ""
        for tried in range(len(self._pauses) + 1):
            if tried:
                self._pause(self._pauses[tried - 1])
            try:
                answer = self._once(method, path, body)
                if answer.said and answer.status < 500 and answer.status not in _LATER:
                    return answer
                reason = f"it answered {answer.status} {answer.text}".rstrip()
                heard = not (answer.said == "error" and answer.status in _NOT_BEGUN)
            except _NotAnswered as error:
                reason, heard = str(error), error.heard
            if heard and not repeatable:
                raise Unsure(
                    f"EZID may have minted an ARK that nobody knows: {reason}. Look for {path} there before trying again."
                )
        raise Unavailable(f"EZID did not do it in {len(self._pauses) + 1} tries: {reason}.")

    def _once(self, method: str, path: str, body: bytes) -> _Answer:
        headers = {"content-type": "text/plain; charset=UTF-8", "accept": "text/plain"}
        came = bytearray()
        try:
            with self._client.stream(
                method, self._url + path, content=body, headers=headers, auth=self._auth, timeout=self._timeout
            ) as answer:
                for portion in answer.iter_bytes():
                    came += portion
                    if len(came) > _LONGEST_ANSWER:
                        raise _NotAnswered("its answer has no end", heard=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _NotAnswered(f"no connection ({error})", heard=False) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise Refused(f"EZID cannot be asked: {error}.") from error
        except httpx2.HTTPError as error:
            raise _NotAnswered(f"the connection was cut ({type(error).__name__})", heard=True) from error
        return _answer(answer.status_code, bytes(came))


def target(base: str, ark: str) -> str:
    """Where an ARK leads: the page of the object.

    Its ARK is encoded once here, and again by the escapes of the message.
    """
    return f"{base.rstrip('/')}/m/{quote(ark, safe='')}"


def _answer(status: int, data: bytes) -> _Answer:
    try:
        (label, text), *elements = anvl.read(data, escaped=True)
    except (anvl.BadAnvl, ValueError):
        return _Answer(status, "", "", [])
    if label not in ("success", "error"):
        return _Answer(status, "", "", [])
    return _Answer(status, label, text, elements)


def _check(answer: _Answer) -> None:
    if answer.ok:
        return
    if answer.status == 401:
        raise Refused("EZID does not know this user name and password: correct them in the configuration.")
    raise Refused(f"EZID refused it: {answer.text} ({answer.status}).")


def _body(*elements: Element) -> bytes:
    return _encoded(f"{label}: {value}\n" for label, value in elements)


def _encoded(lines: Iterable[str]) -> bytes:
    try:
        return "".join(lines).encode()
    except UnicodeEncodeError:
        raise Refused("A text for EZID holds half of a surrogate pair, which UTF-8 cannot express.") from None


def _path(identifier: str) -> str:
    return quote(identifier, safe=":/")
