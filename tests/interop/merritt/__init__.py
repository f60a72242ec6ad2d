"""Merritt's services, replayed: what its Java and Ruby libraries ask of ZooKeeper, request by request and in their
order.

Nothing of Waybill is in here, and no transaction: node after node is read and written, no write names a version,
everything is polled.

    client    one connection in one of the two dialects; counts its writes, and dies before any of them on demand
    states    which state may follow which, as the libraries check it (Ruby hardly does)
    items     what batches, jobs and assemblies have in common: status, lock, documents
    batches   createBatch, acquirePendingBatch, acquireBatchForReporting, deleteCompletedBatches ...
    jobs      createJob, acquireJob, setStatus and its sisters, deleteDeletedJobs ...
    access    assemblies
    locks     pauses, holds, and the locks of single objects
    services  the daemons of ingest, storage and inventory that live on all this
    admin     what an operator does by the admin tool

The dialects differ: Java writes empty data where Ruby writes none; Java compares paths by identity, and so deletes and
makes again both entries of a job with every status; a resume by Java notes "Failed" as the last success; Java checks
transitions, Ruby does not.
"""
