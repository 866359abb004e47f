# SPDX-License-Identifier: BSD-3-Clause
"""starmill library train --emulator radial | splines | linear, from a made-up grid file.
Templates are compared with SciPy's interpolation and with the formula of the spectra, the report
with numbers computed here.  Also tested: a fit, gaps in the grid, refusals."""

import itertools

from base import *  # noqa: F403
import train_losses
from scipy.interpolate import RegularGridInterpolator

from starmill.cli.basics import Failure  # noqa: E402
from starmill.templates import library_file  # noqa: E402
from starmill.templates.emulate import flux  # noqa: E402
from starmill.templates.library_data import Label  # noqa: E402
from starmill.templates.train import Lattice, choose_length  # noqa: E402

SEED = 23
RNG = np.random.default_rng(SEED)
LN_STEP = 5e-5
ARMS = {"b": (np.log(4800.0), 450), "r": (np.log(6000.0), 350)}
N_LINE = 40
LINES = {name: np.sort(first + LN_STEP * RNG.uniform(0, n, N_LINE))
         for name, (first, n) in ARMS.items()}
SLOPE = {name: RNG.normal(size=(N_LINE, 4)) * [0.4, 0.15, 0.35, 0.05] for name in ARMS}
NODES = (np.array([4500.0, 4800, 5200, 5700, 6300]), np.array([2.0, 2.5, 3.5, 4.5, 5.0]),
         np.array([-2.0, -1.5, -0.8, -0.2, 0.3]))
LOW, HIGH = np.array([(n[0], n[-1]) for n in NODES]).T
NAMES = ("teff", "logg", "feh")


def wavelengths(arm):
    first, n = ARMS[arm]
    return np.exp(first + LN_STEP * np.arange(n))


def spectrum(label, arm, wave=None):
    """Flux with a continuum of 1 and lines of sigma 2.5 pixels; labels set the lines' strengths."""
    x = np.array([(label[0] - 5500) / 1000, label[1] - 3.5, label[2] + 0.7])
    strength = 0.2 * np.exp(SLOPE[arm][:, :3] @ x + SLOPE[arm][:, 3] * x[0] ** 2)
    z = (np.log(wavelengths(arm) if wave is None else wave)[:, None] - LINES[arm]) / (2.5 * LN_STEP)
    return np.exp(-(np.exp(-0.5 * z**2) @ strength))


def all_nodes():
    return np.array(list(itertools.product(*NODES)))


def scattered(n, seed=1):
    """Labels over the box, its corners first."""
    corner = np.array(list(itertools.product(*zip(LOW, HIGH))))
    rest = LOW + (HIGH - LOW) * np.random.default_rng(seed).uniform(0, 1, (n - len(corner), 3))
    return np.vstack([corner, rest])


def write_grid(name, label, edit=None, complete=1):
    """A grid file of these labels; edit(file) may damage it."""
    full = np.column_stack([label, np.full((len(label), 3 - label.shape[1]), -0.5)])
    path = train_losses.write_grid(tmp(name), NAMES[:label.shape[1]], label, {
        arm: (first, LN_STEP, -1.0, np.array([spectrum(x, arm) for x in full]), True)
        for arm, (first, _) in ARMS.items()}, complete)
    if edit:
        with h5py.File(path, "r+") as f:
            edit(f)
    return path


def train(out, grid, way, *options, **how):
    return starmill("library", "train", "--emulator", way, "--output", tmp(out), "--overwrite",
                    *options, grid, **how)


@functools.cache
def full_grid():
    return write_grid("full.h5", all_nodes())


@functools.cache
def scattered_grid():
    return write_grid("scatter.h5", scattered(200))


@functools.cache
def library_of(way, hulls):
    """The library of all models of one of them."""
    path = tmp(f"{way}-{hulls}.h5")
    run("library", "train", "--emulator", way, "--left-out", 0, "--hulls", hulls, "--output", path,
        scattered_grid() if way == "radial" else full_grid())
    return path


