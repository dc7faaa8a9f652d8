"""A cluster for benchmarks: processes that are connected each with all the others, by endpoints of `ucxx`.

As hawser.ucp.benchmarks.utils, which tells how the functions are used.
"""

from functools import partial

from hawser.ucp.benchmarks import utils
from hawser.ucp.benchmarks.utils import get_allocator, recv_pickled_msg, send_pickled_msg

_run_cluster_server = partial(utils._run_cluster_server, api="hawser.ucxx")
_run_cluster_workers = partial(utils._run_cluster_workers, api="hawser.ucxx")
run_cluster_server = partial(utils.run_cluster_server, api="hawser.ucxx")
run_cluster_workers = partial(utils.run_cluster_workers, api="hawser.ucxx")

__all__ = ["get_allocator", "recv_pickled_msg", "run_cluster_server", "run_cluster_workers", "send_pickled_msg"]
