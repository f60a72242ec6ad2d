"""Arcs: joins, roll-ups, order, limits, pauses, and workloads of every sort."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.apps.lots import workloads
from tests.apps.lots.lots_site import SHOP, LotsSite
from waybill.apps.lots.backfills import preview_backfill, start_backfill
from waybill.apps.lots.declaration.changes import read_applied
from waybill.apps.lots.machine import BACKFILL, RUN, RunDocument, arc_hold_of

HEAD = """
name = "shop"
[datasets.orders]
path = "orders/"
[datasets.counts]
path = "counts/"
[boundaries.orders-in]
dataset = "orders"
unit = "PT5M"
"""


def with_arc(text: str) -> str:
    return f'{HEAD}[arcs.count]\nsources = {{ main = "orders" }}\nsinks = {{ main = "counts" }}\n{text}\n'


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    workloads.FAILING.clear()
    workloads.RUNS.clear()


JOIN = """
name = "shop"
datasets = { left = { path = "left/" }, right = { path = "right/" }, both = { path = "both/" } }
[boundaries.left-in]
dataset = "left"
unit = "PT5M"
quiet = "gap"
[boundaries.right-in]
dataset = "right"
unit = "PT5M"
quiet = "gap"
[arcs.join]
sources = { left = "left", right = "right" }
sinks = { main = "both" }
function = "tests.apps.lots.workloads:touch"
"""


def test_a_join_waits_for_every_source_and_says_for_which(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, JOIN)
    site.arrive("left/a", dataset="left") if site.tester.environment.objects.put("left/a", b"x") else None
    site.pass_minutes(6)
    run = site.run_record("join", site.lot())
    assert (run.state, run.message) == ("Waiting", f"Waits for right/1 {site.lot()}.")
    assert site.classes("shop/join", site.lot(), 1) == ["waiting"]
    assert site.states("join", site.lot()) == [], "a waiting run has no name"
    site.tester.environment.objects.put("right/b", b"x")
    site.arrive("right/b", dataset="right", at=site.lot().start)
    site.pass_minutes(1)
    assert [run.state for run in site.tester.find_all(RUN.name)] == ["Complete"]
    row = site.find_run("join", site.lot())
    assert row is not None
    assert row.sources == {f"left {site.lot()}": 1, f"right {site.lot()}": 1}


def test_a_gap_names_the_lot_upstream_that_is_to_blame(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, JOIN)
    site.tester.environment.objects.put("left/a", b"x")
    site.arrive("left/a", dataset="left")
    site.pass_minutes(6)
    with site.resources.open_catalogue() as tables:
        reports = site.reports(tables)
        (run,) = reports.iter_runs(reports.find("both"), site.lot(), site.lot().next)
    assert (run.name, run.cause) == ("never", "right/1 is never")


ROLL_UP = """
name = "shop"
[datasets.orders]
path = "orders/"
[datasets.hourly]
path = "hourly/"
[boundaries.orders-in]
dataset = "orders"
unit = "PT30M"
quiet = "gap"
[arcs.roll]
unit = "PT1H"
sources = { main = "orders" }
sinks = { main = "hourly" }
function = "tests.apps.lots.workloads:count"
"""


def test_a_roll_up_waits_for_every_finer_lot(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, ROLL_UP)
    site.arrive(site.put("a", b"1\n"))
    site.pass_minutes(31)
    hour = site.lot(unit="PT1H")
    assert site.run_record("roll", hour).message == f"Waits for orders/1 {site.lot(30, 'PT30M')}."
    site.arrive(site.put("b", b"2\n"))
    site.pass_minutes(30)
    assert site.run_record("roll", hour).state == "Complete"
    assert [(str(hour), "")] == workloads.RUNS


def test_a_roll_up_starts_without_what_is_missing_and_again_when_it_comes(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, ROLL_UP + 'after = "20m"\n')
    site.arrive(site.put("a", b"1\n"))
    site.pass_minutes(79)
    hour = site.lot(unit="PT1H")
    assert site.run_record("roll", hour).state == "Waiting"
    site.pass_minutes(3)
    public = f"datasets/name=hourly/version=1/lot={hour}/state=complete/manifest.json"
    assert site.manifest(public).absent == (f"orders/1 {site.lot(30, 'PT30M')}",)
    site.arrive(site.put("b", b"2\n"), at=site.lot(30).start)
    site.pass_minutes(1)
    assert site.manifest(public).absent == ()
    assert site.manifest(public).generation == 2


def test_strict_order_waits_for_the_lot_before(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, with_arc('function = "tests.apps.lots.workloads:count"\norder = "strict"'))
    workloads.FAILING.add("")
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    workloads.FAILING.clear()
    site.arrive(site.put("b"))
    site.pass_minutes(5)
    assert (
        site.run_record("count", site.lot(5)).message == f"Waits for {site.lot()}, the lot before it, which is partial."
    )
    site.tester.act(site.run_record("count", site.lot()), "retry")
    site.settle()
    assert site.run_record("count", site.lot(5)).state == "Complete"


def test_a_paused_arc_loses_nothing(tmp_path: Path) -> None:
    site = LotsSite(tmp_path)
    site.tester.engine.set_hold(arc_hold_of("shop:count"), who="test", why="rebuilding")
    site.arrive(site.put("a"))
    site.pass_minutes(11)
    assert [run.state for run in site.tester.find_all(RUN.name)] == ["Waiting", "Waiting"]
    site.tester.engine.clear_hold(arc_hold_of("shop:count"))
    site.settle()
    assert [run.state for run in site.tester.find_all(RUN.name)] == ["Complete", "Complete"]


def test_at_most_so_many_lots_run_at_once(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, SHOP + "limit = 2\n")
    for minutes in (0, 5, 10, 15):
        site.arrive(site.put(f"{minutes}"), at=site.lot(minutes).start)
    site.tester.advance(21 * 60)
    site.tester.engine.set_hold("queue/arc-part", who="test")
    site.settle()
    assert site.classes("shop/count", site.lot(), 4) == ["running", "running", "waiting", "waiting"]
    site.tester.engine.clear_hold("queue/arc-part")
    site.settle()
    assert {run.state for run in site.tester.find_all(RUN.name)} == {"Complete"}


def test_a_command_in_the_sandbox(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, with_arc(
        "command = 'cat $(find $WAYBILL_SOURCE -type f | sort) | tee $WAYBILL_SINK/all.txt; "
        "echo \"$CLS_ARC_PROPS_JSON\" > $WAYBILL_SINK/props.json; cat /work/manifests/datasets/*/*/*/*/* >&2'\n"
        "props = { colour = 'red' }"
    ))  # fmt: skip
    site.arrive(site.put("day=1/a", b"1\n"), site.put("day=2/b", b"2\n"))
    site.pass_minutes(6)
    lot = site.lot()
    run = site.run_record("count", lot)
    assert (run.state, run.message) == ("Complete", "")
    names = {name.rpartition("/")[2]: name for name in site.names("counts")}
    read = {key: site.tester.environment.objects.get(name).read() for key, name in names.items()}
    assert read["all.txt"] == b"1\n2\n"
    props = json.loads(read["props.json"])
    assert props["workloadProps"] == {"colour": "red"}
    assert props["sources"]["main"] == {"name": "orders", "version": "1", "pathURI": "file:///work/sources/main/"}
    assert props["sinkManifestTemplates"]["main"] == (
        "file:///work/sink-manifests/datasets/name=counts/version=1/lot={lot}/state={state}{/attempt*}/manifest.json"
    )
    (out,) = [name for name in site.names("lots/attempts") if name.endswith("/stdout")]
    assert site.tester.environment.objects.get(out).read() == b"1\n2\n"
    (err,) = [name for name in site.names("lots/attempts") if name.endswith("/stderr")]
    seen = json.loads(site.tester.environment.objects.get(err).read())
    assert seen["uris"] == ["file:///work/sources/main/day%3D1/a", "file:///work/sources/main/day%3D2/b"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("exit 3", "exited with code 3"),
        ("kill -9 $$", "terminated by SIGKILL"),
        ("echo x > /work/sources/main/a", "exited with code 1"),
        ("ln -s /etc/passwd $WAYBILL_SINK/link", "link in the sink is no plain file"),
        ("sleep 100", "more time than it may"),
    ],
)
def test_how_commands_fail(tmp_path: Path, command: str, said: str) -> None:
    site = LotsSite(tmp_path, with_arc(f"command = '{command}'\ntimeout = \"1s\""))
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    run = site.run_record("count", site.lot())
    assert run.state == "Partial"
    assert said in run.message
    assert site.find_lot("counts", site.lot()) is None
    assert site.names("counts") == []


FOLDER = "/work/sink-manifests/datasets/name=counts/version=1/lot=$WAYBILL_LOT"
MANIFEST = f"d={FOLDER}/state={{state}}; mkdir -p $d; "
MANIFEST += 'echo "{body}" > $d/manifest.json'


@pytest.mark.parametrize(
    ("state", "body", "said"),
    [
        ("complete", r'{\"state\":\"complete\",\"lotId\":\"x\",\"uris\":[\"file:///work/sinks/main/a.txt\"]}', ""),
        ("complete", r'{\"state\":\"complete\",\"lotId\":\"x\",\"uriType\":\"prefix\",\"uris\":[\"file:///work/sinks/main/a\"]}', ""),
        ("complete", r'{\"state\":\"complete\",\"lotId\":\"x\",\"uriType\":\"prefix\",\"uris\":[\"file:///work/sinks/main/n\"]}', "means 0 files"),  # noqa: E501
        ("complete", r'{\"state\":\"complete\",\"lotId\":\"x\",\"uris\":[\"file:///work/sinks/main/none\"]}', "there is no such file"),
        ("complete", r'{\"state\":\"complete\",\"lotId\":\"x\",\"uris\":[\"s3://b/k\"]}', "does not lie in the sink"),
        ("partial", r'{\"state\":\"partial\",\"lotId\":\"x\",\"comment\":\"half\",\"uris\":[]}', "says partial: half"),
        ("complete", "no json", "is no manifest"),
    ],
)  # fmt: skip
def test_a_workload_that_writes_its_own_manifest(tmp_path: Path, state: str, body: str, said: str) -> None:
    script = "echo 1 > $WAYBILL_SINK/a.txt; echo 2 > $WAYBILL_SINK/scratch; " + MANIFEST.format(state=state, body=body)
    site = LotsSite(tmp_path, with_arc(f"command = '''{script}'''\nmanifest = \"own\""))
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    run = site.run_record("count", site.lot())
    if said:
        assert run.state == "Partial"
        assert said in run.message
    else:
        assert run.state == "Complete", run.message
        assert [name.rpartition("/")[2] for name in site.names("counts")] == ["a.txt"]


def test_a_workload_that_owes_a_manifest(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, with_arc('command = "true"\nmanifest = "own"'))
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    assert "wrote no manifest" in site.run_record("count", site.lot()).message


def test_a_container(tmp_path: Path) -> None:
    """A stand-in for podman checks what it is called with, and does as the image would."""
    program = tmp_path / "podman"
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "args = sys.argv[1:]\n"
        "if args[0] == 'kill': sys.exit(0)\n"
        "assert args[:2] == ['run', '--rm'] and args[args.index('--network') + 1] == 'none', args\n"
        "volumes = dict(reversed(args[i + 1].removesuffix(':ro').rsplit(':', 1)) for i, a in enumerate(args) if a == '--volume')\n"
        "assert '--env' in args and 'CLS_ARC_PROPS_JSON' in args and 'CLS_ARC_PROPS_JSON' in os.environ\n"
        "assert args[-3:] == ['example.org/wc:1', 'wc', '-l'], args\n"
        "open(volumes['/work/sinks'] + '/main/out.txt', 'w').write(str(sorted(os.listdir(volumes['/work/sources'] + '/main'))))\n"
    )
    program.chmod(0o755)
    site = LotsSite(
        tmp_path / "site", with_arc('image = "example.org/wc:1"\ncommand = ["wc", "-l"]'), app={"podman": str(program)}
    )
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    run = site.run_record("count", site.lot())
    assert (run.state, run.message) == ("Complete", "")
    (name,) = site.names("counts")
    assert site.tester.environment.objects.get(name).read() == b"['a']"


def test_a_copy_with_filters(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, with_arc('copy = { exclude = ["**/_*"] }'))
    site.arrive(site.put("day=1/a"), site.put("day=1/_SUCCESS"))
    site.pass_minutes(6)
    assert site.run_record("count", site.lot()).state == "Complete"
    assert [name.partition("/attempt=")[2].partition("/")[2] for name in site.names("counts")] == ["day=1/a"]


def test_a_source_that_has_vanished_makes_the_lot_partial(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, with_arc("copy = { fail_share = 0.5 }"))
    site.arrive(site.put("a"), site.put("b"), site.put("c"))
    site.tester.environment.objects.delete("orders/b")
    site.pass_minutes(6)
    run = site.run_record("count", site.lot())
    assert run.state == "Partial"
    assert "copy failed on role: main, num: 1" in run.message
    folder = f"datasets/name=counts/version=1/lot={site.lot()}"
    (removed,) = site.names(f"{folder}/state=removed")
    assert [uri.rpartition("/")[2] for uri in site.uris(removed)] == ["a", "c"], "the others were copied all the same"


def test_empty_lots_run_if_the_arc_says_so(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, SHOP + 'on_empty = "run"\n')
    site.pass_minutes(6)
    assert [(str(site.lot()), "")] == workloads.RUNS


def test_a_backfill_runs_what_is_missing_and_a_replay_makes_new_generations(tmp_path: Path) -> None:
    site = LotsSite(
        tmp_path, HEAD + "\n[arcs.first]\nsources = { main = 'orders' }\nsinks = { main = 'counts' }\ncopy = true\n"
    )
    for minutes in (0, 5, 10):
        site.arrive(site.put(f"{minutes}"), at=site.lot(minutes).start)
    site.pass_minutes(16)
    second = HEAD + "\n[datasets.again]\npath = 'again/'\n[arcs.first]\nsources = { main = 'orders' }\n"
    second += "sinks = { main = 'counts' }\ncopy = true\n"
    second += "[arcs.count]\nsources = { main = 'orders' }\nsinks = { main = 'again' }\nfunction = 'tests.apps.lots.workloads:count'\n"
    site.apply(second)
    arc = read_applied(site.tester.store).arcs["shop:count"]
    with site.resources.open_catalogue() as tables:
        preview = preview_backfill(tables, arc, site.lot(-5), site.lot(15), "missing")
    assert (preview.run_count, preview.blocked) == (3, 1)
    assert [each.why for each in preview.lots][:2] == [f"orders/1 {site.lot(-5)} is not there", "it was never made"]
    record = start_backfill(
        site.tester.engine, arc, site.lot(-5), site.lot(15), "missing", at_once=1, a_minute=0, who="test"
    )
    done = site.tester.run_until(record, "Done")
    assert done.message == "3 lots ran, 0 of them failed."
    assert [(str(site.lot(minutes)), "") for minutes in (0, 5, 10)] == workloads.RUNS
    replay = start_backfill(
        site.tester.engine, arc, site.lot(5), site.lot(10), "all", at_once=5, a_minute=0, who="test"
    )
    site.tester.run_until(replay, "Done")
    row = site.find_lot("again", site.lot(5))
    assert row is not None
    assert row.generation == 2
    assert [run.document(RunDocument).reason for run in site.tester.find_all(RUN.name)][-1] == f"backfill {replay.id}"
    assert {each.state for each in site.tester.find_all(BACKFILL.name)} == {"Done"}


def test_several_sinks_are_published_together(tmp_path: Path) -> None:
    two = HEAD + "\n[datasets.other]\npath = 'other/'\n[arcs.count]\nsources = { main = 'orders' }\n"
    two += "sinks = { main = 'counts', other = 'other' }\nfunction = 'tests.apps.lots.workloads:touch'\n"
    site = LotsSite(tmp_path, two)
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    assert site.run_record("count", site.lot()).state == "Complete"
    for dataset in ("counts", "other"):
        row = site.find_lot(dataset, site.lot())
        assert row is not None
        assert row.count == 1


def test_a_folder_is_watched_and_what_was_missed_is_caught_up(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    watched = HEAD.replace(
        'unit = "PT5M"', f'unit = "PT5M"\nwatch = "file://{incoming}/"\ntime = "modified"\nexclude = ["**/*.tmp"]'
    )
    site = LotsSite(
        tmp_path / "site",
        watched + "[arcs.count]\nsources = { main = 'orders' }\nsinks = { main = 'counts' }\ncopy = true\n",
    )
    import os

    for name, minutes in (("a.csv", 1), ("b.csv", 11), ("c.tmp", 1)):
        (incoming / name).write_text(name)
        at = site.tester.now() + minutes * 60
        os.utime(incoming / name, (at, at))
    site.tester.advance(16 * 60)  # nobody worked for three intervals
    site.settle()
    assert site.classes("orders", site.lot(), 3) == ["complete", "empty", "complete"]
    assert [site.manifest(f"datasets/name=orders/version=1/lot={site.lot()}/state=complete/manifest.json").uris] == [
        (f"file://{incoming}/a.csv",)
    ]
    assert [name.rpartition("/")[2] for name in site.names("counts")] == ["a.csv", "b.csv"]


def test_a_listing_that_fails_proves_nothing(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    watched = HEAD.replace('unit = "PT5M"', f'unit = "PT5M"\nwatch = "file://{incoming}/"\ntime = "modified"')
    site = LotsSite(
        tmp_path / "site",
        watched + "[arcs.count]\nsources = { main = 'orders' }\nsinks = { main = 'counts' }\ncopy = true\n",
    )
    incoming.rmdir()
    site.tester.advance(6 * 60)
    site.tester.store.release_due_waits()
    for _ in range(3):
        site.tester.run_until_idle()
    assert site.classes("orders", site.lot(), 1) == ["never"]
    incoming.mkdir()
    site.pass_minutes(3)
    assert site.classes("orders", site.lot(), 1) == ["empty"]
