"""Make src/line_model/line_list.inc, the line model's list of spectral lines.

usage: make_line_list.py LINEMAKE_DIR GALAH_FILE CH_FILE BARKLEM_FILE OUTPUT.inc [--lines N]

LINEMAKE_DIR  the folder mooglists/ of the public repository github.com/vmplacco/linemake
              (Placco et al. 2021, RNAAS 5, 92; our copy: commit 61af45bd).  Read from it:
                moogatom03000 ... moogatom10000  R. L. Kurucz's atomic lines
                goodgf                           laboratory log gf, hyperfine parts summed
              Rows there: air wavelength, Z.charge, excitation / eV, log gf.
GALAH_FILE    galah_dr3_linelist.h5 in data/linelists/GALAH_DR3/ of the public repository
              github.com/ajwheeler/Korg.jl (our copy: commit 740343f7): the lines of the GALAH
              survey's third release (Buder et al. 2021, MNRAS 506, 150), 4713 to 7890 A, mostly
              from the Vienna Atomic Line Database and the Gaia-ESO Survey (Heiter et al. 2021,
              A&A 645, A106).  Datasets used: wl (vacuum A), formula, ionization, E_lo, log_gf.
CH_FILE       chmasseron_corrected.asc.gz in data/linelists/ of the public repository
              github.com/Roman-UCSD/BasicATLAS (our copy: commit fd0e3673): CH of Masseron et al.
              2014, A&A 571, A47, without the mistaken strong lines that other copies have (in
              linemake too: log gf up to 1 from 4400 to 5900 A).  Columns used: log gf, energies of
              the two levels / cm-1, carbon isotope.
BARKLEM_FILE  Barklem.dat of the public repository github.com/alexji/moog17scat (our
              copy: commit db8e563d): broadening by hydrogen after Anstee, Barklem &
              O'Mara (Barklem et al. 2000, A&AS 142, 467; Barklem & Aspelund-Johansson
              2005, A&A 435, 373) and from Kurucz.  Columns used: air wavelength,
              Z.charge, log10 of the full width per hydrogen atom at 10,000 K.
--lines N     how many lines to keep (8000)

Only numbers are taken.  What is done with them: docs/science/line-model.md, "Line list".
"""

import argparse
import gzip
import os
import re
import sys

import h5py
import numpy as np

MIN_WAVE_AA, MAX_WAVE_AA = 3400.0, 10100.0  # vacuum: the range of the line model
# Metal lines beyond both ends still reach in with their wings.
MARGIN_AA = 2.0
MIN_Z, MAX_Z = 3, 63
CH = 106  # as MILL_LINE_CH in src/line_model/line_list.h
EV_CM = 8065.544  # 1 eV in cm-1
# wavelength, log gf, J, level, J, level, 106, carbon isotope and label
CH_ROW = re.compile(
    r"\s*[\d.]+\s*(-?[\d.]+)\s+[\d.]+\s+(-?[\d.]+)\s+[\d.]+\s+(-?[\d.]+)\s+106\s+(12|13)"
)
# Neighbouring files overlap: what to take from each, air A.
ATOM_FILES = [(f"moogatom{k:05d}", k, k + 1000.0) for k in range(3000, 11000, 1000)]

# Parts of one transition lie closer than this (hyperfine splitting, isotope shift).
MERGE_AA = 0.02
MERGE_EV = 0.005
# In CH these are the two Lambda components and the spin doublets, which pixels never part.
MERGE_CH_EV = 0.02
# A curated or a GALAH line replaces a line of Kurucz's within these.
SAME_AA = 0.03
SAME_EV = 0.03
# Two entries of the curated list are one line within these.
TWICE_AA = 0.01
# The list of GALAH gives hyperfine parts, up to this far apart and with one excitation.
SPREAD_AA = 0.1
SPREAD_EV = 0.0005
TWICE_EV = 0.005

# Ratio of opacities at which a line has half of its full depth, and equivalent width of a line of
# full depth: a scale set by a dozen solar lines of 5 to 100 mA, which it meets to 40 %.
HALF_ETA = 4.0
WIDTH_KM_S = 4.6
# Crowding is counted in blocks of this width.
BLOCK_AA = 10.0

