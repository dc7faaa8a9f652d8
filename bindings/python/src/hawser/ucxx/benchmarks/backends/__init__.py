"""The two ends of send_recv: over `ucxx`, over its synchronous core, and over plain TCP to compare with."""
