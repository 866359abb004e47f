# SPDX-License-Identifier: BSD-3-Clause
"""Reads networks of rvspecfit as emulator files in memory (docs/use/formats.md, "Emulator file").
A network is interp_SETUP.h5 with NNstate_SETUP.sav; torch runs no code stored in the .sav file."""

import io
import os
import re
import types

import h5py
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from starmill.cli.basics import check_packages, need, warn
from starmill.templates.emulate import silu

FILE = re.compile(r"interp_(.+)\.h5")
N_CHECK = 12  # rows of check values: half at training labels, half in a wider range
BN_EPSILON = 1e-5  # added to variances by torch's batch normalisation
TRAIN_AGAIN = ("make a library of the spectra that it was made of by `starmill library build` and "
               "`starmill library train` (docs/use/libraries.md)")


def value(file, name, default=None):
    """Return the number, text or array that rvspecfit stored under this name, else the default."""
    if name not in file and default is not None:
        return default
    found = file[name]
    kind = found.attrs.get("type")
    need(isinstance(found, h5py.Dataset) and kind != "pickle", ValueError,
         f"{name} is a pickle or a group, which starmill does not read; {TRAIN_AGAIN}")
    if kind == "None":
        return default
    found = found[()]
    if isinstance(found, bytes):
        return found.decode()
    if isinstance(found, np.ndarray) and found.dtype.kind in "OS":
        return [x.decode() if isinstance(x, bytes) else str(x) for x in found]
    return found


def read_interpolator(file, setup):
    """Return the contents of an interp_SETUP.h5 as a namespace; ValueError if not of a network."""
    need(file.attrs.get("version") == 1, ValueError,
         f"the version of its layout is {file.attrs.get('version')}, this program knows 1")
    kind = value(file, "interpolation_type", "triangulation" if "triang" in file else
                 "regulargrid" if "regular" in file else "unknown")
    need(kind == "generic", ValueError, f"is a {kind} of spectra, no network; {TRAIN_AGAIN}")
    for name, known in (("class_name", "RVSInterpolator"), ("mapper_class_name", "Mapper"),
                        ("outside_class_name", "OutsideInterpolator"),
                        ("class_kwargs/nonlinearity", "SiLU")):
        found = value(file, name, known)
        need(found == known, ValueError, f"{name} is {found}; this program knows {known}")
    need(value(file, "log_spec", True), ValueError, "log_spec is false, but rvspecfit takes the "
         "exponential of its networks always; train it on logarithms of spectra")
    need(value(file, "log_step", True), ValueError, "its wavelengths are not uniform in ln "
         "wavelength; make the spectra again without --no-log")
    folder, at = os.path.dirname(file.filename), "mapper_args/__item_%d"
    net = types.SimpleNamespace(
        setup=setup, names=list(value(file, "parnames")),
        lam=np.asarray(value(file, "lam"), float), mean=np.asarray(value(file, at % 0), float),
        std=np.asarray(value(file, at % 1), float),
        log_ids=[int(i) for i in np.atleast_1d(value(file, at % 2))],
        points=np.asarray(value(file, "outside_kwargs/pts"), float),
        weights=os.path.join(folder, os.path.basename(value(file, "nn_file"))),
        revision=str(value(file, "revision", "")))
    check_interpolator(net)
    refuse_air(os.path.join(folder, f"specs_{setup}.h5"))
    return net


def check_interpolator(net):
    """Check the shapes that check values need; emulator_files.py checks the rest."""
    n = len(net.names)
    need(2 <= n <= 10, ValueError, f"has {n} labels; 2 to 10 are possible")
    need(net.mean.shape == net.std.shape == (n,) == net.points.shape[1:] and len(net.points) > n,
         ValueError, f"mapper_args or outside_kwargs/pts do not fit the {n} labels of parnames; "
         "train the network again")
    need(all(0 <= i < n for i in net.log_ids), ValueError,
         f"mapper_args takes logarithms of labels {net.log_ids}, parnames has only 0 to {n - 1}")
    need(np.isfinite(net.points).all(), ValueError, "a label of outside_kwargs/pts is not finite")


def refuse_air(path):
    """Refuse networks trained on air wavelengths: only specs_SETUP.h5 says which they are."""
    if not os.path.exists(path) or not h5py.is_hdf5(path):
        warn(f"no file {path}, which would say if wavelengths are in air: they are taken as vacuum")
        return
    with h5py.File(path, "r") as file:
        command = value(file, "cmdline", "")
    need("--air" not in command.split(), ValueError,
         f"its spectra are in air ({os.path.basename(path)}: {command}); starmill's are in vacuum; "
         "make them again without --air, and train again")


def read_weights(path):
    """Return {name: array} of a network.  torch.load runs no code with weights_only."""
    check_packages("torch")
    import torch
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as reason:
        raise ValueError(f"{path}: {reason.strerror or reason}; the weights must lie next to the "
                         "interp_*.h5") from None
    except Exception as reason:  # torch has many
        raise ValueError(f"{path}: torch cannot read it: {str(reason).splitlines()[0]}") from None
    if isinstance(state, dict) and "state_dict" in state:
        version = state.get("checkpoint_version"), state.get("nn_arch_version")
        need(state.get("checkpoint_magic") == "rvspecfit.nn_interpolator" and version == (1, 1),
             ValueError, f"{path}: a checkpoint of version {version[0]} and architecture "
             f"{version[1]}; this program knows rvspecfit's 1 and 1")
        state = state["state_dict"]
    need(isinstance(state, dict) and all(hasattr(x, "numpy") for x in state.values()), ValueError,
         f"{path}: holds no network of rvspecfit")
    return {name: x.numpy() for name, x in state.items()}


