"""Records in PostgreSQL, for many machines.

Begin with `schema.sql`, the tables, and `functions.sql`, what writes them in more than one statement. `store.py` the store ·
`connection.py` one connection, which reconnects · `schema.py` creates and migrates the schema · `queries.sql` and
`pages.sql` the statements · `rows.py` records as rows · `commits.py` and `independent_groups.py` commit ·
`binary_rows.py` parameters in binary form · `claims.py` claim and claim_one · `change_signal.py` watch ·
`maintenance.py` and `maintenance.sql` maintain_indexes, check and repair · `errors.py` the server's errors.
"""

from waybill.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
