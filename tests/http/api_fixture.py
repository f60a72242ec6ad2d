"""Two machines with every type of state and action that the API treats differently, and an API that serves them."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI
from starlette.testclient import TestClient

from waybill import config
from waybill.application import Application
from waybill.engine import Engine
from waybill.environment import Environment
from waybill.http import ApiServer, create_app
from waybill.machine import RESUME, STAY, Document, Machine, action, end, join, rest, work
from waybill.pages.site import install_pages
from waybill.record import CommitGroup, CommitResult, Record, Ref, Store
from waybill.rules import apply_outcome
from waybill.sign_in import make_login_link
from waybill.step import Done, Fail, New
from waybill.tokens import Role, issue


def _explain_unsealed(crate: Record, store: Store) -> str | None:
    return None if crate.documents["label"].get("sealed") else "The crate is not sealed: write it on its label first."


def _relabel(crate: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"label": {**crate.documents["label"], "to": args["to"]}}


CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    description="Goods on their way to somebody.",
    states=(
        work("Packing", to="Travelling", description="Puts the goods into the crate."),
        join("Travelling", to="Arrived", description="Until all boxes have arrived.", on_fail=None),
        rest("Failed", description="It could not be packed.", settled=True),
        end("Arrived", description="Signed for."),
        end("Scrapped", description="Thrown away."),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Pack it again.", role="submitter"),
        action("relabel", "Packing Failed", STAY, "Send it to somebody else.", writes=_relabel),
        action("inspect", "Failed", "Packing", "Open it and look.", guard=_explain_unsealed),
        action(
            "scrap",
            "Packing Travelling Failed",
            "Scrapped",
            "Throw it away.",
            when_claimed="wait",
            confirm="What is in it is lost.",
        ),
        action("forget", "Failed", "Scrapped", "As if it had never been.", role="admin"),
    ),
    documents=(Document("label", None, "service", "To whom."), Document("weight", None, "step", "How heavy.")),
)

BOX = Machine(
    name="box",
    plural="boxes",
    description="A part of a crate; whoever sends it names it.",
    parent="crate",
    states=(
        work("Moving", to="There", description="It moves.", on_hold="Held", on_fail="Lost"),
        rest("Held", description="Its road is closed."),
        rest("Lost", description="Nobody knows where.", settled=True),
        end("There", description="It came."),
    ),
    actions=(action("go", "Held", "Moving", "Go on."), action("find", "Lost", "There", "Somebody found it.")),
    hold_names=lambda box: (f"road/{box.documents['way']['road']}",),
    hold_prefixes=("road/",),
)

CRATES = Application("crates", "Crates and boxes.", (CRATE, BOX))


class HasApp(Protocol):
    app: FastAPI


class ApiFixture:
    """A environment with its application, and clients of each role."""

    def __init__(self, environment: Environment, *, with_pages: bool = False, **options: Any) -> None:
        self.environment = environment
        self.app = create_app(environment, **options)
        if with_pages:
            install_pages(self.app)
        with self.engine() as engine:
            self.tokens = {
                role: issue(engine, f"the {role}", role).token for role in ("reader", "submitter", "operator", "admin")
            }

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        with closing(self.environment.open_store()) as store:
            yield self.environment.make_engine(store)

    def close(self) -> None:
        """Close what clients without a context have opened."""
        self.app.state.services.connections.close()

    def client(
        self, role: str | None = None, *, address: str = "127.0.0.1", base: str = "http://127.0.0.1:8700"
    ) -> TestClient:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return TestClient(
            self.app,
            base,
            raise_server_exceptions=False,
            headers=headers,
            client=(address, 50000),
            follow_redirects=False,
        )

    def browser(self, role: Role) -> TestClient:
        """A browser that has signed in with a link; of a fixture `with_pages`."""
        with self.engine() as engine:
            link = make_login_link(engine, f"the {role}", role).text
        client = self.client()
        client.headers["Accept"] = "text/html"
        assert client.post(f"/login/{link}").status_code == 303
        return client

    def submit(self, kind: str = "crate", documents: Mapping[str, Any] | None = None, **fields: Any) -> Ref:
        with self.engine() as engine:
            return engine.submit(
                New(kind, documents if documents is not None else {"label": {"to": "Ada"}}, **fields), who="crates"
            ).ref

    def fail(self, ref: Ref, why: str = "too heavy") -> None:
        """Settle a record as a worker does whose step raises Fail."""
        with self.worker(ref) as (engine, record):
            settle_now(engine, record, Fail(why))

    @contextmanager
    def worker(self, ref: Ref, progress: Mapping[str, Any] | None = None) -> Iterator[tuple[Engine, Record]]:
        """A worker that has claimed this record."""
        with self.engine() as engine:
            session = engine.store.open_session(host="elsewhere", ttl=60.0, about={"pid": 1})
            record = engine.store.claim_one(*ref, session).record
            if progress:
                engine.store.renew_session(session, progress)
            yield engine, record
            engine.store.close_session(session)


def settle_now(engine: Engine, record: Record, outcome: Done | Exception) -> None:
    answer = engine.store.commit(
        [CommitGroup((apply_outcome(engine.machines[record.kind], record, outcome, who="worker"),))]
    )[0]
    assert isinstance(answer, CommitResult), answer


def make_environment(folder: Path, store: str | None = None) -> Environment:
    return Environment.from_config(config.load(env={}, overrides={"data": folder, "store": store}), [CRATES])


@contextmanager
def run_server(api: HasApp) -> Iterator[str]:
    """A real server on a free port, in a thread of its own; its URL."""
    server = ApiServer(api.app, "127.0.0.1", 0, log_level="warning")
    started = threading.Event()
    startup = server.startup

    async def announced(sockets: Any = None) -> None:
        await startup(sockets)
        started.set()

    server.startup = announced  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        assert started.wait(120), "the server did not start"
        host, port = server.address
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        thread.join(120)
        assert not thread.is_alive(), "the server did not stop"
