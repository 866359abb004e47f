# SPDX-License-Identifier: BSD-3-Clause
"""What docs/science/validation.md (Hostile input) says of more rows than tests/e2e/test_hostile.py has.

STARMILL=build/release/starmill STARMILL_TEST_DATA=DATA python3 tests/campaigns/hostile_set.py
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from test_hostile import *  # noqa: F403

SN = (3, 6, 12, 25, 50)
N_EACH = 8
OPTIMIZERS = "levenberg-marquardt", "hybrid"
RNG = np.random.default_rng(20261121)


def sloped(spectrum):
    power = RNG.uniform(-2, 2)
    return lambda wave: spectrum(wave) * (wave / 6000.0) ** power


def wavy():
    waves = [(RNG.uniform(0.02, 0.2), RNG.uniform(200, 3000), RNG.uniform(0, 6.3))
             for _ in range(4)]
    return lambda wave: 1 + sum(a * np.sin(6.283 * wave / p + at) for a, p, at in waves)


def with_lines(z, width, height):
    z, width, height = RNG.uniform(*z), RNG.uniform(*width), np.exp(RNG.uniform(*height))
    return lambda wave: emission(wave, z, width, height)


def old():
    z = RNG.uniform(0.02, 0.5)
    return lambda wave: old_galaxy(wave, z)


def spiky():
    step, at, height = RNG.integers(20, 120), RNG.integers(20), RNG.uniform(3, 20)
    return lambda wave: 1 + height * (np.arange(wave.size) % step == at)


def sky():
    """Residuals of 400 lines, of both signs within a line, about 0."""
    lines, heights = RNG.uniform(5500, 9900, 400), RNG.normal(size=400) * 3
    def spectrum(wave):
        out = np.zeros(wave.size)
        for line, height in zip(lines, heights):
            x = (wave - line) / 0.8
            out += height * x * np.exp(-0.5 * x * x)
        return out
    return spectrum


# a spectrum of level 1, of that S/N; None: made of the star itself
KINDS = {
    "flat": lambda: np.ones_like,
    "steep": lambda: (lambda power: lambda wave: (wave / 6000.0) ** power)(RNG.uniform(-5, 5)),
    "wavy": lambda: sloped(wavy()),
    "emission lines": lambda: sloped(with_lines((0, 1), (2, 6), (-0.7, 1.5))),
    "old galaxy": lambda: sloped(old()),
    "quasar": lambda: sloped(with_lines((0.1, 1), (30, 80), (0, 1.5))),
    "white dwarf": lambda: sloped(white_dwarf),
    "beyond the velocity limits": None,
    "noise": None,
    "spikes": lambda: sloped(spiky()),
    "sky residuals": None,
}


def fainter(row, arm, sn, random):
    """The arm's spectrum with the noise that brings it to S/N sn."""
    good = row.good(arm)
    sigma = 1.0 / np.sqrt(np.where(good, row.ivar[arm], np.inf))
    s = min(1.0, sn / np.median((row.flux[arm] / np.where(good, sigma, 1.0))[good]))
    row.flux[arm] = s * row.flux[arm] + np.sqrt(1 - s * s) * sigma * random.normal(size=sigma.size)


def make(kind, sn, row):
    if kind == "noise":
        noise(row, RNG)
    elif kind == "sky residuals":
        shape = sky()
        for arm in ARMS:
            good = row.good(arm)
            sigma = 1.0 / np.sqrt(np.where(good, row.ivar[arm], np.inf))
            row.flux[arm] = sigma * (sn / 3 * shape(row.wave[arm]) + RNG.normal(size=sigma.size))
    elif kind == "beyond the velocity limits":
        moved(RNG.choice([-1, 1]) * RNG.uniform(1500, 4000))(row, RNG)
        for arm in ARMS:
            fainter(row, arm, sn, RNG)
    else:
        row.observe(KINDS[kind](), sn, RNG)


def flags_of(table, path):
    with h5py.File(path) as f:
        at = f["fits/RVS_WARN"].attrs
        bits = {int(b): n.decode() for n, b in zip(at["NAMES"], at["BITS"])}
    return [{name for bit, name in bits.items() if warn & bit} for warn in table["RVS_WARN"]]


def write(name, rows, edit):
    """Path of a file of rows of the reference survey, edited one by one."""
    def edit_all(hdus):
        for i in range(len(rows)):
            row = Row(hdus, i)
            edit(i, row)
            for arm in ARMS:
                for what, values in (("FLUX", row.flux), ("IVAR", row.ivar), ("MASK", row.mask)):
                    hdus[f"{arm}_{what}"].data[i] = values[arm]
        hdus["FIBERMAP"].data["TARGETID"][:] = np.arange(len(rows)) + 1
    return cut(name + ".fits", rows, edit_all)


