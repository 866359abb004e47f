# SPDX-License-Identifier: BSD-3-Clause
"""Fits of spectra with a defect, and of spectra that are not of one star.

Each row has one defect.  Its fit is right, or has a flag, or its STATUS is not FITTED.  Rows are
made from one star of the reference survey (S/N 50, v sin i 5 km/s), and keep its wavelengths,
errors and resolution.  docs/science/validation.md (Hostile input) lists defects and answers,
docs/use/results.md the flags."""

from common import *  # noqa: F403

STAR, OTHER = 44, 32  # rows of the reference survey: a cool giant, a hot metal-poor star
EMISSION = ((3728.0, 1.0), (4862.7, 0.4), (4960.3, 0.3), (5008.2, 1.0), (6564.6, 1.2),
            (6585.3, 0.5), (6718.0, 0.3))
ABSORPTION = ((3934.8, 0.6, 8), (3969.6, 0.6, 8), (4305.6, 0.35, 12), (4862.7, 0.25, 6),
              (5176.6, 0.35, 14), (5895.6, 0.3, 7), (8544.0, 0.35, 6), (8664.0, 0.3, 6))
BALMER = (3890.0, 3971.0, 4102.9, 4341.7, 4862.7, 6564.6)
SPEED_OF_LIGHT = 299792.458  # km/s


def emission(wave, z, width, height):
    """Flat, with the lines of a star-forming galaxy."""
    return 1.0 + sum(height * h * np.exp(-0.5 * ((wave / (1 + z) - line) / width) ** 2)
                     for line, h in EMISSION)


def old_galaxy(wave, z=0.08):
    """Broad absorption lines and a break at 4000 A."""
    rest = wave / (1 + z)
    flux = np.where(rest < 4000.0, 0.65, 1.0)
    for line, depth, width in ABSORPTION:
        flux = flux * (1.0 - depth * np.exp(-0.5 * ((rest - line) / width) ** 2))
    return flux


def white_dwarf(wave):
    """A blue continuum with hydrogen lines of 70 A."""
    flux = (wave / 6000.0) ** -2.5
    for line in BALMER:
        flux = flux * (1.0 - 0.5 / (1.0 + ((wave - line) / 35.0) ** 2))
    return flux


class Row:
    """The three arms of a row that edits change: dictionaries {arm: array}."""

    def __init__(self, hdus, row):
        self.wave = {a: hdus[a + "_WAVELENGTH"].data.astype(float) for a in ARMS}
        self.flux = {a: hdus[a + "_FLUX"].data[row].astype(float) for a in ARMS}
        self.ivar = {a: hdus[a + "_IVAR"].data[row].astype(float) for a in ARMS}
        self.mask = {a: hdus[a + "_MASK"].data[row].copy() for a in ARMS}

    def good(self, arm):
        return (self.ivar[arm] > 0) & (self.mask[arm] == 0)

    def median(self, arm):
        return np.median(self.flux[arm][self.good(arm)])

    def observe(self, spectrum, sn, random):
        """Replace the star by spectrum(wave) with noise, at that S/N in every arm."""
        for arm in ARMS:
            good = self.good(arm)
            sigma = 1.0 / np.sqrt(np.where(good, self.ivar[arm], np.inf))
            shape = spectrum(self.wave[arm])
            level = sn * np.median(sigma[good]) / np.median(shape)
            self.flux[arm] = level * shape + sigma * random.normal(size=sigma.size)


# ---- the rows: each a function that edits a Row ----


def pixel(value, arm="R", at=1000):
    def edit(row, _):
        row.flux[arm][at], row.mask[arm][at] = value, 0
        row.ivar[arm][at] = np.median(row.ivar[arm])
    return edit


def observed(spectrum, sn):
    return lambda row, random: row.observe(spectrum, sn, random)


def noise(row, random):
    row.observe(np.ones_like, 0.0, random)


def constant(row, _):
    for arm in ARMS:
        row.flux[arm][:] = 20.0


def flipped(arms):
    def edit(row, _):
        for arm in arms:
            row.flux[arm] *= -1.0
    return edit


def scaled_ivar(factor):
    def edit(row, _):
        for arm in ARMS:
            row.ivar[arm] *= factor
    return edit


def unit(factor):
    def edit(row, _):
        for arm in ARMS:
            row.flux[arm] *= factor
            row.ivar[arm] /= factor**2
    return edit


