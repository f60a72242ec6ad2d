"""The storage is tested on a directory and on an S3 server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.storage.yard import Bytes
from waybill.apps.ingest.storage import OcflStorage
from waybill.objects import DirectoryObjects, Objects, S3Credentials
from waybill.objects.s3 import S3Objects
from waybill.objects.s3_probe import ProbeResult

_probed: list[ProbeResult] = []  # one probe for all tests: it is slow, and has tests of its own


@pytest.fixture(params=["directory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    if request.param == "directory":
        with DirectoryObjects(tmp_path / "objects", fsync=False) as directory:
            yield directory
        return
    server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket")
    credentials = S3Credentials(server.credentials.access_key, server.credentials.secret_key)
    with S3Objects(bucket, "some/prefix", endpoint=server.endpoint, credentials=credentials) as s3:
        if _probed:
            s3._probe_result = _probed[0]
        else:
            _probed.append(s3.probe_result)
        yield s3


@pytest.fixture
def sources() -> Bytes:
    return Bytes()


@pytest.fixture
def storage(objects: Objects, sources: Bytes) -> OcflStorage:
    return OcflStorage(objects, "ocfl", sources)
