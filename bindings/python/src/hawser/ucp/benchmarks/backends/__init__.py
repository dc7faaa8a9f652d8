"""The two ends of send_recv: over `ucp`, over its synchronous core, and over tornado to compare with."""
