# The short way to what cmake, ctest and Python do; CMakePresets.json is the long one.
.PHONY: help demo test test-all test-pythons soak bench
.DEFAULT_GOAL := help
# Each target drives a build that is parallel by itself.
.NOTPARALLEL:

help:
	@echo "make demo      install what is missing, build, copy 1 GiB between two processes, run a Dask job"
	@echo "make test      the same set-up; release on both UCX builds, ASan+UBSan and TSan (an hour on two cores)"
	@echo "make test-all  adds clang, all sanitizers on everything, and the long runs"
	@echo "make test-pythons  the Python binding on each CPython from 3.11 on that is here"
	@echo "make soak      the long runs only"
	@echo "make bench     measure against raw UCX and others"
	@echo "make help      this text"

demo:
	@bash scripts/setup.sh
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target demo
	@.venv/bin/python scripts/demo.py --build build

test:
	@bash scripts/test.sh quick

test-all:
	@bash scripts/test.sh all

test-pythons:
	@bash scripts/setup.sh
	@cmake --preset release >/dev/null
	@cmake --build --preset release
	@.venv/bin/python scripts/pythons.py --build build

soak:
	@bash scripts/test.sh soak

bench:
	@bash scripts/setup.sh
	@cmake --preset release >/dev/null
	@cmake --build --preset release
	@.venv/bin/python bench/run.py --build build
