# SPDX-License-Identifier: BSD-3-Clause
"""Fits of simulated stars with several epochs, and of pairs of stars in one spectrum.  They find
the true velocities and set the right flags.  A single star at one velocity gives no alarm."""

import types

from base import *  # noqa: F403
from scipy.stats import chi2
import pair_survey
from starmill.products.models import open_models
from starmill.products.result import Result

EPOCHS_DIFFER = 2048
MJD = 59000.1, 59000.3, 59001.2, 59001.25  # of two nights
N_EPOCH, FLOOR = len(MJD), 1.5
# semi-amplitudes; with the last two, lines of different epochs do not overlap
AMPLITUDE = np.array([0] * 6 + [40] * 2 + [200] * 2)
JOIN = tmp("join.yaml")


def scale_ivar(paths, factor):
    for path in paths:
        with pyfits.open(path, mode="update") as hdus:
            for arm in "BRZ":
                hdus[f"{arm}_IVAR"].data *= np.float32(factor)


def visits(out, more, *args, epochs="exposure", **how):
    """Fit with the keys `epochs` and `more`; return the rows."""
    put("fit.yaml", f"join_by_name: true\nepochs: {epochs}\n{more}")
    run("fit", "--library", coarse_library(), "--output", tmp(out), "--config", tmp("fit.yaml"), *args, **how)
    return read(tmp(out))


