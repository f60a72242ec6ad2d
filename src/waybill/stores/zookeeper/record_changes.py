"""Changes as operations: what creating, moving and removing a record writes, all of it in the group's transaction.

    create   home, status, documents, engine node, queue entry, notes; numbers.py has predicted the id and the seq
    move     [unclaimed: assert that there is no lock node] status at its version, documents, queue entry, locks, notes,
             engine node, [released: delete the lock node]
    remove   all of these

Each returns what the record is afterwards, or the refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from waybill.record import (
    Change,
    ClaimLost,
    Conflict,
    HistoryEntry,
    LockUnavailable,
    Record,
    RecordExists,
    Ref,
    StoreError,
)
from waybill.stores.zookeeper import operations, paths, write_plan
from waybill.stores.zookeeper.paths import (
    BUCKETS,
    STATES_WITHOUT_JOBS,
    KindLayout,
    checksum_of,
    folder_chain_of,
    layout_of,
    lock_path_of,
    parent_of,
    quote_name,
)
from waybill.stores.zookeeper.record_nodes import MAX_HISTORY, EngineNode, StatusNode, encode_engine_node, encode_status
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, reconcile_engine_node
from waybill.stores.zookeeper.write_plan import WritePlan


@dataclass(slots=True)
class ChangeResult:
    """What a change has done to its record once the transaction is written."""

    record: Record | None
    snapshot: RecordSnapshot | None = None  # its nodes afterwards, if it is still claimed
    dropped_locks: list[str] = field(default_factory=list)  # locks that are free now
    passed_locks: list[str] = field(default_factory=list)  # locks that it asked for and may not be the first to get now
    closed_parent: Ref | None = None  # the parent of which it is no longer an open child
    is_released: bool = False
    is_claimable: bool = False


def plan_create(
    plan: WritePlan, change: Change, ref: Ref, seq: int, queue_position: int, now: float
) -> ChangeResult | StoreError:
    after = change.after
    assert after is not None
    layout = layout_of(ref.kind)
    if refusal := _find_merritt_misfit(layout, after):
        return refusal
    blocked_by = after.blocked_by if after.blocked_by in ("wait", "children") else None
    status = encode_status(
        after.state, after.last_done, after.resume_count, after.message, now, layout.has_brief_status
    )
    engine_node = EngineNode(
        seq=seq,
        queue_position=queue_position,
        status_checksum=checksum_of(status),
        state=after.state,
        owner=after.owner,
        scope=after.scope,
        priority=after.priority,
        error_count=after.error_count,
        locks=after.locks,
        hold_names=after.hold_names,
        blocked_by=blocked_by,
        wake_at=now + change.delay if blocked_by == "wait" else 0.0,
        open=after.open,
        host=after.host,
        idempotency_key=after.idempotency_key,
        created=now,
        updated=now,
        default_documents=tuple(name for name in layout.default_documents if change.documents.get(name) is None),
        parent=None if after.parent is None or layout.parent_kind else (after.parent.kind, after.parent.id),
        last_done=after.last_done,
        resume_count=after.resume_count if layout.has_brief_status else 0,
    )
    if change.cause:
        engine_node.history = [HistoryEntry(seq, now, change.who, change.cause, None, after.state, change.why)]
    home = layout.home_path_of(ref.id)
    if not layout.id_prefix:
        plan.ensure_folders(*folder_chain_of(layout.records_folder))
    plan.ops.append(operations.create(home, b"", "minted" if after.id.endswith("*") else "named"))
    if layout.has_merritt_entries and after.parent is not None:
        plan.ops += (
            operations.create(f"{home}/bid", after.parent.id.encode(), "new"),
            operations.create(f"{home}/priority", b"%d" % after.priority, "new"),
        )
    plan.ops.append(operations.create(f"{home}/status", status, "new"))
    plan.ops += [
        operations.create(f"{home}/{name}", layout.default_documents[name], "new")
        for name in engine_node.default_documents
    ]
    engine_path = layout.engine_path_of(ref.id)
    engine_index = len(plan.ops)
    documents = {name: body for name, body in change.documents.items() if body is not None}
    if refusal := write_plan.plan_documents(plan, layout, ref, frozenset(), engine_node, documents):
        return refusal
    plan.ops.insert(engine_index, operations.create(engine_path, encode_engine_node(engine_node), "new"))
    if uuid := write_plan.batch_uuid_of(documents.get("submission")) if ref.kind == "batch" else None:
        plan.ops.append(operations.create(f"/batch-uuids/{uuid}", ref.id.encode(), "uuid"))
    if ref.kind == "batch" and after.state != "Pending":
        plan.ops += [operations.create(path, b"", "new") for path in states_paths_of(f"{home}/states", after.state)]
    if after.idempotency_key is not None:
        path = paths.idempotency_path_of(ref.kind, after.idempotency_key)
        plan.ensure_folders(*folder_chain_of(parent_of(path)))
        plan.ops.append(operations.create(path, ref.id.encode(), "idempotency-key"))
    plan.move_entry(
        layout,
        ref.id,
        None,
        f"{layout.folder_of(after.state)}/{layout.entry_name_of(after.priority, queue_position, seq, ref.id)}",
    )
    if layout.parent_kind and after.parent is not None:
        plan.move_job_listing(after.parent, ref.id, None, layout.bucket_of(after.state))
    write_plan.plan_parked_notes(plan, ref, None, engine_node)
    write_plan.plan_owner_and_scope_notes(plan, ref, None, engine_node)
    write_plan.plan_child_note(plan, layout, ref, None, engine_node)
    open = layout.bucket_of(after.state) == "batch-processing" if layout.settled_buckets else after.open
    record = replace(
        after,
        id=ref.id,
        seq=seq,
        version=seq,
        queue_position=queue_position,
        blocked_by=blocked_by,
        wake_at=engine_node.wake_at,
        created=now,
        updated=now,
        wake_count=0,
        open=open,
        documents=after.documents.with_changes(documents),
    )
    return ChangeResult(record, is_claimable=blocked_by is None)


def plan_move(
    plan: WritePlan,
    change: Change,
    snapshot: RecordSnapshot,
    now: float,
    holds: Collection[str],
    is_woken: bool = False,
) -> ChangeResult | StoreError:
    """Plan a change of state, documents, claim or locks. `is_woken`: the same group wakes this record, which must then
    not be blocked.
    """
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    layout, ref, home = snapshot.layout, snapshot.ref, snapshot.layout.home_path_of(snapshot.ref.id)
    if refusal := _find_merritt_misfit(layout, after):
        return refusal
    old = snapshot.engine_node or reconcile_engine_node(snapshot)
    session = after.session
    if session is not None and change.is_continuation and any(hold in holds for hold in after.hold_names):
        session = None
    new_locks = [lock for lock in after.locks if lock not in old.owned_locks] if session is not None else []
    own_data = str(ref).encode()
    for lock in new_locks:
        owner_node = plan.existing.get(lock_path_of(lock)) if plan.existing is not None else None
        if owner_node is not None and owner_node.data != own_data:
            if change.is_checkpoint:
                return LockUnavailable(f"{ref} cannot take the lock {lock}: another record owns it.", lock=lock)
            session, new_locks = None, []
            break
    blocked_by = after.blocked_by if after.blocked_by in ("wait", "children") and after.session is None else None
    if blocked_by is not None and (snapshot.wake_count != before.wake_count or is_woken):
        blocked_by = None
    dropped = [lock for lock in old.owned_locks if lock not in after.locks]
    unowned_locks = [lock for lock in old.locks if lock not in old.owned_locks]

    is_unclaimed = before.session is None
    if is_unclaimed:
        plan.ops += operations.check_absent(f"{home}/lock", "free")
    status = encode_status(
        after.state, after.last_done, after.resume_count, after.message, now, layout.has_brief_status
    )
    plan.ops.append(operations.put(f"{home}/status", status, "status", snapshot.status_version))
    if blocked_by is not None or (not is_unclaimed and session is None):
        plan.ops.append(operations.check(home, "quiet", snapshot.wake_count))
    version = before.version + 1
    history = snapshot.build_history()
    if change.cause:
        history = [
            *history,
            HistoryEntry(version, now, change.who, change.cause, snapshot.state, after.state, change.why),
        ]
    engine_node = EngineNode(
        seq=old.seq,
        queue_position=old.queue_position
        if layout.has_merritt_entries or after.queue_position is None
        else after.queue_position,
        version_offset=snapshot.version_offset,
        status_version=snapshot.status_version + 1,
        status_checksum=checksum_of(status),
        state=after.state,
        session=session,
        parent=old.parent,
        owner=after.owner,
        scope=after.scope,
        priority=after.priority,
        last_done=after.last_done,
        resume_count=after.resume_count if layout.has_brief_status else 0,
        error_count=after.error_count,
        locks=after.locks,
        owned_locks=(*(k for k in old.owned_locks if k in after.locks), *new_locks),
        hold_names=after.hold_names,
        blocked_by=blocked_by,
        wake_at=now + change.delay if blocked_by == "wait" else 0.0,
        open=after.open,
        host=after.host,
        idempotency_key=old.idempotency_key,
        created=old.created,
        updated=now,
        documents=old.documents,
        separate_documents=old.separate_documents,
        default_documents=old.default_documents,
        history=history[-MAX_HISTORY:],
        needs_recompute=snapshot.needs_recompute and not (change.cause or after.locks or after.hold_names),
    )
    document_nodes = snapshot.child_names
    if change.documents:
        if refusal := write_plan.plan_documents(plan, layout, ref, document_nodes, engine_node, change.documents):
            return refusal
        document_nodes = document_nodes.union(
            n
            for n, status_node in change.documents.items()
            if n in layout.documents and (status_node is not None or n in layout.default_documents)
        )
        document_nodes = document_nodes.difference(
            n
            for n, status_node in change.documents.items()
            if status_node is None and n not in layout.default_documents
        )
        if (
            ref.kind == "batch"
            and "submission" in change.documents
            and (refusal := plan_batch_uuid(plan, snapshot, change.documents["submission"]))
        ):
            return refusal
    if layout.has_merritt_entries and (after.priority != snapshot.priority or snapshot.has_bad_priority):
        plan.ops.append(operations.put(f"{home}/priority", b"%d" % after.priority, "priority"))
    old_entry = f"{layout.folder_of(snapshot.state)}/{snapshot.entry_name}"
    new_name = layout.entry_name_of(after.priority, engine_node.queue_position, engine_node.seq, ref.id)
    plan.move_entry(layout, ref.id, old_entry, f"{layout.folder_of(after.state)}/{new_name}")
    if layout.parent_kind and snapshot.parent is not None:
        plan.move_job_listing(snapshot.parent, ref.id, layout.bucket_of(snapshot.state), layout.bucket_of(after.state))
    elif ref.kind == "batch" and after.state != snapshot.state:
        plan_states_node(plan, snapshot, after.state)
    _release_locks(plan, ref, dropped, engine_node.owned_locks)
    owned_paths = {lock_path_of(lock) for lock in old.owned_locks}
    new_lock_paths = [path for path in dict.fromkeys(map(lock_path_of, new_locks)) if path not in owned_paths]
    for path in new_lock_paths:
        if plan.existing is None or plan.existing.get(path) is None:
            plan.ops.append(operations.create(path, own_data, "owned-lock"))
    plan.touched_paths += new_lock_paths
    write_plan.plan_parked_notes(plan, ref, snapshot.engine_node, engine_node)
    write_plan.plan_owner_and_scope_notes(plan, ref, snapshot.engine_node, engine_node)
    write_plan.plan_child_note(plan, layout, ref, snapshot.engine_node, engine_node)
    if change.answers_request:
        plan.remove_node(paths.action_request_path_of(ref), "note")
    engine_path = layout.engine_path_of(ref.id)
    engine_data = encode_engine_node(engine_node)
    plan.ops.append(
        operations.put(engine_path, engine_data, "engine", snapshot.engine_version)
        if snapshot.engine_node is not None
        else operations.create(engine_path, engine_data, "engine")
    )
    if before.session is not None and session is None:
        plan.ops.append(operations.delete(f"{home}/lock", "lock"))
    open = layout.bucket_of(after.state) == "batch-processing" if layout.settled_buckets else after.open
    record = replace(
        after,
        session=session,
        version=version,
        blocked_by=blocked_by,
        wake_at=engine_node.wake_at,
        updated=now,
        created=old.created,
        seq=snapshot.seq,
        queue_position=engine_node.queue_position,
        wake_count=snapshot.wake_count if session is None else before.wake_count,
        open=open,
        parent=snapshot.parent,
        idempotency_key=old.idempotency_key,
        documents=after.documents.with_changes(change.documents),
    )
    claimed_snapshot = None
    if session is not None:
        status_node = StatusNode(after.state, after.last_done, after.resume_count, "", after.message)
        claimed_snapshot = RecordSnapshot(
            ref,
            layout,
            snapshot.home_created,
            snapshot.wake_count,
            status,
            status_node,
            snapshot.status_version + 1,
            now,
            session,
            engine_node,
            snapshot.engine_version + 1,
            after.priority,
            snapshot.parent,
            document_nodes,
            None,
            new_name,
        )
    return ChangeResult(
        record,
        claimed_snapshot,
        dropped_locks=dropped,
        passed_locks=unowned_locks,
        closed_parent=snapshot.parent if snapshot.open and not open else None,
        is_released=before.session is not None and session is None,
        is_claimable=session is None and blocked_by is None,
    )


def plan_remove(plan: WritePlan, change: Change, snapshot: RecordSnapshot) -> ChangeResult | StoreError:
    before = change.before
    assert before is not None
    layout, ref, home = snapshot.layout, snapshot.ref, snapshot.layout.home_path_of(snapshot.ref.id)
    engine_node = snapshot.engine_node or reconcile_engine_node(
        snapshot
    )  # of a record that another service moved: what it really owns
    if before.session is None:
        plan.ops += operations.check_absent(f"{home}/lock", "free")
    else:
        plan.ops.append(operations.delete(f"{home}/lock", "lock"))
    plan.ops.append(operations.delete(f"{home}/status", "status", snapshot.status_version))
    engine_path = layout.engine_path_of(ref.id)
    if ref.kind == "batch":
        if "states" in snapshot.child_names:
            for bucket in BUCKETS:
                plan.remove_node(f"{home}/states/{bucket}", "jobs")
            plan.ops.append(operations.delete(f"{home}/states", "jobs"))
        if uuid := write_plan.batch_uuid_of((snapshot.documents or {}).get("submission")):
            plan.remove_node(f"/batch-uuids/{uuid}", "note")
    for name in sorted(snapshot.child_names - {"status", "lock", "states", "engine"}):
        plan.remove_node(f"{home}/{name}", "document")
    for name in engine_node.separate_documents:
        plan.remove_node(f"{engine_path}/{quote_name(name)}", "document")
    if snapshot.engine_version >= 0:
        plan.ops.append(operations.delete(engine_path, "engine", snapshot.engine_version))
    plan.ops.append(operations.delete(home, "home"))
    plan.move_entry(layout, ref.id, f"{layout.folder_of(snapshot.state)}/{snapshot.entry_name}", None)
    if layout.parent_kind and snapshot.parent is not None:
        plan.move_job_listing(snapshot.parent, ref.id, layout.bucket_of(snapshot.state), None)
    _release_locks(plan, ref, engine_node.owned_locks)
    write_plan.plan_parked_notes(plan, ref, snapshot.engine_node, None)
    write_plan.plan_owner_and_scope_notes(plan, ref, snapshot.engine_node, None)
    write_plan.plan_child_note(plan, layout, ref, snapshot.engine_node, None)
    if engine_node.idempotency_key is not None:
        plan.remove_node(paths.idempotency_path_of(ref.kind, engine_node.idempotency_key), "note")
    plan.remove_node(paths.action_request_path_of(ref), "note")
    unowned_locks = [lock for lock in engine_node.locks if lock not in engine_node.owned_locks]
    return ChangeResult(
        None,
        dropped_locks=list(engine_node.owned_locks),
        passed_locks=unowned_locks,
        closed_parent=snapshot.parent if snapshot.open else None,
    )


def find_outdated(change: Change, snapshot: RecordSnapshot | None) -> StoreError | None:
    """Return the refusal if the change's `before` is not the current record."""
    before = change.before
    assert before is not None
    refusal = Conflict if before.session is None else ClaimLost
    if snapshot is None:
        return refusal(f"{before.ref} is gone. Read it again, then decide again.")
    if before.session != snapshot.session:
        if before.session is None:
            return Conflict(f"{before.ref} is claimed by {snapshot.session}; nothing was changed.")
        return ClaimLost(f"The claim on {before.ref} ended; perhaps another worker has it now.")
    if before.session is not None and snapshot.has_foreign_write:
        return ClaimLost(
            f"Another service wrote {before.ref} while it was claimed (it is {snapshot.state} now); the claim has ended."
        )
    if before.seq != snapshot.seq or before.version != snapshot.record_version:
        return Conflict(
            f"{before.ref} has changed since it was read (it is {snapshot.state} now). Read it again, then decide again."
        )
    return None


