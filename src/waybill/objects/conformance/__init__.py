"""Conformance: the suite that every driver of objects passes. A driver's author runs it with pytest, in a test file
as short as this:

    import pytest
    pytest.register_assert_rewrite("waybill.objects.conformance")
    from waybill.objects.conformance import ObjectsSuite

    class TestMine(ObjectsSuite):
        @pytest.fixture
        def objects(self):
            with MyObjects(...) as objects:
                yield objects          # empty, and this test's own

What a driver cannot do is asked of it (`objects.conditions`), and then the refusal is tested in its place.
"""

from waybill.objects.conformance.conditions import Conditional
from waybill.objects.conformance.contents import PutAndGet
from waybill.objects.conformance.listing import ListDeleteCopy
from waybill.objects.conformance.naming import Names
from waybill.objects.conformance.parts import Uploads

__all__ = ["Conditional", "ListDeleteCopy", "Names", "ObjectsSuite", "PutAndGet", "Uploads"]


class ObjectsSuite(PutAndGet, Names, Conditional, ListDeleteCopy, Uploads):
    """All of it. Subclass it, and give it a fixture `objects`."""
