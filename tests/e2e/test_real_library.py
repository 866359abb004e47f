# SPDX-License-Identifier: BSD-3-Clause
"""The recipe of the library that comes with starmill, and its validation, with made-up models and
stars in the place of those of a grid and MILES."""

import importlib.util

from base import *  # noqa: F403

if not importlib.util.find_spec("scipy"):
    skip("no SciPy (Debian: python3-scipy)")
from scipy.interpolate import CubicSpline  # noqa: E402

SEED = 18
N_MODEL, N_STAR = 60, 80
SIGMA, SIGMA_STAR = 0.5, 2.5 / 2.3548  # A
LINE = 6100.0  # that the models lack
# labels: lowest, highest
LABELS = {"TEFF": (4500, 6500), "LOGG": (2, 5), "FEH": (-1.5, 0.3), "ALPHAFE": (-0.1, 0.5)}
SETUP = "arms: [{name: opt, min: 3960, max: 7430, ln_step: 8e-5}]\n"
rng = np.random.default_rng(SEED)
N_LINE = 80
LINES = dict(at=np.sort(rng.uniform(3970, 7420, N_LINE)), depth=rng.uniform(-2, -0.3, N_LINE),
             slope=rng.normal(size=(4, N_LINE)) * np.array([[0.5], [0.2], [0.3], [0.1]]))


def spectrum(wave, label, sigma, strength=0.0, vel=0.0):
    """Lines that change with the labels, and one more of that strength."""
    x = [(v - np.mean(r)) / (0.5 * (r[1] - r[0])) for v, r in zip(label, LABELS.values())]
    tau = np.exp(LINES["depth"] + np.array(x) @ LINES["slope"])
    depth = 1 - np.exp(-tau)
    flux = np.ones(len(wave))
    for at, d, s in (*zip(LINES["at"], depth, np.full(N_LINE, 0.8)), (LINE, strength, 0.8)):
        width = np.hypot(s, sigma)
        at = at * (1 + vel / 299792.458)
        near = abs(wave - at) < 8 * width
        flux[near] *= 1 - d * s / width * np.exp(-0.5 * ((wave[near] - at) / width) ** 2)
    return flux


def air(wave):
    """Air wavelengths of vacuum ones, A (Morton 2000)."""
    s = (1e4 / wave) ** 2
    return wave / (1 + 8.34254e-5 + 2.406147e-2 / (130 - s) + 1.5998e-4 / (38.9 - s))


def random_labels(n, edges):
    low, high = np.array(list(LABELS.values())).T
    u = rng.uniform(0 if edges else 0.1, 1 if edges else 0.9, (n, 4))
    if edges:
        u[:16] = [[(k >> i) & 1 for i in range(4)] for k in range(16)]
    return low + (high - low) * u


def write_models(folder):
    os.makedirs(folder)
    wave = np.arange(3940, 7450, 0.4)
    for k, label in enumerate(random_labels(N_MODEL, True)):
        flux = 1e6 * spectrum(wave, label, SIGMA)
        table = bintable({"WAVE": wave, "FLUX": ("E", flux), "CONTINUUM": ("E", np.full(len(wave), 1e6))})
        for name, value in zip(LABELS, label):
            table.header[name] = value
        table.header["FWHM"] = SIGMA * 2.3548
        table.header["MEDIUM"] = "vacuum"
        table.writeto(os.path.join(folder, f"m{k:03d}.fits"))


