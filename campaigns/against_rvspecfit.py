#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compare rvspecfit and starmill on the same stars, templates and core.

    taskset -c N against_rvspecfit.py [--data DIR] [--copies 256] STARMILL LIB.h5 STARS DIR ROW...

Needs rvspecfit (ours: d4bbf3a), torch, numba.
 LIB.h5  a library of networks: one arm (opt) from which arms are cut, or DESI's arms b, r and z
 STARS   desi: rows of the simulated coadd-dev; desi-blue: real spectra of 4000 to 5000 A;
         desi-stars: real spectra in three arms, rows 16 and 22 are stars; lamost: its files
 DIR     keeps the templates of the cross-correlation
rvspecfit cross-correlates with a third of the library's guess templates, at v sin i of 0, 10 and
100 km/s, then runs both of its minimizers.  An extra first fit compiles rvspecfit and is not timed.
starmill's time is the time per star when `bench fit` fits --copies copies, in two ways: with
rvspecfit's model (no model error, one velocity, linear rotation), and as shipped.

A line holds
 - row; core-s of rvspecfit; core-ms of starmill in both ways
 - number of starmill's Jacobians a star in both ways
 - rvspecfit's -2 ln L at rvspecfit's solution; -2 ln L at starmill's solution minus this value
 - the same difference if rvspecfit's -2 ln L is changed: the line-spread function acts before the
   pixels sample the templates (desi: nan)
The last lines give rvspecfit's time / starmill's time: median of all stars, and ratio of totals.
"""
import argparse
import glob
import gzip
import logging
import os
import re
import subprocess
import sys
import time

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                  RVS_NN_DEVICE="cpu")
import h5py  # noqa: E402
import numpy as np  # noqa: E402
import scipy.ndimage  # noqa: E402
import torch  # noqa: E402
from astropy.io import fits  # noqa: E402
from rvspecfit import (fitter_ccf, frozendict, make_ccf, make_interpol, serializer,  # noqa: E402
                       spec_fit, spec_inter, vel_fit)
from rvspecfit.desi import desi_fit  # noqa: E402
from rvspecfit.nn import NNInterpolator, RVSInterpolator  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "python"))
from starmill.surveys import generic  # noqa: E402

LABELS = ("teff", "logg", "feh", "alpha")
SURVEY = {  # setup: from, to, sigma of its cross-correlation in Angstrom
    "desi": {"b": (3613, 5801, 0.75), "r": (5750, 7630, 0.75), "z": (7510, 9817, 0.8)},
    "desi-blue": {"b": (4000, 5000, 0.75)},
    "desi-stars": {"b": (3613, 5780, 0.75), "r": (5780, 7560, 0.75), "z": (7560, 9817, 0.8)},
    "lamost": {"b": (4000, 5800, 1.15), "r": (5800, 8940, 1.8)}}
STEP, NPOLY = {"lamost": 1.4}, {"lamost": 17}  # others: 0.4 A, 10 functions
MASK = ((5570, 5590), (5700, 5900), (6865, 6965), (7160, 7340), (7590, 7720), (8120, 8350))
SAME = "rotation_kernel: linear\nmodel_error: false\nlsf_width_error: 0\n"


class Network(RVSInterpolator.RVSInterpolator):
    def __init__(self, net):
        self.nni, self.device = net, torch.device("cpu")


def network(group, use):
    """Return rvspecfit's interpolator with an arm's weights, for the pixels `use` alone."""
    layer = [[group[f"layer{i}/{what}"][:] for what in ("weight", "bias")]
             for i in range(group.attrs["n_layer"])]
    layer[-1] = [x[use] for x in layer[-1]]  # the last layer has an output for each pixel
    net = NNInterpolator.NNInterpolator(
        indim=layer[0][0].shape[1], nlayers=len(layer) - 3, width=len(layer[0][1]),
        npc=layer[-1][0].shape[1], npix=len(layer[-1][1]), withbn=False)
    names = [f"model.lin_{i}" for i in range(len(layer) - 1)] + ["pc_layer"]
    net.load_state_dict({f"{n}.{what}": torch.tensor(x) for n, w in zip(names, layer)
                         for what, x in zip(("weight", "bias"), w)})
    net.eval()
    return Network(net)


def take_library(path, survey, arms, folder):
    """Give rvspecfit the library's arms as setups, and templates to cross-correlate with."""
    lib = h5py.File(path)
    label = [lib[f"labels/label{i}"].attrs for i in range(len(LABELS))]
    mapper = NNInterpolator.Mapper(*(np.array([a[k] for a in label]) for k in ("mean", "std")),
                                   [i for i, a in enumerate(label) if a["mapping"]])
    hulls = [(g["labels"][:], g["facets"][:]) for g in lib["hulls"].values()]

    def outside(p):
        return max([0.0] + [(f[:, :-1] @ p[at] + f[:, -1]).max() for at, f in hulls]) ** 2

    spec_inter.interp_cache.template_lib = folder
    start = lib["guess/labels"][::3]
    for arm, (low, high, sigma) in arms.items():
        group = [g for g in lib["arms"].values() if g.attrs["name"].decode() in (arm, "opt")][0]
        lam, setup = group["wavelength"][:], f"{survey}_{arm}"
        use = (lam > low * 0.9965) & (lam < high * 1.0035)  # room for 1000 km/s
        what = spec_inter.SpecInterpolator(setup, network(group, use), outside, lam[use], mapper,
                                           LABELS, log_step=True)
        spec_inter.interp_cache.interps[setup] = what
        if os.path.exists(f"{folder}/{make_ccf.get_ccf_info_name(setup)}"):
            continue
        width = sigma / np.median(lam[use]) / np.log(lam[1] / lam[0])  # in the template's pixels
        specs = np.log([scipy.ndimage.gaussian_filter1d(what.eval(x), width) for x in start])
        serializer.save_dict_to_hdf5(f"{folder}/{make_interpol.SPECS_H5_NAME % setup}", dict(
            vec=start.T, specs=specs, lam=lam[use], parnames=LABELS, log_spec=True))
        conf = make_ccf.get_ccf_config(
            logl0=np.log(low), logl1=np.log(high),
            npoints=make_ccf.to_power_two(int((high - low) / STEP.get(survey, 0.4))))
        make_ccf.ccf_executor(setup, conf, prefix=folder, oprefix=folder, every=1,
                              vsinis=[0, 10, 100])


