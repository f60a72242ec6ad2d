"""The ZooKeeper driver. paths.py says where records lie in the tree, store.py which module implements each method."""

from __future__ import annotations

from waybill.stores.zookeeper.store import ZookeeperStore

__all__ = ["ZookeeperStore"]
