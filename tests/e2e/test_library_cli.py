# SPDX-License-Identifier: BSD-3-Clause
"""starmill library: import and info, with made-up emulators and with files that rvspecfit wrote
(tests/reference/make_rvspecfit.py)."""

import itertools

from base import *  # noqa: F403
from starmill.cli.basics import Failure
from starmill.templates import emulator_files, rvspecfit


def library(*args):
    return starmill("library", *args)


def make_emulator(path, seed, setup="lab_x", revision="v1", log_spec=False, n_pix=50):
    """An emulator of three labels as in docs/use/formats.md, with check values by NumPy."""
    rng = np.random.default_rng(seed)
    names = ["teff", "logg", "c_h"]
    # arms of one library share mapping and hulls, so these do not depend on the seed
    mean, std = np.array([3.7, 3.0, -1.0]), np.array([0.1, 1.2, 0.8])
    width = [3, 16, 8, n_pix]
    weight = [rng.normal(size=(o, i)).astype("f4") / 3 for i, o in zip(width, width[1:])]
    bias = [rng.normal(size=o).astype("f4") / 3 for o in width[1:]]
    label = np.array([[5000.0, 2.5, -1.0], [4500.0, 4.0, -1.5], [9000.0, 1.0, -0.5],
                      [5200, 3, 1.5]])
    x = label.copy()
    x[:, 0] = np.log10(x[:, 0])
    x = (x - mean) / std
    box = np.array([[1, 0, -1.5], [-1, 0, -1.5], [0, 1, -1.5], [0, -1, -1.5]], float)
    line = np.array([[1, -1.5], [-1, -1.5]])
    d = np.maximum((x[:, :2] @ box[:, :2].T + box[:, 2]).max(1),
                   (x[:, 2:] @ line[:, :1].T + line[:, 1]).max(1))
    y = x
    for i, (w, b) in enumerate(zip(weight, bias)):
        y = y @ w.astype("f8").T + b
        if i < 2:
            y = y / (1 + np.exp(-y))
    with h5py.File(path, "w") as f:
        f.attrs.update(setup=setup, parnames=",".join(names), log_spec=log_spec, log_step=True,
                       revision=revision, nlayers=3)
        f["lam"] = np.exp(np.log(5000) + 1e-4 * np.arange(n_pix))
        for i, (w, b) in enumerate(zip(weight, bias)):
            f[f"layer{i}/weight"], f[f"layer{i}/bias"] = w, b
        f["mapper/mean"], f["mapper/std"], f["mapper/log_ids"] = mean, std, np.array([0])
        f["outside/points"] = 1.5 * np.array(list(itertools.product((-1, 1), repeat=3)), float)
        f["outside/hull01_equations"], f["outside/hull2_equations"] = box, line
        f["check/params"], f["check/outside"] = label, np.maximum(d, 0) ** 2
        f["check/spectra"] = np.exp(y) if log_spec else y
    assert (d > 0).any() and (d < 0).any()


