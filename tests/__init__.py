"""The tests of Waybill.

A package, so that `from tests.servers import ...` never finds somebody else's top-level `tests`.
"""
