# SPDX-License-Identifier: BSD-3-Clause
"""Spectra of a result's stars as their files have them, put beside the models of the fit.

Formats are those of docs/use/input.md.  A channel is one spectrum of one exposure; the wavelengths
of a model say which of its pixels were fitted, and these must be there to a hundredth of a pixel.
"""

import collections

import numpy as np
from astropy.io import fits as pyfits

from starmill.cli.basics import INPUT, Failure
from starmill.products.result import text
from starmill.templates import library_file
from starmill.wavelength import C_KM_S, doppler, vacuum

Channel = collections.namedtuple("Channel", "name wave flux ivar bad")  # wave: vacuum, Angstrom
Arm = collections.namedtuple("Arm", "name wave flux ivar bad model")  # model None: there is none

SDSS_BAD = sum(1 << bit for bit in (0, 1, 2, 3, 4, 5, 18, 22, 23, 25, 26, 27, 28))
MAX_OPEN = 4
NEAR = 0.01  # of a pixel


def channel(name, wave, flux, ivar, mask, air):
    """bad: by value, ivar or mask; mask: integers or truth values, None: there is none."""
    wave, flux, ivar = (np.asarray(v, dtype=float) for v in (wave, flux, ivar))
    bad = ~np.isfinite(flux) | ~(ivar > 0) | ~np.isfinite(ivar)
    if mask is not None:
        bad |= np.asarray(mask) != 0
    if (np.diff(wave) < 0).all():
        wave, flux, ivar, bad = (v[::-1] for v in (wave, flux, ivar, bad))
    return Channel(name, vacuum(wave) if air else wave, flux, np.where(bad, 0.0, ivar), bad)


def kept_bits(mask, ignored):
    """The bits of a mask that make a pixel bad."""
    return np.asarray(mask).astype(np.int64) & ~np.int64(ignored)


# --- formats: (open file, number of the exposure, medium, ignored mask bits) ---------------


def read_desi(file, row, medium, ignored):
    found = []
    for hdu in file:
        if hdu.name.endswith("_FLUX"):
            arm = hdu.name[:-5]
            mask = kept_bits(file[f"{arm}_MASK"].section[row], ignored) \
                if f"{arm}_MASK" in file else None
            found.append(channel(arm.lower(), file[f"{arm}_WAVELENGTH"].data, hdu.section[row],
                                 file[f"{arm}_IVAR"].section[row], mask, medium == "air"))
    return found


def is_air(medium, said):
    """Return whether wavelengths are in air: by the key medium, else as the file said."""
    return medium == "air" or (medium != "vacuum" and said)


def angstrom(wave, unit):
    return wave * {"nm": 10.0, "um": 1e4, "m": 1e10}.get(unit.strip(), 1.0)


BOSS = ("BOSS/APO", "BOSS/LCO")


def read_mwm(file, number, medium, ignored):
    """Of Astra: spectra at rest, which are moved back."""
    rows = [(hdu, i) for hdu in file if hdu.name in BOSS for i in range(hdu.header["NAXIS2"])]
    hdu, i = rows[number]
    row, head = hdu.data[i], hdu.header
    names = {n.lower() for n in hdu.columns.names}
    vel = float(row["xcsao_v_rad" if "in_stack" in names else "v_rad"])
    if "in_stack" in names and not (row["in_stack"] and np.isfinite(vel)):
        vel = 0.0
    wave = head["CRVAL"] + head["CDELT"] * (np.arange(len(row["flux"])) + 1 - head.get("CRPIX", 1))
    mask = kept_bits(row["pixel_flags"], ignored) & SDSS_BAD & ~(1 << 18 | 1 << 25)
    return [channel("coadd", 10.0**wave / (1 - vel / C_KM_S), row["flux"], row["ivar"], mask,
                    medium == "air")]


def read_sdss(file, i_hdu, medium, ignored):
    if any(hdu.name in BOSS for hdu in file):
        return read_mwm(file, i_hdu, medium, ignored)
    coadd = file[i_hdu].name == "COADD"
    joined = coadd or file[i_hdu].name.startswith("MJD_EXP_")
    # the cameras of one exposure have its number in their names
    same = [i_hdu] if joined else [i for i, h in enumerate(file)
                                  if h.name[2:11] == file[i_hdu].name[2:11]]
    found = []
    for i in same:
        table = file[i].data
        mask = kept_bits(table["and_mask" if joined else "mask"], ignored) & SDSS_BAD
        header = file[0].header if coadd else file[i].header
        found.append(channel("coadd" if joined else file[i].name[0].lower(),
                             10.0 ** np.asarray(table["loglam"], dtype=float), table["flux"],
                             table["ivar"], mask, is_air(medium, header.get("VACUUM") is False)))
    return found