def _find_merritt_misfit(layout: KindLayout, after: Record) -> StoreError | None:
    """Return the refusal of a record that Merritt's services could not read, and that must not be in their tree."""
    if not layout.has_state(after.state):
        return StoreError(
            f"A {layout.kind} in Merritt's tree cannot be {after.state}; its services know {', '.join(layout.states)}."
        )
    if layout.parent_kind and (after.parent is None or after.parent.kind != layout.parent_kind):
        return StoreError(f"A {layout.kind} in Merritt's tree needs a {layout.parent_kind} as its parent.")
    return None


def _release_locks(plan: WritePlan, ref: Ref, locks: Iterable[str], remaining: Iterable[str] = ()) -> None:
    """Drop locks, except one that was removed and is another record's now, and except one whose node a remaining lock
    uses too.
    """
    remaining_paths = {lock_path_of(lock) for lock in remaining}
    for path in dict.fromkeys(map(lock_path_of, locks)):
        owner_node = plan.existing.get(path) if plan.existing is not None else None
        if path not in remaining_paths and (owner_node is None or owner_node.data == str(ref).encode()):
            plan.remove_node(path, "owned-lock-drop")


# --- what Merritt's services expect of a batch beside its status


def plan_batch_uuid(plan: WritePlan, snapshot: RecordSnapshot, submission: bytes | None) -> StoreError | None:
    """Move a batch to the name in /batch-uuids that its new submission gives."""
    old, new = (
        write_plan.batch_uuid_of((snapshot.documents or {}).get("submission")),
        write_plan.batch_uuid_of(submission),
    )
    if old == new:
        return None
    own_data = snapshot.ref.id.encode()
    if new:
        path = f"/batch-uuids/{new}"
        owner_node = plan.existing.get(path) if plan.existing is not None else None
        if owner_node is not None and owner_node.data != own_data:
            return RecordExists(f"The batchID {new} belongs to {owner_node.data.decode(errors='replace')} already.")
        plan.ensure_node(path, "note", own_data)
    if old:
        plan.remove_node(f"/batch-uuids/{old}", "note")
    return None


