"""The test suite that every object store driver passes. Run it with pytest, in a test file like this:

    import pytest
    pytest.register_assert_rewrite("waybill.objects.conformance")
    from waybill.objects.conformance import ObjectsSuite

    class TestMine(ObjectsSuite):
        @pytest.fixture
        def objects(self):
            with MyObjects(...) as objects:
                yield objects          # empty, and used by this test only

For conditions that the driver does not guarantee (`objects.capabilities`) the suite tests that they are refused.
"""

from waybill.objects.conformance.contents import ListDeleteCopySuite, ObjectNameSuite, PutAndGetSuite
from waybill.objects.conformance.writes import ConditionalWriteSuite, UploadSuite

__all__ = [
    "ConditionalWriteSuite",
    "ListDeleteCopySuite",
    "ObjectNameSuite",
    "ObjectsSuite",
    "PutAndGetSuite",
    "UploadSuite",
]


class ObjectsSuite(PutAndGetSuite, ObjectNameSuite, ConditionalWriteSuite, ListDeleteCopySuite, UploadSuite):
    """All suites. Subclass it and define a fixture `objects`."""