def read_lamost(file, _, medium, ignored):
    if "COADD" in file:
        row = file["COADD"].data[0]
        flux, ivar, wave, mask = (row[k] for k in ("FLUX", "IVAR", "WAVELENGTH", "ANDMASK"))
    else:
        flux, ivar, wave, mask = file[0].data[:4]
        head = file[0].header
        if "Subcontinuum" in head.get("EXTEN0", ""):  # DR1
            wave = 10.0 ** (head["COEFF0"] + head["COEFF1"] * np.arange(len(flux)))
    return [channel("coadd", wave, flux, ivar, kept_bits(mask, ignored),
                    is_air(medium, file[0].header.get("VACUUM") is False))]


def read_lamost_mrs(file, i_hdu, medium, ignored):
    _, _, number = file[i_hdu].name.partition("-")  # COADD_B, COADD_R have none
    start = ("B-" + number, "R-" + number) if number else ("COADD_B", "COADD_R")
    found = []
    for hdu in file:
        if hdu.name in start:
            names, data = hdu.columns.names, {n: np.ravel(hdu.data[n]) for n in hdu.columns.names}
            wave = 10.0 ** data["LOGLAM"].astype(float) if "LOGLAM" in names else data["WAVELENGTH"]
            mask = data["PIXMASK" if number else "ANDMASK"]
            found.append(channel("b" if "B" in hdu.name else "r", wave, data["FLUX"], data["IVAR"],
                                 kept_bits(mask, ignored),
                                 is_air(medium, file[0].header.get("VACUUM") is False)))
    return found


def read_weave(file, row, medium, _):
    found = []
    for arm in ("BLUE", "GREEN", "RED"):
        if f"{arm}_DATA" not in file:
            continue
        data = file[f"{arm}_DATA"]
        head = data.header
        step = head.get("CD1_1", head.get("CDELT1"))
        wave = head["CRVAL1"] + (np.arange(head["NAXIS1"]) + 1 - head["CRPIX1"]) * step
        wave = angstrom(wave, head.get("CUNIT1", ""))
        sens = file[f"{arm}_SENSFUNC"]
        sens = np.asarray(sens.section[row] if sens.header["NAXIS"] == 2 else sens.data, float)
        ok = np.isfinite(sens) & (sens > 0)
        scale = np.where(ok, sens, np.nan)
        if np.nanmedian(scale) < 1e-10:
            scale = scale * 1e17
        air = is_air(medium, head.get("CTYPE1", "").strip() == "AWAV")
        found.append(channel(arm.lower(), wave, data.section[row] * scale,
                             file[f"{arm}_IVAR"].section[row] / scale**2, ~ok, air))
    return found


def read_fourmost(file, row, medium, ignored):
    single = "SPECTAB" not in file
    table = next(file[name] for name in ("SPECTAB", "PHASE3SPECTRUM", "SPECTRUM") if name in file)
    head, names = table.header, [n.upper() for n in table.columns.names]
    at = names.index("WAVE" if single else "FLUX") + 1
    data = {n: np.ravel(table.data[n][row]).astype(float) for n in names
            if n in ("WAVE", "FLUX", "FLUX_IVAR", "ERR_FLUX", "QUAL")}
    if single:
        wave, unit, kind = data["WAVE"], head[f"TUNIT{at}"], head.get(f"TUCD{at}", "")
    else:
        wave = np.arange(1.0, data["FLUX"].size + 1) - head.get(f"1CRPX{at}", 1.0)
        wave = head[f"1CRVL{at}"] + wave * head[f"1CDLT{at}"]
        unit, kind = head[f"1CUNI{at}"], head.get(f"1CTYP{at}", "")
    wave = angstrom(wave, unit)
    with np.errstate(all="ignore"):
        ivar = data.get("FLUX_IVAR", 1 / data.get("ERR_FLUX", np.nan) ** 2)
        good = ivar[np.isfinite(ivar) & (ivar > 0)]
        scale = 1e17 if good.size and np.median(good) > 1e20 else 1.0
    air = is_air(medium, "obs.atmos" in kind or kind.strip() == "AWAV")
    cuts = np.flatnonzero(np.diff(wave) > 50) + 1
    found = []
    for part in np.split(np.arange(wave.size), cuts):
        first, last = wave[part[0]], wave[part[-1]]
        name = ("joined" if last - first > 3000 else
                "blue" if first < 4600 else "green" if first < 5800 else "red")
        flux, weight = data["FLUX"][part] * scale, ivar[part] / scale**2
        found.append(channel(name, wave[part], flux.astype("f4"), weight.astype("f4"),
                             kept_bits(data["QUAL"][part], ignored), air))
    return found


PFS_BAD = ("BAD", "SAT", "CR", "SUSPECT", "NO_DATA", "UNMASKEDNAN", "BAD_FLAT", "BAD_SKY",
           "BAD_FLUXCAL")


