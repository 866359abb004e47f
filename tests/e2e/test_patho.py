# SPDX-License-Identifier: BSD-3-Clause
"""One defect a row: what has something to fit is fitted, what is bad is flagged and named."""

from common import *  # noqa: F403

NOT_SELECTED = None

# What a row with a meaningless fit may carry besides the warnings that name its defect.
MEANINGLESS = {"CHISQ", "NO_STAR", "VEL_LIMIT", "VEL_ERR", "LABEL_EDGE", "VSINI", "BAD_HESSIAN", "HULL",
               "NOT_CONVERGED"}

# KIND: STATUS, warnings that must be set, others that may be, arms that are dropped.
# Rows without warnings carry usable spectra of a star, however many pixels or
# arms are missing, and must come out right.
PATHO = {
    "clean": (FITTED, set(), set(), ""),
    "clean2": (FITTED, set(), set(), ""),
    "b_all_masked": (FITTED, set(), set(), "B"),
    "z_all_nan": (FITTED, set(), set(), "Z"),
    "r_zero_flux": (FITTED, set(), set(), "R"),
    "b_ivar_zero": (FITTED, set(), set(), "B"),
    "nan_run": (FITTED, set(), set(), ""),
    "inf_pixels": (FITTED, set(), set(), ""),
    "nan_ivar": (FITTED, set(), set(), ""),
    "half_masked": (FITTED, set(), set(), ""),
    "restricted_ok": (FITTED, set(), set(), ""),  # fiber status bit 3, which is allowed
    # all arms sign-flipped: the continuum takes the sign, and the star is found
    "negative_median": (FITTED, {"NEGATIVE"}, set(), ""),
    # one arm sign-flipped: no model follows both signs
    "b_negative_median": (FITTED, {"NEGATIVE"}, MEANINGLESS | {"POOR_FIT"}, ""),
    # no star: a template gains nothing over the continuum
    "pure_noise": (FITTED, {"CHISQ"}, MEANINGLESS, ""),
    # one pixel of 1e9 with an ordinary error
    "tiny_ivar_huge_pix": (FITTED, {"OUTLIER", "POOR_FIT"}, MEANINGLESS | {"NEGATIVE"}, ""),
    "sky_fibre": (NOT_SELECTED, set(), set(), ""),
    "bad_fiberstatus": (NOT_SELECTED, set(), set(), ""),
}
NOGOOD = {
    # HULL: the fit of one of the three lies at [alpha/Fe] = 0.0001 +- 0.026, where the library ends
    "star": (FITTED, set(), {"HULL"}, ""),
    "all_arms_masked": (NO_ARM, {"BAD_SPECTRUM"}, set(), "BRZ"),
    "all_nan": (NO_ARM, {"BAD_SPECTRUM"}, set(), "BRZ"),
    "all_zero": (NO_ARM, {"BAD_SPECTRUM"}, set(), "BRZ"),
}


def names_of(path, column):
    """A function that turns a value of RVS_WARN or FIT_INFO into a set of names."""
    with h5py.File(path) as f:
        attributes = f["fits/" + column].attrs
        bits = {int(b): n.decode() for n, b in zip(attributes["NAMES"], attributes["BITS"])}

    def names(value):
        found = {name for bit, name in bits.items() if value & bit}
        assert sum(bit for bit in bits if value & bit) == value, f"unknown bits in {value}"
        return found

    return names


class Patho(EndToEnd):
    def fit_set(self, name, expected, *args, **how):
        """Fit a set and compare every row with its line of the table."""
        with pyfits.open(data(f"sim/truth-dev-{name}.fits")) as hdus:
            truth = hdus[1].data.copy()
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
                facts = infos(int(table["FIT_INFO"][row]))
                self.assertEqual("ARM_DROPPED" in facts, dropped != "")
                if status == FITTED and needed <= {"NEGATIVE"} and not more:
                    self.assertRight(table, row, truth[i])
        return done, table

    def assertRight(self, table, row, true):
        """A usable spectrum of a star gives the star, within five errors and the
        accuracy of the emulator at high S/N."""
        floor = {"VRAD": 0.2, "TEFF": 10.0, "LOGG": 0.05, "FEH": 0.05, "ALPHAFE": 0.03}
        for name, least in floor.items():
            limit = 5.0 * np.hypot(table[name + "_ERR"][row], least)
            off = table[name][row] - true[name]
            self.assertLess(abs(off), limit, f"{name} off by {off}")

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
