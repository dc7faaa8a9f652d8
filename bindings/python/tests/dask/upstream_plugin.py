"""A pytest plugin: distributed's test helpers make clusters over the protocol HAWSER_UPSTREAM_PROTOCOL."""

import os

import pytest

protocol = os.environ.get("HAWSER_UPSTREAM_PROTOCOL", "tcp")


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run slow tests")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out without --runslow")
    if protocol == "tcp":
        return
    from distributed import LocalCluster, utils_test
    from distributed.comm import addressing, core

    from hawser.dask import HawserComm

    # Addresses without a scheme are listened at as they are connected to: with distributed.comm.default-scheme.
    core.parse_address = lambda addr, strict=False: addressing.parse_address(addr)
    # Helpers that hold messages back insist on a class of comms, and take from it what they do not do themselves.
    utils_test.TCP = core.Comm
    utils_test.LockedComm.__bases__ = (HawserComm,)
    _patch(LocalCluster)


def _patch(cluster):
    """Clusters that would choose tcp:// choose our protocol. In one process without a host they stay without any."""
    init = cluster.__init__

    def with_protocol(self, *args, **kwargs):
        host = kwargs.get("host") or ""
        inproc = kwargs.get("processes") is False and not host and not kwargs.get("interface")
        if not (kwargs.get("protocol") or "://" in host or kwargs.get("security") or inproc):
            kwargs["protocol"] = protocol
        init(self, *args, **kwargs)

    cluster.__init__ = with_protocol


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--runslow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="need --runslow"))