def two_stars(row, _):
    for arm in ARMS:
        other = row.other
        scale = row.median(arm) / other.median(arm)
        good = row.good(arm) & other.good(arm)
        row.flux[arm] += scale * other.flux[arm]
        row.ivar[arm] = np.where(good, 1.0 / (1.0 / np.where(good, row.ivar[arm], 1.0) + scale**2
                                              / np.where(good, other.ivar[arm], 1.0)), 0.0)


def moved(velocity):
    """The star itself at a velocity beyond the limits."""
    def edit(row, _):
        for arm in ARMS:
            good, wave = row.good(arm), row.wave[arm]
            row.flux[arm] = np.interp(wave, (wave * (1.0 + velocity / SPEED_OF_LIGHT))[good],
                                      row.flux[arm][good])
    return edit


def few_pixels(n):
    def edit(row, _):
        for arm in ARMS:
            row.ivar[arm][:500] = 0
            row.ivar[arm][500 + n:] = 0
    return edit


def cosmics(row, random):
    for arm in ARMS:
        for at in random.integers(50, 2200, 10):
            pixel(50.0 * row.median(arm), arm, at)(row, random)


def turned(row, _):
    for arm in ARMS:
        row.flux[arm] = row.flux[arm][::-1].copy()


def background(row, _):
    for arm in ARMS:
        row.flux[arm] += 3.0 * row.median(arm)


def spikes(wave):
    return 1.0 + 10.0 * (np.arange(wave.size) % 50 == 7)


# A row with a meaningless fit has at least one of these flags.
NO_STAR = {"CHISQ", "VSINI", "VEL_LIMIT", "POOR_FIT", "HULL"}

# Name, edit, what must be said: "right" (the star's values, and no flag), or flags that must
# all be there, or NO_STAR, or the STATUS of a row that is not fitted.
ROWS = [
    ("the star", lambda row, _: None, "right"),
    *(("a pixel of " + value, pixel(float(value)), "right")
      for value in ("1e9", "-1e9", "1e30", "-1e30")),
    ("a pixel of 1e9 in b", pixel(1e9, "B", 500), "right"), ("30 cosmics", cosmics, {"POOR_FIT"}),
    ("the sign changed", flipped(ARMS), {"NEGATIVE"}),
    ("the sign changed in z", flipped("Z"), {"NEGATIVE"}), ("noise", noise, {"CHISQ"}),
    *((f"flat, S/N {sn}", observed(np.ones_like, sn), {"CHISQ"}) for sn in (1, 5, 50)),
    *((f"steep, S/N {sn}", observed(lambda w: (w / 6000) ** -3, sn), {"CHISQ"}) for sn in (5, 50)),
    ("constant, no noise", constant, {"CHISQ"}),
    ("emission lines, S/N 5", observed(lambda w: emission(w, 0.1, 3, 2), 5), NO_STAR),
    ("emission lines, S/N 25", observed(lambda w: emission(w, 0.3, 3, 2), 25), NO_STAR),
    *((f"{name}, S/N {sn}", observed(spectrum, sn), NO_STAR) for name, spectrum in (
        ("old galaxy", old_galaxy), ("quasar", lambda w: emission(w, 0.5, 50, 3)),
        ("white dwarf", white_dwarf)) for sn in (5, 25)),
    ("spikes, S/N 3", observed(spikes, 3), NO_STAR),
    ("spikes, S/N 25", observed(spikes, 25), {"POOR_FIT"}), ("two stars", two_stars, {"POOR_FIT"}),
    ("a star at 3000 km/s", moved(3000.0), NO_STAR),
    ("pixels in reverse order", turned, {"POOR_FIT"}),
    ("a background three times the star", background, {"POOR_FIT"}),
    ("ivar 1e3 too large", scaled_ivar(1e3), {"POOR_FIT"}),
    ("ivar 1e12 too large", scaled_ivar(1e12), {"POOR_FIT"}),
    ("ivar 1e30 too large", scaled_ivar(1e30), NO_ARM),
    ("ivar 1e3 too small", scaled_ivar(1e-3), "right"),
    ("ivar 1e6 too small", scaled_ivar(1e-6), {"CHISQ"}),
    ("ivar 1e30 too small", scaled_ivar(1e-30), {"CHISQ"}),
    ("flux in units of 1e17", unit(1e-17), "right"),
    ("flux in units of 1e-15", unit(1e15), "right"), ("one pixel an arm", few_pixels(1), {"CHISQ"}),
    ("12 pixels an arm", few_pixels(12), NO_STAR), ("50 pixels an arm", few_pixels(50), "right"),
    ("the star again", lambda row, _: None, "right")]


