"""The rules that are the same for every machine: from a record and an event to the change that it causes. Pure
functions, imported from here.

    create                   nothing -> a first state
    apply_outcome            a step's outcome, or its exception, on the record that it had claimed
    wait_for_children        a join whose children are still open goes on waiting for them
    wait_for_lock            a step needs a lock that another record owns
    enter_hold               a hold in force sends the record to rest instead of to work
    act                      an operator's action, or the sentence that says why it is refused
    decide_acts              what one commit does to records beside its own
    answer_action_request    the same for an action that was requested while a worker had claimed the record
    reload_declared          a record that another service created or moved gets its hold names and locks
    recompute_open           this release says otherwise whether the parent waits for a record in this state
    rebuild_files            the host with the working files is lost: back to the state that makes them again

transitions.py has creation and what happens to a claimed record, actions.py what operators request, acts.py what a
commit does to other records, events.py what it tells others, inputs.py the
checks of names and numbers that come from outside, documents.py how documents are written and read, machines.py the
machines of a process.
"""

from waybill.errors import ActionRefused
from waybill.rules.actions import (
    act,
    answer_action_request,
    find_action,
    further_acts_of_request,
    move,
    refusal_cause_of,
    refuse_action_request,
    reprioritise,
)
from waybill.rules.acts import DecidedActs, decide_acts
from waybill.rules.documents import encode_documents, translate_document_errors
from waybill.rules.errors import ClaimedByWorker, clip, describe_error
from waybill.rules.events import create_events
from waybill.rules.inputs import (
    DEFAULT_PRIORITY,
    IDEMPOTENCY_KEY_PATTERN,
    PRIORITY,
    check_hold_is_heeded,
    check_hold_name,
    check_priority,
    check_queue,
    find_id_problem,
    list_pause_holds,
)
from waybill.rules.machines import EventRouting, Machines, find_illegal_transition, find_undeclared_states, matches_type
from waybill.rules.transitions import (
    MAX_RETRY_ENTRIES,
    apply_outcome,
    create,
    enter_hold,
    enter_state,
    extend_locks,
    find_locks,
    has_all_children,
    rebuild_files,
    recompute_open,
    reload_declared,
    unclaim,
    wait_for_children,
    wait_for_lock,
)

__all__ = [
    "DEFAULT_PRIORITY",
    "IDEMPOTENCY_KEY_PATTERN",
    "MAX_RETRY_ENTRIES",
    "PRIORITY",
    "ActionRefused",
    "ClaimedByWorker",
    "DecidedActs",
    "EventRouting",
    "Machines",
    "act",
    "answer_action_request",
    "apply_outcome",
    "check_hold_is_heeded",
    "check_hold_name",
    "check_priority",
    "check_queue",
    "clip",
    "create",
    "create_events",
    "decide_acts",
    "describe_error",
    "encode_documents",
    "enter_hold",
    "enter_state",
    "extend_locks",
    "find_action",
    "find_id_problem",
    "find_illegal_transition",
    "find_locks",
    "find_undeclared_states",
    "further_acts_of_request",
    "has_all_children",
    "list_pause_holds",
    "matches_type",
    "move",
    "rebuild_files",
    "recompute_open",
    "refusal_cause_of",
    "refuse_action_request",
    "reload_declared",
    "reprioritise",
    "translate_document_errors",
    "unclaim",
    "wait_for_children",
    "wait_for_lock",
]