class Epochs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        random = np.random.default_rng(4)
        phase = np.array([0.0, 0.25, 0.5, 0.75]) + random.uniform(0, 1, (len(AMPLITUDE), 1))
        systemic = random.normal(0, 50, (len(AMPLITUDE), 1))
        cls.velocity = systemic + AMPLITUDE[:, np.newaxis] * np.sin(2 * np.pi * phase)
        cls.files, cls.stars = pair_survey.make_epochs(
            tmp("stars"), os.environ["STARMILL"], cls.velocity, MJD, library=coarse_library(),
            sn="20,60", vsini="1,8")
        put(JOIN, "join_by_name: true\n")
        cls.joint = visits("joint.h5", "", *cls.files, epochs="none")
        cls.row = visits("epochs.h5", "", *cls.files)
        cls.path = tmp("epochs.h5")
        cls.of = cls.by_star(cls.path)
        visits("nights.h5", f"epoch_floor: {FLOOR}\n", *cls.files, epochs="night")

    @classmethod
    def by_star(cls, path):
        """Columns of /epochs [n_star][N_EPOCH], in the order of the files."""
        catalog, exposures = read(path, "catalog"), read(path, "catalog/exposures")
        at = catalog["FIRST_EXPOSURE"][:, np.newaxis] + np.arange(N_EPOCH)
        assert (catalog["N_EXPOSURE"] == N_EPOCH).all() and (exposures["FILE"][at] == range(N_EPOCH)).all()
        return {k: v[at] for k, v in {**exposures, **read(path, "epochs")}.items()}

    def test_velocities_are_true(self):
        """Differences from a star's mean velocity, which model errors shift, are within 5 errors:
        in 40 values chance does not exceed that."""
        self.assertTrue((self.row["STATUS"] == FITTED).all())
        np.testing.assert_array_equal(self.of["EPOCH_FLAG"], 0)
        off, weight = self.of["VRAD"] - self.velocity, self.of["VRAD_ERR"] ** -2
        off -= ((weight * off).sum(axis=1) / weight.sum(axis=1))[:, np.newaxis]
        pull = off / self.of["VRAD_ERR"]
        self.assertLess(np.abs(pull).max(), 5)
        # 1e-4 of either tail of a chi-square
        low, high = chi2.ppf((1e-4, 1 - 1e-4), pull.size - len(pull))
        self.assertGreater((pull**2).sum(), low)
        self.assertLess((pull**2).sum(), high)
        np.testing.assert_array_equal(self.of["MJD"], np.tile(MJD, (len(AMPLITUDE), 1)))
        np.testing.assert_array_equal(self.of["EPOCH"], np.tile(range(N_EPOCH), (len(AMPLITUDE), 1)))

    def test_columns_say_what_the_epochs_do(self):
        """Against SciPy; the sums are of float64, so only their order differs."""
        for path, columns, floor in (self.path, slice(None), 0), (tmp("nights.h5"), [0, 2], FLOOR):
            row, of = read(path), self.by_star(path)
            v, w = of["VRAD"][:, columns], 1 / (of["VRAD_ERR"][:, columns] ** 2 + floor**2)
            mean = (w * v).sum(axis=1) / w.sum(axis=1)
            chisq = (w * (v - mean[:, np.newaxis]) ** 2).sum(axis=1)
            np.testing.assert_allclose(row["VRAD_CHI2"], chisq, rtol=1e-9)
            np.testing.assert_allclose(row["VRAD_PVAL"], chi2.sf(chisq, v.shape[1] - 1), rtol=1e-9)
            np.testing.assert_allclose(row["VRAD_RANGE"], np.ptp(v, axis=1), rtol=1e-12)
            np.testing.assert_array_equal(row["N_EPOCH"], v.shape[1])
            differs = row["FIT_INFO"] & EPOCHS_DIFFER > 0
            mean = np.average(v, axis=1, weights=of["VRAD_ERR"][:, columns] ** -2)
            off = (row["VRAD"] - mean) / row["VRAD_ERR"]  # the likelihoods are nearly parabolas
            self.assertLess(np.abs(off[differs]).max(), 0.2)

    def test_stars_whose_velocity_is_constant_keep_their_rows(self):
        differs = self.row["FIT_INFO"] & EPOCHS_DIFFER > 0
        np.testing.assert_array_equal(differs, AMPLITUDE > 0)
        more = set(self.row) - set(self.joint)  # of epochs
        self.assertEqual(differing(self.joint, self.row, ~differs, {"CRC", "NEVAL", *more}), [])

    def test_lines_of_binaries_are_not_broadened(self):
        """With a velocity per epoch, -2 ln L of binaries is much lower than with one velocity, and
        the orbit does not raise v sin i.  The true v sin i, at most 8 km/s, is hardly resolved."""
        binary = AMPLITUDE > 0
        self.assertTrue((self.row["M2LL"][binary] < self.joint["M2LL"][binary] - 20).all())
        self.assertLess(self.row["VSINI"][binary].max(), 25)
        self.assertGreater(self.joint["VSINI"][AMPLITUDE == 200].min(), 60)
        pull = (self.row["TEFF"] - self.stars.label[:, 0]) / self.row["TEFF_ERR"]
        self.assertLess(np.abs(pull).max(), 5)

    def test_arms_of_an_exposure_in_two_files_are_one_epoch(self):
        parts = []
        for k, path in enumerate(self.files[:2]):
            for left_out in "B", "RZ":
                parts.append(tmp(f"arm-{k}-without-{left_out}.fits"))
                with pyfits.open(path) as hdus:
                    pyfits.HDUList([h for h in hdus if h.name[:2] not in [x + "_" for x in left_out]
                                    and h.name != "SCORES"]).writeto(parts[-1])
        for out, files in ("whole.h5", self.files[:2]), ("arms.h5", parts):
            done = run("fit", "--config", JOIN, "--library", coarse_library(), "--epochs", "exposure",
                       "--output", tmp(out), *files)
            self.assertNotIn("have no time", done.stderr)
        whole, arms = read(tmp("whole.h5")), read(tmp("arms.h5"))
        np.testing.assert_array_equal(arms["N_EPOCH"], 2)
        np.testing.assert_array_equal(read(tmp("arms.h5"), "epochs")["EPOCH"], [0, 0, 1, 1] * len(AMPLITUDE))
        # the same spectra in another order: sums differ in their last digits, fits by 0.01 errors
        np.testing.assert_allclose(arms["VRAD_CHI2"] ** 0.5, whole["VRAD_CHI2"] ** 0.5, atol=0.05, rtol=1e-3)
        for path in parts[:2]:
            with pyfits.open(path, mode="update") as hdus:
                hdus["FIBERMAP"].data["MJD"] = np.nan
        done = run("fit", "--config", JOIN, "--library", coarse_library(), "--epochs", "exposure", "--object",
                   self.row["TARGETID"][0], "--output", tmp("untimed.h5"), *parts[:2])
        self.assertIn("epochs: 3 spectra have no time", done.stderr)
        np.testing.assert_array_equal(read(tmp("untimed.h5"))["N_EPOCH"], 2)

    def test_rows_of_one_exposure_have_no_epochs(self):
        for i, args in enumerate((("--config", JOIN), ())):
            done = run("fit", *args, "--library", coarse_library(), "--epochs", "exposure", "--plan",
                       "--output", tmp("plan.h5"), *self.files)
            self.assertEqual("no row has more than one exposure" in done.stderr, i == 1)

    def test_nights(self):
        of = self.by_star(tmp("nights.h5"))
        np.testing.assert_array_equal(of["EPOCH"], np.tile((0, 0, 1, 1), (len(AMPLITUDE), 1)))
        constant = AMPLITUDE == 0
        for night in (0, 2):  # one velocity, that of its two exposures together
            v, err = (of[name][constant, night] for name in ("VRAD", "VRAD_ERR"))
            np.testing.assert_array_equal(of["VRAD"][constant, night + 1], v)
            w = self.of["VRAD_ERR"][constant, night:night + 2] ** -2
            mean = (w * self.of["VRAD"][constant, night:night + 2]).sum(axis=1) / w.sum(axis=1)
            # likelihoods are parabolas within 0.1 errors, so the night's velocity is the mean
            np.testing.assert_allclose((v - mean) / err, 0, atol=0.1)
            np.testing.assert_allclose(err, w.sum(axis=1) ** -0.5, rtol=0.05)

    def test_the_floor_moves_no_velocity(self):
        """The floor changes only VRAD_CHI2 and VRAD_PVAL, also where the epochs' errors differ."""
        row = visits("floor.h5", f"epoch_floor: {FLOOR}\n", *self.files)
        self.assertLessEqual(set(differing(self.row, row)), {"VRAD_CHI2", "VRAD_PVAL", "CRC"})
        self.assertEqual(differing(read(self.path, "epochs"), read(tmp("floor.h5"), "epochs")), [])

    def test_noise_does_not_move_a_constant_star(self):
        """The first exposure is noise alone, and all errors are too small by a factor of 5: the
        other velocities stay within 5 of the true errors."""
        random, files = np.random.default_rng(9), [tmp(f"noise-{i}.fits") for i in range(N_EPOCH)]
        for i, (path, other) in enumerate(zip(self.files, files)):
            with pyfits.open(path) as hdus:
                for arm in "BRZ":
                    flux, ivar = hdus[f"{arm}_FLUX"].data, hdus[f"{arm}_IVAR"].data
                    if i == 0:
                        flux[:] = random.normal(size=flux.shape) / np.sqrt(np.maximum(ivar, 1e-30))
                    ivar *= 25
                hdus.writeto(other)
        ids = [a for star in self.row["TARGETID"][AMPLITUDE == 0] for a in ("--object", star)]
        row = visits("noise.h5", "rescale_errors: true\n", *ids, *files)
        of = self.by_star(tmp("noise.h5"))
        np.testing.assert_array_equal(row["FIT_INFO"] & EPOCHS_DIFFER, 0)
        self.assertGreater(row["VRAD_PVAL"].min(), 1e-4)
        lost = np.isnan(of["VRAD"])
        np.testing.assert_array_equal(of["EPOCH_FLAG"], 2 * lost)  # NO_MINIMUM
        self.assertFalse(lost[:, 1:].any())
        off = (of["VRAD"] - self.velocity[AMPLITUDE == 0])[:, 1:]
        self.assertLess(np.abs((off - off.mean(axis=1, keepdims=True)) / of["VRAD_ERR"][:, 1:]).max(), 5)

    def test_two_ranks_give_the_same_bits(self):
        visits("ranks.h5", "", *self.files, ranks=2)
        for group in "fits", "epochs", "catalog", "catalog/exposures":
            self.assertEqual(differing(read(self.path, group), read(tmp("ranks.h5"), group)), [])

    def test_a_damaged_epoch_is_fitted_again(self):
        with h5py.File(shutil.copy(self.path, tmp("damaged.h5")), "r+") as f:
            f["epochs/VRAD"][int(f["catalog/FIRST_EXPOSURE"][5]) + 2] += 1e-3
        done = starmill("status", tmp("damaged.h5"))
        self.assertIn("1 row (5) is damaged", done.stdout + done.stderr)
        done = starmill("merge", "--output", tmp("none.h5"), tmp("damaged.h5"))
        self.assertNotEqual(done.returncode, 0)
        visits("damaged.h5", "", *self.files)
        for group in "fits", "epochs":
            self.assertEqual(differing(read(self.path, group), read(tmp("damaged.h5"), group)), [])

    def test_merge_export_and_report(self):
        run("merge", "--output", tmp("merged.h5"), self.path)
        self.assertEqual(differing(read(self.path, "epochs"), read(tmp("merged.h5"), "epochs")), [])
        for says in "time", "existing":
            done = run("export", "--to", "epochs", "--output", tmp("epochs.fits"), tmp("merged.h5"))
            self.assertIn(f"rows         {self.of['VRAD'].size}\n{says}", done.stdout)
        with pyfits.open(tmp("epochs.fits")) as hdus:
            table = hdus["EPOCHS"].data
            self.assertEqual(hdus["EPOCHS"].header["EPOCH03"], "EXCHANGEABLE")
            for name in "VRAD", "VRAD_ERR", "SN", "MJD", "EXPID", "EPOCH", "FITS_ROW":
                np.testing.assert_array_equal(table[name].reshape(-1, N_EPOCH), self.of[name], name)
            targets = [pyfits.getdata(path, "FIBERMAP")["TARGETID"] for path in hdus["FILES"].data["PATH"]]
            self.assertEqual([targets[file][row] for file, row in zip(table["FILE"], table["FITS_ROW"])],
                             table["TARGETID"].tolist())
            for name in "TEFF", "TARGETID", "VRAD_PVAL":
                np.testing.assert_array_equal(table[name].reshape(-1, N_EPOCH).T[1], self.row[name])
        done = self.ends(2, "export", "--to", "epochs", "--output", tmp("x.fits"), tmp("joint.h5"))
        self.assertIn("fit with --epochs", done.stderr)
        shown = run("show", self.path, self.row["TARGETID"][0]).stdout.split("\nepochs\n")[1].split("\n")
        self.assertEqual([line.split()[2] for line in shown[1:1 + N_EPOCH]],
                         [f"{v:.9g}" for v in self.of["VRAD"][0]])
        np.testing.assert_allclose([float(line.split()[1]) for line in shown[1:1 + N_EPOCH]],
                                   self.of["MJD"][0], rtol=0, atol=1e-6)  # 0.1 s
        refitted = open_models(Result(self.path), [0], types.SimpleNamespace(
            models=None, library=None, program=STARMILL)).of(0)
        self.assertEqual(len(refitted), N_EPOCH)
        with without_pictures():
            run("report", "--no-spectra", "--output", tmp("epochs.html"), self.path)
        good = self.row["RVS_WARN"] == 0
        n, low = good.sum(), (good & (self.row["VRAD_PVAL"] < 1e-3)).sum()
        with open(tmp("epochs.html"), encoding="utf-8") as f:
            self.assertTrue(f"{low} of them ({100 * low / n:.1f} %) a constant velocity" in f.read())