# Z, solar log abundance (Asplund et al. 2009, ARA&A 47, 481), ionisation energy / eV, partition
# functions of the atom and the ion at 5000 K (Barklem & Collet 2016, A&A 588, A96).  They serve
# only to rank lines here; the model has its own.
ELEMENTS = """
3 Li 1.05 5.39 2.1 1.0
4 Be 1.38 9.32 1.0 2.0
5 B 2.70 8.30 6.0 1.0
6 C 8.43 11.26 9.2 5.9
7 N 7.83 14.53 4.0 8.8
8 O 8.69 13.62 8.9 4.0
9 F 4.56 17.42 5.8 8.6
11 Na 6.24 5.14 2.1 1.0
12 Mg 7.60 7.65 1.0 2.0
13 Al 6.45 5.99 5.9 1.0
14 Si 7.51 8.15 9.5 5.7
15 P 5.41 10.49 4.4 8.6
16 S 7.12 10.36 8.9 4.1
17 Cl 5.50 12.97 5.6 8.4
19 K 5.03 4.34 2.2 1.0
20 Ca 6.34 6.11 1.2 2.2
21 Sc 3.15 6.56 11.9 22.8
22 Ti 4.95 6.83 29.4 55.4
23 V 3.93 6.75 47.5 43.3
24 Cr 5.64 6.77 10.4 7.1
25 Mn 5.43 7.43 6.4 7.7
26 Fe 7.50 7.90 27.8 43.4
27 Co 4.99 7.88 33.6 29.9
28 Ni 6.22 7.64 30.9 10.8
29 Cu 4.19 7.73 2.3 1.0
30 Zn 4.56 9.39 1.0 2.0
31 Ga 3.04 6.00 5.2 1.0
32 Ge 3.65 7.90 7.5 4.4
37 Rb 2.52 4.18 2.3 1.0
38 Sr 2.87 5.69 1.2 2.2
39 Y 2.21 6.22 11.7 15.8
40 Zr 2.58 6.63 33.6 45.2
41 Nb 1.46 6.76 53.0 43.0
42 Mo 1.88 7.09 8.9 7.6
44 Ru 1.75 7.36 34.0 23.7
45 Rh 0.91 7.46 26.5 15.5
46 Pd 1.57 8.34 2.9 7.5
47 Ag 0.94 7.58 2.0 1.0
48 Cd 1.71 8.99 1.0 2.0
49 In 0.80 5.79 4.1 1.0
50 Sn 2.04 7.34 5.1 3.2
55 Cs 1.08 3.89 2.6 1.0
56 Ba 2.18 5.21 2.6 4.2
57 La 1.10 5.58 26.8 29.5
58 Ce 1.58 5.54 189.1 190.3
59 Pr 0.72 5.47 108.4 126.8
60 Nd 1.42 5.53 89.4 121.5
62 Sm 0.96 5.64 37.2 59.1
63 Eu 0.52 5.67 10.7 15.8
"""
ELEMENT = {
    int(row.split()[0]): [float(x) for x in row.split()[2:]]
    for row in ELEMENTS.strip().splitlines()
}

# Where lines form: temperature / K, log10 electron pressure and gas pressure / (dyn cm-2),
# log10 of p(C) p(H) / p(CH) / Pa and partition function of CH (both Barklem & Collet 2016), log10
# of the part of the carbon that is not in CO.  A dwarf of 4300 K, a giant, the Sun, a warm dwarf.
LAYERS = [
    (4300.0, -0.3, 5.0, 6.398, 1783.0, -1.0),
    (4000.0, -1.5, 3.6, 6.074, 1524.0, -1.0),
    (5200.0, 0.8, 4.8, 7.146, 2619.0, 0.0),
    (6500.0, 2.0, 4.6, 7.857, 4307.0, 0.0),
]

# Lithium: the two lists have the parts of its line, not all of them.  Sansonetti et al. 1995,
# Phys. Rev. A 52, 2682 (lithium 7) and Yan & Drake 1995, Phys. Rev. A 52, R4316.
LITHIUM = [(6707.764, 300, 0.0, -0.002), (6707.915, 300, 0.0, -0.303)]

# Lines that a survey looks for by name although they are weak: air wavelength, species.
WANTED = [(6707.764, 300), (6707.915, 300), (7771.944, 800), (7774.166, 800), (7775.388, 800)]


def refractive_index(wave_vac_aa):
    """Standard air, Ciddor 1996, Appl. Opt. 35, 1566."""
    s2 = (1e4 / np.asarray(wave_vac_aa, dtype=float)) ** 2
    return 1.0 + 5792105e-8 / (238.0185 - s2) + 167917e-8 / (57.362 - s2)


def vacuum(wave_air_aa):
    wave = np.asarray(wave_air_aa, dtype=float)
    for _ in range(4):
        wave = wave_air_aa * refractive_index(wave)
    return wave


