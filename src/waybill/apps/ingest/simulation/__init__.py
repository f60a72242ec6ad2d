"""Ingest in the simulator: what surrounds it (around.py), and what is deposited and must hold (deposits.py)."""

from waybill.apps.ingest.simulation.deposits import Deposits

__all__ = ["Deposits"]
