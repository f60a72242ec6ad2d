"""Events reach their subscribers: at least once, in order, after any crash, on every store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.subscriptions.bakery import BAKED, BAKERY, BROKEN, SHOP, SOLD, refuse_first
from waybill import (
    ActionRefused,
    Application,
    Done,
    Environment,
    Event,
    Machine,
    MachineError,
    New,
    Outcome,
    Record,
    Ref,
    StepContext,
    end,
    work,
)
from waybill.doctor import examine
from waybill.subscriptions import (
    EventLogRoutine,
    ReceivedEvent,
    SubscriberContext,
    SubscriptionCursor,
    SubscriptionRoutine,
    read_events,
)
from waybill.subscriptions.subscriber import MAX_TRIES
from waybill.testing import StepTester

MANY = 250  # more than a page of the log

STORES = ("model", "sqlite", "postgres", "zookeeper")


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "model":
            return ""
        case "sqlite":
            return f"sqlite:///{tmp_path}/town.db"
        case name:
            url: str = request.getfixturevalue(f"fast_{name}_url" if name == "postgres" else f"{name}_url")
            return url


def open_town(folder: Path, *applications: Application, store: str = "", **settings: object) -> StepTester:
    first, *others = applications
    return StepTester(first, folder, store=store, settings=settings, others=others)


def run_dry(town: StepTester) -> None:
    """Until nothing is due, and no subscription has anything to read."""
    for _ in range(3):
        town.run_until_idle()
        town.advance(6)
        town.store.release_due_waits()
    town.run_until_idle()


def test_an_event_is_written_with_its_commit_and_handled_once(tmp_path: Path, store_url: str) -> None:
    with open_town(tmp_path, BAKERY, SHOP, store=store_url) as town:
        loaves = [town.submit("loaf") for _ in range(3)]
        run_dry(town)
        events = [each.documents["event"] for each in town.find_all("event")]
        assert [(e["type"], e["subject"]) for e in events if e["subject"] == loaves[0].id] == [
            (BAKED.name, loaves[0].id),
            (SOLD.name, loaves[0].id),
        ]
        assert len(events) == 6
        for loaf in loaves:
            offer = town.get(Ref("offer", loaf.id))
            assert (offer.state, offer.documents["offer"]["grams"]) == ("Over", 500)
        cursor = town.get(Ref("subscription", "shop")).document(SubscriptionCursor)
        assert (cursor.handled, cursor.failing) == (6, "")


def test_more_events_than_a_page_come_in_order(tmp_path: Path, store_url: str) -> None:
    seen: list[tuple[str, str]] = []

    def note(event: ReceivedEvent, ctx: SubscriberContext) -> None:
        seen.append((event.subject, event.type))

    listener = Application("listener", "Listens.", (), subscribes={"*": note})
    with open_town(tmp_path, BAKERY, listener, store=store_url) as town:
        for n in range(MANY):
            town.engine.submit_all([], events=[Event(BAKED, f"loaf {n % 10}", {"n": n})], who="test")
        run_dry(town)
        assert seen == [(f"loaf {n % 10}", BAKED.name) for n in range(MANY)]


def test_an_action_and_a_save_tell_of_events(tmp_path: Path, store_url: str) -> None:
    with open_town(tmp_path, BAKERY, SHOP, store=store_url) as town:
        town.submit(New("offer", {"offer": {}}, id="rye"))
        town.engine.act(Ref("offer", "rye"), "close", events=[Event(SOLD, "rye")])
        assert [each.documents["event"]["type"] for each in town.find_all("event")] == [SOLD.name]
        with pytest.raises(ActionRefused):
            town.engine.act(Ref("offer", "rye"), "close", events=[Event(SOLD, "rye")])
        assert len(town.find_all("event")) == 1, "a refused action tells of nothing"


def test_nobody_subscribed_nothing_is_written(tmp_path: Path) -> None:
    with open_town(tmp_path, BAKERY) as town:
        loaf = town.submit("loaf")
        run_dry(town)
        assert town.get(loaf).state == "Gone"
        assert town.find_all("event") == []
        assert town.find_all("subscription") == []


def test_types_can_be_logged_although_nobody_subscribes(tmp_path: Path) -> None:
    with open_town(tmp_path, BAKERY, **{"events.log": "bakery.loaf.s*"}) as town:
        town.submit("loaf")
        run_dry(town)
        assert [each.documents["event"]["type"] for each in town.find_all("event")] == [SOLD.name]


def test_an_undeclared_event_fails_its_step_whether_or_not_anybody_subscribes(tmp_path: Path) -> None:
    def burning(toast: Record, ctx: StepContext) -> Outcome:
        return Done(events=(Event("bakery.toast.burnt", toast.id),))

    toast = Machine(
        name="toast", plural="toasts", prefix="toast", description="Toast.", steps={"Burning": burning},
        states=(work("Burning", to="Burnt", description="-"), end("Burnt", description="-")),
    )  # fmt: skip
    with open_town(tmp_path, dataclasses.replace(BAKERY, machines=(toast,))) as town:
        made = town.submit("toast")
        run_dry(town)
        assert town.get(made).state == "Failed"
        assert "No application here declares the event bakery.toast.burnt" in town.get(made).message
        with pytest.raises(MachineError, match="subject"):
            town.engine.submit_all([], events=[Event(BAKED, "x" * 501)])


def test_a_subscriber_that_always_raises_is_parked_and_stops_nobody(tmp_path: Path, store_url: str) -> None:
    with open_town(tmp_path, BAKERY, SHOP, BROKEN, store=store_url) as town:
        # no other tries: PostgreSQL waits by its own clock
        town.environment.subscribers["broken"] = dataclasses.replace(
            town.environment.subscribers["broken"], max_tries=1
        )
        loaf = town.submit("loaf")
        run_dry(town)
        parked = town.get(Ref("subscription", "broken"))
        assert parked.state == "Parked"
        assert town.get(loaf).state == "Gone"
        assert town.get(Ref("offer", loaf.id)).state == "Over"
        first = town.find_all("event")[0]
        assert f"the shop is closed for {loaf.id}" in parked.message
        assert f"skip --arg event={first.id}" in parked.message
        (finding,) = SubscriptionRoutine(frozenset(town.environment.subscribers)).check(town.make_maintenance_context())
        assert (finding.rule, finding.where) == ("subscription parked", "subscription broken")
        with pytest.raises(ActionRefused, match=f"--arg event={first.id}"):
            town.act(parked, "skip")
        town.act(parked, "skip", event=first.id)
        run_dry(town)
        again = town.get(Ref("subscription", "broken"))
        assert again.document(SubscriptionCursor).failing == town.find_all("event")[1].id
        town.act(again, "resume")
        assert town.get(again).state == "Listening"


def test_an_event_is_tried_again_a_dozen_times(tmp_path: Path) -> None:
    with open_town(tmp_path, BAKERY, BROKEN) as town:
        town.engine.submit_all([], events=[Event(BAKED, "loaf")])
        parked = town.run_until(Ref("subscription", "broken"), "Parked")
        assert sum(e.cause == "retry" for e in town.store.history(*parked.ref)) == MAX_TRIES - 1


def test_a_permanent_error_parks_at_once_and_keeps_what_was_handled(tmp_path: Path) -> None:
    picky = Application("picky", "Listens.", (), subscribes={BAKED.name: refuse_first})
    with open_town(tmp_path, BAKERY, picky) as town:
        for subject in ("loaf 0", "loaf 2", "loaf 1", "loaf 3"):
            town.engine.submit_all([], events=[Event(BAKED, subject)])
        town.run_until_idle()
        parked = town.get(Ref("subscription", "picky"))
        assert parked.state == "Parked"
        cursor = parked.document(SubscriptionCursor)
        assert (cursor.handled, cursor.failing) == (2, town.find_all("event")[2].id)
        town.act(parked, "skip", event=cursor.failing)
        town.run_until_idle()
        assert town.get(parked).document(SubscriptionCursor).handled == 3


def test_a_handler_that_acts_on_what_is_gone_is_tried_again_and_parked(tmp_path: Path) -> None:
    with open_town(tmp_path, BAKERY, SHOP) as town:
        town.engine.submit_all([], events=[Event(SOLD, "nothing")])
        parked = town.run_until(Ref("subscription", "shop"), "Parked")
        assert "There is no offer nothing" in parked.message


def test_a_spawn_into_an_application_that_is_not_loaded_does_not_fail_the_maker(tmp_path: Path) -> None:
    lonely = dataclasses.replace(SHOP, machines=())
    with open_town(tmp_path, BAKERY, lonely) as town:
        loaf = town.submit("loaf")
        parked = town.run_until(Ref("subscription", "shop"), "Parked")
        assert town.get(loaf).state == "Gone"
        assert "There is no kind 'offer'" in parked.message


def test_a_new_subscription_begins_with_what_happens_after_it(tmp_path: Path) -> None:
    with open_town(tmp_path, BAKERY, **{"events.log": "*"}) as town:
        town.engine.submit_all([], events=[Event(BAKED, "old")])
        environment = Environment.from_config(town.config, [BAKERY, SHOP])
        environment.subscriptions.ensure_records(environment.make_engine(town.store))
        made = town.store.get("subscription", "shop")
        assert made.seq > town.find_all("event")[0].seq


def test_it_is_handled_wherever_the_process_crashes(tmp_path: Path) -> None:
    with open_town(tmp_path, BAKERY, SHOP) as town:
        loaf = town.submit("loaf")
        subscription = Ref("subscription", "shop")
        points = 0
        for point in town.crash_at_every_call(loaf, "Gone"):
            run_dry(town)
            assert town.get(Ref("offer", loaf.id)).state == "Over", point
            assert len(town.find_all("event")) == 2, point
            points += 1
        assert points > 10
        assert town.get(subscription).state == "Listening"


def test_the_log_is_read_from_a_place_and_emptied_of_what_all_have_read(tmp_path: Path, store_url: str) -> None:
    with open_town(tmp_path, BAKERY, SHOP, store=store_url, **{"events.keep": "1"}) as town:
        loaf = town.submit("loaf")
        run_dry(town)
        events, end_of_log = read_events(town.store, 0, types=["bakery.*.sold"])
        assert [(e.type, e.subject) for e in events] == [(SOLD.name, loaf.id)]
        assert read_events(town.store, end_of_log) == ([], end_of_log)
        assert town.run_maintenance("event-log") == 0
        old = EventLogRoutine(keep_days=-1)
        context = town.make_maintenance_context()
        town.engine.submit_all([], events=[Event(SOLD, loaf.id)])
        (finding,) = old.check(context)
        assert old.repair(context, finding)
        assert [each.documents["event"]["type"] for each in town.find_all("event")] == [SOLD.name], "not read yet"
        with pytest.raises(ActionRefused, match="subscription shop has not read"):
            town.act(town.find_all("event")[0], "expire")


def test_the_log_has_a_limit_whoever_has_not_read_it(tmp_path: Path) -> None:
    with open_town(tmp_path, BAKERY, BROKEN) as town:
        for n in range(5):
            town.engine.submit_all([], events=[Event(BAKED, f"loaf {n}")])
        town.run_until(Ref("subscription", "broken"), "Parked")
        routine, context = EventLogRoutine(max_events=2), town.make_maintenance_context()
        (finding,) = routine.check(context)
        assert routine.repair(context, finding)
        assert [e.documents["event"]["subject"] for e in town.find_all("event")] == ["loaf 3", "loaf 4"]


def test_a_subscription_under_whose_name_nobody_subscribes_is_named_and_can_be_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/town.db"
    with open_town(tmp_path, BAKERY, SHOP, store=url) as town:
        town.engine.submit_all([], events=[Event(BAKED, "loaf")])
        with pytest.raises(ActionRefused, match="shop subscribes here"):
            town.act(Ref("subscription", "shop"), "end")
    with open_town(tmp_path, BAKERY, store=url) as town:
        findings = [f for f, _ in examine(town.environment, town.store, who="test", fix=False)]
        assert [f.where for f in findings if f.rule == "nobody subscribes"] == ["subscription shop"]
        town.act(Ref("subscription", "shop"), "end")
        assert town.get(Ref("subscription", "shop")).state == "Ended"
