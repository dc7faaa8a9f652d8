"""The version of UCX-Py whose API this is."""

__version__ = "0.45.0"
__git_commit__ = ""
