#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Posteriors against emcee and by simulation-based calibration, on stars of the test library.

    cmake --build build/release --target test_fit_posterior
    campaigns/posteriors.py calibrate build/release/tests/test_fit_posterior [STARS]
    campaigns/posteriors.py emcee build/release/tests/test_fit_posterior    (needs emcee)
    campaigns/posteriors.py errors POST.h5

The first two take minutes of one core.  The test program makes stars, uniform in velocity, v sin i
and the coordinates of the emulator.  It samples their posteriors by the program's own pipeline,
and evaluates the likelihood for emcee (Foreman-Mackey et al. 2013).

calibrate: the rank of the truth among samples of its posterior must be uniform (Talts et al. 2018,
arXiv:1804.06788).  The fit's prior is flat, unlike the distribution of the true values, so samples
are weighted by that distribution.  A p-value below 0.01 in a parameter is a failure.

errors: the fit's formal errors against the posterior's standard deviations; how many posteriors
are not Gaussian (POST_FLAG), and how many of these stars the fit has flagged.
"""

import subprocess
import sys

import numpy as np
from scipy import stats

NAMES = ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE")
SN_CALIBRATE, SN_EMCEE = 50, 40
N_WALKER, N_STEP = 128, 3000  # of emcee
# of log10 Teff, log g, [Fe/H], [alpha/Fe] in the test library; true labels: MEAN +- HALF * STD
MEAN, STD, HALF = (3.74, 2.9, -1.25, 0.2), (0.07, 1.4, 1.1, 0.16), 0.96
VEL, VSINI = 300.0, 160.0


def stars(program, n, sn, ess):
    """Of each star {name: numbers}."""
    text = subprocess.run([program, "stars", str(n), str(sn), str(ess)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    found = [{} for _ in range(n)]
    for line in text.splitlines():
        name, i, *numbers = line.split()
        found[int(i)][name] = np.array(numbers, float)
    return found


def weights(draws):
    """Density of the truth's distribution, up to a constant."""
    inside = (np.abs(draws[:, 0]) < VEL) & (draws[:, 1] > 0) & (draws[:, 1] < VSINI)
    mapped = draws[:, 2:].copy()
    mapped[:, 0] = np.log10(mapped[:, 0])
    for k in range(4):
        inside &= np.abs((mapped[:, k] - MEAN[k]) / STD[k]) < HALF
    return inside / draws[:, 2]


def calibrate(program, n=400):
    """Whether the ranks of the truths are uniform: prints p-values of each parameter."""
    ranks, n_left = [], 0
    found = stars(program, n, SN_CALIBRATE, 400)
    for star in found:
        draws = star["draws"].reshape(-1, len(NAMES))
        w = weights(draws)
        status = star["more"][0]
        if status != 1 or (w > 0).sum() < 20:  # few draws in the box of true labels
            n_left += 1
            continue
        # Ranks are uniform if the truth counts as a sample of mean weight, half of it below itself.
        low = (w[:, None] * (draws < star["truth"])).sum(axis=0)
        ranks.append((low + 0.5 * w.mean()) / (w.sum() + w.mean()))
    ranks = np.array(ranks)
    print(f"{len(ranks)} stars, {n_left} left out, S/N {SN_CALIBRATE}, "
          f"{np.mean([s['more'][2] for s in found]):.0f} evaluations a star, effective samples "
          f"{np.mean([np.nanmin(s['ess']) for s in found]):.0f}")
    worst = 1.0
    for j, name in enumerate(NAMES):
        counts = np.histogram(ranks[:, j], bins=10, range=(0, 1))[0]
        p = stats.chisquare(counts).pvalue
        ks = stats.kstest(ranks[:, j], "uniform").pvalue
        worst = min(worst, p, ks)
        print(f"{name:8} p(chi2, 10 bins) {p:.3f}  p(KS) {ks:.3f}  {counts}")
    return worst > 0.01


# ---- the fit's errors ----

PLAIN = ("NOT_CONVERGED", "LIMIT", "WIDE")  # bits of POST_FLAG about the sampling, not the fit


def bits(column):
    """{name: bit} of a column of flags."""
    return {name.decode(): int(bit)
            for name, bit in zip(column.attrs["NAMES"], column.attrs["BITS"])}


