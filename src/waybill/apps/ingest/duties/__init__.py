"""What ingest looks after by itself: content at rest, interrupted writes, assemblies that are over, uploads and
lists nobody needs.
"""

from waybill.apps.ingest.duties.audit import Audit
from waybill.apps.ingest.duties.expiry import Expiry
from waybill.apps.ingest.duties.papers import Papers
from waybill.apps.ingest.duties.payloads import Payloads
from waybill.apps.ingest.duties.recovery import Recovery
from waybill.apps.ingest.duties.staged import Staged

DUTIES = (Audit(), Recovery(), Expiry(), Payloads(), Papers(), Staged())

__all__ = ["DUTIES", "Audit", "Expiry", "Papers", "Payloads", "Recovery", "Staged"]
