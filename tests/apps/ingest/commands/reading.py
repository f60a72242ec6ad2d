"""What is really kept, past the commands: for tests that must see what commands do not show."""

import os
from contextlib import closing

from waybill import config
from waybill.apps.ingest.application import APPLICATION
from waybill.depot import Depot
from waybill.record import Record


def stored(kind: str, id: str) -> Record:
    with closing(Depot.of(config.load(env=os.environ), [APPLICATION]).open_store()) as store:
        return store.get(kind, id)
