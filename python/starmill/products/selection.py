# SPDX-License-Identifier: BSD-3-Clause
"""`starmill select`: list the rows of a result for which an expression is true, one a line.  The
expression is Python, with columns as names; only operators and functions listed here work."""

import ast
import difflib
import functools
import operator
import os
import re
import sys

import numpy as np

from starmill.cli.basics import USAGE, Failure, check_text, printable, write_whole
from starmill.products.result import NO_SN, TRUTHS, Block, Result, star_names, text

FUNCTIONS = {name: getattr(np, name) for name in ("abs sqrt exp log log10 sin cos tan arcsin "
             "arccos arctan arctan2 floor ceil where isnan isfinite").split()}
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert,
    ast.Not: lambda values: ~truth(values)}
BITWISE = ast.BitAnd, ast.BitOr, ast.BitXor, ast.Invert
# operators whose integer results are checked: beyond 64 bits they would wrap around
ARITHMETIC = ast.Add, ast.Sub, ast.Mult, ast.Pow
MAX_SHOWN = 200  # characters of an expression in a message
# C's operators outside quotes become Python's; comments and blanks become a blank.  ! becomes ~,
# which binds as tightly, with a form feed to tell it from a ~ of the user.
WORDS = {"&&": " and ", "||": " or ", "!": "~\f"}
SPLIT = re.compile(r"('[^']*'|\"[^\"]*\")|(&&|\|\||!(?!=)|#.*|\s)")


def truth(values):
    """Return an array as booleans: integers are true if they are not 0."""
    if values.dtype.kind not in "biu":
        raise TypeError("a real number or text is neither true nor false: write, say, TEFF > 5000")
    return values != 0


