"""Benchmarks of UCXX: send_recv, cudf_merge, and the helpers of clusters in utils."""
