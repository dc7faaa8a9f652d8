"""Loads the SWIG module of the build tree as hawser._swig, without the package around it."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any


def load() -> Any:
    """The module; the test is skipped where it was not built."""
    folder = Path(os.environ["HAWSER_BUILD_DIR"]) / "swig" / "python" / "hawser"
    if not (folder / "__swig.abi3.so").exists():
        print(f"SKIP: {folder} holds no module: SWIG 4.4 or the headers of Python 3.11 were missing")
        sys.exit(77)
    package = types.ModuleType("hawser")
    package.__path__ = [
        str(folder),
        str(Path(os.environ["HAWSER_SOURCE_DIR"]) / "bindings" / "python" / "src" / "hawser"),
    ]
    sys.modules["hawser"] = package
    import hawser._swig

    return hawser._swig


class Pair:
    """Two connected endpoints in one process, their events in one queue."""

    def __init__(self, hawser: Any, features: int = 0) -> None:
        self.hawser = hawser
        self.context = hawser.context_open({"features": features})
        self.queue = hawser.queue_open()
        sink = {"queue": self.queue}
        self.worker = hawser.worker_open(self.context, {"sink": sink})
        self.listener = hawser.listen(self.worker, "127.0.0.1", 0, {"sink": sink, "endpoint_sink": sink})
        port = hawser.listener_query(self.listener)["port"]
        _, self.client, self.connect = hawser.connect(self.worker, "127.0.0.1", port, None, {"queue": self.queue})
        self.events: list[dict[str, Any]] = []
        self.take(lambda e: e["op"] == self.connect)
        self.server = self.take(lambda e: e["kind"] == hawser.EVENT_ACCEPTED)["source"]

    def take(self, wanted: Any, tries: int = 600) -> dict[str, Any]:
        """The first event that is wanted; the others are kept for later."""
        for _ in range(tries):
            for i, event in enumerate(self.events):
                if wanted(event):
                    return self.events.pop(i)
            self.events += self.hawser.queue_pop(self.queue, 64, 100_000_000)[1]
        raise AssertionError(f"the event did not come, only {self.events}")

    def close(self) -> None:
        self.hawser.close_wait(self.context, 10_000_000_000)
        self.hawser.close(self.queue)
