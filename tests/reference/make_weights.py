#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Values that tests/kernels/math/test_weights.c compares with, by NumPy.

Effective size, Pareto k (Zhang & Stephens 2009; Vehtari et al. 2024) and quantiles of the test's
weights, -power ln u of uniform numbers u from splitmix64, which are Pareto's with k = power.
"""
import numpy as np


def uniforms(seed, n):
    out = np.empty(n)
    mask = (1 << 64) - 1
    for i in range(n):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out[i] = ((z ^ (z >> 31)) >> 11) * 2.0**-53
    return out


def pareto_k(w):
    w = np.sort(w)
    n_tail = int(min(0.2 * len(w), 3 * np.sqrt(len(w)), 1000))
    x = w[-n_tail:] - w[-n_tail - 1]
    m = 30 + int(np.sqrt(n_tail))
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(m) + 0.5))) / (3 * x[int(n_tail / 4 + 0.5) - 1])
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    like = n_tail * (np.log(-b / k) - k - 1)
    share = 1 / np.exp(like - like[:, None]).sum(axis=1)
    k = np.log1p(-(b * share).sum() / share.sum() * x).mean()
    return (n_tail * k + 5) / (n_tail + 10)


if __name__ == "__main__":
    for seed, n, power in [(1, 1200, 0.1), (2, 1200, 0.5), (3, 5000, 0.9), (4, 60, 0.3)]:
        ln_w = -power * np.log(1 - uniforms(seed, n))
        ln_w = (ln_w - ln_w.max()).astype(np.float32).astype(float)
        w = np.exp(ln_w)
        q = np.quantile(ln_w, [0.025, 0.16, 0.5, 0.84, 0.975])
        print((seed, n, power), *("%.12g" % v for v in (w.sum() ** 2 / (w**2).sum(), pareto_k(w), *q)))