def read_moog(path, low_aa, high_aa):
    """Air wavelength, species code as in src/line_model/line_list.h, excitation, log gf of the rows from
    low_aa up to high_aa."""
    rows = []
    with open(path) as file:
        for number, text in enumerate(file, 1):
            try:
                wave, code, e_low, log_gf = (float(text[i : i + 10]) for i in range(0, 40, 10))
            except ValueError:
                sys.exit(f"{path}:{number}: not four numbers of ten columns: {text.rstrip()}")
            z, charge = int(code), int(10.0 * (code - int(code)) + 0.01)
            if charge > 1 or z not in ELEMENT or z == LITHIUM[0][1] // 100:
                continue
            if low_aa <= wave < high_aa:
                rows.append((wave, 100 * z + charge, e_low, log_gf))
    return rows


def same_line(row, rows, e_tol_ev, wave_tol_aa):
    """Which of rows (arrays: wavelength, species, excitation, log gf) are the line row."""
    return (
        (rows[1] == row[1])
        & (np.abs(rows[0] - row[0]) < wave_tol_aa)
        & (np.abs(rows[2] - row[2]) < e_tol_ev)
    )


def curate(rows, curated):
    """Put the curated lines in the place of the same lines in rows."""
    old = np.array(rows).T
    drop = np.zeros(len(rows), dtype=bool)
    out = []
    n_replaced = 0
    for row in curated:
        # A few lines stand there twice, from an earlier and a later paper; the first is the later.
        if out and same_line(row, np.array(out[-8:]).T, TWICE_EV, TWICE_AA).any():
            continue
        wave = row[0]
        found = np.flatnonzero(same_line(row, old, SAME_EV, SAME_AA) & ~drop)
        if len(found):
            best = found[np.argmin(np.abs(old[0, found] - wave))]
            drop[best] = True
            n_replaced += 1
            # Some wavelengths of the curated list have two decimals only.
            if abs(100.0 * wave - round(100.0 * wave)) < 1e-6:
                wave = old[0, best]
        out.append((wave, *row[1:]))
    print(
        f"{len(out)} curated lines, {n_replaced} in the place of one of Kurucz's; "
        f"{len(curated) - len(out)} left out that stood there twice"
    )
    return [r for r, d in zip(rows, drop) if not d], out


def read_galah(path):
    """As read_moog, of the atomic lines, in air."""
    with h5py.File(path) as file:
        names = ["wl", "formula", "ionization", "E_lo", "log_gf"]
        wave, formula, charge1, e_low, log_gf = (file[name][:] for name in names)
    rows = []
    for w, (z, *others), c1, e, g in zip(wave, formula.tolist(), charge1.tolist(), e_low, log_gf):
        if not any(others) and z in ELEMENT and z != LITHIUM[0][1] // 100 and c1 in (1, 2):
            rows.append((float(w / refractive_index(w)), 100 * z + c1 - 1, float(e), float(g)))
    return rows


def read_ch(path):
    """As read_moog, of CH with carbon 12 (carbon 13 is 1 % of it), in air."""
    rows = []
    with gzip.open(path, "rt") as file:
        for number, text in enumerate(file, 1):
            found = CH_ROW.match(text)
            if not found:
                sys.exit(f"{path}:{number}: not a line of CH: {text.rstrip()}")
            log_gf, low_cm, high_cm, isotope = found.groups()
            low_cm, high_cm = sorted([float(low_cm), float(high_cm)])
            if isotope == "12":
                wave = 1e8 / (high_cm - low_cm)
                rows.append((wave / refractive_index(wave), CH, low_cm / EV_CM, float(log_gf)))
    return rows


def renew(rows, curated, galah):
    """Put the lines of GALAH in the place of the same lines in rows, unless curated has them."""
    old, better = np.array(rows).T, np.array(curated).T
    drop = np.zeros(len(rows), dtype=bool)
    out = []
    for row in galah:
        if not same_line(row, better, SAME_EV, SPREAD_AA).any():
            drop |= same_line(row, old, TWICE_EV, SPREAD_AA) | same_line(row, old, SAME_EV, SAME_AA)
            out.append(row)
    print(f"{len(out)} GALAH lines, {drop.sum()} of Kurucz's left out for them")
    return [r for r, d in zip(rows, drop) if not d] + out


