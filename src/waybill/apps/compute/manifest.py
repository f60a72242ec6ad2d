"""The manifest of a job: its phases, as the client wrote them, and checked.

Manta's schema is strict: a field that it does not know is refused. The native API allows more (`PhaseOptions`).
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from waybill.apps.compute.errors import MantaError

MAX_BODY = 100_000  # bytes
MAX_REDUCERS = 1024
MAX_PHASES = 100
MEMORY_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)  # MB
DISK_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # GB
PHASE_TYPES = ("map", "reduce", "storage-map")
MIB, GIB = 2**20, 2**30


class PhaseOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What Manta has not, for the whole job."""

    # seconds of one task; 0: what the settings allow
    timeout: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 0.0
    # how often a task is tried again that failed by the user's fault
    retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 0
    halt: Annotated[int, msgspec.Meta(ge=0)] = 0  # errors after which the job is cancelled; 0: never
    keep_order: bool = False  # the outputs of a done job in the order of its inputs


class Phase(msgspec.Struct, frozen=True, omit_defaults=True):
    exec: str
    type: str = "map"
    init: str = ""
    assets: tuple[str, ...] = ()
    count: int = 1
    memory: int | None = None
    disk: int | None = None
    image: str | None = None
    uarg: dict[str, Any] | None = None

    @property
    def is_reduce(self) -> bool:
        return self.type == "reduce"


class JobManifest(msgspec.Struct, frozen=True):
    name: str
    phases: tuple[Phase, ...]
    raw_phases: list[dict[str, Any]]  # as given, with the type filled in
    options: PhaseOptions = PhaseOptions()

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_manifest(text: str) -> JobManifest:
    return msgspec.json.decode(text, type=JobManifest)


def read_manifest(body: bytes) -> JobManifest:
    """The manifest in the body of a request. Raises InvalidJob, which names the field."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise _refuse("the manifest is not JSON") from None
    return check_manifest(given)


def check_manifest(given: Any, options: PhaseOptions = PhaseOptions()) -> JobManifest:  # noqa: B008 - frozen
    if not isinstance(given, dict):
        raise _refuse("the manifest must be an object")
    for name in given:
        if name not in ("name", "phases", "transient", "options"):
            raise _refuse(f'property "{name}": unsupported property')
    title = given.get("name", "")
    if not isinstance(title, str) or len(title) > 1024 or "\0" in title:
        raise _refuse('property "name": must be a string of at most 1024 characters')
    if not isinstance(given.get("transient", False), bool):
        raise _refuse('property "transient": must be true or false')
    if given.get("options") not in (None, {}):
        raise _refuse('property "options": only for operators of Manta itself')
    phases = given.get("phases")
    if not isinstance(phases, list) or not phases:
        raise _refuse('property "phases": must be a list with at least one phase')
    if len(phases) > MAX_PHASES:
        raise _refuse(f'property "phases": at most {MAX_PHASES} phases are allowed')
    checked = [_check_phase(f"phases[{number}]", phase) for number, phase in enumerate(phases)]
    if options.keep_order and any(phase.is_reduce for phase in checked):
        raise _refuse(
            'property "options.keep_order": only a job without reduce phases can keep the order of its inputs'
        )
    raw = [{**phase, "type": phase.get("type", "map")} for phase in phases]
    return JobManifest(title, tuple(checked), raw, options)


def check_native_manifest(given: dict[str, Any]) -> JobManifest:
    """A manifest of the native API, whose options are those that Manta has not. Raises InvalidJob."""
    try:
        options = msgspec.convert(given.get("options") or {}, PhaseOptions)
    except msgspec.ValidationError as error:
        raise _refuse(f'property "options": {error}') from None
    return check_manifest({name: value for name, value in given.items() if name != "options"}, options)


def _check_phase(where: str, given: Any) -> Phase:
    if not isinstance(given, dict):
        raise _refuse(f'property "{where}": must be an object')
    for name in given:
        if name not in Phase.__struct_fields__:
            raise _refuse(f'property "{where}.{name}": unsupported property')
    command = given.get("exec")
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise _refuse(f'property "{where}.exec": must be a command')
    kind = given.get("type", "map")
    if kind not in PHASE_TYPES:
        raise _refuse(f'property "{where}.type": must be map or reduce')
    init = given.get("init", "")
    if not isinstance(init, str) or "\0" in init:
        raise _refuse(f'property "{where}.init": must be a command')
    assets = given.get("assets", [])
    if not isinstance(assets, list) or not all(isinstance(asset, str) and asset.startswith("/") for asset in assets):
        raise _refuse(f'property "{where}.assets": must be a list of paths of objects')
    count = given.get("count", 1)
    if "count" in given and kind != "reduce":
        raise _refuse(f'property "{where}.count": only reduce phases have a count')
    if type(count) is not int or not 1 <= count <= MAX_REDUCERS:
        raise _refuse(f'property "{where}.count": must be from 1 to {MAX_REDUCERS}')
    for name, sizes in (("memory", MEMORY_SIZES), ("disk", DISK_SIZES)):
        if given.get(name) is not None and (type(given[name]) is not int or given[name] not in sizes):
            raise _refuse(f'property "{where}.{name}": must be one of {", ".join(map(str, sizes))}')
    image, uarg = given.get("image"), given.get("uarg")
    if image is not None and not isinstance(image, str):
        raise _refuse(f'property "{where}.image": must be a string')
    if uarg is not None and not isinstance(uarg, dict):
        raise _refuse(f'property "{where}.uarg": must be an object')
    return Phase(command, "map" if kind == "storage-map" else kind, init, tuple(assets), count, given.get("memory"),
                 given.get("disk"), image, uarg)  # fmt: skip


def _refuse(problem: str) -> MantaError:
    return MantaError("InvalidJob", problem)
