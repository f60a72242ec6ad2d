"""The unprivileged account that a server runs under when the tests run as root: PostgreSQL refuses to be root."""

import os
import pwd
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """The account to switch to, or None where the tests do not run as root and a server simply runs as they do."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise LookupError(
        "Running as root, and there is neither an account 'postgres' nor 'nobody' to run PostgreSQL under: add one."
    )
