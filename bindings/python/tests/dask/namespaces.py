"""Network namespaces with links between them: hosts of their own, to the network."""

import contextlib
import os
import shutil
import subprocess

import pytest


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


def up(namespace, *devices):
    for device in devices:
        ip("-n", namespace, "link", "set", device, "up")


@contextlib.contextmanager
def made(*sides):
    """Their names. Skips the test where there is no right to make them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    names = [f"hws-{os.getpid()}-{side}" for side in sides]
    try:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as e:
                pytest.skip(f"no right to make network namespaces: {e.stderr.decode().strip()}")
            up(name, "lo")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def link(a, device_a, b, device_b):
    """A link between two of them."""
    try:
        ip("link", "add", device_a, "netns", a, "type", "veth", "peer", device_b, "netns", b)
    except subprocess.CalledProcessError as e:
        pytest.skip(f"no virtual links: {e.stderr.decode().strip()}")


def inside(namespace, *command):
    """The command that runs it there."""
    return ["ip", "netns", "exec", namespace, *map(str, command)]
