"""starmill library demo: made, described and refused; its emulators evaluated by NumPy and SciPy."""

import os
import re

from base import *

try:
    from scipy.interpolate import BSpline
    from scipy.optimize import brentq
except ImportError as missing:
    skip(f"{missing} (Debian: python3-scipy)")

# in ln flux: both are sums of six float32 products; 1e-6 was measured
CUT_TOLERANCE = 1e-5
# arm, median and 99 % of the error of the coarse library's 12 held-out models, per cent
STORED = (("b", 0.4078, 5.2827), ("r", 0.0647, 0.6328), ("z", 0.0330, 0.4611),
          ("all", 0.0885, 3.2472))
PIXELS = {"b": (3600, 5800), "r": (5760, 7620), "z": (7520, 9824)}  # of DESI, A


class Emulators:
    """What a library file says, evaluated without the program."""

    def __init__(self, path):
        self.label, self.hull, self.arm = [], [], {}
        with h5py.File(path, "r") as f:
            for i in range(f["labels"].attrs["n_label"]):
                self.label.append(dict(f[f"labels/label{i}"].attrs))
            for i in range(f["hulls"].attrs["n_hull"]):
                hull = f[f"hulls/hull{i}"]
                self.hull.append((hull["labels"][...], hull["facets"][...]))
            for i in range(f["arms"].attrs["n_arm"]):
                arm = f[f"arms/arm{i}"]
                coefficients = arm["grid/coefficients"][...].astype(float)
                n_axis = coefficients.ndim - 1
                self.arm[text(arm.attrs["name"])] = dict(
                    wave=np.exp(arm.attrs["ln_wave0"]
                                + arm.attrs["ln_step"] * np.arange(len(arm["layer0/bias"]))),
                    sigma=arm.attrs["template_sigma"],
                    knots=[arm[f"grid/knots{j}"][...] for j in range(n_axis)],
                    coefficients=coefficients,
                    weight=arm["layer0/weight"][...].astype(float),
                    bias=arm["layer0/bias"][...].astype(float),
                )

    def map(self, labels):
        x = np.array(labels, float)
        for j, label in enumerate(self.label):
            value = np.log10(x[:, j]) if label["mapping"] == 1 else x[:, j]
            x[:, j] = (value - label["mean"]) / label["std"]
        return x

    def inside(self, labels):
        x = self.map(labels)
        worst = [(x[:, which] @ facet[:, :-1].T + facet[:, -1]).max(1)
                 for which, facet in self.hull]
        return np.max(worst, axis=0) <= 0

    def random_labels(self, n, seed):
        rng = np.random.default_rng(seed)
        low, high = ([label[k] for label in self.label] for k in ("min", "max"))
        labels = rng.uniform(low, high, (10 * n, len(low)))
        return labels[self.inside(labels)][:n]

    def ln_flux(self, arm, labels, n_component=None):
        arm = self.arm[arm]
        x = self.map(labels)
        out = np.empty((len(x), len(arm["bias"])))
        for i, row in enumerate(x):
            h = arm["coefficients"]
            for knots, at in zip(arm["knots"], row):
                h = np.tensordot(BSpline.design_matrix([at], knots, 3).toarray()[0], h, 1)
            out[i] = arm["weight"][:, :n_component] @ h[:n_component] + arm["bias"]
        return out

    def flux(self, arm, labels):
        return np.exp(self.ln_flux(arm, labels))


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def error_table(output):
    """{arm or "all": [median, 95 %, 99 %, largest] of all pixels} of a report, per cent."""
    number = r" +([0-9.]+)"
    rows = re.findall(r"^  (b|r|z|all)" + 7 * number + "$", output, re.M)
    return {arm: [float(x) for x in row[:4]] for arm, *row in rows}


