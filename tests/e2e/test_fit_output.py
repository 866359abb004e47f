# SPDX-License-Identifier: BSD-3-Clause
"""What a fit writes.  Files of another run, in the output's place or in the node's shared memory,
do not stop a fit, and a result that is missing at the end is no success.  Best-fit models have the
right shapes, units and chi-square."""

import random
import types

from common import *  # noqa: F403
from starmill.cli.basics import Failure
from starmill.products import models as opened
from starmill.products.result import Result

N_KILL = 15


class Neighbours(EndToEnd):
    """What other runs have left, or do at the same time."""

    @classmethod
    def setUpClass(cls):
        cls.few = cut("few.fits", range(4))

    def line(self, path):
        return ["fit", "--library", library(), "--output", path, "--threads", 1, "--optimizer",
                "levenberg-marquardt", self.few]

    def test_same_name_in_two_folders_at_once(self):
        runs = []
        for folder in "one", "two":
            os.mkdir(tmp(folder))
            # Open MPI 4.1 fails if two starts make its session folder at the same instant
            environment = {"OMPI_MCA_orte_tmpdir_base": tmp(folder),
                           "HDF5_USE_FILE_LOCKING": "TRUE"}  # as a site may set it
            runs.append(start(*self.line(tmp(f"{folder}/twin.h5")), ranks=2, env=environment,
                              stderr=subprocess.STDOUT))
        for run in runs:
            self.said_by(run, 0)
        self.assertEqual(differing(read(tmp("one/twin.h5")), read(tmp("two/twin.h5"))), [])

    def test_killed_while_it_starts(self):
        path = tmp("start.h5")
        seed = os.getpid()
        print("seed", seed)
        draw = random.Random(seed)
        for i in range(N_KILL):  # one in each part of the first second
            process = start(*self.line(path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(draw.uniform(i, i + 1) / N_KILL)
            process.kill()
            process.wait()
        run(*self.line(path))
        self.assertTrue((read(path)["STATUS"] == FITTED).all())
        self.assertEqual(sorted(glob.glob(glob.escape(path) + "*")), [path, path + ".status.json"])


class Moved(EndToEnd):
    """A run says so if its result is removed, moved or replaced while it writes."""

    @classmethod
    def setUpClass(cls):
        cls.stars = cut("stars.fits", range(6))

    def disturbed(self, name, disturb, *says, interval="0.1"):
        """Start a fit, call disturb(folder) once its first rows are written (with interval 600:
        once its files exist), and expect status 4 and the words of says."""
        folder = new_folder(name)
        path, models = os.path.join(folder, "out.h5"), os.path.join(folder, "models.h5")
        put("moved.yaml", f"write_interval: {interval}\n")
        process = start("fit", "--library", library(), "--output", path, "--models", models,
                        "--threads", 1, "--slots", 1, "--optimizer", "nelder-mead", "--config",
                        tmp("moved.yaml"), self.stars)
        wait_until(lambda: os.path.exists(path) and os.path.exists(models), process)
        process.send_signal(signal.SIGSTOP)
        while interval != "600" and not has_rows(path) and process.poll() is None:
            process.send_signal(signal.SIGCONT)  # for a moment, so that it has more to write
            time.sleep(0.01)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.02)
        disturb(folder)
        process.send_signal(signal.SIGCONT)
        out, errors = self.said_by(process, 4)
        self.assertNotIn("result ", out)
        for text in says:
            self.assertIn(text, errors)
        return path

    def test_removed_or_replaced(self):
        def replace(folder):
            shutil.copy(self.stars, folder + "/other")
            os.replace(folder + "/other", folder + "/out.h5")
        other, other_models = tmp("other.h5"), tmp("other-models.h5")
        run("fit", "--library", library(), "--output", other, "--models", other_models, "--config",
            put("other.yaml", "npoly: 11\n"), self.stars)
        for name, disturb, says, interval in (
            ("removed", lambda f: os.remove(f + "/out.h5"), "out.h5 was removed", "0.1"),
            # before the first rows are written: seen at the end, too
            ("late", lambda f: os.remove(f + "/out.h5"), "out.h5 was removed", "600"),
            ("models", lambda f: os.remove(f + "/models.h5"), "models.h5 was removed", "0.1"),
            ("replaced", replace, "out.h5 was removed", "0.1"),
            # overwritten in place: by another run's file of the same size, or by an empty file
            ("cp", lambda f: put(f + "/out.h5", content(other)), "out.h5 was overwritten", "0.1"),
            ("cp late", lambda f: put(f + "/out.h5", content(other)), "out.h5 was overw", "600"),
            ("emptied", lambda f: put(f + "/models.h5", b""), "models.h5 was overwritten", "0.1"),
            ("cp models", lambda f: put(f + "/models.h5", content(other_models)),
             "models.h5 was overwritten", "0.1")):
            with self.subTest(name):
                self.disturbed(name, disturb, says, interval=interval)

    def test_folder_moved_and_back(self):
        path = self.disturbed("here", lambda f: os.rename(f, f + "-moved"), "is now ",
                              "here-moved/out.h5", "move it back")
        os.rename(tmp("here-moved"), tmp("here"))
        run("fit", "--library", library(), "--output", path, "--models", tmp("here/models.h5"),
            "--optimizer", "nelder-mead", "--config", tmp("moved.yaml"), self.stars)
        self.assertTrue((read(path)["STATUS"] == FITTED).all())


def models(path):
    """{arm: (wavelengths, models)} of the models file."""
    with h5py.File(path) as f:
        return {arm: (f[f"models/{arm.lower()}/wavelength"][...],
                      f[f"models/{arm.lower()}/flux"][...]) for arm in ARMS}


def good_pixels(hdus, arm, row):
    """The pixels that chi-squares count (data/README.md), with the resolution matrix."""
    wave = hdus[arm + "_WAVELENGTH"].data
    flux, ivar = (hdus[arm + h].data[row].astype(float) for h in ("_FLUX", "_IVAR"))
    good = (hdus[arm + "_MASK"].data[row] == 0) & np.isfinite(flux) & np.isfinite(ivar)
    good &= ~((wave > 4300) & (wave < 4450))
    with np.errstate(invalid="ignore"):
        good &= ivar > 0
    good[:5] = good[-5:] = False
    sigma = np.full(len(wave), np.inf)
    sigma[good] = ivar[good] ** -0.5
    sigma[good] = np.maximum(sigma[good], 0.3 * np.median(sigma[good]))
    return flux, sigma, good


class Models(EndToEnd):
    def test_chi_square_of_the_models_is_the_one_reported(self):
        stars = cut("three.fits", [3, 60, 100])
        self.assertIn("models.h5", self.fit("m.h5", "--models", tmp("models.h5"), stars).stdout)
        table, found = read(self.path), models(tmp("models.h5"))
        with pyfits.open(stars) as hdus:
            for row in range(3):
                total = 0
                for arm in ARMS:
                    wave, model = found[arm]
                    np.testing.assert_array_equal(wave, hdus[arm + "_WAVELENGTH"].data)
                    self.assertEqual(model.shape, (3, len(wave)))
                    flux, sigma, good = good_pixels(hdus, arm, row)
                    chisq = (((flux - model[row])[good] / sigma[good]) ** 2).sum()
                    self.assertEqual(good.sum(), table["NPIX_" + arm][row])
                    np.testing.assert_allclose(chisq, table["CHISQ_" + arm][row], rtol=1e-4)
                    total += chisq
                np.testing.assert_allclose(total, table["CHISQ_TOT"][row], rtol=1e-4)

    def test_a_finished_result_has_its_models(self):
        stars = cut("done.fits", [3, 60, 100])
        args = ("done.h5", "--models", tmp("done-models.h5"), stars)
        self.fit(*args)
        whole = content(tmp("done-models.h5"))
        self.assertIn("finished already", self.fit(*args).stdout)
        self.fit("other-done.h5", "--models", tmp("other-done.h5.models"), stars)
        for bad, says in ((b"", "HDF5"), (whole[:len(whole) // 2], "done-models.h5"),
                          (content(tmp("other-done.h5.models")), "belongs to another result")):
            put(tmp("done-models.h5"), bad)
            self.assertOneLine(self.fit(*args, status=4), says, "--overwrite", status=4)

    def test_an_arm_and_a_star_without_a_pixel_have_no_model(self):
        def edit(hdus):
            hdus["B_MASK"].data[:2] = hdus["R_MASK"].data[1] = 1
            hdus["Z_IVAR"].data[1] = 0
        done = self.fit("n.h5", "--models", tmp("nan.h5"), cut("first.fits", [3, 60, 100], edit))
        table, found = read(self.path), models(tmp("nan.h5"))
        self.assertEqual(list(table["STATUS"]), [FITTED, NO_ARM, FITTED])
        self.assertIn("NO_USABLE_ARM", done.stdout)
        self.assertWhole(table)
        self.assertEqual(list(np.isnan(table["CHISQ_B"])), [True, True, False])
        self.assertEqual(table["NPIX_B"][0], 0)
        for arm, missing in (("B", [0, 1]), ("R", [1]), ("Z", [1])):
            model = found[arm][1]
            self.assertEqual(len(model), 3)
            self.assertEqual(list(np.flatnonzero(np.isnan(model).all(axis=1))), missing)
            self.assertTrue(np.isfinite(model[np.setdiff1d(range(3), missing)]).all())

    def test_rows_fitted_without_models_are_told(self):
        stars, path = cut("half.fits", [3, 60, 100]), tmp("half-models.h5")
        self.fit("half.h5", "--models", path, stars)
        os.rename(path, path + ".away")
        self.assertOneLine(self.fit("half.h5", "--models", path, stars), path, "is gone", status=0)
        os.rename(path + ".away", path)
        unfinish(self.path, 2)
        for models, says in (([], "was begun with --models"),
                             (["--models", path], "has rows that were fitted without --models")):
            self.assertOneLine(self.fit("half.h5", *models, stars), self.path, says, status=0)

    def test_stars_without_a_stored_model_are_fitted_again(self):
        """Plots and reports fit a star again if its model is missing, from the star's own input.
        Another input has a star of the same name.  The models have the same bits."""
        def brighter(hdus):
            for arm in ARMS:
                hdus[arm + "_FLUX"].data *= 3
                hdus[arm + "_IVAR"].data /= 9
        files = [cut(os.path.join(new_folder(folder), "coadd.fits"), [3, 60], edit)
                 for folder, edit in (("x1", None), ("x2", brighter))]
        path, options = tmp("x-models.h5"), types.SimpleNamespace(
            models=None, library=None, program=STARMILL)
        self.fit("x.h5", "--models", path, *files)
        kept = shutil.copy(path, tmp("kept.h5"))
        os.remove(path)
        flux = models(kept)["R"][1]
        again = opened.open_models(Result(self.path), [1, 3], options)
        for row in (1, 3):
            np.testing.assert_array_equal(again.of(row)[0]["r"][1], flux[row])
        # row 3 as of a run without --models
        other = shutil.copy(self.path, tmp("x-gap.h5"))
        with h5py.File(other, "r+") as f, h5py.File(shutil.copy(kept, path), "r+") as m:
            f["provenance/UNMODELLED"][...] = 1
            for arm in "brz":
                m[f"models/{arm}/flux"][3] = np.nan
        result = Result(other)
        self.assertIsInstance(opened.open_models(result, [1], options), opened.Models)
        again = opened.open_models(result, [1, 3], options)
        np.testing.assert_array_equal(again.of(3)[0]["r"][1], flux[3])
        options.models = path
        self.assertRaisesRegex(Failure, "lacks the models of 1 stars", opened.open_models, result,
                               [1, 3], options)

    def test_rows_on_different_wavelengths_have_their_own(self):
        """Arm r is shifted in the second file, and 20 pixels shorter in the third."""
        def shift(hdus):
            hdus["R_WAVELENGTH"].data += 1.6

        def shorten(hdus):
            for name in HDUS:
                hdus["R_" + name].data = hdus["R_" + name].data[..., :-20]
        files = [cut("as-they-are.fits", [3, 60]), cut("shifted.fits", [100], shift),
                 cut("shorter.fits", [150], shorten)]
        done = self.fit("own.h5", "--models", tmp("own-models.h5"), *files, ranks=2)
        self.assertOneLine(done, "models", "arm r", "each row stores its own", status=0)
        table, found = read(self.path), models(tmp("own-models.h5"))
        row = 0
        for path in files:
            with pyfits.open(path) as hdus:
                for i in range(len(hdus["FIBERMAP"].data)):
                    for arm in ARMS:
                        wave, model = found[arm]
                        expected = hdus[arm + "_WAVELENGTH"].data
                        n_pix = len(expected)
                        if arm == "R":
                            self.assertEqual(wave.shape, model.shape)
                            self.assertTrue(np.isnan(wave[row, n_pix:]).all())
                            wave = wave[row, :n_pix]
                        np.testing.assert_array_equal(wave, expected)
                        self.assertTrue(np.isnan(model[row, n_pix:]).all())
                        flux, sigma, good = good_pixels(hdus, arm, i)
                        chisq = (((flux - model[row, :n_pix])[good] / sigma[good]) ** 2).sum()
                        np.testing.assert_allclose(chisq, table["CHISQ_" + arm][row], rtol=1e-4)
                    row += 1
        self.assertEqual(row, 4)

    def test_a_row_is_done_when_its_models_are_on_the_disk(self):
        other = tempfile.mkdtemp(prefix="mill-models.", dir="/dev/shm")  # another file system
        self.addCleanup(shutil.rmtree, other)
        for ranks, folder in ((0, TMP), (2, other)):
            out, path = f"sync{ranks}.h5", f"{folder}/sync{ranks}.models"
            more = ["--models", path, cut("sync.fits", [3, 60, 100])]
            # the empty file, which has a temporary name, is still synced without fault
            shim = faults("EIO:sync:.models$:1:0")
            self.assertIn(path, self.fit(out, *more, status=4, ranks=ranks, env=shim).stderr)
            self.assertEqual(list(read(self.path)["STATUS"]), [0] * 3)
            self.fit(out, *more, ranks=ranks)
            self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 3)
