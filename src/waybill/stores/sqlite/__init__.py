"""Records in one SQLite file: the embedded default. Many threads and processes of one machine share it; two machines
never do.

    sqlite:///relative/path.db    sqlite:////absolute/path.db    sqlite://  (in memory, for this connection alone)

SQLite has one writer at a time. So every method that writes is one short transaction, a claim needs no row lock, and
what a commit has read nobody else has changed in between. Times are those of the clock that is passed in.

`store.py` the store · `database.py` the file and its transactions · `schema.py` and `schema.sql` its tables ·
`statements.sql` the statements · `rows.py` records as rows · `commits.py` commit · `claims.py` claim and claim_one ·
`locks.py` locks that records own · `queries.py` pages and counts · `sessions.py` sessions and action requests ·
`change_watcher.py` watch · `maintenance.py` and `maintenance.sql` maintain_indexes, check and repair.
"""

from waybill.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
