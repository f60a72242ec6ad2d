"""Admin: workers, holds and pauses, locks, what doctor finds, settings, tokens and sign-ins."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Response

from waybill import doctor, views
from waybill.config import SETTINGS, effective_values_of
from waybill.http.request_context import declare_role
from waybill.pages.accounts import read_days, read_scope
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Finding
from waybill.rules import Machines, check_hold_name
from waybill.rules.inputs import QUEUE_PREFIX
from waybill.sign_in import PRIVATE_KINDS, SIGN_IN, end_sign_in, to_sign_in_view
from waybill.tokens import ROLES, TOKEN, issue, revoke, token_view_of

MAX_FINDINGS = 500  # shown at once
MAX_LISTED = 500  # tokens, sign-ins


def build_router() -> APIRouter:
    routes = make_page_router("/admin")

    @routes.get("", **declare_role("reader"))
    def show_workers(context: PageRequest) -> Response:
        with context.connections.open_store() as store:
            now = store.now()
            sessions = [views.to_session_view(session, now) for session in store.list_sessions()]
        return context.render("admin/workers.html", workers=[s for s in sessions if not s["about"].get("server")])

    @routes.get("/holds", **declare_role("reader"))
    def show_holds(context: PageRequest) -> Response:
        with context.connections.open_store() as store:
            holds = sorted(store.list_holds().items())
        return context.render("admin/holds.html", holds=holds, queues=list_queues(context.machines))

    @routes.post("/holds/set", **declare_role("operator"))
    def set_hold(context: PageRequest) -> Response:
        name = context.get_field("name")
        with context.connections.open_engine() as engine:
            engine.set_hold(name, who=context.who, why=context.get_reason())
        context.notify_change()
        return context.redirect(context.get_way_back("/admin/holds"), f"the hold {name} is set")

    @routes.post("/holds/clear", **declare_role("operator"))
    def clear_hold(context: PageRequest) -> Response:
        name = context.get_field("name")
        check_hold_name(name)
        with context.connections.open_engine() as engine:
            engine.clear_hold(name)
        context.notify_change()
        return context.redirect(context.get_way_back("/admin/holds"), f"the hold {name} is cleared")

    @routes.get("/locks", **declare_role("operator"))
    def show_locks(context: PageRequest, after: Annotated[str, Query(max_length=800)] = "") -> Response:
        with context.connections.open_store() as store:
            locks = store.list_locks(after=after, limit=200)
        return context.render("admin/locks.html", locks=locks, next=locks[-1].name if len(locks) == 200 else None)

    @routes.get("/doctor", **declare_role("operator"))
    def show_doctor(context: PageRequest, run: bool = False) -> Response:
        """The examination reads the whole store, so it begins with a button."""
        findings = examine(context) if run else None
        return context.render("admin/doctor.html", findings=findings, most=MAX_FINDINGS)

    @routes.post("/doctor", **declare_role("operator"))
    def repair(context: PageRequest) -> Response:
        rule, where = context.get_field("rule"), context.get_field("where")
        with closing(context.environment.open_store(migrate=False)) as store:
            is_repaired = doctor.repair_one(context.environment, store, rule, where, who=context.who)
        context.notify_change()
        notices = {
            True: "repaired",
            False: "it could not be repaired; the server's log says why",
            None: "it is not there any more",
        }
        return context.redirect("/admin/doctor", notices[is_repaired], run="1")

    @routes.get("/settings", **declare_role("admin"))
    def show_settings(context: PageRequest) -> Response:
        config = context.environment.config
        values = effective_values_of(config)
        rows = [(name, value, config.origins[name]) for name, value in values.items()]
        return context.render("admin/settings.html", rows=rows, descriptions={s.name: s.description for s in SETTINGS})

    @routes.get("/tokens", **declare_role("admin"))
    def show_tokens(context: PageRequest) -> Response:
        with context.connections.open_store() as store:
            records = store.find(TOKEN.name, newest=True, limit=MAX_LISTED, documents=True).records
        return context.render("admin/tokens.html", tokens=[token_view_of(r) for r in records], roles=ROLES, issued=None)

    @routes.post("/tokens/new", **declare_role("admin"))
    def create_token(context: PageRequest) -> Response:
        with context.connections.open_engine() as engine:
            issued = issue(
                engine,
                context.get_field("name"),
                context.get_field("role"),
                scope=read_scope(context),
                lifetime=read_days(context),
                who=context.who,
            )
            records = engine.store.find(TOKEN.name, newest=True, limit=MAX_LISTED, documents=True).records
        return context.render(
            "admin/tokens.html", tokens=[token_view_of(r) for r in records], roles=ROLES, issued=issued.token
        )

    @routes.post("/tokens/revoke", **declare_role("admin"))
    def revoke_token(context: PageRequest) -> Response:
        with context.connections.open_engine() as engine:
            revoke(engine, context.get_field("id"), who=context.who, why=context.get_reason())
        return context.redirect("/admin/tokens", "the token is revoked")

    @routes.get("/sign-ins", **declare_role("admin"))
    def show_sign_ins(context: PageRequest) -> Response:
        with context.connections.open_store() as store:
            now = store.now()
            records = store.find(SIGN_IN.name, newest=True, limit=MAX_LISTED, documents=True).records
        return context.render("admin/sign_ins.html", sign_ins=[to_sign_in_view(r, now) for r in records])

    @routes.post("/sign-ins/end", **declare_role("admin"))
    def end(context: PageRequest) -> Response:
        with context.connections.open_engine() as engine:
            end_sign_in(engine, context.get_field("id"), who=context.who, why=context.get_reason())
        return context.redirect("/admin/sign-ins", "the sign-in has ended")

    return routes


def list_queues(machines: Machines) -> list[str]:
    """The holds that pause work: of a machine, and of each state."""
    return [
        name
        for machine in machines.values()
        if machine.name not in PRIVATE_KINDS and machine.list_work_states()
        for name in (
            machine.queue,
            *(f"{QUEUE_PREFIX}{machine.name}.{state.name}" for state in machine.list_work_states()),
        )
    ]


def examine(context: PageContext) -> list[Finding]:
    with closing(context.environment.open_store(migrate=False)) as store:
        found = doctor.examine(context.environment, store, who=context.who, fix=False)
        return [finding for finding, _ in islice(found, MAX_FINDINGS)]
