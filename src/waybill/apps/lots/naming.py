"""The names under which manifests and arc states are published: the state is in the name, so a listing tells it.

    datasets/name=NAME/version=VERSION/lot=LOT/state=STATE[/attempt=ATTEMPT]/manifest.json
    arcs/project=NAME/version=VERSION/arc=ARC/lot=LOT/STATE.arc

Such a name ends early, with a `/`, when it means all that lies below. A manifest of an attempt that did not succeed
(partial, removed) carries the attempt, so attempts never overwrite each other. Names without a generation always tell of
the newest one; the manifests of an older generation lie below `lot=LOT/generation=N/`.

Names are read in any form that other tools write: a whole URI or a key, with or without a leading `/`, percent-encoded,
parts with their label or bare (`NAME/VERSION/LOT/STATE`), and with `{placeholders}` where a part is open.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args
from urllib.parse import unquote

from waybill.apps.lots.path_filters import path_of
from waybill.errors import InputError

ManifestState = Literal["complete", "partial", "empty", "removed"]
ArcState = Literal["running", "complete", "partial", "missing"]
MANIFEST_STATES: tuple[ManifestState, ...] = get_args(ManifestState)
ARC_STATES: tuple[ArcState, ...] = get_args(ArcState)
STATES_OF_ATTEMPTS = ("partial", "removed")  # their manifests tell of one attempt
MANIFEST_FILE = "manifest.json"

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_OPTIONAL_PART = re.compile(r"\{/[^{}]*\}")  # a part that an expansion leaves out, with its slash
_OPEN = "\0"  # stands for a placeholder
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str, what: str) -> str:
    """Return a name that can be a part of a key; raises InputError."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the {what}: 1 to 100 letters, digits, dots, hyphens or underscores, a letter or digit first."
        )
    return name


class ManifestKey(NamedTuple):
    """Which manifest: of a dataset, of one lot of it, in one state, of one attempt; all but the dataset may be open."""

    dataset: str
    version: str
    lot: str | None = None
    state: ManifestState | None = None
    attempt: str | None = None
    generation: int | None = None  # of an older generation; None: the newest

    @property
    def folder(self) -> str:
        """The name of the folder that holds it, with a `/` at the end."""
        parts = ["datasets", f"name={self.dataset}", f"version={self.version}"]
        if self.lot is not None:
            parts.append(f"lot={self.lot}")
            if self.generation is not None:
                parts.append(f"generation={self.generation}")
            if self.state is not None:
                parts.append(f"state={self.state}")
                if self.attempt is not None:
                    parts.append(f"attempt={self.attempt}")
        return "/".join(parts) + "/"

    @property
    def key(self) -> str:
        """The name of the manifest itself; of its folder while the state is open."""
        return f"{self.folder}{MANIFEST_FILE}" if self.state is not None else self.folder

    @property
    def template(self) -> str:
        """The name with placeholders for lot, state and attempt, in the syntax of RFC 6570."""
        lot = "{lot}" if self.lot is None else self.lot
        state = "{state}" if self.state is None else self.state
        below = self._replace(lot=None, state=None, attempt=None, generation=None).folder
        return f"{below}lot={lot}/state={state}{{/attempt*}}/{MANIFEST_FILE}"

    @classmethod
    def parse(cls, text: str) -> ManifestKey:
        """Return the key that a name or URI spells; raises InputError when it names no dataset."""
        parts = _read_parts(text, "datasets", ("name", "version", "lot", "state", "attempt"))
        name, version = parts.get("name"), parts.get("version")
        if name is None or version is None:
            raise InputError(f"{text!r} names no manifest: it has no name and version of a dataset.")
        state = parse_manifest_state(parts["state"]) if "state" in parts else None
        if "state" in parts and state is None:
            raise InputError(
                f"{text!r} names no manifest: {parts['state']!r} is no state; states are {', '.join(MANIFEST_STATES)}."
            )
        generation = parts.get("generation")
        if generation is not None and not re.fullmatch(r"[0-9]{1,9}", generation):
            raise InputError(f"{text!r} names no manifest: {generation!r} is no number of a generation.")
        return cls(
            name, version, parts.get("lot"), state, parts.get("attempt"), int(generation) if generation else None
        )


class ArcStateKey(NamedTuple):
    """Which arc state: of an arc, of one lot, in one state; lot and state may be open."""

    project: str
    version: str
    arc: str
    lot: str | None = None
    state: ArcState | None = None

    @property
    def folder(self) -> str:
        parts = ["arcs", f"project={self.project}", f"version={self.version}", f"arc={self.arc}"]
        if self.lot is not None:
            parts.append(f"lot={self.lot}")
        return "/".join(parts) + "/"

    @property
    def key(self) -> str:
        return f"{self.folder}{self.state}.arc" if self.lot is not None and self.state is not None else self.folder

    @classmethod
    def parse(cls, text: str) -> ArcStateKey:
        """Return the key that a name or URI spells; raises InputError when it names no arc."""
        parts = _read_parts(text, "arcs", ("project", "version", "arc", "lot", "state"))
        project, version, arc = parts.get("project"), parts.get("version"), parts.get("arc")
        if project is None or version is None or arc is None:
            raise InputError(f"{text!r} names no arc state: it has no project, version and arc.")
        state = parse_arc_state(parts["state"]) if "state" in parts else None
        if "state" in parts and state is None:
            raise InputError(
                f"{text!r} names no arc state: {parts['state']!r} is no state; states are {', '.join(ARC_STATES)}."
            )
        return cls(project, version, arc, parts.get("lot"), state)


def parse_manifest_state(text: str) -> ManifestState | None:
    """Return the state that a part of a name spells (`partial`, `state=partial`, `STATE=PARTIAL`), None if none."""
    found = _read_state(text)
    return next((state for state in MANIFEST_STATES if state == found), None)


def parse_arc_state(text: str) -> ArcState | None:
    """Return the state that a part of a name spells (`running.arc`, `state=running`), None if none."""
    found = _read_state(text)
    return next((state for state in ARC_STATES if state == found), None)


def _read_state(text: str) -> str:
    return text.rpartition("=")[2].partition(".")[0].lower()


def _read_parts(text: str, top: str, labels: tuple[str, ...]) -> dict[str, str]:
    """Return the parts of a name by their labels. Bare parts are taken in the order of `labels`."""
    path = _PLACEHOLDER.sub(_OPEN, _OPTIONAL_PART.sub("", unquote(path_of(text))))
    segments = [segment for segment in path.split("/") if segment]
    if top in segments:
        segments = segments[segments.index(top) + 1 :]
    found: dict[str, str] = {}
    places = iter(labels)
    for segment in segments:
        label, is_named, value = segment.partition("=")
        if segment == MANIFEST_FILE:
            break
        if is_named and label in (*labels, "generation"):
            found.update({label: value} if value not in ("", _OPEN) else {})
            for place in places:
                if place == label:
                    break
            else:
                places = iter(labels[labels.index(label) + 1 :] if label in labels else labels[3:])
        elif (bare := next(places, None)) is not None:
            if segment != _OPEN:
                found[bare] = segment
        else:
            raise InputError(f"{text!r} has more parts than {', '.join(labels)}: {segment!r}.")
    return found