def desi(row, arms, data, folder, copies):
    """Return a row's SpecData, [path] of a file with `copies` copies of the row, and the path of a
    file with one copy."""
    with fits.open(f"{data}/sim/coadd-dev.fits.gz") as file:
        flux, ivar, mask, wave, res = desi_fit.read_data(file, list(arms))
        use = {k: (wave[k] >= low) & (wave[k] <= high) for k, (low, high, _) in arms.items()}
        cut = [{k: x[k][row:row + 1][..., u] for k, u in use.items()}
               for x in (flux, ivar, mask, res)]
        spec = desi_fit.get_specdata({k: wave[k][u] for k, u in use.items()}, *cut, 0, list(arms),
                                     True, lsf_sigma0_angstrom={k: 0.5 for k in arms})
        for name, n in (("copies", copies), ("one", 1)):
            out = fits.HDUList([file[0].copy()])
            for hdu in file[1:]:
                part = hdu.data
                if isinstance(hdu, fits.BinTableHDU):
                    is_by_star = len(part) == len(flux["b"])  # other tables: any n rows
                    part = (part[[row] * n] if is_by_star else part[:n]).copy()
                    part["TARGETID"] = np.arange(1, len(part) + 1)
                elif part.ndim > 1:
                    part = part[[row] * n]
                out.append(type(hdu)(part, hdu.header, name=hdu.name))
            out.writeto(f"{folder}/{name}.fits", overwrite=True)
    return spec, [f"{folder}/copies.fits"], f"{folder}/one.fits"


def spec_data(setup, lam, flux, ivar, sigma, masked=False):
    """SpecData with a resolution matrix of the line-spread function's sigma (A)."""
    defect = ~np.isfinite(flux + ivar) | (ivar <= 0)
    bad = defect | masked
    error = np.where(bad, 1000 * np.nanmedian(flux), np.where(bad, 1, ivar) ** -0.5)
    error[~bad] = np.maximum(error[~bad], 0.3 * np.median(error[~bad]))
    width = np.sqrt(sigma ** 2 - 0.5 ** 2) + 0 * lam
    spec = spec_fit.SpecData(setup, lam, desi_fit.interpolate_bad_regions(flux, defect), error,
                             badmask=bad, resolution=spec_fit.construct_resol_mat(lam, width=width))
    spec.width = width
    return spec


