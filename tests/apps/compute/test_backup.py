"""A backup of the catalogue, taken before that of the objects while the server writes, restores every object that it names."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from tests.apps.compute.compute_server import ComputeServer, JobClient


def test_a_restored_backup_has_every_object_that_it_names(tmp_path: Path) -> None:
    server = ComputeServer(tmp_path / "server")
    backup = tmp_path / "backup"
    backup.mkdir()
    with server:
        before = {f"/alice/stor/before{number}": f"{number}".encode() for number in range(20)}
        for path, data in before.items():
            assert server.put(path, data, m_number=data.decode()).status == 204
        job = JobClient(server).run([{"exec": "cat"}], list(before))
        done = threading.Event()

        def keep_writing() -> None:
            number = 0
            while not done.is_set():
                server.put(f"/alice/stor/meanwhile{number}", b"%d" % number)
                number += 1

        writer = threading.Thread(target=keep_writing)
        writer.start()
        for name in ("waybill-index.db", "waybill.db"):  # the catalogue first, then the objects
            with (
                closing(sqlite3.connect(server.data / name)) as source,
                closing(sqlite3.connect(backup / name)) as target,
            ):
                source.backup(target)
        shutil.copytree(server.data / "objects", backup / "objects")
        done.set()
        writer.join()
        server.kill()
    for name in ("waybill-index.db", "waybill.db"):
        for file in server.data.glob(f"{name}*"):
            file.unlink()
        shutil.copy(backup / name, server.data / name)
    shutil.rmtree(server.data / "objects")
    shutil.copytree(backup / "objects", server.data / "objects")
    with server:
        names = server.get("/alice/stor?limit=1024").names
        assert {path.rpartition("/")[2] for path in before} <= set(names)
        for name in names:
            assert server.get(f"/alice/stor/{name}").status == 200, name
        assert server.head("/alice/stor/before7").headers["m-number"] == "7"
        assert sorted(JobClient(server).outputs(job)) == sorted(before.values())
        assert server.put("/alice/stor/after", b"x").status == 204
        assert len(JobClient(server).outputs(JobClient(server).run([{"exec": "cat"}], ["/alice/stor/after"]))) == 1
