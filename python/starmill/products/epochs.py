# SPDX-License-Identifier: BSD-3-Clause
"""`starmill export --to epochs`: one row of RVTAB per exposure, with the velocity of its epoch."""

import numpy as np

from starmill.products import rvtab, table
from starmill.products.product import words
from starmill.products.result import text

# columns left out: they describe the star's one velocity
OF_STAR = ("VRAD_SKEW", "VRAD_KURT", "VRAD_CCF", "NIGHT")
OF_EXPOSURE = ("VRAD", "VRAD_ERR", "VRAD_2", "VRAD_2_ERR", "EXPID", "MJD", "SN", "EPOCH", "EPOCH_FLAG")


def write(product, result, whole):
    exposures = result.catalog["exposures"]
    own = [table.column(name, result.epochs.get(name, exposures.get(name)))
           for name in OF_EXPOSURE]
    columns = own + [c for c in rvtab.columns(result) if c.name not in OF_STAR + OF_EXPOSURE]
    for name in ("N_EPOCH", "VRAD_CHI2", "VRAD_PVAL", "VRAD_RANGE"):
        columns.append(table.column(name, result.fits[name]))
    n = len(result.exposures_of(np.flatnonzero(whole))[0])

    def rows():
        for block in result.blocks(0, whole):
            exposure, place = result.exposures_of(block.rows)
            values = result.exposure_values(exposure, OF_EXPOSURE)
            mine = {c.source.name: values[c.name] for c in own}
            yield table.packed(columns, lambda source: mine[source.name] if source.name in mine
                               else block.of(source)[place], len(exposure)).tobytes()

    header, attrs = table.described(columns, "EPOCHS", result, n), result.epochs["EPOCH_FLAG"].attrs
    for bit, name in zip(attrs["BITS"], attrs["NAMES"]):
        header[f"EPOCH{int(bit).bit_length() - 1:02d}"] = (words(text(name)), f"bit of value {bit}")
    product.append(header, rows())
