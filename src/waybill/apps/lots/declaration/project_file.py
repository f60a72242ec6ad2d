"""Reads a project file: TOML, or JSON of the same fields, or the JSON of Clusterless.

    name = "shop"
    version = "1"

    [datasets.orders]                      # its version is 1 unless it says another
    path = "orders/"

    [boundaries.orders-in]
    dataset = "orders"
    unit = "PT5M"
    grace = "1m"

    [arcs.count]
    sources = { main = "orders" }
    sinks = { main = "counts" }
    command = "wc -l $(find /sources/main -type f) > /sinks/main/lines.txt"

A dataset is named NAME/VERSION, or by its name alone if it is of version 1. A field that is not known, and a value that
cannot be meant, is refused with the place where it stands.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from waybill.apps.lots.declaration.clusterless import is_clusterless, map_clusterless
from waybill.apps.lots.declaration.documents import (
    ArcDeclaration,
    BoundaryDeclaration,
    DatasetDeclaration,
    EmptyPolicy,
    FailurePolicy,
    ManifestPolicy,
    PartPolicy,
    ProjectDeclaration,
    QuietPolicy,
    SinkDeclaration,
    SourceDeclaration,
    TimeSource,
    WorkloadDeclaration,
)
from waybill.apps.lots.naming import check_name
from waybill.apps.lots.path_filters import PathFilter
from waybill.apps.lots.units import UNITS, Lot, find_unit, parse_instant
from waybill.errors import InputError

MAX_FILE = 4 * 1024 * 1024  # bytes
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_KEY_GROUPS = ("year", "month", "day", "hour", "minute")

Duration = float | str
T = TypeVar("T")


class _Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"begin": "from"}):
    pass


class DatasetEntry(_Entry, frozen=True):
    path: str
    name: str = ""
    version: str = "1"
    begins: str = ""
    keep: Duration | None = None
    archive: str = ""
    due: Duration = 0.0
    notify: tuple[str, ...] | str = ()


class BoundaryEntry(_Entry, frozen=True):
    dataset: str
    unit: str
    time: TimeSource = "arrival"
    pattern: str = ""
    grace: Duration = 0.0
    quiet: QuietPolicy = "empty"
    watch: str = ""
    poll: Duration = 10.0
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class SourceEntry(_Entry, frozen=True):
    dataset: str
    subscribe: bool = True


class CopyEntry(_Entry, frozen=True):
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    fail_share: float = 0.0


class ArcEntry(_Entry, frozen=True):
    sources: dict[str, str | SourceEntry]
    sinks: dict[str, str]
    unit: str = ""
    command: str | tuple[str, ...] = ()
    function: str = ""
    image: str = ""
    copy: bool | CopyEntry = False
    props: dict[str, Any] = {}
    environment: dict[str, str] = {}
    network: bool = False
    memory: int = 256 * 1024 * 1024
    disk: int = 1024 * 1024 * 1024
    timeout: Duration = 3600.0
    manifest: ManifestPolicy = "sink"
    on_empty: EmptyPolicy = "propagate"
    on_failure: FailurePolicy = "remove"
    parts: PartPolicy = "one"
    part_bytes: int = 1024 * 1024 * 1024
    limit: int = 1
    retries: int = 0
    backoff: Duration = 10.0
    after: Duration | None = None
    order: str = ""
    begin: str = "now"
    paused: bool = False


class ProjectFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str
    version: str = "1"
    datasets: dict[str, DatasetEntry] = {}
    boundaries: dict[str, BoundaryEntry] = {}
    arcs: dict[str, ArcEntry] = {}


def read_project(path: Path, *, known_units: dict[str, str] | None = None) -> ProjectDeclaration:
    """Return the project of a file. `known_units`: of datasets of other projects, by id."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    return parse_project(body, str(path), known_units=known_units)


def parse_project(body: bytes, title: str, *, known_units: dict[str, str] | None = None) -> ProjectDeclaration:
    """Return the project of these bytes, JSON if they begin with a brace; raises InputError that names the place."""
    if len(body) > MAX_FILE:
        raise InputError(f"{title} has {len(body)} bytes; a project file has at most {MAX_FILE}.")
    try:
        text = body.decode()
        found: Any = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{title} is no project file: {error}.") from error
    if is_clusterless(found):
        found = map_clusterless(found, title)
    try:
        file = msgspec.convert(found, ProjectFile)
    except msgspec.ValidationError as error:
        raise InputError(f"{title}: {error}.") from error
    return _ProjectBuilder(file, title, known_units or {}).build()