def read_pfs(file, _, medium, ignored):
    head, mask = file["FLUX"].header, file["MASK"]
    flux = file["FLUX"].data.astype(float)
    if "WAVELENGTH" in file:
        wave = angstrom(file["WAVELENGTH"].data.astype(float), "nm")
    else:  # the first pixel has number 2
        wave = np.arange(len(flux)) + 2 - head["CRPIX1"]
        wave = angstrom(head["CRVAL1"] + head["CDELT1"] * wave, head["CUNIT1"])
    bad = sum(1 << mask.header["MP_" + name] for name in PFS_BAD if "MP_" + name in mask.header)
    with np.errstate(all="ignore"):
        ivar = 1 / file["COVAR"].data[0].astype(float)
    return [channel("pfs", wave, flux, ivar, kept_bits(mask.data, ignored) & bad,
                    is_air(medium, head.get("CTYPE1", "").strip() == "AWAV"))]


def read_generic(file, first, medium, ignored):
    table = file["SPECTRA"]
    names = {n.upper(): n for n in table.columns.names}
    head, data = table.header, table.data
    same = np.asarray(data[names["NAME"]]) == data[names["NAME"]][first]
    if "EXPOSURE" in names:
        same &= np.asarray(data[names["EXPOSURE"]]) == data[names["EXPOSURE"]][first]
    found = []
    for row in np.flatnonzero(same):
        if "WAVELENGTH" in names:
            wave, unit = data[names["WAVELENGTH"]][row], table.columns[names["WAVELENGTH"]].unit
        else:
            hdu = file["WAVELENGTH"]
            is_image = hdu.header.get("XTENSION", "IMAGE").strip() == "IMAGE"
            wave = hdu.data if is_image else hdu.data["WAVELENGTH"]
            unit = hdu.header["BUNIT"] if is_image else hdu.columns["WAVELENGTH"].unit
        wave = np.ravel(np.asarray(wave, float)) * {"nm": 10.0, "um": 1e4}.get(unit.strip(), 1.0)
        ivar = (np.asarray(data[names["IVAR"]][row], float) if "IVAR" in names
                else np.asarray(data[names["ERROR"]][row], float))
        if "IVAR" not in names:
            ivar = np.where(ivar > 0, 1 / np.where(ivar > 0, ivar, 1.0) ** 2, 0.0)
        mask = kept_bits(data[names["MASK"]][row], ignored) if "MASK" in names else None
        arm = str(data[names["ARM"]][row]).strip() if "ARM" in names else "spectrum"
        air = is_air(medium, str(head.get("MEDIUM", "")).strip().lower() == "air")
        found.append(channel(arm, wave, data[names["FLUX"]][row], ivar, mask, air))
    return found


READ = {"desi": read_desi, "sdss": read_sdss, "lamost": read_lamost, "lamost-mrs": read_lamost_mrs,
        "weave": read_weave, "4most": read_fourmost, "pfs": read_pfs,
        "generic": read_generic}


# --- stars ----------------------------------------------------------------------------------


class Inputs:
    """The input files of a result, a few of them open."""

    def __init__(self, result, library=None):
        self.result = result
        self.errors = model_errors(result, library)
        self.formats = [v.decode() for v in result.catalog["files/FORMAT"][...]]
        self.medium = result.setting("medium")
        self.ignored = result.setting("mask_ignore") or 0
        self.opened = collections.OrderedDict()

    def _file(self, i):
        if i not in self.opened:
            path = self.result.unchanged_input(i)
            if len(self.opened) == MAX_OPEN:
                self.opened.popitem(last=False)[1].close()
            try:
                self.opened[i] = pyfits.open(path)
            except OSError as error:
                raise Failure(INPUT, f"{path} cannot be read: {error}") from error
        return self.opened[i]

    def channels(self, i, number):
        """Of one exposure."""
        file = self._file(i)
        try:
            return READ[self.formats[i]](file, number, self.medium, self.ignored)
        except (KeyError, IndexError, ValueError, TypeError, OSError) as error:
            raise Failure(INPUT, f"{self.result.input_path(i)} cannot be read as "
                                 f"{self.formats[i]}: {error}") from error

    def star(self, row, models):
        """(its arms in the order of wavelength, a note): of the exposure with the highest S/N, and
        arms that it lacks, as WEAVE's files of one arm do, of the next ones.

        models: {arm: (wavelengths, fluxes)} by exposure; None: there is none, and the arms are
        the channels as they are.
        """
        exposures = self.result.exposures(row)
        if not exposures:
            raise Failure(INPUT, f"row {row} of {self.result.path} has no exposure")
        found = []
        for k, (i, number) in enumerate(exposures):
            channels = self.channels(i, number)
            arms = [Arm(*c, None) for c in channels] if models is None else \
                matched(channels, models[k], self.result.input_path(i))
            if arms:
                found.append((sum(float((a.flux**2 * a.ivar).sum()) for a in arms if a.ivar.any()),
                              k, arms))
        if not found:
            raise Failure(INPUT, f"row {row} of {self.result.path} has no model in any exposure")
        found.sort(reverse=True)
        _, k, arms = found[0]
        note = f"exposure {k + 1} of {len(exposures)}, the best" if len(exposures) > 1 else ""
        for _, _, others in found[1:]:
            names = {a.name for a in arms}
            more = [a for a in others if a.name not in names]
            if more:
                note = f"{len(exposures)} exposures, the best of each arm"
                arms = arms + more
        vrad = float(self.result.fits["VRAD"][row])
        fits = self.result.fits
        errors = self.errors.get(int(fits["LIBRARY"][row]) if "LIBRARY" in fits else 1, {})
        return sorted((self.marked(a, vrad, errors) for a in arms), key=lambda a: a.wave[0]), note

    def marked(self, arm, vrad, errors):
        """With the pixels bad that the configuration masks, and the errors of the fit: no smaller
        than its floor, and with the library's model error."""
        bad = arm.bad.copy()
        for low, high in self.result.setting("wave_mask") or []:
            bad |= (arm.wave > low) & (arm.wave < high)
        ivar = np.where(bad, 0.0, arm.ivar)
        floor = self.result.setting("sigma_floor") or 0.0
        if floor > 0 and not bad.all():
            ivar = np.minimum(ivar, np.median(ivar[~bad]) / floor**2)
        if arm.name in errors and arm.model is not None and np.isfinite(vrad):
            fraction = fraction_at(errors[arm.name], arm.wave, vrad)
            ivar = ivar / (1 + ivar * (fraction * arm.model) ** 2)
        return arm._replace(bad=bad, ivar=ivar)


