"""Legacy: entries of the queues that Merritt had before its batches and jobs, read so that they can become such.

    /ingest/mrtQ-PPW0000000007    priority, worker, number; also below /mrt.inventory.full, /accessSmall.1 and /accessLarge.1
    byte 0        status: Pending, Consumed, Deleted, Failed, Completed, Held
    bytes 1 to 8  when it was written: seconds or milliseconds since 1970; which of them, its size tells
    the rest      what is to be done, in any of the forms that the services had over the years: JSON, Java's properties as text or as XML,
                  or a Properties object as Java itself writes it

`decode` reads an entry, `describe` says which batch and job, or which assembly, it stands for, and through which states
that must go to be where the entry was. Nothing is created here, and the same entry always gets the same `request`:
importing it twice makes one job.
"""

from waybill.apps.ingest.legacy.describing import Described, describe
from waybill.apps.ingest.legacy.entries import Entry, LegacyError, Queue, Status, decode

__all__ = ["Described", "Entry", "LegacyError", "Queue", "Status", "decode", "describe"]
