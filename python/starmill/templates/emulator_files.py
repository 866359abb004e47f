# SPDX-License-Identifier: BSD-3-Clause
"""starmill library import: make a library from emulators trained elsewhere, one HDF5 file per arm
(docs/use/formats.md, "Emulator file", or rvspecfit's own files)."""

import math
import os
import re

import h5py
import numpy as np

from starmill.cli.basics import USAGE, need
from starmill.templates import emulate, library_file, rvspecfit
from starmill.templates.labels import describe, fill_range
from starmill.templates.library_data import (MAX_HULL, MAX_LABEL, MAX_LAYER, Arm, Emulator, Hull,
                                             Library, hull_distance)
from starmill.templates.library_file import array_of, text_of
from starmill.templates.spectra_options import number

# largest difference allowed from the check values, over max(1, |y|) of the network's output y
CHECK_TOLERANCE = 1e-5
MATRIX_SIGMA_AA = 0.5  # templates whose revision ends in rm or resolmat, rvspecfit's convention


def main(options):
    paths = options.arguments
    names, sigmas = check_options(options, paths)
    output = options.output
    library_file.writable(output, options.overwrite, [("the emulator", path) for path in paths])
    library, low, high, worst = read_file(paths[0], names[0], sigmas[0])
    for path, name, sigma in zip(paths[1:], names[1:], sigmas[1:]):
        one, _, _, off = read_file(path, name, sigma)
        join(library, one, paths[0], path, sigma)
        worst = max(worst, off)
    fill_range(library, low, high, options.guess_templates)
    library.name = library.arm[0].revision
    library_file.write(output, library, options.overwrite, options.program)
    for arm in library.arm:
        print(f"resolution of arm {arm.name}: {arm.resolution()}")
    if sigmas[0] is None:
        print("  to choose yourself: --template-sigma A or --at-instrument-resolution")
    n = len(library.arm)
    print(f"{output}: {n} arm{'s, agree' if n > 1 else ', agrees'} with the check values within "
          f"{worst:.1e}, hash {library.hash}")


def check_options(options, paths):
    """Return for each file the arm's name and the templates' sigma (A) from the options.  None:
    the file's own name or sigma applies; sigma -1: templates have the instrument's resolution."""
    names = options.arm_names or [None] * len(paths)
    need(len(names) == len(paths), USAGE,
         f"--arm-names gives {len(names)} names for {len(paths)} files")
    sigmas = [-1.0 if options.at_instrument_resolution else None]
    if options.template_sigma:
        items = options.template_sigma.split(",")
        sigmas = [number(item) for item in items]
        for item, sigma in zip(items, sigmas):
            need(0 <= sigma < math.inf, USAGE,
                 f"--template-sigma takes a number, 0 or more, not '{item}'")
    need(len(sigmas) in (1, len(paths)), USAGE,
         f"--template-sigma gives {len(sigmas)} numbers for {len(paths)} files")
    return names, sigmas * len(paths) if len(sigmas) == 1 else sigmas


def read_file(path, arm_name, sigma):
    """Read an emulator file.  Return a library of one arm, the least and largest mapped labels of
    the training stars, and the largest difference from the check values."""
    network = rvspecfit.FILE.fullmatch(os.path.basename(path))
    need(not network or not os.path.exists(path) or h5py.is_hdf5(path), USAGE,
         f"{path}: is no HDF5 file (rvspecfit before 0.6 stored pickles, which run code when they "
         f"are read); {rvspecfit.TRAIN_AGAIN}")
    with library_file.opened(path, USAGE) as file, file:
        if network:
            file = rvspecfit.read(file, network[1])
        need("lam" in file and "parnames" in file.attrs, ValueError, "is not an emulator file "
             "(dataset lam or attribute parnames is missing; see docs/use/formats.md)")
        library = Library(read_labels(file))
        low, high = read_range(file, library.label)
        library.hull = read_hulls(file, library.n_label)
        library.arm = [read_arm(file, path, arm_name, sigma)]
        fill_range(library, low, high, 1)  # seal() needs a template of the initial guess
        library_file.seal(library, path)
        return library, low, high, verify(file, library)


