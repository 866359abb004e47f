"""starmill library spectra: made-up labelled spectra to a fit with their labels, wavelengths as
headers give them, refusals; and the real collections where the test data are there."""

import itertools
import re

from base import *  # noqa: F403

DATA = os.environ.get("STARMILL_TEST_DATA") or os.path.join(SOURCE, "..", "shared", "data")
MILES = os.path.join(DATA, "real/miles/miles_v9.1_packed.fits.gz")
KURUCZ = os.path.join(DATA, "real/kurucz/kurucz_stds_v5.fit.gz")

SEED = 11
N_STAR, N_PIX, FIRST, STEP = 160, 1500, 4800.0, 0.25
RNG = np.random.default_rng(SEED)
LINES = np.sort(RNG.uniform(4790, 5190, 120))
# slopes of the lines' strengths with teff / 1000 K, logg and feh, and a curvature
SLOPE = RNG.normal(size=(120, 4)) * [0.4, 0.15, 0.35, 0.05]
SIGMA = 0.9


def spectrum(label, wave):
    """Flux with a level of 1: lines whose strengths follow the labels."""
    x = np.array([(label[0] - 5500) / 1000, label[1] - 3.5, label[2] + 0.7])
    strength = 0.2 * np.exp(SLOPE[:, :3] @ x + SLOPE[:, 3] * x[0] ** 2)
    z = (np.asarray(wave)[:, None] - LINES) / SIGMA
    return np.exp(-(np.exp(-0.5 * z**2) @ strength))


def make_labels(n):
    rng = np.random.default_rng(SEED + 1)
    return np.column_stack([rng.uniform(4500, 6500, n), rng.uniform(2, 5, n),
                            rng.uniform(-1.7, 0.3, n)])


def air_to_vacuum(wave):
    """Vacuum from air: the index of refraction of Morton (2000) at the vacuum wavelength, found
    by iteration; the program uses a fit of the inverse, which agrees to 1e-5 A."""
    vacuum = np.array(wave, float)
    for _ in range(10):
        s2 = (1e4 / vacuum) ** 2
        n = 1 + 8.34254e-5 + 2.406147e-2 / (130 - s2) + 1.5998e-4 / (38.9 - s2)
        vacuum = wave * n
    return vacuum


def write(name, wave=None, cards=(), edit=None, columns=("TEFF", "LOGG", "FEH"), n=N_STAR):
    """Labelled spectra; wave: vacuum wavelengths of the pixels."""
    if wave is None:
        wave = FIRST + STEP * np.arange(N_PIX)
        cards = [("CRVAL1", FIRST), ("CDELT1", STEP), ("CRPIX1", 1), *cards]
    labels = make_labels(n)
    rng = np.random.default_rng(SEED + 2)
    x = np.linspace(-1, 1, len(wave))
    flux = np.array([spectrum(p, wave) * 1e-5 * (1 + 0.3 * rng.uniform(-1, 1) * x) for p in labels])
    flux *= 1 + 0.002 * rng.normal(size=flux.shape)
    if edit:
        edit(flux, labels)
    image = pyfits.PrimaryHDU(flux.astype("f4"))
    for key, value in cards:
        image.header[key] = value
    table = pyfits.BinTableHDU.from_columns(
        [pyfits.Column("NAME", "8A", array=[f"star{i}" for i in range(n)])]
        + [pyfits.Column(c, "D", array=labels[:, i]) for i, c in enumerate(columns)])
    pyfits.HDUList([image, table]).writeto(tmp(name), overwrite=True)
    return tmp(name)


def build(out, path, *options):
    return starmill("library", "spectra", "--output", tmp(out), "--overwrite", *options, path)


GIVEN = ("--medium", "vacuum", "--sigma", SIGMA)


def emulate(lib, labels):
    """Fluxes from the library file alone, as docs/use/formats.md says."""
    with h5py.File(lib, "r") as f:
        x = np.empty_like(labels)
        for i in range(labels.shape[1]):
            a = f[f"labels/label{i}"].attrs
            y = np.log10(labels[:, i]) if a["mapping"] == 1 else labels[:, i]
            x[:, i] = (y - a["mean"]) / a["std"]
        arm = f["arms/arm0"]
        rbf = arm["rbf"]
        u = x / rbf["lengths"][:]
        center = rbf["centers"][:] / rbf["lengths"][:]
        r = np.sqrt(((u[:, None] - center) ** 2).sum(2))
        degree = int(rbf.attrs["degree"])
        terms = [np.prod(u[:, list(c)], axis=1) for d in range(degree + 1)
                 for c in itertools.combinations_with_replacement(range(u.shape[1]), d)]
        h = np.hstack([r**3, np.array(terms).T]) @ rbf["coefficients"][:].astype("f8")
        y = h @ arm["layer0/weight"][:].astype("f8").T + arm["layer0/bias"][:]
        return arm["wavelength"][:], np.exp(y)


