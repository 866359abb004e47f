#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reference values of training, in float64 by NumPy: writes train.h.

    /usr/bin/python3 tests/reference/make_train.py OUTPUT.h

The build runs it.

Spectra: their mean, variances and principal components by numpy.linalg.svd; numbers that go in come
from formulas, which the tests have in C.  And what train_losses.py takes: slopes of a network, Adam.
"""

import sys

import numpy as np

N_SPECTRUM, N_PIX, N_COMPONENT = 24, 40, 5


def spectra():
    i, p = np.meshgrid(np.arange(N_SPECTRUM), np.arange(N_PIX), indexing="ij")
    y = 2 + sum(2.0**-k * np.sin(0.7 * (k + 1) * i + k) * np.cos(0.11 * (k + 1) * p + 0.5 * k * k)
                for k in range(12))
    return y.astype(np.float32).astype(float)


def components():
    y, scale = spectra(), 1 + 0.5 * np.sin(np.arange(N_PIX))
    mean = y.mean(0)
    _, s, v = np.linalg.svd(scale * (y - mean), full_matrices=False)
    return mean, s[:N_COMPONENT]**2 / N_SPECTRUM, v[:N_COMPONENT], (s**2).sum() / N_SPECTRUM


def split(param, width):
    at, layers = 0, []
    for n_in, n_out in zip(width, width[1:]):
        layers.append((param[at:at + n_out * n_in].reshape(n_out, n_in),
                       param[at + n_out * n_in:at + n_out * (n_in + 1)]))
        at += n_out * (n_in + 1)
    return layers


def loss_and_slopes(kind, param, x, target, scale, width, n_norm, most=1.0):
    """The loss of models x, which is a mean over them and a sum over n_norm outputs by their number, and
    its slopes; the network has layers of these widths."""
    layers, a, z = split(param, width), [x], []
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


def table(name, values):
    values = np.asarray(values, float).ravel()
    lines = [", ".join(f"{x:.17g}" for x in values[i:i + 4]) for i in range(0, len(values), 4)]
    return f"static const double {name}[{len(values)}] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main():
    mean, variance, pattern, total = components()
    out = ["/* Made by tests/reference/make_train.py; see there. */\n/* clang-format off */\n",
           table("REF_MEAN", mean), table("REF_VARIANCE", variance), table("REF_PATTERN", pattern),
           table("REF_TOTAL", [total])]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(out))


if __name__ == "__main__":
    main()