def lamost(row, arms, data, folder, copies):
    path = sorted(glob.glob(f"{data}/real/lamost/*.fits.gz"))[row]
    names = [f"{folder}/copy{i}.fits" for i in range(copies)]
    for name in names:
        with gzip.open(path) as a, open(name, "wb") as b:
            b.write(a.read())
    table = fits.getdata(path, 1)
    lam, flux, ivar, mask = (np.asarray(table[k][0], float)
                             for k in ("WAVELENGTH", "FLUX", "IVAR", "ANDMASK"))
    ivar[mask != 0] = 0
    spec = []
    for arm, (low, high, _) in arms.items():
        use = (lam >= low) & (lam <= high)
        w = lam[use]
        masked = np.any([(w >= a) & (w <= b) for a, b in MASK], axis=0)
        spec.append(spec_data(f"lamost_{arm}", w, flux[use], ivar[use],
                              (2.7 if arm == "b" else w / 1650) / 2.3548, masked))
    return spec, names, names[0]


def generic_table(survey, part, folder, copies):
    """Write part {arm: wavelength, flux, ivar, sigma} for starmill; return rvspecfit's SpecData."""
    for name, n in (("copies", copies), ("one", 1)):
        generic.write(f"{folder}/{name}.fits", [
            {"NAME": f"{i}", "TARGETID": i + 1, "ARM": arm, "WAVELENGTH": lam, "FLUX": flux,
             "IVAR": ivar, "LSF_SIGMA": sigma}
            for i in range(n) for arm, (lam, flux, ivar, sigma) in part.items()], "vacuum")
    spec = [spec_data(f"{survey}_{arm}", *numbers) for arm, numbers in part.items()]
    return spec, [f"{folder}/copies.fits"], f"{folder}/one.fits"


def desi_blue(row, arms, data, folder, copies):
    star = fits.getdata(f"{data}/real/desi-blue/desi-fgk-half.fits.gz", 1)[row]
    part = {"b": [np.array(star[k], float) for k in ("WAVELENGTH", "FLUX", "IVAR", "LSF_SIGMA")]}
    return generic_table("desi-blue", part, folder, copies)


def desi_stars(row, arms, data, folder, copies):
    part = {}
    with fits.open(f"{data}/real/desi-stars/quasarnp_test_coadd.fits.gz") as file:
        for arm, (low, high, sigma) in arms.items():  # the file has no resolution: DESI's, about
            lam, flux, ivar = (np.array(file[f"{arm}_{k}"].data, float)
                               for k in ("WAVELENGTH", "FLUX", "IVAR"))
            use = (lam >= low) & (lam <= high)
            part[arm] = lam[use], flux[row, use], ivar[row, use], np.full(use.sum(), sigma)
    return generic_table("desi-stars", part, folder, copies)


STARS = {"desi": desi, "desi-blue": desi_blue, "desi-stars": desi_stars, "lamost": lamost}


def rvspecfit(spec, npoly, config):
    """Best fit by rvspecfit's pipeline, and the core-s that it took."""
    begin = time.process_time()
    guess = fitter_ccf.fit(spec, config)
    found = vel_fit.process(spec, dict(guess["best_par"], vsini=guess["best_vsini"]), config=config,
                            options=dict(npoly=npoly))
    spec_fit.get_chisq_continuum(spec, options=dict(npoly=npoly))
    return found, time.process_time() - begin


def before_pixels(spec, npoly, config, vel, vsini, *label):
    """Return -2 ln L, with the line-spread function applied to the spline through the template."""
    step, f = np.arange(-60, 61) / 12, 0.0  # step: wavelengths about a pixel, in sigma
    weight = np.exp(-0.5 * step ** 2)
    for d in spec:
        outside, lam, flux, _, log_step = spec_fit.getCurTempl(d.name, label, (vsini,), config)
        at = d.lam[:, None] + d.width[:, None] * step
        templ = spec_fit.evalRV(spec_fit.getRVInterpol(lam, flux, log_step), vel, at.ravel())
        f += outside * 10 * sum(len(x.lam) for x in spec) + spec_fit.get_chisq0(
            d.spec, templ.reshape(at.shape) @ weight / weight.sum(), spec_fit.get_basis(d, npoly),
            espec=d.espec)
    return f


