"""Applications are found, chosen, and named when they are broken."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from waybill import config
from waybill.application import BadApplication, installed
from waybill.config import BadConfig, Config
from waybill.demo import DEMO
from waybill.depot import Depot
from waybill.machine import MachineError
from waybill.record import BadStore

DISTRIBUTION = "[waybill.applications]\n{entries}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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


def test_applications_are_found_by_their_entry_points(place: Path) -> None:
    assert [application.name for application in installed(["good"])] == ["demo"]


def test_a_broken_application_is_named(place: Path) -> None:
    with pytest.raises(
        BadApplication, match=r"broken \(of tried\) cannot be loaded: RuntimeError: no licence. Mend or uninstall it"
    ):
        installed()
    with pytest.raises(
        BadApplication, match=r"The application odd \(of tried\) is a int; it must be a waybill.application.Application"
    ):
        installed(["odd"])
    with pytest.raises(BadApplication, match=r"There is no application 'nope'; installed are: .*good"):
        installed(["nope"])


def test_one_that_is_not_installed_is_named_by_its_module(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine_here.py").write_text("from waybill.demo import DEMO as MINE\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert installed(["mine_here:MINE"]) == [DEMO]
    with pytest.raises(BadApplication, match=r"mine_here:OTHER cannot be loaded: AttributeError"):
        installed(["mine_here:OTHER"])


def settings(tmp_path: Path, **overrides: object) -> Config:
    return config.load(overrides={"data": tmp_path, **overrides})


def test_a_depot_gathers_the_machines_of_its_applications(tmp_path: Path) -> None:
    assert sorted(Depot.of(settings(tmp_path), []).machines) == ["duty", "event", "letter", "token"]
    assert sorted(Depot.of(settings(tmp_path), [DEMO]).machines) == [
        "duty",
        "event",
        "letter",
        "parcel",
        "shipment",
        "token",
    ]
    assert sorted(Depot.of(settings(tmp_path), [], demo=True).machines) == [
        "duty",
        "event",
        "letter",
        "parcel",
        "shipment",
        "token",
    ]
    with pytest.raises(MachineError, match="Two machines are called shipment"):
        Depot.of(settings(tmp_path), [DEMO, replace(DEMO, name="twin")])


def test_what_can_have_millions_of_records_refuses_zookeeper(tmp_path: Path) -> None:
    large = replace(DEMO, sql_only=True)
    Depot.of(settings(tmp_path, store="postgresql://host/db"), [large])
    with pytest.raises(
        BadApplication, match="demo can have more records than ZooKeeper should carry: give it a sqlite"
    ):
        Depot.of(settings(tmp_path, store="zookeeper://host:2181/x"), [large])


def test_retention_of_what_is_not_declared_is_refused(tmp_path: Path) -> None:
    config_file = tmp_path / "waybill.toml"
    config_file.write_text('[retention]\n"parcel.Deliverd" = 3\n')
    with pytest.raises(BadConfig, match=r"retention names parcel.Deliverd, which no machine here declares"):
        Depot.of(settings(tmp_path), [DEMO])


def test_a_store_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    depot = Depot.of(settings(tmp_path / "new"), [])
    with pytest.raises(
        BadStore, match=r"There is no store at .*waybill.db; `waybill up` or `waybill migrate` makes one"
    ):
        depot.open_store(migrate=False)
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadStore, match=r"The folder .* cannot be made: Not a directory. Choose another with --data"):
        Depot.of(settings(tmp_path / "file" / "below"), []).open_store()


def test_retention_of_a_state_that_is_open_is_refused(tmp_path: Path) -> None:
    """Nothing is removed from there, so the setting would do nothing."""
    config_file = tmp_path / "waybill.toml"
    for state in ("Packing", "Held"):
        config_file.write_text(f'[retention]\n"parcel.{state}" = 3\n')
        with pytest.raises(
            BadConfig, match=rf"parcel.{state}, in which a parcel is still open; .* settled: in .*Delivered"
        ):
            Depot.of(config.load(config_file), [DEMO])
    config_file.write_text('[retention]\n"parcel.Delivered" = 3\n')
    assert Depot.of(config.load(config_file), [DEMO]).config.retention == {"parcel.Delivered": 3.0}
