"""What a process asks of its system and of Python when it begins; in one of its own, because it stays."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from tests.cli.conftest import Start, address_of

BEGIN = """
import gc, json, resource
from waybill.runtime.server_processes import tune_process
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, hard))
tune_process()
class Ring: pass
first, second = Ring(), Ring()
first.other, second.other = second, first
import weakref
seen = weakref.ref(first)
del first, second
kept = [[] for _ in range(50_000)]
print(json.dumps([hard, resource.getrlimit(resource.RLIMIT_NOFILE)[0], gc.get_threshold(), seen() is None]))
"""


def begun(soft: int) -> tuple[int, int, list[int], bool]:
    result = subprocess.run([sys.executable, "-c", BEGIN.format(soft=soft)], capture_output=True, text=True, check=True)
    return tuple(json.loads(result.stdout))


def test_it_may_have_many_files_open_and_is_not_looked_through_all_the_time() -> None:
    hard, soft, threshold, collected = begun(256)
    assert soft == min(hard, 65_536)
    assert threshold == [20_000, 10, 10]
    assert collected, "rings are found all the same"


def test_nobody_gets_less_than_he_had() -> None:
    hard, soft, _, _ = begun(min(1_000_000, begun(256)[0]))
    assert soft == min(1_000_000, hard)


def test_more_may_listen_than_it_had_files_to_begin_with(running: Start, data: Path) -> None:
    """Most systems begin with 1,024; here with few, so that few must listen."""
    server = running("serve", "--port", 0, under=("sh", "-c", 'ulimit -Sn 100; exec "$@"', "sh"))
    address = urlsplit(address_of(server.line()))
    token = (data / "admin.token").read_text().strip()
    text = f"GET /api/v1/changes HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with ExitStack() as listeners:
        for _ in range(150):
            ear = listeners.enter_context(
                socket.create_connection((str(address.hostname), address.port or 0), timeout=30)
            )
            ear.sendall(text)
            assert ear.recv(20).startswith(b"HTTP/1.1 200")
    assert server.end(signal.SIGTERM).code == 0