class FaintEpochs(ProgramTest):
    def test_far_velocities_are_found(self):
        """An epoch's far velocity is found, even if VRAD has a prior or if errors are too large."""
        far = np.array([60.0, 70, 80, 90, 100, 120, 140, 160] * 3)
        velocity = np.outer(far, [0, 0, 0, 0, 1])
        files, _ = pair_survey.make_epochs(tmp("faint"), os.environ["STARMILL"], velocity, seed=5,
                                           library=coarse_library(), sn="4,6", vsini="1,5")
        for ivar, more in (1, "priors: [{param: vrad, mean: 0, sigma: 0.1}]\n"), (0.5, ""):
            scale_ivar(files, ivar)
            visits("faint.h5", more, "--overwrite", *files)
            of = read(tmp("faint.h5"), "epochs")
            v, err = of["VRAD"].reshape(-1, 5), of["VRAD_ERR"].reshape(-1, 5)
            off = v[:, 4] - np.average(v[:, :4], axis=1, weights=err[:, :4] ** -2) - far
            self.assertLess(np.abs(off / err[:, 4]).max(), 4.5, more)  # in 24 values, chance is less


PAIR, PAIRS = 4096, "binaries: true\n"
# velocity differences: wider than the coarse library's lines, narrower, and single stars
APART = np.array([250.0, -200, 150, 120, -300, 180] + [60.0] * 2 + [0.0] * 8)
RATIO = np.array([0.9, 0.5, 0.3, 0.7, 0.25, 0.6] + [0.8] * 2 + [0.0] * 8)
# arms whose wavelengths are off, km/s
OFFSET = {"R": 25.0, "Z": -40.0}
# three exposures of each star: pairs that move against each other, a pair at constant velocities,
# single stars that move, and single stars that do not
N_VISIT = 3
EPOCHS_RATIO = np.array([0.5, 0.6, 0.7, 0, 0.6] + [0.0] * 5)
SWING = np.array([150.0, 180, 120, 0, 0, 80, 60] + [0.0] * 3)
CONSTANT = np.array([0.0] * 4 + [220.0] + [0.0] * 5)


