"""mpipe, mcat, mtee, msplit, maggr and muntar: what a task of a job may use to make outputs.

Runs inside a task, with the system's Python alone: it imports nothing but the standard library. Objects go to
http://localhost:80/, where the header `x-manta-stream: stdout` makes an object an output of the task.
"""

import argparse
import hashlib
import http.client
import math
import os
import re
import sys
import tarfile
import tempfile
import urllib.parse
import uuid
from typing import IO

CHUNK = 1024 * 1024


def send(key: str, body: bytes | IO[bytes], size: int, headers: dict[str, str]) -> None:
    url = urllib.parse.urlsplit(os.environ["MANTA_URL"])
    connection = http.client.HTTPConnection(url.hostname or "localhost", url.port or 80)
    headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream", **headers}
    connection.request("PUT", urllib.parse.quote(key), body, headers)
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    if answer.status != 204:
        sys.exit(f"{os.path.basename(sys.argv[1])}: {key}: {text.strip()}")
    connection.close()


def buffer(stream: IO[bytes], copy: IO[bytes] | None = None) -> tuple[IO[bytes], int]:
    """The bytes of a stream in a temporary file: their number is known before they are sent."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - returned
    while piece := stream.read(CHUNK):
        file.write(piece)
        if copy is not None:
            copy.write(piece)
    size = file.tell()
    file.seek(0)
    return file, size


def read_headers(given: list[str] | None) -> dict[str, str]:
    headers = {}
    for each in given or ():
        name, _, value = each.partition(":")
        headers[name.strip()] = value.strip()
    return headers


def make_directories(key: str) -> None:
    parts = key.strip("/").split("/")
    for depth in range(3, len(parts)):
        send("/" + "/".join(parts[:depth]), b"", 0, {"Content-Type": "application/json; type=directory"})


def expand(key: str) -> str:
    """~~ is the home of the job's user, as in the clients."""
    return "/" + os.environ["MANTA_USER"] + key[2:] if key.startswith("~~/") else key