def merge(rows, wave_tol_aa, e_tol_ev):
    """Sum the gf of the parts of one transition: rows of one species and lower level, each closer
    than wave_tol_aa to the next; wavelength and excitation are their means weighted by gf."""
    open_group = {}  # of a species: groups that a later row may still join
    done = []
    for row in sorted(rows):
        groups = open_group.setdefault(row[1], [])
        done += [g for g in groups if row[0] - g[-1][0] > wave_tol_aa]
        groups[:] = [g for g in groups if row[0] - g[-1][0] <= wave_tol_aa]
        for group in groups:
            # of the first as well, so that no chain grows across lines that are apart
            if abs(row[2] - group[0][2]) <= e_tol_ev and row[0] - group[0][0] <= 3.0 * wave_tol_aa:
                group.append(row)
                break
        else:
            groups.append([row])
    done += [g for groups in open_group.values() for g in groups]
    out = []
    for group in done:
        wave, _, e_low, log_gf = np.array(group).T
        gf = 10.0**log_gf
        out.append(
            (
                float(np.sum(gf * wave) / gf.sum()),
                group[0][1],
                float(np.sum(gf * e_low) / gf.sum()),
                float(np.log10(gf.sum())),
            )
        )
    return out


def damping(rows, path):
    """log10 of the width by hydrogen of every row, 0 where there is none."""
    table = {}
    with open(path) as file:
        for number, text in enumerate(file, 1):
            try:
                wave, code, log_gamma = (float(x) for x in text.split()[:3])
            except ValueError:
                sys.exit(f"{path}:{number}: not a wavelength, a species and a width")
            species = 100 * int(code) + int(10.0 * (code - int(code)) + 0.01)
            table.setdefault(species, []).append((wave, log_gamma))
    table = {s: np.array(sorted(t)) for s, t in table.items()}
    out = np.zeros(len(rows))
    for i, (wave, species, _, _) in enumerate(rows):
        if species in table and species != CH:
            t = table[species]
            k = np.argmin(np.abs(t[:, 0] - wave))
            if abs(t[k, 0] - wave) < SAME_AA and -9.0 < t[k, 1] < -5.0:
                out[i] = t[k, 1]
    return out