class Pairs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.library, cls.coadd = coarse_library(), tmp("pairs/coadd.fits")
        cls.stars, cls.others = pair_survey.make(
            cls.coadd, os.environ["STARMILL"], APART, RATIO, library=cls.library, sn="30,60",
            vsini="1,8", seed=3)
        pair_survey.move_arms(cls.coadd, OFFSET)
        cls.one, cls.row = cls.fit("one.h5", "false"), cls.fit("pairs.h5", "true")

    @classmethod
    def fit(cls, out, binaries, sigma=30, more="", **how):
        put("offsets.yaml", f"velocity_offsets: true\nvelocity_offset_sigma: {sigma}\nbinaries: {binaries}\n"
            + more)
        run("fit", "--library", cls.library, "--output", tmp(out), "--config", tmp("offsets.yaml"),
            cls.coadd, **how)
        return read(tmp(out))

    def test_both_stars_are_found(self):
        """Pulls of both stars' velocities and labels, and of offsets, are below 4.5: in 100 values
        chance does not exceed that."""
        found = self.row["SB2"] == 1
        np.testing.assert_array_equal(found[:6], True)
        np.testing.assert_array_equal(found[8:], False)
        np.testing.assert_array_equal(self.row["FIT_INFO"] & PAIR > 0, found)
        pulls = []
        for first, second, i in (("VRAD", "VRAD_2", None), ("TEFF", "TEFF_2", 0), ("FEH", "FEH_2", 2)):
            truth = [one.vrad_km_s if i is None else one.label[:, i] for one in (self.stars, self.others)]
            turned = np.abs(self.row["VRAD"] - self.stars.vrad_km_s) > 0.5 * np.abs(APART)
            for name, mine, other in (first, *truth), (second, *truth[::-1]):
                off = self.row[name] - np.where(turned, other, mine)
                pulls.append((off / self.row[name + "_ERR"])[found])
        for arm, truth in OFFSET.items():
            off = self.row[f"VRAD_OFFSET_{arm}"] - truth
            pulls.append((off / self.row[f"VRAD_OFFSET_{arm}_ERR"])[found])
        self.assertLess(np.abs(pulls).max(), 4.5)
        gain = self.one["M2LL"] - self.row["M2LL"]
        np.testing.assert_allclose(self.row["SB2_GAIN"][found], gain[found], rtol=1e-3)
        for name in "SB2_GAIN", "VRAD_2", "TEFF_2", "FLUX_RATIO_R":
            np.testing.assert_array_equal(np.isfinite(self.row[name]), found)

    def test_a_figure_shows_one_star(self):
        from starmill import Library
        star = Library(self.library, format="desi", binaries=True).open(self.coadd)[0]
        with contextlib.suppress(ImportError):  # of matplotlib
            self.assertRaisesRegex(ValueError, "two stars", star.plot)

    def test_ratio_of_fluxes(self):
        """RATIO and FLUX_RATIO_R are ratios in arm r. S/N 30 to 60 leave some per cent of error."""
        found = self.row["SB2"] == 1
        turned = np.abs(self.row["VRAD"] - self.stars.vrad_km_s) > 0.5 * np.abs(APART)
        true = np.where(turned, 1 / np.maximum(RATIO, 1e-9), RATIO)
        off = (self.row["FLUX_RATIO_R"] - true)[found]
        self.assertLess(np.abs(off / np.hypot(self.row["FLUX_RATIO_R_ERR"][found],
                                              0.05 * true[found])).max(), 5)

    def test_arms_that_differ(self):
        """VRAD_ARMS_PVAL follows its definition.  Arms of shifted wavelengths get ARMS_DIFFER
        only if the prior's sigma of arms' velocity offsets is too small for the shift."""
        for row, sigma in (self.one, 30), (self.fit("same.h5", "false", sigma=0.01), 0.01):
            v = np.array([row[f"VRAD_{arm}"] for arm in "BRZ"])
            err = [np.hypot(row[f"VRAD_{arm}_ERR"], 3) for arm in "BRZ"]
            weight = np.array([err[0], np.hypot(err[1], sigma), np.hypot(err[2], sigma)]) ** -2
            known = np.isfinite(v * weight)  # an arm has no velocity if its search ended at a limit
            v, weight = np.where(known, [v, weight], 0)
            chisq = (weight * (v - (weight * v).sum(0) / weight.sum(0)) ** 2).sum(0)
            n = known.sum(0)
            np.testing.assert_allclose(row["VRAD_ARMS_PVAL"],
                                       np.where(n > 1, chi2.sf(chisq, n - 1), np.nan), rtol=1e-6)
            differ = (row["RVS_WARN"] & 262144) != 0  # ARMS_DIFFER
            np.testing.assert_array_equal(differ, row["VRAD_ARMS_PVAL"] < 1e-6)
            self.assertEqual(differ.any(), sigma < 1)
            self.assertFalse(row["VRAD_GOOD"][differ].any())

    def test_single_stars_keep_their_rows(self):
        single = self.row["SB2"] == 0
        more = set(self.row) - set(self.one)  # of pairs
        self.assertEqual(differing(self.one, self.row, single, {"CRC", *more}), [])

    def test_report_and_export(self):
        found = np.flatnonzero(self.row["SB2"] == 1)
        with without_pictures():
            run("report", "--no-spectra", tmp("pairs.h5"))
        page = content(tmp("pairs.h5.html"), "r")
        self.assertIn(f"{len(found)} rows are fitted as two stars ({100 * len(found) / len(APART):.1f} %", page)
        for row in found:
            self.assertIn(f'data-key="pair-gain-{row}"', page)
        run("export", "--output", tmp("products"), tmp("pairs.h5"))
        table = pyfits.getdata(tmp("products/rvtab-coadd.fits"), "RVTAB")
        for name in "SB2", "VRAD_2", "FEH_2_ERR", "FLUX_RATIO_R":
            np.testing.assert_array_equal(table[name], self.row[name], name)

    def test_the_only_epoch_has_the_velocities_of_the_row(self):
        row = self.fit("lone.h5", "true", more="epochs: exposure\nrescale_errors: true\nvrad_floor: 0\n")
        pair, of = row["SB2"] == 1, read(tmp("lone.h5"), "epochs")
        self.assertTrue(pair[:6].all())
        self.assertFalse(of["EPOCH_FLAG"][pair].any())
        for name in "VRAD", "VRAD_2", "VRAD_ERR", "VRAD_2_ERR":
            np.testing.assert_allclose(of[name][pair], row[name][pair], rtol=1e-12)

    def test_no_star_of_a_pair_is_at_a_velocity_limit(self):
        pair = 4  # here the brighter star has the larger velocity
        row = self.fit("limit.h5", "true", more=f"max_vel: {self.row['VRAD'][pair] - 3}\n"
                       f"objects: [{self.row['TARGETID'][pair]}]\n")
        self.assertEqual((row["SB2"][0], row["RVS_WARN"][0] & 2), (0, 2))  # VEL_LIMIT
        self.assertGreater(row["VRAD_ERR"][0], 0)

    def test_two_ranks_give_the_same_bits(self):
        self.fit("two-ranks.h5", "true", ranks=2)
        self.assertEqual(differing(self.row, read(tmp("two-ranks.h5"))), [])


