"""What the tests of ucp.benchmarks and ucxx.benchmarks share."""

import subprocess

import pytest

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def check_that_one_end_dies(benchmark, options, dies, word):
    """Kill one end in the midst: the other one fails, with the word in what it says."""
    with subprocess.Popen([*benchmark, *options, "--server-only"], **PIPES) as server:
        try:
            port = server.stdout.readline().rpartition(":")[2].strip()
            with subprocess.Popen([*benchmark, *options, "--client-only", "-p", port], **PIPES) as client:
                try:
                    with pytest.raises(subprocess.TimeoutExpired):
                        client.wait(2)
                    killed, left = (client, server) if dies == "client" else (server, client)
                    killed.kill()
                    assert left.wait(60) != 0  # with hundreds of thousands of requests to end
                    assert word in left.stderr.read()
                finally:
                    client.kill()
        finally:
            server.kill()
