"""What all servers for tests have in common: a folder, and a life from `start` to `close`."""

import abc
from types import TracebackType
from typing import Self

from tests.servers.accounts import Account
from tests.servers.folders import make_folder, remove_folder


class Server(abc.ABC):
    def __init__(self, owner: Account | None = None) -> None:
        self._folder = make_folder(owner)

    @abc.abstractmethod
    def start(self) -> None:
        """Start, or start again after `stop` or a kill; it is ready when this returns."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop in an orderly way; its data stay."""

    def close(self) -> None:
        """Stop for good: the folder goes."""
        try:
            self.stop()
        finally:
            remove_folder(self._folder)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
