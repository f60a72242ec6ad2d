"""Working beside Merritt, and importing from it.

foreign_records     what Waybill must find out itself for records of other services, and the files that they left
unfinished_batches  batches whose jobs another service makes
mnemonics           the names by which collections are held
profile_import      Merritt's properties files as profiles; java_properties reads them
queue_import        entries of Merritt's old queues as batches, jobs and assemblies: queue_sources finds them, queue_entries and
                    java_serialization decode them, import_plans decides what each becomes

This module imports nothing: waybill.apps.ingest.resources imports mnemonics, and import_plans imports access.orders,
which imports resources.
"""
