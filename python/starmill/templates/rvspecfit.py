# SPDX-License-Identifier: BSD-3-Clause
"""Make the files that `starmill library import` reads out of rvspecfit's networks.

usage: import_rvspecfit.py [--output FOLDER] [--overwrite] FILE|FOLDER...

Each FILE is an interp_SETUP.h5 of rvspecfit; the weights, NNstate_SETUP.sav, lie beside it.
A FOLDER stands for all interp_*.h5 in it.  Each becomes FOLDER/SETUP.h5 (layout:
docs/use/formats.md, "Emulator file"), with check values that torch computes from the
network as rvspecfit stored it.  Then:

    starmill library import --output LIB.h5 desi_b.h5 desi_r.h5 desi_z.h5

Needs NumPy, SciPy, h5py and, to read the weights, torch (any, without a GPU).  rvspecfit itself
is not needed, and nothing in its files is run.
"""

import argparse
import glob
import os
import re
import sys
import types

import h5py
import numpy as np
from scipy.spatial import ConvexHull, QhullError

N_CHECK = 12  # rows of check values: half of them spectra of the training, half around and outside
TRAIN_AGAIN = (
    "make a library of the spectra that it was made of by `starmill library build` and "
    "`starmill library train` (docs/use/libraries.md)")


class Refused(Exception):
    """A file that cannot be converted, with what to do."""


# ---- interp_SETUP.h5 ---------------------------------------------------------------------------


def value(file, name, default=None):
    """A number, text or array that rvspecfit stored under this name, or the default."""
    if name not in file:
        if default is None:
            raise Refused(f"{file.filename}: has no {name}; is it whole, and rvspecfit's?")
        return default
    found = file[name]
    kind = found.attrs.get("type")
    if not isinstance(found, h5py.Dataset) or kind == "pickle":
        raise Refused(f"{file.filename}: {name} is no number, text or array")
    if kind == "None":
        return default
    found = found[()]
    if isinstance(found, bytes):
        return found.decode()
    if isinstance(found, np.ndarray) and found.dtype.kind in "OS":
        return [x.decode() if isinstance(x, bytes) else str(x) for x in found]
    return found


def read_interpolator(path):
    """What an interp_SETUP.h5 says of a network, as a namespace; Refused for other kinds."""
    setup = re.fullmatch(r"interp_(.+)\.h5", os.path.basename(path))
    if not os.path.exists(path):
        raise Refused(f"{path}: does not exist")
    if not setup:
        raise Refused(f"{path}: expected a name like interp_desi_b.h5, whose middle is the setup's")
    if not h5py.is_hdf5(path):
        raise Refused(f"{path}: is no HDF5 file (rvspecfit before 0.6 stored pickles, which run "
                      f"code when they are read and are refused); {TRAIN_AGAIN}")
    with h5py.File(path, "r") as file:
        if file.attrs.get("version") != 1:
            raise Refused(f"{path}: the version of its layout is {file.attrs.get('version')}, "
                          "this script knows 1")
        kind = value(file, "interpolation_type", "triangulation" if "triang" in file else
                     "regulargrid" if "regular" in file else "unknown")
        if kind != "generic":
            raise Refused(f"{path}: is a {kind} of spectra, no network; {TRAIN_AGAIN}")
        for name, known in (("class_name", "RVSInterpolator"), ("mapper_class_name", "Mapper"),
                            ("outside_class_name", "OutsideInterpolator"),
                            ("class_kwargs/nonlinearity", "SiLU")):
            found = value(file, name, known)
            if found != known:
                raise Refused(f"{path}: {name} is {found}; this script knows {known}")
        if not value(file, "log_spec", True):
            raise Refused(f"{path}: log_spec is false, but rvspecfit takes the exponential of its "
                          "networks always; train it on logarithms of spectra")
        if not value(file, "log_step", True):
            raise Refused(f"{path}: its wavelengths are not uniform in ln wavelength; make the "
                          "spectra again without --no-log")
        at = "mapper_args/__item_%d"
        net = types.SimpleNamespace(
            path=path, setup=setup[1], names=list(value(file, "parnames")),
            lam=np.asarray(value(file, "lam"), float), mean=np.asarray(value(file, at % 0), float),
            std=np.asarray(value(file, at % 1), float),
            log_ids=[int(i) for i in np.atleast_1d(value(file, at % 2))],
            points=np.asarray(value(file, "outside_kwargs/pts"), float),
            weights=os.path.join(os.path.dirname(path), os.path.basename(value(file, "nn_file"))),
            revision=str(value(file, "revision", "")))
    check_interpolator(net)
    refuse_air(net)
    return net


