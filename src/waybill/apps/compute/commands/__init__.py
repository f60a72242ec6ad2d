"""The commands of compute."""

from waybill.apps.compute.commands.jobs_and_objects import build_commands

__all__ = ["build_commands"]
