"""send_recv over tornado's TCP streams: what UCX is compared with."""

from hawser.ucp.benchmarks.backends.tornado import TornadoClient, TornadoServer

__all__ = ["TornadoClient", "TornadoServer"]
