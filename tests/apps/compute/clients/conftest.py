"""A user of the official clients on a server that asks nobody, and one whose requests are signed on a server that does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.compute.clients.official_clients import ClientUser, install_node_client, install_python_client
from tests.apps.compute.compute_server import ComputeServer


@pytest.fixture(scope="session")
def node_commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_node_client(tmp_path_factory)


@pytest.fixture(scope="session")
def python_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_python_client(tmp_path_factory)


@pytest.fixture(scope="session")
def closed_compute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeServer]:
    """It serves only those who say who they are."""
    with ComputeServer(tmp_path_factory.mktemp("closed"), open_loopback=False) as server:
        yield server


@pytest.fixture(params=["unsigned", "signed"])
def signs(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "signed")


@pytest.fixture
def user(
    request: pytest.FixtureRequest, signs: bool, node_commands: Path, python_package: Path, tmp_path: Path
) -> ClientUser:
    server = request.getfixturevalue("closed_compute" if signs else "sqlite_compute")
    # A name of its own: the tests share the servers.
    account = "u" + "".join(each for each in tmp_path.name if each.isalnum())[-40:]
    found = ClientUser(server, tmp_path / "home", [node_commands, python_package / "bin"], account)
    found.environment["PYTHONPATH"] = str(python_package)
    if signs:
        found.make_key("rsa", "-b", "2048", "-m", "PEM")
    return found
