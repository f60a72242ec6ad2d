"""A machine as a Mermaid state diagram, for pages that a reader's browser or forge draws."""

from __future__ import annotations

import re
from collections.abc import Iterable

from waybill.drawing.links import links
from waybill.machine import Machine


def mermaid(machine: Machine) -> str:
    """What a step's success leads to has no label; everything else says what it is."""
    ids = _ids(s.name for s in machine.states)
    lines = ["stateDiagram-v2", *(f'    state "{_text(name)}" as {id}' for name, id in ids.items() if id != name)]
    lines += [f"    [*] --> {ids[name]}" for name in dict.fromkeys((machine.initial, *machine.begins))]
    for link in links(machine):
        lines.append(f"    {ids[link.source]} --> {ids[link.target]}" + (f": {_text(link.text)}" if link.text else ""))
    lines += [f"    {ids[s.name]} --> [*]" for s in machine.states if s.sort == "end"]
    return "\n".join(lines)


def _ids(names: Iterable[str]) -> dict[str, str]:
    """A name that Mermaid takes for each state, no two the same."""
    given: dict[str, str] = {}
    for name in names:
        id = re.sub(r"\W", "_", name, flags=re.ASCII)
        while id in given.values():
            id += "_"
        given[name] = id
    return given


def _text(text: str) -> str:
    """Mermaid's own escapes for what would end a text or a line."""
    return re.sub(r'["#;:<>\n\r]', lambda match: f"#{ord(match[0])};", text)