def find_layers(net, state):
    """Return (weight, bias, norm) of each layer; norm: batch normalisation after SiLU, or None."""
    left = dict(state)

    def take(name):
        array = left.pop(name, None)
        need(array is not None and array.dtype == np.float32 and np.isfinite(array).all(),
             ValueError, f"{net.weights}: {name} is missing, no float32 array, or not finite")
        return array
    layers, n_in, i = [], len(net.names), 0
    while f"model.lin_{i}.weight" in left or i == 0:
        norm = None
        if f"model.bn_{i}.weight" in left:
            norm = [take(f"model.bn_{i}.{x}")
                    for x in ("weight", "bias", "running_mean", "running_var")]
            left.pop(f"model.bn_{i}.num_batches_tracked", None)
        layers.append((take(f"model.lin_{i}.weight"), take(f"model.lin_{i}.bias"), norm))
        i += 1
    layers.append((take("pc_layer.weight"), take("pc_layer.bias"), None))
    need(not left, ValueError,
         f"{net.weights}: layers unknown to this program: {', '.join(sorted(left)[:3])}")
    for weight, bias, norm in layers:
        need(weight.shape[1:] == (n_in,) and all(
            x.shape == weight.shape[:1] for x in [bias, *(norm or [])]), ValueError,
             f"{net.weights}: the layers do not match each other, or the labels")
        n_in = len(bias)
    need(n_in == len(net.lam), ValueError, f"{net.weights}: is a network of {n_in} pixels, the "
         f"interp_*.h5 has {len(net.lam)}; give both files of one training")
    return layers


def fold(layers):
    """Return (weight, bias) of each layer of an equivalent network without batch normalisation,
    whose factors and addends act on outputs of SiLU: the next layer takes them over."""
    folded, factor, addend = [], 1.0, 0.0
    for weight, bias, norm in layers:
        weight = weight.astype(float)
        folded.append(((weight * factor).astype("f4"),
                       (bias + weight @ np.broadcast_to(addend, weight.shape[1:])).astype("f4")))
        factor, addend = 1.0, 0.0
        if norm:
            gamma, beta, mean, variance = (x.astype(float) for x in norm)
            factor = gamma / np.sqrt(variance + BN_EPSILON)
            addend = beta - mean * factor
    return folded


def map_labels(net, labels):
    x = np.array(labels, float)
    x[:, net.log_ids] = np.log10(x[:, net.log_ids])
    return (x - net.mean) / net.std


def check_labels(net):
    """Return labels for check values: half from training, half from a range 1.3 times as wide."""
    inner = net.points[np.linspace(0, len(net.points) - 1, N_CHECK // 2).astype(int)]
    middle = (net.points.min(0) + net.points.max(0)) / 2
    other = np.random.default_rng(1).permuted(inner, axis=0)  # shuffle each label separately
    x = np.concatenate([inner, middle + 1.3 * (other - middle)])
    labels = x * net.std + net.mean
    labels[:, net.log_ids] = 10 ** labels[:, net.log_ids]
    return labels


def spectra(net, layers, labels):
    """Return the spectra of the stored layers (not folded) at labels, in float64."""
    x = map_labels(net, labels)
    for i, (weight, bias, norm) in enumerate(layers):
        x = x @ weight.T.astype(float) + bias
        if i < len(layers) - 1:
            x = silu(x)
        if norm:
            gamma, beta, mean, variance = norm
            x = (x - mean) / np.sqrt(variance + BN_EPSILON) * gamma + beta
    return np.exp(np.clip(x, -300, 300))


def hull_facets(net):
    """Return {label indices: facets [n][normal, offset]} of two convex hulls of the training
    spectra's mapped labels: the first two labels, and the rest."""
    facets, labels = {}, list(range(len(net.names)))
    for group in filter(None, (labels[:2], labels[2:])):
        x = net.points[:, group]
        try:
            facets[tuple(group)] = ConvexHull(x).equations if len(group) > 1 else \
                np.array([[-1, x.min()], [1, -x.max()]])
        except QhullError as reason:
            raise ValueError("the training spectra's labels "
                             f"{', '.join(net.names[i] for i in group)} enclose no area: train "
                             f"with other spectra ({str(reason).splitlines()[0]})") from None
    return facets


def outside(facets, x):
    """Return rvspecfit's penalty: squared largest distance beyond a facet, 0 inside."""
    far = [(x[:, list(group)] @ f[:, :-1].T + f[:, -1]).max(1) for group, f in facets.items()]
    return np.maximum(np.max(far, axis=0), 0) ** 2


def emulator_file(net, layers, labels, flux):
    """Return an open emulator file in memory.  labels, flux: check values; layers: as stored."""
    facets, folded = hull_facets(net), fold(layers)
    file = h5py.File(io.BytesIO(), "w")
    file.attrs.update(setup=net.setup, parnames=",".join(net.names), log_spec=True, log_step=True,
                      revision=net.revision, nlayers=len(folded))
    file["lam"] = net.lam
    for i, (weight, bias) in enumerate(folded):
        file[f"layer{i}/weight"], file[f"layer{i}/bias"] = weight, bias
    file["mapper/mean"], file["mapper/std"] = net.mean, net.std
    file["mapper/log_ids"] = np.array(net.log_ids, "i8")
    file["outside/points"] = net.points
    for group, equations in facets.items():
        file[f"outside/hull{''.join(map(str, group))}_equations"] = equations
    file["check/params"], file["check/spectra"] = labels, flux
    file["check/outside"] = outside(facets, map_labels(net, labels))
    return file


def read(file, setup):
    """Return the emulator file of an open interp_SETUP.h5."""
    net = read_interpolator(file, setup)
    layers, labels = find_layers(net, read_weights(net.weights)), check_labels(net)
    return emulator_file(net, layers, labels, spectra(net, layers, labels))
