# SPDX-License-Identifier: BSD-3-Clause
"""Fits with two libraries, of cool and of hot stars of MILES.  Each star gets the right library and
the row that this library alone gives.  Other jobs read the result."""

from common import *  # noqa: F403
from starmill.surveys import generic

MILES = data("real/miles/miles_v9.1_packed.fits.gz")
COOL, HOT = 1, 2  # LIBRARY
CONFIG = "arms: [{name: opt, min: 4750, max: 5250}]\nwave_mask: []\nwrite_interval: 0.1\nbinaries: true\n"
if not os.path.exists(MILES):
    skip(f"no test data at {MILES}")


class Several(EndToEnd):
    @classmethod
    def setUpClass(cls):
        with pyfits.open(MILES) as hdus:
            flux, card, table = hdus[0].data, hdus[0].header, hdus["LABELS"].data
            few = tmp("few.fits")
            hdus[0].data, hdus["LABELS"].data = flux[::4], table[::4]
            hdus.writeto(few)
        # the hot library has no label feh, and begins later
        cls.library = [tmp("cool.h5"), tmp("hot.h5")]
        for path, *options in ((cls.library[0], "--range", "4700,5300", "--keep", "teff=3500:8000"),
                               (cls.library[1], "--range", "4710,5300", "--keep", "teff=6000:20000",
                                "--labels", "teff=TEFF,logg=LOGG")):
            run("library", "spectra", *options, "--components", 12, "--left-out", 0, "--output",
                path, few)
        wave = card["CRVAL1"] + card["CDELT1"] * np.arange(flux.shape[1])
        keep = [i for i in range(1, len(flux), 4) if 3800 < table["TEFF"][i] < 18000
                and np.isfinite(table["LOGG"][i] + table["FEH"][i])][::4] * 4  # so many that a kill comes in time
        keep.append(469)  # a hot star, as two
        flux[469] = flux[469] + 0.8 * np.interp(wave * (1 - 450 / 299792.458), wave, flux[469])
        cls.teff = table["TEFF"][keep]
        cls.spectra = [dict(
            NAME=f"star{k}", TARGETID=k, WAVELENGTH=wave, FLUX=flux[i],
            IVAR=np.full(len(wave), (50 / np.median(flux[i])) ** 2),
            LSF_SIGMA=np.full(len(wave), 2.5 / 2.3548)) for k, i in enumerate(keep)]
        generic.write(tmp("stars.fits"), cls.spectra, "air")
        put("run.yaml", CONFIG)
        cls.both = cls.several("both.h5", "--models", tmp("both-models.h5"), "--threads", 2)

    @classmethod
    def command(cls, out, *args, library=None):
        libraries = [w for path in library or cls.library for w in ("--library", path)]
        return ["fit", *libraries, "--config", tmp("run.yaml"), "--quiet", "--output", tmp(out), *args,
                tmp("stars.fits")]

    @classmethod
    def several(cls, out, *args, **how):
        run(*cls.command(out, *args, library=how.pop("library", None)), **how)
        return read(tmp(out))

    def test_each_star_has_the_row_of_the_better_library(self):
        both = self.both
        self.assertEqual(set(both["STATUS"]), {FITTED})
        np.testing.assert_array_equal(both["LIBRARY"][self.teff < 5500], COOL)
        np.testing.assert_array_equal(both["LIBRARY"][self.teff > 8500], HOT)
        np.testing.assert_array_equal(np.isnan(both["FEH"]), both["LIBRARY"] == HOT)
        self.assertEqual((both["SB2"][-1], both["LIBRARY"][-1]), (1, HOT))
        self.assertTrue(np.isnan([both[name][both["LIBRARY"] == HOT] for name in ("FEH_2", "FEH_2_ERR")]).all())
        alone = [self.several(f"alone{k}.h5", "--models", tmp(f"models{k}.h5"), library=[path])
                 for k, path in enumerate(self.library)]
        models = [read(tmp(name), "models/opt")["flux"]
                  for name in ("both-models.h5", "models0.h5", "models1.h5")]
        for k in (COOL, HOT):
            own = both["LIBRARY"] == k
            for name, values in alone[k - 1].items():
                if name not in ("CRC", "COVAR"):  # of other columns, of fewer labels
                    self.assertEqual(values[own].tobytes(), both[name][own].tobytes(), (k, name))
            self.assertEqual(models[k][own].tobytes(), models[0][own].tobytes())
        own = both["LIBRARY"] == HOT  # elements `at` of COVAR are the hot library's; feh's are 0
        at = [0, 1, 2, 3, 5, 6, 7, 9, 10, 12]
        np.testing.assert_array_equal(both["COVAR"][own][:, at], alone[1]["COVAR"][own])
        np.testing.assert_array_equal(np.delete(both["COVAR"][own], at, 1), 0)
        # in the overlap Teff is no worse than by the worse library
        near = (self.teff > 6000) & (self.teff < 8000)
        error = [np.median(abs(t["TEFF"] - self.teff)[near]) for t in (both, *alone)]
        self.assertLessEqual(error[0], max(error[1:]))

    def test_a_star_that_the_second_library_cannot_fit_stops_nothing(self):
        """IVAR for flux in another unit is so small that some fits fail with either library."""
        k = np.nonzero(self.both["LIBRARY"] == HOT)[0][0]
        star = self.spectra[k]
        generic.write(tmp("faint.fits"), [star | dict(NAME=f"star{i}", TARGETID=i, IVAR=scale * star["IVAR"])
                                          for i, scale in enumerate([1, *np.logspace(-26, -24, 99)])], "air")
        run(*self.command("faint.h5")[:-1], tmp("faint.fits"))
        table = read(tmp("faint.h5"))
        failed = table["STATUS"] == FIT_FAILED
        self.assertTrue(failed.any())
        np.testing.assert_array_equal(table["STATUS"][~failed], FITTED)
        np.testing.assert_array_equal(table["LIBRARY"] == 0, failed)
        for name in ("COVAR", "TEFF", "LOGG", "FEH", "FEH_ERR"):
            self.assertTrue(np.isnan(table[name][failed]).all(), name)
        self.assertEqual(table["TEFF"][0], self.both["TEFF"][k])

    def test_rows_depend_on_neither_ranks_nor_slots_nor_kills(self):
        other = self.several("ranks.h5", "--threads", 1, "--slots", 3, ranks=2)
        self.assertEqual(differing(other, self.both), [])
        words = self.command("killed.h5", "--threads", 1, "--slots", 1)
        process = start(*words)
        wait_until(lambda: has_rows(tmp("killed.h5")), process)
        self.said_by(process, -signal.SIGKILL, signal.SIGKILL)
        self.assertIn(0, read(tmp("killed.h5"))["STATUS"])
        done = starmill(*self.command("killed.h5", library=self.library[:1]))
        self.assertOneLine(done, "killed.h5", "another library", status=4)
        run(*words)
        self.assertEqual(differing(read(tmp("killed.h5")), self.both), [])

    def test_a_sample_has_the_wavelengths_of_both(self):
        """It also has the priors, except of labels that the star's library lacks."""
        target = self.both["TARGETID"]
        bintable({"TARGETID": target} | {name: np.full(len(target), value) for name, value in (
            ("LOGG", 4.0), ("LOGG_ERR", 1.0), ("FEH", -0.2), ("FEH_ERR", 0.5))}).writeto(tmp("priors.fits"))
        priors = f"priors: [{{param: feh, mean: 0, sigma: 1}}]\nprior_table: {tmp('priors.fits')}\n"
        wide = put("wide.yaml", CONFIG.replace("4750", "4690") + priors)
        stars = [w for k in (COOL, HOT) for w in ("--object", int(self.both["TARGETID"][self.both["LIBRARY"] == k][0]))]
        fit, post = tmp("wide.h5"), tmp("wide-post.h5")
        run(*(wide if w == tmp("run.yaml") else w for w in self.command("wide.h5", *stars)))
        for k, path in enumerate(self.library):
            run("sample", "--fit", fit, "--library", path, "--ess", 100, "--overwrite", "--output", post, tmp("stars.fits"))
            self.assertIn(FITTED, read(post)["STATUS"], path)
        moved = shutil.move(self.library[1], tmp("moved.h5"))
        done = starmill("sample", "--fit", fit, "--overwrite", "--output", post, tmp("stars.fits"))
        shutil.move(moved, self.library[1])
        self.assertOneLine(done, self.library[1], "restore this library, or", status=3)

    def test_what_must_know_of_it(self):
        attrs = attributes(tmp("both.h5"), "fits/LIBRARY")
        self.assertEqual(attrs["HASHES"].split(), [attributes(path)["hash"] for path in self.library])
        self.assertEqual([os.path.basename(p) for p in attrs["MEANINGS"][1:]], [b"cool.h5", b"hot.h5"])
        done = starmill(*self.command("no.h5", library=self.library[::-1]))
        self.assertOneLine(done, "cool.h5 has the label feh", "first in the list", status=2)
        stars = [int(self.both["TARGETID"][self.both["LIBRARY"] == k][0]) for k in (COOL, HOT)]
        sample = ["sample", "--fit", tmp("both.h5"), "--ess", 100,
                  *(word for star in stars for word in ("--object", star)), "--output", tmp("post.h5"), tmp("stars.fits")]
        self.assertOneLine(starmill(*sample, *(w for p in self.library for w in ("--library", p))),
                           "choose it by --library", status=2)
        for given, says, status in (((), f"the stars fitted with {self.library[0]}", (FITTED, NO_FIT)),
                                    (("--library", self.library[1]), "", (NO_FIT, FITTED))):
            done = run(*sample, *given, "--overwrite")
            self.assertIn(says, done.stderr)
            self.assertIn("0 not found, 1 fitted with another --library, 0 without finite", done.stderr)
            self.assertRegex(done.stdout, r"POST_FLAG +rows with each bit:\n  [A-Z_]+ +1 ")
            post = read(tmp("post.h5"))
            self.assertEqual(dict(zip(post["TARGETID"], post["STATUS"])), dict(zip(stars, status)))