def write_miles(path):
    """As MILES is packed; labels of the stars."""
    labels = random_labels(N_STAR, False)
    labels[:, 3] = np.clip(-0.4 * labels[:, 2], 0, 0.4)
    wave = np.arange(3945, 7440, 0.1)
    pixels = 3955 + 0.9 * np.arange(3850)
    flux = [CubicSpline(air(wave), spectrum(wave, label, SIGMA_STAR, *extra))(pixels)
            for label, extra in zip(labels, zip(rng.uniform(0, 0.5, N_STAR),
                                                rng.normal(size=N_STAR) * 10))]
    flux = np.array(flux) * (1 + 0.004 * rng.normal(size=(N_STAR, len(pixels))))
    image = pyfits.PrimaryHDU(flux.astype("f4"))
    for key, value in (("CRVAL1", pixels[0]), ("CDELT1", 0.9), ("CRPIX1", 1), ("FWHM", 2.5),
                       ("WAVEFRAM", "AIR")):
        image.header[key] = value
    table = {name: ("E", labels[:, i]) for i, name in enumerate(list(LABELS)[:3])}
    pyfits.HDUList([image, bintable({**table, "NAME": ("8A", [f"s{i}" for i in range(N_STAR)])}, "LABELS")]).writeto(path)
    return labels


RECIPE = "-m", "starmill.templates.real_library"
VALIDATION = os.path.join(SOURCE, "tests", "campaigns", "validate_library.py"),


def tool(script, *args):
    return ended([sys.executable, "-B", *script, "--starmill", STARMILL, *args], env=PACKAGE)


class RealLibrary(ProgramTest):
    def test_recipe_and_validation(self):
        write_models(tmp("models"))
        labels = write_miles(tmp("miles.fits"))
        put("setup.yaml", SETUP)
        recipe = ("--miles", tmp("miles.fits"), "--setup", tmp("setup.yaml"), "--train",
                  "--emulator radial --components 12 --left-out 0", tmp("models"), tmp("work"))
        out = tmp("out/fgk.h5")
        done = tool(RECIPE, *recipe, out)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("60 models in", done.stderr)
        # of the plan oba, whose library has no [alpha/Fe]
        done = tool(RECIPE, "--plan", "oba", "--least", 50, "--limit", 0.1,
                    "--no-model-error", *recipe, out)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("bare.h5: 3 labels", done.stdout)
        self.assertIn("--limit", done.stderr)
        self.assertFalse(os.path.exists(out))
        done = tool(RECIPE, "--least", 50, "--rows", "half", *recipe, out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("40 spectra of MILES, 40 with a velocity", done.stdout)
        with h5py.File(out) as f:
            self.assertEqual((f.attrs["models"], f.attrs["name"]), (N_MODEL, b"fgk (MARCS, MILES)"))
            self.assertIn("MILES", f.attrs["sources"])
            self.assertIn("library train --emulator radial", f.attrs["recipe"])
            self.assertNotIn(TMP, f.attrs["recipe"])
            arm = f["arms/arm0"]
            wave, error = arm["wavelength"][:], arm["model_error"]
            size = np.sqrt(np.sum((error["sigmas"][:][:, None] * error["components"][:]) ** 2, axis=0)
                           + error["fraction"][:] ** 2)
        # the line that the models lack is taken out by its mean; what stays is its spread over the
        # stars, 0.144 (uniform) times 0.8 / 1.33 (the spectra's resolution), which 40 know to 11 %
        peak = wave[np.argmax(size)]
        self.assertLess(abs(peak - LINE), 1)
        self.assertAlmostEqual(size.max(), 0.087, delta=0.022)
        self.assertLess(np.median(size), 0.02)

        with open(tmp("published.csv"), "w") as f:
            f.write("TARGETID,TEFF,LOGG,FEH\n")
            f.writelines(f"{i + 1},{a:.1f},{b:.3f},{c:.3f}\n" for i, (a, b, c, _) in
                         enumerate(labels))
        done = tool(VALIDATION, "--sets", "", "--stars", "made up",
                    tmp("work/miles.yaml"), tmp("published.csv"), tmp("work/miles.fits"),
                    tmp("checks"), "ours=" + out)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = [s for s in done.stdout.splitlines() if s.startswith("| made up: all | ours |")]
        self.assertEqual(len(line), 1, done.stdout)
        cells = [c.strip().replace("−", "-") for c in line[0].split("|")]
        self.assertEqual(cells[3], "40")
        # Teff of the models within 25 K: 1 % of the range, of 60 models in four labels
        self.assertLess(abs(float(cells[6].split()[0])), 25)
        self.assertLess(float(cells[6].split()[2]), 60)
