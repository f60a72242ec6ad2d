#!/usr/bin/env python3
"""jobcost.js JOB < REPORT: what a job cost in the hour of a usage report, in dollars.

`mjob cost` asks for it by this name. The prices are in pricing.json beside it, and in billingComputeTable.json how many
gigabytes are counted for a memory size.
"""

import json
import sys
from pathlib import Path

folder = Path(sys.argv[0]).parent
price = float(json.loads((folder / "pricing.json").read_text())["gigabyteSecond"])
gigabytes = json.loads((folder / "billingComputeTable.json").read_text())["gigabytesByMemory"]
cost = 0.0
for phase in json.load(sys.stdin)["jobs"].get(sys.argv[1], {}).values():
    seconds = int(phase["milliseconds"]) / 1000
    cost += seconds * price * float(gigabytes.get(phase["memory"], int(phase["memory"]) / 1024))
print(f"{cost:.9f}")
