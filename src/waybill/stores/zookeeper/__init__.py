"""Records in ZooKeeper: the driver. layout.py says where they lie, store.py what each verb of a store is done by."""

from __future__ import annotations

from waybill.stores.zookeeper.store import ZookeeperStore

__all__ = ["ZookeeperStore"]
