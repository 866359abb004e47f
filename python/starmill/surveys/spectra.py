# SPDX-License-Identifier: BSD-3-Clause
"""Reads the spectra of a result's stars from its inputs, and matches them with the fit's models.
A channel is one spectrum of one exposure; it matches a model with the same wavelengths."""

import collections
import os
import re

import numpy as np

from starmill.cli.basics import INPUT, Failure, as_failure, need
from starmill.products.result import text
from starmill.templates import library_file
from starmill.wavelength import doppler

Channel = collections.namedtuple("Channel", "name wave flux ivar bad")  # wave: vacuum, Angstrom
Arm = collections.namedtuple("Arm", "name wave flux ivar bad model")  # model None: no model stored

MAX_OPEN = 4  # input files open at once
NEAR = 0.01  # of a pixel: wavelengths that differ by less are the same


class SpectraFile:
    """An input file in any format of a fit; no library is needed.  config: YAML text."""

    def __init__(self, path, config):
        from starmill import binding  # 0.1 s
        self._c, handle = binding, binding.ffi.new("starmill_channels **")
        self._call("open", os.fsencode(path), config.encode(), handle)
        self._handle = binding.ffi.gc(handle[0], binding.lib.starmill_channels_close)
        self.unit = ""

    def _call(self, function, *arguments):
        with as_failure(INPUT, "", self._c.StarmillError):
            self._c.call(getattr(self._c.lib, f"starmill_channels_{function}"), *arguments)

    def channels(self, exposure, ignored):
        """Return the Channels of exposure number `exposure`; set self.unit to their flux unit (""
        if unknown).  ignored: mask bits that do not make a pixel bad."""
        n, one = self._c.ffi.new("int *"), self._c.ffi.new("starmill_spectrum *")
        self._call("read", self._handle, exposure, n)
        found = []
        for i in range(n[0]):
            self._call("at", self._handle, i, one)
            wave = self._c.copied(one.wave, one.n_pix, "f8")
            flux, ivar = (self._c.copied(pointer, one.n_pix, "f4").astype(float)
                          for pointer in (one.flux, one.ivar))
            self.unit = self._c.text(one.flux_unit)
            bad = ~np.isfinite(flux) | ~(ivar > 0) | ~np.isfinite(ivar)
            if one.mask != self._c.ffi.NULL:
                mask = self._c.copied(one.mask, one.n_pix, "u4").astype("i8")
                bad |= mask & ~np.int64(ignored) != 0
            found.append(Channel(self._c.text(one.name), wave, flux, np.where(bad, 0.0, ivar), bad))
        return found


class Inputs:
    """The input files of a result; at most MAX_OPEN are open."""

    def __init__(self, result, library=None):
        self.result = result
        self.errors = model_errors(result, library)
        self.formats = [v.decode() for v in result.catalog["files/FORMAT"][...]]
        self.ignored = result.setting("mask_ignore") or 0
        self.opened, self.units = collections.OrderedDict(), {}

    def unit(self, row):
        """Return the unit of a row's flux, "" if unknown."""
        i, number = self.result.exposures(row)[0]
        if i not in self.units:
            self.channels(i, number)
        return self.units[i]

    def channels(self, i, number):
        """Return the Channels of exposure `number` of input file i."""
        if i not in self.opened:
            path = self.result.unchanged_input(i)
            if len(self.opened) == MAX_OPEN:
                self.opened.popitem(last=False)
            self.opened[i] = SpectraFile(path, re.sub(
                r"(?m)^format: .*", f"format: {self.formats[i]}", self.result.provenance["CONFIG"]))
        channels = self.opened[i].channels(number, self.ignored)
        for c in channels:
            for low, high in self.result.setting("wave_mask") or []:
                c.bad[(c.wave > low) & (c.wave < high)] = True
        self.units[i] = self.opened[i].unit
        return channels

    def star(self, row, models):
        """Return a row's Arms, sorted by wavelength, and a note on the exposures used.  Exposures
        of lower S/N add only arms, or parts of an arm, that exposures of higher S/N lack.
        models: [{arm: (wavelengths, fluxes)}] by exposure; None: each channel counts as an arm."""
        exposures = self.result.exposures(row)
        need(exposures, INPUT, f"row {row} of {self.result.path} has no exposure")
        found, n_inner = [], collections.Counter()
        edge = self.formats[exposures[0][0]] == "desi" and self.result.setting("edge_pix") or 0
        for k, (i, number) in enumerate(exposures):
            channels = self.channels(i, number)
            arms = [Arm(*c, None) for c in channels] if models is None else \
                matched(channels, models[k], self.result.input_path(i))
            if arms:
                found.append((max(median_sn(a.flux, a.ivar) for a in arms), k, arms))
            for a in arms:
                n_inner[a.name] += np.count_nonzero(~a.bad[edge:a.bad.size - edge])
        need(found, INPUT, f"row {row} of {self.result.path} has no "
             f"{'spectrum' if models is None else 'model'} in any exposure")
        (_, k, arms), *rest = sorted(found, reverse=True)
        note = f"exposure {k + 1} of {len(exposures)}, the best" if len(exposures) > 1 else ""
        for _, _, others in rest:
            more = [a for a in others if not any(  # WEAVE's cameras may have one arm
                b.name == a.name and b.wave[0] <= np.median(a.wave) <= b.wave[-1] for b in arms)]
            if more:
                note = f"{len(exposures)} exposures, the best of each arm"
                arms = arms + more
        fits = self.result.fits
        vrad = float(fits["VRAD"][row])
        errors = self.errors.get(int(fits["LIBRARY"][row]) if "LIBRARY" in fits else 1, {})
        for a in arms:  # NPIX tells whether the fit left out the ends, as with a resolution matrix
            if edge and models and fits["NPIX_" + a.name.upper()][row] <= n_inner[a.name]:
                a.bad[:edge] = a.bad[max(a.bad.size - edge, 0):] = True
        arms = [weighted(a, self.result.setting("sigma_floor") or 0.0, vrad, errors) for a in arms]
        return sorted(arms, key=lambda a: a.wave[0]), note


