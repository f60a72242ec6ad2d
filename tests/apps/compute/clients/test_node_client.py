"""A tour of every command of the npm package `manta`, as it is installed, with and without signatures.

Two of them are refused in Manta's shape: mlogin (a terminal on a storage server) and mmpu (uploads in parts).
"""

import hashlib
import json
from pathlib import Path

import pytest

from tests.apps.compute.clients.official_clients import ClientUser
from tests.apps.compute.compute_server import ComputeServer


def test_objects_and_directories(user: ClientUser, signs: bool) -> None:
    stor = f"/{user.account}/stor"
    user.run("mmkdir", "-p", "~~/stor/a/b")
    user.run("mput", "~~/stor/a/b/one.txt", text="hi\n")
    assert user.run("mget", "~~/stor/a/b/one.txt").out == "hi\n"
    file = user.home / "two.bin"
    file.write_bytes(bytes(range(256)) * 4096)
    user.run("mput", "-p", "-f", str(file), "-m", "-H", "m-color: blue", "~~/stor/made/by/put/two.bin")
    user.run("mget", "-o", str(user.home / "back"), "~~/stor/made/by/put/two.bin")
    assert (user.home / "back").read_bytes() == file.read_bytes()
    odd = "sp ace é%41+&#?.txt"
    user.run("mput", f"~~/stor/a/{odd}", text="odd")
    assert user.run("mget", f"~~/stor/a/{odd}").out == "odd"
    assert user.run("mls", "~~/stor/a").lines == ["b/", odd]
    listed = [json.loads(line) for line in user.run("mls", "-j", "~~/stor/a").lines]
    assert [(each["name"], each["type"]) for each in listed] == [("b", "directory"), (odd, "object")]
    assert user.run("mls", "--type", "o", "~~/stor/a").lines == [odd]
    assert user.run("mls", "-r", "~~/stor/a").lines == [odd, "b/"]
    assert set(user.run("mls", "-t", "~~/stor/a").lines) == {"b/", odd}
    assert "m-color: blue" in user.run("minfo", "~~/stor/made/by/put/two.bin").out
    user.run("mln", "~~/stor/a/b/one.txt", "~~/stor/a/link")
    user.run("mchattr", "-H", "m-foo: bar", "~~/stor/a/link")
    assert "m-foo: bar" in user.run("minfo", "~~/stor/a/link").out
    assert user.run("mget", "~~/stor/a/link").out == "hi\n"
    digest = hashlib.md5(b"hi\n").hexdigest()
    assert user.run("mmd5", "~~/stor/a/link").out.split() == [digest, f"{stor}/a/link"]
    assert user.run("mfind", "-t", "o", "-n", "one", "~~/stor").lines == [f"{stor}/a/b/one.txt"]
    assert len(user.run("mfind", "~~/stor").lines) == 9
    folder = user.home / "tree"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "x").write_text("x")
    (folder / "y").write_text("y")
    user.run("msync", str(folder), "~~/stor/tree")
    assert set(user.run("mfind", "-t", "o", "~~/stor/tree").lines) == {f"{stor}/tree/sub/x", f"{stor}/tree/y"}
    if signs:
        user.run("mchmod", "+readers", "~~/stor/a/link")
        assert "role-tag: readers" in user.run("minfo", "~~/stor/a/link").out
    assert "DirectoryNotEmpty" in user.run("mrmdir", "~~/stor/a", code=None).err
    user.run("mrm", "~~/stor/a/link")
    user.run("mmkdir", "~~/stor/empty")
    user.run("mrmdir", "~~/stor/empty")
    user.run("mrm", "-r", "~~/stor/a")
    assert user.run("mls", "~~/stor").lines == ["made/", "tree/"]
    missing = user.run("mget", "~~/stor/none", code=None)
    assert missing.code != 0
    assert "ResourceNotFound" in missing.err