class LibrarySpectra(ProgramTest):
    def test_templates_are_the_spectra(self):
        path = write("plain.fits")
        done = build("plain.h5", path, *GIVEN)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"spectra: {N_STAR} of {N_STAR} used", done.stdout)
        self.assertIn("vacuum (--medium)", done.stdout)
        labels = np.array([[5000, 3, -1.0], [5500, 4.2, -0.3], [6100, 4, -0.8], [4800, 2.5, -0.5]])
        wave, flux = emulate(tmp("plain.h5"), labels)
        inner = slice(100, -100)  # polynomials of degree 8 take ends up differently
        for i, label in enumerate(labels):
            ratio = np.log(flux[i] / spectrum(label, wave))[inner]
            smooth = np.polynomial.Legendre.fit(wave[inner], ratio, 8)(wave[inner])
            # noise 0.2 % of the spectra, interpolation between 160 stars
            self.assertLess(np.std(ratio - smooth), 0.01)
        # one grid, not finer than the input's finest pixel
        self.assertLess(np.ptp(np.diff(np.log(wave))), 1e-12)

    def test_wavelengths_as_headers_give_them(self):
        linear = FIRST + STEP * np.arange(N_PIX)
        log10 = np.log10(FIRST) + 2.2e-5 * np.arange(N_PIX)
        cases = [
            ("linear", linear, [("CRVAL1", FIRST + 10 * STEP), ("CD1_1", STEP), ("CRPIX1", 11)],
             ("--medium", "vacuum")),
            ("vacuum card", linear, [("CRVAL1", FIRST), ("CDELT1", STEP), ("CRPIX1", 1),
                                     ("VACUUM", True)], ()),
            ("air", air_to_vacuum(linear), [("CRVAL1", FIRST), ("CDELT1", STEP), ("CRPIX1", 1),
                                            ("WAVEFRAM", "AIR")], ()),
            ("air ctype", air_to_vacuum(linear), [("CRVAL1", FIRST), ("CDELT1", STEP),
                                                  ("CRPIX1", 1), ("CTYPE1", "AWAV")], ()),
            ("air asked", air_to_vacuum(linear), [("CRVAL1", FIRST), ("CDELT1", STEP),
                                                  ("CRPIX1", 1), ("VACUUM", True)],
             ("--medium", "air")),
            ("log", 10**log10, [("CRVAL1", log10[0]), ("CD1_1", 2.2e-5), ("CRPIX1", 1),
                                ("DC-FLAG", 1)], ("--medium", "vacuum")),
            ("coeff", 10**log10, [("COEFF0", log10[0]), ("COEFF1", 2.2e-5)],
             ("--medium", "vacuum")),
            ("option", linear, [], ("--medium", "vacuum", "--wave", f"{FIRST},{STEP}")),
            ("log option", 10**log10, [], ("--medium", "vacuum", "--log-wave",
                                           f"{log10[0]!r},2.2e-5")),
        ]
        for name, wave, cards, options in cases:
            with self.subTest(name):
                path = write("wave.fits", wave=wave, cards=cards, n=40)
                done = build("wave.h5", path, "--sigma", SIGMA, "--recovery-sn", 0, *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                with h5py.File(tmp("wave.h5"), "r") as f:
                    got = f["arms/arm0/wavelength"][:]
                self.assertAlmostEqual(got[0], wave[0], delta=2e-5)
                step = np.diff(np.log(got)).mean()
                self.assertAlmostEqual(step / np.diff(np.log(wave)).min(), 1, delta=1e-6)
                if "log" in name or name == "coeff":
                    self.assertEqual(len(got), N_PIX)
                    np.testing.assert_allclose(got, wave, rtol=1e-9)

    def test_fit_has_the_columns_of_the_library(self):
        path = write("fit.fits", columns=("T", "G", "M"))
        done = build("fit.h5", path, *GIVEN, "--labels", "teff=T,gravity=G,m_h=M",
                     "--at-instrument-resolution")
        self.assertEqual(done.returncode, 2)  # with --sigma: one of them
        done = build("fit.h5", path, "--medium", "vacuum", "--labels", "teff=T,gravity=G,m_h=M",
                     "--at-instrument-resolution")
        self.assertEqual(done.returncode, 0, done.stderr)
        truth = np.array([[5000, 3, -1.0], [5500, 4.2, -0.3], [6000, 4, -0.8]])
        vrad = np.array([30.0, -80.0, 0.0])
        wave = np.arange(4830.0, 5140.0, 0.3)
        rng = np.random.default_rng(SEED + 3)
        flux = np.array([spectrum(p, wave * (1 - v / 299792.458)) for p, v in zip(truth, vrad)])
        flux *= 20 * (1 + 0.2 * np.linspace(-1, 1, len(wave)))
        error = flux / 100
        flux = flux + error * rng.normal(size=flux.shape)
        hdus = [pyfits.PrimaryHDU(), pyfits.BinTableHDU.from_columns([
            pyfits.Column("TARGETID", "K", array=np.arange(3) + 100),
            pyfits.Column("TARGET_RA", "D", array=np.zeros(3)),
            pyfits.Column("TARGET_DEC", "D", array=np.zeros(3)),
            pyfits.Column("OBJTYPE", "3A", array=["TGT"] * 3),
            pyfits.Column("COADD_FIBERSTATUS", "J", array=np.zeros(3, int))], name="FIBERMAP")]
        for name, array in (("WAVELENGTH", wave), ("FLUX", flux.astype("f4")),
                            ("IVAR", (error**-2).astype("f4")),
                            ("MASK", np.zeros(flux.shape, "i4"))):
            hdus.append(pyfits.ImageHDU(array, name=f"OPT_{name}"))
        pyfits.HDUList(hdus).writeto(tmp("stars.fits"), overwrite=True)
        with open(tmp("run.yaml"), "w", encoding="ascii") as f:
            f.write("wave_mask: []\nmin_vel: -300\nmax_vel: 300\n")
        self.fit("result.h5", "--config", tmp("run.yaml"), tmp("stars.fits"), lib=tmp("fit.h5"))
        got = read(self.path)
        np.testing.assert_array_equal(got["STATUS"], FITTED)
        for name in ("TEFF", "GRAVITY", "M_H", "TEFF_ERR", "GRAVITY_ERR", "M_H_ERR", "SN_OPT",
                     "CHISQ_OPT"):
            self.assertIn(name, got)
        for name in ("LOGG", "FEH", "ALPHAFE", "ALPHAFE_ERR", "CHISQ_B"):
            self.assertNotIn(name, got)
        # S/N 100 over a thousand pixels, and a library from spectra of S/N 500
        self.assertLess(abs(got["VRAD"] - vrad).max(), 1.5)
        self.assertLess(abs(got["TEFF"] - truth[:, 0]).max(), 80)
        self.assertLess(abs(got["GRAVITY"] - truth[:, 1]).max(), 0.3)
        self.assertLess(abs(got["M_H"] - truth[:, 2]).max(), 0.1)
        with h5py.File(self.path, "r") as f:
            n_par = 5  # velocity, rotation, three labels
            self.assertEqual(f["fits/COVAR"].shape, (3, n_par * (n_par + 1) // 2))

    def test_bad_spectra_are_named(self):
        def spoil(flux, labels):
            labels[4, 1] = np.nan
            flux[[7, 8, 9], 100] = [0, np.nan, -1]
            flux[20] = spectrum([6400, 4.8, 0.2], FIRST + STEP * np.arange(N_PIX))
            labels[20] = [5000, 3, -1.2]

        path = write("bad.fits", edit=spoil)
        done = build("bad.h5", path, *GIVEN)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"1 a label is not known: row 5\n")
        self.assertRegex(done.stdout, r"3 a pixel is not finite or not above 0: rows 8-10\n")
        self.assertRegex(done.stdout, r"unlike the spectra with like labels: rows? (\d+, )*21\b")
        done = build("bad.h5", path, *GIVEN, "--keep", "teff=4800:6200,feh=-1.5:0")
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(tmp("bad.h5"), "r") as f:
            a = f["labels/label0"].attrs
            self.assertGreaterEqual(a["min"], 4800)
            self.assertLessEqual(a["max"], 6200)

    def test_what_is_not_said_is_asked_for(self):
        path = write("silent.fits")
        # a name of the axis that many write; only WAVE by itself means vacuum
        vague = write("vague.fits", cards=[("CTYPE1", "WAVELENGTH")])
        out = ("library", "spectra", "--output", tmp("silent.h5"))
        for options, status, parts in (
            (("--sigma", 1, path), 3, ("air or vacuum", "--medium air or --medium vacuum")),
            (("--sigma", 1, vague), 3, ("air or vacuum", "--medium air or --medium vacuum")),
            (("--medium", "vacuum", path), 2, ("does not say its resolution", "--fwhm")),
            (("--medium", "vacuum", "--fwhm", 1e300, path), 2, ("--fwhm 1e+300 A", "is none for")),
            ((*GIVEN, "--labels", "teff=TEFF,alpha=ALPHA", path), 3, ("column ALPHA", "--labels")),
            ((*GIVEN, "--range", "7000,8000", path), 3, ("0 pixels between 7000 and 8000",)),
            ((*GIVEN, "--keep", "alpha=0:1", path), 2, ("alpha", "none of the labels")),
            ((*GIVEN, "--keep", "teff=5:4", path), 2, ("NAME=MIN:MAX",)),
            ((*GIVEN, "--keep", "teff=7000:9000", path), 3, ("160 are outside the range",)),
            ((*GIVEN, "--labels", "teff", path), 2, ("NAME=",)),
            ((*GIVEN, "--labels", "vrad=TEFF,logg=LOGG", path), 2, ("vrad",)),
            ((*GIVEN, "--medium", "water", path), 2, ("air or vacuum",)),
            ((*GIVEN, "--components", "0", path), 2, ("--components takes", "not '0'")),
            ((*GIVEN, "--smoothing", "-1", path), 2, ("--smoothing takes", "not '-1'")),
            ((*GIVEN, "--arm", "o p", path), 2, ("arm",)),
            ((*GIVEN, "--wave", "9000,-1", path), 3, ("no wavelengths",)),
            (GIVEN, 2, ("takes one file", "not 0")),
            ((*GIVEN, tmp("nowhere.fits")), 3, ("nowhere.fits",)),
        ):
            with self.subTest(options=options):
                done = starmill(*out, *options)
                self.assertOneLine(done, *parts, status=status)
                self.assertFalse(os.path.exists(tmp("silent.h5")))
        done = starmill("library", "spectra", *GIVEN, path)
        self.assertOneLine(done, "needs --output", status=2)
        bare = write("bare.fits", wave=FIRST + STEP * np.arange(N_PIX), cards=[])
        self.assertOneLine(starmill(*out, *GIVEN, bare), "no CRVAL1", "--wave", status=3)

    def test_files_are_not_overwritten_by_chance(self):
        path = write("keep.fits")
        before = content(path)
        done = starmill("library", "spectra", "--output", path, "--overwrite", *GIVEN, path)
        self.assertOneLine(done, "--output", "the file of spectra " + path, status=2)
        self.assertEqual(content(path), before)
        self.assertEqual(build("keep.h5", path, *GIVEN).returncode, 0)
        done = starmill("library", "spectra", "--output", tmp("keep.h5"), *GIVEN, path)
        self.assertOneLine(done, "--overwrite", status=4)

    def test_ranks_and_threads_make_the_same_library(self):
        path = write("same.fits")
        digests = set()
        for ranks, threads in ((0, 1), (0, 3), (2, 2)):
            done = starmill("library", "spectra", "--output", tmp("same.h5"), "--overwrite", *GIVEN,
                            "--threads", threads, path, ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            digests.add(re.search(r"hash ([0-9a-f]{64})", done.stdout).group(1))
        self.assertEqual(len(digests), 1)

    @unittest.skipUnless(os.path.exists(MILES), "no test data")
    def test_miles(self):
        done = build("miles.h5", MILES, "--range", "3950,7380")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("air (card WAVEFRAM), converted to vacuum", done.stdout)
        self.assertIn("sigma 1.0617 A", done.stdout)
        used = int(re.search(r"spectra: (\d+) of 984 used", done.stdout).group(1))
        self.assertGreater(used, 900)
        # measured: 1.5 %; 139 K, 0.30 and 0.17 dex
        self.assertLess(float(re.search(r"median ([\d.]+) %", done.stdout).group(1)), 1.8)
        scatter = {m[0]: float(m[1]) for m in
                   re.findall(r"^  (\w+) +[-\d.]+ +([\d.]+) ", done.stdout, re.M)}
        self.assertLess(scatter["teff"], 170)
        self.assertLess(scatter["logg"], 0.36)
        self.assertLess(scatter["feh"], 0.2)

    def test_model_error(self):
        """A line that the templates do not have, of another strength in every star."""
        wave = FIRST + STEP * np.arange(N_PIX)
        line = np.exp(-0.5 * ((wave - 5003) / 1.2) ** 2)

        def edit(flux, labels):
            flux *= 1 + 0.2 * np.random.default_rng(SEED + 3).normal(size=(len(flux), 1)) * line

        plain = write("plain.fits")
        done = build("left-out.h5", plain, *GIVEN, "--model-error", "2", "--spectra-sn", "500")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("model error of arm opt", done.stdout)
        with h5py.File(tmp("left-out.h5"), "r") as f:
            self.assertEqual(f["arms/arm0/model_error/components"].shape[0], 2)
        self.assertEqual(build("bare.h5", plain, *GIVEN).returncode, 0)
        with h5py.File(tmp("bare.h5"), "r") as f:
            self.assertNotIn("model_error", f["arms/arm0"])
        other = write("other.fits", edit=edit)
        measure = ("library", "model-error", "--medium", "vacuum", "--components", "2",
                   "--spectra-sn", "500", "--output", tmp("with.h5"), "--overwrite")
        done = starmill(*measure, "--spectra", other, tmp("bare.h5"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, rf"spectra: \d+ of {N_STAR} have labels inside")
        with h5py.File(tmp("with.h5"), "r") as f:
            error = f["arms/arm0/model_error"]
            at = f["arms/arm0/wavelength"][:]
            # one is that of the continuum, which the templates lack and the fit's functions do not
            # make up for at the ends
            match = [abs(np.corrcoef(np.interp(wave, at, c), line)[0, 1])
                     for c in error["components"][:]]
            self.assertGreater(max(match), 0.9)
            # 150 stars know a width to 6 %, and the components are mixed a little
            self.assertAlmostEqual(error["sigmas"][int(np.argmax(match))]
                                   / (0.2 * np.sqrt(np.mean(line**2))), 1, delta=0.25)
        info = starmill("library", "info", tmp("with.h5"))
        self.assertIn("and 2 components of", info.stdout)
        self.assertOneLine(starmill(*measure, tmp("bare.h5")), "--spectra", status=2)
        self.assertOneLine(starmill(*measure, "--spectra", other, "--arms", "q", tmp("bare.h5")),
                           "has no arm q", status=2)
        self.assertOneLine(starmill(*measure, "--spectra", other, tmp("with.h5")), "--output",
                           status=2)
        short = write("short.fits", n=14)
        self.assertOneLine(starmill(*measure, "--components", "8", "--spectra", short,
                                    tmp("bare.h5")), "needs at least 16", status=3)

    @unittest.skipUnless(os.path.exists(KURUCZ), "no test data")
    def test_kurucz(self):
        options = ("--labels", "teff=TEFF,logg=G,feh=FEH", "--at-instrument-resolution")
        done = build("kurucz.h5", KURUCZ, *options)
        self.assertOneLine(done, "--medium", status=3)
        done = build("kurucz.h5", KURUCZ, *options, "--medium", "vacuum")
        self.assertOneLine(done, "all pixels are good with --range 3007.61,10998.19", status=3)
        done = build("kurucz.h5", KURUCZ, *options, "--medium", "vacuum", "--range", "3010,10990",
                     "--keep-outliers")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("spectra: 89 of 89 used", done.stdout)
        # two values of log g determine no square
        self.assertIn("polynomial of degree 1 (what the labels determine)", done.stdout)
        with h5py.File(tmp("kurucz.h5"), "r") as f:
            wave = f["arms/arm0/wavelength"][:]
        with pyfits.open(KURUCZ) as h:
            pixel = 10 ** (h[0].header["CRVAL1"] + 1e-4 * np.arange(5650))
        pixel = pixel[(pixel >= 3010) & (pixel <= 10990)]
        np.testing.assert_allclose(wave, pixel, rtol=1e-9)


if __name__ == "__main__":
    print("seed", SEED)
    main()
