# SPDX-License-Identifier: BSD-3-Clause
"""The losses of a network's first epochs by NumPy in float64, as in `starmill library train`.

Repeats the training of a grid file's first arm (docs/develop/performance.md): statistics,
components by NumPy's SVD, and steps of Adam.  The counters of starmill's random numbers give the
models left out, the first weights and the order of the models."""

import math
import types

import h5py
import numpy as np

# options of starmill library train that this script knows, with their defaults (but epochs)
DEFAULTS = dict(epochs=10, hidden="256,256,200", batch=64, rate=5e-3, least_rate=1e-6, decay=0.0,
                loss="l2", huber=0, sn=100.0, last="components", components=0, left_out=0.1, seed=1)

CASES = [dict(batch=128, rate=2e-3),
         dict(last="pixels", hidden="64,48", batch=50, rate=2e-3, decay=0.5, loss="huber", huber=0.7,
              sn=30.0, components=20, left_out=0.2, seed=5),
         dict(last="pixels", hidden="40", batch=64, rate=2e-3, least_rate=5e-4, loss="l1",
              components=12, left_out=0.0, seed=7)]


# ---- random numbers: Philox 4x32-10 (Salmon et al. 2011), counters as in src/system/random.h -----


def words(seed, index, purpose, n):
    """The first n 32-bit words of a stream, purpose being four letters."""
    n_block = -(-n // 4)
    c = [np.arange(n_block, dtype=np.uint64)]
    c += [np.full(n_block, x, np.uint64)
          for x in (int.from_bytes(purpose.encode(), "big"), index & 0xFFFFFFFF, index >> 32)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> shift ^ c[1] ^ np.uint64(key[0]), b & low,
             a >> shift ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1).ravel()[:n]


def uniform(seed, index, purpose, n):
    """n numbers in (0, 1) of 53 bits."""
    w = words(seed, index, purpose, 2 * n).reshape(n, 2)
    high = (w[:, 0] << np.uint64(32) | w[:, 1]) >> np.uint64(11)
    return np.minimum((high.astype(float) + 0.5) * 2.0**-53, 1 - 2.0**-53)


def shuffled(n, seed, index, purpose):
    """0 ... n - 1 shuffled: each item i, from the last on, changes places with one of 0 ... i."""
    u, order = uniform(seed, index, purpose, n), np.arange(n)
    for k, i in enumerate(range(n - 1, 0, -1)):
        j = int(u[k] * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


# ---- the grid, and what is learned of it ---------------------------------------------------------


def read_grid(path, arm=0):
    """Labels and spectra of the good models of an arm: names, label [n][n_label], flux [n][n_pix].
    """
    with h5py.File(path, "r") as file:
        if file.attrs.get("format") not in ("starmill grid", b"starmill grid"):
            raise SystemExit(f"{path}: is no grid file of starmill")
        good = np.flatnonzero(file["models/status"][()] == 1)
        names = [x.decode() for x in file["labels/name"][()]]
        return names, file["models/label"][()][good], file[f"arms/arm{arm}/flux"][()][good]


def split(n, left_out, seed):
    """Return the models' order, left-out ones last, and the number of others (algorithm S)."""
    still = int(left_out * n + 0.5)
    n_train, is_out = n - still, np.zeros(n, bool)
    for i, u in enumerate(uniform(seed, 0, "splt", n)):
        is_out[i] = u * (n - i) < still
        still -= int(is_out[i])
    return np.argsort(is_out, kind="stable"), n_train


def map_labels(names, label):
    """log10 of Teff, others as they are; then mean 0 and deviation 1."""
    x = np.array(label)
    for i, name in enumerate(names):
        if name == "teff":
            x[:, i] = np.log10(x[:, i])
    return ((x - x.mean(0)) / x.std(0)).astype("f4")


def components(scaled, n_component):
    """Return patterns [k][n_pix] and variances [k] of the principal components of `scaled`, S/N
    times (ln flux - mean).  Scores have a mean square of 1; a pattern's largest coefficient is
    positive.  n_component 0: enough to explain all but 1e-8 of the variance, at most 256."""
    n = len(scaled)
    _, value, vector = np.linalg.svd(scaled / math.sqrt(n), full_matrices=False)
    variance, total = value**2, (value**2).sum()
    most = n_component or min(n - 1, 256)
    left = total - np.concatenate([[0], np.cumsum(variance)])
    keep = next((k for k in range(most) if variance[k] <= 1e-14 * variance[0] or
                 (not n_component and left[k] <= 1e-8 * total)), most)
    pattern = vector[:keep] * value[:keep, None]
    largest = pattern[np.arange(keep), np.abs(pattern).argmax(1)]
    return pattern * np.sign(largest)[:, None], variance[:keep]


def make_problem(path, o, arm=0):
    """Return labels x, targets, scale, floors and the last layer's first weights.  Models that the
    network learns come before those left out."""
    if o.loss != "l2" and o.last != "pixels":
        raise SystemExit("scores of components are trained with the loss l2 alone")
    names, label, flux = read_grid(path, arm)
    n, n_pix = flux.shape
    order, n_train = split(n, o.left_out, o.seed)
    label, y = label[order], np.log(flux[order].astype(float))
    width = o.width[-1]
    p = types.SimpleNamespace(n=n, n_train=n_train, n_pix=n_pix, x=map_labels(names, label))
    mean = y[:n_train].mean(0)
    scaled = o.sn * (y - mean)
    pattern, variance = components(scaled[:n_train], o.components)
    weight = (2 * uniform(o.seed, 0, "last", len(variance) * width) - 1) / math.sqrt(width)
    weight = weight.astype("f4").reshape(-1, width)
    if o.last == "pixels":
        p.target, p.scale = (y - mean).astype("f4"), np.full(n_pix, o.sn, "f4")
        p.weight = ((pattern / o.sn).T @ weight.astype(float)).astype("f4")
        p.bias, p.floor = np.zeros(n_pix, "f4"), (0.0, 0.0)
    else:
        score = scaled @ pattern.T / variance
        rest = ((scaled**2).sum(1) - (score**2) @ variance).clip(0) / n_pix
        p.target, p.scale = score.astype("f4"), np.sqrt(variance).astype("f4")
        p.weight, p.bias = weight, np.zeros(len(variance), "f4")
        p.floor = rest[:n_train].mean(), rest[n_train:].mean() if n_train < n else math.nan
    return p


# ---- training --------------------------------------------------------------------------------


def layers_of(param, width):
    at, layers = 0, []
    for n_in, n_out in zip(width, width[1:]):
        layers.append((param[at:at + n_out * n_in].reshape(n_out, n_in),
                       param[at + n_out * n_in:at + n_out * (n_in + 1)]))
        at += n_out * (n_in + 1)
    return layers


def loss_and_slopes(kind, param, x, target, scale, width, n_norm, most=1.0):
    """Return the loss of the models x and its derivatives in param.  The loss is the mean
    over models of the sum over outputs, divided by n_norm.  width: of inputs and of each layer."""
    layers, a, z = layers_of(param, width), [x], []
    for i, (weight, bias) in enumerate(layers):
        z.append(a[-1] @ weight.T + bias)
        a.append(z[-1] / (1 + np.exp(-z[-1])) if i < len(layers) - 1 else z[-1])
    u = scale * (a[-1] - target)
    rho, slope = {
        "l2": (u * u, 2 * u),
        "l1": (abs(u), np.sign(u)),
        "huber": (np.where(abs(u) <= most, u * u / 2, most * (abs(u) - most / 2)), np.clip(u, -most, most)),
    }[kind]
    n = len(x) * n_norm
    back, slopes = slope * scale / n, []
    for i in range(len(layers) - 1, -1, -1):
        if i < len(layers) - 1:
            s = 1 / (1 + np.exp(-z[i]))
            back = back * s * (1 + z[i] * (1 - s))
        slopes.insert(0, np.concatenate([(back.T @ a[i]).ravel(), back.sum(0)]))
        back = back @ layers[i][0]
    return rho.sum() / n, np.concatenate(slopes)


class Adam:
    """With decoupled weight decay; param is changed in place."""

    def __init__(self, param, decay):
        self.param, self.decay, self.t, self.m, self.v = param, decay, 0, 0 * param, 0 * param

    def step(self, slopes, rate):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * slopes
        self.v = 0.999 * self.v + 0.001 * slopes * slopes
        self.param *= 1 - rate * self.decay
        self.param -= rate * (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


def first_weights(p, o):
    """First weights of starmill's SiLU layers and the problem's last layer, in one array."""
    part, n_in = [], p.x.shape[1]
    for i, n_out in enumerate(o.width):
        part.append(((2 * uniform(o.seed, i, "init", (n_in + 1) * n_out) - 1) / math.sqrt(n_in)).astype("f4"))
        n_in = n_out
    return np.concatenate([*part, p.weight.ravel(), p.bias]).astype(float)


def train(p, o):
    """[(loss, loss of models left out)] of every epoch."""
    param = first_weights(p, o)
    width = (p.x.shape[1], *o.width, len(p.bias))
    x, target = p.x.astype(float), p.target.astype(float)
    adam, curve = Adam(param, o.decay), []

    def at(models):
        return loss_and_slopes(o.loss, param, x[models], target[models], p.scale.astype(float), width, p.n_pix, o.huber)
    for epoch in range(o.epochs):
        rate = o.least_rate + 0.5 * (o.rate - o.least_rate) * (1 + math.cos(math.pi * epoch / o.epochs))
        order, total = shuffled(p.n_train, o.seed, epoch, "shuf"), 0.0
        for i in range(0, p.n_train, o.batch):
            loss, slopes = at(order[i:i + o.batch])
            adam.step(slopes, rate)
            total += loss * len(order[i:i + o.batch])
        left = at(slice(p.n_train, p.n))[0] + p.floor[1] if p.n_train < p.n else math.nan
        curve.append((total / p.n_train + p.floor[0], left))
    return curve


# ---- a small grid --------------------------------------------------------------------------------


def make_spectra(n_model, n_pix, n_line, seed):
    """Labels [n][4] of FGK stars and flux [n][n_pix] from 4000 A, in ln steps of 2e-4: Gaussian
    lines on a sloping continuum, whose strengths follow curves of growth."""
    u = uniform(seed, 0, "labe", 4 * n_model).reshape(-1, 4)
    u[:16] = [[i >> k & 1 for k in range(4)] for i in range(16)]  # corners first
    label = np.array([4000, 0.5, -2.5, 0]) + u * [3500, 4.5, 3, 0.4]
    teff, logg, feh, alpha = label.T[:, :, None]
    r = uniform(seed, 1, "line", 4 * n_line).reshape(4, -1)
    energy, strength, is_alpha = 5 * r[0], -2.5 + 3.5 * r[1], r[2] < 0.3
    s = strength + feh + is_alpha * alpha - energy * (5040 / teff - 1)
    s = s - 0.1 * (logg - 3) * (r[3] - 0.3)
    depth = 0.9 * (1 - np.exp(-(10**s) / (1 + 0.3 * 10**(0.7 * s))))
    center = n_pix * uniform(seed, 2, "line", n_line)
    width = 1.2 + 0.5 * uniform(seed, 3, "line", n_line)
    profile = np.exp(-0.5 * ((np.arange(n_pix) - center[:, None]) / width[:, None]) ** 2)
    slope = (5000 / teff - 1) * np.linspace(-0.5, 0.5, n_pix)
    return label, (np.exp(slope - depth @ profile)).astype("f4")


def write_grid(path, names, label, arms, complete=1):
    """Write a grid file (docs/use/formats.md) of good models and return its path.  arms: {name:
    (ln_wave0, ln_step, sigma, flux [n][n_pix], 1 if the continuum is there)}."""
    with h5py.File(path, "w") as file:
        file.attrs.update(format=np.bytes_("starmill grid"), version=np.int32(1),
                          generator=np.bytes_("test"), settings=np.bytes_("none"),
                          complete=np.int32(complete))
        file["labels/name"] = np.array(names, "S64")
        file["models/label"] = np.asarray(label, float)
        file["models/name"] = np.array([f"model{i:04d}" for i in range(len(label))], "S64")
        file["models/status"] = np.ones(len(label), "i1")
        file["models/why"] = np.zeros(len(label), "S128")
        for i, (name, (first, step, sigma, flux, continuum)) in enumerate(arms.items()):
            arm = file.create_group(f"arms/arm{i}")
            arm.attrs.update(name=np.bytes_(name), ln_wave0=first, ln_step=step,
                             n_pix=np.int32(flux.shape[1]), template_sigma_aa=sigma,
                             sigma_origin=np.bytes_("made up"))
            arm["flux"] = flux.astype("f4")
            if continuum:
                arm["continuum"] = np.ones(flux.shape, "f4")
    return path


def make_grid(path, n_model=400, n_pix=300, n_line=40, seed=1):
    """A grid file of one arm, all of its models good."""
    label, flux = make_spectra(n_model, n_pix, n_line, seed)
    write_grid(path, ("teff", "logg", "feh", "alpha"), label,
               {"b": (math.log(4000.0), 2e-4, 0.5, flux, False)})


def words_for_starmill(o):
    """All options as words for starmill library train, as its defaults may change."""
    return [word for name in DEFAULTS if name not in ("components", "huber") or getattr(o, name)
            for word in (f"--{name.replace('_', '-')}", str(getattr(o, name)))]


def options_of(case):
    """The defaults and what differs from them."""
    o = types.SimpleNamespace(**{**DEFAULTS, **case})
    o.width = [int(n) for n in o.hidden.split(",")]
    return o
