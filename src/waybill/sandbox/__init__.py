"""Commands of users, run where they can harm nobody: files as standard streams, limits, and nothing left afterwards.

spec         what is asked of a sandbox and what a command returns; everything that is refused beforehand
support      what this machine offers, found at the start, and what doctor says of it
sandbox      a sandbox and its commands, as the worker sees them
launch       how the sandbox is started: bubblewrap, the disk, the process
runner       the first process in the sandbox, which starts, measures and ends commands
connections  how a command reaches a handler outside
cgroups      the kernel's limits of memory, processes and CPU time
seccomp      the filter of system calls
"""

from waybill.sandbox.sandbox import Sandbox, sweep_remains
from waybill.sandbox.spec import (
    GIB,
    MIB,
    Bind,
    Command,
    CommandLimits,
    CommandResult,
    SandboxLimits,
    SandboxLost,
    SandboxRefused,
    SandboxSpec,
)
from waybill.sandbox.support import SandboxSupport, describe_support, find_support

__all__ = [
    "GIB",
    "MIB",
    "Bind",
    "Command",
    "CommandLimits",
    "CommandResult",
    "Sandbox",
    "SandboxLimits",
    "SandboxLost",
    "SandboxRefused",
    "SandboxSpec",
    "SandboxSupport",
    "describe_support",
    "find_support",
    "sweep_remains",
]
