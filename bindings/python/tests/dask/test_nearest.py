"""net-devices: auto, on the sysfs of a DGX-1-like machine (dgx1.txt)."""

from pathlib import Path

import dask
import pytest

from hawser.dask import _config
from hawser.dask._nearest import nearest_devices

RECORD = [line.split() for line in Path(__file__).with_name("dgx1.txt").read_text().splitlines() if line[0] != "#"]


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


@pytest.fixture
def machine(tmp_path):
    """Lays the record out as /sys and /proc; gives them."""
    sys, proc = tmp_path / "sys", tmp_path / "proc"
    for kind, address, place, node, *more in RECORD:
        if kind == "cpu":
            first, last = map(int, address.split("-"))
            for cpu in range(first, last + 1):
                (sys / f"devices/system/cpu/cpu{cpu}/node{node}").mkdir(parents=True)
            continue
        device = sys / "devices" / place
        put(device / "numa_node", node)
        link(sys / "bus/pci/devices" / address, device)
        if kind == "gpu":
            put(device / "vendor", "0x10de")
            put(device / "class", "0x030200")
            put(proc / "driver/nvidia/gpus" / address / "information", f"GPU UUID: \t {more[0]}")
        else:
            name, state, interface, operstate = more
            put(device / "vendor", "0x15b3")
            put(device / "class", "0x020700")
            put(device / f"infiniband/{name}/ports/1/state", state.replace(":", ": "))
            link(device / f"infiniband/{name}/device", device)
            link(sys / f"class/infiniband/{name}", device / f"infiniband/{name}")
            put(device / f"net/{interface}/operstate", operstate)
    return sys, proc


@pytest.mark.parametrize("gpu", range(8))
def test_each_gpu_gets_the_adapter_behind_its_switch(machine, gpu):
    nic = gpu // 2
    others = ",".join(str((gpu + i) % 8) for i in range(8))
    for visible in (str(gpu), others, f"GPU-00000000-0000-0000-0000-00000000000{gpu}"):
        assert nearest_devices(*machine, visible=visible) == f"mlx5_{nic}:1,ib{nic}"


def test_all_gpus_visible_means_the_first(machine):
    assert nearest_devices(*machine) == "mlx5_0:1,ib0"


def test_a_port_without_a_link_is_not_taken(machine):
    sys, _ = machine
    (sys / "class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    assert nearest_devices(*machine, visible="0") == "mlx5_1:1,ib1"
    assert nearest_devices(*machine, visible="7") == "mlx5_3:1,ib3"


def test_an_interface_that_is_down_is_not_named(machine):
    sys, _ = machine
    (sys / "class/infiniband/mlx5_2/device/net/ib2/operstate").write_text("down\n")
    assert nearest_devices(*machine, visible="4") == "mlx5_2:1"


def test_without_a_gpu_the_cpus_decide(machine):
    assert nearest_devices(*machine, visible="", cpus=range(0, 40)) == "mlx5_0:1,ib0"
    assert nearest_devices(*machine, visible="-1", cpus=range(40, 80)) == "mlx5_2:1,ib2"
    # The CPUs of both sockets: no adapter is nearer.
    assert nearest_devices(*machine, visible="", cpus=range(80)) == ""


def test_a_machine_without_adapters(tmp_path):
    assert nearest_devices(tmp_path / "sys", tmp_path / "proc") == ""


def test_auto_is_what_ucx_is_told(machine, monkeypatch):
    sys, proc = machine
    monkeypatch.setattr("hawser.dask._config.nearest_devices", lambda **kw: nearest_devices(sys, proc, **kw))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    with dask.config.set({"distributed.comm.ucx.net-devices": "auto"}):
        assert _config.ucx_config()["NET_DEVICES"] == "mlx5_2:1,ib2"