class _ProjectBuilder:
    """Completes a file: names, units, owners."""

    def __init__(self, file: ProjectFile, title: str, known_units: dict[str, str]) -> None:
        self._file, self._title = file, title
        self._units = dict(known_units)
        self._entries: dict[str, tuple[str, DatasetEntry]] = {}
        self._owners: dict[str, list[str]] = {}

    def build(self) -> ProjectDeclaration:
        file = self._file
        project = check_name(file.name, "name of a project")
        check_name(file.version, "version of a project")
        for label, entry in file.datasets.items():
            name, _, version = label.partition("/")
            id = dataset_id_of(f"{entry.name or name}/{version or entry.version}")
            if id in self._entries:
                raise self._error("datasets", label, f"{id.replace(':', '/')} is declared twice")
            self._entries[id] = (label, entry)
        boundaries = tuple(self._build_boundary(project, name, entry) for name, entry in file.boundaries.items())
        arcs = self._build_arcs(project)
        datasets = tuple(self._build_dataset(project, id, label, entry) for id, (label, entry) in self._entries.items())
        return ProjectDeclaration(project, file.version, datasets, boundaries, arcs)

    def _error(self, part: str, name: str, problem: str) -> InputError:
        return InputError(f"{self._title}: {part}.{name}: {problem}.")

    def _build_dataset(self, project: str, id: str, label: str, entry: DatasetEntry) -> DatasetDeclaration:
        name, _, version = id.partition(":")
        owners = self._owners.get(id, [])
        if len(owners) > 1:
            raise self._error(
                "datasets", label, f"it has {len(owners)} owners, {' and '.join(owners)}; only one can make its lots"
            )
        if not owners:
            raise self._error(
                "datasets",
                label,
                "nothing makes its lots; name it in a boundary or in a sink of an arc, or leave it out",
            )
        if entry.begins:
            self._place("datasets", label, lambda: check_begin(entry.begins))
        notify = (entry.notify,) if isinstance(entry.notify, str) else entry.notify
        keep = None if entry.keep is None else self._seconds("datasets", label, "keep", entry.keep)
        return DatasetDeclaration(
            project, name, version, check_path(entry.path, self._error("datasets", label, f"path {entry.path!r} is no folder of objects")),
            self._units[id], owners[0], entry.begins, keep, self._seconds("datasets", label, "due", entry.due), notify, entry.archive,
        )  # fmt: skip

    def _build_boundary(self, project: str, name: str, entry: BoundaryEntry) -> BoundaryDeclaration:
        check_name(name, "name of a boundary")
        unit = self._place("boundaries", name, lambda: find_unit(entry.unit)).name
        dataset = self._own_dataset("boundaries", name, entry.dataset, f"boundary {project}:{name}", unit)
        if entry.time == "key":
            self._check_pattern(name, entry.pattern)
        elif entry.pattern:
            raise self._error("boundaries", name, 'a pattern is for time = "key"')
        self._place("boundaries", name, lambda: PathFilter("/", entry.include, entry.exclude))
        return BoundaryDeclaration(
            project, name, dataset, unit, entry.time, entry.pattern, self._seconds("boundaries", name, "grace", entry.grace),
            entry.quiet, entry.watch, max(0.1, self._seconds("boundaries", name, "poll", entry.poll)), entry.include, entry.exclude,
        )  # fmt: skip

    def _check_pattern(self, name: str, pattern: str) -> None:
        try:
            groups = re.compile(pattern).groupindex
        except re.error as error:
            raise self._error(
                "boundaries", name, f"the pattern {pattern!r} is no regular expression: {error}"
            ) from error
        if not {"year", "month", "day"} <= set(groups) or not set(groups) <= set(_KEY_GROUPS):
            raise self._error(
                "boundaries",
                name,
                'the pattern of time = "key" has the groups (?P<year>…), month, day, and hour and minute if a lot is shorter than a day',
            )

    def _build_arcs(self, project: str) -> tuple[ArcDeclaration, ...]:
        """Build each arc after those that make its sources, whose unit it takes."""
        waiting, built = dict(self._file.arcs), dict[str, ArcDeclaration]()
        for name, entry in waiting.items():
            check_name(name, "name of an arc")
            for sink in entry.sinks.values():
                id = dataset_id_of(sink)
                if id not in self._entries:
                    raise self._error("arcs", name, f"its sink {sink} is no dataset of this project; declare it")
        while waiting:
            ready = [
                n for n, e in waiting.items() if all(self._source_id(s) in self._units for s in e.sources.values())
            ]
            if not ready:
                self._refuse_sources(waiting)
            for name in ready:
                built[name] = self._build_arc(project, name, waiting.pop(name))
        return tuple(built[name] for name in self._file.arcs)

    def _refuse_sources(self, waiting: dict[str, ArcEntry]) -> None:
        made = {dataset_id_of(sink) for entry in waiting.values() for sink in entry.sinks.values()}
        for name, entry in waiting.items():
            for source in entry.sources.values():
                id = self._source_id(source)
                if id not in self._units and id not in made:
                    raise self._error(
                        "arcs",
                        name,
                        f"there is no dataset {id.replace(':', '/')}, its source; declare it, or apply its project first",
                    )
        raise self._error(
            "arcs", " and ".join(waiting), "they make each other's sources in a circle; no lot could ever be the first"
        )

    def _source_id(self, source: str | SourceEntry) -> str:
        return dataset_id_of(source if isinstance(source, str) else source.dataset)

    def _build_arc(self, project: str, name: str, entry: ArcEntry) -> ArcDeclaration:
        if not entry.sources or not entry.sinks:
            raise self._error("arcs", name, "an arc has at least one source and one sink")
        for role in (*entry.sources, *entry.sinks):
            self._place("arcs", name, partial(check_name, role, "role of a dataset"))
        sources = []
        for role, source in entry.sources.items():
            id = self._source_id(source)
            sources.append(
                SourceDeclaration(
                    role, id, self._units[id], source.subscribe if isinstance(source, SourceEntry) else True
                )
            )
        if not any(source.subscribe for source in sources):
            raise self._error("arcs", name, "it subscribes to none of its sources, so it would never start")
        unit = (
            self._place("arcs", name, lambda: find_unit(entry.unit))
            if entry.unit
            else max((each.lot_unit for each in sources), key=lambda each: each.minutes)
        )
        for declared in sources:
            if not declared.lot_unit.nests_in(unit):
                raise self._error(
                    "arcs",
                    name,
                    f"lots of {declared.unit}, of its source {declared.dataset.replace(':', '/')}, do not nest in lots of {unit}",
                )
        for sink in entry.sinks.values():
            self._own_dataset("arcs", name, sink, f"arc {project}:{name}", unit.name)
        sinks = tuple(SinkDeclaration(role, dataset_id_of(sink)) for role, sink in entry.sinks.items())
        if len({sink.dataset for sink in sinks}) < len(sinks):
            raise self._error("arcs", name, "two of its sinks are one dataset")
        if entry.order not in ("", "strict", "any"):
            raise self._error("arcs", name, f'order is "strict" or "any", not {entry.order!r}')
        if not 1 <= entry.limit <= 1000:
            raise self._error(
                "arcs", name, f"limit is the number of lots that run at once, 1 to 1000, not {entry.limit}"
            )
        if not 0 <= entry.retries <= 100:
            raise self._error("arcs", name, f"retries is 0 to 100, not {entry.retries}")
        if entry.part_bytes < 1:
            raise self._error("arcs", name, "part_bytes is the size of a part, at least 1")
        begin = "" if entry.begin == "now" else entry.begin
        if begin:
            self._place("arcs", name, lambda: check_begin(begin))
        return ArcDeclaration(
            project, self._file.version, name, unit.name, tuple(sources), sinks, self._build_workload(name, entry),
            entry.on_empty, entry.on_failure, entry.parts, entry.part_bytes, entry.limit, entry.retries,
            self._seconds("arcs", name, "backoff", entry.backoff),
            None if entry.after is None else self._seconds("arcs", name, "after", entry.after),
            entry.order == "strict", begin, entry.paused,
        )  # fmt: skip

    def _build_workload(self, name: str, entry: ArcEntry) -> WorkloadDeclaration:
        command = (entry.command,) if isinstance(entry.command, str) else entry.command
        copy = CopyEntry() if entry.copy is True else entry.copy or None
        given = [
            word
            for word, is_given in (
                ("command", command and not entry.image),
                ("function", entry.function),
                ("image", entry.image),
                ("copy", copy),
            )
            if is_given
        ]
        if len(given) != 1:
            raise self._error(
                "arcs",
                name,
                f"it has {' and '.join(given) or 'no workload'}; an arc has one of command, function, image "
                "(with a command or without) and copy",
            )
        if entry.function and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", entry.function):
            raise self._error("arcs", name, f"{entry.function!r} names no function; write module:name")
        kind = "container" if entry.image else given[0]
        if copy is not None:
            filters = copy
            self._place("arcs", name, lambda: PathFilter("/", filters.include, filters.exclude))
            if not 0 <= copy.fail_share <= 1:
                raise self._error("arcs", name, "fail_share is a share from 0 to 1")
        if entry.manifest == "own" and kind in ("copy", "function"):
            raise self._error("arcs", name, 'manifest = "own" is for commands and containers')
        timeout = self._seconds("arcs", name, "timeout", entry.timeout)
        if timeout <= 0 or entry.memory < 32 * 1024 * 1024 or entry.disk < 1024 * 1024:
            raise self._error(
                "arcs", name, "timeout must be more than 0, memory at least 32 MiB and disk at least 1 MiB, in bytes"
            )
        return WorkloadDeclaration(
            kind, command, entry.function, entry.image, json.dumps(entry.props, separators=(",", ":")),  # type: ignore[arg-type]
            tuple(entry.environment.items()), copy.include if copy else (), copy.exclude if copy else (),
            copy.fail_share if copy else 0.0, entry.network, entry.memory, entry.disk, timeout, entry.manifest,
        )  # fmt: skip

    def _own_dataset(self, part: str, name: str, dataset: str, owner: str, unit: str) -> str:
        id = dataset_id_of(dataset)
        if id not in self._entries:
            raise self._error(part, name, f"{dataset} is no dataset of this project; declare it under [datasets]")
        self._owners.setdefault(id, []).append(owner)
        self._units[id] = unit
        return id

    def _seconds(self, part: str, name: str, field: str, value: Duration) -> float:
        return self._place(part, name, lambda: parse_duration(value, field))

    def _place(self, part: str, name: str, read: Callable[[], T]) -> T:
        """Say where in the file an error is."""
        try:
            return read()
        except InputError as error:
            raise self._error(part, name, str(error).rstrip(".")) from error


