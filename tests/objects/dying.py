"""A process that dies at a chosen side effect of a directory; and what a directory holds."""

import os
from collections.abc import Callable
from pathlib import Path

from waybill.objects import DirectoryObjects, Objects


def contents(objects: Objects) -> dict[str, bytes]:
    found = {}
    for info in objects.list():
        with objects.get(info.name) as body:
            found[info.name] = body.read()
    return found


def die_at(root: Path, number: int, verb: Callable[[DirectoryObjects], object]) -> tuple[bool, str]:
    """Run the verb in a process that dies at the given point; whether it lived to the end, and where it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        seen = 0

        def at(point: str) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                os.write(writer, point.encode())
                os._exit(9)

        code = 1
        try:
            verb(DirectoryObjects(root, fsync=False, on_side_effect=at))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        point = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), code
    return code == 0, point
