"""Datasets that grow lot by lot, and the arcs that process each lot once.

units.py          the units of time and the names of lots
path_filters.py   which paths belong to a dataset
naming.py         the names under which manifests and arc states are published
gates.py          what an arc does with a lot: every pair of states has an answer
"""
