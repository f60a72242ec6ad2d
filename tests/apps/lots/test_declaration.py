"""Project files: what is accepted, what is refused and with which sentence, and what applying one changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.apps.lots.lots_site import SHOP, LotsSite
from waybill.apps.lots.declaration.changes import find_changes, read_applied
from waybill.apps.lots.declaration.documents import DatasetSubscribers
from waybill.apps.lots.declaration.project_file import parse_project
from waybill.apps.lots.machine import ARC, BOUNDARY, DATASET
from waybill.errors import InputError
from waybill.record import Ref

CLUSTERLESS = {
    "project": {"name": "ingress", "version": "1"},
    "placement": {"provider": "aws", "account": "0", "region": "us-west-2"},
    "resources": [{"type": "aws:core:s3Bucket", "name": "bucket", "bucketName": "b"}],
    "activities": [],
    "boundaries": [{
        "type": "aws:core:s3PutListenerBoundary", "name": "IngressPutListener", "eventArrival": "frequent", "lotUnit": "Twelfths",
        "dataset": {"name": "ingress", "version": "20220101", "pathURI": "s3://b/ingress/"}, "filter": {"excludes": ["**/_*"]},
    }],
    "barriers": [],
    "arcs": [
        {
            "type": "aws:core:s3CopyArc", "name": "copyA", "exclude": False,
            "sources": {"main": {"name": "ingress", "version": "20220101", "subscribe": True}},
            "sinks": {"main": {"name": "copy-a", "version": "20230101", "pathURI": "s3://b/copy-a/"}},
            "workload": {"workloadProps": {"filter": {"excludes": ["**/_*"]}, "failArcOnPartialPercent": 0.1}},
        },
        {
            "type": "aws:core:batchExecArc", "name": "exec",
            "sources": {"main": {"name": "copy-a", "version": "20230101", "subscribe": True}},
            "sinks": {"main": {"name": "made", "version": "1", "pathURI": "s3://b/made/"}},
            "imagePath": "example.org/job:1", "command": ["run"], "workload": {"workloadProps": {"batchRuntimeProps": {"timeoutMin": 5}}},
        },
    ],
}  # fmt: skip


def refuse(text: str) -> str:
    with pytest.raises(InputError) as error:
        parse_project(text.encode(), "project.toml")
    return str(error.value)


DATASETS = '[datasets.a]\npath = "a/"\n[datasets.b]\npath = "b/"\n'
BOUNDARY_A = '[boundaries.in]\ndataset = "a"\nunit = "PT5M"\n'
ARC_B = '[arcs.x]\nsources = { main = "a" }\nsinks = { main = "b" }\ncommand = "true"\n'
GOOD = f'name = "p"\n{DATASETS}{BOUNDARY_A}{ARC_B}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "is no project file"),
        ('name = "p"\ncolour = 1', "unknown field `colour`"),
        (GOOD.replace('unit = "PT5M"', 'unit = "PT7M"'), "There is no unit 'PT7M'"),
        (GOOD + 'unit = "PT15M"\n', ""),
        (GOOD.replace("PT5M", "PT10M") + 'unit = "PT15M"\n', "do not nest in lots of PT15M"),
        (
            GOOD + '[boundaries.two]\ndataset = "a"\nunit = "PT5M"\n',
            "it has 2 owners, boundary p:in and boundary p:two",
        ),
        (f'name = "p"\n{DATASETS}{BOUNDARY_A}', "nothing makes its lots"),
        (GOOD.replace('sources = { main = "a" }', 'sources = { main = "z" }'), "there is no dataset z/1, its source"),
        (GOOD.replace('command = "true"', ""), "it has no workload"),
        (GOOD + "copy = true\n", "it has command and copy"),
        (GOOD + "limit = 0\n", "limit is the number of lots"),
        (GOOD + 'timeout = "soon"\n', "timeout = 'soon' is no duration"),
        (GOOD + 'from = "yesterday"\n', "is no instant"),
        (GOOD + 'from = "20230230PT5M000"\n', "there is no day 2023-02-30"),
        (GOOD.replace("[boundaries.in]", "[boundaries.in]\ntime = 'key'\npattern = '(\\d+)'"), "has the groups"),
        (GOOD.replace('path = "a/"', 'path = "../a/"'), "is no folder of objects"),
        (GOOD.replace('path = "a/"', 'path = "ftp://host/a/"'), "is no folder of objects"),
        (
            f'name = "p"\n{DATASETS}[arcs.x]\nsources = {{ main = "a" }}\nsinks = {{ main = "b" }}\ncopy = true\n'
            '[arcs.y]\nsources = { main = "b" }\nsinks = { main = "a" }\ncopy = true\n',
            "in a circle",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(text: str, said: str) -> None:
    if said:
        assert said in refuse(text)
    else:
        assert parse_project(text.encode(), "project.toml").arcs[0].unit == "PT15M"


def test_a_project_of_clusterless_is_mapped() -> None:
    project = parse_project(json.dumps(CLUSTERLESS).encode(), "project.json")
    assert [each.id for each in project.datasets] == ["ingress:20220101", "copy-a:20230101", "made:1"]
    (boundary,) = project.boundaries
    assert (boundary.unit, boundary.watch, boundary.exclude, boundary.time) == (
        "PT5M",
        "s3://b/ingress/",
        ("**/_*",),
        "arrival",
    )
    copy, batch = project.arcs
    assert (copy.workload.type, copy.workload.exclude, copy.workload.fail_share) == ("copy", ("**/_*",), 0.1)
    assert (batch.workload.type, batch.workload.image, batch.workload.timeout, batch.workload.manifest) == (
        "container", "example.org/job:1", 300.0, "own",
    )  # fmt: skip


def test_other_types_of_clusterless_are_refused_by_name() -> None:
    for part, kind in (("arcs", "aws:core:glueAddPartitionsArc"), ("activities", "aws:core:cloudWatchExport")):
        body = {**CLUSTERLESS, part: [{"type": kind, "name": "x", "sources": {}, "sinks": {}}]}
        assert kind in refuse(json.dumps(body))


def test_applying_says_what_it_changes_and_changes_nothing_twice(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, "")
    changes = [change.describe() for change in site.apply(SHOP)]
    assert changes == [
        "create dataset orders:1",
        "create dataset counts:1",
        "create boundary shop:orders-in",
        "create arc shop:count",
    ]
    assert site.apply(SHOP) == []
    (change,) = site.apply(SHOP + "retries = 2\n")
    assert change.describe() == "change arc shop:count (retries: default -> 2)"
    without = SHOP[: SHOP.index("[arcs.count]")].replace('[datasets.counts]\npath = "counts/"\n', "")
    assert [change.describe() for change in site.apply(without)] == ["end dataset counts:1", "end arc shop:count"]
    assert site.tester.get(Ref(DATASET.name, "orders:1")).document(DatasetSubscribers).arcs == ()
    assert site.tester.get(Ref(ARC.name, "shop:count")).state == "Ended"
    assert len(site.apply(SHOP)) == 2
    assert site.tester.get(Ref(DATASET.name, "orders:1")).document(DatasetSubscribers).arcs == ("shop:count",)
    assert site.tester.get(Ref(BOUNDARY.name, "shop:orders-in")).state == "Watching"
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    assert site.run_record("count", site.lot()).state == "Complete"


def test_another_project_reads_a_dataset_and_never_owns_it_too(tmp_path: Path) -> None:
    site = LotsSite(tmp_path)
    other = 'name = "other"\n[datasets.c]\npath = "c/"\n[arcs.x]\nsources = { main = "counts" }\nsinks = { main = "c" }\ncopy = true\n'
    site.apply(other)
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    row = site.find_lot("c", site.lot())
    assert row is not None
    assert row.state == "complete"
    applied = read_applied(site.tester.store)
    second = parse_project(
        other.replace("datasets.c", "datasets.orders").replace('"c" }', '"orders" }').encode(),
        "x",
        known_units=applied.units,
    )
    with pytest.raises(
        InputError, match=r"orders/1 has two owners: arc other:x here, and boundary shop:orders-in of the project shop"
    ):
        find_changes(second, applied)
    inside = parse_project(
        other.replace('path = "c/"', 'path = "counts/inside/"').encode(), "x", known_units=applied.units
    )
    with pytest.raises(InputError, match=r"The path of c/1, counts/inside/, lies within that of counts/1"):
        find_changes(inside, applied)
    lost = parse_project(
        SHOP[: SHOP.index("[arcs.count]")].replace('[datasets.counts]\npath = "counts/"\n', "").encode(), "x"
    )
    with pytest.raises(InputError, match=r"other/x reads counts/1, which would have no owner any more"):
        find_changes(lost, applied)


def test_the_project_of_the_guide_is_the_file_beside_it_and_can_be_applied() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    body = (docs / "tutorial" / "lots.toml").read_text()
    assert body in (docs / "how-to" / "process-lots.md").read_text()
    assert parse_project(body.encode(), "lots.toml").arcs[0].parts == "partition"
