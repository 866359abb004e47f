# SPDX-License-Identifier: BSD-3-Clause
"""The library file: what is read, written and refused; emulators by their formulas."""

import itertools

from base import *  # noqa: F403
from survey_files import Reader
from starmill.cli.basics import Failure
from starmill.templates import emulate
from starmill.templates.library_data import (Arm, Emulator, Hull, Label, Library, ModelError,
                                             Radial, SplineGrid)
from starmill.templates.library_file import read, write

FGK = os.path.join(SOURCE, "libraries", "fgk.h5")
KINDS = {"mlp": (0, False), "grid": (1, False), "rbf": (2, False), "linear": (1, True)}


def small(kind, n_pix=64):
    """The libraries of tests/reference/library_digest.py."""
    coef = np.array([0.75 * i - 2 for i in range(10)], "f4").reshape(5, 2)
    front = {"mlp": None, "grid": SplineGrid(3, [np.array([-1, -1, -1, -1, .25, 1, 1, 1, 1])], coef),
             "linear": SplineGrid(1, [np.array([-1, -1, -0.5, 0, 0.25, 1, 1])], coef),
             "rbf": Radial(1, np.array([1.5]), np.array([[-1], [0.25], [1]]), coef)}[kind]
    weight = np.array([[0.5], [-0.25]] if front is None else [[0.5, -0.25], [2, 3]])
    wave = np.exp(8.25 + 2.0**-10 * np.arange(n_pix))
    weight = np.resize(weight, (n_pix, weight.shape[1]))
    return Library(
        [Label("teff", "TEFF", "K", 1, 3.75, 0.125, 4000, 7000, 62.5, 2.5)],
        [Hull(np.array([0]), np.array([[1, -1.5], [-1, -1.25]]))],
        [Arm("b", "test_b", 8.25, 0.0009765625, wave, template_sigma_aa=0.5,
             emulator=Emulator([weight], [np.resize([0.125, -8], len(weight))], front))],
        np.array([[5500.0]]), np.array([100.0]))


def rich(kind):
    """A library of four labels in two hulls.  Arm b has an emulator of `kind`, whose last layer
    has nine inputs; arm r has a network.  Model errors have three components."""
    rng = np.random.default_rng(5)
    ends = {"grid": 3, "linear": 1}.get(kind, 0)
    front = None
    if ends:
        front = SplineGrid(ends, [np.r_[[-1.5] * ends, np.linspace(-1.5, 1.5, n + 1 - ends), [1.5] * ends]
                                  for n in range(4, 8)], rng.normal(size=(4, 5, 6, 7, 9)).astype("f4"))
    elif kind == "rbf":
        front = Radial(1, np.ones(4), rng.uniform(-1.6, 1.6, (70, 4)), rng.normal(size=(75, 9)).astype("f4"))

    def arm(name, wave0, n_pix, front):
        width = [9, n_pix] if front else [4, 12, 9, n_pix]
        error = ModelError(np.full(n_pix, 0.004, "f4"), 2.5, rng.normal(size=(3, n_pix)).astype("f4"),
                           np.array([0.01, 0.005, 0.003]))
        return Arm(name, "test_" + name, np.log(wave0), 8e-5, wave0 * np.exp(8e-5 * np.arange(n_pix)), Emulator(
            [rng.normal(size=(o, i)).astype("f4") / 3 for i, o in itertools.pairwise(width)],
            [rng.normal(size=n).astype("f4") / 9 for n in width[1:]], front), error, 0.5, "made up")
    box = np.array([[1, 0, -1.6], [-1, 0, -1.6], [0, 1, -1.6], [0, -1, -1.6]])
    labels = [Label("teff", "TEFF", "K", 1, 3.74, 0.07, 4300, 7000, 60),
              Label("logg", "LOGG", "", 0, 2.9, 1.4, 0.7, 5.1, 0.15),
              Label("feh", "FEH", "dex", 0, -1.25, 1.1, -3, 0.5, 0.1),
              Label("alpha", "ALPHAFE", "dex", 0, 0.2, 0.16, -0.05, 0.45, 0.05)]
    guess = np.stack([label.unmap(rng.uniform(-1.5, 1.5, 20)) for label in labels], axis=1)
    return Library(labels, [Hull(np.array([0, 1]), box), Hull(np.array([2, 3]), box)],
                   [arm("b", 4000.0, 400, front), arm("r", 5900.0, 437, None)], guess, np.array([0.0, 100.0]))


