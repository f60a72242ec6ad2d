"""The filter of system calls that everything in a sandbox runs under.

Namespaces, an unprivileged user and `no_new_privs` keep a command from what is not its own. The filter removes what they
leave: calls that make new namespaces or mounts (where most holes of the kernel were found), calls that keep something
for the next command or the next sandbox of the same user (keyrings), calls that reach the runner where it has the same
user as the command (limits and scheduling of another process), and characters pushed into a terminal (TIOCSTI).

`build_filter` returns a program of classic BPF, as `bwrap --seccomp` reads it: compare the number of the call with each
that is refused, then look at one argument where only some values are refused. Everything else is allowed.
"""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple

EPERM, ENOSYS = 1, 38
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
OFFSET_NUMBER, OFFSET_ARCHITECTURE, OFFSET_ARGUMENTS = 0, 4, 16
X32_CALLS = 0x40000000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
NEW_NAMESPACES = 0x7E020080  # CLONE_NEWUSER and its like: cgroup, ipc, mount, net, pid, time, user, uts
RUNNER_PID = 1

# Numbers by architecture. The calls from 424 on have the same number everywhere.
X86_64 = {
    "acct": 163, "add_key": 248, "adjtimex": 159, "bpf": 321, "chroot": 161, "clock_adjtime": 305,
    "clock_settime": 227, "clone": 56, "delete_module": 176, "finit_module": 313, "init_module": 175, "ioctl": 16,
    "iopl": 172, "ioperm": 173, "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250, "lookup_dcookie": 212,
    "modify_ldt": 154, "mount": 165, "mq_open": 240, "open_by_handle_at": 304, "perf_event_open": 298,
    "pivot_root": 155, "prlimit64": 302, "quotactl": 179, "reboot": 169, "request_key": 249, "sched_setaffinity": 203,
    "sched_setattr": 314, "sched_setparam": 142, "sched_setscheduler": 144, "setdomainname": 171, "sethostname": 170,
    "setns": 308, "settimeofday": 164, "swapoff": 168, "swapon": 167, "syslog": 103, "umount2": 166, "unshare": 272,
    "userfaultfd": 323, "vhangup": 153,
}  # fmt: skip
GENERIC = {
    "acct": 89, "add_key": 217, "adjtimex": 171, "bpf": 280, "chroot": 51, "clock_adjtime": 266, "clock_settime": 112,
    "clone": 220, "delete_module": 106, "finit_module": 273, "init_module": 105, "ioctl": 29, "kexec_file_load": 294,
    "kexec_load": 104, "keyctl": 219, "lookup_dcookie": 18, "mount": 40, "mq_open": 180, "open_by_handle_at": 265,
    "perf_event_open": 241, "pivot_root": 41, "prlimit64": 261, "quotactl": 60, "reboot": 142, "request_key": 218,
    "sched_setaffinity": 122, "sched_setattr": 274, "sched_setparam": 118, "sched_setscheduler": 119,
    "setdomainname": 162, "sethostname": 161, "setns": 268, "settimeofday": 170, "swapoff": 225, "swapon": 224,
    "syslog": 116, "umount2": 39, "unshare": 97, "userfaultfd": 282, "vhangup": 58,
}  # fmt: skip
EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "mount_setattr": 442,
    "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip
ARCHITECTURES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, GENERIC), "riscv64": (0xC00000F3, GENERIC)}

# Its arguments are behind a pointer, where a filter cannot look: the C library falls back to clone.
MISSING_CALLS = {"clone3"}


class ArgumentRule(NamedTuple):
    """Refuse `call` when the lower half of its argument compares with `value`; and, if `unless_null` is set, only when
    that argument is not null.
    """

    call: str
    argument: int
    compare: int
    value: int
    unless_null: int | None = None
    negate: bool = False


ARGUMENT_RULES = (
    ArgumentRule("clone", 0, JUMP_ANY_BIT, NEW_NAMESPACES),
    ArgumentRule("ioctl", 1, JUMP_EQUAL, TIOCSTI),
    ArgumentRule("ioctl", 1, JUMP_EQUAL, TIOCLINUX),
    ArgumentRule("prlimit64", 0, JUMP_EQUAL, 0, unless_null=2, negate=True),
    *(
        ArgumentRule(call, 0, JUMP_EQUAL, RUNNER_PID)
        for call in ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
    ),
)


def has_filter() -> bool:
    return platform.machine() in ARCHITECTURES


def build_filter(machine: str | None = None) -> bytes:
    architecture, numbers = ARCHITECTURES[machine or platform.machine()]
    numbers = numbers | EVERYWHERE
    program = [
        (LOAD_WORD, 0, 0, OFFSET_ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, ERRNO | ENOSYS),
        (LOAD_WORD, 0, 0, OFFSET_NUMBER),
    ]
    if numbers["clone"] == X86_64["clone"]:
        program += [(JUMP_GREATER_EQUAL, 0, 1, X32_CALLS), (RETURN, 0, 0, ERRNO | ENOSYS)]
    with_rules = {rule.call for rule in ARGUMENT_RULES}
    for call, number in numbers.items():
        if call not in with_rules:
            program += [
                (JUMP_EQUAL, 0, 1, number),
                (RETURN, 0, 0, ERRNO | (ENOSYS if call in MISSING_CALLS else EPERM)),
            ]
    for rule in ARGUMENT_RULES:
        program += _build_argument_rule(rule, numbers[rule.call])
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _build_argument_rule(rule: ArgumentRule, number: int) -> list[tuple[int, int, int, int]]:
    """Loads the number again at its end, for the rule that follows."""
    low = OFFSET_ARGUMENTS + 8 * rule.argument
    hit, miss = (1, 0) if rule.negate else (0, 1)
    body = [(LOAD_WORD, 0, 0, low), (rule.compare, hit, miss, rule.value), (RETURN, 0, 0, ERRNO | EPERM)]
    if rule.unless_null is not None:
        pointer = OFFSET_ARGUMENTS + 8 * rule.unless_null
        # Allowed when both halves are null: jump over the rest of the body.
        body = [
            (LOAD_WORD, 0, 0, pointer),
            (JUMP_EQUAL, 0, 2, 0),
            (LOAD_WORD, 0, 0, pointer + 4),
            (JUMP_EQUAL, 3, 0, 0),
            *body,
        ]
    return [(LOAD_WORD, 0, 0, OFFSET_NUMBER), (JUMP_EQUAL, 0, len(body), number), *body]