class PairsWithEpochs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        phase = np.random.default_rng(2).uniform(0, 1, (len(SWING), 1)) + np.arange(N_VISIT) / 3.4
        swing = SWING[:, np.newaxis] * np.sin(2 * np.pi * phase)
        cls.first, cls.second = swing, CONSTANT[:, np.newaxis] - 1.2 * swing
        cls.files, library = [tmp(f"epoch-{k}.fits") for k in range(N_VISIT)], coarse_library()
        for k, path in enumerate(cls.files):
            pair_survey.make(path, os.environ["STARMILL"], (cls.second - cls.first)[:, k], EPOCHS_RATIO,
                             cls.first[:, k], 1 + k, library=library, sn="30,60", vsini="1,8", seed=8)
        cls.alone, cls.row = visits("alone.h5", "", *cls.files), visits("moving.h5", PAIRS, *cls.files)
        at = read(tmp("moving.h5"), "catalog")["FIRST_EXPOSURE"][:, np.newaxis] + np.arange(N_VISIT)
        cls.of = {k: v[at] for k, v in read(tmp("moving.h5"), "epochs").items()}

    def test_both_velocities_of_each_epoch(self):
        """Pulls of 30 values, whichever star is the brighter one."""
        found = self.row["SB2"] == 1
        np.testing.assert_array_equal(found, EPOCHS_RATIO > 0)
        one, two, first, second = (v[found] for v in (self.of["VRAD"], self.of["VRAD_2"], self.first,
                                                      self.second))
        first, second = pair_survey.as_fitted(one, first, second)
        pull = np.concatenate([(one - first) / self.of["VRAD_ERR"][found],
                               (two - second) / self.of["VRAD_2_ERR"][found]])
        self.assertLess(np.abs(pull).max(), 4.5)
        self.assertTrue(0.6 < pull.std() < 1.5, pull.std())
        np.testing.assert_array_equal(np.isfinite(self.of["VRAD_2"]).all(axis=1), found)
        np.testing.assert_allclose(self.row["VRAD_RANGE"], np.ptp(self.of["VRAD"], axis=1), rtol=1e-12)

    def test_single_stars_keep_their_rows(self):
        single = self.row["SB2"] == 0
        more = set(self.row) - set(self.alone)  # of pairs
        self.assertEqual(differing(self.alone, self.row, single, {"CRC", *more}), [])

    def test_pairs_are_found_if_errors_are_too_large(self):
        files = [shutil.copy(path, tmp(f"large-{k}.fits")) for k, path in enumerate(self.files)]
        scale_ivar(files, 0.05)
        np.testing.assert_array_equal(visits("large.h5", PAIRS, *files)["SB2"], EPOCHS_RATIO > 0)

    def test_lines_that_are_always_blended(self):
        """Pulls of flux ratios and of epochs without a flag are below 4.5; a fit that ends early in
        the narrow valley of F has pulls of 5 to 30."""
        random, ratio = np.random.default_rng(3), 0.9
        swing = random.uniform(30, 70, (10, 1)) * np.sin(2 * np.pi * (random.uniform(0, 1, (10, 1))
                                                                      + np.arange(4) * 0.27))
        files = [tmp(f"blend-{k}.fits") for k in range(4)]
        for k, path in enumerate(files):
            pair_survey.make(path, os.environ["STARMILL"], -2.1 * swing[:, k], np.full(10, ratio), swing[:, k],
                             1 + k, library=coarse_library(), alike=0.7, sn="200,400", vsini="1,4", seed=4)
        row = visits("blend.h5", PAIRS + "model_error: false\n", *files)
        of = read(tmp("blend.h5"), "epochs")
        found = row["SB2"] == 1
        self.assertGreater(found.sum(), 7)
        of = {k: v.reshape(10, 4)[found] for k, v in of.items()}
        swing, clear = swing[found], of["EPOCH_FLAG"] == 0
        first, second = pair_survey.as_fitted(of["VRAD"], swing, -1.1 * swing)
        turned = first[:, 0] != swing[:, 0]
        pulls = [((row["FLUX_RATIO_R"][found] - np.where(turned, 1 / ratio, ratio))
                  / row["FLUX_RATIO_R_ERR"][found]),
                 ((of["VRAD"] - first) / of["VRAD_ERR"])[clear],
                 ((of["VRAD_2"] - second) / of["VRAD_2_ERR"])[clear]]
        self.assertLess(np.abs(np.concatenate(pulls)).max(), 4.5)

    def test_an_epoch_without_data_has_no_velocity(self):
        pair, off = int(np.flatnonzero(CONSTANT)[0]), 1
        for n_good in 0, 1:
            with pyfits.open(self.files[off]) as hdus:
                for arm in "BRZ":
                    hdus[f"{arm}_IVAR"].data[pair, n_good if arm == "R" else 0:] = 0
                hdus.writeto(tmp("dark.fits"), overwrite=True)
            row = visits("dark.h5", PAIRS, "--overwrite", "--object", self.row["TARGETID"][pair],
                         self.files[0], tmp("dark.fits"), self.files[2])
            of = read(tmp("dark.h5"), "epochs")
            self.assertEqual((row["SB2"][0], row["N_EPOCH"][0]), (1, N_VISIT - 1))
            self.assertLess(row["VRAD_RANGE"][0], 20)
            for name in "VRAD", "VRAD_ERR", "VRAD_2", "VRAD_2_ERR":
                np.testing.assert_array_equal(np.isnan(of[name]), np.arange(N_VISIT) == off)
            shown = run("show", tmp("dark.h5"), self.row["TARGETID"][pair]).stdout.split("\nepochs\n")[1]
            self.assertRegex(shown, r"(\n +[-0-9].*){%d} 1\n +NO_DATA: no usable pixel\n +\d" % (off + 1))


