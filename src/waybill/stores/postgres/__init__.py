"""Records in PostgreSQL, for many machines. schema.sql is the place to begin; functions.sql holds the verbs that
write.
"""

from waybill.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
