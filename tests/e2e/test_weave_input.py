# SPDX-License-Identifier: BSD-3-Clause
"""WEAVE input: L1 files written by astropy, the blue and the red arm of a field apart; and 4MOST's.

The same pixels are given once as WEAVE files (or 4MOST's) and once in the generic layout; the fits
of the two must agree bit for bit.  Needs no test data.
"""

from base import *
from starmill.surveys import generic

try:
    import matplotlib.image
except ImportError:
    matplotlib = None

N_STAR = 3
N_FIBER = 6
FIBERS = (0, 2, 5)  # of the stars; the others look at the sky or at nothing
ARMS = {"BLUE": "B", "RED": "R"}
SENS = 0.5  # a power of two, so that nothing is rounded
STEP_AA = 0.75
CONFIG = """lsf: resolving_power
resolving_power: 3000
wave_mask: []
arms:
  - {name: b, channel: blue}
  - {name: r, channel: red}
"""


class Test(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.lib, cls.desi = coarse_survey(N_STAR)
        cls.config = put("weave.yaml", CONFIG)
        cls.pixels = {arm: cls.resample(arm) for arm in ARMS}
        cls.paths = [cls.write(arm) for arm in ARMS]

    @classmethod
    def resample(cls, arm):
        """Wavelengths linear in steps that binary numbers hold, flux and ivar of the stars."""
        with pyfits.open(cls.desi) as f:
            x = ARMS[arm]
            wave = f[f"{x}_WAVELENGTH"].data.astype(float)
            start = np.ceil(wave[0])
            grid = start + STEP_AA * np.arange(int((wave[-1] - start) / STEP_AA))
            flux = np.array([np.interp(grid, wave, row) for row in f[f"{x}_FLUX"].data])
            good = (f[f"{x}_MASK"].data == 0) * f[f"{x}_IVAR"].data
            ivar = np.array([np.interp(grid, wave, row) for row in good])
        return grid, flux.astype("f4"), ivar.astype("f4")

    @classmethod
    def write(cls, arm):
        grid, flux, ivar = cls.pixels[arm]
        data = np.full((N_FIBER, grid.size), 1000.0, "f4")
        weight = np.ones_like(data)
        for i, fiber in enumerate(FIBERS):
            data[fiber], weight[fiber] = flux[i] / SENS, ivar[i] * SENS**2
        name = np.array([f"WVE_{i:08d}+0000000" for i in range(N_FIBER)])
        table = bintable({
            "Nspec": ("J", np.arange(N_FIBER) + 1), "FIBREID": ("J", np.arange(N_FIBER) + 101), "CNAME": ("20A", name),
            "TARGID": ("30A", ["x"] * N_FIBER), "TARGRA": np.linspace(10, 11, N_FIBER),
            "TARGDEC": np.linspace(-1, 1, N_FIBER), "STATUS": ("1A", list("AAAPAA")), "TARGUSE": ("1A", list("TSTTST")),
            "TARGCAT": ("30A", ["GA_LRdisc", "", "GA_LRhighlat", "", "", "GA_HRdisc"])}, "FIBTABLE")
        hdus = [pyfits.PrimaryHDU()]
        for what, image in (("DATA", data), ("IVAR", weight), ("DATA_NOSS", data), ("IVAR_NOSS", weight),
                            ("SENSFUNC", np.full_like(data, SENS))):
            hdus.append(pyfits.ImageHDU(image, name=f"{arm}_{what}"))
            if what != "SENSFUNC":
                hdus[-1].header.update(CTYPE1="WAVE", CUNIT1="Angstrom", CRPIX1=1.0, CRVAL1=grid[0], CD1_1=STEP_AA)
        path = tmp(f"stack_{arm.lower()}.fit")
        pyfits.HDUList(hdus + [table]).writeto(path, overwrite=True)
        return path

    def write_4most(self):
        """The blue arm as a container of 4MOST, in physical units."""
        grid, flux, ivar = self.pixels["BLUE"]
        n = grid.size
        data = np.ones((N_FIBER, n))
        weight = np.ones_like(data)
        for i, fiber in enumerate(FIBERS):
            data[fiber], weight[fiber] = flux[i].astype(float) / 1e17, ivar[i].astype(float) * 1e34
        spectra = bintable({"FLUX": (f"{n}D", data), "FLUX_IVAR": (f"{n}D", weight),
                            "QUAL": (f"{n}I", np.zeros((N_FIBER, n)))}, "SPECTAB")
        spectra.header.update({"1CTYP1": "WAVE", "1CUNI1": "Angstrom", "1CRPX1": 1.0,
                               "1CRVL1": grid[0], "1CDLT1": STEP_AA})
        target = bintable({"OBJ_NME": ("20A", [f"QMST_{i}" for i in range(N_FIBER)]),
                           "FIB_ST": ("I", [2, 2, 2, 1, 2, 2]), "FIB_USE": ("I", [1, 3, 1, 1, 3, 2])}, "FIBMETATAB")
        pyfits.HDUList([pyfits.PrimaryHDU(), spectra, target]).writeto(tmp("20261126_LB11_1.fits"))
        return tmp("20261126_LB11_1.fits")

    def generic(self, out, arms, *options):
        rows = []
        for i, fiber in enumerate(FIBERS):
            for arm in arms:
                grid, flux, ivar = self.pixels[arm]
                rows.append({"NAME": f"star-{fiber}", "ARM": arm, "WAVELENGTH": grid,
                             "FLUX": flux[i], "IVAR": ivar[i]})
        path = tmp(out + ".fits")
        generic.write(path, rows, "vacuum")
        self.fit(out + ".h5", "--config", self.config, *options, path, lib=self.lib)
        return read(self.path)

    def check_shown(self, out, models, arms):
        """What `starmill plot` draws are the pixels of the files, and the models of the fit."""
        from starmill.products.models import Models
        from starmill.products.result import Result
        from starmill.surveys.spectra import Inputs
        result = Result(tmp(out))
        catalog = read(tmp(out), "catalog")
        for row in range(N_STAR):
            first = catalog["FIRST_EXPOSURE"][row]
            shown, _ = Inputs(result).star(row, Models(models, result).of(row))
            self.assertEqual([a.name for a in shown], [ARMS[arm].lower() for arm in arms])
            for arm, drawn in zip(arms, shown):
                grid, flux, ivar = self.pixels[arm]
                with h5py.File(models) as f:
                    model = f[f"models/{drawn.name}/flux"][first:first + catalog["N_EXPOSURE"][row]]
                model = model[np.isfinite(model).any(axis=1)][0]  # a file of WEAVE has one arm
                at = np.searchsorted(grid, drawn.wave)  # those that were fitted
                self.assertEqual(np.count_nonzero(np.isfinite(model)), at.size)
                np.testing.assert_array_equal(grid[at], drawn.wave)
                np.testing.assert_array_equal(flux[row][at], drawn.flux)
                np.testing.assert_array_equal(ivar[row][at], drawn.ivar)
                np.testing.assert_array_equal(ivar[row][at] > 0, ~drawn.bad)
                np.testing.assert_array_equal(model[np.isfinite(model)], drawn.model)

    def test_what_is_drawn_is_what_the_files_have(self):
        self.generic("drawn", list(ARMS), "--models", tmp("drawn-models.h5"))
        self.check_shown("drawn.h5", tmp("drawn-models.h5"), list(ARMS))
        for arm, path in zip(ARMS, self.paths):
            out, models = f"drawn-{arm}.h5", tmp(f"drawn-models-{arm}.h5")
            self.fit(out, "--config", self.config, "--models", models, path, lib=self.lib)
            self.check_shown(out, models, [arm])
        if not matplotlib:
            self.skipTest("no matplotlib (Debian: python3-matplotlib)")
        name = read(tmp(out), "catalog")["IDENTIFIER"][1].decode()
        run("plot", tmp(out), name, "--output", tmp("drawn.png"))
        self.assertGreater(matplotlib.image.imread(tmp("drawn.png")).shape[1], 1300)

    def test_one_arm(self):
        expected = self.generic("blue", ["BLUE"])
        self.fit("weave.h5", "--config", self.config, self.paths[0], lib=self.lib)
        table, catalog = read(self.path), read(self.path, "catalog")
        self.assertIn(FITTED, table["STATUS"])
        self.assertEqual(differing(table, expected), [])
        names = [n.decode().rstrip("\0") for n in catalog["OBJECT"]]
        self.assertEqual(names, [f"WVE_{i:08d}+0000000" for i in FIBERS])
        np.testing.assert_array_equal(catalog["FIBER"], np.array(FIBERS) + 101)
        self.fit("4most.h5", "--config", self.config, "--models", tmp("4most-models.h5"),
                 self.write_4most(), lib=self.lib)
        self.assertEqual(differing(read(self.path), expected), [])
        self.check_shown("4most.h5", tmp("4most-models.h5"), ["BLUE"])

    def test_both_arms_by_name(self):
        expected = self.generic("both", ["BLUE", "RED"])
        put("join.yaml", CONFIG + "join_by_name: true\n")
        self.fit("joined.h5", "--config", tmp("join.yaml"), "--models", tmp("joined-models.h5"),
                 *self.paths, lib=self.lib)
        table = read(self.path)
        self.assertEqual(len(table["VRAD"]), N_STAR)
        self.assertEqual(differing(table, expected), [])
        self.check_shown("joined.h5", tmp("joined-models.h5"), list(ARMS))

    def test_surveys_within_weave(self):
        for classes, fibers in (("GA_LRhighlat,GA_LRdisc", [0, 2]), ("GA_.*disc", [0, 5]),
                                ("GA_HR", [5])):
            self.fit("survey.h5", "--overwrite", "--config", self.config, "--target-class", classes,
                     self.paths[0], lib=self.lib)
            np.testing.assert_array_equal(read(self.path, "catalog")["FITS_ROW"], fibers)
