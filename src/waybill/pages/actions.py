"""Actions from a page: of one record, and of many after a preview.

    one     /records/KIND/ID/act/ACTION      asks for the reason, and for what must be confirmed -> POST: taken
    many    POST /actions/preview            which of the selected records the action concerns, which not and why -> POST /actions/run

A form holds the ids and versions of what it showed. The action is taken on exactly these: a record that has moved since is left alone,
and named with what it was and what it is now. A record whose step runs may have been written meanwhile (a checkpoint) without moving: for
those the state must be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from fastapi import APIRouter, Path, Response

from waybill import rules, views
from waybill.accounts import RecordAccess, full_store_of
from waybill.engine import Engine
from waybill.errors import ActionRefused, InputError, WaybillError
from waybill.http.api_services import IdText, KindText
from waybill.http.authentication import check_role
from waybill.http.errors import HttpProblem
from waybill.http.request_context import declare_role
from waybill.machine import Action, Machine
from waybill.pages.figures import tone_of
from waybill.pages.formats import plural, record_url
from waybill.pages.lists import RecordFilter, make_query
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Conflict, Record, RecordNotFound, Ref, Store, StoreError

MAX_SELECTED = 1_000  # records of one preview: more are previewed after these are done
MAX_SHOWN = 200  # records of a preview that are listed; the others are counted


class SelectedRecord(NamedTuple):
    """A record as a page showed it."""

    ref: Ref
    version: int
    state: str

    def to_field(self) -> str:
        return msgspec.json.encode((self.ref.id, self.version, self.state)).decode()


class LeftOut(NamedTuple):
    """A record on which the action is not taken, and why."""

    ref: Ref
    state: str
    why: str


class ActionPreview(NamedTuple):
    eligible: list[Record]
    left_out: list[LeftOut]
    confirm: str | None  # what must be confirmed
    is_cut: bool  # there are more than MAX_SELECTED


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/records/{kind}/{id}/act/{name}", **declare_role("reader", somewhere=True))
    def show_action(
        context: PageRequest, kind: Annotated[KindText, Path()], id: Annotated[IdText, Path()], name: str
    ) -> Response:
        ref, machine = context.get_ref(kind, id), context.machines[kind]
        action = find_action(context, machine, name)
        with context.open_store() as store:
            record = context.access.get(store, ref, action.role)
            view = views.to_record_view(record, context.machines, documents=True, store=store)
        possible = next((each for each in view["actions"] if each["name"] == name), None)
        return context.render(
            "action.html",
            machine=machine,
            record=view,
            action=action,
            possible=possible,
            tone=tone_of(machine, record.state),
            selected=to_selected(record).to_field(),
            takes_arguments=action.writes is not None,
        )

    @routes.post("/records/{kind}/{id}/act/{name}", **declare_role("reader", somewhere=True))
    def take_action(
        context: PageRequest, kind: Annotated[KindText, Path()], id: Annotated[IdText, Path()], name: str
    ) -> Response:
        ref, machine = context.get_ref(kind, id), context.machines[kind]
        action = find_action(context, machine, name)
        selected = read_selected(kind, context.get_field("selected"))
        args = read_arguments(context.get_field("arguments")) if action.writes is not None else None
        with (
            context.connections.open_engine() as engine,
            rules.translate_document_errors(machine, "arguments", is_read=action.writes is not None),
        ):
            check_unmoved(context.access.get(engine.store, ref, action.role), machine, selected)
            acted = engine.act(
                ref,
                name,
                who=context.who,
                why=context.get_reason(),
                args=args,
                confirmed=context.get_field("confirmed") == "yes",
            )
        context.notify_change()
        notice = f"{name}: a worker has it and applies this when its step ends" if acted.pending else f"{name}: done"
        return context.redirect(record_url(kind, id), notice)

    @routes.post("/records/{kind}/{id}/priority", **declare_role("operator", somewhere=True))
    def set_priority(
        context: PageRequest, kind: Annotated[KindText, Path()], id: Annotated[IdText, Path()]
    ) -> Response:
        ref, text = context.get_ref(kind, id), context.get_field("priority")
        if not text.isdecimal() or int(text) > 99:
            raise HttpProblem(
                "invalid", f"A priority is a number from 0 to 99; {text[:20]!r} is not.", "Lower goes first."
            )
        with context.connections.open_engine() as engine:
            context.access.get(engine.store, ref, "operator")
            acted = engine.set_priority(ref, int(text), who=context.who, why=context.get_reason())
        context.notify_change()
        return context.redirect(
            record_url(kind, id), "the priority is set when the step ends" if acted.pending else "the priority is set"
        )

    @routes.post("/actions/preview", **declare_role("reader", somewhere=True))
    def preview(context: PageRequest) -> Response:
        machine = context.get_machine(context.get_field("kind"))
        action = find_action(context, machine, context.get_field("action"))
        with context.open_store() as store:
            found = preview_action(store, machine, action, iter_selection(context, store, machine), context.access)
        return context.render(
            "preview.html",
            machine=machine,
            action=action,
            preview=found,
            selected=[to_selected(record).to_field() for record in found.eligible],
            shown=MAX_SHOWN,
            back=context.get_way_back(f"/records/{machine.name}"),
            tone=lambda name: tone_of(machine, name),
        )

    @routes.post("/actions/run", **declare_role("reader", somewhere=True))
    def run(context: PageRequest) -> Response:
        machine = context.get_machine(context.get_field("kind"))
        action = find_action(context, machine, context.get_field("action"))
        selected = [read_selected(machine.name, text) for text in context.form.get("selected", [])]
        if len(selected) > MAX_SELECTED:
            raise HttpProblem("invalid", f"More than {MAX_SELECTED:,} records are selected.", "Preview fewer.")
        why, is_confirmed = context.get_reason(), context.get_field("confirmed") == "yes"
        with context.connections.open_engine() as engine:
            done, pending, left_out = run_on_selected(
                engine, machine, action, selected, context.access, who=context.who, why=why, confirmed=is_confirmed
            )
        context.notify_change()
        return context.render(
            "result.html",
            machine=machine,
            action=action,
            done=done,
            pending=pending,
            left_out=left_out,
            summary=f"{action.name}: done for {plural(len(done), machine.name, machine.plural)}",
            back=context.get_way_back(f"/records/{machine.name}"),
            shown=MAX_SHOWN,
        )

    return routes


def find_action(context: PageContext, machine: Machine, name: str) -> Action:
    """Return the action, if whoever asks has the role for it, at least for some records."""
    action = machine.find_action(name)
    if action is None:
        names = ", ".join(each.name for each in machine.actions) or "none"
        raise HttpProblem(
            "unknown-action", f"A {machine.name} has no action {name!r}; it has {names}.", "Go back and choose one."
        )
    check_role(context.user, action.role, somewhere=True)
    return action


def to_selected(record: Record) -> SelectedRecord:
    return SelectedRecord(record.ref, record.version, record.state)


def read_selected(kind: str, text: str) -> SelectedRecord:
    try:
        id, version, state = msgspec.json.decode(text, type=tuple[str, int, str])
    except msgspec.DecodeError as error:
        raise HttpProblem(
            "bad-request", "The form does not say which record it showed.", "Load the page again."
        ) from error
    return SelectedRecord(Ref(kind, id), version, state)


def read_arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InputError(f"The arguments are no JSON object: {error}.", code="bad-json") from error


def check_unmoved(record: Record, machine: Machine, selected: SelectedRecord) -> None:
    """Raise Conflict when the record is not as the page showed it."""
    state = machine.find_state(record.state)
    may_be_written = state is not None and state.works
    if record.state != selected.state:
        raise Conflict(
            f"{record.ref} has moved since the page was shown: it was {selected.state} and is {record.state} now."
        )
    if record.version != selected.version and not may_be_written:
        raise Conflict(
            f"{record.ref} has changed since the page was shown: somebody else acted on it. It is {record.state} again."
        )


def iter_selection(context: PageContext, store: Store, machine: Machine) -> Iterator[Record]:
    """The records that a list's form names: those that are ticked, or all that the list's filters find."""
    if context.get_field("scope") != "all":
        for id in dict.fromkeys(context.form.get("id", [])):
            try:
                yield store.get(*context.get_ref(machine.name, id))
            except RecordNotFound:
                continue  # removed meanwhile
        return
    fields = dict(parse_qsl(context.get_field("filters")))
    query = make_query(
        context.services, machine, fields.get("state", ""), fields.get("owner", ""), fields.get("parent", ""), "oldest"
    )
    chosen = RecordFilter.from_fields(**fields)
    now = store.now()
    for record in store.each(
        machine.name, state=query.state, parent=query.parent, owner=query.owner, documents=True, page_size=500
    ):
        if chosen.matches(record, now):
            yield record


def preview_action(
    store: Store, machine: Machine, action: Action, records: Iterable[Record], access: RecordAccess
) -> ActionPreview:
    """Whom the action concerns, as the guards say now."""
    eligible: list[Record] = []
    left_out: list[LeftOut] = []
    confirm: str | None = None
    for record in records:
        if len(eligible) + len(left_out) == MAX_SELECTED:
            return ActionPreview(eligible, left_out, confirm, is_cut=True)
        full = full_store_of(store)
        why = (
            _why_not(full, machine, action, record)
            if access.may(record, action.role)
            else f"This needs the role {action.role} for it."
        )
        if why is None:
            eligible.append(record)
            confirm = confirm or action.get_confirmation(record, full)
        else:
            left_out.append(LeftOut(record.ref, record.state, why))
    return ActionPreview(eligible, left_out, confirm, is_cut=False)


def _why_not(store: Store, machine: Machine, action: Action, record: Record) -> str | None:
    try:
        rules.find_action(machine, record, action.name)
        if record.session is not None and action.when_claimed == "refuse":
            return "A worker has claimed it."
        return action.guard(record, store) if action.guard is not None else None
    except ActionRefused as refusal:
        return str(refusal)
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - a machine's own function: the others are previewed all the same
        return f"Whether it is possible cannot be determined: {rules.describe_error(error)}."


def run_on_selected(
    engine: Engine,
    machine: Machine,
    action: Action,
    selected: Iterable[SelectedRecord],
    access: RecordAccess,
    *,
    who: str,
    why: str,
    confirmed: bool,
) -> tuple[list[Record], list[Record], list[LeftOut]]:
    """Take the action on each that has not moved; return those that are done, those that a worker will do, and the others."""
    done: list[Record] = []
    pending: list[Record] = []
    left_out: list[LeftOut] = []
    for each in selected:
        try:
            check_unmoved(access.get(engine.store, each.ref, action.role), machine, each)
            acted = engine.act(each.ref, action.name, who=who, why=why, confirmed=confirmed)
        except RecordNotFound:
            left_out.append(LeftOut(each.ref, "", "It was removed."))
        except (ActionRefused, Conflict) as refusal:
            left_out.append(LeftOut(each.ref, each.state, str(refusal)))
        except WaybillError as error:
            if isinstance(error, StoreError) and type(error) is not StoreError:
                raise  # the store is away: nothing else can be done either, and what is done stays done
            left_out.append(LeftOut(each.ref, each.state, str(error)))
        else:
            (pending if acted.pending else done).append(acted.record)
    return done, pending, left_out
