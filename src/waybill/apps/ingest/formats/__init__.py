"""The formats that deposits come in and are described with: Checkm manifests, BagIt bags, ANVL and Dublin
Core.

Each module reads one format strictly, with limits, and names the line or the file of what it refuses. They know no
record and no store.
"""
