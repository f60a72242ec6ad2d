"""A command line to call, with the application lots alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import bare, environment, waybill

__all__ = ["bare", "environment", "lots_alone", "waybill"]


@pytest.fixture(autouse=True)
def lots_alone(environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "lots")
    monkeypatch.setenv("WAYBILL_DEMO", "no")