def check_interpolator(net):
    """Shapes and values; starmill's import checks the rest."""
    n = len(net.names)
    if not 2 <= n <= 10:
        raise Refused(f"{net.path}: has {n} labels; 2 to 10 are possible")
    if net.mean.shape != (n,) or net.std.shape != (n,) or net.points.ndim != 2 \
            or net.points.shape[1] != n or len(net.points) < n + 1:
        raise Refused(f"{net.path}: mapper_args or outside_kwargs/pts do not fit its {n} labels")
    if not all(0 <= i < n for i in net.log_ids):
        raise Refused(f"{net.path}: mapper_args takes the logarithm of a label beyond its {n}")
    if not (np.isfinite(net.mean).all() and np.isfinite(net.points).all() and (net.std > 0).all()):
        raise Refused(f"{net.path}: a label is not finite or does not vary")


def refuse_air(net):
    """starmill's wavelengths are in vacuum; only the spectra's own file says what theirs are."""
    path = os.path.join(os.path.dirname(net.path), f"specs_{net.setup}.h5")
    if not os.path.exists(path) or not h5py.is_hdf5(path):
        print(f"{net.path}: {os.path.basename(path)} is not beside it to say whether its wavelengths "
              "are in air; they are taken as vacuum", file=sys.stderr)
        return
    with h5py.File(path, "r") as file:
        command = value(file, "cmdline", "")
    if "--air" in command.split():
        raise Refused(f"{net.path}: its spectra are in air ({os.path.basename(path)}: {command}); "
                      "starmill's are in vacuum; make them again without --air, and train again")


# ---- NNstate_SETUP.sav -------------------------------------------------------------------------


def read_weights(path):
    """The network's arrays by their names, through torch, which runs no code of the file."""
    try:
        import torch
    except ImportError as reason:
        raise Refused(f"torch is needed to read {path}: {reason} (pip install torch)") from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as reason:
        raise Refused(f"{path}: {reason.strerror or reason}; the weights must lie beside the "
                      "interp_*.h5") from None
    except Exception as reason:  # torch has many
        raise Refused(f"{path}: torch cannot read it: {str(reason).splitlines()[0]}") from None
    if isinstance(state, dict) and "state_dict" in state:
        version = state.get("checkpoint_version"), state.get("nn_arch_version")
        if state.get("checkpoint_magic") != "rvspecfit.nn_interpolator" or version != (1, 1):
            raise Refused(f"{path}: a checkpoint of version {version[0]} and architecture "
                          f"{version[1]}; this script knows rvspecfit's 1 and 1")
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(hasattr(x, "numpy") for x in state.values()):
        raise Refused(f"{path}: holds no network of rvspecfit")
    return {name: x.numpy() for name, x in state.items()}


