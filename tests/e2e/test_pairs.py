# SPDX-License-Identifier: BSD-3-Clause
"""Two stars in one spectrum: found, right, and no trace where there is one."""

from base import *  # noqa: F403

import pair_survey

PAIR = 4096
# as broad as lines of the coarse library's stars, closer than that, and single ones
APART = np.array([250.0, -200, 150, 120, -300, 180] + [60.0] * 2 + [0.0] * 8)
RATIO = np.array([0.9, 0.5, 0.3, 0.7, 0.25, 0.6] + [0.8] * 2 + [0.0] * 8)
# arms whose wavelengths are off, km/s
OFFSET = {"R": 25.0, "Z": -40.0}
# three exposures each of pairs that move against each other, of one whose velocities are constant, of
# single stars that move, and of constant ones
N_EPOCH = 3
EPOCHS_RATIO = np.array([0.5, 0.6, 0.7, 0, 0.6] + [0.0] * 5)
AMPLITUDE = np.array([150.0, 180, 120, 0, 0, 80, 60] + [0.0] * 3)
CONSTANT = np.array([0.0] * 4 + [220.0] + [0.0] * 5)


class Pairs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.library, cls.coadd = coarse_library(), tmp("stars/coadd.fits")
        cls.stars, cls.others = pair_survey.make(
            cls.coadd, os.environ["STARMILL"], APART, RATIO, library=cls.library, sn="30,60",
            vsini="1,8", seed=3)
        pair_survey.move_arms(cls.coadd, OFFSET)
        cls.one, cls.row = cls.fit("one.h5", "false"), cls.fit("pairs.h5", "true")

    @classmethod
    def fit(cls, out, binaries, **how):
        put("offsets.yaml", f"velocity_offsets: true\nvelocity_offset_sigma: 30\nbinaries: {binaries}\n")
        run("fit", "--library", cls.library, "--output", tmp(out), "--config", tmp("offsets.yaml"),
            cls.coadd, **how)
        return read(tmp(out))

    def test_both_stars_are_found(self):
        """Pulls of velocities and labels of both, and of offsets; 4.5 of them are beyond chance in 100 values."""
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

    def test_ratio_of_fluxes(self):
        """Over arm r, where it was made; S/N 30 and more leave some per cent."""
        found = self.row["SB2"] == 1
        turned = np.abs(self.row["VRAD"] - self.stars.vrad_km_s) > 0.5 * np.abs(APART)
        true = np.where(turned, 1 / np.maximum(RATIO, 1e-9), RATIO)
        off = (self.row["FLUX_RATIO_R"] - true)[found]
        self.assertLess(np.abs(off / np.hypot(self.row["FLUX_RATIO_R_ERR"][found],
                                              0.05 * true[found])).max(), 5)

    def test_single_stars_keep_their_rows(self):
        single = self.row["SB2"] == 0
        for name in set(self.one) - {"CRC"}:
            self.assertEqual(self.one[name][single].tobytes(), self.row[name][single].tobytes(), name)

    def test_report_and_export(self):
        found = np.flatnonzero(self.row["SB2"] == 1)
        with without_pictures():
            run("report", "--no-spectra", tmp("pairs.h5"))
        with open(tmp("pairs.h5.html"), encoding="utf-8") as f:
            page = f.read()
        self.assertIn(f"{len(found)} rows are fitted as two stars ({100 * len(found) / len(APART):.1f} %", page)
        for row in found:
            self.assertIn(f'data-key="pair-gain-{row}"', page)
        run("export", "--output", tmp("products"), tmp("pairs.h5"))
        table = pyfits.getdata(tmp("products/rvtab-coadd.fits"), "RVTAB")
        for name in "SB2", "VRAD_2", "FEH_2_ERR", "FLUX_RATIO_R":
            np.testing.assert_array_equal(table[name], self.row[name], name)

    def test_two_ranks_give_the_same_bits(self):
        self.fit("ranks.h5", "true", ranks=2)
        self.assertEqual(differing(self.row, read(tmp("ranks.h5"))), [])


class PairsWithEpochs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        phase = np.random.default_rng(2).uniform(0, 1, (len(AMPLITUDE), 1)) + np.arange(N_EPOCH) / 3.4
        swing = AMPLITUDE[:, np.newaxis] * np.sin(2 * np.pi * phase)
        cls.first, cls.second = swing, CONSTANT[:, np.newaxis] - 1.2 * swing
        cls.files, library = [tmp(f"epoch-{k}.fits") for k in range(N_EPOCH)], coarse_library()
        for k, path in enumerate(cls.files):
            pair_survey.make(path, os.environ["STARMILL"], (cls.second - cls.first)[:, k], EPOCHS_RATIO,
                             cls.first[:, k], 1 + k, library=library, sn="30,60", vsini="1,8", seed=8)
        for out, key in ("alone.h5", "false"), ("moving.h5", "true"):
            put("epochs.yaml", f"join_by_name: true\nepochs: exposure\nbinaries: {key}\n")
            run("fit", "--library", library, "--output", tmp(out), "--config", tmp("epochs.yaml"),
                *cls.files)
        cls.row = read(tmp("moving.h5"))
        at = read(tmp("moving.h5"), "catalog")["FIRST_EXPOSURE"][:, np.newaxis] + np.arange(N_EPOCH)
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
        single, alone = self.row["SB2"] == 0, read(tmp("alone.h5"))
        for name in set(alone) - {"CRC"}:
            self.assertEqual(alone[name][single].tobytes(), self.row[name][single].tobytes(), name)

    def test_an_epoch_without_data_has_no_velocity(self):
        pair, off = int(np.flatnonzero(CONSTANT)[0]), 1
        for n_good in 0, 1:
            with pyfits.open(self.files[off]) as hdus:
                for arm in "BRZ":
                    hdus[f"{arm}_IVAR"].data[pair, n_good if arm == "R" else 0:] = 0
                hdus.writeto(tmp("dark.fits"), overwrite=True)
            run("fit", "--library", coarse_library(), "--output", tmp("dark.h5"), "--overwrite", "--config",
                tmp("epochs.yaml"), "--targetid", self.row["TARGETID"][pair], self.files[0], tmp("dark.fits"),
                self.files[2])
            row, of = read(tmp("dark.h5")), read(tmp("dark.h5"), "epochs")
            self.assertEqual((row["SB2"][0], row["N_EPOCH"][0]), (1, N_EPOCH - 1))
            self.assertLess(row["VRAD_RANGE"][0], 20)
            for name in "VRAD", "VRAD_ERR", "VRAD_2", "VRAD_2_ERR":
                np.testing.assert_array_equal(np.isnan(of[name]), np.arange(N_EPOCH) == off)
