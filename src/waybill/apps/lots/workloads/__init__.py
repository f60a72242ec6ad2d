"""What an arc does with a part of a lot.

part_work.py    a part as its workload sees it: folders of sources and sinks, and the entries
results.py      what came of it, and the upload of what lies in the sinks
command.py      a command in the sandbox
container.py    a container image, where podman or docker is found
function.py     a Python function, in this process
copying.py      a copy with filters, from object to object
properties.py   CLS_ARC_PROPS_JSON and the other variables of commands and containers
own_manifests.py   manifests that the workload writes itself

A workload that fails raises `WorkloadFailed` with a sentence, or returns a result that says so; everything else that is
raised is trouble of the system, and is tried again.
"""

from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed

__all__ = ["PartWork", "WorkloadFailed"]
