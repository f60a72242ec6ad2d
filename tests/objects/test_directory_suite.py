"""The directory driver passes the suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("waybill.objects.conformance")

from waybill.objects.conformance import ObjectsSuite  # noqa: E402
from waybill.objects.directory import DirectoryObjects  # noqa: E402


class TestDirectory(ObjectsSuite):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> Iterator[DirectoryObjects]:
        with DirectoryObjects(tmp_path / "objects", fsync=False) as objects:
            yield objects
