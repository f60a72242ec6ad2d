"""A machine as a Mermaid state diagram, for pages that a browser or a forge draws."""

from __future__ import annotations

import re
from collections.abc import Iterable

from waybill.drawing.layout import collect_links
from waybill.machine import Machine


def render_mermaid(machine: Machine) -> str:
    """The transition of a successful step has no label; all others have one."""
    ids = _assign_ids(s.name for s in machine.states)
    lines = [
        "stateDiagram-v2",
        *(f'    state "{_escape_text(name)}" as {id}' for name, id in ids.items() if id != name),
    ]
    lines += [f"    [*] --> {ids[name]}" for name in dict.fromkeys((machine.initial_state, *machine.initial_states))]
    for link in collect_links(machine):
        lines.append(
            f"    {ids[link.source]} --> {ids[link.target]}" + (f": {_escape_text(link.text)}" if link.text else "")
        )
    lines += [f"    {ids[s.name]} --> [*]" for s in machine.states if s.type == "end"]
    return "\n".join(lines)


def _assign_ids(names: Iterable[str]) -> dict[str, str]:
    """An id that Mermaid accepts for each state, no two the same."""
    ids: dict[str, str] = {}
    for name in names:
        id = re.sub(r"\W", "_", name, flags=re.ASCII)
        while id in ids.values():
            id += "_"
        ids[name] = id
    return ids


def _escape_text(text: str) -> str:
    """Mermaid's escapes for characters that would end a text or a line."""
    return re.sub(r'["#;:<>\n\r]', lambda match: f"#{ord(match[0])};", text)
