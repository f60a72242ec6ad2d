"""The S3 driver passes the suite on a real server."""

from collections.abc import Iterator

import pytest

from tests.servers.s3 import SeaweedServer

pytest.register_assert_rewrite("waybill.objects.conformance")

from waybill.objects.conformance import ObjectsSuite  # noqa: E402
from waybill.objects.s3 import S3Objects  # noqa: E402
from waybill.objects.s3_probe import ProbeResult  # noqa: E402
from waybill.objects.s3_signing import S3Credentials  # noqa: E402


class TestSeaweed(ObjectsSuite):
    # one probe for all tests of this class: it is slow, and has tests of its own
    found: list[ProbeResult] = []  # noqa: RUF012

    @pytest.fixture
    def objects(self, s3_server: SeaweedServer, s3_bucket: str) -> Iterator[S3Objects]:
        credentials = S3Credentials(s3_server.credentials.access_key, s3_server.credentials.secret_key)
        with S3Objects(s3_bucket, "some/prefix", endpoint=s3_server.endpoint, credentials=credentials) as objects:
            if self.found:
                objects._probe_result = self.found[0]
            else:
                self.found.append(objects.probe_result)
            yield objects