def model_errors(result, library):
    """{library of the fit: {arm: that of the library with its model error}}; none where the fit
    counts none, or a library is not there any more.  library: where an only one is."""
    if result.setting("model_error") not in (True, "true"):
        return {}
    hashes = text(result.fits["LIBRARY"].attrs["HASHES"]).split() if "LIBRARY" in result.fits \
        else [result.provenance["LIBRARY_HASH"]]
    if len(hashes) > 1:
        library = None
    return {code: arms_with_error(result, library or path, hashes)
            for code, (_, path) in result.libraries.items()}


def arms_with_error(result, path, hashes):
    try:
        found = library_file.read(path)
    except (Failure, OSError):
        return {}
    if found.hash not in hashes:
        return {}
    arms = {arm.name: arm for arm in found.arm if arm.error is not None}
    names = {a.lower() for a in result.arms} - {arm.name for arm in found.arm}
    if len(found.arm) == 1 and arms:  # one that was cut into cameras
        arms |= {name: found.arm[0] for name in names}
    return arms


def fraction_at(arm, wave, vrad):
    """The standard deviation of a model error in pixels of a star, as a part of the model."""
    at = wave * doppler(-vrad)
    found = arm.white_error(at, np.gradient(np.log(wave))) ** 2
    if arm.error.component is not None:
        shares = ((arm.error.component * arm.error.sigma[:, None]) ** 2).sum(axis=0)
        found += np.interp(at, arm.wave_aa, shares)
    return np.sqrt(found)


def pieces(wave):
    """Slices of spectra that stand one after the other: their wavelengths begin again."""
    ends = [0, *(np.flatnonzero(np.diff(wave) < 0) + 1), len(wave)]
    return [slice(a, b) for a, b in zip(ends[:-1], ends[1:])]


def matched(channels, models, path):
    """The pixels of the channels that the models of one exposure are of."""
    arms = []
    for name, (wave, model) in models.items():
        known = np.isfinite(wave) & np.isfinite(model)
        wave, model = wave[known], model[known]
        if not len(wave):
            continue
        for piece in pieces(wave):
            # first the channel of the arm's name: DESI's arms overlap on one grid
            order = sorted(channels, key=lambda c: c.name != name)
            for c in order:
                at = pixels(c.wave, wave[piece])
                if at is not None and not any(a.wave is c.wave for a in arms):
                    arms.append(Arm(name, c.wave[at], c.flux[at], c.ivar[at], c.bad[at],
                                    model[piece].astype(float)))
                    break
            else:
                raise Failure(INPUT, f"{path} has no spectrum with the wavelengths of the model of "
                                     f"arm {name}: it is another file now")
    return arms


def pixels(have, wanted):
    """Where the wanted wavelengths are; None: one of them is not there."""
    if len(have) < 2:
        return None
    at = np.clip(np.searchsorted(have, wanted), 1, len(have) - 1)
    at -= wanted - have[at - 1] < have[at] - wanted
    step = np.gradient(have)[at]
    return at if (np.abs(have[at] - wanted) <= NEAR * step).all() else None
