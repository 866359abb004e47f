# SPDX-License-Identifier: BSD-3-Clause
"""scripts/library: the library file in Python, and emulators against their formulas."""


from base import *  # noqa: F403
from basics import Failure
from library import emulate
from library.library_data import (Arm, Emulator, Hull, Label, Library, Radial, SplineGrid)
from library.library_file import digest, read, write

FGK = os.path.join(SOURCE, "libraries", "fgk.h5")
KINDS = {"mlp": (0, False), "grid": (1, False), "rbf": (2, False), "linear": (1, True)}


def small(kind, n_pix=2):
    """The libraries of tests/reference/make_library_digest.py; with more pixels one that can be
    written."""
    coef = np.array([0.75 * i - 2 for i in range(10)], "f4").reshape(5, 2)
    front = {"mlp": None, "grid": SplineGrid(3, [np.array([-1, -1, -1, -1, .25, 1, 1, 1, 1])], coef),
             "linear": SplineGrid(1, [np.array([-1, -1, -0.5, 0, 0.25, 1, 1])], coef),
             "rbf": Radial(1, np.array([1.5]), np.array([[-1], [0.25], [1]]), coef)}[kind]
    weight = np.array([[0.5], [-0.25]] if front is None else [[0.5, -0.25], [2, 3]])
    wave = np.array([3827.625, 3831.375])
    if n_pix > 2:
        wave = np.exp(8.25 + 2.0**-10 * np.arange(n_pix))
        weight = np.resize(weight, (n_pix, weight.shape[1]))
    return Library(
        [Label("teff", "TEFF", "K", 1, 3.75, 0.125, 4000, 7000, 62.5, 2.5)],
        [Hull(np.array([0]), np.array([[1, -1.5], [-1, -1.25]]))],
        [Arm("b", "test_b", 8.25, 0.0009765625, wave, template_sigma_aa=0.5,
             emulator=Emulator([weight], [np.resize([0.125, -8], len(weight))], front))],
        np.array([[5500.0]]), np.array([100.0]))


class LibraryFile(ProgramTest):
    def test_digest(self):
        from make_library_digest import digest as reference
        for kind, how in KINDS.items():
            self.assertEqual(digest(small(kind)), reference(*how), kind)

    def test_written_library_is_read_by_the_program(self):
        libraries = {"fgk": read(FGK)} | {kind: small(kind, 64) for kind in KINDS}
        for name, library in libraries.items():
            write(tmp("w.h5"), library, overwrite=True, program=STARMILL)
            self.assertEqual(read(tmp("w.h5")).hash, library.hash)
            # the fit's reader compares the digest with its own
            self.assertIn("library\n  read ", run("doctor", "--library", tmp("w.h5"), "--output",
                                                 TMP).stdout)

    def test_damaged_files(self):
        def edit(how, said):
            write(tmp("bad.h5"), small("grid", 64), overwrite=True)
            with h5py.File(tmp("bad.h5"), "r+") as file:
                how(file)
            with self.assertRaisesRegex(Failure, said):
                read(tmp("bad.h5"))

        def link(file):
            file["arms/arm0/layer0"].move("bias", "moved")
            file["arms/arm0/layer0/bias"] = h5py.ExternalLink("other.h5", "/x")

        edit(lambda f: f["arms/arm0/grid/coefficients"].write_direct(np.zeros((5, 2), "f4")), "hash")
        edit(lambda f: f["arms/arm0"].attrs.modify("ln_step", np.nan), "expected above 0")
        edit(lambda f: f["arms/arm0/grid"].attrs.modify("degree", 2), "expected 1 or 3")
        edit(lambda f: f["labels"].attrs.modify("n_label", 17), "n_label")
        edit(lambda f: f["guess/labels"].write_direct(np.array([[1e9]])), "outside the hulls")
        edit(lambda f: f.pop("guess/vsini"), "vsini")
        edit(lambda f: f["labels"].attrs.create("n_label", np.inf), "infinity")
        edit(link, "link")

    def test_foreign_files_stay(self):
        put("other.h5", b"\x89HDF and nothing of ours")
        with self.assertRaisesRegex(Failure, "not a starmill library"):
            write(tmp("other.h5"), small("mlp", 64), overwrite=True)
        os.mkdir(tmp("far"))
        os.symlink("far/once.h5", tmp("once.h5"))  # stays a link
        write(tmp("once.h5"), small("mlp", 64))
        self.assertTrue(os.path.islink(tmp("once.h5")))
        self.assertEqual(os.listdir(tmp("far")), ["once.h5"])
        with self.assertRaisesRegex(Failure, "--overwrite"):
            write(tmp("once.h5"), small("mlp", 64))

    def test_emulators(self):
        x = np.linspace(-1.5, 1.5, 13)
        value = small("mlp").label[0].unmap(x)[:, np.newaxis]
        for kind in KINDS:
            library = small(kind)
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
