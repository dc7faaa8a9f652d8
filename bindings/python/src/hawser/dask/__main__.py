"""python -m hawser.dask: what `dask hawser` does."""

from ._cli import main

main(prog_name="python -m hawser.dask")
