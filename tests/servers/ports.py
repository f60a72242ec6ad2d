"""Free TCP ports on loopback for servers that must be told their port.

Binding port 0 and letting go again hands out a number that the kernel may give to any outgoing connection a moment
later. These ports lie below the range from which the kernel takes such numbers, each is tried out first, and each is
reserved for as long as this process lives by an abstract unix socket with its number in the name: two test runs, or two
workers of one, never draw the same port, and a reservation cannot be left behind.

SeaweedFS listens for gRPC on port + 10000, so that number is kept free as well.
"""

import random
import socket

_LOWEST, _HIGHEST = 12_000, 21_999
_GRPC = 10_000
_reservations: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody listens on, and nobody on port + 10000 either; reserved until this process ends."""
    for port in random.sample(range(_LOWEST, _HIGHEST + 1), 2_000):
        if _reserve(port):
            return port
    raise OSError(f"No free port between {_LOWEST} and {_HIGHEST}: 2,000 were tried.")


def _reserve(port: int) -> bool:
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0waybill-test-port-{port}")
        _try_out(port)
        _try_out(port + _GRPC)
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True


def _try_out(port: int) -> None:
    with socket.socket() as probe:
        # Servers set this option too: a port whose last connection is in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