def read_labels(file):
    names = [name.strip() for name in text_of(file, "parnames").split(",")]
    need(all(names) and len(names) <= MAX_LABEL, ValueError,
         f"attribute parnames {','.join(names)[:80]!r}: takes 1 to {MAX_LABEL} names, none empty")
    mean, std = array_of(file, "mapper/mean", "f8", 1), array_of(file, "mapper/std", "f8", 1)
    need("mapper/log_ids" in file, ValueError, "dataset /mapper/log_ids is missing")
    log_ids = file["mapper/log_ids"][...] if file["mapper/log_ids"].size else []
    need(len(mean) == len(names) and len(std) == len(names), ValueError,
         f"mapper has {len(mean)} means and {len(std)} standard deviations for {len(names)} labels")
    if not all(0 <= i < len(names) for i in log_ids):
        raise ValueError(f"mapper/log_ids names a label that is not among the {len(names)}")
    labels = [describe(name) for name in names]
    for i, label in enumerate(labels):
        label.mean, label.std, label.mapping = float(mean[i]), float(std[i]), int(i in log_ids)
        need(np.isfinite([label.mean, label.std]).all() and label.std > 0, ValueError,
             f"label {label.name} has mean {label.mean:g} and std {label.std:g}; they must be "
             "finite and std above 0")
    return labels


def read_range(file, labels):
    """Set the labels' range and scale; return the least and largest mapped labels in training."""
    points = array_of(file, "outside/points", "f8", 2)
    need(points.shape[1] == len(labels) and np.isfinite(points).all(), ValueError,
         f"outside/points: expected finite values [n, {len(labels)}], got shape {points.shape}, "
         f"of which {(~np.isfinite(points)).sum()} are NaN or infinite")
    low, high = points.min(axis=0), points.max(axis=0)
    for i, label in enumerate(labels):
        least, most = label.unmap(low[i]), label.unmap(high[i])
        need(least < most, ValueError, f"outside/points: {label.name} is the same at all points; "
             "train with a range of it")
        # round: float32 makes 4000.0008 of 4000, and mapping 2.8e-17 of 0
        digits = 5 - math.floor(math.log10(most - least))
        label.min, label.max = round(float(least), digits) + 0.0, round(float(most), digits) + 0.0
        label.scale = label.scale or 0.03 * (label.max - label.min)
    return low, high


def read_hulls(file, n_label):
    hulls = []
    for name in sorted(file["outside"]):
        digits = re.fullmatch("hull([0-9]+)_equations", name)
        if not digits:
            continue
        spans = np.array([int(digit) for digit in digits[1]])
        facet = array_of(file, f"outside/{name}", "f8", 2)
        need(spans.max() < n_label and facet.shape[1] == len(spans) + 1, ValueError,
             f"dataset /outside/{name} has the shape {facet.shape}, expected (any, "
             f"{len(spans) + 1}); each digit in its name is a label, 0 to {n_label - 1}")
        hulls.append(Hull(spans, facet))
    need(1 <= len(hulls) <= MAX_HULL, ValueError, f"has {len(hulls)} hulls (datasets like "
         f"outside/hull01_equations), this program takes 1 to {MAX_HULL}")
    return hulls


def read_arm(file, path, arm_name, sigma):
    need(file.attrs["log_step"], ValueError, "attribute log_step is false; only wavelengths "
         "uniform in ln wavelength are taken, train the emulator on such a grid")
    wave = array_of(file, "lam", "f8", 1)
    if len(wave) < 2 or not (np.isfinite(wave).all() and (wave > 0).all()):
        raise ValueError("lam must be wavelengths above 0")
    need(wave[-1] >= 1000, ValueError, f"lam ends at {wave[-1]:g} A, expected 1000 A or more; it "
         "must be in Angstrom, in vacuum (are these nm or um?)")
    n_layer = int(file.attrs["nlayers"])
    if not 1 <= n_layer <= MAX_LAYER:
        raise ValueError(f"has {n_layer} layers, this program takes 1 to {MAX_LAYER}")
    emulator = Emulator([array_of(file, f"layer{i}/weight", "f4", 2) for i in range(n_layer)],
                        [array_of(file, f"layer{i}/bias", "f4", 1) for i in range(n_layer)],
                        log_flux=int(bool(file.attrs["log_spec"])))
    setup, revision = text_of(file, "setup"), text_of(file, "revision")
    name = (arm_name or setup.rpartition("_")[2]).lower()
    need(0 < len(name) < 32, ValueError,
         f"arm name '{name[:40]}' (setup '{setup}') is empty or too long; give --arm-names")
    origin = "given at import"
    if sigma is None:
        end = next((end for end in ("rm", "resolmat") if revision.endswith(end)), None)
        sigma = MATRIX_SIGMA_AA if end else -1.0
        origin = (f"assumed, revision '{revision}' {'ends' if end else 'does not end'} in "
                  f"{end or 'rm or resolmat'}")
    ln_wave0 = math.log(wave[0])
    return Arm(name, setup, ln_wave0, (math.log(wave[-1]) - ln_wave0) / (len(wave) - 1), wave,
               emulator, template_sigma_aa=sigma, sigma_origin=origin,
               source=os.path.basename(path), revision=revision)


