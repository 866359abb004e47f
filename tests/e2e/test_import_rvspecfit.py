# SPDX-License-Identifier: BSD-3-Clause
"""starmill.templates.rvspecfit on files that rvspecfit wrote (tests/reference/make_rvspecfit.py)."""

import importlib.util
import os
import re
import shutil
import sys
import unittest

from base import PACKAGE, SOURCE, ended, h5py, np, run, skip, starmill, tmp

if importlib.util.find_spec("scipy") is None:
    skip("no SciPy (Debian: python3-scipy)")

FILES = os.path.join(SOURCE, "tests", "reference", "rvspecfit")

from starmill.templates import rvspecfit as tool  # noqa: E402

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


def put(name, value):
    """An edit that stores another value."""
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


class ImportTest(unittest.TestCase):
    def convert(self, setup, out, change=None):
        """An emulator file whose check values are rvspecfit's own spectra."""
        net = tool.read_interpolator(os.path.join(FILES, f"interp_{setup}.h5"))
        state, label, flux, penalty = values(setup)
        layers = tool.find_layers(net, state)
        if change:
            change(layers)
        path = tmp(out)
        tool.write_emulator(path, net, layers, label, flux)
        # rvspecfit takes the logarithm of Teff in float32: 2.4e-7, and 3e-6 of a standard deviation
        with h5py.File(path, "r") as file:
            np.testing.assert_allclose(np.sqrt(file["check/outside"][()]), np.sqrt(penalty),
                                       rtol=0, atol=6e-6)
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
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("layout, activation or mapping is another", done.stderr)

    def refused(self, text, path):
        with self.assertRaises(tool.Refused) as caught:
            tool.read_interpolator(path)
        self.assertIn(text, str(caught.exception))
        self.assertIn(path, str(caught.exception))

    def test_what_is_no_network_is_refused(self):
        self.refused("does not exist", tmp("interp_none.h5"))
        self.refused("a name like interp_desi_b.h5", os.path.join(FILES, "values.h5"))
        os.makedirs(tmp("old"))
        with open(tmp("old/interp_a.h5"), "wb") as file:
            file.write(b"\x80\x04cos\nsystem\n")
        self.refused("run code when they are read", tmp("old/interp_a.h5"))
        cases = [("triangulation", put("interpolation_type", "triangulation"), "starmill library"),
                 ("older", lambda file: (file.pop("interpolation_type"),
                                         file.create_dataset("triang", data=1)), "triangulation"),
                 ("activation", lambda file: file.create_dataset("class_kwargs/nonlinearity",
                                                                 data="Tanh"), "is Tanh"),
                 ("mapper", put("mapper_class_name", "LogParamMapper"), "LogParamMapper"),
                 ("linear", put("log_spec", False), "log_spec is false"),
                 ("step", put("log_step", False), "--no-log"),
                 ("labels", put("mapper_args/__item_0", np.ones(3)), "4 labels"),
                 ("version", lambda file: file.attrs.modify("version", 2), "knows 1")]
        for folder, edit, text in cases:
            with self.subTest(folder):
                self.refused(text, files(folder, edit))
        path = files("air")
        with h5py.File(os.path.join(tmp("air"), "specs_lab_t.h5"), "w") as file:
            file["cmdline"] = "rvs_make_interpol --air --setup lab_t"
        self.refused("in air", path)

    def test_weights_that_do_not_fit_are_refused(self):
        net = tool.read_interpolator(os.path.join(FILES, "interp_lab_t.h5"))
        state = values("lab_t")[0]
        bad = state["model.lin_2.bias"].copy()
        bad[3] = np.nan
        for name, x, text in (("model.lin_2.bias", bad, "model.lin_2.bias is missing"),
                              ("model.lin_2.bias", None, "model.lin_2.bias is missing"),
                              ("model.lin_1.weight", state["model.lin_1.weight"][:, 1:], "fit"),
                              ("pc_layer.bias", np.ones(7, "f4"), "fit"),
                              ("stacks.0.pc_layer.bias", bad, "does not know stacks.0")):
            with self.assertRaises(tool.Refused) as caught:
                tool.find_layers(net, {k: v for k, v in {**state, name: x}.items()
                                       if v is not None})
            self.assertIn(text, str(caught.exception))
        net.lam = net.lam[1:]
        with self.assertRaises(tool.Refused) as caught:
            tool.find_layers(net, state)
        self.assertIn("not of one training", str(caught.exception))

    def test_two_and_three_labels(self):
        net = tool.read_interpolator(os.path.join(FILES, "interp_lab_t.h5"))
        x = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
        for n in (2, 3):
            net.names, points = net.names[:n], net.points
            net.points = points[:, :n]
            facets = tool.hull_facets(net)
            net.points, net.names = points, ["teff", "logg", "feh", "alpha"]
            penalty = tool.outside(facets, x[:, :n])
            expected = (9 - points[:, 2].max()) ** 2 if n == 3 else 0
            np.testing.assert_allclose(penalty, [0, expected], rtol=1e-12)

    @unittest.skipUnless(torch, NO_TORCH)
    def test_whole_way(self):
        out = tmp("torch")
        done = ended([sys.executable, "-B", "-m", "starmill.templates.rvspecfit", "--output", out,
                      FILES], env=PACKAGE)
        self.assertEqual(done.returncode, 0, done.stderr)
        made = [os.path.join(out, f"{setup}.h5") for setup in ("lab_n", "lab_t")]
        self.assertIn(" ".join(["--output LIB.h5", *made]), done.stdout)
        for path in made:
            lib = run("library", "import", "--output", path + "-lib.h5", path)
            # torch in double precision; folding rounds weights to float32 once more
            self.assertLess(difference(lib), 1e-12 if "lab_t" in path else 5e-7)

    @unittest.skipUnless(torch, NO_TORCH)
    def test_weights_are_read(self):
        for setup in ("lab_t", "lab_n"):
            found = tool.read_weights(os.path.join(FILES, f"NNstate_{setup}.sav"))
            for name, x in values(setup)[0].items():
                np.testing.assert_array_equal(found[name], x)

    @unittest.skipUnless(torch, NO_TORCH)
    def test_weights_of_other_files_are_refused(self):
        cut = tmp("cut.sav")
        with open(os.path.join(FILES, "NNstate_lab_t.sav"), "rb") as a, open(cut, "wb") as b:
            b.write(a.read(2000))
        torch.save({"checkpoint_magic": "rvspecfit.nn_interpolator", "checkpoint_version": 2,
                    "nn_arch_version": 1, "state_dict": {}}, tmp("new.sav"))
        torch.save([1, 2], tmp("list.sav"))
        for name, text in (("cut.sav", "torch cannot read"), ("gone.sav", "must lie beside"),
                           ("new.sav", "version 2"), ("list.sav", "no network")):
            with self.assertRaises(tool.Refused) as caught:
                tool.read_weights(tmp(name))
            self.assertIn(text, str(caught.exception))
