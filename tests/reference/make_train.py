#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reference values of training, in float64 by NumPy: writes train.h.

    /usr/bin/python3 tests/reference/make_train.py OUTPUT.h

The build runs it.

Spectra: their mean, variances and principal components by numpy.linalg.svd.
Network: three steps of Adam with decoupled weight decay over all models at once, for each loss.
Numbers that go in come from formulas, which the tests have in C.
"""

import sys

import numpy as np

N_SPECTRUM, N_PIX, N_COMPONENT = 24, 40, 5
N_MODEL, N_IN, N_OUT, HIDDEN = 6, 3, 7, (5, 4)
STEPS, RATE, DECAY, DELTA = 3, 1e-2, 0.1, 0.7


def wave(amplitude, rate, shift, n):
    return (amplitude * np.sin(rate * np.arange(n) + shift)).astype(np.float32).astype(float)


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


def shapes():
    width = (N_IN, *HIDDEN, N_OUT)
    return list(zip(width[1:], width[:-1]))


def split(param):
    at, layers = 0, []
    for n_out, n_in in shapes():
        layers.append((param[at:at + n_out * n_in].reshape(n_out, n_in),
                       param[at + n_out * n_in:at + n_out * (n_in + 1)]))
        at += n_out * (n_in + 1)
    return layers


def loss_and_slopes(kind, param, x, target, scale):
    layers, a, z = split(param), [x], []
    for i, (weight, bias) in enumerate(layers):
        z.append(a[-1] @ weight.T + bias)
        a.append(z[-1] / (1 + np.exp(-z[-1])) if i < len(layers) - 1 else z[-1])
    u = scale * (a[-1] - target)
    rho, slope = {
        "l2": (u * u, 2 * u),
        "l1": (abs(u), np.sign(u)),
        "huber": (np.where(abs(u) <= DELTA, u * u / 2, DELTA * (abs(u) - DELTA / 2)),
                  np.clip(u, -DELTA, DELTA)),
    }[kind]
    n = len(x) * N_OUT
    delta, slopes = slope * scale / n, []
    for i in range(len(layers) - 1, -1, -1):
        if i < len(layers) - 1:
            s = 1 / (1 + np.exp(-z[i]))
            delta = delta * s * (1 + z[i] * (1 - s))
        slopes.insert(0, np.concatenate([(delta.T @ a[i]).ravel(), delta.sum(0)]))
        delta = delta @ layers[i][0]
    return rho.sum() / n, np.concatenate(slopes)


def train(kind):
    n_param = sum(n_out * (n_in + 1) for n_out, n_in in shapes())
    param = wave(0.6, 1.7, 0.3, n_param)
    x = wave(1.2, 2.3, 0.1, N_MODEL * N_IN).reshape(N_MODEL, N_IN)
    target = wave(1.5, 0.9, 0.7, N_MODEL * N_OUT).reshape(N_MODEL, N_OUT)
    scale = (1.2 + wave(0.5, 1.1, 0, N_OUT)).astype(np.float32).astype(float)
    m, v, losses = 0 * param, 0 * param, []
    for t in range(1, STEPS + 1):
        loss, g = loss_and_slopes(kind, param, x, target, scale)
        losses.append(loss)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        param = param - RATE * DECAY * param
        param -= RATE * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return losses, param


def table(name, values):
    values = np.asarray(values, float).ravel()
    lines = [", ".join(f"{x:.17g}" for x in values[i:i + 4]) for i in range(0, len(values), 4)]
    return f"static const double {name}[{len(values)}] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main():
    mean, variance, pattern, total = components()
    out = ["/* Made by tests/reference/make_train.py; see there. */\n/* clang-format off */\n",
           table("REF_MEAN", mean), table("REF_VARIANCE", variance), table("REF_PATTERN", pattern),
           table("REF_TOTAL", [total])]
    for kind in ("l2", "l1", "huber"):
        losses, param = train(kind)
        out += [table(f"REF_LOSS_{kind.upper()}", losses),
                table(f"REF_PARAM_{kind.upper()}", param)]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(out))


if __name__ == "__main__":
    main()
