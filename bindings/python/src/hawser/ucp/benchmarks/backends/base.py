"""What a backend of send_recv is: a server and a client, each run in a process of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import Namespace
from queue import Queue
from typing import Any


class _End(ABC):
    """One of the two."""

    def __init__(self, args: Namespace, queue: Queue[Any]) -> None:
        self.args = args
        self.queue = queue

    @property
    @abstractmethod
    def has_cuda_support(self) -> bool:
        """Whether it moves memory of a GPU."""

    @abstractmethod
    def run(self) -> Any:
        """Do all of its part; also a coroutine function."""


class BaseServer(_End):
    """Echoes what one client sends. It puts the port that it listens at into the queue."""


class BaseClient(_End):
    """Measures round trips. It puts the list of their seconds into the queue, without those that warm up."""

    def __init__(self, args: Namespace, queue: Queue[Any], server_address: str, port: int) -> None:
        super().__init__(args, queue)
        self.server_address = server_address
        self.port = port

    def print_backend_specific_config(self) -> None:
        """Print the rows of the report that this backend alone has."""
