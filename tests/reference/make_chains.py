#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Values that tests/kernels/math/test_chains.c compares with, by NumPy.

Split R-hat and effective sample size as Vehtari et al. (2021) and Stan's manual define them, with
autocovariances by FFT; the chains are those of the test: autoregressive, from splitmix64.
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


def chains(seed, n_step, n_walker, memory, spread):
    """[n_walker][n_step] float32 values."""
    u = uniforms(seed, n_step * n_walker).reshape(n_step, n_walker) - 0.5
    x = np.empty((n_step, n_walker))
    state = np.zeros(n_walker)
    for t in range(n_step):
        state = memory * state + u[t]
        x[t] = state + spread * np.arange(n_walker)
    return x.astype(np.float32).astype(float).T


def diagnose(x):
    n = x.shape[1] // 2
    halves = np.concatenate([x[:, :n], x[:, x.shape[1] - n :]])
    centred = halves - halves.mean(axis=1, keepdims=True)
    power = np.abs(np.fft.rfft(centred, 4 * n, axis=1)) ** 2
    cov = np.fft.irfft(power, axis=1)[:, :n].mean(axis=0) / n
    within = halves.var(axis=1, ddof=1).mean()
    var = within * (n - 1) / n + halves.mean(axis=1).var(ddof=1)
    rho = 1 - (within - cov) / var
    rho[0] = 1
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    end = np.argmax(pairs <= 0) if (pairs <= 0).any() else len(pairs)
    tau = -1 + 2 * np.minimum.accumulate(pairs[:end]).sum()
    total = halves.size
    return np.sqrt(var / within), total / max(tau, 1 / np.log10(total))


if __name__ == "__main__":
    for case in [(1, 200, 6, 0.8, 0.0), (2, 101, 4, 0.5, 0.1), (3, 60, 16, -0.5, 0.0), (4, 9, 3, 0.2, 0.0)]:
        x = chains(*case)
        q = np.quantile(x, [0.025, 0.16, 0.5, 0.84, 0.975])
        print(case, *("%.12g" % v for v in (*diagnose(x), *q)))
