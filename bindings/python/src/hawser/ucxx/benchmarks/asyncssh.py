"""Benchmarks on several hosts over SSH."""

from hawser.ucp.benchmarks.asyncssh import SSHProc, SSHServerProc, logger, run_ssh_cluster

__all__ = ["SSHProc", "SSHServerProc", "logger", "run_ssh_cluster"]
