"""Stands in for a peer that is not installed: prints a rate, whatever it is asked."""

from benchmarks.peers.report import report

report(10, 1.0)
