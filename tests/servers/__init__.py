"""Real servers for tests: PostgreSQL, ZooKeeper and S3, on loopback, on free ports, in temporary folders.

Each is a plain context manager (tests and benchmarks use them alike; `tests/conftest.py` offers them as fixtures):

    PostgresServer                        postgres.py
    ZooKeeperServer, ZooKeeperEnsemble    zookeeper.py
    SeaweedServer, RcloneS3Server         s3.py

Life of a server: a folder is made, ports are reserved, the process is started, its readiness is polled up to a
deadline, it is stopped or killed and perhaps started again in the same folder and on the same ports, and at the end the
folder is removed. None outlives the process that started it, however that one dies: process.py says how.
"""