class Expression:
    """An expression over columns.  The constructor raises a Failure if the text has an error."""

    def __init__(self, words, result):
        self.text, self.result, self._span = words, result, slice(0, 0)
        self._known = {name.lower(): name for name in reversed(result.names())}
        python = SPLIT.sub(lambda m: m[1] or WORDS.get(m[2], " "), words).strip()
        python = re.sub("[\udc80-\udcff]", lambda m: f"\\u{ord(m.group()):x}", python)  # no UTF-8
        try:
            self._python, self._tree = python.encode(), ast.parse(python, mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise self._failure(f"cannot be understood: {error.args[0]}") from error
        except (RecursionError, MemoryError) as error:
            raise self._too_deep() from error
        self.rows(0, 0)

    def rows(self, start, stop):
        """Return a mask of the rows, from start to stop, for which the expression is true."""
        self._span = slice(start, stop)
        try:
            with np.errstate(all="ignore"):
                found = truth(self._value(self._tree))
        except RecursionError as error:
            raise self._too_deep() from error
        except (TypeError, ValueError, OverflowError) as error:
            raise self._failure(f"cannot be evaluated: {error}; write comparisons that & or | join "
                                "in parentheses, or join them by and, or") from error
        if found.shape != (stop - start,):
            raise self._failure("has not one value for each row: name a column")
        return found

    def _failure(self, why):
        more = "…" if len(self.text) > MAX_SHOWN else ""
        return Failure(USAGE, f"the expression '{self.text[:MAX_SHOWN]}{more}' {why}")

    def _too_deep(self):
        return self._failure("is nested too deeply: join many comparisons by and, or; fit takes a "
                             "list of stars by --object-file")

    def _value(self, node):
        value = getattr(self, "_" + type(node).__name__, None)
        if not value:
            raise self._failure(f"has {ast.unparse(node)}, which means nothing here: give columns, "
                                "numbers, texts in quotes, operators and functions")
        return np.asarray(value(node))

    def _operator(self, node, op):
        if type(op) not in OPERATORS:
            raise self._failure(f"has an operator that means nothing here: {ast.unparse(node)}")
        return OPERATORS[type(op)]

    def _BoolOp(self, node):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return functools.reduce(join, (truth(self._value(v)) for v in node.values))

    def _Compare(self, node):
        """Evaluate comparisons; a < b < c means a < b and b < c."""
        sides, end = [], node.col_offset
        for side in (node.left, *node.comparators):
            is_bare = b"(" not in self._python[end:side.col_offset]
            if is_bare and isinstance(getattr(side, "op", None), BITWISE):
                raise TypeError(f"{ast.unparse(side)} has no parentheses")
            end = side.end_col_offset
            sides.append(self._value(side))
        for a, op, b in zip(sides, node.ops, sides[1:]):
            by_kind = {side.dtype.kind: side for side in (a, b)}
            if "S" in by_kind and len(by_kind) > 1:
                raise self._failure(f"has {ast.unparse(node)}: a text is never equal to a number, "
                                    "nor above or below it")
            if isinstance(op, (ast.Eq, ast.NotEq)) and by_kind.keys() == {"f", "i"} and \
                    (np.abs(by_kind["f"]) >= 2**53).any():  # rounding hides a difference
                raise self._failure("asks whether an integer equals a real number beyond 2**53, "
                                    "which is not exact: write all digits, without . or e")
        return np.logical_and.reduce([self._operator(node, op)(left, right)
                                      for left, op, right in zip(sides, node.ops, sides[1:])])

    def _UnaryOp(self, node):
        op = ast.Not() if self._python.startswith(b"~\f", node.col_offset) else node.op
        return self._operator(node, op)(self._value(node.operand))

    def _BinOp(self, node):
        op, sides = self._operator(node, node.op), [self._value(node.left), self._value(node.right)]
        kinds = {side.dtype.kind for side in sides}
        if isinstance(node.op, BITWISE) and "b" in kinds and len(kinds) > 1:
            raise TypeError(f"{ast.unparse(node)} joins a truth value and a number")
        if isinstance(node.op, ARITHMETIC) and kinds <= {"b", "i"}:
            sides = [side.astype(np.int64) for side in sides]
            if (np.abs(op(*(side.astype(float) for side in sides))) >= 2**63).any():
                raise self._failure(f"has {ast.unparse(node)}, which is beyond integers of 64 "
                                    "bits: write one number with a decimal point")
        return op(*sides)

    def _Call(self, node):
        name = node.func.id.lower() if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name not in FUNCTIONS or node.keywords:
            raise self._failure(f"has {name}(), which is not one of {' '.join(sorted(FUNCTIONS))}")
        n = getattr(FUNCTIONS[name], "nin", 3)  # where() takes 3
        if len(node.args) != n:  # NumPy would write its result into an extra argument
            raise self._failure(f"has {ast.unparse(node)}: {name} takes {n} value{'s' * (n > 1)}")
        return FUNCTIONS[name](*(self._value(a) for a in node.args))

    def _Constant(self, node):
        value = np.asarray(os.fsencode(node.value) if isinstance(node.value, str) else node.value)
        if value.dtype.kind not in "bifS":
            raise self._failure(f"has {str(node.value)[:30]}, which is no text and no number of 64 "
                                "bits: write large numbers with a decimal point")
        return value

    def _Name(self, node):
        if node.id.lower() in ("true", "false"):
            return np.asarray(node.id.lower() == "true")
        name, stored = self._column(node.id)
        if stored.ndim > 1:
            raise self._failure(f"needs one value of a row: {name} has {stored.shape[1]}, "
                                f"{name}[0] is the first")
        start, stop = self._span.start, self._span.stop  # a Block calibrates where the result does
        values = Block(self.result, start, np.ones(stop - start, bool)).of(stored)
        if name in TRUTHS:
            return values != 0
        if values.dtype.kind == "f":
            return np.where(values == NO_SN, np.nan, values)
        return values.astype(np.int64) if values.dtype.kind in "iu" else values

    def _Subscript(self, node):
        name, stored = self._column(ast.unparse(node.value))
        element = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if stored.ndim < 2 or not isinstance(element, int) or element >= stored.shape[1]:
            there = f"{name}, a single value" if stored.ndim < 2 else \
                f"{name}[0] to {name}[{stored.shape[1] - 1}]"
            raise self._failure(f"has {ast.unparse(node)}: there is {there}")
        return stored[self._span, element]

    def _column(self, name):
        """Return a column's name (any case given) and its dataset."""
        known = self._known.get(name.lower())
        if known:
            return known, self.result.column(known)
        near = difflib.get_close_matches(name.upper(), self.result.names(), 3)
        names = " ".join(n for n in self.result.names() if not n.endswith("_FORMAL"))
        raise self._failure(f"has {name}, which is no column of {self.result.path}"
                            + (f" (did you mean {' or '.join(near)}?)" if near else "")
                            + f"; it has {names}")


class Selection:
    """The list of selected rows.  lines(): yields its bytes.  n_found: number of rows so far."""

    def __init__(self, result, expression, what):
        self.result, self.expression, self.what, self.n_found = result, expression, what, 0

    def lines(self):
        for start, stop in self.result.spans():
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


def main(options):
    path, words = options.arguments
    result = Result(path)
    selection = Selection(result, Expression(words, result), options.print)
    if options.output:
        check_text(options.output, options.overwrite, result.reads(options))
        write_whole(options.output, selection.lines(), options.overwrite)
        print(f"{selection.n_found} of {result.n_row} rows: {os.path.relpath(options.output)}")
    else:
        sys.stdout.buffer.writelines(selection.lines())
    result.warn_damaged()
