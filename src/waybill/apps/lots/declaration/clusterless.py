"""The JSON of Clusterless as a project file of ours.

Mapped are put listeners, copy arcs and batch arcs; a component of another type is refused by its name, because leaving
it out would leave a dataset without its owner. Resources are left out: Waybill has one object store, or what a path names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waybill.errors import InputError

BOUNDARY_TYPES = ("aws:core:s3PutListenerBoundary",)
COPY_TYPES = ("aws:core:s3CopyArc",)
BATCH_TYPES = ("aws:core:batchExecArc",)


def is_clusterless(document: Any) -> bool:
    return isinstance(document, Mapping) and isinstance(document.get("project"), Mapping)


def map_clusterless(document: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of a project file of ours."""
    try:
        return _ClusterlessMapper(title).map(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{title} is no project file of Clusterless: {type(error).__name__} at {error}.") from error


class _ClusterlessMapper:
    def __init__(self, title: str) -> None:
        self._title = title
        self._datasets: dict[str, Any] = {}

    def map(self, document: Mapping[str, Any]) -> dict[str, Any]:
        for part in ("activities", "barriers"):
            for each in document.get(part) or ():
                raise self._refuse(part, each)
        project = document["project"]
        boundaries = {each["name"]: self._map_boundary(each) for each in document.get("boundaries") or ()}
        arcs = {each["name"]: self._map_arc(each) for each in document.get("arcs") or () if not each.get("exclude")}
        return {
            "name": project["name"],
            "version": project["version"],
            "datasets": self._datasets,
            "boundaries": boundaries,
            "arcs": arcs,
        }

    def _refuse(self, part: str, each: Mapping[str, Any]) -> InputError:
        known = ", ".join((*BOUNDARY_TYPES, *COPY_TYPES, *BATCH_TYPES))
        return InputError(
            f"{self._title}: {part}.{each.get('name', '?')} is a "
            f"{each.get('type', 'component without a type')}, which has no counterpart here; "
            f"there is one for {known}. Write it as a project file of Waybill."
        )

    def _note_dataset(self, dataset: Mapping[str, Any]) -> str:
        key = f"{dataset['name']}/{dataset['version']}"
        self._datasets[key] = {"path": dataset["pathURI"]}
        return key

    def _map_boundary(self, each: Mapping[str, Any]) -> dict[str, Any]:
        if each["type"] not in BOUNDARY_TYPES:
            raise self._refuse("boundaries", each)
        filters = each.get("filter") or {}
        infrequent = each.get("infrequent") or {}
        is_infrequent = each.get("eventArrival", "infrequent") == "infrequent"
        modified = is_infrequent and infrequent.get("lotSource", "objectModifiedTime") == "objectModifiedTime"
        return {
            "dataset": self._note_dataset(each["dataset"]),
            "unit": each["lotUnit"],
            "watch": each["dataset"]["pathURI"],
            "time": "modified" if modified else "arrival",
            "include": tuple(filters.get("includes") or ()),
            "exclude": tuple(filters.get("excludes") or ()),
        }

    def _map_arc(self, each: Mapping[str, Any]) -> dict[str, Any]:
        props = dict((each.get("workload") or {}).get("workloadProps") or {})
        mapped: dict[str, Any] = {
            "sources": {
                role: {"dataset": f"{source['name']}/{source['version']}", "subscribe": source.get("subscribe", True)}
                for role, source in each["sources"].items()
            },
            "sinks": {role: self._note_dataset(sink) for role, sink in each["sinks"].items()},
        }
        if each["type"] in COPY_TYPES:
            filters = props.pop("filter", None) or {}
            mapped["copy"] = {
                "include": tuple(filters.get("includes") or ()),
                "exclude": tuple(filters.get("excludes") or ()),
                "fail_share": float(props.pop("failArcOnPartialPercent", 0.0)),
            }
        elif each["type"] in BATCH_TYPES:
            runtime = props.pop("batchRuntimeProps", None) or {}
            mapped["image"] = each["imagePath"] if "imagePath" in each else props.pop("imagePath")
            mapped["command"] = tuple(each.get("command") or props.pop("command", ()))
            mapped["environment"] = dict(each.get("environment") or props.pop("environment", None) or {})
            mapped["memory"] = int(runtime.get("memorySizeMB", 1024)) * 1024 * 1024
            mapped["retries"] = int(runtime.get("retryAttempts", 0))
            mapped["timeout"] = float(runtime.get("timeoutMin", 60)) * 60
            mapped["manifest"] = "own"
        else:
            raise self._refuse("arcs", each)
        mapped["props"] = props
        return mapped
