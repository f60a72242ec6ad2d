"""Measure, print one line a figure, and exit 1 where a goal is missed.

    python -m benchmarks [PART ...] [--quick] [--json]

A part is named by the beginning of its figures' names: `engine`, `engine.sqlite`, `latency`; without one, all run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

from benchmarks import engine, latency, loaded_files, pages, sandbox, scale
from benchmarks.effort import Effort
from benchmarks.figure import Figure
from waybill.application import Application, load_applications

Part = Callable[[Effort], Iterator[Figure]]

ENGINE_PARTS: Mapping[str, Part] = {
    "engine.sqlite": engine.sqlite,
    "engine.postgres": engine.postgres,
    "engine.zookeeper": engine.zookeeper,
    "scale.sqlite": scale.sqlite,
    "scale.postgres": scale.postgres,
    "latency.sqlite": latency.sqlite,
    "latency.postgres": latency.postgres,
    "latency.zookeeper": latency.zookeeper,
    "index.sqlite": loaded_files.sqlite,
    "index.postgres": loaded_files.postgres,
    "pages.sqlite": pages.sqlite,
    "pages.postgres": pages.postgres,
    "pages.zookeeper": pages.zookeeper,
    "sandbox.commands": sandbox.commands,
}


def collect_parts(applications: Sequence[Application]) -> dict[str, Part]:
    """The engine's parts, and those that the applications name: `Application.benchmarks`."""
    parts = dict(ENGINE_PARTS)
    for application in applications:
        if application.benchmarks:
            module, _, attribute = application.benchmarks.partition(":")
            parts |= getattr(import_module(module), attribute)
    return parts


def main(arguments: Sequence[str], parts: Mapping[str, Part] | None = None) -> int:
    parts = collect_parts(load_applications()) if parts is None else parts
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"the beginning of a part's name: {', '.join(parts)}")
    parser.add_argument("--quick", action="store_true", help="tiny counts: shows that it works, and measures nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    asked = options.parts or [""]
    if unknown := [word for word in asked if not any(name.startswith(word) for name in parts)]:
        parser.error(f"{unknown[0]} is no part; there are {', '.join(parts)}.")
    missed = 0
    for name, part in parts.items():
        if any(name.startswith(word) for word in asked):
            for figure in part(Effort(options.quick)):
                print(json.dumps(figure.json()) if options.json else figure.line(), flush=True)
                missed += figure.missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