class Starmill:
    def __init__(self, args):
        self.args = args

    def run(self, job, config, *more):
        path = f"{self.args.folder}/config.yaml"
        with open(path, "w") as file:
            file.write(config)
        done = subprocess.run([self.args.starmill, *job, "--library", self.args.library, "--config",
                               path, "--threads", "1", *more], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return done.stdout

    def cost(self, config, names):
        """core-ms and Jacobians a star."""
        said = self.run(("bench", "fit"), config, "--repeat", "1", *names)
        row = re.search(r"^\| \d+ \|" + r" ([\d.]+) \|" * 3 + r" [^|]* \|" + r" ([\d.]+) \|" * 2,
                        said, re.M)
        return float(row[3]), float(row[5])

    def solution(self, config, name):
        out = f"{self.args.folder}/one.h5"
        self.run(("fit",), config, "--quiet", "--overwrite", "--output", out, name)
        with h5py.File(out) as file:
            return [float(file["fits"][k][0])
                    for k in ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("STARMILL_TEST_DATA"))
    parser.add_argument("--copies", type=int, default=256)
    for name in ("starmill", "library"):
        parser.add_argument(name)
    parser.add_argument("survey", choices=list(SURVEY))
    parser.add_argument("folder")
    parser.add_argument("row", type=int, nargs="+")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    torch.set_num_threads(1)
    os.makedirs(args.folder, exist_ok=True)
    arms, npoly = SURVEY[args.survey], NPOLY.get(args.survey, 10)
    config = frozendict.frozendict(template_lib=args.folder, min_vel=-1000, max_vel=1000,
                                   min_vel_step=0.2, vel_step0=5, min_vsini=0.1, max_vsini=500,
                                   second_minimizer=True)
    take_library(args.library, args.survey, arms, args.folder)
    shipped, same = "", SAME
    if args.survey == "lamost":
        with open(f"{SOURCE}/config/lamost.yaml") as file:
            shipped = file.read()
        same += re.sub("(?m)^(velocity_offsets|npoly_per_1000aa):.*", "", shipped) + f"npoly: {npoly}\n"
    extra = {"lamost_b": ", fwhm: 2.7", "lamost_r": ", resolving_power: 1650"}
    named = "arms: [%s]\n" % ", ".join(
        "{name: %s, min: %g, max: %g%s}" % (k, *v[:2], extra.get(f"{args.survey}_{k}", ""))
        for k, v in arms.items())
    same += named
    if STARS[args.survey] in (desi_blue, desi_stars):  # no cameras of a format cut the library
        shipped = named
    ours, seen = Starmill(args), []
    for i, row in enumerate(args.row[:1] + args.row):
        spec, copies, one = STARS[args.survey](row, arms, args.data, args.folder, args.copies)
        found, core_s = rvspecfit(spec, npoly, config)
        if i == 0:
            continue
        times = [ours.cost(x, copies) for x in (same, shipped)]

        def m2ll(vel, vsini, *label):
            return spec_fit.get_chisq(spec, vel, label, (vsini,), options=dict(npoly=npoly),
                                      config=config)

        at = [[found["vel"], found["vsini"], *(found["param"][k] for k in LABELS)],
              ours.solution(same, one)]
        theirs, ours_f = (m2ll(*x) for x in at)
        true = [before_pixels(spec, npoly, config, *x) if args.survey != "desi" else np.nan
                for x in at]
        print(row, f"{core_s:.2f} {times[0][0]:.2f} {times[1][0]:.2f} {times[0][1]:g} {times[1][1]:g} "
              f"{theirs:.3f} {ours_f - theirs:.3f} {true[1] - true[0]:.3f}", flush=True)
        seen.append([core_s, times[0][0], times[1][0]])
    theirs, same, shipped = 1e3 * np.array(seen).T[0], *np.array(seen).T[1:]
    for name, cost in (("same model", same), ("as shipped", shipped)):
        print(f"{name}: {np.median(theirs / cost):.0f} times less, {theirs.sum() / cost.sum():.0f} "
              f"of the sums ({theirs.mean() / 1e3:.2f} core-s, {cost.mean():.2f} core-ms)")


if __name__ == "__main__":
    main()
