"""What is really kept, past the commands: for tests that must see what commands do not show."""

import os
from contextlib import closing

from waybill import config
from waybill.apps.ingest.application import APPLICATION
from waybill.environment import Environment
from waybill.record import Record


def read_record(kind: str, id: str) -> Record:
    with closing(Environment.from_config(config.load(env=os.environ), [APPLICATION]).open_store()) as store:
        return store.get(kind, id)
