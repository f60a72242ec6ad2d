"""`/docs`: the API as one page, made of the OpenAPI description without any script of others.

Every route has its role, its parameters, an example of what is sent and of what is answered, and the errors that it may answer with.
Examples are built from the schemas: what a schema gives (an example, a default, its first choice), else a value of its type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Response

from waybill.errors import ERROR_CODES
from waybill.http.request_context import declare_role
from waybill.pages.formats import format_json
from waybill.pages.page_context import PageRequest
from waybill.pages.page_routes import make_page_router

MAX_DEPTH = 6  # of an example
METHODS = ("get", "post", "put", "patch", "delete")
EXAMPLE_HOST = "https://waybill.example.org"
_VALUES: Mapping[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
# what is more telling than "text", by the name of the field or parameter
_NAMED_VALUES: Mapping[str, Any] = {
    "id": "pcl0000000001", "kind": "parcel", "state": "Failed", "action": "resume", "owner": "ada", "who": "ada",
    "why": "the disk is repaired", "created": "2026-01-31T12:00:00.000Z", "updated": "2026-01-31T12:00:09.000Z",
    "at": "2026-01-31T12:00:00.000Z", "batch_id": "bid-7f0c2d66", "filename": "photo.tif",
    "title": "A husky in the snow", "ark": "ark:/99999/fk4x", "object": "ark:/99999/fk4x",
    "url": "https://example.org/photo.tif", "hint": "", "upload": "WyJiaWQ...", "name": "demo", "path": "producer/photo.tif",
}  # fmt: skip


class ParameterRow(NamedTuple):
    name: str
    place: str  # path, query, header
    type: str
    is_required: bool
    description: str


class BodyExample(NamedTuple):
    media_type: str
    text: str


class ResponseRow(NamedTuple):
    status: str
    description: str
    examples: list[BodyExample]


class OperationView(NamedTuple):
    """A route of the API."""

    anchor: str
    method: str
    path: str
    summary: str
    description: str
    role: str
    parameters: list[ParameterRow]
    bodies: list[BodyExample]
    responses: list[ResponseRow]  # those that are no errors
    errors: list[tuple[str, str]]  # status, description
    command: str  # with curl


class ApiPart(NamedTuple):
    name: str
    operations: list[OperationView]


def build_router() -> APIRouter:
    routes = make_page_router()
    built: dict[int, list[ApiPart]] = {}  # by application: its description does not change while it runs

    @routes.get("/docs", **declare_role("open"))
    def show_docs(context: PageRequest) -> Response:
        app: FastAPI = context.request.app
        if id(app) not in built:
            built[id(app)] = build_parts(app.openapi())
        return context.render(
            "docs.html",
            parts=built[id(app)],
            codes=sorted(ERROR_CODES.items(), key=lambda item: (item[1].status, item[0])),
            description=app.description,
        )

    return routes


def build_parts(document: Mapping[str, Any]) -> list[ApiPart]:
    parts: dict[str, list[OperationView]] = {}
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                operation = methods[method]
                tag = next(iter(operation.get("tags", ())), "other")
                parts.setdefault(tag, []).append(_build_operation(document, method, path, operation))
    return [ApiPart(name, sorted(found, key=lambda each: (each.path, each.method))) for name, found in parts.items()]


def _build_operation(
    document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]
) -> OperationView:
    parameters = [_resolve(document, each) for each in operation.get("parameters", ())]
    bodies = list(_build_examples(document, operation.get("requestBody", {}).get("content", {}), is_request=True))
    found = [(status, _resolve(document, each)) for status, each in operation.get("responses", {}).items()]
    good = [
        ResponseRow(status, each.get("description", ""), list(_build_examples(document, each.get("content", {}))))
        for status, each in found
        if status[0] in "123"
    ]
    role = (
        operation.get("x-role") or ("reader" if method == "get" else "operator")
        if operation.get("security")
        else "open"
    )
    return OperationView(
        anchor=re.sub(r"[^a-z0-9]+", "-", f"{method}-{path}".lower()).strip("-"),
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        description=operation.get("description", ""),
        role=role if role != "open" else "",
        parameters=[_build_parameter(document, each) for each in parameters],
        bodies=bodies,
        responses=good,
        errors=[(status, each.get("description", "")) for status, each in found if status[0] in "45"],
        command=_build_command(document, method, path, parameters, bodies, has_token=bool(operation.get("security"))),
    )


def _build_parameter(document: Mapping[str, Any], parameter: Mapping[str, Any]) -> ParameterRow:
    schema = _resolve(document, parameter.get("schema", {}))
    about = parameter.get("description", "") or schema.get("description", "")
    return ParameterRow(
        parameter["name"], parameter["in"], _describe_type(document, schema), parameter.get("required", False), about
    )


def _describe_type(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(_describe_type(document, _resolve(document, each)) for each in choices))
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type", "any")
    limits = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    if "maxLength" in schema:
        limits.append(f"at most {schema['maxLength']} characters")
    if isinstance(kind, list):
        kind = " | ".join(kind)
    return f"{kind}, {' '.join(limits)}" if limits else str(kind)


def _build_examples(
    document: Mapping[str, Any], content: Mapping[str, Any], *, is_request: bool = False
) -> Iterator[BodyExample]:
    for media_type, each in content.items():
        schema = each.get("schema", {})
        example = each["example"] if "example" in each else build_example(document, schema, is_request=is_request)
        if media_type == "application/json":
            yield BodyExample(media_type, format_json(example))
        elif media_type.startswith("multipart/") and isinstance(example, dict):
            yield BodyExample(media_type, "\n".join(f"{name}: {value}" for name, value in example.items()))
        else:
            yield BodyExample(media_type, example if isinstance(example, str) else format_json(example))


def build_example(
    document: Mapping[str, Any], schema: Any, name: str = "", depth: int = 0, *, is_request: bool = False
) -> Any:
    """A value of a schema; of a request only what it must have, unless it gives an example. Where it refers to itself: null."""
    schema = _resolve(document, schema) if isinstance(schema, Mapping) else {}
    if depth > MAX_DEPTH:
        return None
    for key in ("example", "const"):
        if key in schema:
            return schema[key]
    if schema.get("examples"):
        return schema["examples"][0]
    if schema.get("default") not in (None, "", [], {}):
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return build_example(document, schema[key][0], name, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if is_request and (needed := schema.get("required")):
            properties = {key: each for key, each in properties.items() if key in needed}
        if not properties and isinstance(schema.get("additionalProperties"), Mapping):
            return {name or "name": build_example(document, schema["additionalProperties"], "", depth + 1)}
        return {key: build_example(document, each, key, depth + 1) for key, each in properties.items()}
    if kind == "array":
        return [build_example(document, schema.get("items", {}), name.removesuffix("s"), depth + 1)]
    if kind == "string":
        return "<bytes>" if schema.get("format") == "binary" else _NAMED_VALUES.get(name, "text")
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), 1)
    return _VALUES.get(str(kind))


def _build_command(
    document: Mapping[str, Any],
    method: str,
    path: str,
    parameters: list[Mapping[str, Any]],
    bodies: list[BodyExample],
    *,
    has_token: bool,
) -> str:
    """The same with curl, as somebody would try it."""
    needed = [each for each in parameters if each.get("required")]
    values = {each["name"]: build_example(document, each.get("schema", {}), each["name"]) for each in needed}
    shown = re.sub(r"\{([^}:]+)[^}]*\}", lambda match: str(values.get(match[1], match[1])), path)
    query = urlencode({each["name"]: values[each["name"]] for each in needed if each["in"] == "query"})
    lines = [
        f"curl{f' -X {method.upper()}' if method != 'get' else ''} '{EXAMPLE_HOST}{shown}{f'?{query}' if query else ''}'"
    ]
    if has_token:
        lines.append('-H "Authorization: Bearer $TOKEN"')
    if bodies:
        first = bodies[0]
        if first.media_type == "application/json":
            compact = re.sub(r"\n\s*", " ", first.text)
            lines += ["-H 'Content-Type: application/json'", f"-d '{compact}'"]
        elif first.media_type.startswith("multipart/"):
            lines.append("-F file=@photo.tif")
        else:
            lines += [f"-H 'Content-Type: {first.media_type}'", "--data-binary @photo.tif"]
    return " \\\n  ".join(lines)


def _resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found.get(part, {})  # an application may describe its routes wrongly: theirs are shown without it
        schema = found
    return schema