def verify(file, library):
    """Return the largest difference from the check values, in the unit of CHECK_TOLERANCE."""
    need("check/params" in file, ValueError, "has no check values (check/params, check/spectra, "
         "check/outside), which prove that it is read correctly: write them into the file")
    label = array_of(file, "check/params", "f8", 2)
    spectrum = array_of(file, "check/spectra", "f8", 2)
    outside = array_of(file, "check/outside", "f8", 1)
    arm, n = library.arm[0], len(label)
    need(label.shape[1] == library.n_label and spectrum.shape == (n, arm.n_pix)
         and len(outside) == n, ValueError, "check/params, check/spectra and check/outside have "
         f"the shapes {label.shape}, {spectrum.shape} and {outside.shape}; expected (n, "
         f"{library.n_label}), (n, {arm.n_pix}) and (n,)")
    y = emulate.output(library, 0, label)
    found = np.exp(y) if arm.emulator.log_flux else y
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(found / spectrum - 1) if arm.emulator.log_flux else np.abs(found - spectrum)
    off /= np.maximum(1, np.abs(y))
    bad = ~(off <= CHECK_TOLERANCE)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(f"check/spectra, row {i}, pixel {j}: the emulator as read gives "
                         f"{found[i, j]:.9g}, the file says {spectrum[i, j]:.9g}; layout, "
                         "activation or mapping differs from docs/use/formats.md")
    square = hull_distance(library, label) ** 2  # as rvspecfit's penalty is
    good = np.abs(square - outside) <= 1e-6 + 1e-5 * outside
    i = np.argmin(good)
    need(good[i], ValueError, f"check/outside, row {i}: the hulls as read give the squared "
         f"distance {square[i]:.9g}, the file says {outside[i]:.9g}")
    return off.max()


def join(library, one, path0, path, sigma):
    """Add the only arm of `one` to the library; both must be of the same training."""
    def must(good, message):
        need(good, USAGE, f"{path}: {message}; import arms that were trained together")

    def same(a, b):
        return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-9, atol=1e-9)
    must(one.n_label == library.n_label,
         f"has {one.n_label} labels, but {path0} has {library.n_label}")
    for i, (a, b) in enumerate(zip(one.label, library.label)):
        must(a.name == b.name, f"label {i} is {a.name}, but in {path0} it is {b.name}")
        must(a.mapping == b.mapping and same([a.mean, a.std], [b.mean, b.std]),
             f"label {a.name} is not mapped as in {path0}")
        must(same([a.min, a.max], [b.min, b.max]),
             f"the training stars have another range of {a.name} than those of {path0}")
    must(len(one.hull) == len(library.hull) and all(
        list(a.label) == list(b.label) and same(a.facet, b.facet)
        for a, b in zip(one.hull, library.hull)), f"its hulls are not those of {path0}")
    arm, arm0 = one.arm[0], library.arm[0]
    need(arm.name not in [other.name for other in library.arm], USAGE,
         f"{path}: an arm called {arm.name} was imported already; name the arms by --arm-names")
    need(sigma is not None or arm.template_sigma_aa == arm0.template_sigma_aa, USAGE,
         f"{path} (revision {arm.revision}) and {path0} (revision {arm0.revision}) seem to have "
         "different resolutions: a revision ends in rm or resolmat if templates are sharper than "
         "the instrument; give --template-sigma or --at-instrument-resolution")
    library.arm.append(arm)