def errors(path):
    """Print ratios of posterior standard deviation to formal error, for each flag of the fit."""
    import h5py  # only here

    with h5py.File(path, "r") as f:
        fits = {name: f["fits"][name][:] for name in f["fits"]}
        order = [name.decode() for name in f["fits/POST_MEAN"].attrs["ORDER"]]
        warn, info, post = (bits(f["fits"][n]) for n in ("RVS_WARN", "FIT_INFO", "POST_FLAG"))
    n_par = len(order)
    done = (fits["STATUS"] == 1) & np.isfinite(fits["POST_MEAN"]).all(axis=1)
    # stars by the fit's flags that warn of non-Gaussian errors
    says = {"none of these": done}
    for column, known, names in (("FIT_INFO", info, ("VSINI_UNRESOLVED", "NEAR_HULL", "TWO_MINIMA")),
                                 ("RVS_WARN", warn, ("HULL", "LABEL_EDGE", "BAD_HESSIAN"))):
        for name in names:
            says[name] = done & (fits[column] & known[name] != 0)
    flagged = np.any([rows for name, rows in says.items() if name != "none of these"], axis=0)
    says["none of these"] = done & ~flagged
    ratio = np.full((len(done), n_par), np.nan)
    for j, name in enumerate(order):
        formal = fits[name + "_ERR_FORMAL"] if name + "_ERR_FORMAL" in fits else fits[name + "_ERR"]
        at = j * n_par - j * (j - 1) // 2  # the variance's place in the packed upper triangle
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio[:, j] = np.sqrt(fits["POST_COVAR"][:, at]) / formal
    print(f"{done.sum()} stars; posterior's standard deviation / the fit's formal error: "
          "16th, 50th, 84th percentile\n")
    print("| the fit says | stars | " + " | ".join(order) + " | not the fit's Gaussian |")
    print("|---|---:|" + "---|" * n_par + "---:|")
    other = sum(bit for name, bit in post.items() if name not in PLAIN)
    differs = done & (fits["POST_FLAG"] & other != 0)
    for name, rows in says.items():
        if rows.sum() < 5:
            continue
        cells = ["%.2f %.2f %.2f" % tuple(np.nanpercentile(ratio[rows, j], (16, 50, 84)))
                 for j in range(n_par)]
        print(f"| {name} | {rows.sum()} | " + " | ".join(cells) +
              f" | {differs[rows].mean():.0%} |")
    print(f"\nOf {differs.sum()} posteriors that are not the fit's Gaussian the fit flags "
          f"{(differs & flagged).sum()}; of {(done & ~differs).sum()} others "
          f"{(done & ~differs & flagged).sum()}.")
    for name, bit in post.items():
        rows = done & (fits["POST_FLAG"] & bit != 0)
        if rows.any():
            print(f"{name}: {rows.sum()} stars, {(rows & flagged).sum()} of them flagged by the fit")
    return True


class Likelihood:
    """ln p of one star by the test program, for emcee."""

    def __init__(self, program, i):
        self.server = subprocess.Popen([program, "likelihood", str(i), str(SN_EMCEE)], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, points):
        allowed = (np.abs(points[:, 0]) < 1000) & (points[:, 1] >= 0) & (points[:, 1] <= 300)
        allowed &= points[:, 2] > 0
        out = np.full(len(points), -np.inf)
        if allowed.any():
            rows = points[allowed]
            self.server.stdin.write(f"{len(rows)}\n" + "\n".join(
                " ".join("%.17g" % v for v in row) for row in rows) + "\n")
            self.server.stdin.flush()
            out[allowed] = [-0.5 * float(self.server.stdout.readline()) for _ in rows]
        return out

    def close(self):
        self.server.stdin.close()
        self.server.wait()


def ensemble(star, ln_p, n_step):
    """emcee from about the posterior that we found."""
    import emcee  # only here

    random = np.random.default_rng(17)
    start = star["mean"] + 0.3 * star["sigma"] * random.standard_normal((N_WALKER, len(NAMES)))
    start[:, 1] = np.abs(start[:, 1])
    sampler = emcee.EnsembleSampler(N_WALKER, len(NAMES), ln_p, vectorize=True, moves=[
        (emcee.moves.DEMove(), 0.7), (emcee.moves.DESnookerMove(), 0.1),
        (emcee.moves.StretchMove(), 0.2)])
    sampler.random_state = np.random.RandomState(3).get_state()
    sampler.run_mcmc(start, n_step)
    return sampler


def compare(program):
    """Whether means and widths agree with emcee's to 5 % of a standard deviation."""
    good = True
    found = stars(program, 3, SN_EMCEE, 10000)
    for i, star in enumerate(found):
        ln_p = Likelihood(program, i)
        sampler = ensemble(star, ln_p, N_STEP)
        tau = sampler.get_autocorr_time(quiet=True)
        flat = sampler.get_chain(discard=N_STEP // 6, flat=True)
        shift = (star["mean"] - flat.mean(axis=0)) / flat.std(axis=0)
        width = star["sigma"] / flat.std(axis=0)
        good &= np.abs(shift).max() < 0.05 and np.abs(width - 1).max() < 0.05
        print(f"star {i}: emcee {N_WALKER * N_STEP} evaluations, tau {tau.max():.0f} steps, effective "
              f"{len(flat) / tau.max():.0f}; ours {star['more'][2]:.0f} evaluations, effective "
              f"{star['ess'].min():.0f}, flag {star['more'][1]:.0f}")
        print("  mean, in sigma:", np.round(shift, 3), " width:", np.round(width, 3))
        ln_p.close()
    return good


if __name__ == "__main__":
    job, program, *more = sys.argv[1:]
    jobs = {"calibrate": calibrate, "emcee": compare, "errors": errors}
    fine = jobs[job](program, *map(int, more))
    print("passed" if fine else "FAILED")
    sys.exit(0 if fine else 1)