def find_layers(net, state):
    """[(weight, bias, normalisation after SiLU or None)] of all layers, as stored."""
    left = dict(state)

    def take(name):
        array = left.pop(name, None)
        if array is None or array.dtype != np.float32 or not np.isfinite(array).all():
            raise Refused(f"{net.weights}: {name} is missing, no float32 array, or not finite")
        return array

    layers, n_in = [], len(net.names)
    while f"model.lin_{len(layers)}.weight" in left or not layers:
        i = len(layers)
        norm = None
        if f"model.bn_{i}.weight" in left:
            norm = [take(f"model.bn_{i}.{x}")
                    for x in ("weight", "bias", "running_mean", "running_var")]
            left.pop(f"model.bn_{i}.num_batches_tracked", None)
        layers.append((take(f"model.lin_{i}.weight"), take(f"model.lin_{i}.bias"), norm))
    layers.append((take("pc_layer.weight"), take("pc_layer.bias"), None))
    if left:
        raise Refused(f"{net.weights}: this script does not know {', '.join(sorted(left)[:3])}")
    for weight, bias, norm in layers:
        if weight.ndim != 2 or weight.shape[1] != n_in or \
                any(x.shape != weight.shape[:1] for x in [bias, *(norm or [])]):
            raise Refused(f"{net.weights}: the layers do not fit each other, or the labels")
        n_in = len(bias)
    if n_in != len(net.lam):
        raise Refused(f"{net.weights}: is a network of {n_in} pixels, {net.path} has "
                      f"{len(net.lam)}; they are not of one training")
    return layers


def fold(layers):
    """[(weight, bias)] of the same network without batch normalisation, which after training is
    a factor and an addend for each output of SiLU and so goes into the layer that follows."""
    folded, factor, addend = [], 1.0, 0.0
    for weight, bias, norm in layers:
        weight = weight.astype(float)
        folded.append(((weight * factor).astype("f4"),
                       (bias + weight @ np.broadcast_to(addend, weight.shape[1:])).astype("f4")))
        factor, addend = 1.0, 0.0
        if norm:
            gamma, beta, mean, variance = (x.astype(float) for x in norm)
            factor = gamma / np.sqrt(variance + 1e-5)  # torch's default
            addend = beta - mean * factor
    return folded


# ---- check values ------------------------------------------------------------------------------


def map_labels(net, labels, dtype):
    """Mapped labels; rvspecfit's take their logarithm in float32."""
    x = np.array(labels, dtype)
    x[:, net.log_ids] = np.log10(x[:, net.log_ids])
    return (x - net.mean) / net.std


def check_labels(net):
    """Labels of the check values: of training spectra, and around them up to 1.3 of their range."""
    n = N_CHECK // 2
    inner = net.points[np.linspace(0, len(net.points) - 1, n).astype(int)]
    middle = (net.points.min(0) + net.points.max(0)) / 2
    other = np.random.default_rng(1).permuted(inner, axis=0)  # each label by itself
    x = np.concatenate([inner, middle + 1.3 * (other - middle)])
    labels = x * net.std + net.mean
    labels[:, net.log_ids] = 10 ** labels[:, net.log_ids]
    return labels


def torch_spectra(net, layers, labels):
    """Spectra by torch from the layers as stored: in double precision, and as rvspecfit has them
    (labels and network in float32)."""
    import torch

    part = []
    for i, (weight, bias, norm) in enumerate(layers):
        part.append(torch.nn.Linear(weight.shape[1], weight.shape[0]))
        state = {"weight": weight, "bias": bias}
        part[-1].load_state_dict({k: torch.from_numpy(x) for k, x in state.items()})
        if i < len(layers) - 1:
            part.append(torch.nn.SiLU())
        if norm:
            part.append(torch.nn.BatchNorm1d(len(bias)))
            state = dict(zip(("weight", "bias", "running_mean", "running_var"), norm))
            part[-1].load_state_dict({k: torch.from_numpy(x) for k, x in state.items()},
                                     strict=False)
    model = torch.nn.Sequential(*part).eval()
    found = []
    with torch.inference_mode():
        for dtype, tensor in (("f4", torch.float32), ("f8", torch.float64)):
            x = torch.tensor(map_labels(net, labels, dtype), dtype=tensor)
            y = model.to(tensor)(x).numpy().astype(float)
            found.append(np.exp(np.clip(y, -300, 300)))
    single, double = found
    return double, single


def hull_groups(n_label):
    """Labels of the hulls: rvspecfit has one over the first two, and one over the others."""
    return [list(range(2))] + ([list(range(2, n_label))] if n_label > 2 else [])


