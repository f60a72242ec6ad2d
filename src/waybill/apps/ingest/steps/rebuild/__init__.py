"""The step of rebuilds."""
