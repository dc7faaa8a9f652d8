"""`dask hawser`: workers of a machine, and what a cluster is set to; also hawser-dask-worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click
import dask
from distributed import Client, Nanny
from distributed.comm.addressing import get_address_host_port
from distributed.preloading import validate_preload_argv
from distributed.security import Security
from distributed.utils import import_term
from distributed.worker_memory import parse_memory_limit

from ._initialize import initialize
from ._setting import parse_seconds
from ._worker_options import GPU_OPTIONS, device_store, machine

log = logging.getLogger("hawser.dask")

# What --until-eof prints.
STARTED = "hawser: the workers have started"


@click.group(name="hawser")
def main() -> None:
    """Dask over Hawser."""


def _both(name: str, text: str) -> Any:
    """--enable-NAME/--disable-NAME; neither: UCX's choice."""
    return click.option(f"--enable-{name}/--disable-{name}", default=None, help=text)


_WORKER = [
    click.argument("scheduler", required=False),
    click.option("--scheduler-file", help="File with the scheduler's address"),
    click.option(
        "--n-workers",
        type=click.IntRange(min=1),
        help="Workers to start; default: one for each GPU, else for each NUMA node",
    ),
    click.option("--host", help="Address to listen at"),
    click.option("--interface", help="Network interface to listen at, as eth0"),
    click.option("--worker-port", default="0", help="Port or range of ports, as 9000:9026"),
    click.option(
        "--listen-address",
        help="Where the one worker listens, as ucx://0.0.0.0:9000, instead of --host and --worker-port",
    ),
    click.option("--contact-address", help="Where others reach it; default: where it listens"),
    click.option("--protocol", default="ucx", show_default=True),
    click.option(
        "--nthreads",
        type=click.IntRange(min=1),
        help="Threads of each worker; default: 1 with GPUs, else one for each CPU",
    ),
    click.option("--name", help="Name of the workers; several get -0, -1, ..."),
    click.option("--memory-limit", default="auto", show_default=True),
    click.option("--device-memory-limit", default="default"),
    click.option("--enable-cudf-spill/--disable-cudf-spill", default=False),
    click.option("--cudf-spill-stats", type=int, default=0),
    click.option("--rmm-pool-size"),
    click.option("--rmm-maximum-pool-size"),
    click.option("--rmm-managed-memory/--no-rmm-managed-memory", default=False),
    click.option("--rmm-async/--no-rmm-async", default=False),
    click.option("--set-rmm-allocator-for-libs", "rmm_allocator_external_lib_list", help="torch,cupy"),
    click.option("--rmm-release-threshold"),
    click.option("--rmm-log-directory"),
    click.option("--rmm-track-allocations/--no-rmm-track-allocations", default=False),
    click.option("--pid-file", type=click.Path()),
    click.option("--resources", default="", help="As GPU=1,MEM=2e9"),
    click.option("--dashboard/--no-dashboard", default=True),
    click.option("--dashboard-address", default=":0"),
    click.option("--dashboard-prefix", default=""),
    click.option("--local-directory", type=click.Path()),
    click.option("--preload", multiple=True),
    click.option("--death-timeout", help="Seconds to wait for the scheduler"),
    click.option("--tls-ca-file", type=click.Path(exists=True)),
    click.option("--tls-cert", type=click.Path(exists=True)),
    click.option("--tls-key", type=click.Path(exists=True)),
    click.option("--worker-class", help="Class of the workers, as package.Class"),
    click.option("--pre-import", help="Modules to import first, as numpy,pandas"),
    click.option("--multiprocessing-method", type=click.Choice(["spawn", "fork", "forkserver"]), default="spawn"),
    click.option("--net-devices", help="UCX's devices, as mlx5_0:1, or auto"),
    click.option("--until-eof", is_flag=True, hidden=True, help="Say that all have started; end when the input ends"),
    _both("tcp-over-ucx", "TCP and shared memory"),
    _both("infiniband", "InfiniBand or RoCE"),
    _both("nvlink", "CUDA memory over NVLink"),
    _both("rdmacm", "Connections made over RDMA"),
]


