# SPDX-License-Identifier: BSD-3-Clause
"""The noise-free pixels of starmill simulate against a program that shares nothing with it.

The stars are computed from the library file (docs/use/formats.md, docs/science/numerics.md) in
float64 with SciPy's splines.  Differences are relative, but for one factor per star: its brightness
is that of the drawn S/N.
"""

from base import *

try:
    from scipy.interpolate import CubicSpline
except ImportError as missing:
    skip(f"{missing} (Debian: python3-scipy)")

sys.path.insert(0, os.path.join(SOURCE, "tests", "reference"))
import make_blocks

C_KM_S = 299792.458

# float64 on both sides, stored as float32, whose rounding is 6e-8 and comes twice, with the
# resolution matrix in the file: 1.1e-7 was measured.
TOLERANCE = 3e-7


def ln_doppler(vel_km_s):
    """ln of emitted over observed wavelength."""
    beta = vel_km_s / C_KM_S
    return 0.5 * np.log((1 - beta) / (1 + beta))


class Survey:
    """A survey without noise, one file."""

    def __init__(self, out, *args):
        done = starmill("simulate", "--noiseless", "--output", tmp(out), *args)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        self.truth = pyfits.getdata(os.path.join(tmp(out), "truth.fits"), "TRUTH")
        with pyfits.open(os.path.join(tmp(out), "coadd-mock-00000.fits"), memmap=False) as hdus:
            column = {what: {arm: hdus[f"{arm}_{what}"].data for arm in "BRZ"}
                      for what in ("WAVELENGTH", "FLUX", "IVAR", "RESOLUTION")}
        self.wave, self.resolution = column["WAVELENGTH"], column["RESOLUTION"]
        self.flux, self.ivar = column["FLUX"], column["IVAR"]

    def star(self, i):
        """(labels, velocity, v sin i, group) and {arm: pixels}, dead ones NaN."""
        t = self.truth[i]
        row = t["FITS_ROW"]
        pixel = {arm: np.where(self.ivar[arm][row] > 0, self.flux[arm][row].astype(float), np.nan)
                 for arm in "BRZ"}
        labels = [float(t[k]) for k in ("TEFF", "LOGG", "FEH", "ALPHAFE")]
        return (labels, float(t["VRAD"]), float(t["VSINI"]), int(t["LSF_GROUP"])), pixel


class Library:
    """Arms, labels and emulators of a library file."""

    def __init__(self, path):
        self.label, self.arm = [], {}
        with h5py.File(path, "r") as f:
            for i in range(f["labels"].attrs["n_label"]):
                self.label.append(dict(f[f"labels/label{i}"].attrs))
            for i in range(f["arms"].attrs["n_arm"]):
                arm = f[f"arms/arm{i}"]
                name = arm.attrs["name"]
                name = (name.decode() if isinstance(name, bytes) else str(name)).strip("\0").upper()
                self.arm[name] = {
                    "wave": arm["wavelength"][...],
                    "step": arm.attrs["ln_step"],
                    "sigma": arm.attrs["template_sigma"],
                    "layers": [(arm[f"layer{j}/weight"][...].astype(float),
                                arm[f"layer{j}/bias"][...].astype(float))
                               for j in range(arm.attrs["n_layer"])],
                }

    def template(self, name, labels):
        """Flux of an arm on the library's own grid."""
        arm = self.arm[name]
        value = np.array([np.log10(x) if label["mapping"] == 1 else x
                          for label, x in zip(self.label, labels)])
        h = (value - [label["mean"] for label in self.label]) / [l["std"] for l in self.label]
        for weight, bias in arm["layers"][:-1]:
            h = weight @ h + bias
            h = h / (1 + np.exp(-h))
        weight, bias = arm["layers"][-1]
        return np.exp(np.clip(weight @ h + bias, -300, 300))


def rotation_weights(r):
    """W_k, k >= 0, of the smooth kind, by numerical integrals."""
    return np.array([make_blocks.smooth_weight(r, k) for k in range(int(np.ceil(r)) + 3)])


def resolution_rows(data, pix_aa, sigma_aa):
    """Rows [pixel][diagonal] of DESI's resolution matrix without the templates' own sigma."""
    n_diag, n_pix = data.shape
    half = n_diag // 2
    rows = np.zeros((n_pix, n_diag))
    column = np.arange(n_pix)[:, None] + np.arange(-half, half + 1)
    on_arm = (column >= 0) & (column < n_pix)
    for d in range(n_diag):  # column i + d - half is on the diagonal of that offset
        j = column[:, d]
        rows[on_arm[:, d], d] = data[2 * half - d, j[on_arm[:, d]]]
    s = sigma_aa / pix_aa
    distance = np.subtract.outer(np.arange(n_diag), np.arange(n_diag))
    gauss = np.exp(-distance**2 / (2 * s * s)) / (s * np.sqrt(2 * np.pi))
    rows = np.linalg.solve(gauss, rows.T).T
    level = np.median(rows.sum(axis=1))
    ends = np.r_[0:half, n_pix - half:n_pix]
    rows[ends] *= on_arm[ends]
    rows[ends] *= (level / rows[ends].sum(axis=1))[:, None]
    return rows, np.where(on_arm, column, 0)


class Emulator(ProgramTest):
    @classmethod
    def setUpClass(cls):
        path = coarse_library()
        cls.library = Library(path)
        cls.survey = Survey("emulated", "--library", path, "--stars", 40, "--seed", 2)

    def expected(self, i):
        (labels, vel, vsini, _), pixel = self.survey.star(i)
        out = {}
        for name in "BRZ":
            arm, wave = self.library.arm[name], self.survey.wave[name]
            flux = self.library.template(name, labels)
            w = rotation_weights(vsini / (C_KM_S * arm["step"]))
            # the ends of the grid are far from the pixels that are not dead
            flux = np.convolve(flux, np.concatenate([w[:0:-1], w]), "same")
            rest = CubicSpline(arm["wave"], flux, bc_type="natural")(np.clip(
                wave * np.exp(ln_doppler(vel)), arm["wave"][0], arm["wave"][-1]))
            data = self.survey.resolution[name][self.survey.truth["FITS_ROW"][i]].astype(float)
            rows, column = resolution_rows(data, wave[1] - wave[0], arm["sigma"])
            out[name] = (rows * rest[column]).sum(axis=1)
        return out, pixel

    def test_pixels(self):
        t = self.survey.truth
        order = np.argsort(t["VSINI"])
        chosen = {int(i) for i in (order[0], order[-1], np.argmax(t["TEFF"]), np.argmin(t["TEFF"]),
                                   np.argmax(abs(t["VRAD"])), np.argmin(t["FEH"]))}
        self.assertGreater(t["VSINI"][order[-1]], 50)
        worst = 0
        for i in sorted(chosen):
            expected, pixel = self.expected(i)
            got = np.concatenate([pixel[arm] for arm in "BRZ"])
            want = np.concatenate([expected[arm] for arm in "BRZ"])
            alive = np.isfinite(got)
            self.assertGreater(alive.mean(), 0.99)
            ratio = got[alive] / want[alive]
            error = abs(ratio / np.median(ratio) - 1)
            print(f"star {i}: {t['TEFF'][i]:.0f} K, v sin i {t['VSINI'][i]:.1f} km/s, "
                  f"{t['VRAD'][i]:.0f} km/s: worst {error.max():.1e}")
            worst = max(worst, error.max())
        self.assertLess(worst, TOLERANCE)


main()