HASH = "do not match its attribute hash"
GRID, COEF, RBF = "arms/arm0/grid", "arms/arm0/grid/coefficients", "arms/arm0/rbf"
ULP = "the next number"
# Faults by kind of emulator: HDF5 object, its attribute (.name) or one of its numbers ([i]); wrong
# value (None: remove the object; a tuple of type and shape: write no data); words of the refusal.
WRONG = {
    "mlp": (
        ("/.format_version", 5, "has library format 5"),
        ("/.format", "starmill results", "not a starmill library"),
        ("/.format", 5, "attribute format of / is not a text"), ("/.name", None), ("/.hash", None),
        ("labels", None), ("labels/label1", None), ("hulls", None), ("hulls/hull1/labels", None),
        ("hulls/hull1/facets", None), ("arms", None), ("arms/arm1/wavelength", None),
        ("arms/arm1/layer1/weight", None), ("arms/arm1/layer1/bias", None), ("guess/labels", None),
        ("guess/vsini", None), ("labels/label2.unit", None), ("labels/label2.scale", None),
        ("arms/arm1.ln_step", None), ("arms/arm1.template_sigma", None), ("arms/arm1.emulator", None),
        *((f"{group}.n_{of}", n, f"n_{of} of {group} is {n}") for group, of, wrong in (
            ("labels", "label", (17, -1, 0)), ("hulls", "hull", (17, 0)), ("arms", "arm", (9, 0)))
          for n in wrong), ("labels.n_label", 5, "/labels/label4 is missing"),
        ("labels/label0.name", "a name that is much longer than any label's name may be",
        "longer than 31 bytes"),
        ("labels/label0.mean", "3.7", "attribute mean of labels/label0 is not a number"),
        ("labels/label1.name", "/ogg", "label 1"), ("labels/label1.name", "", "label 1"),
        ("labels/label2.name", "vsini", "vsini"), ("labels/label2.name", "logg", "appears twice"),
        ("labels/label1.mapping", 2, "mapping 2"), ("labels/label1.std", 0.0, "std above 0"),
        ("labels/label1.mean", np.nan, "must be finite"), ("labels/label1.max", -1.0, "impossible range"),
        ("labels/label0.min", -1.0, "impossible range"), ("labels/label1.scale", np.nan, "scale"),
        ("labels/label1.floor", -1.0, "floor"),
        ("hulls.n_hull", 1, "label feh is in no hull"), ("hulls/hull0/labels[1]", 4, "names label 4"),
        ("hulls/hull0/labels[1]", 0, "twice"), ("hulls/hull0/facets", np.ones((2, 3)), "2 facets"),
        ("hulls/hull0/facets", np.zeros((12, 4)), "[12][4]"),
        ("hulls/hull0/facets[0]", 1.001, "facet 0 of hull 0"),
        ("hulls/hull0/facets[3]", np.nan, "facet 1 of hull 0"),
        ("hulls/hull0/facets[2]", np.inf, "offset inf (expected a finite number)"),
        ("arms.n_arm", 3, "arms/arm2 is missing"), ("arms/arm0.name", "B", "lower case"),
        ("arms/arm0.name", " ", "arm 0"), ("arms/arm0.name", "r", "two arms are called r"),
        ("arms/arm0/wavelength", np.arange(4000.0, 4003.0), "expected [8 to 1048576]"),
        ("arms/arm0.ln_step", 0.0, "step of arm b"), ("arms/arm0.ln_step", -8e-5, "step of arm b"),
        ("arms/arm0/wavelength[17]", 4005.443, "pixel 17"), ("arms/arm0/wavelength[17]", np.nan, "pixel 17"),
        ("arms/arm0.template_sigma", np.nan, "template_sigma of arm b"),
        ("arms/arm0.log_flux", 7, "log_flux of arm b is 7"),
        ("arms/arm0.activation", "relu", "activation of arm b"),
        ("arms/arm0.emulator", "forest", "the emulator of arm b"),
        ("arms/arm0.n_layer", 13, "n_layer of arms/arm0 is 13"),
        ("arms/arm0.n_layer", 4, "layer3/weight is missing"),
        ("arms/arm0/layer0/bias", np.zeros(11, "f4"), "11 elements along dimension 0, expected 12"),
        ("arms/arm0/layer0/bias", np.zeros((12, 4), "f4"), "2 dimensions, expected 1"),
        ("arms/arm0/layer0/weight", np.zeros((12, 4)), "holds 8-byte numbers, expected 4"),
        ("arms/arm0/layer0/weight", np.zeros((12, 4), "i4"), "does not hold floating-point numbers"),
        ("arms/arm0/layer0/weight", np.zeros((2000, 4), "f4"), "has the shape [2000][4]"),
        ("arms/arm0/layer0/weight", np.zeros((12, 3), "f4"), "takes 3 inputs, expected 4"),
        ("arms/arm0/layer2/weight", np.zeros((400, 10), "f4"), "takes 10 inputs, expected 9"),
        ("arms/arm0/layer0/weight", ("f4", 12, 4), "was never written"),
        ("arms/arm1/layer2/weight[5]", np.nan, "layer 2 of arm r"),
        ("arms/arm1/layer0/bias[5]", np.inf, "layer 0 of arm r"),
        ("guess/vsini", np.zeros(9), "has the shape [9], expected [1 to 8]"),
        ("guess/vsini[1]", -1, "v sin i number 1"),
        ("guess/labels[4]", 20000, "template 1"), ("guess/labels[4]", np.nan, "template 1"),
        ("arms/arm1/model_error/fraction", np.zeros(2, "f4"), "fraction"),
        ("arms/arm1/model_error/components", np.zeros((2, 5), "f4"), "expected [1 to 16]"),
        ("arms/arm1/model_error/sigmas", np.zeros(2), "sigmas"),
        ("arms/arm1/model_error/fraction[7]", np.nan, "arm r in pixel 7 is nan times the flux"),
        ("arms/arm1/model_error/fraction[7]", -0.1, "in pixel 7"),
        ("arms/arm1/model_error/components[11]", np.inf, "model error of arm r is not finite"),
        ("arms/arm1/model_error/sigmas[1]", -1, "component 1 of the model error of arm r"),
        ("arms/arm1/model_error.correlation", np.nan, "arm r is correlated over"),
        # right in every way, but not what was written
        ("arms/arm0/layer0/bias", np.zeros(12, "f4"), HASH), ("labels/label3.unit", "K", HASH),
        *((where, ULP, HASH) for where in (
            "labels/label3.mean", "labels/label0.std", "labels/label1.min", "labels/label1.max",
            "labels/label2.scale", "labels/label2.floor", "hulls/hull1/facets[2]",
            "arms/arm1.ln_wave0", "arms/arm0.ln_step", "arms/arm0/wavelength[9]",
            "arms/arm1.template_sigma", "guess/labels[11]", "guess/vsini[1]",
            *("arms/arm1/model_error" + of for of in (
                "/sigmas[0]", ".correlation", "/fraction[3]", "/components[5]")),
            "arms/arm0/layer2/weight[100]", "arms/arm1/layer1/bias[3]"))),
    "grid": (
        ("arms/arm0.emulator", "mlp", "attribute activation of arms/arm0 is missing"),
        ("arms/arm1.emulator", "grid", "arms/arm1/grid is missing"),
        ("arms/arm1.activation", "relu", "activation of arm r"),
        ("arms/arm0.n_layer", 2, "layer1/weight is missing"),
        ("arms/arm0.n_layer", 0, "n_layer of arms/arm0 is 0"),
        (GRID + ".degree", 2, "attribute degree of arms/arm0/grid is 2"), (GRID, None), (COEF, None),
        (GRID + "/knots0", None), (GRID + "/knots3", None),
        *((COEF, np.zeros(shape, "f4"), said) for shape, said in (
            ((3, 5, 6, 7, 9), "has the shape [3][5]"), ((4, 5, 6, 257, 9), "[257]"),
            ((4, 5, 6, 7, 1025), "[1025]"), ((4, 5, 6, 63), "4 dimensions, expected 5"),
            (7560, "1 dimensions, expected 5"), ((4, 6, 6, 7, 9), "knots1"),
            ((4, 5, 6, 7, 8), "takes 9 inputs, expected 8"), ((4, 5, 6, 7, 9), HASH))),
        (COEF, np.zeros((4, 5, 6, 7, 9)), "holds 8-byte numbers, expected 4"),
        (COEF, np.zeros((4, 5, 6, 7, 9), "i4"), "does not hold floating-point numbers"),
        (COEF, ("f4", 4, 5, 6, 7, 9), "was never written"),
        # sixteen tebibytes that take no room in the file
        (COEF, ("f4", 256, 256, 256, 256, 1024), "claims 17592186044416 bytes, more than the file's"),
        (GRID + "/knots0", np.zeros(9), "9 elements along dimension 0, expected 8"),
        (GRID + "/knots0", np.zeros((8, 1)), "2 dimensions, expected 1"),
        (GRID + "/knots2[5]", np.nan, "knot 5 of label feh of arm b is not finite"),
        (GRID + "/knots2[0]", np.inf, "knot 0 of label feh of arm b is not finite"),
        (GRID + "/knots2[1]", -9, "do not ascend"), (GRID + "/knots2[5]", -9, "do not ascend"),
        (GRID + "/knots2[5]", 9, "do not ascend"), (GRID + "/knots2[4]", -1.5, "do not ascend"),
        (GRID + "/knots2[0]", -9, "must be equal"), (GRID + "/knots2[9]", 77, "must be equal"),
        (COEF + "[0]", np.inf, "coefficient is not finite"),
        (COEF + "[7559]", np.nan, "coefficient is not finite"),
        ("arms/arm0/layer0/weight[5]", np.nan, "layer 0 of arm b"),
        *((where, ULP, HASH) for where in (COEF + "[0]", COEF + "[3000]", COEF + "[7559]",
        GRID + "/knots1[4]"))),
    "linear": ((GRID + "/knots0[1]", -1, "label teff of arm b: the first 2 knots must be equal"),),
    "rbf": (
        *((RBF + of, None) for of in ("/centers", "/lengths", "/coefficients", ".degree")),
        *((RBF + ".degree", n, f"degree of arms/arm0/rbf is {n}") for n in (9, -1)),
        (RBF + ".degree", 2, "expected [85]"),
        (RBF + "/centers", np.zeros((70, 3)), "expected [1 to 65536][4]"),
        (RBF + "/centers", np.zeros((65537, 4)), "has the shape [65537][4]"),
        (RBF + "/centers", np.zeros(280), "1 dimensions, expected 2"),
        (RBF + "/centers", np.zeros((70, 4)), HASH),
        (RBF + "/lengths", np.zeros(3), "3 elements along dimension 0, expected 4"),
        (RBF + "/lengths[0]", 0, "length scale 0 of label teff"),
        (RBF + "/lengths[2]", np.nan, "of label feh"),
        (RBF + "/centers[5]", np.nan, "center is not finite"),
        (RBF + "/coefficients", np.zeros((70, 9), "f4"), "expected [75]"),
        (RBF + "/coefficients", np.zeros((75, 1025), "f4"), "[75][1 to 1024]"),
        (RBF + "/coefficients", np.zeros((75, 8), "f4"), "takes 9 inputs, expected 8"),
        (RBF + "/coefficients", np.zeros((75, 9)), "8-byte numbers"),
        (RBF + "/coefficients", np.zeros((75, 9), "f4"), HASH),
        (RBF + "/coefficients[77]", np.inf, "coefficient that is not finite"),
        *((where, ULP, HASH) for where in (
            RBF + "/lengths[1]", RBF + "/centers[0]", RBF + "/centers[209]", RBF + "/coefficients[0]"))),
}


