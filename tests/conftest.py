"""Fixtures of all tests: real servers that start when the first test asks, and the budget.

A server is started once in each worker of a run (`pytest -n 3` starts three of each: cheaper than sharing them, and no
test disturbs one in another worker) and stopped at its end. What a test gets of it is its own: a database, a chroot, a
bucket. A test that kills or restarts a server starts one for itself, with the context managers of `tests.servers`.

    budget               how much to do: budget.pick(small=50, long=20_000)
    postgres_server      PostgresServer, commits durable        postgres_url        a new database on it
    fast_postgres_server the same without fsync                 fast_postgres_url   a new database on it
    zookeeper_server     ZooKeeperServer                        zookeeper_url       a new chroot on it
    zookeeper_ensemble   ZooKeeperEnsemble, whole again before each test that asks for it
    s3_server            SeaweedServer                          s3_bucket           the name of a new bucket on it
    rclone_s3_server     RcloneS3Server, the adversary

Nothing is skipped: a test that cannot run fails, and says what to install.
"""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import budget as budgets
from tests import selection
from tests.budget import Budget
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import RcloneS3Server, SeaweedServer
from tests.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from waybill.runtime.server_processes import raise_file_limit

_budget = budgets.from_environment()
raise_file_limit()  # one process has the servers and workers of thousands of tests in turn

# A shell that starts the suite in the background has it ignore interrupts, and all that it starts: but what they do is
# tested too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline for one example: the machine is shared, and a slow moment is no fault of the code. The small budget tries
# the same examples each time, so that what it says depends on the change alone; the long one tries new ones.
hypothesis.settings.register_profile("small", max_examples=50, deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", max_examples=2_000, deadline=None)
hypothesis.settings.load_profile(_budget.name)


# No variable of whoever runs the suite reaches a test or what it starts.
for _name in [name for name in os.environ if name.startswith("WAYBILL_") and name != budgets.VARIABLE]:
    del os.environ[_name]


@pytest.fixture(scope="session")
def _empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def _no_data_folder(_empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests run in an empty folder: `waybill-data` of the checkout, and its settings file, belong to the person who
    runs them.
    """
    monkeypatch.chdir(_empty_folder)
    yield
    assert not list(_empty_folder.iterdir()), "a test wrote into the current folder; give it tmp_path"


@pytest.fixture(scope="session")
def budget() -> Budget:
    return _budget


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    yield from _database(postgres_server)


@pytest.fixture(scope="session")
def fast_postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer(fast=True) as server:
        yield server


@pytest.fixture
def fast_postgres_url(fast_postgres_server: PostgresServer) -> Iterator[str]:
    yield from _database(fast_postgres_server)


def _database(server: PostgresServer) -> Iterator[str]:
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(fast=True) as server:
        yield server


@pytest.fixture
def zookeeper_url(zookeeper_server: ZooKeeperServer) -> str:
    return zookeeper_server.create_chroot()


@pytest.fixture(scope="session")
def _ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(fast=True) as ensemble:
        yield ensemble


@pytest.fixture
def zookeeper_ensemble(_ensemble: ZooKeeperEnsemble) -> ZooKeeperEnsemble:
    _ensemble.heal()
    return _ensemble


@pytest.fixture(scope="session")
def s3_server() -> Iterator[SeaweedServer]:
    with SeaweedServer() as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: SeaweedServer) -> str:
    return s3_server.create_bucket()


@pytest.fixture(scope="session")
def rclone_s3_server() -> Iterator[RcloneS3Server]:
    with RcloneS3Server() as server:
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--only", metavar="NAME", default="", help="test one application and the engine's part of it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if only := config.getoption("--only"):
        selection.check_name(only)
        items[:], left_out = selection.select(items, only)
        config.hook.pytest_deselected(items=left_out)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Long bytes never name a test: what was packed in this second has another name in the next, and all workers
    must collect the same.
    """
    return argname if isinstance(val, bytes) and len(val) > 16 else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """A suite that skips what it cannot run is green on a machine where nothing works.

    An expected failure is no skip.
    """
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped ({reason}). Nothing is skipped here: fail with what to install, or remove the test."
