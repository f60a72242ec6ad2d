"""Ingest: deposits, from submission to inventory."""