def median_sn(flux, ivar):
    """Return the S/N of an arm as in SN_*; -inf without a good pixel.  ivar: 0 of bad pixels."""
    good = ivar > 0
    return float(np.median(flux[good] * np.sqrt(ivar[good]))) if good.any() else -np.inf


def weighted(arm, floor, vrad, errors):
    """Return an arm with the ivar that the fit used: errors are at least floor (key sigma_floor)
    times their median, and include the model error.  errors: result of arms_with_error."""
    ivar = np.where(arm.bad, 0.0, arm.ivar)
    if floor > 0 and not arm.bad.all():
        ivar = np.minimum(ivar, np.median(ivar[~arm.bad]) / floor**2)
    if arm.name in errors and arm.model is not None and np.isfinite(vrad):
        ivar = ivar / (1 + ivar * (fraction_at(errors[arm.name], arm.wave, vrad) * arm.model) ** 2)
    return arm._replace(ivar=ivar)


def model_errors(result, library):
    """Return {value in column LIBRARY: arms_with_error of this library}; {} for a fit without model
    error.  library: path of the result's only library; None: the paths in the result."""
    if result.setting("model_error") not in (True, "true"):
        return {}
    hashes = text(result.fits["LIBRARY"].attrs["HASHES"]).split() if "LIBRARY" in result.fits \
        else [result.provenance["LIBRARY_HASH"]]
    if len(hashes) > 1:
        library = None
    names = {a.lower() for a in result.arms}
    return {code: arms_with_error(names, library or path, hashes)
            for code, (_, path) in result.libraries.items()}


def arms_with_error(names, path, hashes):
    """Return {arm name: Arm of the library} for the arms with a model error.  Return {} if the file
    at path is not a library of the fit, whose `hashes` the result has.  names: arms of the fit."""
    try:
        found = library_file.read(path)
    except (Failure, OSError):
        return {}
    if found.hash not in hashes:
        return {}
    arms = {arm.name: arm for arm in found.arm if arm.error is not None}
    if len(found.arm) == 1 and arms:  # the fit cut a library's only arm into cameras
        arms |= {name: found.arm[0] for name in names}
    return arms


def fraction_at(arm, wave, vrad):
    """Return the rms model error of pixels, as a fraction of the model.  arm: the library's."""
    at = wave * doppler(-vrad)
    found = arm.white_error(at, np.gradient(np.log(wave))) ** 2
    if arm.error.component is not None:
        shares = ((arm.error.component * arm.error.sigma[:, None]) ** 2).sum(axis=0)
        found += np.interp(at, arm.wave_aa, shares)
    return np.sqrt(found)


def matched(channels, models, path):
    """Return the Arms of one exposure: the channels' pixels that have a model."""
    arms = []
    for name, (wave, model) in models.items():
        known = np.isfinite(wave) & np.isfinite(model)
        wave, model = wave[known], model[known].astype(float)
        # try the arm's own channel first: DESI's arms have equal wavelengths where they overlap
        unused = sorted(channels, key=lambda c: c.name != name)
        while len(wave):  # the model of an arm may span several channels
            at, c = max(((pixels(c.wave, wave), c) for c in unused), key=lambda p: len(p[0]),
                        default=((), None))
            n, unused = len(at), [other for other in unused if other is not c]
            need(n, INPUT, f"{path} changed: no spectrum has the wavelengths of arm {name}'s model")
            arms.append(Arm(name, c.wave[at], c.flux[at], c.ivar[at], c.bad[at], model[:n]))
            wave, model = wave[n:], model[n:]
    return arms


def pixels(have, wanted):
    """Return the indices in `have` of the wavelengths `wanted`.  Stop at the first one that `have`
    lacks, or whose index does not ascend."""
    if len(have) < 2:
        return []
    at = np.clip(np.searchsorted(have, wanted), 1, len(have) - 1)
    at -= wanted - have[at - 1] < have[at] - wanted
    good = np.abs(have[at] - wanted) <= NEAR * np.gradient(have)[at]
    good[1:] &= np.diff(at) > 0
    return at[:len(at) if good.all() else np.argmin(good)]
