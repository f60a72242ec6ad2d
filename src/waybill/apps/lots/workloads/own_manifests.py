"""Manifests that a workload writes itself (`manifest = "own"`): what they claim must lie in the sink."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from waybill.apps.lots.lot_manifests import LotManifest, decode_manifest
from waybill.apps.lots.naming import ManifestKey
from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed, iter_files
from waybill.manifests import ManifestError

MAX_MANIFEST = 64 * 1024 * 1024


def read_own_manifests(work: PartWork) -> dict[str, list[Path]]:
    """Return by role the files that the workload's manifests name. Raises WorkloadFailed when one is missing, names what is
    not there, or says `partial`.
    """
    return {role: _read_role(work, role) for role in work.sink_datasets}


def _read_role(work: PartWork, role: str) -> list[Path]:
    dataset = work.sink_datasets[role]
    top = work.folder / "sink-manifests" / ManifestKey(dataset.name, dataset.version, work.part.lot).folder
    found = [path for path in iter_files(top) if path.suffix == ".json"] if top.is_dir() else []
    if not found:
        raise WorkloadFailed(
            f'It exited with 0 and wrote no manifest for the sink {role}; with manifest = "own" it must, by sinkManifestTemplates.'
        )
    if len(found) > 1:
        raise WorkloadFailed(f"It wrote {len(found)} manifests for the sink {role}; a lot has one.")
    if found[0].stat().st_size > MAX_MANIFEST:
        raise WorkloadFailed(f"Its manifest for the sink {role} has more than {MAX_MANIFEST} bytes.")
    try:
        manifest = decode_manifest(found[0].read_bytes(), f"its manifest for the sink {role}")
    except ManifestError as error:
        raise WorkloadFailed(str(error)) from error
    if manifest.state not in ("complete", "empty"):
        raise WorkloadFailed(
            f"Its manifest for the sink {role} says {manifest.state}{f': {manifest.comment}' if manifest.comment else '.'}"
        )
    if manifest.state == "empty" and manifest.uris:
        raise WorkloadFailed(f"Its manifest for the sink {role} says empty, and names {len(manifest.uris)} objects.")
    files: dict[Path, None] = {}
    for uri in manifest.uris:
        files.update(dict.fromkeys(_find_files(work, role, manifest, uri)))
    return list(files)


def _find_files(work: PartWork, role: str, manifest: LotManifest, uri: str) -> list[Path]:
    root = work.sink(role)
    seen = f"{work.seen_folder}/sinks/{role}/"
    path = unquote(urlsplit(uri).path) if uri.startswith("file:") else ""
    if not path.startswith(seen) or ".." in path.split("/"):
        raise WorkloadFailed(
            f"Its manifest for the sink {role} names {uri}, which does not lie in the sink, file://{seen}."
        )
    place = root / path[len(seen) :]
    if manifest.uriType == "identifier":
        if not place.is_file() or place.is_symlink():
            raise WorkloadFailed(f"Its manifest for the sink {role} names {uri}, and there is no such file.")
        return [place]
    if manifest.uriType == "path":
        if not place.is_dir():
            raise WorkloadFailed(f"Its manifest for the sink {role} names {uri}, and there is no such folder.")
        return list(iter_files(place))
    nearby = iter_files(place.parent) if place.parent.is_dir() else iter(())
    matching = [each for each in nearby if each.parent == place.parent and each.name.startswith(place.name)]
    if len(matching) != 1:
        raise WorkloadFailed(f"The prefix {uri} in its manifest means {len(matching)} files; it must mean one.")
    return matching
