"""A trace for other tools: OpenLineage (a run event for each work) and W3C PROV (PROV-JSON).

Data are OpenLineage datasets and PROV entities, work is a run or an activity. Between two data with no work between them
PROV says that one was derived from the other; OpenLineage has no place for that, so a run stands for the step between.
"""

from __future__ import annotations

import uuid
from typing import Any

from waybill.tracing.graph import TraceGraph, TraceNode

PRODUCER = "urn:waybill"
SCHEMA_URL = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
NAMESPACE = "waybill"
UNKNOWN_TIME = "1970-01-01T00:00:00Z"
_RUN_IDS = uuid.UUID("7a3c6a44-52a5-5a0c-8c3e-6a35b4a4f6d1")


def to_open_lineage(graph: TraceGraph) -> list[dict[str, Any]]:
    """One COMPLETE event for each work, with its inputs and outputs."""
    nodes = {node.key: node for node in graph.nodes}
    events = []
    for node in graph.nodes:
        if node.is_data:
            continue
        inputs = [e.source for e in graph.edges if e.target == node.key and nodes[e.source].is_data]
        outputs = [e.target for e in graph.edges if e.source == node.key and nodes[e.target].is_data]
        events.append(_run_event(node.key, f"{node.application}.{node.type}", node.at, inputs, outputs))
    for edge in graph.edges:
        source, target = nodes[edge.source], nodes[edge.target]
        if source.is_data and target.is_data:
            name = f"{target.application}.{edge.label.replace(' ', '-')}"
            events.append(_run_event(f"{source.key} {target.key}", name, target.at, [source.key], [target.key]))
    return events


def _run_event(key: str, job: str, at: str, inputs: list[str], outputs: list[str]) -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": at or UNKNOWN_TIME,
        "producer": PRODUCER,
        "schemaURL": SCHEMA_URL,
        "run": {"runId": str(uuid.uuid5(_RUN_IDS, key))},
        "job": {"namespace": NAMESPACE, "name": job},
        "inputs": [{"namespace": NAMESPACE, "name": name} for name in inputs],
        "outputs": [{"namespace": NAMESPACE, "name": name} for name in outputs],
    }


def to_prov(graph: TraceGraph) -> dict[str, Any]:
    nodes = {node.key: node for node in graph.nodes}
    document: dict[str, Any] = {
        "prefix": {"waybill": f"{PRODUCER}:"},
        "entity": {_name_of(n): _attributes_of(n) for n in graph.nodes if n.is_data},
        "activity": {_name_of(n): _attributes_of(n) for n in graph.nodes if not n.is_data},
    }
    for number, edge in enumerate(graph.edges, 1):
        source, target = nodes[edge.source], nodes[edge.target]
        match source.is_data, target.is_data:
            case True, True:
                relation, ends = "wasDerivedFrom", ("prov:generatedEntity", "prov:usedEntity")
            case True, False:
                relation, ends = "used", ("prov:activity", "prov:entity")
            case False, True:
                relation, ends = "wasGeneratedBy", ("prov:entity", "prov:activity")
            case _:
                relation, ends = "wasInformedBy", ("prov:informed", "prov:informant")
        document.setdefault(relation, {})[f"_:e{number}"] = {ends[0]: _name_of(target), ends[1]: _name_of(source)}
    return document


def _name_of(node: TraceNode) -> str:
    """A qualified name: the key is its local part."""
    return node.key if node.key.startswith("waybill:") else f"waybill:{node.key}"


def _attributes_of(node: TraceNode) -> dict[str, Any]:
    attributes: dict[str, Any] = {"prov:label": node.label, "prov:type": f"{node.application}.{node.type}"}
    if node.state:
        attributes["waybill:state"] = node.state
    if node.at:
        attributes["waybill:at"] = {"$": node.at, "type": "xsd:dateTime"}
    return attributes
