# SPDX-License-Identifier: BSD-3-Clause
"""`starmill compare`: compare two results of the same stars, star by star."""

import io
import re

import numpy as np
from astropy.table import Table, join, unique, vstack

from starmill.cli.basics import (OUTPUT, USAGE, Failure, as_failure, beginning, check_packages,
                                 check_text, need, picture_kind, warn, write_whole)
from starmill.products.result import NO_SN, NOT_DONE, Result, text, with_targets
from starmill.products.survey import half_width
from starmill.templates.spectra_fits import check_whole, opened

FIRST = "VRAD TEFF LOGG FEH ALPHAFE VSINI".split()  # then other labels, such as elements
UNITS = {"VRAD": (" [km/s]", 3), "TEFF": (" [K]", 1), "VSINI": (" [km/s]", 1), "CHISQ": ("", 2),
         "SN": ("", 2)}  # column: unit, digits
# bits of RVS_WARN in rvspecfit's files; starmill's files name their bits themselves
WARNINGS = {1: "CHISQ", 2: "VEL_LIMIT", 4: "VEL_ERR", 8: "LABEL_EDGE", 16: "VSINI",
            32: "BAD_SPECTRUM", 64: "BAD_HESSIAN"}
FAR = 5.0  # errors; larger differences are counted
IDS = {"TARGETID": -1, "OBJECT": "", "IDENTIFIER": "", "EXPID": -1}  # value if missing


def parameters(columns):
    """Return the names of velocity, v sin i and all labels among the names of a table's columns."""
    found = (re.fullmatch("(?!VRAD_|FLUX_|POST_)(.+)(?<!_2)_ERR", name) for name in columns)
    return [n for n in dict.fromkeys([*FIRST, *(of[1] for of in found if of)]) if n in columns]


def native(values):
    """Return an array in this machine's byte order, texts as str without padding."""
    values = np.asarray(values)
    if values.dtype.kind in "SU":
        return np.array([text(v).rstrip() for v in values])
    return values.astype(values.dtype.newbyteorder("="))


def read_one(path):
    """Return the columns of a result, or of a FITS table RVTAB or STARMILL, as a Table; its meta
    has the names of warnings by their bits."""
    with as_failure(OUTPUT, f"{path} cannot be read", OSError):
        if beginning(path).startswith(b"\x89HDF"):
            result = Result(path)
            rows = result.whole(0, result.n_row) & (result.column("STATUS")[...] != NOT_DONE)
            result.warn_damaged()
            return Table({"FRAME": native(result.frames[result.column("FILE")[...][rows]]), **{
                name: native(result.column(name)[...][rows]) for name in result.names()}},
                         meta={bit: name for bit, (name, _) in result.warnings.items()})
    with as_failure(OUTPUT, "", Failure), opened(path) as hdus:
        for i, hdu in enumerate(hdus):
            if hdu.name in ("RVTAB", "STARMILL"):
                check_whole(path, hdus, i)
                return Table({n: native(hdu.data[n]) for n in hdu.data.dtype.names or ()},
                             meta={1 << int(key[4:]): hdu.header[key] for key in hdu.header
                                   if re.fullmatch(r"WARN\d\d", key)})
        end = hdus[0].fileinfo()  # a file cut in its table has bytes after this HDU
        if (len(hdus), end["datSpan"], end["datLoc"]) == (1, 0, end["file"].size):
            warn(f"{path} has no table: rvspecfit writes such a file if it has no star to fit")
            return Table()
    raise Failure(OUTPUT, f"{path} has neither a table RVTAB nor STARMILL: give a result, or "
                  "copy this one again if it was cut")


def read(paths):
    """Return the rows of all files (paths: joined by commas) with their common columns."""
    parts = [part for part in map(read_one, paths.split(",")) if len(part)]
    need(parts, OUTPUT, f"{paths}: has no row")
    for part in parts:  # files differ in the shape of COVAR and the type of truth values
        part.keep_columns([n for n in part.colnames if n in (*IDS, "FRAME") or
                           (part[n].ndim, part[n].dtype.kind in "iuf") == (1, True)])
    table = vstack(parts, join_type="inner")
    for name in ("VRAD", "RVS_WARN"):
        need(name in table.colnames, OUTPUT, f"{paths}: has no column {name}")
    arms = [table[name] for name in table.colnames if name.startswith("SN_")]
    table["SN"] = np.fmax.reduce([np.where(a > NO_SN, a, np.nan) for a in arms]) if arms else np.nan
    # without the library's model error; rvspecfit has only CHISQ_TOT, and no model error
    chisq = "CHISQ_DATA" if "CHISQ_DATA" in table.colnames else "CHISQ_TOT"
    if chisq in table.colnames:
        table.rename_column(chisq, "CHISQ")
    kept = [p + end for p in parameters(table.colnames) for end in ("", "_ERR", "_FLAG")]
    return table[[n for n in (*IDS, "FRAME", *kept, "CHISQ", "SN", "RVS_WARN", "NPIX_TOT")
                  if n in table.colnames]]


