"""What a backend of send_recv is: a server and a client, each run in a process of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import Namespace
from queue import Queue
from typing import Any


class BaseServer(ABC):
    """Echoes what one client sends. It puts the port that it listens at into the queue."""

    def __init__(self, args: Namespace, queue: Queue[Any]) -> None:
        self.args = args
        self.queue = queue

    @property
    @abstractmethod
    def has_cuda_support(self) -> bool:
        """Whether it moves memory of a GPU."""

    @abstractmethod
    def run(self) -> Any:
        """Serve one client to its end; also a coroutine function."""


class BaseClient(ABC):
    """Measures round trips. It puts the list of their seconds into the queue, without those that warm up."""

    def __init__(self, args: Namespace, queue: Queue[Any], server_address: str, port: int) -> None:
        self.args = args
        self.queue = queue
        self.server_address = server_address
        self.port = port

    @property
    @abstractmethod
    def has_cuda_support(self) -> bool:
        """Whether it moves memory of a GPU."""

    @abstractmethod
    def run(self) -> Any:
        """Make all round trips; also a coroutine function."""

    def print_backend_specific_config(self) -> None:  # noqa: B027
        """Print the rows of the report that this backend alone has."""
