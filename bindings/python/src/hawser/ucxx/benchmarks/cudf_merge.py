"""A distributed join of two cuDF tables: python -m hawser.ucxx.benchmarks.cudf_merge --help"""

from hawser.ucp.benchmarks import cudf_merge


def main() -> None:
    """Run what the options ask for: the whole, or the server's or a host's part of it."""
    cudf_merge.main("hawser.ucxx")


if __name__ == "__main__":
    main()