def names_of(path, column):
    """A function that returns the set of flag names in a value of RVS_WARN or FIT_INFO."""
    said = attributes(path, "fits/" + column)
    bits = {int(b): n.decode() for n, b in zip(said["NAMES"], said["BITS"])}

    def names(value):
        assert sum(bit for bit in bits if value & bit) == value, f"unknown bits in {value}"
        return {name for bit, name in bits.items() if value & bit}
    return names


class Judged(EndToEnd):
    def assertRight(self, table, row, true):
        """Values are within five errors of the truth, or the emulator's accuracy at high S/N."""
        floor = {"VRAD": 0.2, "TEFF": 10.0, "LOGG": 0.05, "FEH": 0.05, "ALPHAFE": 0.03}
        for name, least in floor.items():
            limit = 5.0 * np.hypot(table[name + "_ERR"][row], least)
            off = table[name][row] - true[name]
            self.assertLess(abs(off), limit, f"{name} off by {off}")


class Hostile(Judged):
    @classmethod
    def setUpClass(cls):
        def edit(hdus):
            other = Row(hdus, len(ROWS))
            for i, (_, change, _) in enumerate(ROWS):
                row = Row(hdus, i)
                row.other = other
                change(row, np.random.default_rng(i))
                for arm in ARMS:
                    for name, values in (("FLUX", row.flux), ("IVAR", row.ivar),
                                         ("MASK", row.mask)):
                        hdus[f"{arm}_{name}"].data[i] = values[arm]
            hdus["FIBERMAP"].data["TARGETID"][:] = np.arange(len(ROWS) + 1) + 1
        cls.input = cut("hostile.fits", [STAR] * len(ROWS) + [OTHER], edit)
        cls.truth = np.array(pyfits.getdata(data("sim/truth-dev.fits"), 1))[STAR]
        put("short.yaml", "max_eval: 100\n")  # hopeless rows would take thousands

    def flags(self, table, row):
        return names_of(self.path, "RVS_WARN")(int(table["RVS_WARN"][row]))

    def check(self, optimizer):
        self.fit("hostile.h5", "--overwrite", "--optimizer", optimizer, "--config",
                 tmp("short.yaml"), self.input)
        table = read(self.path)
        self.assertEqual(len(table["STATUS"]), len(ROWS) + 1)
        self.assertWhole(table)
        for i, (name, _, expected) in enumerate(ROWS):
            with self.subTest(name, optimizer=optimizer):
                flags = self.flags(table, i)
                if isinstance(expected, int):
                    self.assertEqual(table["STATUS"][i], expected)
                    continue
                self.assertEqual(table["STATUS"][i],
                                 FIT_FAILED if "BAD_SPECTRUM" in flags else FITTED)
                if expected == "right":
                    self.assertEqual(flags, set())
                    self.assertRight(table, i, self.truth)
                elif expected is NO_STAR:
                    self.assertTrue(flags & NO_STAR, flags)
                    self.assertTrue(name == "12 pixels an arm" or table["VRAD_GOOD"][i] == 0)
                else:
                    self.assertLessEqual(expected, flags)
        # hostile neighbours change nothing
        last = len(ROWS) - 1
        for name, values in table.items():
            if name not in ("TARGETID", "CRC"):
                self.assertEqual(values[0].tobytes(), values[last].tobytes(), name)
        return table

    def test_hybrid(self):
        table = self.check("hybrid")
        rows = {name: i for i, (name, _, _) in enumerate(ROWS)}
        # a sign changes nothing but the sign of the continuum
        for name in ("the sign changed", "the sign changed in z"):
            with self.subTest(name):
                self.assertEqual(self.flags(table, rows[name]), {"NEGATIVE"})
                self.assertRight(table, rows[name], self.truth)
        # the unit of the flux means nothing
        for name in ("flux in units of 1e17", "flux in units of 1e-15"):
            for label in ("VRAD", "TEFF", "LOGG", "FEH", "ALPHAFE"):
                off = abs(table[label][rows[name]] - table[label][0])
                self.assertLess(off, 0.02 * table[label + "_ERR"][0], f"{name}: {label}")

    def test_levenberg_marquardt(self):
        self.check("levenberg-marquardt")


NOT_SELECTED = None

# Warnings that a meaningless fit may carry besides those that name its defect.
MEANINGLESS = {"CHISQ", "NO_STAR", "VEL_LIMIT", "VEL_ERR", "LABEL_EDGE", "VSINI", "BAD_HESSIAN", "HULL",
               "NOT_CONVERGED", "VSINI_LIMIT", "EMISSION", "ARMS_DIFFER"}

