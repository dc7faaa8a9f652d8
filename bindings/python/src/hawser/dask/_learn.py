"""The scheduler's idea of what moving data costs, by pair of workers."""

from __future__ import annotations

from typing import Any

from distributed import Client, SchedulerPlugin


class PairBandwidths(SchedulerPlugin):
    """Has the scheduler take what workers measured from each other instead of one average over all of them.

    Workers report the bytes per second of their transfers (of 1 MB and more) with each heartbeat; Dask keeps them by
    pair but computes with the average. Pairs that have not met count as the average.
    """

    name = "hawser-pair-bandwidths"

    def __init__(self) -> None:
        self._scheduler: Any = None

    async def start(self, scheduler: Any) -> None:
        self.attach(scheduler)

    def attach(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        scheduler.get_comm_cost = self.cost

    async def close(self) -> None:
        # What the class does shows again.
        vars(self._scheduler).pop("get_comm_cost", None)

    def cost(self, ts: Any, ws: Any) -> float:
        """Seconds that it takes to bring what a task needs to a worker."""
        return sum((self._seconds(dep, ws) for dep in ts.dependencies if ws not in (dep.who_has or ())), 0.0)

    def _seconds(self, dep: Any, ws: Any) -> float:
        """A worker fetches from any of those that have it, so their mean counts."""
        scheduler = self._scheduler
        size = dep.get_nbytes()
        if not dep.who_has:
            return float(size / scheduler.bandwidth)
        known = scheduler.bandwidth_workers
        rates = [known.get((ws.address, holder.address)) or scheduler.bandwidth for holder in dep.who_has]
        return float(sum(size / rate for rate in rates) / len(rates))


def learn_bandwidths(client: Client) -> Any:
    """Register PairBandwidths with a cluster that has no scheduler of Hawser's, say one over tcp."""
    return client.register_plugin(PairBandwidths())
