"""What the vectors need: one object of each kind, ids of objects that are gone, and the vectors themselves."""

from __future__ import annotations

import json
from typing import Any

import swig_module
from bindgen import ROOT


def vectors(*names: str) -> list[dict[str, Any]]:
    return [v for name in names for v in json.loads((ROOT / "abi" / "vectors" / f"{name}.json").read_text())["vectors"]]


def open_each(hawser: Any) -> dict[str, int]:
    pair = swig_module.Pair(hawser, 31)
    options = {"queue": pair.queue}
    _, op = hawser.tag_recv(pair.server, bytearray(8), 99, 2**64 - 1)
    hawser.tag_send(pair.client, b"message", 1, options)
    pair.take(lambda e: e["kind"] == hawser.EVENT_TAG_SEND)
    message = None
    while message is None:
        try:
            _, message = hawser.tag_probe(pair.server, 1, 2**64 - 1)
        except LookupError:
            hawser.worker_progress(pair.worker)
    hawser.am_handler(pair.worker, 1, {"sink": options})
    hawser.am_send(pair.client, 1, b"h", b"data", options)
    buffer = pair.take(lambda e: e["kind"] == hawser.EVENT_AM)["detail"]["buffer"]
    memory = hawser.mem_alloc(pair.context, 4096)
    rkey = hawser.rkey_unpack(pair.server, hawser.rkey_pack(memory, 0), 0)
    nothing = {"kind": hawser.EVENT_GET, "rkey": rkey, "address": hawser.mem_query(memory)["base"]}
    return {
        "context": pair.context,
        "worker": pair.worker,
        "listener": pair.listener,
        "endpoint": pair.server,
        "queue": hawser.queue_open(),
        "op": op,
        "memory": memory,
        "rkey": rkey,
        "message": message,
        "buffer": buffer,
        "plan": hawser.plan_open(pair.server, [nothing]),
    }


def living_and_stale(hawser: Any) -> dict[str, int]:
    """Ids by the names that the vectors have for them; `hawser` is the SWIG module."""
    gone = open_each(hawser)
    hawser.cancel(gone["op"])
    hawser.wait(gone["op"], 10**10)
    for kind in ("message", "buffer", "queue"):
        hawser.close(gone[kind])
    hawser.close_wait(gone["context"], 10**10)
    stale = {f"stale {kind}": id for kind, id in gone.items()}
    return {"zero": 0, "random": 2**53 - 1} | stale | open_each(hawser)