def test_a_tar_is_unpacked_and_two_commands_are_refused(user: ClientUser, tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "one").write_text("1")
    user.run("tar", "cf", str(tmp_path / "t.tar"), "-C", str(tmp_path), "packed")
    user.run("muntar", "-f", str(tmp_path / "t.tar"), "~~/stor")
    assert user.run("mget", "~~/stor/packed/one").out == "1"
    refused = user.run("mmpu", "create", "~~/stor/parts", code=None)
    assert refused.code != 0
    assert "Uploads in parts are not supported" in refused.err
    if "MANTA_NO_AUTH" in user.environment:  # what mlogin asks for, on a terminal
        answer = user.server.get(f"/{user.account}/medusa/attach/job/master")
        assert (answer.status, answer.code) == (501, "NotImplemented")


def put_words(user: ClientUser, count: int) -> list[str]:
    keys = [f"/{user.account}/stor/w{number}" for number in range(count)]
    for number, key in enumerate(keys):
        user.run("mput", key, text=f"word {number}\n")
    return keys


def test_jobs(user: ClientUser) -> None:
    keys = put_words(user, 3)
    listing = "\n".join(keys)
    assert (
        user.run("mjob", "create", "-o", "-m", "wc", "-r", "awk '{n += $2} END {print n}'", text=listing).out == "6\n"
    )
    job = user.run("mjob", "create", "--open", "-n", "tour", "-m", "grep -v '2$'").out.strip()
    user.run("mjob", "addinputs", "-o", job, text=listing)
    assert json.loads(user.run("mjob", "get", job).out)["state"] == "running"
    assert user.run("mjob", "inputs", job).lines == keys
    assert user.run("mjob", "list", "-s", "running").lines == [f"{job}/"]
    assert user.run("mjob", "list", "-n", "tour").lines == [f"{job}/"]
    user.run("mjob", "close", job)
    user.run("mjob", "watch", job, code=None)
    status = json.loads(user.run("mjob", "get", job).out)
    assert (status["state"], status["stats"]["outputs"], status["stats"]["errors"]) == ("done", 2, 1)
    assert len(user.run("mjob", "outputs", job).lines) == 2
    (error,) = [json.loads(line) for line in user.run("mjob", "errors", job, code=None).lines]
    assert (error["code"], error["input"]) == ("UserTaskError", keys[2])
    assert user.run("mjob", "failures", job, code=None).lines == [keys[2]]
    assert len(user.run("mjob", "list").lines) == 2
    user.run("mjob", "share", job)
    page = user.run("mget", f"~~/public/jobshares/{job}/index.html").out
    assert keys[2] in page
    cancelled = user.run("mjob", "create", "--open", "-m", "sleep 100").out.strip()
    user.run("mjob", "addinputs", cancelled, text=keys[0])
    user.run("mjob", "cancel", cancelled)
    user.run("mjob", "watch", cancelled, code=None)
    assert json.loads(user.run("mjob", "get", cancelled).out)["cancelled"] is True
    assert "is in state 'cancelled'" in user.run("mjob", "cancel", cancelled, code=None).err
    user.run("mrm", "-r", f"~~/jobs/{cancelled}")
    assert f"{cancelled}/" not in user.run("mjob", "list").lines


