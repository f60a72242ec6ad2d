"""The declaration: what somebody writes about datasets, boundaries and arcs, and how it becomes records.

documents.py      the declaration of one dataset, boundary or arc, as a document of its record
project_file.py   reads a project file, in TOML or JSON
clusterless.py    reads the JSON of Clusterless as the same
checks.py         what is wrong with a project, beside all others: owners, cycles, paths, units
changes.py        what applying a project changes, and the one commit that changes it
"""
