"""A command reaches a handler outside at http://localhost:80/, and nothing of it outlives the command."""

import http.server
import socket
import textwrap
import threading

import pytest

from tests.sandbox.conftest import PRELUDE, PYTHON, PYTHON_BIND, PYTHON_ENV, run_code, run_shell
from tests.sandbox.test_commands import wait_for
from waybill.sandbox import Command, Sandbox, SandboxRefused, SandboxSpec

FETCH = """
import http.client
connection = http.client.HTTPConnection("localhost", 80)
connection.request("PUT", "/stor/a", b"x" * 100000, {"x-manta-stream": "stdout"})
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


class EchoHandler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = f"{self.path} {len(body)} {self.headers['x-manta-stream']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        return


def serve_http(connection: socket.socket) -> None:
    EchoHandler(connection, ("sandbox", 0), None)  # type: ignore[arg-type]


def test_http_at_port_80(support, tmp_path):
    spec = SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, handler=serve_http)
    with Sandbox.open(support, spec) as sandbox:
        assert sandbox.handler_url == "http://localhost:80/"
        for _ in range(3):
            assert run_code(sandbox, tmp_path, FETCH).out == "200 /stor/a 100000 stdout\n"
        capabilities = run_shell(sandbox, tmp_path, "grep Cap.*[1-9a-f]$ /proc/self/status | grep -v Bnd").out
        assert capabilities == ""  # the one to listen on port 80 is gone


def test_connections_end_with_their_command(support, tmp_path):
    """A request that nobody has read when its command ends is never handled; one that is being read is cut off."""
    seen: list[bytes] = []
    started, ended = threading.Event(), threading.Event()

    def handle(connection: socket.socket) -> None:
        started.set()
        while data := connection.recv(100):
            seen.append(data)
        ended.set()

    spec = SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, handler=handle)
    with Sandbox.open(support, spec) as sandbox:
        code = """
            held = socket.create_connection(("localhost", 80))
            held.sendall(b"first")
            print("connected", flush=True)
            import time; time.sleep(600)
        """
        stop = threading.Event()
        command = Command([PYTHON, "-I", "-S", "-c", PRELUDE + textwrap.dedent(code)], stdout=tmp_path / "out")
        thread = threading.Thread(target=sandbox.run, args=(command, stop))
        thread.start()
        assert started.wait(20)
        wait_for(lambda: seen == [b"first"], "the handler reads")
        stop.set()
        thread.join()
        assert ended.is_set()  # before `run` returned


def test_a_handler_that_fails_harms_one_connection(support, tmp_path):
    calls = []

    def handle(connection: socket.socket) -> None:
        calls.append(connection)
        if len(calls) == 1:
            raise RuntimeError("a fault")
        connection.sendall(b"fine")

    code = 'for _ in range(2):\n    print(socket.create_connection(("localhost", 80)).recv(100))'
    with Sandbox.open(support, SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, handler=handle)) as sandbox:
        assert run_code(sandbox, tmp_path, code).out == "b''\nb'fine'\n"


def test_two_sandboxes_have_two_handlers(support, tmp_path):
    def make(name: bytes) -> SandboxSpec:
        return SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, handler=lambda connection: connection.sendall(name))

    code = 'print(socket.create_connection(("localhost", 80)).recv(100))'
    with Sandbox.open(support, make(b"one")) as one, Sandbox.open(support, make(b"two")) as two:
        assert run_code(one, tmp_path, code).out == "b'one'\n"
        assert run_code(two, tmp_path, code).out == "b'two'\n"


def test_more_connections_than_handlers(support, tmp_path):
    code = """
        import threading
        got = []
        def fetch():
            got.append(socket.create_connection(("localhost", 80)).recv(10))
        threads = [threading.Thread(target=fetch) for _ in range(40)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(len(got), set(got))
    """
    spec = SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, handler=lambda connection: connection.sendall(b"x"))
    with Sandbox.open(support, spec) as sandbox:
        assert run_code(sandbox, tmp_path, code).out == "40 {b'x'}\n"


def test_with_network(support, tmp_path):
    """The host's network, where it is allowed; a handler of its own is then impossible."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f'print(attempt(socket.create_connection, ("127.0.0.1", {server.getsockname()[1]}))[0])'
        with Sandbox.open(support, SandboxSpec(binds=[PYTHON_BIND], env=PYTHON_ENV, network=True)) as sandbox:
            assert run_code(sandbox, tmp_path, code).out == "done\n"
    with pytest.raises(SandboxRefused, match="cannot have a handler at localhost:80"):
        Sandbox.open(support, SandboxSpec(network=True, handler=serve_http))
