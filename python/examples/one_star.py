# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
# One star with libstarmill: open a library, fit a spectrum, look at the likelihood, plot.
#
# Run it as a script (`python one_star.py LIBRARY.h5 PICTURE.png`) or cell by cell in an editor that
# knows `# %%`.  The spectrum is made here, so that the truth is known; put your own arrays there.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np

import starmill

path = sys.argv[1] if len(sys.argv) > 1 else "libraries/fgk.h5"
picture = sys.argv[2] if len(sys.argv) > 2 else "one_star.png"

# %% The library with the settings of the fit: any key of docs/use/configuration.md.
library = starmill.Library(path, max_vel=600)
for parameter in library.parameters:
    print(f"{parameter.name:6s} {parameter.min:10.4g} to {parameter.max:<8.6g} {parameter.unit}")
print(library.arms)

# %% A spectrum of resolving power 2,000 at S/N 40 in the first arm, with a tilted continuum.
arm, (low, high) = next(iter(library.arms.items()))
wave = np.arange(max(low + 20, 4000), min(high - 20, 6800), 1.2)
sigma = wave / 2000 / 2.3548
truth = library.theta(vrad=-120, vsini=15, teff=5600, logg=4.1, feh=-0.8, alpha=0.25)
flux = starmill.template(library, truth, wave, name=arm, sigma=sigma)
flux = flux / np.median(flux) * (1 + 2e-4 * (wave - wave.mean()))
error = np.full(wave.size, 1 / 40)
flux += np.random.default_rng(1).normal(size=wave.size) * error
star = library.star(starmill.Spectrum(wave, flux, error=error, name=arm, sigma=sigma))

# %% Where a fit starts, and where it ends.
print("guess, km/s:", starmill.guess(star, 3)[0][:, 0])
table = starmill.fit([star])
theta = table.theta(0)
for parameter, at, true in zip(library.parameters, theta, truth):
    uncertainty = table[f"{parameter.column}_ERR"][0]
    print(f"{parameter.column:8s} {at:10.4f} +- {uncertainty:8.4f} {parameter.unit}, true {true:g}")

# %% The likelihood along Teff, beside its curvature; with the library's model error, as in the fit.
starmill.fix_model_error(star, theta)
teff = [p.name for p in library.parameters].index("teff")
value, _, curvature = starmill.minus2loglike(star, theta, derivatives=True)
step = np.linspace(-3, 3, 41) / np.sqrt(curvature[teff, teff])
points = np.tile(theta, (step.size, 1))
points[:, teff] += step
along = starmill.minus2loglike(star, points)

# %% The picture.
model = starmill.model(star, theta)
figure, axes = plt.subplots(3, 1, figsize=(9, 8), height_ratios=(3, 1, 2), layout="constrained")
axes[0].plot(wave, flux, color="0.7", lw=0.6, label="spectrum")
axes[0].plot(wave, model.spectrum(0), color="C3", lw=0.8, label="model")
axes[0].set(ylabel="flux", title="  ".join(
    f"{p.column} {at:.4g}" for p, at in zip(library.parameters, theta)))
axes[0].legend(loc="lower right")
axes[1].plot(wave, (flux - model.spectrum(0)) / error, color="0.4", lw=0.5)
axes[1].set(xlabel="wavelength [A, vacuum]", ylabel="residual [sigma]")
axes[2].plot(theta[teff] + step, along - along.min(), color="C0", label="$-2\\,\\ln L$")
axes[2].plot(theta[teff] + step, curvature[teff, teff] * step**2, "k:", label="its curvature")
axes[2].set(xlabel="Teff [K], all other parameters held", ylabel="above the least")
axes[2].legend()
figure.savefig(picture, dpi=100)