def fit(name, path):
    """Table and flags of a file of rows, once an optimizer."""
    for optimizer in OPTIMIZERS:
        done = starmill("fit", "--library", library(), "--output", tmp(name + ".h5"), "--overwrite",
                        "--optimizer", optimizer, path, timeout=3600)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        table = read(tmp(name + ".h5"))
        yield optimizer, table, flags_of(table, tmp(name + ".h5"))


def write_no_stars():
    """The file, and kind and S/N of each row."""
    rows = [(kind, sn) for kind in KINDS for sn in SN for _ in range(N_EACH)]
    return write("no-stars", [STAR] * len(rows), lambda i, row: make(*rows[i], row)), rows


def no_stars():
    path, rows = write_no_stars()
    for optimizer, table, flags in fit("no-stars", path):
        silent = [(*rows[i], table["VRAD"][i], table["VSINI"][i])
                  for i in range(len(rows)) if not flags[i]]
        alone = {kind: sum(f == {"HULL"} for f, (k, _) in zip(flags, rows) if k == kind)
                 for kind in KINDS}
        print(f"{optimizer}: {len(silent)} of {len(rows)} without a flag {silent}; "
              f"only HULL: {alone}; evaluations a row {table['NEVAL'].mean():.0f}", flush=True)


def write_two():
    """Sums of two stars at all S/N, the second of 0.3 to 1 times the flux of the first.

    The file, rows of the two, ratios of flux, S/N.
    """
    with pyfits.open(data("sim/truth-dev.fits")) as hdus:
        truth = np.array(hdus[1].data)
    bright = np.flatnonzero(truth["SN"] >= 50)
    pairs = [RNG.choice(bright, 2, replace=False) for _ in range(len(SN) * N_EACH)]
    ratio = RNG.uniform(0.3, 1, len(pairs))
    sn = np.repeat(SN, N_EACH)
    whole = {name: values for name, _, values in source("sim/coadd-dev.fits.gz")}

    def add(i, row):
        for arm in ARMS:
            second = pairs[i][1]
            flux = whole[arm + "_FLUX"][second].astype(float)
            ivar = whole[arm + "_IVAR"][second].astype(float)
            good = row.good(arm) & (ivar > 0) & (whole[arm + "_MASK"][second] == 0)
            scale = ratio[i] * np.median(row.flux[arm][good]) / np.median(flux[good])
            row.flux[arm] += scale * flux
            row.ivar[arm] = np.where(good, 1 / (1 / np.where(good, row.ivar[arm], 1)
                                                + scale**2 / np.where(good, ivar, 1)), 0)
            fainter(row, arm, sn[i], RNG)
    return write("two", [p[0] for p in pairs], add), pairs, ratio, sn


def two_of_them():
    path, pairs, ratio, sn = write_two()
    with pyfits.open(data("sim/truth-dev.fits")) as hdus:
        truth = np.array(hdus[1].data)
    for optimizer, table, flags in fit("two", path):
        silent = np.array([not f for f in flags])
        chi = table["CHISQ_TOT"] / table["NPIX_TOT"]
        apart = [abs(truth["VRAD"][a] - truth["VRAD"][b]) for a, b in pairs]
        print(f"{optimizer}: two stars: {silent.sum()} of {len(pairs)} without a flag")
        for i in np.flatnonzero(silent):
            print(f"  S/N {sn[i]}, {apart[i]:.0f} km/s apart, ratio {ratio[i]:.2f}: reduced "
                  f"chi-square {chi[i]:.2f}, v {table['VRAD'][i]:.0f} of "
                  f"{truth['VRAD'][pairs[i]].round()}, v sin i {table['VSINI'][i]:.0f}", flush=True)


def one_pixel():
    """One pixel 40 errors off, against the same fit without."""
    n = 200
    arms, at = RNG.choice(ARMS, n), RNG.integers(20, 2300, n)

    def off(i, row):
        arm = arms[i]
        good = np.flatnonzero(row.good(arm))
        pick = good[at[i] * len(good) // 2320]
        row.flux[arm][pick] += 40 / np.sqrt(row.ivar[arm][pick])
    plain = {o: (t, f) for o, t, f in fit("plain", write("plain", range(n),
                                                            lambda i, row: None))}
    for optimizer, table, flags in fit("pixel", write("pixel", range(n), off)):
        before, flags_before = plain[optimizer]
        new = [sorted(a - b) for a, b in zip(flags, flags_before) if a - b]
        print(f"{optimizer}: a pixel 40 errors off: {len(new)} of {n} with another flag {new}")
        for name in ("VRAD", "TEFF", "LOGG", "FEH", "ALPHAFE"):
            moved = abs(table[name] - before[name]) / before[name + "_ERR"]
            moved = moved[np.isfinite(moved)]
            print(f"  {name} moved by {np.median(moved):.2f} errors (median), "
                  f"{np.percentile(moved, 99):.1f} (99 %), {moved.max():.1f} (largest)", flush=True)


if __name__ == "__main__":
    no_stars()
    two_of_them()
    one_pixel()
