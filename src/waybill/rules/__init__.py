"""The rules that are the same for every machine: from a record and what happened to it, to the change that says so.
Pure.

    create   nothing -> a first state
    settle   a step's outcome, or its exception, on the record that it held
    look     a join whose children are still open goes on waiting for them
    hold     a mark in force sends the record to rest instead of to work
    act      a person's action, or the sentence that says why not
    answer   the same for an action that was asked while a worker held the record
    refit    what another service made or moved gets the marks and keys that the table asks for
    reckon   the table says otherwise than it did whether the parent waits for a record in this state
    remake   the host with the working files is gone: back to the state that makes them again

They are imported from here. Creation is in entering.py, what a step's end makes of a record in outcomes.py, what
happens to it without an answer of its step in yielding.py, what people ask for in asking.py, and how marks may be named
in marks.py.
"""

from waybill.rules.asking import act, answer, find_action, move, refuse, refused
from waybill.rules.entering import bad_id, create, enter
from waybill.rules.keys import check_more_keys, keys_in
from waybill.rules.legality import path_is_legal, undeclared
from waybill.rules.machines import Machines, UnknownKind
from waybill.rules.marks import BadMark, UnknownQueue, check_mark, check_queue, pausing
from waybill.rules.outcomes import RETRY_LINES, settle
from waybill.rules.papers import documents, read, users_documents
from waybill.rules.priority import DEFAULT_PRIORITY, PRIORITY, check_priority, reprioritise
from waybill.rules.refusals import Held, Refused, UnknownState, clip, said
from waybill.rules.yielding import HELD_BY, children_are_made, hold, look, reckon, refit, release, remake, wait_for_key

__all__ = [
    "DEFAULT_PRIORITY",
    "HELD_BY",
    "PRIORITY",
    "RETRY_LINES",
    "BadMark",
    "Held",
    "Machines",
    "Refused",
    "UnknownKind",
    "UnknownQueue",
    "UnknownState",
    "act",
    "answer",
    "bad_id",
    "check_mark",
    "check_more_keys",
    "check_priority",
    "check_queue",
    "children_are_made",
    "clip",
    "create",
    "documents",
    "enter",
    "find_action",
    "hold",
    "keys_in",
    "look",
    "move",
    "path_is_legal",
    "pausing",
    "read",
    "reckon",
    "refit",
    "refuse",
    "refused",
    "release",
    "remake",
    "reprioritise",
    "said",
    "settle",
    "undeclared",
    "users_documents",
    "wait_for_key",
]
