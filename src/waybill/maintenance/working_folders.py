"""Working folders of this host that no record needs, and records of this host whose working folder is missing.

A folder is needed while its record exists and is in a state that does not clear its files. A worker that dies between
the commit and the clearing leaves one behind; so does an operator's action, which wakes this routine on every host. The
other way round, a record in a state that needs the files of an earlier state is sent back to make them when they are
missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from waybill import rules
from waybill.maintenance.routine import MaintenanceContext, ref_of
from waybill.record import CommitGroup, CommitResult, Finding, Record, RecordNotFound, Ref
from waybill.rules import triggered_maintenance
from waybill.worker.working_folders import clear_folder, find_last_claim_version, folder_of, iterate_folders

NO_RECORD = "folder without a record"
NO_FOLDER = "record without its folder"


@dataclass(frozen=True)
class WorkingFolderRoutine:
    min_age: float = 3600.0  # seconds; a younger folder without a record may belong to one that is being made
    name: str = triggered_maintenance.FOLDERS
    description: str = "Removes working folders that no record needs, and sends records back whose folder is missing."
    poll_interval: float = 600.0
    per_host: bool = True
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        yield from self._find_unneeded_folders(context)
        yield from self._find_records_without_folder(context)

    def _find_unneeded_folders(self, context: MaintenanceContext) -> Iterator[Finding]:
        for folder, ref in iterate_folders(context.root, context.machines):
            if self._is_needed(context, ref):
                continue
            try:
                is_young = time.time() - folder.lstat().st_mtime < self.min_age
            except FileNotFoundError:
                continue  # cleared since it was listed
            if is_young and not context.has_record(ref):
                continue
            path = folder.relative_to(context.root).as_posix()
            yield Finding(NO_RECORD, path, f"no record needs the folder {path}.", "remove the folder", ref=ref)

    def _find_records_without_folder(self, context: MaintenanceContext) -> Iterator[Finding]:
        for machine in context.machines.values():
            for state in (s for s in machine.states if s.on_host_lost is not None):
                for record in context.store.each(
                    machine.name, state=state.name, documents=machine.folder is not None, page_size=500
                ):
                    if _is_folder_missing(context, record):
                        problem = f"{record.ref} is {state.name} and its working folder is not on {context.host}."
                        yield Finding(
                            NO_FOLDER, str(record.ref), problem, f"go back to {state.on_host_lost}", ref=record.ref
                        )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        ref = ref_of(finding)
        if finding.rule == NO_RECORD:
            if len(parts := finding.where.split("/")) < 2 or not all(map(_is_name, parts)):
                raise ValueError(f"{finding.where!r} is no working folder.")
            folder = context.root / finding.where
            last = find_last_claim_version(folder)
            if self._is_needed(context, ref):  # checked again: it may have been created or resumed meanwhile
                return False
            clear_folder(folder, last)
            return not os.path.lexists(folder)
        try:
            record = context.store.get(*ref)
        except RecordNotFound:
            return False
        if not _is_folder_missing(context, record):
            return False
        change = rules.rebuild_files(context.machines[ref.kind], record, context.who)
        return isinstance(context.store.commit([CommitGroup((change,))])[0], CommitResult)

    def _is_needed(self, context: MaintenanceContext, ref: Ref) -> bool:
        machine = context.machines.get(ref.kind)
        if machine is None:
            return True  # of an application that is not loaded here: not ours to decide
        try:
            record = context.store.get(*ref)
        except RecordNotFound:
            return False
        state = machine.find_state(record.state)
        return state is None or not state.clears_files or record.session is not None


def _is_name(part: str) -> bool:
    return part not in ("", ".", "..")


def _is_folder_missing(context: MaintenanceContext, record: Record) -> bool:
    if record.session is not None or record.host != context.host:
        return False
    return not folder_of(context.root, context.machines[record.kind], record).exists()