class DemoLibrary(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.path, cls.made = demo_library("demo.h5")
        cls.emulators = Emulators(cls.path)

    def refuse(self, *args, status, parts):
        done = starmill("library", "demo", *args)
        self.assertOneLine(done, "starmill library: ", *parts, status=status)
        self.assertNotIn("computing", done.stdout)  # refused before the work

    def test_says_what_it_made(self):
        out = self.made.stdout
        self.assertEqual(self.made.stderr, "")
        self.assertIn("not for science", out)
        self.assertIn("computing 320 spectra", out)
        self.assertIn("cubic splines over 5 of teff, 4 of logg, 4 of feh, 4 of alpha", out)
        error = error_table(out)
        self.assertEqual(sorted(error), ["all", "b", "r", "z"])
        for arm in "brz":
            self.assertEqual(error[arm], sorted(error[arm]))
            self.assertLess(0, error[arm][0])
        medians = [error[arm][0] for arm in "brz"]
        self.assertLessEqual(min(medians), error["all"][0])
        self.assertLessEqual(error["all"][0], max(medians))
        self.assertRegex(out, r"\n  100  teff ")  # fitted labels too

    def test_error_is_what_it_was(self):
        """The line model, components and splines are deterministic, and so are the models' labels:
        what changes these numbers by more than rounding changed the templates.  The promise for the
        full grid is checked by ./run demo, which makes it."""
        error = error_table(self.made.stdout)
        for arm, median, p99 in STORED:
            # 5e-5 of printing; rounding of another BLAS is far below 1 %, a worse spline above
            self.assertAlmostEqual(error[arm][0], median, delta=5e-5 + 0.01 * median)
            self.assertAlmostEqual(error[arm][2], p99, delta=5e-5 + 0.01 * p99)

    def test_info_describes_it(self):
        info = starmill("library", "info", self.path)
        self.assertEqual(info.returncode, 0, info.stderr)
        hash_ = re.search(r"hash ([0-9a-f]{64})", self.made.stdout).group(1)
        for part in (hash_, "not for science", "teff", "ALPHAFE", "demo_b"):
            self.assertIn(part, info.stdout)

    def test_file_covers_desi(self):
        self.assertEqual([label["name"] for label in map(str_values, self.emulators.label)],
                         ["teff", "logg", "feh", "alpha"])
        for name, (first, last) in PIXELS.items():
            arm = self.emulators.arm[name]
            self.assertEqual(arm["sigma"], 0.5)
            self.assertLess(arm["wave"][0], first * (1 - 1000 / 299792.458))
            self.assertGreater(arm["wave"][-1], last * (1 + 1000 / 299792.458))
            self.assertTrue(np.isfinite(arm["weight"]).all())
            # inputs of the last layer have unit mean square at the nodes, so its columns tell what
            # each is worth; splines' coefficients are of the same order
            rms = np.sqrt((arm["coefficients"] ** 2).mean((0, 1, 2, 3)))
            self.assertTrue(((rms > 0.5) & (rms < 20)).all(), rms)
            size = np.linalg.norm(arm["weight"], axis=0)
            self.assertTrue((np.diff(size) <= 1e-6 * size[0]).all())

    def test_emulated_arms_have_a_level_of_one(self):
        # Models have exactly that by construction (src/libraries/demo_library.h defines it), so the emulator's
        # level is off by no more than the emulator is: by its typical error for a typical star.
        labels = self.emulators.random_labels(60, seed=11)
        self.assertEqual(len(labels), 60)
        error = error_table(self.made.stdout)
        for arm in "brz":
            off = []
            for y in self.emulators.ln_flux(arm, labels):
                def slope(m):
                    z = (y - m) / 0.1
                    return (z / np.sqrt(1 + z * z)).sum()

                off.append(100 * abs(np.expm1(brentq(slope, y.min(), y.max()))))
            self.assertLess(np.median(off), error[arm][0])
            self.assertLess(np.max(off), error[arm][3])

    def test_lines_answer_to_the_labels(self):
        def width(arm, centre, half, *label):
            """Equivalent width in A against the flux on both sides."""
            wave, flux = self.emulators.arm[arm]["wave"], self.emulators.flux(arm, [label])[0]
            away = np.abs(wave - centre)
            side = np.median(flux[(away > 1.5 * half) & (away < 3 * half)])
            return ((1 - flux / side) * np.gradient(wave))[away < half].sum()

        h_alpha = [width("r", 6564.6, 30, teff, 4, -1, 0.2) for teff in (4500, 6000, 7300)]
        self.assertLess(h_alpha[0] + 0.5, h_alpha[1])
        self.assertLess(h_alpha[1] + 0.5, h_alpha[2])
        calcium = [width("z", 8544.4, 10, 5000, 3, feh, 0.2) for feh in (-2.8, -1.5, 0)]
        self.assertLess(calcium[0] + 0.2, calcium[1])
        self.assertLess(calcium[1] + 0.2, calcium[2])
        magnesium = [width("b", 5185.0, 5, 5000, 3, -1.5, alpha) for alpha in (0, 0.2, 0.4)]
        self.assertLess(magnesium[0] + 0.02, magnesium[1])
        self.assertLess(magnesium[1] + 0.02, magnesium[2])

    def test_fewer_components_are_the_first_ones_and_err_more(self):
        path = tmp("few.h5")
        with open(path, "w") as f:
            f.write("kept?")
        self.refuse("--coarse", "--output", path, status=4, parts=[path, "exists", "--overwrite"])
        self.refuse("--coarse", "--overwrite", "--output", path, status=2, parts=[path, "no starmill"])
        self.assertEqual(content(path), b"kept?")
        shutil.copy(self.path, path)  # a library may be replaced
        done = starmill("library", "demo", "--coarse", "--overwrite", "--components", 6,
                        "--held-out", 12, "--threads", 1, "--output", path, timeout=500)
        self.assertEqual(done.returncode, 0, done.stderr)
        few = Emulators(path)
        labels = self.emulators.random_labels(20, seed=12)
        error, error_few = error_table(self.made.stdout), error_table(done.stdout)
        for arm in "brz":
            self.assertEqual(few.arm[arm]["weight"].shape[1], 6)
            self.assertLess(error[arm][0], error_few[arm][0])
            cut = self.emulators.ln_flux(arm, labels, 6)
            np.testing.assert_allclose(few.ln_flux(arm, labels), cut, rtol=0, atol=CUT_TOLERANCE)
            # what the other components add is what the error grew by, within what was there
            rest = 100 * np.median(np.abs(np.expm1(self.emulators.ln_flux(arm, labels) - cut)))
            self.assertLess(rest, 3 * (error_few[arm][0] + error[arm][0]))
            self.assertGreater(rest, (error_few[arm][0] - error[arm][0]) / 3)

    def test_wrong_options_are_refused(self):
        path = tmp("none.h5")
        for args, parts in (
            ([], ["--output"]),
            (["--output", path, "x.h5"], ["x.h5"]),
            (["--output", path, "--threads", "0"], ["--threads", "'0'"]),
            (["--output", path, "--threads", "2x"], ["--threads", "'2x'"]),
            (["--output", path, "--held-out", "-1"], ["--held-out", "'-1'"]),
            (["--output", path, "--held-out", "1001"], ["--held-out", "1000", "'1001'"]),
            (["--output", path, "--components", "257"], ["--components", "'257'"]),
            (["--output", path, "--seed", "-1"], ["--seed", "'-1'"]),
            (["--output", path, "--seed", "99999999999999999999"], ["--seed"]),
            (["--output", path, "--seed"], ["--seed needs a value"]),
            (["--output", path, "--fine"], ["--fine"]),
            (["--output", path, "--held-out", "0", "--seed", "2"], ["--seed means nothing"]),
            (["--output", path, "--line-seed", "2"], ["--line-seed means nothing", "--line-scatter"]),
        ):
            with self.subTest(args=args):
                self.refuse(*args, status=2, parts=parts)
        self.assertFalse(os.path.exists(path))

    def test_unwritable_output_is_refused_before_the_work(self):
        folder = tmp("no/such")
        self.refuse("--output", os.path.join(folder, "x.h5"), status=4, parts=[folder])
        self.refuse("--overwrite", "--output", TMP, status=4, parts=[TMP, "regular file"])

    def test_help_names_it(self):
        for args in (["library", "--help"], ["library", "demo", "--help"]):
            done = starmill(*args)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("starmill library demo", done.stdout)
            self.assertIn("--held-out", done.stdout)


def str_values(attributes):
    return {k: text(v) if isinstance(v, (bytes, str)) else v for k, v in attributes.items()}


if __name__ == "__main__":
    main()
