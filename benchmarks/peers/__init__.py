"""The software that Waybill is measured against, each in a process of its own that prints what it reached."""