def match(a, b):
    """Match the stars of two tables; print how many rows are left out.  Return two dictionaries
    {column: values} of the matched stars, and a table of both with columns NAME_A and NAME_B."""
    known = [n for n in IDS if all(n in t.colnames and (t[n] != IDS[n]).any() for t in (a, b))]
    need(known[:1] not in ([], ["EXPID"]), USAGE,
         "no star can be matched: no TARGETID, OBJECT or IDENTIFIER in both files")
    by = known[:1] + ["EXPID"] * (known[0] == "TARGETID" and known[-1] == "EXPID")
    if known[:2] == ["TARGETID", "OBJECT"]:
        targets = with_targets(*(np.concatenate([a[n].data, b[n].data]) for n in known[:2]))
        a["TARGETID"], b["TARGETID"] = np.split(targets, [len(a)])
    named = [t[t[by[0]] != IDS[by[0]]] for t in (a, b)]
    once = [unique(t, by, keep="none") for t in named]
    both = all(map(len, once)) and join(
        *once, keys=by, table_names=("A", "B"), uniq_col_name="{col_name}_{table_name}")
    need(both, USAGE,
         f"no {'+'.join(by)} occurs exactly once in both files: compare results of the same stars")

    def lost(before, after):
        return " and ".join(str(len(x) - len(y)) for x, y in zip(before, after))
    print(f"matched by {'+'.join(by)}: {len(both)} stars; rows {len(a)} and {len(b)}, of them "
          f"without {by[0]} {lost((a, b), named)}, not unique {lost(named, once)}, in one file "
          f"only {lost(once, (both, both))}")
    a, b = ({n: np.asarray(both[n if n in by else f"{n}_{which}"]) for n in t.colnames
             if n in by or n in other.colnames}
            for which, t, other in (("A", a, b), ("B", b, a)))
    a["STAR"] = np.array([" ".join(map(str, key)) for key in both[by].iterrows()])
    return a, b, both[[n for n in both.colnames if n in by or n.endswith(("_A", "_B"))]]


def differences(a, b, name):
    """Return the differences B - A of a column, and these divided by the larger stated error of A
    and B; NaN if missing.  Both results fit the same pixels: noise causes no difference."""
    delta = b[name].astype(float) - a[name]
    none = np.full(len(delta), np.nan)
    larger = np.fmax(*(t.get(name + "_ERR", none).astype(float) for t in (a, b)))
    return delta, delta / np.where(larger > 0, larger, np.nan)


def print_quantities(a, b):
    """Print median and scatter of B - A of each column, in its unit and in stated errors."""
    print(f"\n| B - A | stars | median | scatter | in errors: median | scatter | "
          f"beyond {FAR:g} |\n|---|---|---|---|---|---|---|")
    names = [p + end for end in ("", "_ERR") for p in parameters(a)] + ["CHISQ", "SN"]
    for name in filter(a.__contains__, names):
        unit, digits = UNITS.get(name.removesuffix("_ERR"), ("", 3))
        d, pull = (values[np.isfinite(values)] for values in differences(a, b, name))
        if len(d):
            print(f"| {name}{unit} | {len(d)} | "
                  f"{np.median(d):.{digits}f} | {half_width(d, 1):.{digits}f} | " + (
                      f"{np.median(pull):.3f} | {half_width(pull, 1):.3f} | "
                      f"{(np.abs(pull) > FAR).sum()} |" if len(pull) else "| | |"))


def print_warnings(a, b, names):
    print("\n| RVS_WARN | in A | in B | in both |\n|---|---|---|---|")
    for bit, name in sorted({**WARNINGS, **names}.items()):
        in_a, in_b = a["RVS_WARN"] & bit > 0, b["RVS_WARN"] & bit > 0
        if (in_a | in_b).any():
            print(f"| {bit} {name} | {in_a.sum()} | {in_b.sum()} | {(in_a & in_b).sum()} |")
    good_a, good_b = a["RVS_WARN"] == 0, b["RVS_WARN"] == 0
    print(f"| none | {good_a.sum()} | {good_b.sum()} | {(good_a & good_b).sum()} |")


def print_chisq(a, b):
    """Print how often each fit has the lower chi-square, for stars with equal NPIX_TOT."""
    if "CHISQ" not in a or "NPIX_TOT" not in a:
        return
    d = differences(a, b, "CHISQ")[0][a["NPIX_TOT"] == b["NPIX_TOT"]]
    d = d[np.isfinite(d)]
    print(f"\nchi-square over the same pixels: {len(d)} stars; A lower by more than 1 in "
          f"{(d > 1).sum()}, B in {(d < -1).sum()}, else equal")


