"""The machines of assemblies: objects, or parts of them, packed for users who requested them. Small and large assemblies
have a queue each.
"""

from __future__ import annotations

from waybill.apps.ingest.documents import AssemblyOrder, AssemblyToken, PackedArchive
from waybill.apps.ingest.machine.holds import PATIENT_BACKOFF
from waybill.apps.ingest.machine.state_names import StateNames
from waybill.machine import Document, Machine, action, end, rest, work

_STATES = (
    work(
        "Pending", to="Processing", description="Requested; waits in its queue.", on_fail=None, backoff=PATIENT_BACKOFF
    ),
    work("Processing", to="Completed", description="It is being packed.", backoff=PATIENT_BACKOFF),
    rest("Completed", description="Ready to be fetched until it expires.", settled=True),
    rest("Failed", description="It could not be packed.", settled=True),
    end("Deleted", description="Expired or given up; its file is removed with it."),
)
ASSEMBLY = StateNames.from_states(_STATES)


def build_access_machine(size: str) -> Machine:
    return Machine(
        name=f"access-{size}",
        plural=f"{size} assemblies",
        prefix="qid",
        steps="waybill.apps.ingest.steps.access",
        description=f"A {size} assembly: an object, or a part of it, packed for a user who requested it.",
        made_by="POST /api/v1/ingest/access, or by `waybill ingest access request`",
        queue=f"queue/access{size.capitalize()}",
        initial_states=("Processing", "Completed", "Failed", "Deleted"),
        states=_STATES,
        actions=(
            action("requeue", "Failed", "Pending", "Try again."),
            action("delete", "Failed Completed", "Deleted", "Remove it; its URL stops working."),
        ),
        documents=(
            Document(
                "token",
                AssemblyToken,
                "step",
                "The token, the URL and when it is ready, in the vocabulary of the services that share the tree.",
                v=None,
                parse=AssemblyToken.parse,
                render=AssemblyToken.render,
                secret=("token", "url"),
            ),
            Document("order", AssemblyOrder, "service", "What was requested."),
            Document("packed", PackedArchive, "step", "The packed file."),
        ),
    )
