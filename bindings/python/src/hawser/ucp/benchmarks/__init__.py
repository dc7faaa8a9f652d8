"""Benchmarks of UCX-Py: send_recv, and the helpers of clusters in utils."""
