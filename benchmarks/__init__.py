"""How fast Waybill is, side by side with its peers in the same run: `make bench`.

Nothing here is a test, and no test is timed.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # where `python -m benchmarks...` finds these modules
