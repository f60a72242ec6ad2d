"""Examining the whole tree: whether both sides find it consistent, and what is left of a record that was removed."""

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import list_jobs
from tests.interop.trivial_ingest import TrivialIngest
from tests.stores.zookeeper import nodedump


def assert_consistent(ingest: TrivialIngest, client: Client) -> None:
    """Assert that Merritt's own test and our check find nothing, and that Merritt's library can list everything."""
    faults, findings = nodedump.faults(client.zk), list(ingest.store.check())
    assert faults == [], faults
    assert findings == [], findings
    list_jobs(client)


def find_traces(zk: KazooClient, *names: str, below: str = "/") -> list[str]:
    """Return every node whose path or data contains one of these names."""
    found = []
    todo = [below]
    while todo:
        path = todo.pop()
        try:
            data = (zk.get(path)[0] or b"").decode(errors="replace")
            todo += [f"{path.rstrip('/')}/{child}" for child in zk.get_children(path)]
        except NoNodeError:  # it does not exist, or was removed just now
            continue
        if any(name in path or name in data for name in names):
            found.append(path)
    return sorted(found)
