"""The synchronous core of UCX-Py: ucx_api and arr."""
