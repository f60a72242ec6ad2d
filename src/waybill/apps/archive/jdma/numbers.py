"""The numbers by which JDMA's client knows kinds of requests and stages. What JDMA lacks has the number nearest to it."""

from __future__ import annotations

from waybill.apps.archive.machine.request import DELETE_FLOW, GET_FLOW, REQUEST

KINDS = {"PUT": 0, "GET": 1, "MIGRATE": 2, "DELETE": 3, "MOVE": 0}

FAILED, FAILED_COMPLETED = 1000, 1001
# JDMA numbers PUT_PACKING after PUT_PENDING, although it comes before it.
REQUEST_STAGES = {
    "PUT_START": 0,
    "PUT_PENDING": 2,
    "PUT_PACKING": 3,
    "PUTTING": 4,
    "VERIFY_PENDING": 5,
    "VERIFY_GETTING": 6,
    "VERIFYING": 7,
    "PUT_TIDY": 8,
    "PUT_COMPLETED": 9,
    **{stage: 100 + n for n, stage in enumerate(GET_FLOW)},
    **{stage: 200 + n for n, stage in enumerate(DELETE_FLOW)},
    "MOVE_START": 0,
    "MOVING": 4,
    "MOVE_VERIFYING": 7,
    "MOVE_TIDY": 8,
    "MOVE_COMPLETED": 9,
    "FAILED": FAILED,
    "STOPPED": FAILED_COMPLETED,
    "UNDELETED": FAILED_COMPLETED,
}
MIGRATION_STAGES = {"ON_DISK": 0, "PUTTING": 1, "ON_STORAGE": 2, "FAILED": 3, "DELETING": 4, "DELETED": 5}

assert set(REQUEST_STAGES) == {state.name for state in REQUEST.states}
