# SPDX-License-Identifier: BSD-3-Clause
"""Print what a fit of a simulated survey recovered.

usage: demo_table.py FIT.h5 TRUTH.fits

FIT.h5 is a result of `starmill fit`, TRUTH.fits the truth table of `starmill simulate`.
"""

import collections
import sys

import numpy as np

from survey_stats import (
    BINS, CLEAN, MIN_STARS, PARAMETERS, RESOLVED_KM_S, Failure, Survey, bin_text, text,
)

N_STAR = 10


def number(value, digits):
    return "-" if np.isnan(value) else f"{value:.{digits}f}"


def counts(names):
    """Return the names with their counts above 1, as in "A 3, B"."""
    found = collections.Counter(names)
    return ", ".join(f"{name} {n}" if n > 1 else name for name, n in found.most_common())


def print_statistics(survey):
    print(f"Recovered minus true, {survey.good.sum()} stars without a defect and without a warning")
    print(f"{'':16s}{'S/N':>8s}{'stars':>7s}{'median':>10s}{'scatter':>10s}"
          f"{'median error':>15s}{'pull width':>12s}")
    for p in PARAMETERS:
        title = f"{p.name} ({p.unit})"
        for low, high in BINS + ((0, np.inf),):
            s = survey.statistics(p.name, low, high)
            if s.n == 0:
                continue
            values = [number(v, p.digits + 1) for v in (s.median, s.scatter, s.error)]
            print(f"{title:16s}{bin_text(low, high):>8s}{s.n:7d}{values[0]:>10s}{values[1]:>10s}"
                  f"{values[2]:>15s}{number(s.pull, 2):>12s}")
            title = ""
    print("S/N: expected median of the pixels of arm r. scatter: half the width of the central "
          "68 %.\nmedian error: of the errors that the fit states. pull width: scatter of\n"
          "(recovered - true)/error, which is 1 when the errors are right. "
          f"-: fewer than {MIN_STARS} stars.\n"
          f"VSINI: only stars with a true v sin i of {RESOLVED_KM_S:g} km/s and more; "
          "slower rotation is hardly resolved.")
    clean = survey.clean & ~survey.good
    warned = np.flatnonzero(clean & survey.fitted)
    failed = np.flatnonzero(clean & ~survey.fitted)
    if len(warned):
        names = counts(name for row in warned for name in survey.warning_names(row))
        print(f"Left out: {len(warned)} stars with a warning ({names}).")
    if len(failed):
        names = counts(survey.result.statuses[int(s)][0] for s in survey.fit["STATUS"][failed])
        print(f"Left out: {len(failed)} stars that were not fitted ({names}).")


def print_defects(survey):
    """What the fit made of rows that were spoilt on purpose."""
    kinds = [text(kind).strip() for kind in survey.truth["KIND"]]
    row_of = {int(target): row for row, target in enumerate(survey.fit["TARGETID"])}
    targets = collections.defaultdict(list)  # by kind, in the order of their first row
    for kind, target in zip(kinds, survey.truth["TARGETID"]):
        if kind != CLEAN:
            targets[kind].append(int(target))
    if not targets:
        return
    print("\nRows with a defect, and what the fit made of them")
    print(f"{'kind':19s}{'rows':>5s}  {'STATUS':20s}{'VRAD - true (km/s)':>20s}  RVS_WARN")
    for kind, ids in targets.items():
        rows = [row_of[target] for target in ids if target in row_of]
        status = [survey.result.statuses[int(survey.fit["STATUS"][row])][0] for row in rows]
        status += ["not selected"] * (len(ids) - len(rows))
        warnings = counts(name for row in rows for name in survey.warning_names(row))
        right = [row for row in rows if survey.fit["SUCCESS"][row]]
        delta = "-"
        if right:
            delta = " ± ".join(f"{np.median(values[right]):.2f}"
                               for values in (survey.delta("VRAD"), survey.fit["VRAD_ERR"]))
        print(f"{kind:19s}{len(ids):5d}  {counts(status):20s}{delta:>20s}  {warnings or '-'}")
    print("VRAD: median of those without a warning. not selected: no row in the result.")


def print_stars(survey):
    """Some stars from the faintest to the brightest."""
    rows = np.flatnonzero(survey.good if survey.good.any() else survey.fitted)
    rows = rows[np.argsort(survey.sn[rows], kind="stable")]
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(N_STAR, len(rows))).astype(int))]
    widths = [20 if p.name == "VRAD" else 14 for p in PARAMETERS]
    print(f"\n{len(rows)} stars from faint to bright, recovered (true)")
    print(f"{'TARGETID':>19s}{'S/N':>6s}"
          + "".join(f"{p.name + ' ' + p.unit:>{w}s}" for p, w in zip(PARAMETERS, widths)))
    for row in rows:
        line = f"{survey.fit['TARGETID'][row]:19d}{survey.sn[row]:6.0f}"
        for p, width in zip(PARAMETERS, widths):
            pair = [f"{column[p.name][row]:.{p.digits}f}" for column in (survey.fit, survey.true)]
            line += f"{f'{pair[0]} ({pair[1]})':>{width}s}"
        print(line)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__.strip())
    try:
        survey = Survey(*arguments)
    except Failure as error:
        sys.exit(f"demo_table.py: {error}")
    print_statistics(survey)
    print_defects(survey)
    print_stars(survey)


if __name__ == "__main__":
    main(sys.argv[1:])