def damage(f, where, value):
    """Change one thing in an open library."""
    name, attribute, element = re.fullmatch(r"([^.[]+)(?:\.(\w+))?(?:\[(\d+)\])?", where).groups()
    if attribute and value is None:
        del f[name].attrs[attribute]
    elif attribute:
        is_next = isinstance(value, str) and value == ULP
        value = np.nextafter(f[name].attrs[attribute], 1e9) if is_next else value
        f[name].attrs[attribute] = np.bytes_(value) if isinstance(value, str) else value
    elif element:
        data = f[name][...]
        at = np.unravel_index(int(element), data.shape)
        data[at] = np.nextafter(data[at], data.dtype.type(1e9)) if isinstance(value, str) else value
        f[name][...] = data
    else:
        del f[name]
        if isinstance(value, tuple):
            f.create_dataset(name, value[1:], value[0], chunks=(1,) * (len(value) - 2) + value[-1:])
        elif value is not None:
            f[name] = value


class LibraryFile(ProgramTest):
    def test_digest(self):
        from library_digest import digest as reference
        for kind, how in KINDS.items():
            library = small(kind)
            write(tmp("digest.h5"), library, overwrite=True)
            self.assertEqual(library.hash, reference(library.arm[0].wave_aa, *how), kind)

    def test_written_library_is_read_by_the_program(self):
        for name, library in ({"fgk": read(FGK)} | {kind: small(kind) for kind in KINDS}).items():
            write(tmp("w.h5"), library, overwrite=True, program=STARMILL)
            self.assertEqual(read(tmp("w.h5")).hash, library.hash)
            # the fit's reader compares the digest with its own
            self.assertIn("library\n  read ", run("doctor", "--library", tmp("w.h5"), "--output",
                                                 TMP).stdout)

    def good(self, kind):
        write(tmp("good.h5"), rich(kind), overwrite=True)
        return content(tmp("good.h5"))

    def refused(self, path, said, both=True):
        """The program says why in one line; starmill.templates refuses the file too."""
        answer = Reader.ask("library", path)
        self.assertEqual((answer.get("error"), answer.get("cleared")), (2, True), (said, answer))
        for part in (path, said):
            self.assertIn(part, answer["message"])
        if both:
            with self.assertRaises(Failure):
                read(path)

    def test_damaged_files(self):
        for kind, rows in WRONG.items():
            good = self.good(kind)
            self.assertEqual(Reader.ask("library", tmp("good.h5"))["hash"], read(tmp("good.h5")).hash)
            for where, value, *said in rows:
                name, _, attribute = where.partition(".")
                said = said or [f"attribute {attribute} of {name} is missing" if attribute else f"/{name} is missing"]
                with self.subTest(kind=kind, where=where, said=said[0]):
                    with h5py.File(put("bad.h5", good), "r+") as f:
                        damage(f, where, value)
                    self.refused(tmp("bad.h5"), said[0])
            for i in range(1, 16, 2):
                self.refused(put("bad.h5", good[:len(good) * i // 16]), "truncated or damaged")

    def test_more_labels_than_a_grid_has(self):
        with h5py.File(put("bad.h5", self.good("grid")), "r+") as f:
            f["labels"].attrs["n_label"], f["hulls"].attrs["n_hull"] = 16, 14
            for i in range(4, 16):
                f.copy("labels/label3", f"labels/label{i}")
                f[f"labels/label{i}"].attrs["name"] = np.bytes_(f"extra{i}")
                f[f"hulls/hull{i - 2}/labels"], f[f"hulls/hull{i - 2}/facets"] = [i], [[1, -1.5], [-1, -1.5]]
        self.refused(tmp("bad.h5"), "is a grid of 16 labels, this program takes 1 to 6")

    def test_foreign_files(self):
        for data, said in ((b"", "is empty"), (b"SIMPLE  = T\n", "not an HDF5 file")):
            self.refused(put("bad.h5", data), said)
        self.refused(tmp("no.h5"), "No such file")
        self.refused(TMP, "is a folder")
        h5py.File(tmp("bad.h5"), "w").close()
        self.refused(tmp("bad.h5"), "no attribute format")

    def test_links_and_storage(self):
        bias, good = "arms/arm0/layer0/bias", self.good("mlp")
        put("storage.raw", bytes(48))

        def filtered(code):  # N-bit, and a number that only a plug-in could have
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_chunk((12,))
            creation.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (0, 2))
            return lambda f: h5py.h5d.create(f["arms/arm0/layer0"].id, b"bias", h5py.h5t.NATIVE_FLOAT,
                                             h5py.h5s.create_simple((12,)), creation)

        def virtual(f):
            layout = h5py.VirtualLayout((12,), "f4")
            layout[:] = h5py.VirtualSource(tmp("other.h5"), "x", (12,))
            f.create_virtual_dataset(bias, layout)

        def link(name, of):
            return lambda f: f.__setitem__(name, of)
        outside = h5py.ExternalLink(tmp("other.h5"), "/x")
        for removed, add, said in (
                (bias, link(bias, outside), f"/{bias} is an external link"),
                ("", link("unused", outside), "/unused is an external link"),
                ("", link("again", h5py.SoftLink("/hulls")), "/again is a soft link"),
                ("", link("type", np.dtype("f8")), "/type is neither a group nor a dataset"),
                (bias, lambda f: f.create_dataset(bias, (12,), "f4", external=[(tmp("storage.raw"), 0, 48)]),
                 "keeps its data in another file"),
                (bias, virtual, "is virtual"),
                *((bias, filtered(n), f"HDF5 filter {n}") for n in (5, 6, 32004))):
            with h5py.File(put("bad.h5", good), "r+") as f:
                if removed:
                    del f[removed]
                add(f)
            self.refused(tmp("bad.h5"), said, both="filter" not in said and "/type" not in said)

    def test_compressed(self):
        """Deflate, shuffle, checksums and another order of bytes change neither contents nor digest."""
        with h5py.File(put("packed.h5", self.good("mlp")), "r+") as f:
            values = f.pop("arms/arm0/layer2/weight")[...]
            f.create_dataset("arms/arm0/layer2/weight", data=values, dtype=">f4", chunks=(64, 5),
                             compression=4, shuffle=True, fletcher32=True)
        self.assertEqual(Reader.ask("library", tmp("packed.h5"))["hash"], read(tmp("good.h5")).hash)

    def test_foreign_files_stay(self):
        put("other.h5", b"\x89HDF and nothing of ours")
        with self.assertRaisesRegex(Failure, "not a starmill library"):
            write(tmp("other.h5"), small("mlp"), overwrite=True)
        os.mkdir(tmp("far"))
        os.symlink("far/once.h5", tmp("once.h5"))  # stays a link
        write(tmp("once.h5"), small("mlp"))
        self.assertTrue(os.path.islink(tmp("once.h5")))
        self.assertEqual(os.listdir(tmp("far")), ["once.h5"])
        with self.assertRaisesRegex(Failure, "--overwrite"):
            write(tmp("once.h5"), small("mlp"))

    def test_emulators(self):
        x = np.linspace(-1.5, 1.5, 13)
        value = small("mlp").label[0].unmap(x)[:, np.newaxis]
        for kind in KINDS:
            library = small(kind, 2)
            part = library.arm[0].emulator
            if kind == "mlp":
                h = x[:, np.newaxis]
            elif kind == "rbf":
                u, coef = x / 1.5, part.front.coef
                h = sum(abs(u - c / 1.5)[:, np.newaxis]**3 * row
                        for c, row in zip([-1, 0.25, 1], coef)) + coef[3] + u[:, np.newaxis] * coef[4]
            else:
                inside = np.clip(x, -1, 1)
                step = 1e-6 * np.where(inside > 0, -1, 1)  # of a slope into the grid
                line = [np.stack([np.interp(at, part.front.knot[0][1:-1], part.front.coef[:, k])
                                  if kind == "linear" else self.spline(part.front, at, k)
                                  for k in range(2)], axis=1) for at in (inside, inside + step)]
                h = line[0] + ((x - inside) / step)[:, np.newaxis] * (line[1] - line[0])
            y = h @ part.weight[0].T + part.bias[0]
            np.testing.assert_allclose(emulate.ln_flux(library, 0, value), y, atol=2e-5)
            np.testing.assert_allclose(emulate.flux(library, 0, value), np.exp(y), rtol=2e-5)

    def spline(self, front, x, k):
        from scipy.interpolate import splev
        return splev(x, (front.knot[0], np.append(front.coef[:, k], np.zeros(4)), 3))
