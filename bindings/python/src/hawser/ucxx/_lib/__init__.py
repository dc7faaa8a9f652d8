"""The synchronous core of UCXX."""
