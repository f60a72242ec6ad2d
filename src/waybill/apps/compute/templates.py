"""Templates of jobs: a manifest with parameters, as an object of the account or in the body of a request.

    {"parameters": {"pattern": {}, "lines": {"default": "10"}},
     "phases": [{"exec": "grep -e {{pattern}} | head -n {{lines}}"}], "options": {"retries": 2}}

A value takes the place of `{{name}}` in `exec` and `init`, quoted for the shell: whatever it holds, it is one word.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from waybill.apps.compute.access import Caller, check_access
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.paths import parse_path

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

MAX_TEMPLATE = 100_000  # bytes
_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][\w-]*)\s*\}\}")
_NAME = re.compile(r"[A-Za-z_][\w-]{0,63}")


def load_template(resources: ComputeResources, account: str, name: str) -> dict[str, Any]:
    path = parse_path(name)
    check_access(Caller(account), path, "read")
    entry = resources.storage.get(path)
    if entry.is_directory or entry.size > MAX_TEMPLATE:
        raise MantaError("InvalidJob", f"{name} is no template: a directory, or of more than {MAX_TEMPLATE} bytes")
    with resources.storage.open(entry) as body:
        return read_template(b"".join(body))


def read_template(body: bytes) -> dict[str, Any]:
    try:
        template = json.loads(body)
    except (ValueError, RecursionError):
        raise _refuse("the template is not JSON") from None
    if not isinstance(template, dict):
        raise _refuse("the template must be an object")
    return template


def fill_template(template: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The manifest, with the options that it may have. Raises InvalidJob, which names the parameter."""
    declared = template.get("parameters", {})
    if not isinstance(declared, dict) or not all(
        _NAME.fullmatch(name) and isinstance(about, dict) and isinstance(about.get("default", ""), str)
        for name, about in declared.items()
    ):
        raise _refuse('property "parameters": must be an object of {"name": {"default": "text"}}')
    if unknown := sorted(given.keys() - declared.keys()):
        raise _refuse(f"the template has no parameter {unknown[0]!r}; it has {', '.join(sorted(declared)) or 'none'}")
    values = {name: about["default"] for name, about in declared.items() if "default" in about} | dict(given)
    if missing := sorted(declared.keys() - values.keys()):
        raise _refuse(f"the parameter {missing[0]!r} of the template needs a value")
    phases = template.get("phases")
    filled = [_fill_phase(phase, values) for phase in phases] if isinstance(phases, list) else phases
    return {**{name: value for name, value in template.items() if name != "parameters"}, "phases": filled}


def _fill_phase(phase: Any, values: Mapping[str, str]) -> Any:
    if not isinstance(phase, dict):
        return phase

    def replace(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise _refuse(f"{match[0]} is no parameter of the template")
        return shlex.quote(values[match[1]])

    return {
        name: _PLACEHOLDER.sub(replace, value) if name in ("exec", "init") and isinstance(value, str) else value
        for name, value in phase.items()
    }


def _refuse(problem: str) -> MantaError:
    return MantaError("InvalidJob", problem)
