#!/usr/bin/python3
"""A result of many rows, for time and memory of what reads one (docs/use/export.md, report.md).

    large_result.py FIT.h5 LARGE.h5 --rows 10000000

Repeats the rows of a finished result; the values are FIT.h5's, and so are their CRCs.  10 million
rows of three arms and four labels take 9 GB.  LARGE.h5 may be deleted when it has been measured.
"""

import argparse

import h5py
import numpy as np

BLOCK = 200_000  # rows


def repeat(source, into, n_row):
    """A dataset of n_row rows, those of the source again and again."""
    values = source[...]
    times = -(-BLOCK // len(values))
    block = np.tile(values, (times,) + (1,) * (values.ndim - 1))
    out = into.create_dataset(source.name.rsplit("/", 1)[1], (n_row,) + source.shape[1:],
                              source.dtype)
    for name, value in source.attrs.items():
        out.attrs[name] = value
    for at in range(0, n_row, len(block)):
        n = min(len(block), n_row - at)
        out[at:at + n] = block[:n]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fit")
    parser.add_argument("large")
    parser.add_argument("--rows", type=int, default=10_000_000)
    args = parser.parse_args()
    with h5py.File(args.fit) as fit, h5py.File(args.large, "w-") as large:
        for name, value in fit.attrs.items():
            large.attrs[name] = value
        fit.copy("provenance", large)
        for group in ("fits", "catalog"):
            into = large.create_group(group)
            for dataset in fit[group].values():
                if isinstance(dataset, h5py.Group):
                    fit.copy(dataset, into)
                else:
                    repeat(dataset, into, args.rows)


if __name__ == "__main__":
    main()
