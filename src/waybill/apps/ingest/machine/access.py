"""The machines of assemblies: what users asked to get back, packed, in a small and a large queue."""

from __future__ import annotations

from waybill.apps.ingest.machine.holding import PATIENT
from waybill.machine import Document, Machine, action, end, rest, work


def access_machine(size: str) -> Machine:
    return Machine(
        name=f"access-{size}",
        plural=f"{size} assemblies",
        prefix="qid",
        doc=f"A {size} assembly: an object, or a part of it, packed for a user who asked for it.",
        made_by="POST /api/v1/ingest/access, or by `waybill ingest access request`",
        queue=f"queue/access{size.capitalize()}",
        begins=("Processing", "Completed", "Failed", "Deleted"),
        states=(
            work("Pending", "Processing", "Asked for; it waits for its turn.", fails=None, backoff=PATIENT),
            work("Processing", "Completed", "It is being packed.", backoff=PATIENT),
            rest("Completed", "Ready to be fetched until it expires.", settled=True),
            rest("Failed", "It could not be packed.", settled=True),
            end("Deleted", "Expired or given up; its file is removed with it."),
        ),
        actions=(
            action("requeue", "Failed", "Pending", "Try again."),
            action("delete", "Failed Completed", "Deleted", "Remove it; its URL stops working."),
        ),
        documents=(
            Document(
                "token",
                "step",
                "The token, the URL and when it is ready, in the words of the services that share the tree.",
                v=None,
                secret=("token", "url"),
            ),
            Document("order", "service", "What was asked for."),
            Document("packed", "step", "The file that was made."),
        ),
    )
