"""Jobs as Manta ran them, on both databases: what goes in, what comes out, how each thing fails."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from tests.apps.compute.compute_server import ComputeServer, JobClient

FILES = ("in.txt", "out.txt", "err.txt", "fail.txt", "job.json", "metrics.json", "tasks.txt")


@pytest.fixture
def jobs(server: ComputeServer) -> JobClient:
    return JobClient(server)


def put_words(server: ComputeServer, home: str, count: int) -> list[str]:
    keys = []
    for number in range(count):
        keys.append(f"{home}/w{number}.txt")
        assert server.put(keys[-1], f"word {number}\n".encode()).status == 204
    return keys


def test_a_map_has_one_output_for_each_key_and_leaves_its_files(
    server: ComputeServer, jobs: JobClient, home: str
) -> None:
    keys = put_words(server, home, 5)
    job = jobs.run([{"exec": "wc"}], keys, name="count")
    assert sorted(jobs.outputs(job)) == [b"1 2 7\n"] * 5  # not the wide columns of a pipe: the input is a file
    assert jobs.lines(job, "in") == keys
    status = jobs.status(job)
    assert status["stats"] == {"errors": 0, "outputs": 5, "retries": 0, "tasks": 5, "tasksDone": 5}
    assert status["phases"] == [{"exec": "wc", "type": "map"}]
    listed = server.get(f"/alice/jobs/{job}").names
    assert listed == sorted([*FILES, "stor"])
    files = {name: server.get(f"/alice/jobs/{job}/{name}").body for name in FILES}
    assert json.loads(files["job.json"]) == status
    assert files["in.txt"].decode().splitlines() == keys
    assert files["out.txt"].decode().splitlines() == jobs.lines(job, "out")
    assert (files["err.txt"], files["fail.txt"]) == (b"", b"")
    tasks = [json.loads(line) for line in files["tasks.txt"].splitlines()]
    assert sorted(task["key"] for task in tasks) == sorted(keys)
    assert all(task["exitCode"] == 0 and task["wall"] > 0 and task["bytesIn"] == 7 for task in tasks)
    (phase,) = json.loads(files["metrics.json"])["phases"]
    assert (phase["tasks"], phase["bytesIn"], phase["bytesOut"]) == (5, 35, 30)
    assert json.loads(server.get(f"/alice/jobs/{job}/metrics").body)["phases"] == [phase]
    output = jobs.lines(job, "out")[0]
    assert output.startswith(f"/alice/jobs/{job}/stor{home}/w")
    assert ".txt.0." in output


def test_phases_stream_into_reducers_and_nothing_between_is_left(
    server: ComputeServer, jobs: JobClient, home: str
) -> None:
    keys = put_words(server, home, 20)
    phases: list[dict[str, Any]] = [
        {"exec": "cut -d' ' -f2", "type": "map"},
        {"exec": "msplit -n 3", "type": "map"},
        {"exec": "sort -n", "type": "reduce", "count": 3},
        {"exec": "cat", "type": "reduce"},
    ]
    job = jobs.run(phases, keys)
    (output,) = jobs.outputs(job)
    assert sorted(map(int, output.split())) == list(range(20))
    assert jobs.status(job)["stats"] | {"outputs": 1, "errors": 0, "tasks": 44} == jobs.status(job)["stats"]
    assert all_objects(server, f"/alice/jobs/{job}/stor") == [jobs.lines(job, "out")[0]]


def all_objects(server: ComputeServer, path: str) -> list[str]:
    found = []
    for line in server.get(f"{quote(path)}?limit=1024").lines:
        below = f"{path}/{line['name']}"
        found += all_objects(server, below) if line["type"] == "directory" else [below]
    return found


def test_reduce_without_input_runs_and_map_without_input_does_not(server: ComputeServer, jobs: JobClient) -> None:
    assert jobs.outputs(jobs.run([{"exec": "wc"}], [])) == []
    assert jobs.outputs(jobs.run([{"exec": "wc", "type": "reduce"}], [])) == [b"      0       0       0\n"]


def test_how_tasks_fail(server: ComputeServer, jobs: JobClient, home: str) -> None:
    (key,) = put_words(server, home, 1)
    server.make_directory(f"{home}/dir")
    failing = {
        "echo oops >&2; exit 3": "user command exited with code 3",
        "no-such-command": "user command exited with code 127",
        "kill -TERM $$": "user command terminated by SIGTERM",
        "kill -SEGV $$": "user command or child process dumped core",
    }
    for command, message in failing.items():
        job = jobs.run([{"exec": command}], [key])
        (error,) = jobs.errors(job)
        assert (error["code"], error["message"], error["input"], error["p0input"]) == (
            "UserTaskError",
            message,
            key,
            key,
        )
        assert error["what"] == f'phase 0: input "{key}"'
        assert jobs.lines(job, "fail") == [key]
        if "oops" in command:
            assert server.get(error["stderr"]).body == b"oops\n"
    wrong = [f"{home}/none", f"{home}/dir", "/bob/stor/secret", "/", "no path"]
    server.put("/bob/stor/secret", b"of bob")
    job = jobs.run([{"exec": "cat"}], wrong)
    assert {error["input"]: error["code"] for error in jobs.errors(job)} == {
        f"{home}/none": "ResourceNotFoundError",
        f"{home}/dir": "InvalidArgumentError",
        "/bob/stor/secret": "AuthorizationError",
        "/": "ResourceNotFoundError",
        "no path": "ResourceNotFoundError",
    }
    assert jobs.outputs(job) == []


def test_what_a_task_sees_and_may_do(server: ComputeServer, jobs: JobClient, home: str) -> None:
    (key,) = put_words(server, home, 1)
    server.put(f"{home}/asset.sh", b"#!/bin/sh\necho from the asset\n")
    command = f"""
        echo $MANTA_USER $MANTA_JOB_ID $MANTA_INPUT_OBJECT $MANTA_NO_AUTH
        cat $MANTA_INPUT_FILE
        /assets{home}/asset.sh
        cat $HOME/from-init
        curl -s $MANTA_URL{key}
        curl -s -o /dev/null -w '%{{http_code}}\\n' $MANTA_URL/bob/stor/secret
        echo copied | mtee {home}/copy
        id -u
    """
    server.put("/bob/stor/secret", b"of bob")
    job = jobs.run(
        [{"exec": command, "assets": [f"{home}/asset.sh"], "init": "echo initialised > $HOME/from-init"}], [key]
    )
    (output,) = jobs.outputs(job)
    lines = output.decode().splitlines()
    assert lines[:-1] == [
        f"alice {job} {key} true",
        "word 0",
        "from the asset",
        "initialised",
        "word 0",
        "403",
        "copied",
    ]
    assert lines[-1] != "0"
    assert server.get(f"{home}/copy").body == b"copied\n"


def test_init_and_assets_that_fail(server: ComputeServer, jobs: JobClient, home: str) -> None:
    keys = put_words(server, home, 2)
    job = jobs.run([{"exec": "cat", "init": "exit 9"}], keys)
    assert [error["code"] for error in jobs.errors(job)] == ["TaskInitError"] * 2
    job = jobs.run([{"exec": "cat", "assets": [f"{home}/none"]}], keys)
    assert {error["message"] for error in jobs.errors(job)} == {
        f'error retrieving asset "{home}/none" (status code 404)'
    }


def test_outputs_made_by_the_task_itself(server: ComputeServer, jobs: JobClient, home: str) -> None:
    keys = put_words(server, home, 2)
    job = jobs.run(
        [{"exec": f"echo one | mpipe; echo two | mpipe {home}/named$RANDOM; mcat {keys[0]}; echo dropped"}], keys[:1]
    )
    assert sorted(jobs.outputs(job)) == [b"one\n", b"two\n", b"word 0\n"]
    job = jobs.run(
        [
            {"exec": "mcat -r 1 $MANTA_INPUT_OBJECT"},
            {"exec": "cat; echo r$MANTA_REDUCER", "type": "reduce", "count": 2},
        ],
        keys,
    )
    assert sorted(jobs.outputs(job)) == [b"r0\n", b"word 0\nword 1\nr1\n"] or sorted(jobs.outputs(job)) == [
        b"r0\n",
        b"word 1\nword 0\nr1\n",
    ]


def test_cancel_ends_every_process(server: ComputeServer, jobs: JobClient, home: str) -> None:
    keys = put_words(server, home, 3)
    job = jobs.create(
        {"exec": f"echo began | mtee {home}/began$RANDOM; trap '' TERM INT; setsid sleep 1000 & sleep 1000"}
    )
    jobs.add(job, keys)
    deadline = time.monotonic() + 60
    while not any(name.startswith("began") for name in server.get(home).names):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert jobs.status(job)["state"] == "running"
    assert server.delete(f"/alice/jobs/{job}").code == "InvalidJobState"
    jobs.cancel(job)
    status = jobs.wait(job)
    assert (status["cancelled"], status["inputDone"]) == (True, True)
    assert {error["code"] for error in jobs.errors(job)} == {"JobCancelledError"}
    late = server.request("POST", jobs.path(job, "live/in"), b"/x")
    assert (late.status, late.code) == (409, "InvalidJobState")
    assert server.request("POST", jobs.path(job, "live/cancel"), b"{}").status == 409


def test_both_sets_of_paths(server: ComputeServer, jobs: JobClient, home: str) -> None:
    keys = put_words(server, home, 2)
    job = jobs.create({"exec": "cat"}, name="both")
    assert server.request("POST", jobs.path(job, "in"), "\n".join(keys)).status == 204
    assert server.request("POST", jobs.path(job, "end"), b"").status == 202
    jobs.wait(job)
    for name in ("in", "out", "err", "fail"):
        assert server.get(jobs.path(job, name)).body == server.get(jobs.path(job, "live", name)).body
    as_json = server.get(jobs.path(job), accept="application/json")
    assert json.loads(as_json.body)["id"] == job
    directory = server.head(jobs.path(job))
    assert directory.headers["content-type"] == "application/x-json-stream; type=directory"
    assert directory.headers["m-job-state"] == "done"
    assert json.loads(directory.headers["m-job-manifest"])["phases"] == [{"exec": "cat", "type": "map"}]
    assert server.head(jobs.path(job, "live")).status == 404
    assert server.put(jobs.path(job, "stor/x"), b"mine").code == "AuthorizationFailed"


def test_jobs_are_listed_in_the_order_of_their_making(server: ComputeServer) -> None:
    jobs = JobClient(server, "lister")
    made = [jobs.create({"exec": "true"}, name="even" if number % 2 == 0 else "odd") for number in range(6)]
    assert made == sorted(made)
    first = server.get("/lister/jobs?limit=4")
    assert first.names == made[:4]
    assert server.get(f"/lister/jobs?marker={quote(first.headers['page-token'])}").names == made[4:]
    assert server.get(f"/lister/jobs?marker={made[2]}").names == made[2:]
    assert server.get("/lister/jobs?state=running").names == made[::-1]
    assert server.get("/lister/jobs?name=odd").names == made[5::-2]
    assert server.get("/lister/jobs?state=queued").code == "InvalidParameter"
    for job in made:
        jobs.end(job)
    for job in made:
        jobs.wait(job)
    assert server.get("/lister/jobs?state=running").names == []
    assert server.get("/lister/jobs").names == made


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ("{}", '"phases"'),
        ('{"phases": []}', '"phases"'),
        ('{"phases": [{}]}', '"phases[0].exec"'),
        ('{"phases": [{"exec": "wc", "timeout": 3}]}', '"phases[0].timeout"'),
        ('{"phases": [{"exec": "wc"}], "extra": 1}', '"extra"'),
        ('{"phases": [{"exec": "wc", "memory": 100}]}', '"phases[0].memory"'),
        ('{"phases": [{"exec": "wc", "count": 2}]}', '"phases[0].count"'),
        ('{"phases": [{"exec": "wc", "type": "reduce", "count": 0}]}', '"phases[0].count"'),
        ('{"phases": [{"exec": "wc", "type": "filter"}]}', '"phases[0].type"'),
        ('{"phases": [{"exec": "wc", "assets": "x"}]}', '"phases[0].assets"'),
    ],
)  # fmt: skip
def test_wrong_manifests_are_refused_by_field(sqlite_compute: ComputeServer, manifest: str, field: str) -> None:
    answer = sqlite_compute.request("POST", "/alice/jobs", manifest, {"content-type": "application/json; type=job"})
    assert (answer.status, answer.code) == (400, "InvalidJob")
    assert field in json.loads(answer.body)["message"]


def test_the_overview_shows_the_jobs_that_run(server: ComputeServer, jobs: JobClient, home: str) -> None:
    job = jobs.create({"exec": "wc"}, name="counted")
    shown = json.loads(server.waybill("compute", "--account", "alice", "--json"))
    assert job in [status["id"] for status in shown["running"]]
    assert f"{job}  counted  running" in server.waybill("compute", "--account", "alice")
    jobs.cancel(job)
    jobs.wait(job)
    assert job not in server.waybill("compute", "--account", "alice")


def test_25_clients_add_input_at_once_and_no_key_is_lost(server: ComputeServer, jobs: JobClient, home: str) -> None:
    (key,) = put_words(server, home, 1)
    job = jobs.create({"exec": "true"})
    with ThreadPoolExecutor(25) as clients:
        list(clients.map(lambda number: jobs.add(job, [f"{home}/none{number}-{each}" for each in range(8)]), range(25)))
    jobs.add(job, [key], end=True)
    status = jobs.wait(job)
    assert (status["stats"]["tasks"], status["stats"]["outputs"], status["stats"]["errors"]) == (201, 1, 200)
    assert len(set(jobs.lines(job, "in"))) == 201