class AlikePairs(ProgramTest):
    def test_turns_go_on_to_the_minimum(self):
        """The stars are similar, their lines blend.  Velocities without EXCHANGEABLE are within 7
        errors: an epoch's errors hold labels and v sin i fixed, so in blends chance exceeds 5 (6
        with other noise; here 4.1).  Velocities are 15 errors off if turns (pair.h) end too early,
        40 if the stars stay exchanged at the second epoch."""
        star, n_star, ratio = 15, 16, 0.87
        velocity = np.array([[-27, -18, 32, -40], [29, 20, -36, 43]])  # km/s, of both stars
        files = [tmp(f"alike-{k}.fits") for k in range(4)]
        for k, path in enumerate(files):
            first, second = velocity[:, k]
            stars, _ = pair_survey.make(
                path, os.environ["STARMILL"], np.full(n_star, second - first), np.full(n_star, ratio),
                first, 1 + k, library=coarse_library(), sn="40,70", vsini="1,8", seed=101,
                model_error="false", alike=0.9)
        self.assertEqual(visits("alike.h5", PAIRS + "model_error: false\n", "--object",
                                stars.target_id[star], *files)["SB2"], 1)
        of = read(tmp("alike.h5"), "epochs")
        known = of["EPOCH_FLAG"] & 8 == 0  # EXCHANGEABLE
        self.assertGreater(known.sum(), 2)
        truth = pair_survey.as_fitted(of["VRAD"][np.newaxis], *velocity[:, np.newaxis])
        for name, true in zip(("VRAD", "VRAD_2"), truth):
            off = (of[name] - true[0]) / of[name + "_ERR"]
            self.assertLess(np.abs(off[known]).max(), 7, name)

    def test_nested_calls_fit_a_slot(self):
        """A slot has a place for each nested resumable function; moving pairs nest deepest."""
        calls, star = {}, os.path.join(os.path.dirname(__file__), "..", "..", "kernels", "star")
        for path in glob.glob(os.path.join(star, "logic", "*.h")):
            for name, body in re.findall(r"^MILL_RESUMABLE\((\w+)\)\n\{(.*?)^\}", content(path, "r"), re.M | re.S):
                calls[name] = re.findall(r"MILL_CALL\((\w+)\)", body)

        def depth(name):
            return 1 + max((depth(called) for called in calls[name]), default=0)

        most = int(re.search(r"MILL_MAX_DEPTH = (\d+)", content(os.path.join(star, "stages.h"), "r"))[1])
        self.assertEqual(depth("mill_fit_star"), most - 1)  # one to spare