def emulate(lib, label, i_arm=0):
    """Fluxes of a library file (test_library_file.py has the formulas)."""
    return flux(library_file.read(lib), i_arm, label)


def between(n, seed=5):
    return LOW + (HIGH - LOW) * np.random.default_rng(seed).uniform(0.05, 0.95, (n, 3))


def table(text, begin):
    """Numbers of the row that begins with `begin`, in the report's table of pixel errors."""
    text = text.split("error of their pixels")[1].split("worst")[0]
    row, = (line.split()[1:] for line in text.splitlines() if line.split()[:1] == [begin] and "pixels" not in line)
    return [float(x) for x in row]


def own_part(lib, label):
    """Errors [n][labels and km/s] that an emulator's error makes in labels and velocity, to first
    order: least squares of the error of ln flux on derivatives of templates, without continuum."""
    step, edge, arms = 1e-4, 8, list(ARMS)
    with h5py.File(lib, "r") as f:
        scale = [(f[f"labels/label{i}"].attrs["std"], f[f"labels/label{i}"].attrs["mapping"])
                 for i in range(3)]
    # by a small step of each mapped label, in its unit
    change = [x * (10**(step * std) - 1) if log else np.full(len(label), step * std)
              for x, (std, log) in zip(label.T, scale)]
    out = np.empty((len(label), 4))
    ln = [np.log(emulate(lib, label, i)) for i in range(len(arms))]
    moved = [[np.log(emulate(lib, label + np.eye(3)[k] * change[k][:, None], i)) for k in range(3)]
             for i in range(len(arms))]
    for m, one in enumerate(label):
        rows, data = [], []
        for i, arm in enumerate(arms):
            slope = [(moved[i][k][m] - ln[i][m]) / change[k][m] for k in range(3)]
            slope.append(-np.gradient(ln[i][m]) / (299792.458 * LN_STEP))
            error = np.log(spectrum(one, arm)) - ln[i][m]
            u = np.linspace(-1, 1, len(error) - 2 * edge)
            basis = np.linalg.qr(np.polynomial.legendre.legvander(u, 9))[0]
            free = lambda x: x[edge:-edge] - basis @ (basis.T @ x[edge:-edge])
            rows.append(np.array([free(s) for s in slope]))
            data.append(free(error))
        out[m] = np.linalg.lstsq(np.hstack(rows).T, np.hstack(data), rcond=None)[0]
    return out


