from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.dock import asked, folder_of, manifest, md5, producer, sha256, submit, upload, walk
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.submission import Type


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, settings={"outside": ["Processing"]}) as site:
        yield site


def test_a_single_file_comes_with_one_head_and_one_get(site: Site) -> None:
    url = site.web.put("a.txt", b"hello")
    job = walk(site, submit(site, url, Type.FILE))
    assert (job.state, job.priority) == ("Processing", 5)
    assert site.web.requests == [("HEAD", "/a.txt"), ("GET", "/a.txt")]
    assert producer(site, job) == {"a.txt": b"hello"}
    assert job.docs["space_needed"] == 5
    assert job.docs["downloaded"] == {
        "v": 1, "count": 1, "attempt": job.docs["downloaded"]["attempt"], "bytes": 5,
        "rows": [{"path": "producer/a.txt", "size": 5, "sha256": sha256(b"hello"), "mime": "text/plain"}],
    }  # fmt: skip
    assert sorted(path.name for path in folder_of(site, job).iterdir() if not path.name.startswith(".")) == sorted(
        ["producer", str(job.docs["downloaded"]["attempt"])]
    )
    assert site.depot.outfit("job").room.entries() == []
