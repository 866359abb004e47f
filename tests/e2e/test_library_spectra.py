# SPDX-License-Identifier: BSD-3-Clause
"""starmill library spectra, from made-up labelled spectra to a fit that finds their labels.  Also
wavelengths from headers, refusals, and real collections if the test data are there."""

from base import *  # noqa: F403
from starmill.templates import library_file
from starmill.templates.emulate import flux as flux_of

MILES = os.path.join(DATA, "real/miles/miles_v9.1_packed.fits.gz")
KURUCZ = os.path.join(DATA, "real/kurucz/kurucz_stds_v5.fit.gz")

SEED = 11
print("seed", SEED)
N_STAR, N_PIX, FIRST, STEP = 160, 1500, 4800.0, 0.25
RNG = np.random.default_rng(SEED)
LINES = np.sort(RNG.uniform(4790, 5190, 120))
# slopes of the lines' strengths with teff / 1000 K, logg and feh, and a curvature
SLOPE = RNG.normal(size=(120, 4)) * [0.4, 0.15, 0.35, 0.05]
SIGMA = 0.9


@functools.lru_cache(maxsize=32)  # most spectra of a test have the same pixels
def profiles(wave):
    """The lines' Gaussians [pixel][line] at wavelengths given as bytes."""
    return np.exp(-0.5 * ((np.frombuffer(wave)[:, None] - LINES) / SIGMA) ** 2)


def spectrum(label, wave):
    """Flux with a level of 1: lines whose strengths follow the labels."""
    x = np.array([(label[0] - 5500) / 1000, label[1] - 3.5, label[2] + 0.7])
    strength = 0.2 * np.exp(SLOPE[:, :3] @ x + SLOPE[:, 3] * x[0] ** 2)
    return np.exp(-(profiles(np.asarray(wave, float).tobytes()) @ strength))


def make_labels(n):
    rng = np.random.default_rng(SEED + 1)
    return np.column_stack([rng.uniform(4500, 6500, n), rng.uniform(2, 5, n),
                            rng.uniform(-1.7, 0.3, n)])


def air_to_vacuum(wave):
    """Vacuum wavelengths from air, by iteration of Morton's (2000) index of refraction at the
    vacuum wavelength.  The program uses a fit of the inverse, which agrees to 1e-5 A."""
    vacuum = np.array(wave, float)
    for _ in range(10):
        s2 = (1e4 / vacuum) ** 2
        vacuum = wave * (1 + 8.34254e-5 + 2.406147e-2 / (130 - s2) + 1.5998e-4 / (38.9 - s2))
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
    image.header.update(cards)
    table = {"NAME": ("8A", [f"star{i}" for i in range(n)]), **dict(zip(columns, labels.T))}
    pyfits.HDUList([image, bintable(table)]).writeto(tmp(name), overwrite=True)
    return tmp(name)


def cards(hdu, **more):
    hdu.header.update(more)
    return hdu


@functools.cache
def folders():
    """Make folders of 60 spectra, one a file; return the labels.  Labels are in cards, but those of
    stelib in stars.fits.  Wavelengths are in each file, but those of phoenix in wave.fits."""
    n, wave = 60, FIRST + STEP * np.arange(N_PIX)
    labels = make_labels(n)
    for folder in ("stelib", "phoenix", "tables"):
        os.makedirs(tmp(folder), exist_ok=True)
    for i, label in enumerate(labels):
        name = f"star{i:03d}.fits"
        # each grid but the first starts up to 6 A later; a third have a bad pixel
        start = FIRST + (0.1 + 0.25 * (i % 25) if i else 0)
        flux = spectrum(label, start + STEP * np.arange(N_PIX))
        flux[300 + 7 * i] = np.nan if i % 3 == 1 else flux[300 + 7 * i]
        cards(pyfits.PrimaryHDU(flux.astype("f4")), CRVAL1=start, CDELT1=STEP, CRPIX1=1,
              ).writeto(tmp(f"stelib/{name}"), overwrite=True)
        cards(pyfits.PrimaryHDU(spectrum(label, wave).astype("f4")), PHXTEFF=label[0],
              PHXLOGG=label[1], PHXM_H=label[2]).writeto(tmp(f"phoenix/{name}"), overwrite=True)
        cards(bintable({"lam": wave, "f": ("E", spectrum(label, wave))}), TUNIT1="Angstrom", TEFF=label[0],
              LOGG=label[1], FEH=label[2]).writeto(tmp(f"tables/{name}"), overwrite=True)
    cards(pyfits.PrimaryHDU(wave / 10), BUNIT="nm").writeto(tmp("wave.fits"), overwrite=True)
    order = np.random.default_rng(SEED).permutation(n)
    bintable({"STAR": ("16A", [f"star{i:03d}" for i in order]), **dict(zip("TGM", labels[order].T))}).writeto(
        tmp("stars.fits"), overwrite=True)
    return labels


