# SPDX-License-Identifier: BSD-3-Clause
"""Computes one model: runs Turbospectrum over all pieces, checks, smooths and writes them."""

import itertools
import os
import shutil
import subprocess
import tempfile

import numpy as np

from starmill.cli.basics import need
from starmill.grids import atmospheres, lines, plan
from starmill.wavelength import FWHM_PER_SIGMA, vacuum

LOGG_SPHERICAL = 3.5  # below this log g radiative transfer is spherical, above plane-parallel
STEFAN = 5.6704e-5
LIMIT_S = 900  # CPU time after which a piece is stopped; it takes 5 to 30 s


class BadModel(Exception):
    """The model failed a check, named in the text."""


def run(program, text, folder, log, result):
    """Run a program in folder with `text` as its input.  Check that it wrote `result`: its status
    may be 0 after an error.  LIMIT_S limits the CPU time, since the machine may be busy."""
    with open(os.path.join(folder, log), "w") as out:
        # a new session, so that ^C does not kill the model under way
        code = subprocess.run(["sh", "-c", 'ulimit -t %d; exec "$0"' % LIMIT_S, program],
                              input=text.encode(), stdout=out, stderr=out, cwd=folder,
                              start_new_session=True).returncode
    made = os.path.join(folder, result)
    if code or not os.path.exists(made) or not os.path.getsize(made):
        with open(os.path.join(folder, log), errors="replace") as f:
            tail = " | ".join(x.strip() for x in f.read().strip().split("\n")[-4:])[-300:]
        raise BadModel("%s ended with status %d: %s" % (os.path.basename(program), code, tail))


def control(*parts):
    """Return Turbospectrum's input: a line per key of a dictionary, or per word of a text."""
    return "".join(
        "".join("'%s:'  '%s'\n" % pair for pair in part.items()) if isinstance(part, dict)
        else "".join(word + "\n" for word in part.split()) for part in parts)


def composition(labels):
    """Return control()'s arguments for the abundances (of single elements lg N(X)/N(H) + 12)."""
    parts = [{"METALLICITY": "%.3f" % labels[2], "ALPHA/Fe": "%.3f" % labels[3], "HELIUM": "0.00",
              "R-PROCESS": "0.00", "S-PROCESS": "0.00"}]
    single = ["%d %.3f" % (number, sun + labels[2] + x_fe)
              for (_, number, sun, _, _), x_fe in zip(plan.ELEMENTS, labels[4:])]
    return parts + ([{"INDIVIDUAL ABUNDANCES": "%d" % len(single)}, " ".join(single)] if single
                    else [])


def vmicro_of(labels):
    return labels[-1] if len(labels) > 4 else plan.microturbulence(*labels[:2])


def atmospheres_path(work, grid):
    return os.path.join(work, "atmospheres%s.npz" % ("-oba" if grid is plan.OBA else ""))


def is_spherical(labels, grid):
    return grid is not plan.OBA and labels[1] < LOGG_SPHERICAL


