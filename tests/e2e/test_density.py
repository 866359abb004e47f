"""`starmill density`: maps against SciPy and NumPy's sums over all rows, where their coordinates say,
on the sphere the same at a pole as at the equator, and what cannot be is refused with a line that
says what to give."""

from base import *  # noqa: F403

from astropy.wcs import WCS

SHIM = os.environ.get("FAULT_SHIM", "")
UNITS = {"TEFF": "K", "LOGG": "log(cm s**-2)", "VRAD": "km/s", "FEH": "dex",
         "TARGET_RA": "deg", "TARGET_DEC": "deg"}


def catalog(name, n=300, seed=1, **other):
    """A result of a fit, as far as maps look into it; two rows are not good, one has a NaN."""
    rng = np.random.default_rng(seed)
    c = {"TEFF": rng.normal(5500, 600, n), "FEH": rng.normal(-1, 0.5, n)}
    c["LOGG"] = 4.5 - (c["TEFF"] - 6000) ** 2 / 1e6 + rng.normal(0, 0.2, n)
    c["VRAD"] = rng.normal(0, 100, n)
    c["STATUS"], c["RVS_WARN"] = np.ones(n, np.int32), np.zeros(n, np.int64)
    c["STATUS"][3], c["RVS_WARN"][5], c["TEFF"][7] = 3, 4, np.nan
    sky = {"TARGET_RA": rng.uniform(0, 360, n), "TARGET_DEC": rng.uniform(-80, 80, n)}
    for k, v in other.items():
        (sky if k in sky else c)[k] = v
    with h5py.File(tmp(name), "w") as f:
        for group, columns in (("fits", c), ("catalog", sky)):
            for k, v in columns.items():
                f.create_dataset(f"{group}/{k}", data=v)
                if k in UNITS:
                    f[group][k].attrs["unit"] = UNITS[k]
    return tmp(name)


def good(path, *names):
    """The columns of the rows that are used."""
    with h5py.File(path, "r") as f:
        use = (f["fits/STATUS"][:] == 1) & (f["fits/RVS_WARN"][:] == 0)
        columns = [(f["fits"] if k in f["fits"] else f["catalog"])[k][:] for k in names]
    use &= np.all(np.isfinite(columns), axis=0)
    return [c[use] for c in columns]


def chord2(ra, dec, ra0, dec0):
    """Squares of the chords from places [n] to others [m]; degrees."""
    def xyz(ra, dec):
        ra, dec = np.radians(ra), np.radians(dec)
        return np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], -1)
    return ((xyz(ra, dec)[:, None] - xyz(ra0, dec0)[None]) ** 2).sum(-1)


def on_sphere(ra, dec, ra0, dec0, degrees, local=1):
    """The density at (ra, dec) of kernels at (ra0, dec0), summed one by one."""
    kappa = 1 / (np.radians(degrees) * local) ** 2
    peak = kappa / (2 * np.pi * -np.expm1(-2 * kappa))
    return (peak * np.exp(-0.5 * kappa * chord2(ra, dec, ra0, dec0))).mean(1)


