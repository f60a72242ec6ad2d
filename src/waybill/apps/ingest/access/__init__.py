"""Access: stored objects are packed on request, and can be fetched by a URL until they expire.

    orders          requests, orders, their size and expected time; a record in the small or the large queue
    archives        the files of an order from storage, verified while they are read
    tokens          the secret in the URL, and where the files of an assembly are stored

The life of an assembly: requested -> Pending -> Processing: packed into an object at its own place -> Completed:
fetched by its URL -> expired: deleted, its files and then its record removed (maintenance/assembly_expiry.py). The step
is in steps/access/processing.py.
"""

from waybill.apps.ingest.access.orders import AssemblyRequest, RequestedAssembly, request_assembly

__all__ = ["AssemblyRequest", "RequestedAssembly", "request_assembly"]
