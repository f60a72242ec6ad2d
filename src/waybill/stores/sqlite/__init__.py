"""Records in one SQLite file: the embedded default. Many threads and processes of one machine share it; two machines
never do.

    sqlite:///relative/path.db    sqlite:////absolute/path.db    sqlite://  (in memory, for this connection alone)

SQLite has one writer at a time. So every verb that writes is one short transaction, a claim needs no lock of its own,
and what a commit has seen nobody else has changed meanwhile. Times are those of the clock that is passed in.

`store.py` the verbs · `database.py` the file · `migrations/` its schema · `statements.sql` what is asked of it ·
`rows.py` records as rows · `commits.py` groups · `claims.py` who gets what · `keys.py` exclusive names · `reading.py`
pages and counts · `sessions.py` who works · `ears.py` the watch · `upkeep.py` sweep and check.
"""

from waybill.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