# KIND: STATUS, warnings that must be set, others that may be, arms that are dropped.
# Rows without warnings carry usable spectra of a star, however many pixels or
# arms are missing, and must come out right.
PATHO = {
    # restricted_ok: fiber status bit 3, which is allowed
    **dict.fromkeys(("clean", "clean2", "nan_run", "inf_pixels", "nan_ivar", "half_masked",
                     "restricted_ok"), (FITTED, set(), set(), "")),
    "b_all_masked": (FITTED, set(), set(), "B"),
    "z_all_nan": (FITTED, set(), set(), "Z"),
    "r_zero_flux": (FITTED, set(), set(), "R"),
    "b_ivar_zero": (FITTED, set(), set(), "B"),
    # all arms have the sign flipped: the continuum takes the sign, and the fit finds the star
    "negative_median": (FITTED, {"NEGATIVE"}, set(), ""),
    # one arm sign-flipped: no model follows both signs
    "b_negative_median": (FITTED, {"NEGATIVE"}, MEANINGLESS | {"POOR_FIT"}, ""),
    # no star: a template gains nothing over the continuum
    "pure_noise": (FITTED, {"CHISQ"}, MEANINGLESS, ""),
    # one pixel of 1e9 with an ordinary error
    "tiny_ivar_huge_pix": (FITTED, {"OUTLIER", "POOR_FIT"}, MEANINGLESS | {"NEGATIVE"}, ""),
    **dict.fromkeys(("sky_fibre", "bad_fiberstatus"), (NOT_SELECTED, set(), set(), ""))}
NOGOOD = {
    # HULL: one of the three fits has [alpha/Fe] = 0.0001 +- 0.026, at the end of the library
    "star": (FITTED, set(), {"HULL"}, ""),
    **dict.fromkeys(("all_arms_masked", "all_nan", "all_zero"),
                    (NO_ARM, {"BAD_SPECTRUM"}, set(), "BRZ"))}


class Patho(Judged):
    def fit_set(self, name, expected, *args, **how):
        """Fit a set and compare every row with its line of the table."""
        truth = pyfits.getdata(data(f"sim/truth-dev-{name}.fits"), 1).copy()
        kinds = [str(k).strip() for k in truth["KIND"]]
        self.assertEqual(set(kinds), set(expected), "the table names the rows of the file")
        done = self.fit(f"{name}.h5", *args, data(f"sim/coadd-dev-{name}.fits.gz"), **how)
        table = read(self.path)
        self.assertWhole(table)
        warnings, infos = names_of(self.path, "RVS_WARN"), names_of(self.path, "FIT_INFO")
        kept = [i for i, kind in enumerate(kinds) if expected[kind][0] is not NOT_SELECTED]
        # every row once, in the file's order, and no other
        self.assertEqual(list(table["TARGETID"]), list(truth["TARGETID"][kept]))
        for row, i in enumerate(kept):
            status, needed, more, dropped = expected[kinds[i]]
            with self.subTest(kinds[i], target=int(truth["TARGETID"][i])):
                self.assertEqual(table["STATUS"][row], status)
                warn = warnings(int(table["RVS_WARN"][row]))
                self.assertLessEqual(needed, warn)
                self.assertLessEqual(warn, needed | more)
                self.assertEqual(int(table["SUCCESS"][row]), int(not warn))
                for arm in ARMS:
                    self.assertEqual(table["NPIX_" + arm][row] == 0, arm in dropped, arm)
                    self.assertEqual(bool(np.isnan(table["CHISQ_" + arm][row])),
                                     arm in dropped, arm)
                self.assertEqual("ARM_DROPPED" in infos(int(table["FIT_INFO"][row])), dropped != "")
                if status == FITTED and needed <= {"NEGATIVE"} and not more:
                    self.assertRight(table, row, truth[i])
        return done, table

    def test_patho(self):
        self.fit_set("patho", PATHO)

    def test_nogood(self):
        done, table = self.fit_set("nogood", NOGOOD)
        # the reason is counted in the summary
        self.assertRegex(done.stdout, r"not fitted +3\b")
        self.assertRegex(done.stdout, r"NO_USABLE_ARM +3\b")
        # what cannot be fitted takes nothing from its neighbours
        good = np.flatnonzero(table["STATUS"] == FITTED)
        self.fit("stars.h5", cut("stars.fits", good, name="sim/coadd-dev-nogood.fits.gz"))
        alone = read(self.path)
        for name in table:
            if name != "CRC":
                self.assertEqual(alone[name].tobytes(), table[name][good].tobytes(), name)
