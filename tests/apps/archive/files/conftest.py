"""A folder that every user can reach, and the two ways of acting: as this process, and as a user."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.archive.files.trees import IS_ROOT, USER
from waybill.apps.archive.files import FileAccess, UserIdentity, open_access


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="waybill-archive-")).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["own", "user"] if IS_ROOT else ["own"])
def identity(request: pytest.FixtureRequest) -> UserIdentity | None:
    return USER if request.param == "user" else None


@pytest.fixture
def access(identity: UserIdentity | None) -> Iterator[FileAccess]:
    with open_access(identity) as access:
        yield access


@pytest.fixture
def home(place: Path, identity: UserIdentity | None) -> Path:
    """A folder that the user owns."""
    folder = place / "home"
    folder.mkdir()
    if identity is not None:
        os.chown(folder, identity.uid, identity.gid)
    return folder
