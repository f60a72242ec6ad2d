from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.yard import add_profile, fetched, run
from waybill.apps.ingest.profile import Profile


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        add_profile(site, Profile(name="p", owner="ark:/99999/fk4owner", collections=("ark:/99999/fk4coll",)))
        yield site


def test_an_object_gets_an_ark_and_is_stored_with_its_system_files(site: Site) -> None:
    job = run(site, fetched(site, {"a.txt": b"hello"}, title="Hunt", local_ids=("l1",)))
    assert job.state in ("Notify", "Completed"), job.message