def dataset_id_of(text: str) -> str:
    """Return the id of the dataset that NAME/VERSION names, or NAME alone for version 1."""
    name, _, version = text.partition("/")
    return f"{check_name(name, 'name of a dataset')}:{check_name(version or '1', 'version of a dataset')}"


def parse_duration(value: Duration, field: str = "duration") -> float:
    """Return seconds: a number, or a number with s, m, h or d."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise InputError(f"{field} = {value!r} is no duration; write 90s, 15m, 2h or 1d.")
        value = float(match[1]) * _SECONDS[(match[2] or "s").lower()]
    if not 0 <= value < 1e9:
        raise InputError(f"{field} = {value} is no duration: seconds from 0 to 1e9.")
    return float(value)


def check_begin(text: str) -> None:
    """A lot, or an instant."""
    minute_of_begin(text)


def minute_of_begin(text: str) -> int:
    """Return the minute at which a lot or an instant begins."""
    if re.match(r"\d{8}P", text):
        return Lot.parse(text).minute
    return Lot.at(parse_instant(text), UNITS["PT1M"]).minute


def check_path(path: str, problem: InputError) -> str:
    """Return the path of a dataset with a slash at its end."""
    bare = path.partition("://")[2] if "://" in path else path
    if not bare.strip("/") or any(part in ("", ".", "..") for part in bare.strip("/").split("/")):
        raise problem
    if "://" in path and path.partition("://")[0] not in ("s3", "file"):
        raise problem
    if "://" not in path and path.startswith("/"):
        raise problem
    return path if path.endswith("/") else f"{path}/"
