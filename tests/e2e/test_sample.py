# SPDX-License-Identifier: BSD-3-Clause
"""Posteriors of fitted stars: the file's contents, the same bits however it was made, refusals."""

import matplotlib.image

from base import *  # noqa: F403

N_STAR, FAILED = 3, 2
TWO_MINIMA, SECOND_START, EPOCHS, PAIR, ONE_STAR = 128, 2, 2048, 4096, 512
QUICK = ("--ess", 100, "--max-evaluations", 2000, "--draws", 7, "--backend", "cpu", "--threads", 1,
         "--quiet")
ORDER = ["VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE"]


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al. 2011)."""
    c, k, mask = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & mask, a >> 32 ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def place(target, seed=1):
    """A star's uniform number: a --fraction above it keeps the star."""
    high, low = philox([target & 0xFFFFFFFF, target >> 32, 21, 0x6D696C6C], [seed, 0])[:2]
    return (((high << 32 | low) >> 11) + 0.5) / 2**53


def named(identifier):
    """Identity of a star that has only this name: a chain of hashes of its letters."""
    high = low = 0xFFFFFFFF
    for letter in identifier:
        high, low = philox([letter, 0, 20, 0x6D696C6C], [low, high])[:2]
    return high << 32 | low


class Sample(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.library, path = coarse_survey(N_STAR)
        cls.input = tmp("stars.fits")
        with pyfits.open(path) as hdus:
            for arm in "BRZ":  # one star has no pixel
                hdus[f"{arm}_IVAR"].data[FAILED] = 0
            hdus.writeto(cls.input)
        cls.fitted = tmp("fit.h5")
        put("fit.yaml", "write_interval: 0.1\n")
        run("fit", "--library", cls.library, "--output", cls.fitted, "--backend", "cpu", "--quiet",
            "--config", tmp("fit.yaml"), cls.input)
        cls.ids = read(cls.fitted)["TARGETID"]
        cls.first = tmp("first.h5")
        run("sample", "--fit", cls.fitted, "--library", cls.library, "--output", cls.first,
            *QUICK, cls.input)

    def test_corner(self):
        run("plot", self.first, str(self.ids[0]), "--corner", "--output", tmp("corner.png"))
        colours = (matplotlib.image.imread(tmp("corner.png"))[..., :3] * 255).round().reshape(-1, 3)
        for colour, least in ((142, 142, 142), 3000), ((213, 94, 0), 1000):  # posterior and fit
            self.assertGreater((np.abs(colours - colour) < 24).all(axis=1).sum(), least, colour)
        for path, row, says in ((self.fitted, 0, "starmill sample"), (self.first, FAILED, "not sampled")):
            self.assertOneLine(starmill("plot", path, self.ids[row], "--corner", "--output",
                                        tmp("no.png")), path, says, status=2)

    def sample(self, out, *args, fit=None, inputs=None, status=0, **how):
        inputs = [self.input] if inputs is None else inputs
        return self.ends(status, "sample", "--fit", fit or self.fitted, "--library", self.library,
                         "--output", tmp(out), *QUICK, *args, *inputs, **how)

    def refit(self, out, *args):
        """Path of a fit of other inputs."""
        run("fit", "--library", self.library, "--output", tmp(out), "--quiet", *args)
        return tmp(out)

    def test_rows_have_a_posterior_beside_the_fit(self):
        table, fit = read(self.first), read(self.fitted)
        good = np.arange(N_STAR) != FAILED
        np.testing.assert_array_equal(table["STATUS"] == FITTED, good)
        self.assertEqual(table["STATUS"][FAILED], NO_FIT)
        with h5py.File(self.first) as f:
            order = [n.decode() if isinstance(n, bytes) else n
                     for n in f["fits/POST_MEAN"].attrs["ORDER"]]
        self.assertEqual(order, ORDER)
        # the row's F equals F of the fit's solution within what a polish leaves
        np.testing.assert_allclose(table["M2LL"][good], fit["M2LL"][good], rtol=0, atol=0.05)
        levels = [table[f"POST_{p}"][good] for p in ("P2_5", "P16", "P50", "P84", "P97_5")]
        self.assertTrue((np.diff(levels, axis=0) >= 0).all())
        draws = table["POST_DRAWS"][good].reshape(-1, 7, 6)
        self.assertTrue(np.isfinite(draws).all() and np.isfinite(table["POST_MEAN"][good]).all())
        sigma = np.sqrt(table["POST_COVAR"][good][:, [j * 6 - j * (j - 1) // 2 for j in range(6)]])
        for k in range(7):
            self.assertLess(np.abs((draws[:, k] - table["POST_MEAN"][good]) / sigma).max(), 8)
        self.assertTrue((table["POST_NEVAL"][good] <= 2000).all())
        self.assertTrue((np.nanmin(table["POST_ESS"][good], axis=1) >= 100).all())
        self.assertTrue((table["POST_PARETO_K"][good] <= 0.7).all())
        self.assertTrue((table["POST_LN_EVIDENCE"][good] < -0.5 * table["POST_M2LL_MIN"][good]).all())
        error = table["POST_LN_EVIDENCE_ERR"][good]
        self.assertTrue(((error > 0) & (error < 0.3)).all())
        width = table["POST_DENSITY_HIGH"][good] - table["POST_DENSITY_LOW"][good]
        total = np.trapz(table["POST_DENSITY"][good].reshape(-1, 6, 64), axis=2) * width / 63
        self.assertTrue(((total > 0.99) & (total < 1.01)).all(), total)
        for row in np.flatnonzero(good):
            n = table["POST_NMODE"][row]
            self.assertTrue(1 <= n <= 4)
            self.assertEqual(bool(table["POST_FLAG"][row] & 128), n > 1)
            weight = table["POST_MODE_WEIGHT"][row]
            self.assertAlmostEqual(weight[:n].sum(), 1)
            self.assertTrue(np.isnan(weight[n:]).all())
            mean = table["POST_MODE_MEAN"][row].reshape(4, 6)[:n]
            np.testing.assert_allclose(weight[:n] @ mean, table["POST_MEAN"][row], rtol=1e-9,
                                       atol=1e-9)
        self.assertTrue(np.isnan(table["POST_MEAN"][FAILED]).all())
        self.assertEqual(not_whole(self.first), [])

    def start(self, out, *args):
        return start("sample", "--fit", self.fitted, "--library", self.library, "--output", tmp(out),
                     *QUICK, "--slots", 1, *args, self.input)

    def test_ranks_slots_and_kills_change_no_bit(self):
        self.sample("ranks.h5", "--slots", 2, ranks=2)
        self.assertEqual(differing(read(tmp("ranks.h5")), read(self.first)), [])
        # one star at a time, killed once the file has a row
        process = self.start("killed.h5")
        wait_until(lambda: os.path.exists(tmp("killed.h5.status.json")), process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.sample("killed.h5")
        self.assertEqual(differing(read(tmp("killed.h5")), read(self.first)), [])
        # another seed does not continue it
        self.sample("killed.h5", "--seed", 2, status=4, says=["killed.h5"])

    def test_a_stop_gives_up_the_star_under_way(self):
        slow = ("--ess", 3000, "--max-evaluations", 20000)  # half a second a star
        process = self.start("stopped.h5", *slow)
        wait_until(lambda: has_rows(tmp("stopped.h5")), process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[1]
        self.assertEqual(process.returncode, 75, said)
        self.assertEqual(said.count("signal 15: the stars under way are given up"), 1, said)
        part = read(tmp("stopped.h5"))
        done = part["STATUS"] == FITTED
        self.assertEqual(done.sum(), 1)
        # test_ranks_slots_and_kills_... compares the bits of a continued run
        self.sample("stopped.h5", *slow)
        for name, values in read(tmp("stopped.h5")).items():
            self.assertEqual(part[name][done].tobytes(), values[done].tobytes(), name)

    def test_a_chosen_star_is_the_same_star(self):
        fit, all_of = read(self.fitted), read(self.first)
        sn = np.max([fit[f"SN_{arm}"] for arm in "BRZ"], axis=0)
        best = int(np.argmax(sn[:FAILED]))
        self.sample("sn.h5", "--sn-range", f"{sn[best]},1e6", "--object-file",
                    put("ids.txt", "\n".join(str(i) for i in self.ids)))
        one = read(tmp("sn.h5"))
        np.testing.assert_array_equal(one["TARGETID"], self.ids[best:best + 1])
        for name in ("POST_MEAN", "POST_DRAWS", "POST_NEVAL"):
            np.testing.assert_array_equal(one[name][0], all_of[name][best])

    def test_fraction_and_flag_choose(self):
        all_of = read(self.first)
        for several in (PAIR, EPOCHS):
            with h5py.File(shutil.copy(self.fitted, tmp("two.h5")), "r+") as f:
                f["fits/FIT_INFO"][0] &= ~TWO_MINIMA
                f["fits/FIT_INFO"][1] |= TWO_MINIMA | several
                seal(f, 0)
                seal(f, 1)
            # stars with two minima are also fitted from the guesses
            self.sample(f"flag-{several}.h5", "--flag", "TWO_MINIMA,STIFF_CONTINUUM",
                        fit=tmp("two.h5"))
            flagged = read(tmp(f"flag-{several}.h5"))
            self.assertIn(self.ids[1], flagged["TARGETID"])
            at = list(flagged["TARGETID"]).index(self.ids[1])
            self.assertTrue(flagged["FIT_INFO"][at] & SECOND_START)
            np.testing.assert_array_equal(flagged["POST_FLAG"] & ONE_STAR > 0, flagged["TARGETID"] == self.ids[1])
            self.assertFalse(all_of["FIT_INFO"][1] & SECOND_START)
        # the star whose number is the lower one, alone
        places = [place(int(i)) for i in self.ids[:2]]
        low = int(np.argmin(places))
        self.sample("low.h5", "--fraction", sum(places) / 2, "--pattern", tmp("star?.fits"),
                    inputs=[])
        np.testing.assert_array_equal(read(tmp("low.h5"))["TARGETID"], self.ids[low:low + 1])

    def test_stars_without_number_and_name_draw_by_identifier(self):
        alike = tmp("alike.fits")
        with pyfits.open(self.input) as hdus:
            hdus["FIBERMAP"].data["TARGETID"] = -1
            for hdu in ("B_FLUX", "B_IVAR", "R_FLUX", "R_IVAR", "Z_FLUX", "Z_IVAR"):  # the same twice
                hdus[hdu].data[1] = hdus[hdu].data[0]
            hdus.writeto(alike)
        fit = self.refit("alike.h5", "--backend", "cpu", alike)
        names = list(read(fit, "catalog")["IDENTIFIER"][:2])
        places = [place(named(i)) for i in names]
        for part, want in ((1, names), (sum(places) / 2, [names[int(np.argmin(places))]])):
            out = f"alike-{len(want)}.h5"
            self.sample(out, "--fraction", part, fit=fit, inputs=[alike])
            self.assertEqual(list(read(tmp(out), "catalog")["IDENTIFIER"][:2]), want)
        self.assertFalse(np.equal(*read(tmp("alike-2.h5"))["POST_DRAWS"][:2]).any())

    def test_each_row_of_a_star_has_its_own_fit(self):
        other = tmp("other.fits")
        with pyfits.open(self.input) as hdus:
            for arm in "BRZ":  # other noise
                ivar = hdus[f"{arm}_IVAR"].data
                hdus[f"{arm}_FLUX"].data += np.random.default_rng(2).normal(size=ivar.shape) * np.where(
                    ivar > 0, ivar, np.inf) ** -0.5
            hdus.writeto(other)
        both = self.refit("both-rows.h5", self.input, other)
        done = self.sample("rows.h5", other, fit=both)
        self.assertNotIn("repeat a star", done.stderr)
        rows = read(tmp("rows.h5"))
        self.assertEqual([list(rows["STATUS"]).count(s) for s in (FITTED, NO_FIT)], [4, 2])
        name = read(both, "catalog")["IDENTIFIER"][N_STAR]  # of one of the star's two rows
        self.sample("row.h5", other, "--object", name.decode(), fit=both)
        self.assertEqual(list(read(tmp("row.h5"), "catalog")["IDENTIFIER"]), [name])
        # files of one name: stars are told by TARGETID
        os.makedirs(tmp("night"))
        same = tmp("night/stars.fits")
        with pyfits.open(other) as hdus:
            hdus["FIBERMAP"].data["TARGETID"] += 1000
            hdus.writeto(same)
        self.sample("named.h5", same, fit=self.refit("same.h5", self.input, same))
        # two files share name and TARGETIDs: their paths tell the rows apart
        shutil.copy(other, same)
        twins = self.refit("twins.h5", self.input, same)
        np.testing.assert_array_equal(*read(twins, "catalog")["IDENTIFIER"].reshape(2, N_STAR))
        # with the other file's rows sample would end with status 3
        self.sample("twin.h5", os.path.relpath(same), fit=twins)
        np.testing.assert_array_equal(read(tmp("twin.h5"))["STATUS"], read(tmp("rows.h5"))["STATUS"])

    def test_a_share_of_joined_stars_keeps_all_their_rows(self):
        second = tmp("second.fits")
        with pyfits.open(self.input) as hdus:
            hdus["FIBERMAP"].data["TARGETID"] += 1000
            hdus.writeto(second)
        joined = self.refit("joined.h5", "--join-by-name", "--join-radius", 1, self.input, second)
        self.sample("share.h5", "--fraction", max(place(int(i)) for i in self.ids) + 1e-9, second,
                    fit=joined)
        self.assertEqual(list(read(tmp("share.h5"))["STATUS"]), [FITTED] * 2)
        self.assertEqual(list(read(tmp("share.h5"), "catalog")["N_EXPOSURE"]), [2, 2])

    def test_parts_merge(self):
        parts = []
        for rows in ([0, FAILED], [1]):
            with pyfits.open(self.input) as hdus:
                for hdu in hdus[1:]:
                    if not hdu.name.endswith("WAVELENGTH"):
                        hdu.data = hdu.data[rows]
                hdus.writeto(tmp(f"part{rows[0]}.fits"))
            self.sample(f"part{rows[0]}.h5", inputs=[tmp(f"part{rows[0]}.fits")])
            parts.append(tmp(f"part{rows[0]}.h5"))
        run("merge", "--output", tmp("both.h5"), *parts)
        both, all_of = read(tmp("both.h5")), read(self.first)
        order = [list(both["TARGETID"]).index(i) for i in self.ids]
        self.assertEqual(differing({k: v[order] for k, v in both.items()}, all_of), [])
        # samples of different fits do not merge
        own = tmp("part1.fits")
        self.sample("own_sample.h5", fit=self.refit("own.h5", own), inputs=[own])
        done = starmill("merge", "--output", tmp("none.h5"), parts[0], tmp("own_sample.h5"))
        self.assertOneLine(done, "start: ", "merge the fits, then sample the result", status=2)

    def test_failed_rows_are_tried_again(self):
        with h5py.File(shutil.copy(self.first, tmp("again.h5")), "r+") as f:
            f["fits/STATUS"][0] = 7  # the CRC leaves STATUS out, so the row is whole but failed
        self.sample("again.h5")
        self.assertEqual(read(tmp("again.h5"))["STATUS"][0], 7)
        self.sample("again.h5", "--retry-failed")
        self.assertEqual(differing(read(tmp("again.h5")), read(self.first)), [])

    def test_spectra_that_have_changed_are_refused(self):
        stars = shutil.copy(self.input, tmp("changing.fits"))
        fit = self.refit("changing.h5", stars)
        with pyfits.open(stars, "update") as hdus:  # of the same size and targets
            hdus["R_FLUX"].data *= 2
        os.link(stars, tmp("hard.fits"))
        for name in (stars, os.path.relpath(stars), tmp("hard.fits")):
            self.sample("no-sample.h5", fit=fit, inputs=[name], status=4,
                        says=[os.path.basename(name), "has changed since"])
        self.assertFalse(os.path.exists(tmp("no-sample.h5")))

    def test_spectra_that_changed_elsewhere_are_told_by_their_pixels(self):
        for hdu, at, by in ("R_FLUX", (0, slice(400, 420)), 1.1), ("R_WAVELENGTH", slice(None), 1.001):
            with pyfits.open(self.input) as hdus:
                hdus[hdu].data[at] *= by
                hdus.writeto(tmp("moved.fits"), overwrite=True)
            done = self.sample(f"moved-{hdu}.h5", fit=shutil.copy(self.fitted, tmp("moved.h5")),
                               inputs=[tmp("moved.fits")], status=3)
            self.assertIn(f"row 0 (counted from 0): its spectrum is not the one fitted in {tmp('moved.h5')}", done.stderr)
            table, one_changes = read(tmp(f"moved-{hdu}.h5")), hdu == "R_FLUX"
            self.assertEqual(list(table["STATUS"]), [OTHER_SPECTRUM, FITTED if one_changes else OTHER_SPECTRUM, NO_FIT])
            self.assertTrue(np.isnan(table["VRAD"][0]) and np.isnan(table["POST_MEAN"][0]).all())

    def test_what_cannot_be_sampled_is_refused(self):
        fails = functools.partial(self.sample, "no.h5", status=2)
        fails("--object", 12345, says=["'12345'", "no row whose TARGETID"])
        fails("--flag", "TWO_MINIMA,HULLS", says=["'HULLS'"])
        fails("--sn-range", "1e6,2e6", says=["no fitted star"])
        fails("--ess", 1200, says=["--max-evaluations", "twice"])
        fails("--fraction", "1e-9", says=["no fitted star"])
        fails(fit=self.library, says=["not a result of starmill"])
        self.ends(2, "sample", "--output", tmp("no.h5"), self.input, says=["--fit OUT.h5"])
        other = shutil.copy(self.fitted, tmp("other.h5"))
        with h5py.File(other, "r+") as f:
            length = len(f["provenance"].attrs["LIBRARY_HASH"])
            f["provenance"].attrs["LIBRARY_HASH"] = np.bytes_("0" * length)
        fails(fit=other, says=["another library"])
        unfinish(other)  # its rows to come would be NO_FIT for good
        fails(fit=other, status=4, says=["is not finished"])
        self.assertFalse(os.path.exists(tmp("no.h5")))
