# SPDX-License-Identifier: BSD-3-Clause
"""`starmill select`: list the rows of a result for which an expression is true, one a line."""

import os
import sys

import numpy as np

from starmill.cli.basics import OUTPUT, Failure, check_output, printable, refuse_data, write_whole
from starmill.products.expression import Expression
from starmill.products.result import Result, star_names, text


class Selection:
    """The list of selected rows.  lines(): its bytes, block by block; n_found: rows so far."""

    def __init__(self, result, expression, what):
        self.result, self.expression, self.what, self.n_found = result, expression, what, 0

    def lines(self):
        for start in range(0, self.result.n_row, self.result.block):
            stop = min(start + self.result.block, self.result.n_row)
            found = self.expression.rows(start, stop)
            damaged = found & self.result.damaged(start, stop, among=found)
            self.result.note(start + np.flatnonzero(damaged))
            at = np.flatnonzero(found & ~damaged)
            self.n_found += len(at)
            yield "".join(f"{line}\n" for line in self._names(start, stop, at)).encode()

    def _names(self, start, stop, at):
        if self.what == "row":
            return (start + at).tolist()
        catalog = self.result.catalog
        if self.what == "identifier":
            return [printable(text(name)) for name in catalog["IDENTIFIER"][start:stop][at]]
        return map(printable, star_names(*(column[start:stop][at] for column in (
            self.result.fits["TARGETID"], catalog["OBJECT"], catalog["IDENTIFIER"]))))


def print_pieces(pieces):
    try:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(OUTPUT, f"the list cannot be printed: {error.strerror}") from error


def main(options):
    path, words = options.arguments
    result = Result(path)
    if options.output:
        check_output(options.output, options.overwrite, result.reads(options))
        refuse_data(options.output)
    selection = Selection(result, Expression(words, result), options.print)
    if options.output:
        write_whole(options.output, selection.lines(), options.overwrite)
        print(f"{selection.n_found} of {result.n_row} rows: {os.path.relpath(options.output)}")
    else:
        print_pieces(selection.lines())
    result.warn_damaged()
