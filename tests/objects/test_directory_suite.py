"""The directory driver passes the suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("waybill.objects.conformance")

from waybill.objects.conformance import ObjectsSuite  # noqa: E402
from waybill.objects.directory import Directory  # noqa: E402


class TestDirectory(ObjectsSuite):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> Iterator[Directory]:
        with Directory(tmp_path / "objects", fsync=False) as objects:
            yield objects
