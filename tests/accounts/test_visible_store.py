"""A store as somebody sees it, on every store: reads leave out what may not be seen, and nothing is written through it."""

import pytest

from waybill.accounts import Grant, Identity, RecordAccess, VisibleStore
from waybill.engine import Engine
from waybill.machine import Document, Machine, action, end, rest
from waybill.record import Record, RecordNotFound, Ref, Store
from waybill.rules import ActionRefused, Machines
from waybill.step import New


def scope_of(record: Record) -> str:
    quay = record.documents.get("berth", {}).get("quay", "")
    return f"harbour/quay/{quay}" if quay else ""


def make_machine(name: str, *, is_internal: bool = False) -> Machine:
    return Machine(
        name=name, plural=f"{name}s", prefix=name, description="It lies there.", scope_of=scope_of, is_internal=is_internal,
        parent="ship" if name == "boat" else None,
        states=(rest("Moored", description="It lies there."), end("Sunk", description="It lies deeper.")),
        actions=(action("sink", "Moored", "Sunk", "Sink it."),),
        documents=(Document("berth", None, "service", "Where."),),
    )  # fmt: skip


MACHINES = Machines.from_machines([make_machine("ship"), make_machine("boat"), make_machine("note", is_internal=True)])


def see(store: Store, *grants: Grant, owners: tuple[str, ...] = ()) -> Store:
    identity = Identity.from_grants("ada", grants, owners=owners)
    return RecordAccess(identity, MACHINES, lambda kind: "harbour" if kind != "note" else "").view(store)


def list_ids(store: Store, kind: str = "ship", **filters: str) -> set[str]:
    return {record.id for record in store.each(kind, page_size=2, **filters)}  # type: ignore[arg-type]


@pytest.fixture
def moored(engine: Engine) -> dict[str, Record]:
    harbour = Engine(engine.store, MACHINES)
    ships = {
        name: harbour.submit(New("ship", {"berth": {"quay": quay}}, owner=owner, idempotency_key=name))
        for name, quay, owner in [
            ("mine", "south", "ada"), ("ours", "", "crew"), ("north", "north", "bob"), ("south", "south", "bob"), ("none", "", ""),
        ]
    }  # fmt: skip
    for name in ("north", "south"):
        ships[f"{name} boat"] = harbour.submit(New("boat", {}, parent=ships[name].ref, owner="ada"))
    ships["note"] = harbour.submit(New("note", {"berth": {"quay": "north"}}, owner="ada"))
    return ships


def test_what_is_seen_follows_from_owners_and_scopes(engine: Engine, moored: dict[str, Record]) -> None:
    ids = {name: record.id for name, record in moored.items()}
    seen = {
        (Grant("reader"),): {"mine", "ours", "north", "south", "none"},
        (Grant("reader", "harbour"),): {"mine", "ours", "north", "south", "none"},
        (Grant("reader", "harbour/quay/north"),): {"north"},
        (Grant("reader", "own"),): {"mine", "ours"},
        (Grant("reader", "own"), Grant("reader", "harbour/quay/north")): {"mine", "ours", "north"},
        (Grant("admin", "island"),): set(),
        (): set(),
    }
    for grants, names in seen.items():
        store = see(engine.store, *grants, owners=("ada", "crew"))
        assert list_ids(store) == {ids[name] for name in names}, grants
        assert list_ids(store, state="Moored") == {ids[name] for name in names}
        assert store.count_by_state("ship") == ({"Moored": len(names)} if names else {})
        for name in ("mine", "ours", "north", "south", "none"):
            reads = (
                lambda ref: store.get(*ref), lambda ref: store.history(*ref),  # noqa: B023
                lambda ref: store.get_by_idempotency_key("ship", name),  # noqa: B023
            )  # fmt: skip
            for read in reads:
                if name in names:
                    assert read(moored[name].ref)
                else:
                    with pytest.raises(RecordNotFound):
                        read(moored[name].ref)
        assert set(store.get_many([record.ref for record in moored.values() if record.kind == "ship"])) == {
            moored[name].ref for name in names
        }
        assert list_ids(store, "note") == ({ids["note"]} if Grant("reader") in grants else set())


def test_children_are_counted_by_whoever_sees_the_parent_and_listed_by_their_own_owner(
    engine: Engine, moored: dict[str, Record]
) -> None:
    store = see(engine.store, Grant("reader", "harbour/quay/north"))
    assert store.count_by_state("boat", parent=moored["north"].ref) == {"Moored": 1}
    assert store.count_by_state("boat", parent=moored["south"].ref) == {}
    assert store.find("boat", parent=moored["south"].ref).records == []
    own = see(engine.store, Grant("reader", "own"), owners=("ada",))
    assert list_ids(own, "boat") == {moored["north boat"].id, moored["south boat"].id}


def test_progress_and_locks_name_only_what_may_be_seen(engine: Engine, moored: dict[str, Record]) -> None:
    session = engine.store.open_session(host="here", ttl=60.0, about={})
    engine.store.renew_session(session, {str(moored[name].ref): [1, 2, "x", "Moored"] for name in ("mine", "north")})
    store = see(engine.store, Grant("reader", "harbour/quay/north"))
    assert [set(each.progress) for each in store.list_sessions()] == [{str(moored["north"].ref)}]
    assert store.list_locks() == []


def test_nothing_is_written_through_it(engine: Engine, moored: dict[str, Record]) -> None:
    store = see(engine.store, Grant("admin", "harbour"))
    assert isinstance(store, VisibleStore)
    for verb in ("commit", "claim", "set_hold", "clear_hold", "open_session", "repair"):
        with pytest.raises(TypeError, match="only reads"):
            getattr(store, verb)
    assert see(engine.store, Grant("reader")) is engine.store


def test_what_one_may_not_do_is_refused_with_the_role_that_it_needs(engine: Engine, moored: dict[str, Record]) -> None:
    identity = Identity.from_grants("ada", [Grant("submitter", "harbour/quay/north")])
    access = RecordAccess(identity, MACHINES, lambda kind: "harbour")
    assert access.get(engine.store, moored["north"].ref, "submitter").id == moored["north"].id
    with pytest.raises(ActionRefused, match=r"This needs the role operator for ship ship\d+; ada is submitter for it."):
        access.get(engine.store, moored["north"].ref, "operator")
    with pytest.raises(RecordNotFound):
        access.get(engine.store, moored["south"].ref, "reader")
    with pytest.raises(RecordNotFound):
        access.get(engine.store, Ref("ship", "ship9999999999"), "reader")
