"""The version of UCXX whose API this is."""

__version__ = "0.52.0"
__git_commit__ = ""
