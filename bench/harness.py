"""What every case measures with: where the programs are, which UCX is under test, and how hard to try."""

import json
import os
import statistics
import subprocess

MIB = 1 << 20


class Skip(Exception):
    """The case cannot be run here; the text says why."""


class Bench:
    """Where the programs are, how hard to try, and which UCX is under test."""

    def __init__(self, build, quick, rounds):
        self.build, self.quick = os.path.abspath(build), quick
        self.rounds = rounds or (3 if quick else 5)
        self.ucx = None

    def program(self, *parts):
        path = os.path.join(self.build, *parts)
        if not os.access(path, os.X_OK):
            raise Skip(f"{path} is not built")
        return path

    def count(self, full):
        return max(10, full // 10) if self.quick else full

    def environment(self, **more):
        return {**os.environ, "HAWSER_UCX": self.ucx["path"], **more}

    def run(self, command, timeout=900, **environment):
        run = subprocess.run(
            [str(c) for c in command],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self.environment(**environment),
        )
        if run.returncode:
            said = run.stderr.strip()[-400:]
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {run.returncode}: {said}")
        return run.stdout

    def json(self, command, timeout=900):
        return json.loads(self.run(command, timeout))

    def compare(self, *options, times=1):
        return self.json([self.program("hawser"), "perf", "--json", "--compare", self.rounds * times, *options])


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def at_most(goal, text, ratio, details):
    """What a case gives whose ratio must not be above its goal."""
    return text, ratio, f"<= {goal}", ratio["median"] <= goal, details


def at_least(goal, text, ratio, details):
    """What a case gives whose ratio must not be below its goal."""
    return text, ratio, f">= {goal}", ratio["median"] >= goal, details