class LibraryTest(ProgramTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=TMP)
        self.a, self.b = self.path("a.h5"), self.path("b.h5")
        make_emulator(self.a, 1, "lab_x")
        make_emulator(self.b, 2, "lab_y", log_spec=True, n_pix=70)

    def path(self, name):
        return os.path.join(self.folder, name)

    def refused(self, status, text, *args):
        result = library(*args)
        self.assertEqual(result.returncode, status, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("starmill")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn(text, lines[0])
        self.assertEqual([name for name in os.listdir(self.folder) if "tmp" in name], [])

    def test_import_and_info(self):
        lib = self.path("lib.h5")
        result = run("library", "import", "--output", lib, self.a, self.b)
        self.assertIn("instrument's own", result.stdout)
        self.assertIn("'v1' does not end in rm or resolmat", result.stdout)
        self.assertIn("--template-sigma", result.stdout)
        info = run("library", "info", lib)
        with h5py.File(lib, "r") as f, h5py.File(self.b, "r") as b:
            self.assertEqual(f["labels"].attrs["n_label"], 3)
            self.assertEqual(f["labels/label2"].attrs["column"], b"C_H")
            self.assertEqual(f["labels/label2"].attrs["unit"], b"")
            self.assertAlmostEqual(f["labels/label2"].attrs["min"], -2.2, places=9)
            self.assertAlmostEqual(f["labels/label2"].attrs["scale"], 0.03 * 2.4, places=9)
            self.assertEqual(list(f["hulls/hull1/labels"]), [2])
            self.assertEqual(f["arms/arm1"].attrs["name"], b"y")
            self.assertEqual(f["arms/arm1"].attrs["log_flux"], 1)
            np.testing.assert_array_equal(f["arms/arm1/layer2/weight"], b["layer2/weight"])
            np.testing.assert_array_equal(f["arms/arm1/wavelength"], b["lam"])
            self.assertEqual(f["guess/labels"].shape, (50, 3))
            digest = f.attrs["hash"].decode()
        for text in (digest, "c_h", "C_H", "teff, logg: 4 facets", "3-16-8-70", "29.9792 km/s",
                     "from b.h5, revision v1", "50 templates"):
            self.assertIn(text, info.stdout)
        # the digest is of the contents, not of the path or the sources' names
        moved, other = self.path("moved.h5"), self.path("other.h5")
        os.rename(self.a, moved)
        self.assertIn(digest, library("import", "--output", other, moved, self.b).stdout)
        self.assertNotIn(digest, run("library", "import", "--output", other, "--overwrite",
                                     "--guess-templates", "51", moved, self.b).stdout)

    def test_one_of_several_at_once_wins(self):
        line = command("library", "import", "--output", self.path("one.h5"), self.a)
        jobs = [begun(line) for _ in range(3)]
        said = [job.communicate(timeout=PATIENCE)[1] for job in jobs]
        self.assertEqual(sorted((job.returncode, "one.h5 exists" in text) for job, text in zip(jobs, said)),
                         [(0, False)] + [(4, True)] * 2, said)

    def test_options(self):
        lib = self.path("lib.h5")
        make_emulator(self.a, 1, "lab_x", "v1rm")
        run("library", "import", "--output", lib, "--arm-names", "blue,red", "--template-sigma",
            "0.3", self.a, self.b)
        blue, red = (attributes(lib, f"arms/arm{i}") for i in (0, 1))
        self.assertEqual(blue["name"], b"blue")
        self.assertEqual((red["template_sigma"], red["template_sigma_origin"]), (0.3, b"given at import"))
        result = library("import", "--overwrite", "--output", lib, "--arm-names", "blue,red",
                          "--template-sigma", "0.3,0.4", self.a, self.b)
        self.assertIn("of arm red: sigma 0.4 A", result.stdout)
        self.assertEqual([attributes(lib, f"arms/arm{i}")["template_sigma"] for i in (0, 1)], [0.3, 0.4])
        result = library("import", "--overwrite", "--output", lib, self.a)
        self.assertIn("sigma 0.5 A of the templates, removed from that", run("library", "info", lib).stdout)
        self.assertIn("sigma 0.5 A", result.stdout)
        self.assertIn("instrument's own", library("import", "--overwrite", "--output", lib,
                                                  "--at-instrument-resolution", self.a).stdout)
        self.assertEqual(attributes(lib, "arms/arm0")["template_sigma"], -1)

    def test_usage(self):
        lib = self.path("lib.h5")
        new = ["import", "--output", lib]
        self.assertIn("usage:", library("--help").stdout)
        self.assertEqual(library("import", "--help").returncode, 0)
        self.refused(2, "sub-command")
        self.refused(2, "unknown sub-command paint", "paint")
        self.refused(2, "--output", "import", self.a)
        self.refused(2, "give emulator files, one per arm", "import", "--output", lib)
        self.refused(2, "--colour", *new, "--colour", self.a)
        self.refused(2, "--output needs a value", "import", self.a, "--output")
        for sigma in ("-1", "nan"):
            self.refused(2, f"--template-sigma takes a number, 0 or more, not '{sigma}'", *new,
                         "--template-sigma", sigma, self.a)
        for sigma in ("1e300", "20"):  # Angstrom, of arms 25 wide
            self.refused(2, f"is {float(sigma):g} A", *new, "--template-sigma", sigma, self.a)
        self.refused(2, "exclude each other", *new, "--template-sigma", "1",
                     "--at-instrument-resolution", self.a)
        self.refused(2, "2 numbers for 1 files", *new, "--template-sigma", "1,2", self.a)
        self.refused(2, "0 or more, not ''", *new, "--template-sigma", "1,", self.a)
        self.refused(2, "2 names for 1 files", *new, "--arm-names", "b,r", self.a)
        self.refused(2, "separated by commas, not 'b,,r'", *new, "--arm-names", "b,,r", self.a)
        self.refused(2, "--guess-templates takes an integer from 1 to 10000, not '0'", *new,
                     "--guess-templates", "0", self.a)
        self.refused(2, "are one file", "import", "--output", self.a, "--overwrite", self.a)
        self.refused(2, "give one library or grid file", "info")
        self.refused(2, "--all", "info", "--all", self.a)
        self.assertFalse(os.path.exists(lib))

    def test_files(self):
        lib = self.path("lib.h5")
        new = ["import", "--output", lib]
        self.refused(2, "No such file", "info", lib)
        self.refused(2, "starmill library import", "info", self.a)
        self.refused(2, "No such file", *new, self.path("none.h5"))
        self.refused(2, "arm called x", *new, self.a, self.a)
        self.refused(4, "No such file", "import", "--output", self.path("none/lib.h5"), self.a)
        open(lib, "w").close()
        self.refused(4, "--overwrite", *new, self.a)
        self.assertEqual(os.path.getsize(lib), 0)
        with h5py.File(self.b, "a") as f:
            f["check/spectra"][0, 3] *= 1.001
        self.refused(2, "check/spectra, row 0, pixel 3", *new, "--overwrite", self.b)
        self.assertEqual(os.path.getsize(lib), 0)

    def test_damaged_emulators(self):
        def damaged(said, edit):
            make_emulator(self.b, 2, "lab_y", log_spec=True)
            with h5py.File(self.b, "a") as f:
                edit(f)
            with self.assertRaisesRegex(Failure, f"^{re.escape(self.b)}: .*{said}"):
                emulator_files.read_file(self.b, None, None)
        for name, index, value, said in (
                ("check/outside", 2, 9.0, "check/outside, row 2"),
                ("layer1/weight", (3, 7), 9.0, "check/spectra, row 0"),
                ("layer1/weight", (3, 7), np.nan, "not finite"),
                ("mapper/mean", 1, 3.1, "check/spectra"), ("mapper/std", 1, -5, "std above"),
                ("lam", 10, 5005.1, "not uniform"), ("lam", 10, np.nan, "wavelengths above 0"),
                ("lam", -1, 500.0, "ends at 500 A"),
                ("outside/points", (5, 1), np.inf, "outside/points"),
                ("outside/hull01_equations", (0, 0), 0.5, "facet 0 of hull 0 has a normal"),
                ("mapper/log_ids", 0, 9, "mapper/log_ids names a label")):
            damaged(said, lambda f: f[name].__setitem__(index, value))
        for name in ("lam", "layer2/weight", "mapper/std", "mapper/log_ids", "outside/points",
                     "check/spectra"):
            damaged(name, lambda f: f.pop(name))
        damaged("size", lambda f: (f.pop("mapper/log_ids"), f.create_group("mapper/log_ids")))
        damaged("log_step is false", lambda f: f.attrs.modify("log_step", False))

    def test_disagreeing_arms(self):
        hull = "outside/hull01_equations"
        for said, edit in (
                ("another range of logg", lambda f: f["outside/points"].__setitem__((0, 1), -2)),
                ("label 2 is feh, but in", lambda f: f.attrs.update(parnames="teff,logg,feh")),
                ("hulls are not those of", lambda f: f[hull].__setitem__((), f[hull][:][::-1]))):
            make_emulator(self.b, 2, "lab_y", log_spec=True)
            with h5py.File(self.b, "a") as f:
                edit(f)
            self.refused(2, said, "import", "--output", self.path("lib.h5"), self.a, self.b)
        make_emulator(self.b, 2, "lab_y", "v1rm")
        self.refused(2, "--at-instrument-resolution", "import", "--output", self.path("lib.h5"),
                     self.a, self.b)


FILES = os.path.join(SOURCE, "tests", "reference", "rvspecfit")

try:
    import torch
    NO_TORCH = ""
except ImportError as missing:
    torch, NO_TORCH = None, f"{missing} (pip install torch)"


def files(folder, edit=None, setup="lab_t"):
    """rvspecfit's files in a folder of their own, interp_*.h5 edited; its path."""
    os.makedirs(tmp(folder))
    for name in (f"interp_{setup}.h5", f"NNstate_{setup}.sav"):
        shutil.copy(os.path.join(FILES, name), tmp(folder))
    path = os.path.join(tmp(folder), f"interp_{setup}.h5")
    if edit:
        with h5py.File(path, "r+") as file:
            edit(file)
    return path


def stored(name, value):
    def edit(file):
        del file[name]
        file[name] = value
    return edit


def values(setup):
    """(arrays of the .sav by name; labels, spectra and penalty by rvspecfit)."""
    with h5py.File(os.path.join(FILES, "values.h5"), "r") as file:
        of = file[setup]
        state = {name: x[()] for name, x in of["state"].items()}
        return state, of["label"][()], of["flux"][()], of["outside"][()]


def difference(done):
    """What import says of the check values."""
    return float(re.search(r"check values within (\S+),", done.stdout)[1])


# stands in for torch if it is missing: reads the weights from values.h5
STAND_IN = """import h5py, types
def load(path, map_location, weights_only):
    with h5py.File("%s/values.h5" % path.rpartition("/")[0]) as file:
        state = {name: x[()] for name, x in file[path[:-4].split("NNstate_")[1] + "/state"].items()}
    return {k: types.SimpleNamespace(numpy=lambda x=x: x) for k, x in state.items()}
"""


class ImportTest(ProgramTest):
    def read(self, setup):
        with h5py.File(os.path.join(FILES, f"interp_{setup}.h5"), "r") as file:
            return rvspecfit.read_interpolator(file, setup)

    def convert(self, setup, out, change=None):
        """An emulator file whose check values are rvspecfit's own spectra."""
        net, (state, label, flux, penalty) = self.read(setup), values(setup)
        layers = rvspecfit.find_layers(net, state)
        if change:
            change(layers)
        path, made = tmp(out), rvspecfit.emulator_file(net, layers, label, flux)
        # rvspecfit takes the logarithm of Teff in float32: 2.4e-7, and 3e-6 of a standard deviation
        np.testing.assert_allclose(np.sqrt(made["check/outside"][()]), np.sqrt(penalty),
                                   rtol=0, atol=6e-6)
        with h5py.File(path, "w") as file:
            file.attrs.update(made.attrs)
            for name in made:
                made.copy(name, file)
        self.assertTrue((penalty > 0.01).any() and (penalty == 0).any())
        return path

    def test_spectra_are_those_of_rvspecfit(self):
        for setup, resolution in (("lab_t", "sigma 0.5 A"), ("lab_n", "instrument's own")):
            with self.subTest(setup):
                spread = np.ptp(values(setup)[2], axis=0).max()
                self.assertGreater(spread, 0.02)  # else a wrong label would not be seen
                done = run("library", "import", "--output", tmp(f"{setup}-lib.h5"),
                           self.convert(setup, f"{setup}.h5"))
                # rvspecfit's arithmetic is float32, and so are its labels
                self.assertLess(difference(done), 5e-6)
                self.assertIn(resolution, done.stdout)
                print(setup, "differs from rvspecfit by", difference(done))

    def test_another_network_is_refused(self):
        def change(layers):
            layers[1][0][2, 3] += 0.01

        def forget(layers):
            layers[1] = layers[1][:2] + (None,)
        for setup, how in (("lab_t", change), ("lab_n", change), ("lab_n", forget)):
            done = starmill("library", "import", "--output", tmp("wrong.h5"),
                            self.convert(setup, "wrong-in.h5", how))
            self.assertOneLine(done, "layout, activation or mapping differs", status=2)

    def refused(self, text, path):
        self.ends(2, "library", "import", "--output", tmp("no.h5"), path, says=[text, path])

    def test_what_is_no_network_is_refused(self):
        self.refused("No such file", tmp("interp_none.h5"))
        self.refused("is not an emulator file", os.path.join(FILES, "values.h5"))
        os.makedirs(tmp("old"))
        put("old/interp_a.h5", b"\x80\x04cos\nsystem\n")
        self.refused("run code when they are read", tmp("old/interp_a.h5"))
        for folder, edit, text in (
                ("triangulation", stored("interpolation_type", "triangulation"), "starmill library"),
                ("older", lambda file: (file.pop("interpolation_type"),
                                        file.create_dataset("triang", data=1)), "triangulation"),
                ("activation", lambda file: file.create_dataset("class_kwargs/nonlinearity",
                                                                data="Tanh"), "is Tanh"),
                ("mapper", stored("mapper_class_name", "LogParamMapper"), "LogParamMapper"),
                ("linear", stored("log_spec", False), "log_spec is false"),
                ("step", stored("log_step", False), "--no-log"),
                ("labels", stored("mapper_args/__item_0", np.ones(3)), "4 labels"),
                ("part", lambda file: file.pop("parnames"), "parnames"),
                ("version", lambda file: file.attrs.modify("version", 2), "knows 1")):
            with self.subTest(folder):
                self.refused(text, files(folder, edit))
        path = files("air")
        with h5py.File(os.path.join(tmp("air"), "specs_lab_t.h5"), "w") as file:
            file["cmdline"] = "rvs_make_interpol --air --setup lab_t"
        self.refused("in air", path)

    def test_weights_that_do_not_fit_are_refused(self):
        net, state = self.read("lab_t"), values("lab_t")[0]
        bad = state["model.lin_2.bias"].copy()
        bad[3] = np.nan
        for name, x, text in (("model.lin_2.bias", bad, "model.lin_2.bias is missing"),
                              ("model.lin_2.bias", None, "model.lin_2.bias is missing"),
                              ("model.lin_1.weight", state["model.lin_1.weight"][:, 1:], "fit"),
                              ("pc_layer.bias", np.ones(7, "f4"), "fit"),
                              ("stacks.0.pc_layer.bias", bad, "unknown to this program: stacks.0")):
            with self.assertRaisesRegex(ValueError, text):
                rvspecfit.find_layers(net, {k: v for k, v in {**state, name: x}.items()
                                            if v is not None})
        net.lam = net.lam[1:]
        with self.assertRaisesRegex(ValueError, "give both files of one training"):
            rvspecfit.find_layers(net, state)

    def test_two_and_three_labels(self):
        net = self.read("lab_t")
        x, points = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]]), net.points
        for n in (2, 3):
            net.names, net.points = net.names[:n] if n == 2 else ["a"] * 3, points[:, :n]
            penalty = rvspecfit.outside(rvspecfit.hull_facets(net), x[:, :n])
            expected = (9 - points[:, 2].max()) ** 2 if n == 3 else 0
            np.testing.assert_allclose(penalty, [0, expected], rtol=1e-12)

    def test_whole_way(self):
        os.makedirs(tmp("stand-in"))
        put("stand-in/torch.py", STAND_IN)
        for setup, most in (("lab_t", 1e-12), ("lab_n", 5e-7)):  # folding rounds weights once more
            lib = run("library", "import", "--output", tmp(setup + "-whole.h5"),
                      os.path.join(FILES, f"interp_{setup}.h5"),
                      env=None if torch else {"PYTHONPATH": tmp("stand-in")})
            self.assertLess(difference(lib), most)
            self.assertIn("specs_" + setup, lib.stderr)

    @unittest.skipUnless(torch, NO_TORCH)
    def test_weights_are_read(self):
        for setup in ("lab_t", "lab_n"):
            found = rvspecfit.read_weights(os.path.join(FILES, f"NNstate_{setup}.sav"))
            for name, x in values(setup)[0].items():
                np.testing.assert_array_equal(found[name], x)

    @unittest.skipUnless(torch, NO_TORCH)
    def test_weights_of_other_files_are_refused(self):
        put(tmp("cut.sav"), content(os.path.join(FILES, "NNstate_lab_t.sav"))[:2000])
        torch.save({"checkpoint_magic": "rvspecfit.nn_interpolator", "checkpoint_version": 2,
                    "nn_arch_version": 1, "state_dict": {}}, tmp("new.sav"))
        torch.save([1, 2], tmp("list.sav"))
        for name, text in (("cut.sav", "torch cannot read"), ("gone.sav", "must lie next to"),
                           ("new.sav", "version 2"), ("list.sav", "no network")):
            with self.assertRaisesRegex(ValueError, text):
                rvspecfit.read_weights(tmp(name))
