"""Looking at the whole tree: whether both sides find it sound, and what is left of a record that is gone."""

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import list_jobs
from tests.interop.ours import Ours
from tests.stores.zookeeper import nodedump


def sound(ours: Ours, client: Client) -> None:
    """Merritt's own test and ours find nothing, and its library can list everything."""
    theirs, mine = nodedump.faults(client.zk), list(ours.store.check())
    assert theirs == [], theirs
    assert mine == [], mine
    list_jobs(client)


def traces(zk: KazooClient, *names: str, below: str = "/") -> list[str]:
    """Every node whose path or data speaks of one of these."""
    found = []
    todo = [below]
    while todo:
        path = todo.pop()
        try:
            data = (zk.get(path)[0] or b"").decode(errors="replace")
            todo += [f"{path.rstrip('/')}/{child}" for child in zk.get_children(path)]
        except NoNodeError:  # it is not there, or somebody takes it away just now
            continue
        if any(name in path or name in data for name in names):
            found.append(path)
    return sorted(found)
