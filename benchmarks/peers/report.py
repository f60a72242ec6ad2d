"""How a measured process tells its parent what it reached: one line of JSON, the last that it prints."""

from __future__ import annotations

import json


def report(count: int, seconds: float, **more: object) -> None:
    print(json.dumps({"count": count, "seconds": seconds, "rate": count / seconds, **more}), flush=True)
