"""What Merritt's services ask of a batch beside its status: its name in /batch-uuids, and the node `states`, by
which they tell its age.
"""

from __future__ import annotations

from waybill.record import Exists, StoreError
from waybill.stores.zookeeper import notes, wire
from waybill.stores.zookeeper.layout import BUCKETS, NO_JOBS_YET
from waybill.stores.zookeeper.plan import Plan
from waybill.stores.zookeeper.seen import Seen


def rename(plan: Plan, seen: Seen, submission: bytes | None) -> StoreError | None:
    """A batch's submission is written again: it is looked up by the name that it says now."""
    old, new = notes.batch_uuid((seen.docs or {}).get("submission")), notes.batch_uuid(submission)
    if old == new:
        return None
    mine = seen.ref.id.encode()
    if new:
        path = f"/batch-uuids/{new}"
        holder = plan.real.get(path) if plan.real is not None else None
        if holder is not None and holder.data != mine:
            return Exists(f"The batchID {new} belongs to {holder.data.decode(errors='replace')} already.")
        plan.make(path, "note", mine)
    if old:
        plan.drop(f"/batch-uuids/{old}", "note")
    return None


def states(path: str, state: str) -> tuple[str, str]:
    """The node that says that a batch is no longer pending.

    It is never empty, and looks like no finished one's while jobs may come.
    """
    return path, f"{path}/{'batch-completed' if state in NO_JOBS_YET else 'batch-processing'}"


def pend(plan: Plan, seen: Seen, state: str) -> None:
    """Merritt's services take a batch without the node `states` for a pending one, and an empty batch-processing for
    a finished one.
    """
    base = f"{seen.layout.home(seen.ref.id)}/states"
    if state == "Deleted" and "states" in seen.nodes:
        # Their reporter takes up whatever has an empty batch-processing, cannot report what is deleted, and leaves its
        # lock behind.
        processing = plan.real.get(f"{base}/batch-processing") if plan.real is not None else None
        plan.touched.append(f"{base}/batch-processing")
        if processing is not None and not processing.children:
            plan.folder(base, f"{base}/batch-deleted")
            plan.ops.append(wire.delete(f"{base}/batch-processing", "states"))
    elif state != "Pending" and "states" not in seen.nodes:
        plan.folder(*states(base, state))  # jobs that the same group makes need the folder too
    elif state == "Pending" and "states" in seen.nodes:
        found = {bucket: plan.real.get(f"{base}/{bucket}") for bucket in BUCKETS} if plan.real is not None else {}
        plan.touched += [f"{base}/{bucket}" for bucket in BUCKETS]
        if not any(node.children for node in found.values() if node is not None):
            plan.ops += [
                wire.delete(f"{base}/{bucket}", "states") for bucket, node in found.items() if node is not None
            ]
            plan.ops.append(wire.delete(base, "states"))
