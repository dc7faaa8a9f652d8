"""Benchmarks on several hosts: what starts the server and the workers over SSH. Without asyncssh all names are None."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("ucx.asyncssh")
logger.setLevel(os.environ.get("UCXPY_ASYNCSSH_LOG_LEVEL", "WARNING").upper())

try:
    from hawser.ucp.benchmarks._ssh_cluster import SSHProc, SSHServerProc, _run_ssh_cluster, run_ssh_cluster  # noqa: F401
except ModuleNotFoundError as e:
    if e.name != "asyncssh":
        raise
    SSHProc = SSHServerProc = SSHServerProce = run_ssh_cluster = None  # type: ignore[assignment,misc]

__all__ = ["SSHProc", "SSHServerProc", "logger", "run_ssh_cluster"]