def test_what_a_job_cost(user: ClientUser) -> None:
    (key,) = put_words(user, 1)
    job = user.run("mjob", "create", "-w", "-m", "sleep 0.3; wc", text=key).lines[0]
    report = ""
    while not report:  # written within some seconds
        report = "".join(user.run("mfind", "-t", "o", "~~/reports", code=None).lines)
    used = json.loads(user.run("mget", report).out)["jobs"][job]
    assert (used["0"]["ntasks"], used["0"]["seconds"]) == ("1", "1")
    cost = float(user.run("mjob", "cost", job).out)
    assert 0.3 * 0.00004 <= cost < 100 * 0.00004


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_signed_url_opens_one_object_for_its_methods(
    closed_compute: ComputeServer, node_commands: Path, tmp_path: Path, kind: str
) -> None:
    user = ClientUser(closed_compute, tmp_path / "home", [node_commands], f"signer-{kind}")
    user.make_key(kind)
    user.run("mput", "~~/stor/o 1", text="hello")
    url = user.run("msign", "-E", "10m", "~~/stor/o 1").out.strip()
    path = url.removeprefix(closed_compute.url)
    assert closed_compute.get(path).body == b"hello"
    assert closed_compute.head(path).status == 200
    assert closed_compute.delete(path).status == 403
    assert closed_compute.get(path.replace("o%201", "other")).code == "InvalidSignature"
    late = user.run("msign", "-e", "1000", "~~/stor/o 1").out.strip().removeprefix(closed_compute.url)
    assert closed_compute.get(late).code == "PreSignedRequest"
    put = user.run("msign", "-m", "PUT", "~~/stor/put").out.strip().removeprefix(closed_compute.url)
    assert closed_compute.put(put, b"put").status == 204
    assert user.run("mget", "~~/stor/put").out == "put"


def test_nobody_reads_what_belongs_to_another(
    closed_compute: ComputeServer, node_commands: Path, tmp_path: Path
) -> None:
    owner = ClientUser(closed_compute, tmp_path / "owner", [node_commands], "owner1")
    other = ClientUser(closed_compute, tmp_path / "other", [node_commands], "other1")
    unknown = ClientUser(closed_compute, tmp_path / "unknown", [node_commands], "owner1")
    owner.make_key("rsa", "-b", "2048")
    other.make_key("rsa", "-b", "2048")
    owner.run("mput", "~~/stor/secret", text="secret")
    owner.run("mput", "~~/public/open", text="open")
    job = owner.run("mjob", "create", "--open", "-m", "wc").out.strip()
    assert other.run("mget", "/owner1/public/open").out == "open"
    assert unknown.run("mget", "/owner1/public/open").out == "open"
    for words in (("mget", "/owner1/stor/secret"), ("mget", "/owner1/stor/none"), ("mput", "/owner1/public/x")):
        assert "AuthorizationFailed" in other.run(*words, text="x", code=None).err
    assert closed_compute.get("/owner1/stor/secret").code == "AuthorizationRequired"
    assert "not found" in other.run("mjob", "get", f"/owner1/jobs/{job}", code=None).err
    assert owner.run("mget", "~~/stor/secret").out == "secret"
    unknown.make_key("rsa", "-b", "2048")
    assert unknown.run("mget", "~~/stor/secret").out == "secret"
    closed_compute.waybill("keys", "remove", "owner1", unknown.environment["MANTA_KEY_ID"])
    assert "KeyDoesNotExist" in unknown.run("mget", "~~/stor/secret", code=None).err
    closed_compute.waybill("users", "disable", "other1")
    assert "does not exist" in other.run("mls", "~~/stor", code=None).err
    owner.run("mjob", "cancel", job)


def test_a_user_acts_for_its_group_and_readers_write_nothing(
    closed_compute: ComputeServer, node_commands: Path, tmp_path: Path
) -> None:
    member = ClientUser(closed_compute, tmp_path / "member", [node_commands], "member1")
    member.make_key("ed25519")
    closed_compute.waybill("groups", "new", "team1")
    member.environment |= {"MANTA_USER": "team1", "MANTA_SUBUSER": "member1"}
    assert "is no user of team1" in member.run("mls", "~~/stor", code=None).err
    closed_compute.waybill("groups", "add", "team1", "member1")
    member.run("mput", "~~/stor/shared", text="of the team")
    assert member.run("mget", "/team1/stor/shared").out == "of the team"
    closed_compute.waybill("users", "withdraw", "member1", "submitter", "--in", "own")
    assert "it needs the role submitter" in member.run("mput", "~~/stor/more", text="x", code=None).err
    assert member.run("mls", "~~/stor").out == "shared\n"
