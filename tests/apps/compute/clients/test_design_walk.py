"""The walk of the design page, from T0 to T8: a job with 2,001 keys of which 1,828 have an output, watched by mjob, by
`waybill compute` and over HTTP, which all see the same.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.apps.compute.clients.official_clients import ClientUser
from tests.apps.compute.compute_server import JobClient
from tests.apps.compute.test_crashes import open_resources, put_numbers

KEYS, OUTPUTS = 2001, 1828


@pytest.mark.parametrize("signs", [False], indirect=True)
def test_the_walk(user: ClientUser) -> None:
    user.account = user.environment["MANTA_USER"] = "alice"
    server, jobs = user.server, JobClient(user.server)
    resources = open_resources(server)
    keys = put_numbers(resources, OUTPUTS)
    resources.environment.close()
    missing = [f"/alice/stor/missing/{number:03d}" for number in range(KEYS - OUTPUTS)]

    def read(name: str) -> list[str]:
        """A list of the job, which is the same for all who look."""
        lines = user.run("mjob", {"out": "outputs", "in": "inputs", "fail": "failures"}[name], job, code=None).lines
        assert server.waybill("compute", "list", name, job, "-a", "alice").splitlines() == lines
        assert jobs.lines(job, name) == lines
        assert server.get(jobs.path(job, name)).body.decode().splitlines() == lines  # the path of the design page
        return lines

    def add(more: list[str]) -> None:
        """Add keys, and wait until their tasks are done."""
        before = jobs.status(job)["stats"]["tasksDone"]
        user.run("mjob", "addinputs", "-o", job, text="\n".join(more))
        while jobs.status(job)["stats"]["tasksDone"] < before + len(more):
            time.sleep(0.02)

    job = user.run("mjob", "create", "--open", "-n", "walk", "-m", "wc").out.strip()  # T0
    assert job in user.run("mjob", "list", "-s", "running").out
    add(keys[:10])  # T1
    t2 = read("out")
    assert len(t2) == 10
    add(keys[10:50])
    t3 = read("out")
    assert (len(t3), t3[:10]) == (50, t2)
    add(keys[50:1001] + missing[:50])
    t4 = read("out")
    assert (len(t4), t4[0] in t3) == (1000, True)  # of 1,001: the first is not shown any more
    add(keys[1001:] + missing[50:])
    t5 = read("out")
    failed = read("fail")
    assert (len(t5), len(read("in")), len(failed)) == (1000, 1000, KEYS - OUTPUTS)
    assert json.loads(user.run("mjob", "get", job).out)["state"] == "running"
    user.run("mjob", "close", job)
    user.run("mjob", "watch", job, code=None)  # T6, T7: the files are written before it shows as done
    t8 = read("out")
    assert (len(t8), len(set(t8))) == (OUTPUTS, OUTPUTS)
    assert t8[-1000:] == t5
    assert t8[:50] == t3
    assert t8[1:1001] == t4
    assert sorted(read("in")) == sorted(keys + missing)
    assert sorted(read("fail")) == missing == sorted(failed)
    assert user.run("mget", f"/alice/jobs/{job}/out.txt").lines == t8
    done = json.loads(server.waybill("compute", "status", job, "-a", "alice", "--json"))
    assert (done["stats"]["outputs"], done["stats"]["errors"], done["stats"]["tasks"]) == (OUTPUTS, len(missing), KEYS)
    assert (
        server.get(f"/alice/jobs/{job}", accept="application/json").body == server.get(jobs.path(job, "job.json")).body
    )