class Density(ProgramTest):
    def job(self, out, *args, status=0, env=None):
        done = starmill("density", *args, "--output", tmp(out), "--threads", 2, env=env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def map(self, *args):
        """x, y, density and attributes of a map in HDF5."""
        self.job("map.h5", "--overwrite", *args)
        with h5py.File(tmp("map.h5"), "r") as f:
            attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in f.attrs.items()}
            return f["X"][:], f["Y"][:], f["DENSITY"][:], attributes

    def refused(self, *args, says, status=2, out="refused.h5"):
        done = self.job(out, *args, status=status)
        self.assertOneLine(done, "starmill density: ", *says, status=status)
        self.assertEqual([n for n in os.listdir(TMP) if n.startswith("refused")], [])

    def test_exact_map_is_scipys(self):
        """1e-9: both are sums in float64 with other roundings."""
        try:
            from scipy.stats import gaussian_kde
        except ImportError:
            self.skipTest("no SciPy (Debian: python3-scipy)")
        path = catalog("a.h5")
        teff, logg = good(path, "TEFF", "LOGG")
        for rule in ("scott", "silverman"):
            x, y, density, a = self.map(path, "--map", "kiel", "--covariance", "--x-cells", 40,
                                        "--y-cells", 30, "--bandwidth", rule)
            truth = gaussian_kde([teff, logg], rule)(
                [g.ravel() for g in np.meshgrid(x, y)]).reshape(30, 40)
            np.testing.assert_allclose(density, truth, rtol=1e-9)
            self.assertTrue(np.all(np.diff(x) < 0) and np.all(np.diff(y) < 0))
            self.assertEqual((a["FORM"], a["ERROR_BOUND"]), ("exact", 0))
            self.assertEqual([a[k] for k in ("N_ROW", "N_USED", "N_NOT_GOOD", "N_NOT_A_NUMBER")],
                             [300, 297, 2, 1])
            # three bandwidths beyond the outermost rows
            self.assertAlmostEqual(a["INTEGRAL"], 1, places=3)
        _, _, _, a = self.map(path, "--map", "kiel", "--all")
        self.assertEqual((a["N_USED"], a["N_NOT_GOOD"]), (299, 0))

    def test_forms_keep_their_bounds(self):
        path = catalog("a.h5")
        for what in (("--map", "feh-vrad"), ("--map", "sky", "--bandwidth", 8)):
            cells = ("--x-cells", 60, "--y-cells", 50)
            _, _, exact, _ = self.map(path, *what, *cells, "--form", "exact")
            for form in ("binned", "cut"):
                _, _, density, a = self.map(path, *what, *cells, "--form", form)
                worst = np.abs(density - exact).max()
                self.assertEqual(a["FORM"], form)
                # 1e-14: rounding, where the bound is below it
                self.assertLessEqual(worst, a["ERROR_BOUND"] + 1e-14 * exact.max())
                self.assertLess(a["ERROR_BOUND"], 1e-2 * exact.max())
            self.assertGreater(worst, 0)

    def test_fits_images_have_their_rows_where_they_say(self):
        path = catalog("a.h5", VRAD=np.full(300, 50.2), FEH=np.full(300, -1.25),
                       TARGET_RA=np.full(300, 83.6), TARGET_DEC=np.full(300, -69.5))
        for args, place, types, peak in (
                (("--map", "feh-vrad", "--bandwidth", "9,0.08", "--x-range", "-100,200",
                  "--y-range", "-3,1"), (50.2, -1.25), ["VRAD_", "FEH"],
                 1 / (2 * np.pi * 9 * 0.08)),
                (("--map", "sky", "--bandwidth", 3), (83.6, -69.5), ["RA---CAR", "DEC--CAR"],
                 on_sphere([0.0], [0.0], [0.0], [0.0], 3)[0]),
                (("--map", "sky", "--bandwidth", 3, "--x-range", "40,120", "--y-range", "-90,-40"),
                 (83.6, -69.5), ["RA---CAR", "DEC--CAR"],
                 on_sphere([0.0], [0.0], [0.0], [0.0], 3)[0])):
            self.job("map.fits", path, *args, "--overwrite")
            with pyfits.open(tmp("map.fits"), checksum=True) as f:
                header, image = f[0].header, f[0].data
                self.assertEqual([header["CTYPE1"], header["CTYPE2"]], types)
                self.assertEqual(header["NUSED"], 298)
                self.assertEqual(header["BUNIT"],
                                 "km-1 s dex-1" if types[0] == "VRAD_" else "sr-1")
                w = WCS(header)
                i, j = (int(round(float(v))) for v in w.all_world2pix(*place, 0))
                self.assertEqual(np.unravel_index(image.argmax(), image.shape), (j, i))
                # the kernel's peak is half a cell away at most
                self.assertAlmostEqual(image.max() / peak, 1, delta=0.03)
                x, y = w.all_pix2world([0, image.shape[1] - 1], [0, image.shape[0] - 1], 0)
                self.assertEqual(header["CDELT1"] < 0, types[0] != "VRAD_")
            x5, y5, density, _ = self.map(path, *args)
            np.testing.assert_array_equal(image, density)
            np.testing.assert_allclose(np.mod(x, 360), np.mod(x5[[0, -1]], 360), atol=1e-9)
            np.testing.assert_allclose(y, y5[[0, -1]], atol=1e-9)

    def test_units_are_understood(self):
        """astropy draws no axis whose unit it cannot read: log(cm s**-2) is dex."""
        from astropy import units
        self.job("kiel.fits", catalog("a.h5"), "--map", "kiel", "--x-cells", 20, "--y-cells", 20)
        header = pyfits.getheader(tmp("kiel.fits"))
        self.assertEqual([header[k] for k in ("CUNIT1", "CUNIT2")], ["K", "dex"])
        self.assertEqual(units.Unit(header["BUNIT"]), 1 / (units.K * units.dex))

    def test_sphere(self):
        """Against sums over chords; 1e-9 as above."""
        path = catalog("a.h5")
        ra0, dec0 = good(path, "TARGET_RA", "TARGET_DEC")
        x, y, density, a = self.map(path, "--map", "sky", "--x-cells", 36, "--y-cells", 18,
                                    "--bandwidth", 10)
        ra, dec = (g.ravel() for g in np.meshgrid(x, y))
        truth = on_sphere(ra, dec, ra0, dec0, 10).reshape(18, 36)
        np.testing.assert_allclose(density, truth, rtol=1e-9)
        self.assertEqual(a["N_USED"], 298)
        for form in ("exact", "binned", "cut"):
            _, _, _, a = self.map(path, "--map", "sky", "--bandwidth", 8, "--form", form,
                                  "--x-cells", 120, "--y-cells", 60)
            # the rule of midpoints at the poles: (cell^2 / 24) times the density there
            self.assertAlmostEqual(a["INTEGRAL"], 1, delta=5e-4)

    def test_a_cluster_at_a_pole_is_one_at_the_equator(self):
        """By moments around its centre, which cells of any size take without cutting one."""
        rng = np.random.default_rng(3)
        angle, turn = np.radians(np.abs(rng.normal(0, 4, 300))), rng.uniform(0, 2 * np.pi, 300)
        local = np.stack([np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn),
                          np.cos(angle)])
        places = {"pole": local, "equator": local[[2, 0, 1]]}  # z to x
        found = {}
        for name, (px, py, pz) in places.items():
            path = catalog(f"{name}.h5", TARGET_RA=np.degrees(np.arctan2(py, px)),
                           TARGET_DEC=np.degrees(np.arcsin(pz)))
            for form in ("exact", "binned", "cut"):
                x, y, density, a = self.map(path, "--map", "sky", "--form", form, "--bandwidth", 4,
                                            "--x-cells", 240, "--y-cells", 120)
                area = np.radians(1.5) ** 2 * np.cos(np.radians(y))[:, None]
                to = chord2(*(g.ravel() for g in np.meshgrid(x, y)),
                            *(np.array([v]) for v in ((0, 90) if name == "pole" else (0, 0))))
                near = np.exp(-to.reshape(density.shape) / (2 * 0.1**2))
                found[name, form] = [(area * density**k * near).sum() for k in (1, 2)]
                # at a pole the rule of midpoints has an error of (cell / width)^2 / 24
                self.assertAlmostEqual(a["INTEGRAL"], 1, delta=6e-3 if name == "pole" else 1e-5)
        for key, values in found.items():
            np.testing.assert_allclose(values, found["equator", "exact"],
                                       rtol=1.2e-2 if key[0] == "pole" else 1e-3, err_msg=str(key))

    def test_local_widths_are_abramsons(self):
        """1e-3: the first map is looked up between its cells."""
        path = catalog("a.h5")
        vrad, feh = good(path, "VRAD", "FEH")
        x, y, density, a = self.map(path, "--map", "feh-vrad", "--adaptive", "--bandwidth", "40,0.2",
                                    "--x-cells", 40, "--y-cells", 30)
        def kde(px, py, local):
            d2 = ((px[:, None] - vrad) / (40 * local)) ** 2 + ((py[:, None] - feh) / (0.2 * local)) ** 2
            return (np.exp(-0.5 * d2) / (2 * np.pi * 8 * local**2)).mean(1)
        pilot = kde(vrad, feh, 1.0)
        local = np.exp(0.5 * (np.log(pilot).mean() - np.log(pilot)))
        truth = kde(*(g.ravel() for g in np.meshgrid(x, y)), local).reshape(30, 40)
        np.testing.assert_allclose(density, truth, atol=1e-3 * truth.max())
        self.assertEqual((a["ADAPTIVE"], a["FORM"]), (1, "cut"))
        ra, dec = good(path, "TARGET_RA", "TARGET_DEC")
        x, y, density, a = self.map(path, "--map", "sky", "--adaptive", "--bandwidth", 8,
                                    "--x-cells", 36, "--y-cells", 18)
        pilot = on_sphere(ra, dec, ra, dec, 8)
        local = np.exp(0.5 * (np.log(pilot).mean() - np.log(pilot)))
        truth = on_sphere(*(g.ravel() for g in np.meshgrid(x, y)), ra, dec, 8, local)
        np.testing.assert_allclose(density, truth.reshape(18, 36), atol=1e-3 * truth.max())

    def test_tables_of_others_and_several_catalogs(self):
        path = catalog("a.h5")
        with h5py.File(path, "r") as f:
            columns = {k: f[g][k][:] for g, k in (("fits", "VRAD"), ("fits", "FEH"),
                                                  ("fits", "RVS_WARN"), ("fits", "STATUS"))}
        ok = columns.pop("STATUS") == 1
        table = pyfits.BinTableHDU.from_columns(
            [pyfits.Column(k, "K" if k == "RVS_WARN" else "D", unit=UNITS.get(k), array=v[ok])
             for k, v in columns.items()])
        pyfits.HDUList([pyfits.PrimaryHDU(), table]).writeto(tmp("t.fits"))
        one = self.map(path, "--map", "feh-vrad", "--bandwidth", "30,0.2")
        same = self.map(tmp("t.fits"), "--x", "vrad", "--y", "FEH", "--bandwidth", "30,0.2")
        twice = self.map(path, tmp("t.fits"), "--map", "feh-vrad", "--bandwidth", "30,0.2")
        np.testing.assert_array_equal(one[2], same[2])
        np.testing.assert_allclose(one[2], twice[2], rtol=1e-12)
        self.assertEqual(twice[3]["N_USED"], 2 * one[3]["N_USED"])

    def test_same_bits_by_any_threads(self):
        path = catalog("a.h5")
        for form in ("binned", "cut"):
            for what in ("feh-vrad", "sky"):
                maps = []
                for n in (1, 3):
                    run("density", path, "--map", what, "--form", form, "--threads", n, "--output",
                        tmp("threads.h5"), "--overwrite", "--quiet", "--x-cells", 50,
                        "--y-cells", 50, "--x-range", "-100,100", "--y-range", "-2,0",
                        *(("--bandwidth", 9) if what == "sky" else ()))
                    with h5py.File(tmp("threads.h5"), "r") as f:
                        maps.append(f["DENSITY"][:])
                np.testing.assert_array_equal(*maps)

    def test_refusals(self):
        path = catalog("a.h5")
        kiel = (path, "--map", "kiel")
        self.refused(path, "--x", "TEFF", "--y", "NOPE", says=["a.h5", "NOPE"], status=3)
        with h5py.File(path, "r+") as f:
            f["catalog/OBJECT"] = np.array([b"star"] * 300)
            f["fits/COVAR"] = np.zeros((300, 3))
        self.refused(path, "--x", "TEFF", "--y", "OBJECT", says=["OBJECT", "numbers"], status=3)
        self.refused(path, "--x", "TEFF", "--y", "COVAR", says=["COVAR", "2 dimensions"], status=3)
        bad = catalog("bad.h5", RVS_WARN=np.full(300, 8))
        self.refused(bad, "--map", "kiel", says=["no row is left of 300", "--all"], status=3)
        self.refused(*kiel, "--x-range", "5,5", says=["--x-range"])
        self.refused(*kiel, "--bandwidth", "0,1", says=["--bandwidth", "above 0"])
        self.refused(*kiel, "--bandwidth", "5", says=["--bandwidth", "two numbers"])
        self.refused(*kiel, "--covariance", "--adaptive", says=["--covariance"])
        self.refused(*kiel, "--form", "binned", "--bandwidth", "0.001,0.001",
                     says=["--form binned", "too narrow"])
        self.refused(*kiel, out="refused.png", says=[".h5 or .fits"])
        self.refused(path, says=["--map"])
        self.refused(path, "--map", "sky", "--y-range", "-100,0", says=["--y-range"])
        one = catalog("one.h5", FEH=np.full(300, -1.0))
        self.refused(one, "--map", "feh-vrad", says=["FEH has no width", "--bandwidth"])
        self.refused(tmp("none.h5"), "--map", "kiel", says=["none.h5"], status=3)
        with open(tmp("text.h5"), "w", encoding="utf-8") as f:
            f.write("no table\n")
        self.refused(tmp("text.h5"), "--map", "kiel", says=["text.h5"], status=3)
        done = self.job("narrow.h5", *kiel, "--bandwidth", "0.5,0.001")
        self.assertIn("below half a cell", done.stderr)
        for name in ("narrow.h5", "kept.fits"):
            if name == "kept.fits":
                self.job(name, *kiel)
            before = content(tmp(name))
            done = self.job(name, *kiel, status=4)
            self.assertOneLine(done, name, "--overwrite", status=4)
            self.assertEqual(content(tmp(name)), before)
        before = content(path)
        self.job("a.h5", bad, "--map", "kiel", "--all", "--overwrite", status=2)
        self.job("a.h5", *kiel, "--overwrite", status=2)
        self.assertEqual(content(path), before)

    def test_full_disk(self):
        if not SHIM:
            self.skipTest("the variable FAULT_SHIM does not name the library of faults")
        path = catalog("a.h5")
        for name in ("full.h5", "full.fits"):
            done = self.job(name, path, "--map", "kiel", status=4,
                            env=dict(LD_PRELOAD=SHIM, FAULTS=f"ENOSPC:write:{name}:1:0"))
            self.assertOneLine(done, name, "make room", status=4)
            self.assertEqual([n for n in os.listdir(TMP) if n.startswith("full")], [])


if __name__ == "__main__":
    main()