def mpipe(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("mpipe", description="Make standard input an output of this task.")
    parser.add_argument("-p", action="store_true", help="make the directories above")
    parser.add_argument("-r", type=int, help="the reducer for which it is")
    parser.add_argument("-H", action="append", help="a header, as name: value")
    parser.add_argument("-f", help="a file instead of standard input")
    parser.add_argument("key", nargs="?")
    given = parser.parse_args(arguments)
    key = expand(given.key) if given.key else os.environ["MANTA_OUTPUT_BASE"] + str(uuid.uuid4())
    headers = {"x-manta-stream": "stdout", **read_headers(given.H)}
    if given.r is not None:
        headers["x-manta-reducer"] = str(given.r)
    with open(given.f, "rb") if given.f else sys.stdin.buffer as stream:
        file, size = buffer(stream)
    if given.p:
        make_directories(key)
    send(key, file, size, headers)


def mcat(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("mcat", description="Make objects that exist outputs of this task.")
    parser.add_argument("-r", type=int, help="the reducer for which they are")
    parser.add_argument("key", nargs="+")
    given = parser.parse_args(arguments)
    headers = {"x-manta-reference": "true"}
    if given.r is not None:
        headers["x-manta-reducer"] = str(given.r)
    for key in given.key:
        send(expand(key), b"", 0, headers)


def mtee(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("mtee", description="Save a copy of what passes through.")
    parser.add_argument("-p", action="store_true", help="make the directories above")
    parser.add_argument("-H", action="append", help="a header, as name: value")
    parser.add_argument("key")
    given = parser.parse_args(arguments)
    file, size = buffer(sys.stdin.buffer, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    key = expand(given.key)
    if given.p:
        make_directories(key)
    send(key, file, size, read_headers(given.H))


def msplit(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("msplit", description="Divide lines among reducers, by the hash of their fields.")
    parser.add_argument("-n", type=int, required=True, help="the number of reducers")
    parser.add_argument("-d", default=None, help="what is between two fields (white space)")
    parser.add_argument("-f", help="the fields that decide, from 1, separated by commas")
    parser.add_argument("-j", action="store_true", help="lines are JSON; -f names properties")
    parser.add_argument("-e", help="not supported here: a JavaScript expression")
    parser.add_argument("-i", action="store_true", help="ignore lines that are not JSON")
    parser.add_argument("-z", action="store_true", help="send empty outputs too")
    given = parser.parse_args(arguments)
    if given.e:
        sys.exit("msplit: -e needs JavaScript, which is not here; use -f, or -j with -f")
    if given.n < 1:
        sys.exit("msplit: -n must be at least 1")
    files = [tempfile.TemporaryFile() for _ in range(given.n)]  # noqa: SIM115 - all open to the end
    for line in sys.stdin.buffer:
        key = read_split_key(line, given)
        if key is not None:
            files[int(hashlib.md5(key).hexdigest(), 16) % given.n].write(line)
    for number, file in enumerate(files):
        size = file.tell()
        if size or given.z:
            file.seek(0)
            name = os.environ["MANTA_OUTPUT_BASE"] + str(uuid.uuid4())
            send(name, file, size, {"x-manta-stream": "stdout", "x-manta-reducer": str(number)})


def read_split_key(line: bytes, given: argparse.Namespace) -> bytes | None:
    text = line.rstrip(b"\n")
    if given.j:
        import json

        try:
            value = json.loads(text)
        except ValueError:
            if given.i:
                return None
            sys.exit(f"msplit: not JSON: {text[:100]!r}")
        names = given.f.split(",") if given.f else []
        return json.dumps([value.get(name) for name in names] if names else value, sort_keys=True).encode()
    if not given.f:
        return text
    fields = text.split(given.d.encode()) if given.d else text.split()
    wanted = [int(field) - 1 for field in given.f.split(",")]
    return b"\0".join(fields[number] if number < len(fields) else b"" for number in wanted)


class Column:
    def __init__(self) -> None:
        self.count, self.sum, self.mean, self.squares = 0, 0.0, 0.0, 0.0
        self.min, self.max = math.inf, -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        self.sum += value
        change = value - self.mean
        self.mean += change / self.count
        self.squares += change * (value - self.mean)
        self.min, self.max = min(self.min, value), max(self.max, value)

    def read(self, what: str) -> str:
        variance = self.squares / (self.count - 1) if self.count > 1 else 0.0
        found = {
            "count": self.count, "sum": self.sum, "mean": self.mean, "min": self.min, "max": self.max, "range": self.max - self.min,
            "variance": variance, "stddev": math.sqrt(variance),
        }  # fmt: skip
        value = found[what]
        return str(int(value)) if float(value).is_integer() else repr(value)


MEASURES = ("count", "sum", "mean", "min", "max", "range", "variance", "stddev")


def maggr(arguments: list[str]) -> None:
    columns: list[tuple[int, list[str]]] = []
    operation, separator = "", None
    while arguments:
        word = arguments.pop(0)
        if match := re.fullmatch(r"-c(\d+)=([\w,]+)", word):
            columns.append((int(match[1]) - 1, match[2].split(",")))
        elif word == "-d" and arguments:
            separator = arguments.pop(0)
        elif word in MEASURES and not operation:
            operation = word
        else:
            sys.exit(
                "usage: maggr [-d DELIMITER] OPERATION | -cN=key|count|sum|mean|min|max|range|variance|stddev[,...] ..."
            )
    for _, what in columns:
        if unknown := [each for each in what if each not in (*MEASURES, "key")]:
            sys.exit(f"maggr: {unknown[0]} is none of key, {', '.join(MEASURES)}")
    columns = columns or [(0, [operation or "sum"])]
    keys = [number for number, what in columns if "key" in what]
    groups: dict[tuple[str, ...], dict[int, Column]] = {}
    for line in sys.stdin:
        fields = line.split(separator) if separator else line.split()
        if not fields:
            continue
        key = tuple(fields[number] if number < len(fields) else "" for number in keys)
        row = groups.setdefault(key, {number: Column() for number, _ in columns})
        for number, what in columns:
            if what != ["key"]:
                try:
                    row[number].add(float(fields[number]))
                except (IndexError, ValueError):
                    sys.exit(f"maggr: column {number + 1} is no number in: {line.strip()[:100]}")
    for key, row in groups.items():
        shown: list[str] = []
        for number, what in columns:
            shown += [key[keys.index(number)] if each == "key" else row[number].read(each) for each in what]
        sys.stdout.write((separator or "\t").join(shown) + "\n")


def muntar(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("muntar", description="Unpack a tar into objects.")
    parser.add_argument("-f", required=True, help="the tar; - for standard input")
    parser.add_argument(
        "-c", "--compress", action="store_true", help="taken for the clients' sake: compression is found"
    )
    parser.add_argument("-d", "--durability-level", default="2")
    parser.add_argument("directory")
    given = parser.parse_args(arguments)
    target, made = expand(given.directory).rstrip("/"), set[str]()
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|*") if given.f == "-" else tarfile.open(given.f, "r|*") as tar:
        for member in tar:
            names = [name for name in member.name.split("/") if name not in ("", ".")]
            if ".." in names or not names:
                continue
            key = "/".join((target, *names))
            folder = key if member.isdir() else key.rpartition("/")[0]
            if folder not in made:
                made.add(folder)
                make_directories(folder + "/x")
            if member.isfile():
                send(key, tar.extractfile(member) or b"", member.size, {"durability-level": given.durability_level})
                sys.stdout.write(key + "\n")


TOOLS = {"mpipe": mpipe, "mcat": mcat, "mtee": mtee, "msplit": msplit, "maggr": maggr, "muntar": muntar}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](sys.argv[2:])
