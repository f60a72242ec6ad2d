"""The Python package `manta` as it is installed: its library and its shell, with and without signatures.

Where the client itself fails (its documented bugs), the effect on the server is what is tested: `cancel_job` expects
another status than Manta has ever sent, and keys of a live job come back as bytes.
"""

import json

import pytest

from tests.apps.compute.clients.official_clients import ClientUser

LIBRARY_TOUR = """
import json, os, sys, time
import manta

account = os.environ["MANTA_USER"]
signer = None if os.environ.get("MANTA_NO_AUTH") else manta.CLISigner(os.environ["MANTA_KEY_ID"])
client = manta.MantaClient(os.environ["MANTA_URL"], account=account, signer=signer)
stor = f"/{account}/stor"
found = {}
client.mkdirp(f"{stor}/py/a/b")
client.put_directory(f"{stor}/py/d")
client.put_object(f"{stor}/py/o.txt", content="hello", content_type="text/plain")
found["twice"] = [str(client.get_object(f"{stor}/py/o.txt")) for _ in range(2)]  # the second is answered 304
client.ln(f"{stor}/py/o.txt", f"{stor}/py/l")
found["names"] = sorted(client.ls(f"{stor}/py"))
found["stat"] = client.stat(f"{stor}/py/l")["type"]
found["type"] = [client.type(f"{stor}/py"), client.type(f"{stor}/none")]
for number in range(300):
    client.put_object(f"{stor}/py/a/{number:03d}", content="x")
found["paged"] = len(client.ls(f"{stor}/py/a"))
found["walked"] = sum(len(objects) for _, _, objects in client.walk(f"{stor}/py"))
client.delete_object(f"{stor}/py/l")
client.delete_directory(f"{stor}/py/d")
found["left"] = sorted(client.ls(f"{stor}/py"))
job = client.create_job([{"exec": "wc"}], name="py")
client.add_job_inputs(job, [f"{stor}/py/o.txt", f"{stor}/none"])
found["running"] = [each["name"] for each in client.list_jobs(state="running")] == [job]
client.end_job_input(job)
while client.get_job(job)["state"] != "done":
    time.sleep(0.05)
text = lambda keys: [key.decode() if isinstance(key, bytes) else key for key in keys]
(output,) = text(client.get_job_output(job))
found["output"] = client.get_object(output).split()
found["input"] = text(client.get_job_input(job)) == [f"{stor}/py/o.txt", f"{stor}/none"]
found["failures"] = text(client.get_job_failures(job)) == [f"{stor}/none"]
found["errors"] = [error["code"] for error in client.get_job_errors(job)]
other = client.create_job([{"exec": "wc"}])
try:
    client.cancel_job(other)
except KeyError:
    pass
found["cancelled"] = client.get_job(other)["cancelled"]
found["jobs"] = [each["name"] for each in client.list_jobs(limit=10)] == [job, other]
try:
    client.get_object(f"{stor}/none")
except manta.MantaAPIError as error:
    found["error"] = [error.res["status"], error.code]
print(json.dumps(found))
"""


def test_the_library(user: ClientUser) -> None:
    found = json.loads(user.run("python3", "-W", "ignore", "-c", LIBRARY_TOUR).out)
    assert found == {
        "twice": ["hello"] * 2,
        "names": ["a", "d", "l", "o.txt"],
        "stat": "object",
        "type": ["directory", None],
        "paged": 301,
        "walked": 302,
        "left": ["a", "o.txt"],
        "running": True,
        "output": ["0", "1", "5"],
        "input": True,
        "failures": True,
        "errors": ["ResourceNotFoundError"],
        "cancelled": True,
        "jobs": True,
        "error": ["404", "ResourceNotFound"],
    }


def test_the_shell(user: ClientUser) -> None:
    stor = f"/{user.account}/stor"

    def mantash(*words: str, code: int | None = 0) -> str:
        done = user.run("mantash", *words, code=code)
        return done.out + (done.err if code is None else "")

    (user.home / "f.txt").write_text("one\ntwo\n")
    mantash("mkdir", "-p", f"{stor}/sh/a")
    mantash("put", "f.txt", f"{stor}/sh/f.txt")
    assert mantash("cat", f"{stor}/sh/f.txt") == "one\ntwo\n"
    assert mantash("head", f"{stor}/sh/f.txt") == "one\ntwo\n"
    assert mantash("tail", f"{stor}/sh/f.txt") == "one\ntwo\n"
    mantash("cp", f"{stor}/sh/f.txt", f"{stor}/sh/a/g.txt")
    mantash("ln", f"{stor}/sh/f.txt", f"{stor}/sh/l.txt")
    mantash("mv", f"{stor}/sh/l.txt", f"{stor}/sh/m.txt")
    assert mantash("ls", f"{stor}/sh").split() == ["a", "f.txt", "m.txt"]
    assert f"{stor}/sh/a/g.txt" in mantash("find", f"{stor}/sh")
    assert "sh" in mantash("du", f"{stor}/sh")
    mantash("get", f"{stor}/sh/m.txt", "back.txt")
    assert (user.home / "back.txt").read_text() == "one\ntwo\n"
    mantash("json", f"{stor}/sh/f.txt", code=None)
    mantash("job", f"{stor}/sh/f.txt", "^", "wc", code=None)  # the client fails when it reads the output it asked for
    (job,) = [name.strip("/") for name in mantash("jobs").split() if name.count("-") == 4]
    user.run("mjob", "watch", job, code=None)
    assert json.loads(user.run("mjob", "get", job).out)["stats"]["tasks"] == 1
    mantash("rm", "-r", f"{stor}/sh/a")
    mantash("rm", f"{stor}/sh/f.txt", f"{stor}/sh/m.txt")
    assert mantash("ls", f"{stor}/sh").split() == []


@pytest.mark.parametrize("signs", [True], indirect=True)
@pytest.mark.parametrize("bits", ["256", "384", "521"])
def test_ecdsa_keys_of_every_size(user: ClientUser, bits: str) -> None:
    user.make_key("ecdsa", "-b", bits, "-m", "PEM")
    words = "import os, manta; c = manta.MantaClient(os.environ['MANTA_URL'], account=os.environ['MANTA_USER'], "
    words += "signer=manta.CLISigner(os.environ['MANTA_KEY_ID'])); print(c.ls(f\"/{os.environ['MANTA_USER']}/stor\"))"
    assert user.run("python3", "-W", "ignore", "-c", words).out == "{}\n"
