"""Access: what is at rest is packed for a user who asks for it, and can be fetched by a URL until it expires.

    asking     an order, its size and its time; a record in the small or the large queue; a token
    order      what was asked for            contents   its files from storage, each verified while it is read
    naming     names inside the archive      zipping, tarring   archives as streams
    tokens     the secret in the URL, and where the files of an assembly lie

The life of an assembly: asked for -> Pending -> Processing: packed into an object under its own place -> Completed:
fetched by its URL -> expired: deleted, its files and then its record removed (waybill.apps.ingest.duties.expiry). The
step is in steps/assembling.py.
"""

from waybill.apps.ingest.access.asking import Asked, Wanted, ask
from waybill.apps.ingest.access.order import Order, order_of

__all__ = ["Asked", "Order", "Wanted", "ask", "order_of"]
