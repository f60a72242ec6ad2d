"""The steps of ingest, one file for each state (or two that belong together), and which machine's state each of them
works in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waybill.apps.ingest.steps.admitting import pending_batch, processing_batch
from waybill.apps.ingest.steps.assembling import pending_assembly, processing_assembly
from waybill.apps.ingest.steps.downloading import downloading
from waybill.apps.ingest.steps.estimating import estimating
from waybill.apps.ingest.steps.locking import asking
from waybill.apps.ingest.steps.notifying import notify
from waybill.apps.ingest.steps.pending import pending
from waybill.apps.ingest.steps.processing import processing
from waybill.apps.ingest.steps.provisioning import provisioning
from waybill.apps.ingest.steps.rebuilding import rebuilding
from waybill.apps.ingest.steps.recording import recording
from waybill.apps.ingest.steps.reporting import reporting, update_reporting
from waybill.apps.ingest.steps.storing import storing
from waybill.machine import Machine
from waybill.step import Step

STEPS: Mapping[str, Mapping[str, Step]] = {
    "batch": {
        "Pending": pending_batch,
        "Processing": processing_batch,
        "Reporting": reporting,
        "UpdateReporting": update_reporting,
    },
    "job": {
        "Pending": pending,
        "Estimating": estimating,
        "Provisioning": provisioning,
        "Downloading": downloading,
        "Processing": processing,
        "Storing": storing,
        "Recording": recording,
        "Notify": notify,
    },
    "access-small": {"Pending": pending_assembly, "Processing": processing_assembly},
    "access-large": {"Pending": pending_assembly, "Processing": processing_assembly},
    "rebuild": {"Rebuilding": rebuilding},
    "lock": {"Asking": asking},
}


def equip(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """The machines with the steps of the states in which work is done here."""
    equipped = tuple(machines)
    for machine in equipped:
        for name, step in STEPS.get(machine.name, {}).items():
            state = machine.state(name)
            if state is not None and state.works:
                machine.step(name)(step)
    return equipped