def _options(function: Any) -> Any:
    for option in reversed(_WORKER):
        function = option(function)
    return function


def _preload_argv(context: Any, parameter: Any, value: Any) -> Any:
    try:
        return validate_preload_argv(context, parameter, value)
    except ImportError as e:
        raise click.BadParameter(str(e), param_hint="--preload") from e


@main.command(name="worker", context_settings={"ignore_unknown_options": True})
@_options
@click.argument("preload_argv", nargs=-1, type=click.UNPROCESSED, callback=_preload_argv)
def worker(**options: Any) -> None:
    """Start the workers of this machine for the scheduler at SCHEDULER."""
    try:
        asyncio.run(_run(options))
    except (RuntimeError, ValueError, OSError) as e:
        raise click.ClickException(_with_causes(e)) from e


def _with_causes(error: BaseException) -> str:
    """What an error says and what it comes from: Dask's own says only that a nanny failed to start."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        texts += [str(cause)] if str(cause) else []
        cause = cause.__cause__
    return " ".join(texts)


def _seconds(text: str | None) -> float | None:
    seconds = None if text is None else parse_seconds(text)
    if text is not None and seconds is None:
        raise click.BadParameter(f"{text!r} is not a time, as 30s", param_hint="--death-timeout")
    return seconds


def _resources(text: str) -> dict[str, float]:
    resources = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition("=")
        try:
            resources[name] = float(value)
        except ValueError:
            raise click.BadParameter(f"{part!r} is not NAME=NUMBER", param_hint="--resources") from None
    return resources


def _place(o: dict[str, Any], count: int) -> dict[str, Any]:
    """Where the workers listen, and are reached."""
    place = {name: o[name] for name in ("host", "interface", "protocol", "worker_port", "contact_address")}
    if not o["listen_address"]:
        if o["contact_address"]:
            raise click.UsageError("--contact-address needs --listen-address")
        return place
    if count > 1 or o["host"] or o["interface"] or o["worker_port"] != "0":
        raise click.UsageError("--listen-address is for one worker, without --host, --interface and --worker-port")
    host, port = get_address_host_port(o["listen_address"], strict=True)
    if o["contact_address"]:
        get_address_host_port(o["contact_address"], strict=True)
    place["host"] = f"[{host}]" if ":" in host else host
    place["worker_port"] = str(port)
    return place


def _class(name: str) -> Any:
    try:
        return import_term(name)
    except (ImportError, AttributeError) as e:
        raise click.BadParameter(str(e), param_hint="--worker-class") from None


def _nannies(o: dict[str, Any]) -> list[Nanny]:
    transports = {k: o[k] for k in ("enable_tcp_over_ucx", "enable_infiniband", "enable_nvlink", "enable_rdmacm")}
    if any(value is not None for value in transports.values()):
        initialize(create_cuda_context=False, **transports)
    if o["multiprocessing_method"] == "fork" and o["protocol"] in ("ucx", "ucxx", "hawser"):
        raise click.BadParameter(
            "UCX does not survive a fork, and the parent of the workers uses it", param_hint="--multiprocessing-method"
        )
    dask.config.set({"distributed.worker.multiprocessing-method": o["multiprocessing_method"]})
    gpu = {name: o[name] for name in GPU_OPTIONS if name in o}
    if libraries := gpu["rmm_allocator_external_lib_list"]:
        gpu["rmm_allocator_external_lib_list"] = libraries.split(",")
    plan = machine(o["n_workers"], None, o["net_devices"], o["pre_import"], gpu)
    count = o["n_workers"] or len(plan.devices) or len(plan.groups)
    limit = parse_memory_limit(o["memory_limit"], 1, count, logger=log)
    common = _place(o, count)
    if o["worker_class"]:
        common["worker_class"] = _class(o["worker_class"])
    tls = {"tls_ca_file": o["tls_ca_file"], "tls_worker_cert": o["tls_cert"], "tls_worker_key": o["tls_key"]}
    security = Security(**{key: value for key, value in tls.items() if value})
    return [
        Nanny(
            o["scheduler"],
            scheduler_file=o["scheduler_file"],
            name=o["name"] if count == 1 or not o["name"] else f"{o['name']}-{i}",
            nthreads=o["nthreads"] or (1 if plan.devices else len(plan.cpus(i))),
            memory_limit=limit,
            resources=_resources(o["resources"]),
            dashboard=o["dashboard"],
            dashboard_address=o["dashboard_address"],
            http_prefix=o["dashboard_prefix"],
            local_directory=o["local_directory"],
            preload=o["preload"],
            preload_argv=o["preload_argv"],
            death_timeout=_seconds(o["death_timeout"]),
            security=security,
            **device_store(gpu, limit or 0, o["local_directory"]),
            **common,
            **plan.options(i),
        )
        for i in range(count)
    ]


def _read_until_eof(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin)
        stop.set()


async def _serve(nannies: list[Nanny], say: bool) -> None:
    await asyncio.gather(*nannies)
    if say:
        print(STARTED, flush=True)
    await asyncio.gather(*(nanny.finished() for nanny in nannies))


@contextlib.contextmanager
def _pid_file(path: str | None) -> Iterator[None]:
    """A file with the number of this process, for as long as it works."""
    if not path:
        yield
        return
    with open(path, "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):  # whoever asked for it may remove it, too
            os.unlink(path)


async def _run(o: dict[str, Any]) -> None:
    if not o["scheduler"] and not o["scheduler_file"]:
        raise click.UsageError("name the scheduler, or give --scheduler-file")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if o["until_eof"]:
        asyncio.get_running_loop().add_reader(sys.stdin, _read_until_eof, stop)
    with _pid_file(o["pid_file"]):
        await _serve_until(stop, _nannies(o), o["until_eof"])


async def _serve_until(stop: asyncio.Event, nannies: list[Nanny], say: bool) -> None:
    try:
        serving: asyncio.Future[Any] = asyncio.ensure_future(_serve(nannies, say))
        stopped: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
        # Also while they start: the scheduler that they look for may never come.
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        for task in (serving, stopped):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    finally:
        # The scheduler may be gone, which a nanny waits for; what is left of the workers ends with this process.
        closing = asyncio.gather(*(nanny.close(timeout=5) for nanny in nannies), return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(closing, 10)


def settings(dask_worker: Any) -> dict[str, Any]:
    """Runs on a worker: what it is set to."""
    from ._config import ucx_config
    from ._transfers import transports_in_use

    limits = getattr(dask_worker.memory_manager, "memory_limit", None)
    return {
        "protocol": dask_worker.address.split("://")[0],
        "threads": dask_worker.state.nthreads,
        "memory limit": limits,
        "local directory": dask_worker.local_directory,
        "CPUs": sorted(os.sched_getaffinity(0)),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "UCX": {**ucx_config(), **{k[4:]: v for k, v in os.environ.items() if k.startswith("UCX_")}},
        "transports": transports_in_use(dask_worker),
        "plugins": sorted(type(plugin).__name__ for plugin in dask_worker.plugins.values()),
        "connect timeout": dask.config.get("distributed.comm.timeouts.connect"),
    }


@main.command(name="config")
@click.argument("scheduler", required=False)
@click.option("--scheduler-file", help="File with the scheduler's address")
@click.option("--timeout", default=10.0, show_default=True, help="Seconds to wait for the scheduler")
def config(scheduler: str | None, scheduler_file: str | None, timeout: float) -> None:
    """Print what the workers of the cluster at SCHEDULER are set to."""
    if not scheduler and not scheduler_file:
        raise click.UsageError("name the scheduler, or give --scheduler-file")
    try:
        with Client(scheduler, scheduler_file=scheduler_file, timeout=timeout) as client:
            for address, values in sorted(client.run(settings).items()):
                click.echo(address)
                for name, value in values.items():
                    click.echo(f"  {name + ':':24}{'-' if value in (None, {}, []) else value}")
    except OSError as e:
        raise click.ClickException(str(e)) from e