def synthesize(work, labels, grid):
    """Return wavelengths in air (A), flux and continuum (erg/cm2/s/A) of each piece."""
    teff, logg, feh, alpha = labels[:4]
    vmicro = vmicro_of(labels)
    atmos = atmospheres.Atmospheres(atmospheres.load(atmospheres_path(work, grid)))
    columns, _ = atmos.atmosphere(teff, logg, feh, alpha)
    program = os.path.join(work, "turbospectrum")
    folder = tempfile.mkdtemp(prefix="model", dir=os.path.join(work, "scratch"))
    try:
        os.symlink(os.path.join(program, "DATA"), os.path.join(folder, "DATA"))
        model = os.path.join(folder, "model")
        if grid is plan.OBA:
            atmospheres.write_atlas(model, columns, logg)
        else:
            atmospheres.write_model(model, columns, logg, vmicro)
        first, last = grid.PIECES[0][0] - 10, grid.PIECES[-1][1] + 10
        text = control({"LAMBDA_MIN": "%.1f" % first, "LAMBDA_MAX": "%.1f" % last,
                        "LAMBDA_STEP": "4.0" if grid is plan.OBA else "1.0", "MODELINPUT": "model",
                        "MARCS-FILE": ".false.", "MODELOPAC": "opac"}, *composition(labels),
                       {"XIFIX": "T"}, "%.2f" % vmicro)
        run(os.path.join(program, "babsma_lu"), text, folder, "babsma.log", "opac")
        used = True, teff < lines.TEFF_MOLECULES, teff < lines.TEFF_TIO, grid is plan.OBA
        out = []
        for i, piece in enumerate(grid.PIECES):
            first, last, step, n_list = piece
            lists = ["DATA/Hlinedata"]
            for kind in itertools.compress(lines.KINDS, used):
                name = "%s%d.list" % (kind, n_list)
                path, link = os.path.join(work, "lines", name), os.path.join(folder, name)
                if os.path.getsize(path):
                    if not os.path.lexists(link):
                        os.symlink(path, link)  # the program truncates long paths
                    lists.append(name)
            text = control(
                {"LAMBDA_MIN": "%.3f" % (first - lines.PAD),
                 "LAMBDA_MAX": "%.3f" % (last + lines.PAD), "LAMBDA_STEP": "%.3f" % step,
                 "INTENSITY/FLUX": "Flux", "COS(THETA)": "1.00", "ABFIND": ".false.",
                 "MODELOPAC": "opac", "RESULTFILE": "spectrum"}, *composition(labels),
                {"NFILES": "%d" % len(lists)}, " ".join(lists),
                {"SPHERICAL": "FT"[is_spherical(labels, grid)]}, "30 300.00 15 1.30")
            run(os.path.join(program, "bsyn_lu"), text, folder, "bsyn%d.log" % i, "spectrum")
            out.append(read_spectrum(os.path.join(folder, "spectrum"), piece))
            os.remove(os.path.join(folder, "spectrum"))
        return out
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_spectrum(path, piece):
    """Return wavelengths in air (A), flux and continuum of one of PIECES, from Turbospectrum."""
    first, last, step, _ = piece
    try:
        data = np.loadtxt(path, usecols=(0, 1, 2))
    except (OSError, ValueError) as e:
        raise BadModel("no spectrum of %g-%g A: %s" % (first, last, e))
    expected = round((last - first + 2 * lines.PAD) / step) + 1
    need(data.ndim == 2 and abs(len(data) - expected) <= 1, BadModel,
         "%d samples in the place of %d at %g-%g A" % (len(data), expected, first, last))
    if not np.isfinite(data).all() or (data[:, 2] <= 0).any():
        raise BadModel("flux that is not finite or not above 0 at %g-%g A" % (first, last))
    need(data[:, 1].max() <= 1.02, BadModel,
         "flux above the continuum at %g-%g A: %.3f" % (first, last, data[:, 1].max()))
    wave = first - lines.PAD + step * np.arange(len(data))
    good = data[:, 1] > 0.3  # the normalised flux has five decimals, too few in line cores
    need(good.sum() >= 0.02 * len(good), BadModel,
         "at %g-%g A under 2 %% of samples have a flux above 0.3 of continuum" % (first, last))
    cont = np.exp(np.interp(wave, wave[good], np.log(data[good, 2] / data[good, 1])))
    return wave, data[:, 2], cont


def smooth(wave, values, step, at, sigma):
    """Return sums [n_values][n_at] of the spectra `values` [n_values][n_wave] with Gaussian weights
    around each wavelength in `at`, and the sums of the weights [n_at].  step: of wave (A)."""
    half = int(6.0 * sigma / step) + 2
    centre = np.rint((at - wave[0]) / (wave[1] - wave[0])).astype(int)
    sums, total = np.zeros((len(values), len(at))), np.zeros(len(at))
    for k in range(-half, half + 1):
        j = centre + k
        inside = (j >= 0) & (j < len(wave))
        j = np.clip(j, 0, len(wave) - 1)
        w = np.where(inside, np.exp(-0.5 * ((wave[j] - at) / sigma) ** 2), 0.0) * step
        total += w
        for s, v in zip(sums, values):
            s += w * v[j]
    return sums, total


