"""Waybill: records in explicit states, moved by steps that survive any crash."""
