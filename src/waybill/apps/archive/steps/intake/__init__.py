"""The step of an intake."""
