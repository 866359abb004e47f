# SPDX-License-Identifier: BSD-3-Clause
"""Computes the numbers of a report in one pass over the undamaged rows of a result.  Counts cover
all these rows.  Distributions and repeated stars use a sample of a large result, to save memory."""

import collections
import hashlib

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from starmill.products.result import FITTED, NO_SN
from starmill.products.sky import has_place, unit_vectors

MAX_SAMPLE = 400_000  # most rows held in memory
MAX_KEYS = 1_000_000  # most rows searched for repeats
MAX_REPEATS = 200_000  # most rows of repeated stars whose values are read
NEAR_AS = 1.5  # arcsec: rows closer than this are one star, even without a common name
FAR_AS = 60  # arcsec: rows farther apart than this are different stars, even with one name
CROWD = 100  # more rows than this within about NEAR_AS have a placeholder for their position
HUGE = 1e100  # larger values count as missing, since their squares would overflow
N_WORST, N_TYPICAL, N_EXAMPLE = 12, 12, 3
VELOCITIES = {0: ("GOOD", "VRAD_GOOD is 1"), 1: ("NOT_STELLAR", "NO_STAR or CLASS is set"),
              2: ("WARNED", "another warning concerns the velocity")}

Reason = collections.namedtuple("Reason", "kind code name meaning count rows")
Repeats = collections.namedtuple("Repeats", "n_star n_row n_pair every unjoined delta errors sn")


def half_width(values, least=5):
    """Return half the width of the central 68.27 %, a robust sigma; NaN below `least` values."""
    values = values[np.isfinite(values)]
    if len(values) < least:
        return np.nan
    low, high = np.percentile(values, [15.865, 84.135])
    return float(0.5 * (high - low))


def mixed(keys):
    """Return a 64-bit hash (splitmix64) of keys, by which stars are sampled."""
    x = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def joined(key, has_id, ra, dec, by_place):
    """Return an index of each row's star, and texts about rows left out of repeats.  Rows with one
    key are a star if they lie within FAR_AS of the first of them.  With by_place, a row with a key
    of its own joins a star within NEAR_AS, unless over CROWD rows are there or the joined rows
    would have two TARGETIDs.  has_id: the row's key is its TARGETID."""
    near, far = np.radians([NEAR_AS / 3600, FAR_AS / 3600])
    known = has_place(ra, dec)
    unit = unit_vectors(*np.where(known, [ra, dec], 0.0))
    _, first, name = np.unique(key, return_index=True, return_inverse=True)
    first, star = first[name], name.copy()
    is_far = known & known[first]
    is_far[is_far] = np.linalg.norm(unit[is_far] - unit[first[is_far]], axis=1) > far
    star[is_far] = len(key) + np.arange(is_far.sum())  # each a star of its own
    n = np.bincount(star)
    at = np.flatnonzero(known & by_place)
    # cut space into cubes as wide as NEAR_AS; cell: cube of each row; n_row: rows in each cube
    cell, n_row = np.unique(np.floor(unit[at] / near).astype(int), axis=0, return_inverse=True,
                            return_counts=True)[1:]
    crowd = n_row[cell.ravel()] > CROWD
    words = [f"{count} of the rows {why}" for count, why in (
        (is_far.sum(), f"are over {FAR_AS} arcsec from the first of their name: not compared by "
         "name"),
        ((n[star[at[crowd]]] == 1).sum(), f"share their position with over {CROWD} others, as "
         "placeholders do: not compared by position")) if count]
    at = at[~crowd]
    pair = star[at[cKDTree(unit[at]).query_pairs(near, output_type="ndarray")]]
    a, b = pair[(n[pair] == 1).any(axis=1)].T  # stars to join
    graph = coo_matrix((np.ones(len(a), bool), (a, b)), (len(n), len(n)))
    whole = connected_components(graph, directed=False)[1][star]
    n_id = np.bincount(np.unique(name[has_id] * len(n) + whole[has_id]) % len(n), minlength=len(n))
    return np.where(n_id[whole] > 1, len(n) + star, whole), words


