"""What Manta has not: options of tasks, templates, live events, rerun, removal, and the events that tell of a job's end."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.apps.compute.compute_server import ComputeServer, JobClient, Response
from waybill.apps.compute.archive import sort_lines
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.templates import fill_template

API = "/api/v1/compute/alice/jobs"


@pytest.fixture
def jobs(sqlite_compute: ComputeServer) -> JobClient:
    return JobClient(sqlite_compute)


def post(server: ComputeServer, path: str, body: Any = None) -> Response:
    headers = {"content-type": "application/json"}
    return server.request("POST", path, json.dumps(body) if body is not None else b"", headers)


def make(server: ComputeServer, phases: list[dict[str, Any]], keys: list[str], **options: Any) -> str:
    body = {"manifest": {"phases": phases, "options": options}, "keys": keys, "end_input": True}
    answer = post(server, API, body)
    assert answer.status == 201, answer.body
    return str(json.loads(answer.body)["id"])


def put_keys(server: ComputeServer, folder: str, count: int) -> list[str]:
    server.make_directory(f"/alice/stor/{folder}")
    keys = [f"/alice/stor/{folder}/{number}" for number in range(count)]
    for number, key in enumerate(keys):
        assert server.put(key, f"{number}\n".encode()).status == 204
    return keys


def test_tasks_have_a_time_limit_and_are_tried_again(sqlite_compute: ComputeServer, jobs: JobClient) -> None:
    (key,) = put_keys(sqlite_compute, "limits", 1)
    job = make(sqlite_compute, [{"exec": "sleep 60"}], [key], timeout=0.2)
    jobs.wait(job)
    (error,) = jobs.errors(job)
    assert (error["code"], error["message"]) == ("UserTaskError", "user command ran longer than it may")
    job = make(sqlite_compute, [{"exec": "test -e $HOME/tried || { touch $HOME/tried; exit 1; }"}], [key], retries=1)
    status = jobs.wait(job)
    assert (status["stats"]["errors"], status["stats"]["retries"], status["stats"]["outputs"]) == (0, 1, 1)
    job = make(sqlite_compute, [{"exec": "exit 1"}], [key], retries=2)
    assert jobs.wait(job)["stats"] == {"errors": 1, "outputs": 0, "retries": 2, "tasks": 1, "tasksDone": 1}


def test_a_job_halts_after_so_many_errors(sqlite_compute: ComputeServer, jobs: JobClient) -> None:
    missing = [f"/alice/stor/none{number}" for number in range(3)]
    job = make(sqlite_compute, [{"exec": "cat"}], missing, halt=3)
    assert jobs.wait(job)["cancelled"] is True


def test_outputs_in_the_order_of_the_inputs(sqlite_compute: ComputeServer, jobs: JobClient) -> None:
    keys = put_keys(sqlite_compute, "ordered", 40)
    keys = keys[::-1] + keys[:1]  # one of them twice
    job = make(sqlite_compute, [{"exec": "sleep 0.0$(shuf -i 0-9 -n 1); cat"}, {"exec": "cat"}], keys, keep_order=True)
    jobs.wait(job)
    assert [int(each) for each in jobs.outputs(job)] == [*range(39, -1, -1), 0]
    assert sqlite_compute.waybill("compute", "run", "cat", "-a", "alice", "-k", "-w", text="\n".join(keys)).split() == [
        str(number) for number in [*range(39, -1, -1), 0]
    ]
    answer = post(
        sqlite_compute,
        API,
        {"manifest": {"phases": [{"exec": "wc", "type": "reduce"}], "options": {"keep_order": True}}},
    )
    assert answer.status == 400
    assert "options.keep_order" in json.loads(answer.body)["error"]["message"]


def test_lines_are_sorted_in_bounded_memory(tmp_path: Path) -> None:
    lines = [(number * 7919 % 1000, f"{number}\n".encode()) for number in range(3000)]
    with sort_lines(lines, tmp_path, run=100) as found:
        assert list(found) == [line for _, line in sorted(lines, key=lambda each: each[0])]
    assert list(tmp_path.iterdir()) == []


def test_a_template_is_filled_and_its_values_are_words(sqlite_compute: ComputeServer, jobs: JobClient) -> None:
    (key,) = put_keys(sqlite_compute, "templates", 1)
    template = {
        "name": "greeting",
        "parameters": {"greeting": {}, "to": {"default": "world"}},
        "phases": [{"exec": "echo {{greeting}} {{ to }}"}],
        "options": {"retries": 1},
    }
    path = "/alice/stor/templates/greet.json"
    sqlite_compute.put(path, json.dumps(template).encode())
    odd = "'; rm -rf / #"
    body = {"template": path, "parameters": {"greeting": odd}, "keys": [key], "end_input": True}
    job = json.loads(post(sqlite_compute, API, body).body)["id"]
    jobs.wait(job)
    assert jobs.outputs(job) == [f"{odd} world\n".encode()]
    words = ("compute", "run", "-a", "alice", "--template", path, "--set", "greeting=hi", "--set", "to=you")
    assert sqlite_compute.waybill(*words, key, "-w") == "hi you\n"
    for given, problem in (({}, "'greeting'"), ({"greeting": "x", "other": "y"}, "'other'")):
        with pytest.raises(MantaError, match=problem):
            fill_template(template, given)
    answer = post(sqlite_compute, API, {"template": "/bob/stor/secret.json"})
    assert answer.status in (403, 404, 409)


def test_events_are_pushed_until_the_job_is_done(sqlite_compute: ComputeServer, jobs: JobClient) -> None:
    keys = put_keys(sqlite_compute, "pushed", 3)
    job = jobs.create({"exec": "cat"})
    jobs.add(job, [*keys, "/alice/stor/pushed/none"])
    connection = sqlite_compute.connect()
    connection.request("GET", f"{API}/{job}/events")
    stream = connection.getresponse()
    assert stream.headers["content-type"].startswith("text/event-stream")
    seen: list[tuple[str, dict[str, Any]]] = []
    position = ""
    while not seen or seen[-1][0] != "done":
        fields = dict(iter_fields(stream))
        if "event" in fields:
            seen.append((fields["event"], json.loads(fields["data"])))
            position = fields["id"]
        outputs = [key for name, data in seen if name == "output" for key in data["keys"]]
        names = [name for name, _ in seen]
        # All of it is pushed while the job is running.
        if len(outputs) == 3 and {"error", "progress"} <= set(names) and not jobs.status(job)["inputDone"]:
            jobs.end(job)
    connection.close()
    assert sorted(outputs) == sorted(jobs.lines(job, "out"))
    assert [data["code"] for name, data in seen if name == "error"] == ["ResourceNotFoundError"]
    again = sqlite_compute.request("GET", f"{API}/{job}/events", headers={"last-event-id": position}).body
    assert again.count(b"event:") == 1
    assert sqlite_compute.request("GET", f"{API}/{job}/events", headers={"last-event-id": "x"}).status == 400


def iter_fields(stream: Any) -> Any:
    """One event of a stream."""
    while line := stream.readline().decode().strip():
        yield tuple(line.split(": ", 1))


def test_a_job_is_run_again_and_removed(sqlite_compute: ComputeServer, jobs: JobClient) -> None:
    keys = put_keys(sqlite_compute, "again", 3)
    job = make(sqlite_compute, [{"exec": "cat"}], [*keys, "/alice/stor/late"])
    assert sqlite_compute.request("DELETE", f"{API}/{job}").status == 409
    jobs.wait(job)
    sqlite_compute.put("/alice/stor/late", b"late\n")
    failed = json.loads(post(sqlite_compute, f"{API}/{job}/rerun", {"failed": True}).body)["id"]
    whole = json.loads(post(sqlite_compute, f"{API}/{job}/rerun").body)["id"]
    jobs.wait(failed)
    jobs.wait(whole)
    assert jobs.outputs(failed) == [b"late\n"]
    assert sorted(jobs.outputs(whole)) == [b"0\n", b"1\n", b"2\n", b"late\n"]
    page = json.loads(sqlite_compute.get(f"{API}?limit=2&after={job}").body)["jobs"]
    assert [each["id"] for each in page] == [failed, whole]
    assert sqlite_compute.request("DELETE", f"{API}/{job}").status == 204
    assert sqlite_compute.get(f"{API}/{job}").status == 404
    assert job not in sqlite_compute.get("/alice/jobs?limit=1024").names
    kept = "/waybill/stor/job_archives"
    for _ in range(4):
        kept += "/" + sqlite_compute.get(kept).names[-1]
    assert sqlite_compute.get(f"{kept}/{job}").names == ["job.json", "metrics.json", "tasks.txt"]  # the operator's copy


def test_only_the_first_inputs(sqlite_compute: ComputeServer) -> None:
    keys = put_keys(sqlite_compute, "dry", 5)
    printed = sqlite_compute.waybill(
        "compute", "run", "cat", "-a", "alice", "--dry-run", "2", "-w", text="\n".join(keys)
    )
    assert sorted(printed.split()) == ["0", "1"]


def test_a_webhook_hears_of_the_end_of_jobs(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Not on the standard error of the tests."""

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{receiver.server_port}/"
    settings = f'[webhooks.listener]\nurl = "{url}"\ntypes = ["compute.job.*"]\n'
    with ComputeServer(tmp_path, settings=settings) as server:
        server.put("/alice/stor/a", b"a")
        jobs = JobClient(server)
        done = jobs.run([{"exec": "cat"}], ["/alice/stor/a"], name="fine")
        failed = jobs.run([{"exec": "cat"}], ["/alice/stor/none"])
        while len(heard) < 2:
            time.sleep(0.05)
    receiver.shutdown()
    receiver.server_close()
    found = {event["subject"]: (event["type"].rpartition(".")[2], event["data"]["name"]) for event in heard}
    assert found == {done: ("done", "fine"), failed: ("failed", "")}
