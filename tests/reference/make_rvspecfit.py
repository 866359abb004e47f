# SPDX-License-Identifier: BSD-3-Clause
"""Make tests/reference/rvspecfit/ by rvspecfit itself: its files, and what it makes of them.

    python3 tests/reference/make_rvspecfit.py FOLDER

Needs rvspecfit (ours: 0.9.4.dev2, commit d4bbf3a), torch (2.15.0), scikit-learn and a C++
compiler; some minutes.  Written into FOLDER:

interp_lab_t.h5, NNstate_lab_t.sav    by rvs_read_grid, rvs_make_interpol and
                                      rvs_train_nn_interpolator, from 60 made-up spectra
interp_lab_n.h5, NNstate_lab_n.sav    another network of rvspecfit's class, with batch
                                      normalisation, in rvspecfit's file format before March 2026,
                                      which has no version number
values.h5                             for each network: labels, rvspecfit's spectra and penalties
                                      at these labels, and the arrays of the .sav
"""
import os
import sys
import tempfile

os.environ["RVS_NN_DEVICE"] = "cpu"

import h5py
import numpy as np
import torch
from astropy.io import fits
from rvspecfit import make_interpol, read_grid, serializer, spec_inter
from rvspecfit.nn import train_interpolator
from rvspecfit.nn.NNInterpolator import NNInterpolator


def make_spectra(folder):
    """60 spectra of 40 lines over a sloping continuum, in the layout of PHOENIX."""
    rng = np.random.default_rng(3)
    lam = np.arange(4960, 5100, 0.1)
    center, weight, slope = rng.uniform(4965, 5095, 40), rng.uniform(0, 2, 40), rng.normal(size=40)
    os.makedirs(f"{folder}/specs")
    for i in range(60):
        u = np.array([i >> k & 1 for k in range(4)], float) if i < 16 else rng.uniform(size=4)
        teff, logg, feh, alpha = [4000, 1, -2, 0] + u * [3500, 4, 2.5, 0.4]
        depth = weight * 10 ** (0.4 * feh + 0.5 * alpha * (slope > 0) + slope * (5000 / teff - 1))
        width = 0.4 + 0.05 * logg
        tau = (depth * np.exp(-(((lam[:, None] - center) / width) ** 2))).sum(1)
        flux = teff ** 4 * (lam / 5000) ** (1 - teff / 5000) * (0.2 + 0.8 * np.exp(-tau))
        header = fits.Header(dict(PHXTEFF=teff, PHXLOGG=logg, PHXM_H=feh, PHXALPHA=alpha))
        fits.writeto(f"{folder}/specs/x{i:02d}.fits", flux, header)
    fits.writeto(f"{folder}/wave.fits", lam)


def train(folder):
    """interp_lab_t.h5 and NNstate_lab_t.sav by rvspecfit's programs."""
    read_grid.main(["--prefix", f"{folder}/", "--templdb", f"{folder}/files.db"])
    make_interpol.main(
        ["--setup", "lab_t", "--lambda0", "4990", "--lambda1", "5040", "--resol_func", "0.849*x",
         "--step", "0.9", "--templdb", f"{folder}/files.db", "--oprefix", folder, "--templprefix",
         f"{folder}/", "--wavefile", f"{folder}/wave.fits", "--revision=made_resolmat",
         "--normalize", "median", "--nthreads", "1"])
    train_interpolator.main(
        ["--pca_init", "--npc", "7", "--cpu", "--revision=made_resolmat", "--dir", folder,
         "--setup", "lab_t", "--num_epochs", "80", "--width", "10", "--batch", "5"])


def make_normalised(folder):
    """interp_lab_n.h5 and NNstate_lab_n.sav."""
    what = serializer.load_dict_from_hdf5(f"{folder}/interp_lab_t.h5")
    what["class_kwargs"] = dict(indim=4, npc=5, nlayers=2, width=8, npix=len(what["lam"]),
                                withbn=True)
    what["nn_file"], what["revision"] = "NNstate_lab_n.sav", "made"
    serializer.save_dict_to_hdf5(f"{folder}/interp_lab_n.h5", what)
    torch.manual_seed(4)
    net = NNInterpolator(**what["class_kwargs"])
    for name, x in net.state_dict().items():
        if ".bn_" in name and x.ndim:
            x.copy_(0.3 + torch.rand(x.shape))
    torch.save(net.state_dict(), f"{folder}/NNstate_lab_n.sav")


def main():
    folder = os.path.abspath(sys.argv[1])
    rng, start = np.random.default_rng(6), os.getcwd()
    sys.argv = ["make_rvspecfit.py"]  # rvspecfit stores command lines
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        work = "."
        make_spectra(work)
        train(work)
        make_normalised(work)
        with h5py.File(f"{folder}/values.h5", "w") as out:
            for setup in ("lab_t", "lab_n"):
                label = [4000, 1, -2, 0] + rng.uniform(-0.2, 1.2, (20, 4)) * [3500, 4, 2.5, 0.4]
                net = spec_inter.getInterpolator(setup, {"template_lib": work}, cache={})
                out[f"{setup}/label"] = label
                out[f"{setup}/flux"] = [net.eval(x) for x in label]
                out[f"{setup}/outside"] = [net.outsideFlag(x) for x in label]
                state = torch.load(f"{work}/NNstate_{setup}.sav", weights_only=True)
                for name, x in state.get("state_dict", state).items():
                    out[f"{setup}/state/{name}"] = x.numpy()
                for name in (f"interp_{setup}.h5", f"NNstate_{setup}.sav"):
                    with open(f"{work}/{name}", "rb") as a, open(f"{folder}/{name}", "wb") as b:
                        b.write(a.read())
        os.chdir(start)


if __name__ == "__main__":
    main()
