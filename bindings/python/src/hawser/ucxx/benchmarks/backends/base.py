"""What a backend of send_recv is."""

from hawser.ucp.benchmarks.backends.base import BaseClient, BaseServer

__all__ = ["BaseClient", "BaseServer"]