class Survey:
    """The numbers of a report.

    n_fitted, n_good  counts over all rows
    rows, sample      one row in `every`: indices of these rows, {column: their values}
    sn, fitted, good  of these rows: S/N of the best arm, and two masks
    worst             [(reduced chi-square, row)] with the largest values of all rows
    typical           good rows of the sample with median chi-square at their S/N
    repeats           differences between rows of one star (Repeats)
    """

    def __init__(self, result):
        self.result = result
        self._words = {"status": result.statuses, "velocity": VELOCITIES, "info": result.infos,
                       "warning": result.warnings, "posterior": result.posteriors}
        self.counts = {kind: {} for kind in self._words}
        self._not_stellar, self._no_repeat = (
            sum(bit for bit, (name, _) in of.items() if name in names) for of, names in (
                (result.warnings, ("NO_STAR", "CLASS")), (result.infos, ("PRIOR", "PAIR"))))
        self.n_fitted = self.n_good = 0
        self.every = max(1, -(-result.n_row // MAX_SAMPLE))
        self.key_every = max(1, -(-result.n_row // MAX_KEYS))
        self.worst, self._keys = [], []  # _keys: [(keys, has_id, rows, positions)]
        sampled, rows = collections.defaultdict(list), []
        for block in result.blocks():
            self._count(block)
            self._keep_worst(block)
            self._keep_keys(block)
            at = block.rows % self.every == 0
            rows.append(block.rows[at])
            for n in self._names():
                sampled[n].append(block[n][at])
        self.sample = {n: np.concatenate(v) for n, v in sampled.items()}
        for values in self.sample.values():
            if values.dtype.kind == "f":
                values[np.abs(values) > HUGE] = np.nan
        self.rows = np.concatenate(rows)
        self.fitted = self.sample["STATUS"] == FITTED
        self.good = self.fitted & (self.sample["RVS_WARN"] == 0)
        self.sn = result.sn(self.sample)
        for sn in (self.sn, *(self.sample["SN_" + arm] for arm in result.arms)):
            sn[sn <= NO_SN] = np.nan
        self.typical = self._choose_typical()
        self.repeats = self._find_repeats()

    def _names(self):
        """Return the columns to sample."""
        r = self.result
        names = ["STATUS", "RVS_WARN", "RCHISQ_TOT", "NEVAL", "FIT_INFO", "TARGET_RA", "TARGET_DEC"]
        names += [p + end for p in r.parameters for end in ("", "_ERR")]
        names += [start + a for a in r.arms for start in ("SN_", "RCHISQ_", "NPIX_")]
        names += ["N_EPOCH", "VRAD_CHI2", "VRAD_PVAL"] * (r.epochs is not None)
        return names + ["SB2", "SB2_GAIN", "VRAD_2"] * r.has("SB2")

    def _count(self, block):
        status, warn, info = (block[n] for n in ("STATUS", "RVS_WARN", "FIT_INFO"))
        self.n_fitted += int((status == FITTED).sum())
        self.n_good += int(((status == FITTED) & (warn == 0)).sum())
        for code in np.unique(status):
            self._add("status", int(code), block.rows[status == code])
        velocity = np.where(block["VRAD_GOOD"] == 1, 0,
                            np.where(warn & self._not_stellar != 0, 1, 2))
        for code in VELOCITIES:
            self._add("velocity", code, block.rows[(status == FITTED) & (velocity == code)])
        post = block["POST_FLAG"] if self.result.posteriors else np.zeros_like(info)
        for kind, bits in (("warning", warn), ("info", info), ("posterior", post)):
            for bit in self._words[kind]:
                self._add(kind, bit, block.rows[(status == FITTED) & (bits & bit != 0)])

    def _add(self, kind, code, found):
        if len(found):
            count, rows = self.counts[kind].get(code, (0, []))
            rows = (rows + found[:N_EXAMPLE].tolist())[:N_EXAMPLE]
            self.counts[kind][code] = (count + len(found), rows)

    def reasons(self, kind):
        """Return the Reasons that occur, the most frequent first; kind: a key of counts."""
        found = [Reason(kind, code, *self._words[kind].get(code, (str(code), "")), n, rows)
                 for code, (n, rows) in self.counts[kind].items()]
        return sorted(found, key=lambda r: -r.count)

    def _keep_worst(self, block):
        chi = block["RCHISQ_TOT"]
        chi = np.where((block["STATUS"] == FITTED) & np.isfinite(chi), chi, -1.0)
        at = np.argsort(-chi, kind="stable")[:N_WORST]
        found = [(float(chi[i]), int(block.rows[i])) for i in at if chi[i] >= 0]
        self.worst = sorted(self.worst + found, key=lambda w: (-w[0], w[1]))[:N_WORST]

    def _choose_typical(self):
        """Return the good row of median chi-square in each of N_TYPICAL ranges of S/N."""
        at = np.flatnonzero(self.good & np.isfinite(self.sample["RCHISQ_TOT"]))
        at = at[np.argsort(self.sn[at], kind="stable")]
        rows = []
        for part in np.array_split(at, min(N_TYPICAL, len(at))) if len(at) else []:
            chi = self.sample["RCHISQ_TOT"][part]
            rows.append(int(self.rows[part[np.argmin(np.abs(chi - np.median(chi)))]]))
        return rows

    def _keep_keys(self, block):
        """Keep keys and positions of the good rows of every key_every-th star for _find_repeats,
        but no row with a second star or a prior.  A row without a name has a key of its own."""
        target = block["TARGETID"]
        key = mixed(target)
        named = target != -1
        if not named.all():
            names = block["OBJECT"]
            digests = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in names)
            by_name = np.where(names == b"", np.uint64(0), np.frombuffer(digests, np.uint64))
            key = np.select([named, by_name != 0], [key, by_name], mixed(~block.rows))
            named |= by_name != 0
        place = np.stack([block["TARGET_RA"], block["TARGET_DEC"]])
        known = has_place(*place) & (self.key_every == 1)
        use = (named | known) & (block["STATUS"] == FITTED) & (block["RVS_WARN"] == 0)
        use &= block["FIT_INFO"] & self._no_repeat == 0
        use &= mixed(key) % np.uint64(self.key_every) == 0
        self._keys.append((key[use], target[use] != -1, block.rows[use], place[:, use]))

    def _find_repeats(self):
        """Return the Repeats: a star's first two rows are a pair, the next two another.  delta: the
        difference of a pair's parameters, with the prior removed; errors, sn: of both rows."""
        key, has_id, row, place = (np.concatenate(part, axis=-1) for part in zip(*self._keys))
        key, unjoined = joined(key, has_id, *place, by_place=self.key_every == 1)
        self._keys = None
        order = np.lexsort((row, key))
        key, row = key[order], row[order]
        _, first, n = np.unique(key, return_index=True, return_counts=True)
        n_star = int((n > 1).sum())
        within = np.arange(len(key)) - np.repeat(first, n)  # index of the row within its star
        left = np.flatnonzero((within % 2 == 0) & (within + 1 < np.repeat(n, n)))[:MAX_REPEATS // 2]
        pairs = row[np.stack([left, left + 1])]
        wanted = np.unique(pairs)
        pairs = np.searchsorted(wanted, pairs)
        info = self._read("FIT_INFO", wanted)  # once: the weight of each parameter needs it

        def read(name):
            return info if name == "FIT_INFO" else self._read(name, wanted)
        sn = self.result.sn({f"SN_{arm}": read(f"SN_{arm}") for arm in self.result.arms})[pairs]
        values, names = [], self.result.parameters  # values [parameter][value, error][2][n]
        for p in names:
            # take out the prior, which both rows share
            value, err, weight = read(p), read(p + "_ERR"), self.result.weight(p, read)
            mean, err = self.result.priors.get(p, (0,))[0], np.where(err > 0, err, np.nan)
            values.append([mean + (value - mean) / weight, err / np.sqrt(weight)])
        values = np.array(values)[..., pairs]
        delta = values[:, 0, 1] - values[:, 0, 0]
        own = ~np.all((delta == 0) | np.isnan(delta), axis=0)  # else one spectrum in two inputs
        frames = self.result.frames[self._read("FILE", wanted)][pairs]
        frames[frames == b"heliocentric"] = b"barycentric"  # they differ by up to 0.016 km/s
        odd = own & ((frames[0] != frames[1]) | (frames[0] == b"topocentric"))
        delta[names.index("VRAD"), odd] = np.nan
        if odd.any():
            unjoined.append(f"{odd.sum()} pairs of rows are topocentric or in two frames: their "
                            "velocities are not compared")
        return Repeats(n_star, int(n[n > 1].sum()), int(own.sum()), self.key_every, unjoined,
                       dict(zip(names, delta[:, own])), dict(zip(names, values[:, 1][..., own])),
                       sn[:, own])

    def _read(self, name, rows):
        """Return a column in some rows (ascending), read in blocks."""
        column, found = self.result.column(name), [self.result.column(name)[:0]]
        for start, stop in self.result.spans():
            low, high = np.searchsorted(rows, [start, stop])
            if high > low:
                found.append(column[start:stop][rows[low:high] - start])
        return np.concatenate(found)