def states_paths_of(path: str, state: str) -> tuple[str, str]:
    """Return the node `states` of a batch and its first child.

    The node says that the batch is no longer pending. It is never empty, and does not look like that of a finished
    batch while jobs may still be added.
    """
    return path, f"{path}/{'batch-completed' if state in STATES_WITHOUT_JOBS else 'batch-processing'}"


def plan_states_node(plan: WritePlan, snapshot: RecordSnapshot, state: str) -> None:
    """Write the node `states` of a batch that changes its state.

    Merritt's services take a batch without that node for a pending one, and one with an empty batch-processing for a
    finished one.
    """
    base = f"{snapshot.layout.home_path_of(snapshot.ref.id)}/states"
    if state == "Deleted" and "states" in snapshot.child_names:
        # Their reporter takes every batch that has an empty batch-processing, fails on a deleted one, and leaves its
        # lock behind.
        processing = plan.existing.get(f"{base}/batch-processing") if plan.existing is not None else None
        plan.touched_paths.append(f"{base}/batch-processing")
        if processing is not None and not processing.children:
            plan.ensure_folders(base, f"{base}/batch-deleted")
            plan.ops.append(operations.delete(f"{base}/batch-processing", "states"))
    elif state != "Pending" and "states" not in snapshot.child_names:
        plan.ensure_folders(*states_paths_of(base, state))  # jobs that the same group creates need the folder too
    elif state == "Pending" and "states" in snapshot.child_names:
        found = (
            {bucket: plan.existing.get(f"{base}/{bucket}") for bucket in BUCKETS} if plan.existing is not None else {}
        )
        plan.touched_paths += [f"{base}/{bucket}" for bucket in BUCKETS]
        if not any(node.children for node in found.values() if node is not None):
            plan.ops += [
                operations.delete(f"{base}/{bucket}", "states") for bucket, node in found.items() if node is not None
            ]
            plan.ops.append(operations.delete(base, "states"))