class TrainFunctions(ProgramTest):
    def good(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_linear_is_exact_at_nodes_and_scipy_between(self):
        out = self.good(train("linear.h5", full_grid(), "linear", "--components", 124, "--left-out", 0))
        self.assertIn("5 of teff, 5 of logg, 5 of feh; 0 nodes", out)
        self.assertNotIn("report", out)
        for i, arm in enumerate(ARMS):
            flux = np.array([spectrum(x, arm) for x in all_nodes()]).astype("f4").astype("f8")
            # with all 124 components of 125 models only float32 weights and values cause errors
            self.assertLess(abs(emulate(tmp("linear.h5"), all_nodes(), i) / flux - 1).max(), 3e-6)
            nodes = (np.log10(NODES[0]), NODES[1], NODES[2])
            scipy = RegularGridInterpolator(nodes, np.log(flux).reshape(5, 5, 5, -1))
            at = between(50)
            want = np.exp(scipy(np.column_stack([np.log10(at[:, 0]), at[:, 1:]])))
            self.assertLess(abs(emulate(tmp("linear.h5"), at, i) / want - 1).max(), 3e-6)
        self.assertEqual(attributes(tmp("linear.h5"), "arms/arm0/grid")["degree"], 1)
        info = self.good(starmill("library", "info", tmp("linear.h5")))
        self.assertIn("grid 5x5x5-124", info)
        self.assertIn(", linear, log flux", info)
        # the default number of components leaves 1e-5 (rms) in the worst model, plus float32
        flux = np.array([spectrum(x, "b") for x in all_nodes()])
        error = emulate(library_of("linear", "pairs"), all_nodes()) / flux - 1
        self.assertLess(np.sqrt((error**2).mean(axis=1)).max(), 1.2e-5)

    def test_splines_and_radial_functions_follow_the_spectra(self):
        at = between(50)
        want = [np.array([spectrum(x, arm) for x in at]) for arm in ARMS]
        error = {way: max(abs(emulate(library_of(way, "pairs"), at, i) - flux).max()
                          for i, flux in enumerate(want)) for way in ("linear", "splines", "radial")}
        # limits for lines 0.2 deep, from five nodes a label or 200 points
        self.assertLess(error["linear"], 0.05)
        self.assertLess(error["splines"], 0.005)
        self.assertLess(error["radial"], 0.005)
        # through the models, but for the smoothing of 1e-8
        flux = np.array([spectrum(x, "r") for x in scattered(200)])
        self.assertLess(abs(emulate(library_of("radial", "pairs"), scattered(200), 1) - flux).max(), 1e-4)

    def test_gaps(self):
        label = all_nodes()
        # one node inside, and a corner that no model can have: hot giants
        inside = (label == [5200, 3.5, -0.8]).all(axis=1)
        corner = (label[:, 0] == 6300) & (label[:, 1] == 2)
        grid = write_grid("gaps.h5", label[~(inside | corner)])
        self.assertOneLine(train("gaps.out", grid, "linear"), "6 of 125 nodes", "teff 5200 logg 3.5 "
                           "feh -0.8", "--gaps fill", "radial", status=3)
        self.assertFalse(os.path.exists(tmp("gaps.out")))
        for way, limit in (("splines", 0.02), ("linear", 0.06)):
            out = self.good(train("filled.h5", grid, way, "--gaps", "fill", "--components", 100))
            self.assertIn("6 nodes filled", out)
            want = spectrum(label[inside][0], "b")
            self.assertLess(abs(emulate(tmp("filled.h5"), label[inside])[0] - want).max(), limit)
            self.assertLess(abs(emulate(tmp("filled.h5"), label[~(inside | corner)])
                                - [spectrum(x, "b") for x in label[~(inside | corner)]]).max(), 1e-4)

    def test_report_of_validation_spectra(self):
        """The printed errors are those of the library file's own templates."""
        at = between(24)
        out = self.good(train("valid-lib.h5", scattered_grid(), "radial", "--validation",
                              write_grid("valid.h5", at), "--model-error", 4))
        self.assertIn("24 spectra that were left out", out)
        error = [abs(emulate(tmp("valid-lib.h5"), at, i) - np.array([spectrum(x, arm) for x in at]))
                 * 100 for i, arm in enumerate(ARMS)]
        both = np.hstack(error)
        for name, e in (("b", error[0]), ("r", error[1]), ("all", both)):
            rms = np.sqrt((e**2).mean(axis=1))
            want = [np.percentile(e, 50), np.percentile(e, 95), np.percentile(e, 99), e.max(),
                    np.percentile(rms, 50), None, rms.max()]
            row = table(out, name)
            for got, x in zip(row, want):
                if x is not None:  # four decimals, float32, and an order statistic in steps
                    self.assertLess(abs(got - x), 2e-4 + 0.06 * x, (name, row, want))
        line = out.splitlines()[out.splitlines().index("worst spectra, rms in per cent") + 1]
        self.assertEqual(line.split()[1], f"model{np.argmax((both**2).mean(axis=1)):04d}")
        # the emulator's own part at S/N 100, where noise hardly moves the derivatives
        own = own_part(tmp("valid-lib.h5"), at)
        median = np.median(own, axis=0)
        scatter = 1.4826 * np.median(abs(own - median), axis=0)
        got = np.array([[float(x) for x in line.split()[5:7]] for line in out.splitlines()
                        if line.split()[:1] == ["100"]])
        self.assertLess((abs(got[:, 0] - median) / scatter).max(), 0.08, (got, median, scatter))
        # scatter of 24 differences; noise of 1 % changes it a little
        self.assertLess((abs(got[:, 1] - scatter) / scatter).max(), 0.15, (got, median, scatter))
        info = self.good(starmill("library", "info", tmp("valid-lib.h5")))
        self.assertIn("24 spectra that were left out", info)
        self.assertIn("and 4 components", info)
        self.assertIn(b"worst spectra", attributes(tmp("valid-lib.h5"))["report"])

    def test_left_out_of_a_grid_lie_between_others(self):
        out = self.good(train("leave.h5", full_grid(), "splines", "--left-out", 0.2, "--seed", 3))
        n = int(out.split("report  ")[1].split()[0])
        self.assertTrue(3 <= n <= 14, out)  # of 27 inner nodes no two are neighbours
        self.assertIn("filled from their neighbours", out)
        # the library itself has all nodes: the same as without a report
        self.assertEqual(attributes(tmp("leave.h5"))["hash"], attributes(library_of("splines", "pairs"))["hash"])

    def test_whole_hull(self):
        """One hull over all labels: SciPy's for scattered models, six faces for a box."""
        from scipy.spatial import ConvexHull
        self.good(train("box.h5", full_grid(), "linear", "--hulls", "whole", "--left-out", 0))
        self.assertEqual(attributes(tmp("box.h5"), "hulls")["n_hull"], 1)
        self.assertEqual(read(tmp("box.h5"), "hulls/hull0")["facets"].shape, (6, 4))
        rng = np.random.default_rng(SEED)
        ball = rng.normal(size=(120, 3))
        ball *= rng.uniform(0, 1, (120, 1)) ** (1 / 3) / np.linalg.norm(ball, axis=1)[:, None]
        grid = write_grid("ball.h5", np.array([5400, 3.5, -0.8]) + ball * [800, 1.4, 1.0])
        other = write_grid("other.h5", scattered(60))
        out = self.good(train("whole.h5", grid, "radial", "--hulls", "whole", "--validation", other))
        with h5py.File(tmp("whole.h5"), "r") as f, h5py.File(grid, "r") as g, \
             h5py.File(other, "r") as v:
            facets = f["hulls/hull0/facets"][:]
            models, at = (library_file.read(tmp("whole.h5")).map(of["models/label"][:]) for of in (g, v))
        hull = ConvexHull(models)
        # float64 of the same planes; distances are of order 1
        got, expected = (np.max(at @ x[:, :3].T + x[:, 3], axis=1) for x in (facets, hull.equations))
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
        self.assertLessEqual(np.max(models @ facets[:, :3].T + facets[:, 3]), 1e-12)
        self.assertIn(f"and {np.sum(expected > 1e-9)} outside the hulls", out)

    def test_fit(self):
        """Fits find labels and velocities of made-up stars with each kind of emulator."""
        truth = np.array([[5100, 3.1, -1.0], [5500, 4.2, -0.3], [6000, 4, -0.8]])
        vrad = np.array([30.0, -80.0, 0.0])
        rng = np.random.default_rng(SEED + 3)
        arms = {}
        for arm in ARMS:
            full = wavelengths(arm)
            wave = np.arange(full[0] + 12, full[-1] - 12, 0.25)
            flux = np.array([spectrum(p, arm, wave * (1 - v / 299792.458))
                             for p, v in zip(truth, vrad)])
            error = flux / 300
            flux = flux + error * rng.normal(size=flux.shape)
            arms[arm.upper()] = {"WAVELENGTH": wave, "FLUX": 20 * flux, "IVAR": (20 * error)**-2}
        write_desi(tmp("stars.fits"), arms)
        put("run.yaml", "wave_mask: []\nmin_vel: -300\nmax_vel: 300\n")
        # linear interpolation over five nodes is wrong by some per cent of a line
        found = {}
        for way, hulls, limit in (("radial", "pairs", (40, 0.1, 0.05)),
                                  ("radial", "whole", (40, 0.1, 0.05)),
                                  ("splines", "pairs", (40, 0.1, 0.05)),
                                  ("linear", "pairs", (250, 0.5, 0.25))):
            self.fit("result.h5", "--config", tmp("run.yaml"), "--overwrite", tmp("stars.fits"),
                     lib=library_of(way, hulls))
            got = found[way, hulls] = read(self.path)
            np.testing.assert_array_equal(got["STATUS"], FITTED)
            self.assertLess(abs(got["VRAD"] - vrad).max(), 2, way)
            for k, name in enumerate(("TEFF", "LOGG", "FEH")):
                self.assertLess(abs(got[name] - truth[:, k]).max(), limit[k], (way, name))
        # the stars lie inside both kinds of hulls, so hulls have no part in the fit
        for name in ("VRAD", "TEFF", "LOGG", "FEH"):
            pairs, whole = found["radial", "pairs"], found["radial", "whole"]
            self.assertLess((abs(whole[name] - pairs[name]) / pairs[name + "_ERR"]).max(), 0.02)

    def test_refusals(self):
        label = all_nodes()

        def dark(f):
            f["arms/arm1/flux"][5, 17] = 0

        def bad(f):
            f["models/status"][:] = 2
            f["models/status"][:11] = 1

        def instead(name, make):
            return lambda f: (f.pop(name), make(f, name))
        few = label[(label[:, 2] > -1) & (label[:, 1] != 2.5)]
        for path, way, words in (
            (write_grid("dark.h5", label, edit=dark), "splines", ("arm1", "pixel 17 of model 5")),
            (write_grid("no-grid.h5", scattered(60)), "linear", ("more than half", "radial")),
            (write_grid("few.h5", few), "splines", ("label feh has 3 values", "linear")),
            (write_grid("same.h5", label, edit=lambda f: f["arms/arm1/flux"].write_direct(
                np.ones((125, 350), "f4"))), "radial", ("the 125 spectra are all equal",)),
            (write_grid("bad.h5", label, edit=bad), "radial", ("11 good models", "at least 12")),
            (write_grid("name.h5", label, edit=instead(
                "models/name", lambda f, name: f.create_dataset(name, data=[b"a"]))), "radial",
             ("/models/name or /models/why does not have 125 texts",)),
            (write_grid("group.h5", label, edit=instead("arms/arm0/flux", h5py.Group.create_group)),
             "radial", ("group.h5: ", "Group")),
            (write_grid("flux.h5", label, edit=lambda f: f.pop("arms/arm1/flux")), "radial",
             ("flux.h5: ", "flux")),
            (write_grid("n_pix.h5", label, edit=lambda f: f["arms/arm0"].attrs.create(
                "n_pix", np.inf)), "radial", ("n_pix.h5: ", "infinity"))):
            self.assertOneLine(train("no.h5", path, way), *words, status=3)
        path = full_grid()

        def to_do(f):
            f["models/status"][3:5] = 0
        self.assertOneLine(train("no.h5", write_grid("half.h5", label, edit=to_do, complete=0),
                                 "radial"), "2 of its 125 models are still to do", "--unfinished",
                           status=3)
        self.good(train("yes.h5", tmp("half.h5"), "radial", "--unfinished", "--left-out", 0))
        short = write_grid("short.h5", label[:, :2][::5])
        done = train("no.h5", path, "linear", "--validation", short)
        self.assertOneLine(done, "--validation", "its labels", status=3)
        self.assertNotIn("made in", done.stdout)  # refused before the work
        for way, options, words in (
            ("splines", ("--smoothing", 1), "--smoothing does not apply to --emulator splines"),
            ("radial", ("--gaps", "fill"), "--gaps does not apply to --emulator radial")):
            self.assertOneLine(train("no.h5", path, way, *options), words, status=2)
        self.assertOneLine(train("no.h5", path, "linear", "--left-out", 0, "--model-error", 2),
                           "--model-error", "--validation", status=2)
        self.assertOneLine(train("no.h5", path, "linear", "--left-out", 0.02, "--model-error", 5),
                           "models measure the library, but --model-error 5 needs 10", status=3)
        self.assertFalse(os.path.exists(tmp("no.h5")))


class LengthTest(unittest.TestCase):
    def test_labels_that_matter_less_are_longer(self):
        x = np.random.default_rng(SEED).normal(size=(60, 3))
        wave = np.sin(2 * x[:, :1]) + 0.3 * np.cos(x[:, 1:2]) + 0.05 * np.sin(2 * x[:, 2:])
        length = choose_length(x, wave, 1, np.array([1e-8]))
        self.assertEqual(length[0], 1)
        self.assertTrue((length[1:] >= 2).all(), length)


class GapsTest(unittest.TestCase):
    """Nodes without a model are filled exactly if flux is linear along each label.  With two nodes
    on either side a cubic is exact too."""

    def lattice(self, gaps, shape=(6, 5, 4)):
        axes = [np.cumsum(RNG.uniform(0.5, 1.5, n)) for n in shape]
        labels = [Label(name, name.upper()) for name in NAMES[:len(shape)]]
        node = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=1)
        keep = RNG.permutation(np.setdiff1d(np.arange(len(node)), gaps))
        names = [f"m{i}" for i in keep]
        return Lattice(labels, node[keep], names), node, labels, names

    def test_multilinear_and_cubic(self):
        gaps = [0, 1, 2, 4, 5, 6, 20, 21, 24, 47, 65, 66, 119, 118, 99]
        for n_gap in (1, 8, 15):
            lattice, node, _, _ = self.lattice(gaps[:n_gap])
            self.assertEqual(lattice.n_gap, n_gap)
            x, y, z = node.T
            for cubic, want in ((False, 1 + 2 * x - y + 0.5 * z + x * y * (1 - 0.7 * z)),
                                (True, y * z - x)):
                value = np.where(lattice.model.ravel() >= 0, want, 1e9)[:, None]
                lattice.fill(value, cubic)
                np.testing.assert_allclose(value[:, 0], want, atol=1e-9)
        lattice, node, _, _ = self.lattice([50])  # node 2, 2, 2
        want = node[:, 0]**3 - node[:, 1]**2
        for cubic, near in ((True, True), (False, False)):
            value = np.where(lattice.model.ravel() >= 0, want, 1e9)[:, None]
            lattice.fill(value, cubic)
            self.assertEqual(abs(value[50, 0] - want[50]) < 1e-9, near)

    def test_nodes(self):
        lattice, node, labels, names = self.lattice([0, 47, 119])
        for i, model in enumerate(lattice.model.ravel()):
            self.assertEqual(model, -1 if i in (0, 47, 119) else names.index(f"m{i}"))
        none = np.zeros(len(names), bool)
        # node 46 is next to a gap, 20 at an edge, 65 inside and next to 45
        self.assertEqual([lattice.is_inner(i, none) for i in (46, 20, 65)], [False, False, True])
        none[names.index("m45")] = True
        self.assertFalse(lattice.is_inner(65, none))
        with self.assertRaisesRegex(Failure, "3 of 120 nodes.*; give --gaps fill"):
            lattice.refuse_gaps()
        lattice, _, _, _ = self.lattice([1], (2, 2))
        value = np.array([[3.0], [1e9], [5], [9]])
        lattice.fill(value, False)
        self.assertEqual(value[1, 0], 6)  # beside single nodes with 3 and 9
        with self.assertRaisesRegex(Failure, "a and b have the same labels"):
            Lattice(labels, node[[5, 5, *range(20, 120)]], ["a", "b", *names])
