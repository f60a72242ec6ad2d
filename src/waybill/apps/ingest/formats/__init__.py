"""The formats that deposits come in and are described with: Checkm manifests, BagIt bags, zip and tar containers, ANVL
and Dublin Core.

Each module reads one format strictly, with limits, and names the line or the member of what it refuses. They know no
record and no store.
"""