def join(pieces, grid=plan.FGK):
    """Join the pieces: return vacuum wavelengths, smoothed flux and continuum; check overlaps."""
    step, sigma, ranges = grid.STEP_AA, grid.SIGMA_AA, grid.PIECES
    at = np.concatenate([first + step * np.arange(round((last - first) / step) + 1)
                         for first, last in grid.STORED])
    sums, total = np.zeros((2, len(at))), np.zeros(len(at))
    for i, (wave, flux, cont) in enumerate(pieces):
        first, last, computed_step, _ = ranges[i]
        follows = i > 0 and ranges[i - 1][1] == first
        goes_on = i + 1 < len(pieces) and ranges[i + 1][0] == last
        if follows:
            check_overlap(pieces[i - 1], pieces[i], first, sigma)
        keep = (wave >= first - 0.5 * computed_step) | (not follows)
        keep &= (wave < last - 0.5 * computed_step) | (not goes_on)
        wave_vacuum = vacuum(wave[keep])
        low, high = wave_vacuum[0] - 7 * sigma, wave_vacuum[-1] + 7 * sigma
        near = np.flatnonzero((at > low) & (at < high))
        s, t = smooth(wave_vacuum, (flux[keep], cont[keep]), computed_step, at[near], sigma)
        sums[:, near] += s
        total[near] += t
    expected = sigma * np.sqrt(2 * np.pi)
    if np.abs(total / expected - 1).max() > 0.1:  # where pieces meet, up to half a step is missing
        raise BadModel("the pieces do not cover all wavelengths")
    return at, sums[0] / total, sums[1] / total


def check_overlap(before, after, edge, sigma):
    """Refuse pieces whose smoothed flux or continuum differs within 1 A of their common edge."""
    at = np.linspace(edge - 1.0, edge + 1.0, 5)
    values = []
    for wave, flux, cont in (before, after):
        s, t = smooth(wave, (flux, cont), wave[1] - wave[0], at, sigma)
        values.append(s / t)
    worst = (np.abs(values[1] - values[0]) / values[0][1]).max()
    need(worst <= 0.02, BadModel,
         "the spectrum's pieces that meet at %g A differ by %.1f %% of the continuum, expected at "
         "most 2 %%" % (edge, 100 * worst))


def check(labels, at, flux, cont, grid=plan.FGK):
    """Refuse an implausible spectrum; return the share of sigma Teff^4 emitted in range."""
    most = (flux / cont).max()
    need(most <= 1.02, BadModel,
         f"flux is {most:.3f} of the continuum after smoothing, expected at most 1.02")
    share, (low, high) = np.sum(flux) * grid.STEP_AA / (STEFAN * labels[0] ** 4), grid.LIGHT
    need(low < share < high, BadModel,
         "the flux of all pixels is %.2f of sigma Teff^4, expected %g to %g" % (share, low, high))
    ratio = np.median(flux / cont)
    need(0.3 < ratio < 1.005, BadModel, "median flux / continuum %.3f, not 0.3 to 1.005" % ratio)
    return share


def write(path, labels, at, flux, cont, grid, origin):
    from astropy.io import fits
    table = fits.BinTableHDU.from_columns([
        fits.Column("WAVE", "D", "Angstrom", array=at),
        fits.Column("FLUX", "E", "erg/s/cm2/Angstrom", array=flux),
        fits.Column("CONTINUUM", "E", "erg/s/cm2/Angstrom", array=cont)], name="SPECTRUM")
    cards = [
        *zip(plan.CARDS, labels, ("[K]", "[log10(cm/s2)]", "[dex]", "[dex]")),
        *((e[0], x_fe, "[dex]") for e, x_fe in zip(plan.ELEMENTS, labels[4:])),
        ("VMICRO", vmicro_of(labels), "[km/s] microturbulence"),
        ("SPHERIC", is_spherical(labels, grid), "spherical transfer"),
        ("MEDIUM", "vacuum", "wavelengths"),
        ("FWHM", round(grid.SIGMA_AA * FWHM_PER_SIGMA, 6), "[Angstrom] Gaussian"),
        ("STEP", grid.STEP_AA, "[Angstrom]"), *origin]
    table.header.update(cards)
    fits.HDUList([fits.PrimaryHDU(header=fits.Header(cards)), table]).writeto(path, overwrite=True)


def compute(work, labels, part, grid, origin):
    """Compute a model and write it to the file `part`; return the share of its light in range."""
    at, flux, cont = join(synthesize(work, labels, grid), grid)
    share = check(labels, at, flux, cont, grid)
    write(part, labels, at, flux, cont, grid, origin)
    return share
