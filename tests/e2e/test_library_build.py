# SPDX-License-Identifier: BSD-3-Clause
"""`starmill library build`: layouts, arms against a dense reference, selection, resume, refusals.
"""

from base import *  # noqa: F403

try:
    from scipy.interpolate import CubicSpline
    from scipy.stats import norm
except ImportError as missing:
    skip(f"{missing} (Debian: python3-scipy)")

LOW, HIGH = 5000.0, 5060.0
WAVE = LOW + 0.02 * np.arange(int((HIGH - LOW) / 0.02) + 1)
SEED = 20180

# two arms, one with a resolution that varies; LOW and HIGH leave room for 5 sigma
SETUP = """arms:
  - {name: b, min: 5005, max: 5030, ln_step: 3e-5, sigma: [[5005, 0.3], [5030, 0.9]]}
  - name: r
    min: 5025
    max: 5052
    ln_step: 4e-5
    resolving_power: [[5025, 4000], [5040, 5000], [5052, 4500]]
"""
NATIVE = ("--native-resolving-power", "50000")


def spectrum(label, wave=WAVE):
    """Lines of sigma 0.06 to 0.1 A at places of their own, whose depths follow the labels."""
    teff, logg, feh = label
    random = np.random.default_rng(SEED)
    flux = 1e14 * (teff / 5000) ** 4 * (1 + 1e-3 * logg * (wave - 5030))
    depth = 0 * wave
    for center, sigma, strength in zip(random.uniform(4995, 5065, 150),
                                       random.uniform(0.06, 0.1, 150),
                                       random.uniform(0.02, 0.6, 150)):
        depth += strength * (1 + 0.3 * feh) * np.exp(-0.5 * ((wave - center) / sigma) ** 2)
    return flux * np.exp(-depth)


def labels_of(n=8):
    random = np.random.default_rng(SEED + 1)
    return np.column_stack([np.round(random.uniform(4000, 7000, n)),
                            np.round(random.uniform(1, 5, n), 2),
                            np.round(random.uniform(-2, 0.4, n), 2)])


def dense(flux, wave, native, sigma, pixel, ln_step):
    """Flux of a pixel by brute force in float64, without the program's weights: sums over a fine
    grid of wavelengths, averaged over the pixel by Gauss-Legendre quadrature."""
    spline = CubicSpline(wave, flux)
    kernel = np.sqrt(sigma**2 - native**2 - (ln_step * pixel) ** 2 / 12)
    x, w = np.polynomial.legendre.leggauss(8)
    lo, hi = pixel * np.exp(-0.5 * ln_step), pixel * np.exp(0.5 * ln_step)
    total = 0
    for at, weight in zip(0.5 * (lo + hi) + 0.5 * (hi - lo) * x, w / 2):
        fine = np.arange(at - 6 * kernel, at + 6 * kernel, 1e-3)
        g = norm.pdf(fine, at, kernel)
        total += weight * (spline(fine) * g).sum() / g.sum()
    return total


def image(flux, **card):
    hdu = pyfits.PrimaryHDU(flux)
    hdu.header.update(card)
    return hdu


def write_phoenix(folder, labels, wave=WAVE, of=spectrum):
    """PHOENIX HiRes files: image, cards, table of abundances; one file has the wavelengths."""
    os.makedirs(tmp(folder), exist_ok=True)
    for i, (teff, logg, feh) in enumerate(labels):
        hdu = image(of((teff, logg, feh), wave).astype("f4"), PHXTEFF=teff, PHXLOGG=logg,
                    PHXM_H=feh, PHXALPHA=0.0)
        abundances = bintable({"Z": np.arange(1, 100)}, "ABUNDANCES")
        pyfits.HDUList([hdu, abundances]).writeto(tmp(f"{folder}/m{i:03d}.fits"), overwrite=True)
    pyfits.PrimaryHDU(wave).writeto(tmp(f"{folder}-wave.fits"), overwrite=True)


PHX = ("--labels", "teff=PHXTEFF,logg=PHXLOGG,feh=PHXM_H", "--medium", "vacuum")


