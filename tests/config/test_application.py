"""Applications are found, chosen, and named when they are broken."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from waybill import config
from waybill.application import load_applications
from waybill.config import Config
from waybill.demo import DEMO
from waybill.environment import Environment
from waybill.errors import InputError
from waybill.machine import MachineError
from waybill.record import BadStore

DISTRIBUTION = "[waybill.applications]\n{entries}\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with an installed package that announces applications."""
    info = tmp_path / "tried-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tried\nVersion: 1.0\n")
    entries = "good = tried_good:APP\nbroken = tried_broken:APP\nodd = tried_odd:APP\n"
    (info / "entry_points.txt").write_text(DISTRIBUTION.format(entries=entries))
    (tmp_path / "tried_good.py").write_text("from waybill.demo import DEMO as APP\n")
    (tmp_path / "tried_broken.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "tried_odd.py").write_text("APP = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("tried_good", "tried_broken", "tried_odd"):
        sys.modules.pop(name, None)


def test_applications_are_found_by_their_entry_points(packages: Path) -> None:
    assert [application.name for application in load_applications(["good"])] == ["demo"]


def test_a_broken_application_is_named(packages: Path) -> None:
    with pytest.raises(
        InputError, match=r"broken \(of tried\) cannot be loaded: RuntimeError: no licence. Repair or uninstall it"
    ):
        load_applications()
    with pytest.raises(
        InputError, match=r"The application odd \(of tried\) is a int; it must be a waybill.application.Application"
    ):
        load_applications(["odd"])
    with pytest.raises(InputError, match=r"There is no application 'nope'; installed are: .*good"):
        load_applications(["nope"])


def test_one_that_is_not_installed_is_named_by_its_module(
    packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine_here.py").write_text("from waybill.demo import DEMO as MINE\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_applications(["mine_here:MINE"]) == [DEMO]
    with pytest.raises(InputError, match=r"mine_here:OTHER cannot be loaded: AttributeError"):
        load_applications(["mine_here:OTHER"])


def settings(tmp_path: Path, **overrides: object) -> Config:
    return config.load(overrides={"data": tmp_path, **overrides})


def test_an_environment_collects_the_machines_of_its_applications(tmp_path: Path) -> None:
    built_in = {
        "activity", "event", "group", "key", "login-link", "mail", "maintenance", "sign-in", "subscription", "token", "user",
        "webhook_delivery",
    }  # fmt: skip
    of_the_demonstration = {"parcel", "shipment"}
    assert set(Environment.from_config(settings(tmp_path), []).machines) == built_in
    assert set(Environment.from_config(settings(tmp_path), [DEMO]).machines) == built_in | of_the_demonstration
    assert set(Environment.from_config(settings(tmp_path), [], demo=True).machines) == built_in | of_the_demonstration
    with pytest.raises(MachineError, match="Two machines are called shipment"):
        Environment.from_config(settings(tmp_path), [DEMO, replace(DEMO, name="twin")])


def test_an_application_with_millions_of_records_refuses_zookeeper(tmp_path: Path) -> None:
    large = replace(DEMO, sql_only=True)
    Environment.from_config(settings(tmp_path, store="postgresql://host/db"), [large])
    with pytest.raises(InputError, match="demo can have more records than ZooKeeper should hold: give it a sqlite"):
        Environment.from_config(settings(tmp_path, store="zookeeper://host:2181/x"), [large])


def test_retention_of_an_undeclared_state_is_refused(tmp_path: Path) -> None:
    config_file = tmp_path / "waybill.toml"
    config_file.write_text('[retention]\n"parcel.Deliverd" = 3\n')
    with pytest.raises(InputError, match=r"retention names parcel.Deliverd, which no machine here declares"):
        Environment.from_config(settings(tmp_path), [DEMO])


def test_a_missing_store_is_not_created_by_reading(tmp_path: Path) -> None:
    environment = Environment.from_config(settings(tmp_path / "new"), [])
    with pytest.raises(
        BadStore, match=r"There is no store at .*waybill.db; `waybill up` or `waybill migrate` makes one"
    ):
        environment.open_store(migrate=False)
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadStore, match=r"The folder .* cannot be made: Not a directory. Choose another with --data"):
        Environment.from_config(settings(tmp_path / "file" / "below"), []).open_store()


def test_retention_of_a_state_that_is_open_is_refused(tmp_path: Path) -> None:
    """Nothing is removed from an open state, so the setting would do nothing."""
    config_file = tmp_path / "waybill.toml"
    for state in ("Packing", "Held"):
        config_file.write_text(f'[retention]\n"parcel.{state}" = 3\n')
        with pytest.raises(
            InputError,
            match=rf"parcel.{state}, in which a parcel is still open; only settled records are removed: those in .*Delivered",
        ):
            Environment.from_config(config.load(config_file), [DEMO])
    config_file.write_text('[retention]\n"parcel.Delivered" = 3\n')
    assert Environment.from_config(config.load(config_file), [DEMO]).config.retention == {"parcel.Delivered": 3.0}


def test_resources_are_found_by_application_and_made_once(tmp_path: Path) -> None:
    created: list[Environment] = []

    class ClosableResources:
        closed = False

        def close(self) -> None:
            self.closed = True

    def make_resources(environment: Environment) -> ClosableResources:
        created.append(environment)
        return ClosableResources()

    environment = Environment.from_config(settings(tmp_path), [replace(DEMO, resources=make_resources)])
    assert created == []
    first = environment.resources_of("demo")
    assert environment.resources_of("demo") is first is environment.resources_of_kind("parcel")
    assert created == [environment]
    assert environment.resources_of("parcel") is None, "a kind is no application"
    assert environment.resources_of_kind("token") is None
    environment.close()
    assert first.closed
    assert environment.resources_of("demo") is not first