def print_worst(a, b, n_worst):
    """Print the n_worst stars whose velocity or a label differs by the most errors."""
    names = parameters(a)
    pulls = np.nan_to_num(np.abs([differences(a, b, n)[1] for n in names]), posinf=0)
    far, worst = pulls.max(axis=0), pulls.argmax(axis=0)
    print("\n| star | by | errors | A | B | RVS_WARN A | B | S/N |\n"
          "|---|---|---|---|---|---|---|---|")
    for i in np.argsort(-far, kind="stable")[:min(n_worst, (far > 0).sum())]:
        of = names[worst[i]]
        print(f"| {a['STAR'][i]} | {of} | {far[i]:.1f} | {a[of][i]:.3f} | {b[of][i]:.3f} | "
              f"{a['RVS_WARN'][i]} | {b['RVS_WARN'][i]} | {a['SN'][i]:.1f} |")


def picture(a, b, names, kind):
    """Draw differences B - A against A, coloured by S/N, and histograms of these differences in
    units of their errors.  Return the picture's bytes in the format `kind`."""
    import matplotlib.pyplot as plt
    panels = [n for n in parameters(a) if np.isfinite(differences(a, b, n)[0]).any()]
    figure, axes = plt.subplots(len(panels), 2, figsize=(9, 2.1 * len(panels)), squeeze=False,
                                width_ratios=(3, 1), constrained_layout=True)
    for name, (left, right) in zip(panels, axes):
        (d, pull), unit = differences(a, b, name), UNITS.get(name, ("",))[0]
        good = np.isfinite(d)
        x, d = a[name][good].astype(float), d[good]
        most = 4 * max(half_width(d, 1), np.spacing(np.abs(x).max()))
        middle = np.median(d)
        shown = np.clip(d, middle - most, middle + most)  # outliers are drawn at the edge
        sn = np.log10(np.clip(np.nan_to_num(a["SN"][good].astype(float), nan=1.0), 1, 1000))
        dots = left.scatter(x, shown, c=sn, s=6, cmap="viridis", vmin=0.5, vmax=2.0,
                            linewidths=0, rasterized=True)
        left.axhline(0, color="black", linewidth=0.8)
        left.set(ylim=(middle - 1.05 * most, middle + 1.05 * most),
                 xlabel=f"{name} of A{unit}", ylabel=f"B $-$ A{unit}")
        right.hist(np.clip(pull[np.isfinite(pull)], -2, 2), bins=41, range=(-2, 2), color="0.6")
        right.axvline(0, color="black", linewidth=0.8)
        right.set(xlabel="B $-$ A in errors", yticks=[])
    figure.colorbar(dots, ax=axes[:, 1].tolist(), label="log$_{10}$ S/N of A", shrink=0.5)
    figure.suptitle(f"A: {names[0]}\nB: {names[1]}", fontsize=8)
    memory = io.BytesIO()
    figure.savefig(memory, format=kind, dpi=130)
    return memory.getvalue()


def main(options):
    names, figure, overwrite = options.arguments, options.figure, options.overwrite
    reads = [("the result", path) for paths in names for path in paths.split(",")]
    if options.list:
        check_text(options.list, overwrite, reads, "--list")
    if figure:
        kind = picture_kind(figure, "--figure")
        check_text(figure, overwrite, [*reads, ("--list", options.list)], "--figure")
        check_packages("matplotlib")
    a, b, both = match(*map(read, names))
    keep = np.isfinite(a["VRAD"]) & np.isfinite(b["VRAD"])
    frames = [np.char.replace(t["FRAME"], "helio", "bary") for t in (a, b) if "FRAME" in t]
    if frames and (n_apart := (frames[0] != frames[1]).sum()):
        warn(f"velocities of {n_apart} stars are in two frames (FRAME): do not compare them")
    print_warnings(a, b, both.meta)
    if not options.all:
        keep &= (a["RVS_WARN"] == 0) & (b["RVS_WARN"] == 0)
        for name in (n for n in a if (flag := n.removesuffix("_ERR") + "_FLAG") in a):  # elements
            a[name] = np.where(a[flag] | b[flag], np.nan, a[name])
    print(f"\ncompared: {keep.sum()} stars"
          f"{'' if options.all else ' without a warning in both (--all: all)'}")
    if keep.any():
        a, b = ({name: values[keep] for name, values in t.items()} for t in (a, b))
        print_quantities(a, b)
        print_chisq(a, b)
        print_worst(a, b, options.worst)
        if figure:
            write_whole(figure, [picture(a, b, names, kind)], overwrite)
    elif figure:
        warn(f"--figure {figure} is not written: no star is compared")
    if options.list:
        lines = io.StringIO()
        both.write(lines, format="ascii.csv")
        write_whole(options.list, [lines.getvalue().encode("utf-8", "surrogateescape")], overwrite)