def build(out, *inputs, call=starmill):
    return call("library", "spectra", "--output", tmp(out), "--overwrite", *inputs)


def built(out, *inputs):
    return build(out, *inputs, call=run)


GIVEN = ("--medium", "vacuum", "--sigma", SIGMA)
PHOENIX = ("--labels", "teff=PHXTEFF,logg=PHXLOGG,feh=PHXM_H", "--wave-file", tmp("wave.fits"))
# labels and velocities of the stars that are fitted
TRUTH = np.array([[5000, 3, -1.0], [5500, 4.2, -0.3], [6000, 4, -0.8]])
VRAD = np.array([30.0, -80.0, 0.0])


def emulate(lib, labels):
    """Wavelengths and fluxes of a library file."""
    library = library_file.read(lib)
    return library.arm[0].wave_aa, flux_of(library, 0, labels)


class LibrarySpectra(ProgramTest):
    @staticmethod
    @functools.cache
    def plain():
        """Make plain.h5 from plain.fits; return the path of the spectra and the ended process."""
        path = write("plain.fits")
        return path, built("plain.h5", path, *GIVEN)

    def test_templates_are_the_spectra(self):
        path, done = self.plain()
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
        self.assertOneLine(starmill("library", "spectra", "--output", tmp("plain.h5"), *GIVEN, path), "--overwrite",
                           status=4)
        # one grid, not finer than the input's finest pixel
        self.assertLess(np.ptp(np.diff(np.log(wave))), 1e-12)

    def test_wavelengths_as_headers_give_them(self):
        linear = FIRST + STEP * np.arange(N_PIX)
        log10 = np.log10(FIRST) + 2.2e-5 * np.arange(N_PIX)
        start = [("CRVAL1", FIRST), ("CDELT1", STEP), ("CRPIX1", 1)]
        log_start = [("CRVAL1", log10[0]), ("CD1_1", 2.2e-5), ("CRPIX1", 1), ("DC-FLAG", 1)]
        medium, air = ("--medium", "vacuum"), air_to_vacuum(linear)
        cases = [
            ("linear", linear, [("CRVAL1", FIRST + 10 * STEP), ("CD1_1", STEP), ("CRPIX1", 11)],
             medium),
            ("vacuum card", linear, [*start, ("VACUUM", True)], ()),
            ("air", air, [*start, ("WAVEFRAM", "AIR")], ()),
            ("air ctype", air, [*start, ("CTYPE1", "AWAV")], ()),
            ("air asked", air, [*start, ("VACUUM", True)], ("--medium", "air")),
            ("log", 10**log10, log_start, medium),
            ("coeff", 10**log10, [("COEFF0", log10[0]), ("COEFF1", 2.2e-5)], medium),
            ("nm", linear, [("CRVAL1", FIRST / 10), ("CDELT1", STEP / 10), ("CRPIX1", 1),
                            ("CUNIT1", "nm")], medium),
            ("IRAF's um", linear, [("CRVAL1", FIRST / 1e4), ("CDELT1", STEP / 1e4), ("CRPIX1", 1),
                                   ("WAT1_001", "wtype=linear units=microns")], medium),
            ("natural log", 10**log10, [("CRVAL1", FIRST), ("CRPIX1", 1), ("CTYPE1", "WAVE-LOG"),
                                        ("CDELT1", FIRST * 2.2e-5 * np.log(10))], ()),
            # FITS standard 4.0, 8.1: with CD1_1, CDELT1 does not count; PC1_1 multiplies CDELT1
            ("CD and CDELT", linear, [*start[::2], ("CD1_1", STEP), ("CDELT1", 1)], medium),
            ("astropy's m", linear, [("CRVAL1", FIRST / 1e10), ("CDELT1", 1), ("CRPIX1", 1), ("PC1_1", STEP / 1e10),
                                     ("CUNIT1", "m")], medium),
            ("option", linear, [], (*medium, "--wave", f"{FIRST},{STEP}")),
            ("log option", 10**log10, [], (*medium, "--log-wave", f"{log10[0]!r},2.2e-5"))]
        for name, wave, cards, options in cases:
            with self.subTest(name):
                path = write("wave.fits", wave=wave, cards=cards, n=40)
                built("wave.h5", path, "--sigma", SIGMA, "--left-out", 0, *options)
                got = read(tmp("wave.h5"), "arms/arm0")["wavelength"]
                self.assertAlmostEqual(got[0], wave[0], delta=2e-5)
                step = np.diff(np.log(got)).mean()
                self.assertAlmostEqual(step / np.diff(np.log(wave)).min(), 1, delta=1e-6)
                if "log" in name or name == "coeff":
                    np.testing.assert_allclose(got, wave, rtol=1e-9)

    def test_fit_has_the_columns_of_the_library(self):
        path = write("fit.fits", columns=("T", "G", "M"))
        done = build("fit.h5", path, *GIVEN, "--labels", "teff=T,gravity=G,m_h=M",
                     "--at-instrument-resolution")
        self.assertEqual(done.returncode, 2)  # with --sigma: one of them
        built("fit.h5", path, "--medium", "vacuum", "--labels", "teff=T,gravity=G,m_h=M",
              "--at-instrument-resolution")
        wave = np.arange(4830.0, 5140.0, 0.3)
        flux = np.array([spectrum(p, wave * (1 - v / 299792.458)) for p, v in zip(TRUTH, VRAD)])
        flux *= 20 * (1 + 0.2 * np.linspace(-1, 1, len(wave)))
        error = flux / 100
        flux = flux + error * np.random.default_rng(SEED + 3).normal(size=flux.shape)
        write_desi(tmp("stars.fits"), {"OPT": {"WAVELENGTH": wave, "FLUX": flux, "IVAR": error**-2}})
        put("run.yaml", "arms: [opt]\nwave_mask: []\nmin_vel: -300\nmax_vel: 300\n")
        self.fit("result.h5", "--config", tmp("run.yaml"), tmp("stars.fits"), lib=tmp("fit.h5"))
        got = read(self.path)
        np.testing.assert_array_equal(got["STATUS"], FITTED)
        self.assertLessEqual({"TEFF", "GRAVITY", "M_H", "TEFF_ERR", "GRAVITY_ERR", "M_H_ERR",
                              "SN_OPT", "CHISQ_OPT"}, set(got))
        self.assertFalse({"LOGG", "FEH", "ALPHAFE", "ALPHAFE_ERR", "CHISQ_B"} & set(got))
        # limits for S/N 100 over a thousand pixels, and a library from spectra of S/N 500
        for name, true, limit in zip(("VRAD", "TEFF", "GRAVITY", "M_H"), (VRAD, *TRUTH.T),
                                     (1.5, 80, 0.3, 0.1)):
            self.assertLess(abs(got[name] - true).max(), limit, name)
        n_par = 5  # velocity, rotation, three labels
        self.assertEqual(read(self.path)["COVAR"].shape, (3, n_par * (n_par + 1) // 2))

    def test_files_of_one_spectrum(self):
        """The same stars give libraries whose templates agree: as one image, as STELIB and PHOENIX
        folders (see folders), as tables, and as files named one by one."""
        labels, wave = folders(), FIRST + STEP * np.arange(N_PIX)
        n = len(labels)

        def clean(flux, given):
            for i in range(n):
                flux[i] = spectrum(given[i], wave)
        options = (*GIVEN, "--left-out", 0, "--range", "4815,5160", "--keep-outliers")
        built("packed.h5", write("packed.fits", edit=clean, n=n), *options)
        at = labels[:5]
        grid, expected = emulate(tmp("packed.h5"), at)
        named = sorted(os.listdir(tmp("tables")))
        for inputs, more, tolerance in (
            ((tmp("stelib"),), ("--table", tmp("stars.fits"), "--name-column", "STAR", "--labels",
                                "teff=T,logg=G,feh=M"), 1e-2),  # gaps as the others fill them
            ((tmp("phoenix") + "/",), PHOENIX, 1e-5),
            ((tmp("tables"),), ("--columns", "LAM,F"), 1e-5),
            ([tmp("tables/" + f) for f in named], ("--columns", "LAM,F"), 1e-5)):
            with self.subTest(inputs=inputs[0]):
                done = run("library", "spectra", "--output", tmp("files.h5"), "--overwrite",
                           *options, *more, *inputs)
                self.assertIn(f"{n} of {n} used", done.stdout)
                self.assertEqual("20 of those used have gaps" in done.stdout, "--table" in more)
                wave_got, got = emulate(tmp("files.h5"), at)
                np.testing.assert_allclose(wave_got, grid, rtol=1e-9)
                self.assertLess(abs(np.log(got / expected)).max(), tolerance)
        if SHIM:
            counted = faults("count:open:/wave.fits$:1:0", FAULTS_COUNT=tmp("opened"))
            run("library", "spectra", "--output", tmp("files.h5"), "--overwrite", *options,
                *PHOENIX, tmp("phoenix"), env=counted)
            # wave.fits is opened by our checks and by CFITSIO, not once for each file
            self.assertIn(sum(int(x.split()[-1]) for x in content(tmp("opened"), "r").splitlines()),
                          range(1, 6))

    def test_files_of_one_spectrum_that_do_not_fit(self):
        folders()
        image = write("many.fits", n=60)
        out = ("library", "spectra", "--output", tmp("no.h5"), *GIVEN)
        os.makedirs(tmp("empty"))
        wave = np.delete(FIRST + STEP * np.arange(N_PIX), range(500, 520))
        bintable({"lam": wave, "f": np.ones(len(wave))}).writeto(tmp("hole.fits"))
        bintable({"STAR": np.array(["star000"]), "TEFF": ("2D", np.ones((1, 2))),
                  "LOGG": np.ones(1), "FEH": np.ones(1)}).writeto(tmp("vector.fits"))
        hole = f"no pixel between {wave[499]:.2f} and {wave[500]:.2f} A"
        for options, status, parts in (
            ((tmp("empty"),), 3, ("has no files",)),
            ((tmp("stelib"), "--columns", "LAM,F"), 3, ("star000.fits", "LAM and F", "--columns")),
            ((tmp("stelib"),), 3, ("60 lack a label",)),
            ((tmp("stelib"), "--columns", "LAM"), 2, ("WAVE,FLUX",)),
            ((tmp("stelib"), "--table", tmp("stars.fits")), 3, ("column FILE", "--name-column")),
            ((tmp("stelib"), "--table", tmp("vector.fits"), "--name-column", "STAR"), 3,
             ("vector.fits", "TEFF", "one number per row")),
            ((tmp("phoenix"), *PHOENIX[:2]), 3, ("no CRVAL1",)),
            ((tmp("phoenix"), *PHOENIX, "--wave", "4800,1"), 2, ("give only one of",)),
            ((tmp("stelib"), "--name-column", "NAME"), 2, ("--name-column", "--table")),
            ((image, "--table", tmp("stars.fits")), 2, ("of files with one spectrum",)),
            ((tmp("hole.fits"), tmp("tables"), "--columns", "LAM,F"), 3, (hole, "--range")),
            ((tmp("tables"), "--labels", "teff=TEFF,logg=LOGG,feh=M_H", "--columns", "LAM,F"), 3,
             ("60 lack a label",))):
            with self.subTest(options=options):
                self.assertOneLine(starmill(*out, *options), *parts, status=status)

    def test_widths_that_differ(self):
        """Without --fwhm, spectra are left out if their card FWHM differs from the first one's."""
        folders()
        shutil.copytree(tmp("tables"), tmp("weitä"))
        for i in range(60):
            pyfits.setval(tmp(f"weitä/star{i:03d}.fits"), "FWHM", value=1 + (i >= 40), ext=1)
        options = (*GIVEN[:2], "--columns", "LAM,F", "--keep-outliers", "--left-out", 0, tmp("weitä"))
        self.assertIn("60 of 60 used", built("widths.h5", "--fwhm", 1, *options).stdout)
        done = built("widths.h5", *options)
        self.assertRegex(done.stderr + done.stdout, "star040.fits: its card FWHM is 2 A(.|\n)*40 of 60")
        self.assertEqual(library_file.read(tmp("widths.h5")).arm[0].source, "weit?")

    def test_long_names(self):
        """Two names agree in 31 characters: only the star that the table names gets labels."""
        labels, long = folders(), "a-very-long-name-of-a-spectrum-of-"
        n = len(labels)
        os.makedirs(tmp("long"))
        for i in range(n):
            shutil.copy(tmp(f"stelib/star{i:03d}.fits"), tmp(f"long/{long}star{i:03d}.fits"))
        shutil.copy(tmp("stelib/star000.fits"), tmp(f"long/{long}another.fits"))
        def table(names):
            bintable({"STAR": ("60A", names), **dict(zip("TGM", labels.T))}).writeto(tmp("long.fits"), overwrite=True)
        options = ("library", "spectra", "--output", tmp("long.h5"), "--overwrite", *GIVEN,
                   "--left-out", 0, "--keep-outliers", "--range", "4815,5160", "--table",
                   tmp("long.fits"), "--name-column", "STAR", "--labels", "teff=T,logg=G,feh=M",
                   tmp("long"))
        table([f"{long}star{i:03d}" for i in range(n)])
        done = run(*options)
        self.assertIn(f"spectra: {n} of {n + 1} used", done.stdout)
        self.assertIn("1 a label is not known", done.stdout)
        table([f"{long}star{i // 2 * 2:03d}" for i in range(n)])
        self.assertOneLine(starmill(*options), "rows 1 and 2", "both have the name", status=3)

    def test_axes_of_a_cube(self):
        """Names of a cube's axes; test_spectra_files.py and test_library_build.py read cubes."""
        image = cards(pyfits.PrimaryHDU(np.ones((2, 2, 2, 500), "f4")), CRVAL1=FIRST, CDELT1=STEP, CTYPE2="TEFF",
                      CTYPE3="LOGG", **{f"{key}{axis}": 1.0 for axis in (2, 3, 4) for key in ("CRVAL", "CDELT")})
        for labels, axis, words in (("teff=TEFF,logg=LOGG", "FEH", ("3 axes", "--labels names 2")),
                                    ("teff=TEFF,logg=LOGG,feh=MH", "FEH", ("CTYPE4 is 'FEH'", "--labels")),
                                    ("teff=TEFF,logg=LOGG,feh=FEH", "teff", ("CTYPE2 and CTYPE4 are both 'teff'",))):
            cards(image, CTYPE4=axis).writeto(tmp("cube.fits"), overwrite=True)
            self.assertOneLine(build("cube.h5", tmp("cube.fits"), *GIVEN, "--labels", labels), *words, status=3)

    def test_velocities_of_the_spectra_are_taken_out(self):
        truth = np.random.default_rng(SEED + 5).normal(0, 60, N_STAR)
        wave = FIRST + STEP * np.arange(N_PIX)

        def move(flux, labels):
            for i, v in enumerate(truth):
                flux[i] = spectrum(labels[i], wave * (1 - v / 299792.458))
        path = write("moved.fits", edit=move)
        scatter = []
        for options in ((), ("--align",)):
            done = built("moved.h5", path, *GIVEN, *options, "--left-out", 0.5)
            scatter.append(float(re.search(r"  100  km/s +\S+ +(\S+)", done.stdout).group(1)))
        rms = float(re.search(r"velocities removed from the spectra: rms (\S+)", done.stdout).group(1))
        # what is left is noise, S/N 100 over 1500 pixels of 16 km/s
        self.assertGreater(scatter[0], 9)
        self.assertLess(scatter[1], 1.5)
        self.assertLess(abs(rms - truth.std()), 2)
        # templates have one velocity: polynomials alone would leave 3 km/s
        labels, vel = make_labels(N_STAR), []
        at, flux = emulate(tmp("moved.h5"), labels)
        for label, found in zip(labels, flux):
            true = np.log(spectrum(label, at))
            basis = np.column_stack([np.polynomial.legendre.legvander(np.linspace(-1, 1, len(at)), 8),
                                     np.gradient(true, np.log(at))])
            vel.append(299792.458 * np.linalg.lstsq(basis, np.log(found) - true, rcond=None)[0][-1])
        self.assertLess(1.4826 * np.median(abs(vel - np.median(vel))), 2)

    def test_desi_coadds_without_networks(self):
        """A library of one arm fits both cameras of a coadd with resolution matrices.  FIT_INFO
        tells if templates are broader than the matrix."""
        path = write("grid.fits", edit=lambda flux, labels: flux.__imul__(1e5))
        built("grid.h5", path, *GIVEN, "--keep-outliers", "--left-out", 0)
        n, rng, offset = len(TRUTH), np.random.default_rng(SEED + 4), np.arange(5, -6, -1)
        for sigma, narrow in ((1.3, 0), (SIGMA / 2, 16)):
            arms = {}
            for arm, first, last in (("B", 4810.0, 5010.0), ("R", 4990.0, 5160.0)):
                wave = np.arange(first, last, 0.8)
                # lines have sigma 0.9 already; the sum adds the rest of the line-spread function
                beyond = np.arange(-6, 6.01, 0.1)
                weight = np.exp(-0.5 * beyond**2 / max(sigma**2 - SIGMA**2, 1e-4))
                weight /= weight.sum()
                flux = np.array([sum(w * spectrum(p, (wave + d) * (1 - v / 299792.458))
                                     for d, w in zip(beyond, weight) if w > 1e-6)
                                 for p, v in zip(TRUTH, VRAD)]) * 20
                flux += 0.2 * rng.normal(size=flux.shape)
                row = np.exp(-0.5 * (offset * 0.8 / sigma) ** 2)
                row /= row.sum()
                matrix = np.repeat(np.tile(row[:, None], (1, len(wave)))[None], n, 0)
                arms[arm] = {"WAVELENGTH": wave, "FLUX": flux, "IVAR": np.full(flux.shape, 25),
                             "RESOLUTION": matrix}
            write_desi(tmp("coadd.fits"), arms)
            put("desi.yaml", "arms: [opt]\nwave_mask: []\nmin_vel: -300\nmax_vel: 300\n")
            self.fit(f"desi{narrow}.h5", "--config", tmp("desi.yaml"), tmp("coadd.fits"),
                     lib=tmp("grid.h5"))
            got = read(self.path)
            np.testing.assert_array_equal(got["STATUS"], FITTED)
            np.testing.assert_array_equal(got["FIT_INFO"] & 16, narrow)
            # S/N 100 over 460 pixels: errors of 0.4 km/s, 20 K, 0.05 and 0.03 dex
            for name, true, limit in zip(("VRAD", "TEFF", "LOGG", "FEH"), (VRAD, *TRUTH.T),
                                         (2, 100, 0.3, 0.1)):
                self.assertLess(abs(got[name] - true).max(), limit, name)
            # pixels of both cameras, but five at each end
            self.assertTrue((got["NPIX_OPT"] > 420).all())

    def test_bad_spectra_are_named(self):
        def spoil(flux, labels):
            labels[4, 1] = np.nan
            for row, value in zip((7, 8, 9), (0, np.nan, -1)):
                flux[row, 500:900] = value
            flux[[11, 12, 13], 100] = [0, np.nan, -1]
            flux[20] = spectrum([6400, 4.8, 0.2], FIRST + STEP * np.arange(N_PIX))
            labels[20] = [5000, 3, -1.2]
        path = write("bad.fits", edit=spoil)
        done = built("bad.h5", path, *GIVEN)
        self.assertRegex(done.stdout, r"1 a label is not known: row 5\n")
        self.assertRegex(done.stdout, r"3 more than a fifth of the pixels are not finite or not "
                                      r"above 0: rows 8-10\n")
        self.assertRegex(done.stdout, r"3 of those used have gaps .*: at most 0.26 %\n")
        # pixels 901 to 1500
        self.assertIn("no spectrum has a bad pixel from 5025.00 to 5174.75 A, except those with no good one", done.stdout)
        self.assertRegex(done.stdout, r"unlike the spectra with similar labels: rows? (\d+, )*21\b")
        twins = write("twins.fits", edit=lambda flux, labels: labels[30].put([0, 1, 2], labels[31]))
        text, how = r" .*: rows 31-32\n", (twins, *GIVEN, "--keep-outliers")
        self.assertRegex(built("bad.h5", *how).stdout, "2 of those used have the labels of another" + text)
        self.assertRegex(build("no.h5", *how, "--smoothing", "1e-8").stderr,
                         "no two spectra may have equal labels" + text)
        empty = write("empty.fits", edit=lambda flux, labels: flux[:N_STAR * 5 // 8].fill(0))
        self.assertIn(f"{N_STAR * 5 // 8} more than a fifth", built("bad.h5", empty, *GIVEN).stdout)
        built("bad.h5", path, *GIVEN, "--keep", "teff=4800:6200,feh=-1.5:0")
        teff = attributes(tmp("bad.h5"), "labels/label0")
        self.assertGreaterEqual(teff["min"], 4800)
        self.assertLessEqual(teff["max"], 6200)

    def test_hulls_of_models_hold_all_of_them(self):
        # a grid with a node far off: 7500 K is 3.3 standard deviations from the next ones
        nodes = np.array([(t, g, m) for t in np.linspace(4800, 6000, 7) for g in (2.5, 3.2, 3.8, 4.5)
                          for m in (-1.0, -0.6, -0.3, 0.0)] + [(7500, 4.0, -0.5)])

        def edit(flux, labels):
            labels[:] = nodes
            for i, label in enumerate(nodes):
                flux[i] = spectrum(label, FIRST + STEP * np.arange(N_PIX))
        path = write("grid.fits", edit=edit, n=len(nodes))
        alone = f"lie outside the hulls of the others .*: row {len(nodes)}\n"
        for options, left_out in (((), False), (("--hull", "dense"), True),
                                  (("--hull", "all"), False)):
            with self.subTest(options=options):
                done = built("grid.h5", path, *GIVEN, "--left-out", 0, "--keep-outliers", *options)
                self.assertEqual(bool(re.search(alone, done.stdout)), left_out, done.stdout)
                guess = read(tmp("grid.h5"), "guess")["labels"]
                self.assertEqual(guess[:, 0].max(), 6000 if left_out else 7500)

    def test_what_is_not_said_is_asked_for(self):
        path = write("silent.fits")
        # many files have CTYPE1 WAVELENGTH, which names no medium; WAVE would mean vacuum
        vague = write("vague.fits", cards=[("CTYPE1", "WAVELENGTH")])
        nm = write("nm.fits", cards=[("CRVAL1", FIRST / 10), ("CDELT1", STEP / 10)])
        kk = write("kk.fits", edit=lambda _, labels: labels.__itruediv__([1000, 1, 1]))
        out = ("library", "spectra", "--output", tmp("silent.h5"))
        for options, status, parts in (
            (("--sigma", 1, path), 3, ("medium of its wavelengths", "--medium air or --medium vacuum")),
            (("--sigma", 1, vague), 3, ("medium of its wavelengths", "--medium air or --medium vacuum")),
            (("--medium", "vacuum", path), 2, ("does not give its resolution", "--fwhm")),
            (("--medium", "vacuum", "--fwhm", 1e300, path), 2, ("--fwhm 1e+300 A", "expected at most")),
            ((*GIVEN, "--labels", "teff=TEFF,alpha=ALPHA", path), 3, ("column ALPHA", "--labels")),
            ((*GIVEN, "--range", "7000,8000", path), 3, ("only 0 pixels from 7000 to 8000 A",)),
            ((*GIVEN, "--keep", "alpha=0:1", path), 2, ("alpha", "not one of the labels")),
            ((*GIVEN, "--keep", "teff=5:4", path), 2, ("NAME=MIN:MAX",)),
            ((*GIVEN, "--keep", "teff=7000:9000", path), 3, ("160 are outside the range",)),
            ((*GIVEN, "--labels", "teff", path), 2, ("NAME=",)),
            ((*GIVEN, "--labels", "a=A,b=B,c=C,d=D,e=E,f=F,g=G", path), 2, ("at most 6 labels",)),
            ((*GIVEN, "--labels", "vrad=TEFF,logg=LOGG", path), 2, ("vrad",)),
            ((*GIVEN, "--labels", "Teff=TEFF,logg=LOGG", path), 2, ("write teff=TEFF",)),
            ((*GIVEN, "--labels", "teff=TEFF,m_h=LOGG,M_H=FEH", path), 2, ("M_H appears twice",)),
            ((*GIVEN, "--medium", "water", path), 2, ("air or vacuum",)),
            ((*GIVEN, "--components", "0", path), 2, ("--components takes", "not '0'")),
            ((*GIVEN, "--smoothing", "-1", path), 2, ("--smoothing takes", "not '-1'")),
            ((*GIVEN, "--arm", "o p", path), 2, ("arm",)),
            ((*GIVEN, "--spectra-sn", "50", path), 2, ("--spectra-sn does not apply", "--model-error")),
            ((*GIVEN, "--wave", "9000,-1", path), 3, ("must ascend",)),
            (GIVEN, 2, ("give one file of spectra",)),
            ((*GIVEN, nm), 3, ("nm.fits", "517.475 at most, have no unit", "CUNIT1")),
            ((*GIVEN, kk), 3, ("label teff is 4.", "expected K")),
            ((*GIVEN, "--columns", "LAM,F", tmp("nowhere.txt")), 2, ("nowhere.txt is no file",)),
            ((*GIVEN, tmp("nowhere.fits")), 3, ("nowhere.fits",))):
            with self.subTest(options=options):
                self.assertOneLine(starmill(*out, *options), *parts, status=status)
                self.assertFalse(os.path.exists(tmp("silent.h5")))
        self.assertOneLine(starmill("library", "spectra", *GIVEN, path), "give --output", status=2)
        bare = write("bare.fits", wave=FIRST + STEP * np.arange(N_PIX), cards=[])
        self.assertOneLine(starmill(*out, *GIVEN, bare), "no CRVAL1", "--wave", status=3)

    def test_ranks_and_threads_make_the_same_library(self):
        path, flux = write("same.fits"), []
        for ranks, threads in ((0, 1), (2, 3)):
            done = run("library", "spectra", "--output", tmp("same.h5"), "--overwrite", *GIVEN,
                       "--threads", threads, "--left-out", 0, path, ranks=ranks)
            self.assertEqual(done.stdout.count("hash "), 1)
            flux.append(emulate(tmp("same.h5"), make_labels(5))[1])
        # sums of several threads differ in their last digits
        np.testing.assert_allclose(*flux, rtol=1e-4)

    @unittest.skipUnless(os.path.exists(MILES), "no test data")
    def test_miles(self):
        _, done = miles_library("miles.h5", MILES)
        self.assertIn("air (card WAVEFRAM), converted to vacuum", done.stdout)
        self.assertIn("sigma 1.0617 A", done.stdout)
        self.assertGreater(int(re.search(r"spectra: (\d+) of 984 used", done.stdout).group(1)), 900)
        # measured: 1.5 %; 139 K, 0.30 and 0.17 dex
        pixels = re.search(r"^  all(?: +([\d.]+)){7}$", done.stdout, re.M).group().split()
        self.assertLess(float(pixels[5]), 1.8)  # median of the rms of a spectrum
        scatter = {m[0]: float(m[1]) for m in
                   re.findall(r"^   20  (\w+) +[-\d.]+ +([\d.]+) ", done.stdout, re.M)}
        self.assertLess(scatter["teff"], 170)
        self.assertLess(scatter["logg"], 0.36)
        self.assertLess(scatter["feh"], 0.2)

    def test_model_error(self):
        """A line that the templates do not have, of another strength in every star."""
        wave = FIRST + STEP * np.arange(N_PIX)
        line = np.exp(-0.5 * ((wave - 5003) / 1.2) ** 2)

        def edit(flux, labels):
            flux *= 1 + 0.2 * np.random.default_rng(SEED + 3).normal(size=(len(flux), 1)) * line
        plain, _ = self.plain()
        done = built("left-out.h5", plain, *GIVEN, "--model-error", "2", "--spectra-sn", "500")
        self.assertIn("model error of arm opt", done.stdout)
        self.assertEqual(read(tmp("left-out.h5"), "arms/arm0/model_error")["components"].shape[0], 2)
        with h5py.File(tmp("plain.h5"), "r") as f:
            self.assertNotIn("model_error", f["arms/arm0"])
        other = write("other.fits", edit=edit)
        measure = ("library", "model-error", "--medium", "vacuum", "--components", "2",
                   "--spectra-sn", "500", "--output", tmp("with.h5"), "--overwrite")
        done = run(*measure, "--spectra", other, tmp("plain.h5"))
        self.assertRegex(done.stdout, rf"spectra: \d+ of {N_STAR} have labels inside")
        with h5py.File(tmp("with.h5"), "r") as f:
            error = f["arms/arm0/model_error"]
            at = f["arms/arm0/wavelength"][:]
            # The templates lack the spectra's continuum as well as the line.  Components mix these,
            # but some sum of components must have the line's shape and strength.
            patterns = np.array([np.interp(wave, at, c) for c in error["components"][:]])
            use = (wave > at[0] + 50) & (wave < at[-1] - 50)
            shares = np.linalg.lstsq(patterns[:, use].T, line[use], rcond=None)[0]
            self.assertGreater(np.corrcoef(shares @ patterns[:, use], line[use])[0, 1], 0.9)
            # 150 stars know a width to 6 %
            self.assertAlmostEqual(
                np.hypot(*(error["sigmas"][:] * patterns[:, np.argmax(line)])) / 0.2, 1, delta=0.25)
        self.assertIn("and 2 components of", starmill("library", "info", tmp("with.h5")).stdout)
        self.assertOneLine(starmill(*measure, tmp("plain.h5")), "--spectra", status=2)
        done = starmill(*measure, "--spectra", other, "--spectra-sigma", SIGMA / 2, tmp("plain.h5"))
        self.assertOneLine(done, "sharper than the templates", "--spectra-sigma", status=3)
        self.assertOneLine(starmill(*measure, "--spectra", other, "--arms", "q", tmp("plain.h5")),
                           "has no arm q", status=2)
        self.ends(2, *measure, "--spectra", other, tmp("with.h5"), says=["--output"])
        short = write("short.fits", n=14)
        self.assertOneLine(starmill(*measure, "--components", "8", "--spectra", short,
                                    tmp("plain.h5")), "needs at least 16", status=3)
        done = built("sharp.h5", short, "--medium", "vacuum", "--sigma", STEP / 2, "--left-out", 0)
        self.assertIn("pixels of 0.241 A are wider", done.stderr)

    @unittest.skipUnless(os.path.exists(KURUCZ), "no test data")
    def test_kurucz(self):
        options = ("--labels", "teff=TEFF,logg=G,feh=FEH", "--at-instrument-resolution")
        self.assertOneLine(build("kurucz.h5", KURUCZ, *options), "--medium", status=3)
        done = build("kurucz.h5", KURUCZ, *options, "--medium", "vacuum")
        self.assertOneLine(done, "all pixels are good with --range 3007.61,10998.19", status=3)
        done = built("kurucz.h5", KURUCZ, *options, "--medium", "vacuum", "--range", "3010,10990",
                     "--keep-outliers")
        self.assertIn("spectra: 89 of 89 used", done.stdout)
        # two values of log g determine no square
        self.assertIn("polynomial of degree 1 (what the labels determine)", done.stdout)
        wave = read(tmp("kurucz.h5"), "arms/arm0")["wavelength"]
        pixel = 10 ** (pyfits.getheader(KURUCZ, 0)["CRVAL1"] + 1e-4 * np.arange(5650))
        np.testing.assert_allclose(wave, pixel[(pixel >= 3010) & (pixel <= 10990)], rtol=1e-9)
