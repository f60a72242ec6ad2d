"""What commands and containers are told: CLS_ARC_PROPS_JSON as Clusterless hands it over, and short variables beside it.

    CLS_ARC_PROPS_JSON   {sources, sinks, sourceManifestPaths, sinkManifestTemplates, workloadProps}
    WAYBILL_LOT, WAYBILL_LOT_START, WAYBILL_LOT_END, WAYBILL_GENERATION, WAYBILL_PARTITION, WAYBILL_ATTEMPT
    WAYBILL_SOURCE_ROLE, WAYBILL_SINK_ROLE   the folder of each role, in capitals; without a role, of `main` or the only one

URIs are `file://`: the workload reads and writes folders, and Waybill has the objects.
"""

from __future__ import annotations

import json
import re
from typing import Any

from waybill.apps.lots.declaration.documents import DatasetDeclaration
from waybill.apps.lots.naming import ManifestKey
from waybill.apps.lots.units import format_instant
from waybill.apps.lots.workloads.part_work import PartWork


def build_properties(work: PartWork) -> dict[str, Any]:
    """Return the value of CLS_ARC_PROPS_JSON."""
    seen = work.seen_folder
    return {
        "sources": {role: _describe(each, f"file://{seen}/sources/{role}/") for role, each in work.datasets.items()},
        "sinks": {role: _describe(each, f"file://{seen}/sinks/{role}/") for role, each in work.sink_datasets.items()},
        "sourceManifestPaths": {
            role: f"file://{seen}/manifests/{ManifestKey(each.name, each.version, '{lot}', 'complete').key}"
            for role, each in work.datasets.items()
        },
        "sinkManifestTemplates": {
            role: f"file://{seen}/sink-manifests/{ManifestKey(each.name, each.version).template}"
            for role, each in work.sink_datasets.items()
        },
        "workloadProps": work.props,
    }


def _describe(dataset: DatasetDeclaration, path: str) -> dict[str, str]:
    return {"name": dataset.name, "version": dataset.version, "pathURI": path}


def build_environment(work: PartWork) -> dict[str, str]:
    seen, lot = work.seen_folder, work.lot
    found = {
        "CLS_ARC_PROPS_JSON": json.dumps(build_properties(work), separators=(",", ":")),
        "WAYBILL_ARC": work.arc.title,
        "WAYBILL_LOT": str(lot),
        "WAYBILL_LOT_START": format_instant(lot.start),
        "WAYBILL_LOT_END": format_instant(lot.end),
        "WAYBILL_GENERATION": str(work.part.generation),
        "WAYBILL_PARTITION": work.partition,
        "WAYBILL_ATTEMPT": work.attempt.id,
    }
    for word, roles in (("SOURCE", work.datasets), ("SINK", work.sink_datasets)):
        for role in roles:
            found[f"WAYBILL_{word}_{re.sub(r'[^A-Z0-9]', '_', role.upper())}"] = f"{seen}/{word.lower()}s/{role}"
        first = "main" if "main" in roles else next(iter(roles))
        found[f"WAYBILL_{word}"] = f"{seen}/{word.lower()}s/{first}"
    return {**found, **dict(work.arc.workload.environment)}