def hull_facets(net):
    """{labels: facets [n][n_label + 1]} over the training spectra's mapped labels."""
    facets = {}
    for group in hull_groups(len(net.names)):
        x = net.points[:, group]
        try:
            facets[tuple(group)] = ConvexHull(x).equations if len(group) > 1 else \
                np.array([[-1, x.min()], [1, -x.max()]])
        except QhullError as reason:
            raise Refused(f"{net.path}: there is no hull over the labels "
                          f"{', '.join(net.names[i] for i in group)} of the training spectra: "
                          f"{str(reason).splitlines()[0]}") from None
    return facets


def outside(facets, x):
    """rvspecfit's penalty: the square of the largest distance from a facet, 0 inside."""
    far = [(x[:, list(group)] @ f[:, :-1].T + f[:, -1]).max(1) for group, f in facets.items()]
    return np.maximum(np.max(far, axis=0), 0) ** 2


# ---- the file for starmill ---------------------------------------------------------------------


def write_emulator(path, net, layers, labels, spectra):
    """One emulator file; labels and spectra are the check values, layers as find_layers has
    them."""
    facets = hull_facets(net)
    folded = fold(layers)
    with h5py.File(path, "w") as file:
        file.attrs.update(setup=net.setup, parnames=",".join(net.names), log_spec=True,
                          log_step=True, revision=net.revision, nlayers=len(folded))
        file["lam"] = net.lam
        for i, (weight, bias) in enumerate(folded):
            file[f"layer{i}/weight"], file[f"layer{i}/bias"] = weight, bias
        file["mapper/mean"], file["mapper/std"] = net.mean, net.std
        file["mapper/log_ids"] = np.array(net.log_ids, "i8")
        file["outside/points"] = net.points
        for group, equations in facets.items():
            file[f"outside/hull{''.join(map(str, group))}_equations"] = equations
        file["check/params"], file["check/spectra"] = labels, spectra
        file["check/outside"] = outside(facets, map_labels(net, labels, "f8"))


def convert(path, output, overwrite=False):
    """Read one interpolator, write its emulator file into the folder; returns its path."""
    net = read_interpolator(path)
    to = os.path.join(output, f"{net.setup}.h5")
    if os.path.exists(to) and not overwrite:
        raise Refused(f"{to}: exists; give another --output, or --overwrite")
    layers = find_layers(net, read_weights(net.weights))
    labels = check_labels(net)
    double, single = torch_spectra(net, layers, labels)
    part = f"{to}.tmp-{os.urandom(8).hex()}"
    try:
        write_emulator(part, net, layers, labels, double)
        (os.replace if overwrite else os.link)(part, to)  # another job may have made it meanwhile
    finally:
        if os.path.exists(part):
            os.unlink(part)
    widths = "-".join(map(str, [len(net.names)] + [len(bias) for _, bias, _ in layers]))
    off = np.abs(single / double - 1).max()
    print(f"{to}: {widths}, revision '{net.revision}', {len(net.points)} training spectra; "
          f"rvspecfit's evaluation in float32 differs by up to {off:.1e} from this network's in "
          "double precision")
    return to


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", default=".", metavar="FOLDER", help="where to write (.)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    parser.add_argument("input", nargs="+", metavar="FILE|FOLDER")
    args = parser.parse_args()
    try:
        paths = []
        for path in args.input:
            found = sorted(glob.glob(os.path.join(glob.escape(path), "interp_*.h5"))) \
                if os.path.isdir(path) else [path]
            if not found:
                raise Refused(f"{path}: has no interp_*.h5")
            paths += found
        os.makedirs(args.output, exist_ok=True)
        made = [convert(path, args.output, args.overwrite) for path in paths]
    except (Refused, OSError) as reason:
        print(f"import_rvspecfit.py: {reason}", file=sys.stderr)
        return 1
    print("next: starmill library import --output LIB.h5", *made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
