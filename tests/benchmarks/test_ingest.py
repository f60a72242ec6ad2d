"""What ingest is measured with: the web server serves what it says, and the bare loop leaves what Waybill leaves."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx2
from benchmarks.rounds import child
from benchmarks.web import Web, fill, name_of, small

from waybill.apps.ingest.formats.checkm import ManifestKind, read_manifest


def files(folder: Path) -> dict[str, int]:
    """Each file below it with its size. Content is named by its digest: only what is alike in all objects is told
    apart.
    """
    found: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            parent, _, last = name.rpartition("/")
            number = sum(1 for other in found if other.startswith(f"{parent}/content-"))
            found[f"{parent}/content-{number}" if len(last) == 64 else name] = path.stat().st_size
    return found


def test_small_files_and_their_manifest_are_served() -> None:
    with Web() as url, httpx2.Client() as client:
        rows = read_manifest(client.get(f"{url}/small/3-2.checkm").content, kind=ManifestKind.FILES).rows
        assert [row.name for row in rows] == [name_of(3), name_of(4)]
        assert [client.get(row.url).content for row in rows] == [small(3), small(4)]
        response = client.head(rows[0].url)
        assert (response.headers["content-length"], response.content) == ("4096", b"")
    assert small(3) != small(4)


def test_large_files_are_served_whole(tmp_path: Path) -> None:
    fill(tmp_path, 2, 3 * 2**20)
    with Web(tmp_path) as url, httpx2.Client() as client:
        rows = read_manifest(client.get(f"{url}/large.checkm").content, kind=ManifestKind.OBJECT).rows
        for row in rows:
            assert (
                hashlib.sha256(client.get(row.url).content).digest()
                == hashlib.sha256((tmp_path / row.name).read_bytes()).digest()
            )
    assert len(rows) == 2


def test_the_bare_loop_writes_the_files_that_waybill_writes(tmp_path: Path) -> None:
    with Web() as url:
        child("benchmarks.deposits", tmp_path / "ours", f"{url}/small/0-2.checkm", "single-file-batch-manifest", 2)
        roots = sorted(path.parent for path in tmp_path.glob("ours/objects/ocfl/*/*/*/inventory.json"))
        child("benchmarks.peers.bare_loop", tmp_path / "bare", url, 2, roots[0], 2)
    bare = sorted(path.parent for path in tmp_path.glob("bare/objects/*/*/*/inventory.json"))
    assert len(bare) == len(roots) == 2
    assert [files(each) for each in bare] == [files(roots[0])] * 2
    fields = {file.read_bytes() for each in bare for file in each.glob("v1/content/*")}
    assert {small(0), small(1)} <= fields
    assert not list((tmp_path / "bare" / "work").iterdir())