def phoenix(folder, out, *more, call=starmill, setup=SETUP, **how):
    return call("library", "build", "--output", tmp(out), "--setup", put("setup.yaml", setup), *PHX,
                "--wave-file", tmp(f"{folder}-wave.fits"), *NATIVE, "--normalise", "none",
                "--workers", 1, *more, tmp(folder), **how)


def read(name):
    with h5py.File(tmp(name), "r") as f:
        out = {key: f["models"][key][:] for key in ("label", "status")}
        out |= {key: [x.decode() for x in f["models"][key][:]] for key in ("name", "why")}
        out["complete"] = int(f.attrs["complete"])
        for arm in f["arms"].values():
            a = arm.attrs
            wave = np.exp(a["ln_wave0"] + a["ln_step"] * np.arange(a["n_pix"]))
            out[a["name"].decode() if isinstance(a["name"], bytes) else a["name"]] = {
                "wave": wave, "step": float(a["ln_step"]), "flux": arm["flux"][:],
                "template_sigma": float(a["template_sigma_aa"]),
                "sigma": arm["sigma"][:] if "sigma" in arm else None}
    return out


def n_good_of(name):
    with h5py.File(tmp(name), "r") as f:
        return (f["models/status"][:] == 1).sum()


class LibraryBuild(unittest.TestCase):
    def good(self, done, status=0):
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def refused(self, done, status, *words):
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_arms_against_a_dense_reference(self):
        """Arm b has a sigma, arm r a resolving power, and both vary with wavelength.  The program
        promises 1e-4 of the continuum.  float32 and the ends of the flux's splines leave 2e-6."""
        labels = labels_of()
        write_phoenix("phoenix", labels)
        self.good(phoenix("phoenix", "dense.h5"))
        grid = read("dense.h5")
        np.testing.assert_array_equal(grid["label"], labels)
        self.assertEqual(grid["name"], [f"m{i:03d}" for i in range(len(labels))])
        self.assertTrue((grid["status"] == 1).all() and grid["complete"])
        sigma = {"b": lambda x: np.interp(x, [5005, 5030], [0.3, 0.9]),
                 "r": lambda x: x / np.sqrt(8 * np.log(2))
                 / np.interp(x, [5025, 5040, 5052], [4000, 5000, 4500])}
        worst = 0
        for name, of in sigma.items():
            arm = grid[name]
            wave = arm["wave"]
            np.testing.assert_allclose(arm["sigma"], of(wave), rtol=1e-12)
            self.assertAlmostEqual(arm["template_sigma"], of(wave)[len(wave) // 2], places=12)
            native = wave / np.sqrt(8 * np.log(2)) / 50000
            for i in (0, 5):
                flux = spectrum(labels[i]).astype("f4").astype("f8")
                for p in [0, 1, *range(7, len(wave) - 1, 23), len(wave) - 1]:
                    expected = dense(flux, WAVE, native[p], of(wave[p]), wave[p], arm["step"])
                    worst = max(worst, abs(arm["flux"][i, p] / expected - 1))
        self.assertLess(worst, 4e-6)

    def test_a_line_is_as_wide_as_declared(self):
        """The second moment of a line, in pixels of nearly sigma / 1.2."""
        native = 5030 / np.sqrt(8 * np.log(2)) / 50000
        write_phoenix("line", labels_of(2), of=lambda _, wave: 1 + np.exp(
            -0.5 * ((wave - 5030) / native) ** 2))
        for step, sigma in (8e-5, ", sigma: 0.5"), (4e-5, ", sigma: 0.25"), (6.5e-6, ""):
            arm = f"arms: [{{name: b, min: 5010, max: 5050, ln_step: {step}{sigma}}}]"
            self.good(phoenix("line", "line.h5", "--overwrite", setup=arm))
            b = read("line.h5")["b"]
            line = (b["flux"][0] - 1) * b["wave"]
            second = np.sqrt((line * (b["wave"] - 5030) ** 2).sum() / line.sum())
            self.assertLess(abs(second / b["template_sigma"] - 1), 2e-4, (sigma, second))

    def test_layouts_hold_the_same(self):
        """The same models give the same grid in every layout, such as PHOENIX files, tables in air
        with labels in file names, an image with a table of labels, or a cube."""
        labels = labels_of(6)
        write_phoenix("phoenix6", labels)
        self.good(phoenix("phoenix6", "p.h5"))
        expected = read("p.h5")
        flux = np.array([spectrum(x).astype("f4") for x in labels])
        # Ciddor (1996) is what the program converts with; the inverse by iteration
        air = WAVE.copy()
        for _ in range(10):
            s2 = (1e4 / WAVE) ** 2
            air = WAVE / (1 + 0.05792105 / (238.0185 - s2) + 0.00167917 / (57.362 - s2))
        os.makedirs(tmp("tables"), exist_ok=True)
        for (teff, logg, feh), y in zip(labels, flux):
            table = bintable({"LAM": air, "F": y.astype(float), "C": 2.0 * y})
            table.header["TUNIT1"] = "Angstrom"
            sign = "m" if feh < 0 else "p"
            name = f"tables/t{teff:05.0f}g{100 * logg:03.0f}{sign}{abs(feh):.2f}.fits.gz"
            table.writeto(tmp(name), overwrite=True)
        bintable({"FILE": ("40A", [f"m{i:03d}" for i in range(6)][::-1]), **dict(zip("TGM", labels[::-1].T))}
                 ).writeto(tmp("labels.fits"), overwrite=True)
        pyfits.HDUList([
            image(flux, CRVAL1=WAVE[0], CDELT1=0.02, CRPIX1=1),
            bintable(dict(zip(("TEFF", "LOGG", "FEH"), labels.T))),
        ]).writeto(tmp("many.fits"), overwrite=True)
        # images that differ in their first wavelength and in their length
        os.makedirs(tmp("shifted"), exist_ok=True)
        for i, (x, y) in enumerate(zip(labels, flux)):
            image(y[i:], CRVAL1=WAVE[i], CDELT1=0.02, CRPIX1=1, TEFF=x[0], LOGG=x[1],
                  FEH=x[2]).writeto(tmp(f"shifted/{i}.fits"), overwrite=True)
        setup = put("setup.yaml", SETUP)
        base = ("library", "build", "--setup", setup, *NATIVE, "--normalise", "none")
        # as PHOENIX comes: a folder for each metallicity, wavelengths above them
        for i in range(6):
            os.makedirs(tmp(f"nested/Z{i % 2}/more"), exist_ok=True)
            os.link(tmp(f"phoenix6/m{i:03d}.fits"), tmp(f"nested/Z{i % 2}/more/m{i:03d}.fits"))
        os.link(tmp("phoenix6-wave.fits"), tmp("nested/wave.fits"))
        put("nested/list.txt", "# two folders\nZ1/more/m001.fits\nZ1/more/m003.fits\n"
            "Z1/more/m005.fits \nZ0\n")
        nested = (*PHX, "--wave-file", tmp("nested/wave.fits"))
        of_tables = ("--name-pattern", "t{teff}g{logg/100}{feh}.fits*", "--columns", "LAM,F,C",
                     "--medium", "air", tmp("tables"))
        for out, args in {
            "t.h5": of_tables,
            "l.h5": ("--labels", "teff=T,logg=G,feh=M", "--table", tmp("labels.fits"), "--medium",
                     "vacuum", "--wave-file", tmp("phoenix6-wave.fits"), tmp("phoenix6")),
            "i.h5": ("--medium", "vacuum", tmp("many.fits")),
            "w.h5": ("--medium", "vacuum", tmp("shifted")),
            "nested.h5": (*nested, tmp("nested")),
            "folders.h5": (*nested, tmp("nested/Z1"), tmp("nested/Z0/more")),
            "listed.h5": (*nested, tmp("nested/list.txt"))}.items():
            self.good(starmill(*base, "--output", tmp(out), *args))
            grid = read(out)
            order = [int(np.flatnonzero((grid["label"] == x).all(1))[0]) for x in labels]
            for arm in ("b", "r"):
                # air wavelengths of the reference agree to 1e-9 with the program's
                np.testing.assert_allclose(grid[arm]["flux"][order], expected[arm]["flux"],
                                           rtol=3e-6 if out == "t.h5" else 3e-7)
        self.assertEqual(read("i.h5")["name"][2], "row 3")
        # the continuum is resampled as the flux is, and divided by the same number
        self.good(starmill(*base, "--normalise", "median", "--output", tmp("c.h5"), *of_tables))
        for name in ("t.h5", "c.h5"):
            with h5py.File(tmp(name), "r") as f:
                for arm in f["arms"].values():
                    np.testing.assert_allclose(arm["continuum"][:], 2 * arm["flux"][:], rtol=3e-7)

    def test_cube_with_a_missing_node(self):
        teff, feh = np.array([4000.0, 5000, 6000]), np.array([-1.0, 0])
        cube = np.array([[spectrum((t, 4, m)) for t in teff] for m in feh]).astype("f4")
        cube[1, 2] = 0
        pyfits.HDUList([image(cube, CRVAL1=WAVE[0], CDELT1=0.02, CRPIX1=1, CTYPE2="TEFF",
                              CTYPE3="FEH", CRVAL3=-1, CDELT3=1, CRPIX3=1),
                        pyfits.ImageHDU(teff, name="TEFF")]).writeto(tmp("cube.fits"),
                                                                   overwrite=True)
        done = self.good(starmill("library", "build", "--setup", put("setup.yaml", SETUP), *NATIVE,
                                  "--output", tmp("cube.h5"), "--labels", "teff=TEFF,feh=FEH",
                                  "--medium", "vacuum", tmp("cube.fits")))
        self.assertIn("5 good, 1 bad", done.stdout)
        self.assertIn("row 6: its flux is 0 at", done.stdout)
        grid = read("cube.h5")
        np.testing.assert_array_equal(grid["label"][4], [5000, 0])
        self.assertEqual(list(grid["status"]), [1, 1, 1, 1, 1, 2])
        self.assertTrue((grid["b"]["flux"][5] == 0).all())

    def test_resolution_of_a_card(self):
        """The card FWHM is an image's resolution, in a file of many spectra and in files of one."""
        labels = labels_of(3)
        flux = np.array([spectrum(x).astype("f4") for x in labels])
        os.makedirs(tmp("card"), exist_ok=True)
        grid = {"CRVAL1": WAVE[0], "CDELT1": 0.02, "CRPIX1": 1}
        for i, (x, y) in enumerate(zip(labels, flux)):
            image(y, **grid, FWHM=0.5, TEFF=x[0], LOGG=x[1], FEH=x[2]).writeto(
                tmp(f"card/{i}.fits"), overwrite=True)
        pyfits.HDUList([
            image(flux, **grid, FWHM=0.5),
            bintable(dict(zip(("TEFF", "LOGG", "FEH"), labels.T))),
        ]).writeto(tmp("card.fits"), overwrite=True)
        base = ("library", "build", "--setup", put("setup.yaml", SETUP), "--medium", "vacuum")
        given = (*base, "--native-sigma", 0.5 / np.sqrt(8 * np.log(2)))
        for out, args in {"fwhm.h5": (*given, tmp("card.fits")), "many.h5": (*base, tmp("card.fits")),
                          "one.h5": (*base, tmp("card"))}.items():
            self.good(starmill(*args, "--output", tmp(out)))
            np.testing.assert_allclose(read(out)["b"]["flux"], read("fwhm.h5")["b"]["flux"],
                                       rtol=3e-7)

    def test_normalisation(self):
        write_phoenix("norm", labels_of(3))
        self.good(phoenix("norm", "none.h5"))
        flux = read("none.h5")["b"]["flux"].astype("f8")
        for how in ("median", "smooth-median"):
            self.good(phoenix("norm", f"{how}.h5", "--normalise", how))
            level = flux / read(f"{how}.h5")["b"]["flux"]
            np.testing.assert_allclose(level, level[:, :1].repeat(level.shape[1], 1), rtol=3e-7)
            if how == "median":
                np.testing.assert_allclose(level[:, 0], np.median(flux, axis=1), rtol=3e-7)
            else:
                z = np.log(flux / level[:, :1]) / 0.1
                np.testing.assert_allclose((z / np.sqrt(1 + z * z)).sum(1), 0, atol=1e-2)

    def test_bad_models_cost_themselves(self):
        labels = labels_of(10)
        write_phoenix("bad", labels)
        good = spectrum(labels[0]).astype("f4")
        bad = good.copy()
        bad[1500] = np.nan
        card = {"PHXTEFF": 5000.0, "PHXLOGG": 4.0, "PHXM_H": 0.1}
        image(bad, **card).writeto(tmp("bad/nan.fits"))
        image(0 * good, **{**card, "PHXM_H": 0.2}).writeto(tmp("bad/zero.fits"))
        image(good[:-7], **{**card, "PHXM_H": 0.3}).writeto(tmp("bad/short.fits"))
        image(good, PHXTEFF=5000.0, PHXM_H=0.4).writeto(tmp("bad/nolabel.fits"))
        image(good, **dict(zip(card, labels[4]))).writeto(tmp("bad/twin.fits"))
        image(good, **{**card, "PHXTEFF": -5000.0}).writeto(tmp("bad/minus.fits"))
        put("bad/cut.fits", content(tmp("bad/m000.fits"))[:4000])
        for workers in (1, 3):
            done = self.good(phoenix("bad", f"bad{workers}.h5", "--workers", workers))
            self.assertIn("10 good, 7 bad", done.stdout)
            for text in ("nan: its flux is nan at 5030 A", "zero: its flux is 0 at 5004.94 A",
                         "short: ", f"has no image of one axis with the {len(good) - 7} pixels",
                         "nolabel: its label logg (PHXLOGG) is not known",
                         "minus: its label teff (PHXTEFF) is not known",
                         "twin: it has the same labels as m004", "cut: "):
                self.assertIn(text, done.stdout)
        one, three = read("bad1.h5"), read("bad3.h5")
        self.assertEqual(one["why"], three["why"])
        for arm in ("b", "r"):
            np.testing.assert_array_equal(one[arm]["flux"], three[arm]["flux"])
        bad = {n: w for n, w, s in zip(one["name"], one["why"], one["status"]) if s == 2}
        self.assertEqual(set(bad), {"nan", "zero", "short", "nolabel", "twin", "cut", "minus"})

    def test_selection(self):
        labels = labels_of(12)
        write_phoenix("select", labels)
        self.good(phoenix("select", "s.h5", "--keep", "teff=4500:7000", "--exclude",
                          "teff=6000:7000,logg=1:3;feh=-2:-1.5"))
        t, g, m = labels.T
        wanted = (t >= 4500) & ~((t >= 6000) & (g <= 3)) & ~(m <= -1.5)
        self.assertTrue(3 < wanted.sum() < 10)
        np.testing.assert_array_equal(read("s.h5")["label"], labels[wanted])

    def test_what_no_model_can_pass_is_refused_at_once(self):
        labels = labels_of(4)
        write_phoenix("few", labels)
        same = labels.copy()
        same[:, 1] = 4.5
        write_phoenix("same", same)
        self.refused(phoenix("same", "x.h5"), 3, "logg is 4.5 in all", "--labels")
        base = ("library", "build", "--output", tmp("x.h5"))
        given = (*base, "--setup", put("given.yaml", SETUP))
        wave = ("--wave-file", tmp("few-wave.fits"))
        self.refused(phoenix("few", "x.h5", setup=SETUP.replace("min: 5005", "min: 4999")), 3,
                     "m000", "5000 to 5060 A, do not cover 499")
        self.refused(starmill(*base, "--setup", put("no.yaml", "arm: []"), tmp("few")), 2,
                     "no.yaml:1: ", "only the key arms")
        self.refused(phoenix("few", "x.h5", setup=SETUP.replace("[5005, 0.3]", "[5005, 0.01]")), 2,
                     "arm b asks for sigma", "the input's 0.042")
        self.refused(phoenix("few", "x.h5", setup=SETUP.replace("step: 4e-5", "step: 9e-5")), 2,
                     "arm r has pixels of 0.45", "wider than sigma / 1.2")
        self.refused(starmill(*given, *PHX, *wave, tmp("few")), 2, "--native-sigma")
        self.refused(starmill(*given, *PHX[:2], *NATIVE, *wave, tmp("few")), 3, "--medium")
        self.refused(phoenix("few", "x.h5", "--keep", "teff=1:2"), 3, "leave none of")
        self.refused(phoenix("few", "x.h5", "--keep", "age=1:2"), 2, "age: not one of the labels")
        self.refused(phoenix("few", "x.h5", "--name-pattern", "m{teff}"), 2, "has no {logg}")
        self.refused(starmill(*base, tmp("few")), 2, "--setup")
        self.refused(starmill(*base), 2, "give spectra: a folder")
        self.refused(phoenix("few", "x.h5", "--native-sigma", -1), 2, "native-sigma")
        self.refused(phoenix("few", "x.h5", "--exclude", "teff=1:2", "--exclude", "feh=1:2"), 2,
                     "--exclude is given twice")
        # an option that would do nothing
        self.refused(phoenix("few", "x.h5", "--name-column", "NAME"), 2, "--name-column", "--table")
        self.refused(starmill(*given, *PHX, *NATIVE, "--wave", "5000,0.02", "--log-wave",
                              "3.7,1e-6", tmp("few")), 2, "--log-wave", "exclude")
        self.refused(phoenix("few", "x.h5", "--overwrite", "--retry-bad"), 2, "--retry-bad")
        # a stop file that is there already
        put("old-stop", "")
        self.refused(phoenix("few", "x.h5", "--stop-file", tmp("old-stop")), 75, "not started",
                     "old-stop", "remove it")
        self.assertFalse(os.path.exists(tmp("x.h5")))
        self.assertFalse(os.path.exists(tmp("x.h5.lock")))

    def stopped(self, folder, out, number=None):
        """The stop file appears, or a signal comes, while the first models are written."""
        job = phoenix(folder, out, "--stop-file", tmp("stop"), call=start,
                      env=faults(f"stop:write:/{out}$:1:1"))
        os.waitpid(job.pid, os.WUNTRACED)
        if number is None:
            put("stop", "")
        else:
            job.send_signal(number)
        job.send_signal(signal.SIGCONT)
        said = job.communicate(timeout=240)[1]
        if number is None:
            os.unlink(tmp("stop"))
        return subprocess.CompletedProcess(job.args, job.returncode, "", said)

    def test_resume_and_stop(self):
        """After runs that are killed, stopped, refused, out of room or without a worker, the same
        command gives what an undisturbed run gives."""
        write_phoenix("resume", labels_of(40))
        self.good(phoenix("resume", "whole.h5"))
        whole = read("whole.h5")
        # killed in the second model: a model is four writes (two arms, why, status)
        killed = phoenix("resume", "part.h5", env=faults("kill:write:/part.h5$:7:1"))
        self.assertNotEqual(killed.returncode, 0)
        self.assertEqual(list(read("part.h5")["status"]), [1] + 39 * [0])
        said = self.good(starmill("library", "info", tmp("part.h5"))).stdout
        for text in ("not complete", "1 good, 0 bad, 39 still to do", "normalise: none",
                     "arm b: 5005.00 to 5030.14 A", "label teff: PHXTEFF"):
            self.assertIn(text, said)
        # another setting is another file
        self.refused(phoenix("resume", "part.h5", "--keep", "teff=1:5000"), 2, "was begun with")
        self.refused(phoenix("resume", "part.h5", "--normalise", "median"), 2, "normalise: none",
                     "normalise: median")
        self.refused(self.stopped("resume", "part.h5"), 75, "the same command continues")
        self.assertEqual((read("part.h5")["status"] == 1).sum(), 2)
        self.refused(self.stopped("resume", "part.h5", signal.SIGTERM), 75, "of 40 models are done")
        self.refused(phoenix("resume", "part.h5", "--workers", 2,
                             env=faults("ENOSPC:write:/part.h5$:6:0")), 4, "part.h5", "No space left")
        # a worker dies at the spectrum of a model, after stamp and cards
        self.refused(phoenix("resume", "part.h5", "--workers", 2,
                             env=faults("kill:open:/m020.fits$:3:1")), 70, "was killed")
        n_good = n_good_of("part.h5")
        self.assertTrue(2 < n_good < 40)
        # workers end when their parent does, and another job may write the file at once
        killed = phoenix("resume", "part.h5", "--workers", 2, call=start,
                         env=faults("slow=100:write:/part.h5$:1:0"))
        wait_until(lambda: n_good_of("part.h5") > n_good, killed)
        killed.kill()
        killed.communicate()
        self.assertEqual(killed.returncode, -signal.SIGKILL)
        self.good(phoenix("resume", "part.h5", "--stop-file", tmp("stop"), "--workers", 3))
        part = read("part.h5")
        self.assertEqual(part["complete"], 1)
        for key in ("label", "status"):
            np.testing.assert_array_equal(part[key], whole[key])
        for arm in ("b", "r"):
            np.testing.assert_array_equal(part[arm]["flux"], whole[arm]["flux"])
        before = os.stat(tmp("part.h5")).st_mtime_ns
        self.assertIn("complete already", self.good(phoenix("resume", "part.h5")).stdout)
        self.assertEqual(os.stat(tmp("part.h5")).st_mtime_ns, before)

    def test_input_that_has_changed(self):
        """A file with another time or another spectrum counts as changed, despite equal labels."""
        write_phoenix("changed", labels_of(5))
        os.rename(tmp("changed/m000.fits"), tmp(f"changed/{40 * 'ж'}.fits"))  # cut to 63 bytes
        self.good(phoenix("changed", "changed.h5"))
        before = content(tmp("changed.h5"))
        path = tmp("changed/m003.fits")
        now, bytes_before = os.stat(path), content(path)
        os.utime(path, (now.st_atime, now.st_mtime + 10))
        self.refused(phoenix("changed", "changed.h5"), 2, "the file of m003", "--overwrite")
        with pyfits.open(path, mode="update") as f: # of the same size and time
            f[0].data *= 1.01
        os.utime(path, (now.st_atime, now.st_mtime))
        self.refused(phoenix("changed", "changed.h5"), 2, "the file of m003", "--overwrite")
        put(path, bytes_before)
        os.utime(path, (now.st_atime, now.st_mtime))
        self.assertIn("complete already", self.good(phoenix("changed", "changed.h5")).stdout)
        os.utime(tmp("changed-wave.fits"), (now.st_atime, now.st_mtime + 10))
        self.refused(phoenix("changed", "changed.h5"), 2, "file of wavelengths", "--overwrite")
        self.assertEqual(content(tmp("changed.h5")), before)

    def test_overwrite_keeps_the_old_grid_until_the_new_one_is_complete(self):
        write_phoenix("again", labels_of(20))
        self.good(phoenix("again", "old.h5"))
        before = content(tmp("old.h5"))
        os.symlink("old.h5", tmp("link.h5"))
        anew = ("--overwrite", "--normalise", "median")
        killed = phoenix("again", "link.h5", *anew, env=faults("kill:write:/old.h5.new$:7:1"))
        self.assertNotEqual(killed.returncode, 0)
        self.assertEqual(list(read("old.h5.new")["status"]), [1] + 19 * [0])
        # a run with other settings, or with old.h5.new as output, keeps old.h5.new
        self.refused(phoenix("again", "link.h5", "--overwrite"), 2, "old.h5.new was begun with",
                     "remove ")
        self.refused(phoenix("again", "old.h5.new", "--normalise", "median"), 2, "old.h5.new",
                     "--overwrite")
        self.assertEqual(content(tmp("old.h5")), before)
        # when it is complete
        killed = phoenix("again", "link.h5", *anew, env=faults("kill:rename:/old.h5$:1:1"))
        self.assertNotEqual(killed.returncode, 0)
        self.assertEqual(content(tmp("old.h5")), before)
        self.assertEqual(read("old.h5.new")["complete"], 1)
        self.good(phoenix("again", "link.h5", *anew))
        self.assertTrue(os.path.islink(tmp("link.h5")))
        self.assertEqual([x for x in os.listdir(tmp("")) if x.startswith("old.h5")], ["old.h5"])
        self.good(phoenix("again", "other.h5", "--normalise", "median"))
        np.testing.assert_array_equal(read("old.h5")["b"]["flux"], read("other.h5")["b"]["flux"])
        # A grid without a good model replaces nothing.  The program opens each file three times (for
        # stamp, cards and spectrum), the first file four times.  The last opening fails.
        write_phoenix("fail", labels_of(3))
        before = content(tmp("old.h5"))
        self.refused(phoenix("fail", "old.h5", "--overwrite", env=faults(";".join(
            f"EIO:open:/m00{i}.fits$:{n}:1" for i, n in enumerate((4, 3, 3))))), 3,
                     "no model is good", "nothing was overwritten")
        self.assertEqual(content(tmp("old.h5")), before)
        self.assertEqual([x for x in os.listdir(tmp("")) if x.startswith("old.h5")], ["old.h5"])

    def test_bad_models_are_read_again(self):
        """--retry-bad reads again the models whose cards or spectrum could not be read, and a model
        whose file was mended.  Of two models with the same labels one is bad."""
        labels = labels_of(6)
        write_phoenix("retry", labels[[0, 1, 2, 3, 4, 5, 3, 4]])
        nan = tmp("retry/m005.fits")
        with pyfits.open(nan, mode="update") as f:
            mended = f[0].data.copy()
            f[0].data[1500] = np.nan
        # opened for stamp, cards, spectrum
        done = self.good(phoenix("retry", "retry.h5", env=faults(
            "EIO:open:/m003.fits$:3:1;EIO:open:/m004.fits$:2:1")))
        for text in ("4 good, 4 bad", "m003: cannot be opened: Input/output error",
                     "m004: cannot be opened: Input/output error", "m005: its flux is nan",
                     "m006: it has the same labels as m003", "--retry-bad"):
            self.assertIn(text, done.stdout)
        with pyfits.open(nan, mode="update") as f:
            f[0].data = mended
        self.assertIn("4 good, 4 bad", self.good(phoenix("retry", "retry.h5")).stdout)
        done = self.good(phoenix("retry", "retry.h5", "--retry-bad", "--workers", 2))
        self.assertIn("2 of 4 bad models are read again", done.stderr)
        grid = read("retry.h5")
        self.assertEqual(grid["complete"], 1)
        self.assertEqual(list(grid["status"]), [1, 1, 1, 1, 2, 1, 2, 1])
        self.assertEqual(grid["why"][4], "it has the same labels as m007")
        np.testing.assert_array_equal(grid["label"][:6], labels)
        self.good(phoenix("retry", "fresh.h5"))
        fresh = read("fresh.h5")
        for arm in ("b", "r"):
            np.testing.assert_array_equal(grid[arm]["flux"][[0, 1, 2, 3, 7, 5]],
                                          fresh[arm]["flux"][:6])
        again = self.good(phoenix("retry", "retry.h5", "--retry-bad")).stdout
        self.assertIn("complete already", again)
        # a good model that cannot be read now changes nothing
        self.refused(phoenix("retry", "retry.h5", env=faults("EIO:open:/m001.fits$:2:1")), 3,
                     "m001, which cannot be used now", "Input/output error")

    def test_damaged_grid_is_refused(self):
        """By the program that trains."""
        write_phoenix("damaged", labels_of(12))
        self.good(phoenix("damaged", "good.h5"))

        def dataset(name, value):
            return lambda f: f[name].__setitem__(3, value)

        def link(f):
            del f["arms/arm0/flux"]
            f["arms/arm0/flux"] = h5py.ExternalLink("other.h5", "/flux")
        for words, change in (
            (("version 9",), lambda f: f.attrs.modify("version", np.int32(9))),
            (("arm r",), lambda f: f["arms/arm1"].attrs.modify("ln_step", -1.0)),
            (("label", "m003", "not finite"), dataset("models/label", np.nan)),
            (("status 77",), dataset("models/status", 77)),
            (("/arms/arm1/flux", "model 3", "good models are above 0"), dataset("arms/arm1/flux", 0)),
            (("external",), link),
            (("arms/arm0/flux is missing",), lambda f: f.pop("arms/arm0/flux"))):
            with h5py.File(shutil.copy(tmp("good.h5"), tmp("damaged.h5")), "r+") as f:
                change(f)
            self.refused(starmill("library", "train", "--output", tmp("no.h5"), "--left-out", 0,
                                  "--epochs", 1, tmp("damaged.h5")), 3, *words)

    def test_existing_files(self):
        write_phoenix("there", labels_of(3))
        put("notes.h5", "precious")
        for more in ((), ("--overwrite",)):
            self.refused(phoenix("there", "notes.h5", *more), 2, "notes.h5")
        self.assertEqual(content(tmp("notes.h5")), b"precious")