def strength(rows, layer):
    """Ratio of line to continuous opacity at the line's centre (negative ion of hydrogen alone:
    its bound-free cross-section is near 3.2e-17 cm2 from 5000 to 10000 A)."""
    temp, log_pe, log_pg, log_k_ch, q_ch, log_free = layer
    theta = 5040.0 / temp
    kt = 1.380649e-16 * temp
    saha = 2.5 * np.log10(temp) - 0.1762 - log_pe  # of log10 (ion / atom) but for U and chi
    # H- per H: Saha's equation for 0.754 eV, Q(H) / Q(H-) = 2.
    cont = 3.2e-17 * 10.0 ** (-(2.5 * np.log10(temp) - 0.1762 - log_pe) + 0.754 * theta) / 2.0
    out = np.empty(len(rows))
    for i, (wave, species, e_low, log_gf) in enumerate(rows):
        if species == CH:
            # per H: A_C p(H) / K, pressures in Pa
            log_n = 8.43 - 12.0 + log_free + (log_pg - 1.0) - log_k_ch - np.log10(q_ch)
            mass = 13.0
        else:
            abundance, chi, u_atom, u_ion = ELEMENT[species // 100]
            ratio = 10.0 ** (saha + np.log10(u_ion / u_atom) - chi * theta)
            charge = species % 100
            log_n = abundance - 12.0 - np.log10(1.0 + ratio) + (np.log10(ratio) if charge else 0.0)
            log_n -= np.log10(u_ion if charge else u_atom)
            mass = 2.2 * (species // 100)
        vel_cm_s = np.sqrt(2.0 * kt / (mass * 1.66054e-24) + 1.5e5**2)
        cross = 1.497e-2 * (wave * 1e-8) / vel_cm_s  # sqrt(pi) e^2 / (m c) lambda / v
        out[i] = 10.0 ** (log_n + log_gf - theta * e_low) * cross / cont
    return out


def unblocked(wave_aa, depth):
    """The part of the light that all lines of the list leave, around every one of them: a line
    that falls on others takes less from the spectrum."""
    order = np.argsort(wave_aa)
    edge = np.arange(wave_aa.min(), wave_aa.max() + BLOCK_AA, BLOCK_AA)
    equivalent = depth * wave_aa * WIDTH_KM_S / 299792.458
    blocked, _ = np.histogram(wave_aa[order], edge, weights=equivalent[order])
    centre = 0.5 * (edge[1:] + edge[:-1])
    return np.exp(-np.interp(wave_aa, centre, blocked / BLOCK_AA))


HEADER = """/* Lines of the line model (src/line_model/line_list.h), ascending in wavelength:
 * {{vacuum wavelength / A, species, excitation of the lower level / eV, log gf, log gamma6}}.
 *
 * {n_atom} lines of atoms and {n_ch} of CH.  Made by tools/make_line_list.py, do not edit:
 *   tools/make_line_list.py linemake/mooglists galah_dr3_linelist.h5 chmasseron_corrected.asc.gz
 *     Barklem.dat src/line_model/line_list.inc
 *
 * Facts from: R. L. Kurucz's atomic line lists; laboratory log gf gathered by linemake (Placco et
 * al. 2021, RNAAS 5, 92, with references per species); the line list of GALAH DR3 (Buder et al.
 * 2021, MNRAS 506, 150); CH of Masseron et al. 2014, A&A 571, A47; broadening by hydrogen of
 * Barklem et al. 2000, A&AS 142, 467 and Barklem & Aspelund-Johansson 2005, A&A 435, 373.
 * How the lines were chosen: docs/science/line-model.md.
 */
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("linemake_dir")
    parser.add_argument("galah_file")
    parser.add_argument("ch_file")
    parser.add_argument("barklem_file")
    parser.add_argument("output")
    parser.add_argument("--lines", type=int, default=8000)
    args = parser.parse_args()

    def at(name):
        return os.path.join(args.linemake_dir, name)

    low, high = MIN_WAVE_AA - MARGIN_AA, MAX_WAVE_AA + MARGIN_AA

    def inside(rows):
        return [r for r in rows if low < r[0] * refractive_index(r[0]) < high]

    def read_all(files):
        return inside([r for name, *part in files for r in read_moog(at(name), *part)])

    atoms = read_all(ATOM_FILES)
    curated = read_all([("goodgf", 3000.0, 11000.0)])
    ch = inside(read_ch(args.ch_file))
    atoms, curated = curate(atoms, curated)
    galah = merge(read_galah(args.galah_file), SPREAD_AA, SPREAD_EV)
    atoms = renew(merge(atoms, MERGE_AA, MERGE_EV), curated, galah)
    rows = merge(atoms + curated, MERGE_AA, MERGE_EV) + LITHIUM + merge(ch, MERGE_AA, MERGE_CH_EV)
    print(f"{len(rows)} lines between {low} and {high} A")

    wave_air = np.array([r[0] for r in rows])
    eta = np.array([strength(rows, layer) for layer in LAYERS])
    depth = eta / (HALF_ETA + eta)
    taken = [unblocked(wave_air, d) for d in depth]
    worth = np.mean(depth * taken, axis=0)
    wanted = np.zeros(len(rows), dtype=bool)
    for wave, species in WANTED:
        wanted |= [r[1] == species and abs(r[0] - wave) < 0.005 for r in rows]
    if wanted.sum() != len(WANTED):
        sys.exit(f"{wanted.sum()} lines found for the {len(WANTED)} wanted by name")
    order = np.argsort(np.where(wanted, np.inf, worth))[::-1][: args.lines]
    print(f"least mean depth kept: {worth[order[~wanted[order]]].min():.3f}")
    for layer, d, t in zip(LAYERS, depth, taken):
        print(
            f"  {layer[0]:.0f} K: {100.0 * (d * t)[order].sum() / (d * t).sum():.1f} % of the "
            f"absorption of the whole list; deepest line left out {np.delete(d, order).max():.2f}"
        )

    keep = [rows[k] for k in order]
    gamma = damping(keep, args.barklem_file)
    wave = vacuum(np.array([r[0] for r in keep]))
    out = {}
    for k in np.argsort(wave):
        _, species, e_low, log_gf = keep[k]
        key = (f"{wave[k]:.3f}", species, f"{e_low:.3f}")
        if key in out:
            sys.exit(f"two lines {key}")
        width = f"{gamma[k]:.3f}" if gamma[k] else "0"
        out[key] = f"{{{key[0]}, {species}, {key[2]}, {log_gf:.3f}, {width}}},"
    n_ch = sum(r[1] == CH for r in keep)
    n_atom = len(keep) - n_ch
    with open(args.output, "w") as file:
        file.write(HEADER.format(n_atom=n_atom, n_ch=n_ch))
        file.write("\n".join(out.values()) + "\n")
    print(f"{n_atom} atomic lines, {np.count_nonzero(gamma)} of them with a width, {n_ch} of CH")


if __name__ == "__main__":
    main()
