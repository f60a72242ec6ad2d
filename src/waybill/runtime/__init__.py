"""Waybill in one process: `Runtime` puts settings, applications, store, worker and server together.

runtime.py             the front door: records, steps, and how the parts are built
server_processes.py    the life of a process that serves or works: its parts, its end, its log
signals.py             how it learns that it must stop
listening_server.py    its HTTP server and the address file
worker_processes.py    further worker processes beside it
"""

from waybill.runtime.runtime import Runtime

__all__ = ["Runtime"]
