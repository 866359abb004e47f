"""A result of `starmill fit` or `sample` (docs/use/formats.md), as far as it is looked at."""

import ast
import os
import re
import shlex

import h5py
import numpy as np

from basics import OUTPUT, Failure

FITTED = 1  # STATUS
VSINI_UNRESOLVED = 1  # bit of FIT_INFO: at the lower limit, the error is an upper limit
NO_SN = -1e9

# how a column is written in a picture, and with how many digits
SYMBOL = {"VRAD": ("velocity", 2), "VSINI": ("$v\\,\\sin i$", 1), "TEFF": ("$T_{\\rm eff}$", 0),
          "LOGG": ("$\\log g$", 2), "FEH": ("[Fe/H]", 2), "ALPHAFE": ("[$\\alpha$/Fe]", 2)}
PLAIN = {"VRAD": "velocity", "VSINI": "v sin i", "TEFF": "Teff", "LOGG": "log g", "FEH": "[Fe/H]",
         "ALPHAFE": "[α/Fe]"}


def text(value):
    """Of HDF5's bytes, whatever is in them."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def symbol(name):
    return SYMBOL.get(name, (name, 3))[0]


def plain(name):
    return PLAIN.get(name, name)


def number(value, digits):
    """With a minus sign, not a hyphen; an en dash where there is none."""
    return f"{value:.{digits}f}".replace("-", "−") if np.isfinite(value) else "–"


class Result:
    """path, file; fits and catalog: their datasets by name; arms: names as they stand in columns;
    parameters: those of COVAR, in its order; statuses, warnings, infos, posteriors: {code or bit:
    (name, meaning)}."""

    def __init__(self, path):
        self.path = path
        try:
            self.file = h5py.File(path, "r")
            self.fits, self.catalog = self.file["fits"], self.file["catalog"]
            self.n_row = len(self.fits["STATUS"])
            self.parameters = [text(p) for p in self.fits["COVAR"].attrs["ORDER"]]
            self.statuses = self._words("STATUS", "CODES")
            self.warnings = self._words("RVS_WARN", "BITS")
            self.infos = self._words("FIT_INFO", "BITS")
            self.posteriors = self._words("POST_FLAG", "BITS") if "POST_FLAG" in self.fits else {}
            self.files = [text(p) for p in self.catalog["files/PATH"][...]]
            self.provenance = {k: text(v) for k, v in self.file["provenance"].attrs.items()}
            for name, value in self.file["provenance"].items():
                value = value[()]
                self.provenance[name] = value if np.isscalar(value) and not isinstance(
                    value, bytes) else value.flat[0] if isinstance(value, np.ndarray) else value
                if isinstance(self.provenance[name], bytes):
                    self.provenance[name] = text(self.provenance[name])
        except (OSError, KeyError, ValueError) as error:
            raise Failure(OUTPUT, f"{path} cannot be read: {error}") from error
        self.arms = [n[5:] for n in text(self.fits["CRC"].attrs["COLUMNS"]).split()
                     if n.startswith("NPIX_") and n != "NPIX_TOT"]

    def _words(self, name, key):
        attrs = self.fits[name].attrs
        return {int(code): (text(n), text(m))
                for code, n, m in zip(attrs[key], attrs["NAMES"], attrs["MEANINGS"])}

    def has(self, *names):
        return all(name in self.fits or name in self.catalog for name in names)

    def column(self, name):
        return self.fits[name] if name in self.fits else self.catalog[name]

    def unit(self, name):
        return text(self.column(name).attrs.get("unit", ""))

    def row(self, row):
        """All values of a row, texts as text."""
        values = {}
        for group in (self.catalog, self.fits):
            for name, column in group.items():
                if isinstance(column, h5py.Dataset):
                    value = column[row]
                    values[name] = text(value) if isinstance(value, bytes) else value
        return values

    def sn(self, values):
        """S/N of a star: that of its best arm; values by column name, numbers or arrays."""
        best = values[f"SN_{self.arms[0]}"]
        for arm in self.arms[1:]:
            best = np.maximum(best, values[f"SN_{arm}"])
        return best

    def words(self, bits, of):
        """Names of the bits that are set."""
        return [name for bit, (name, _) in of.items() if int(bits) & bit]

    def input_path(self, i):
        """Where input i is: relative ones count from the folder of the fit."""
        return os.path.join(self.provenance["FOLDER"], self.files[i])

    def exposures(self, row):
        """[(input, number in its file)] of the exposures of a row."""
        first, n = int(self.catalog["FIRST_EXPOSURE"][row]), int(self.catalog["N_EXPOSURE"][row])
        table = self.catalog["exposures"]
        return list(zip(table["FILE"][first:first + n].tolist(),
                        table["FITS_ROW"][first:first + n].tolist()))

    def setting(self, key):
        """Value of a key of the configuration as it was used; lists of numbers as lists."""
        used = self.provenance["IDENTITY"] + "\n" + self.provenance["CONFIG"]
        found = re.search(rf"^{key}: (.*)$", used, re.MULTILINE)
        if not found:
            return None
        try:
            return ast.literal_eval(found.group(1))
        except (ValueError, SyntaxError):
            return found.group(1)

    def models_path(self):
        """The models file that the first run was told to write; None: none, or it is not there."""
        words = shlex.split(self.provenance["COMMAND"])
        for i, word in enumerate(words):
            path = word[9:] if word.startswith("--models=") else \
                words[i + 1] if word == "--models" and i + 1 < len(words) else None
            if path:
                path = os.path.join(self.provenance["FOLDER"], path)
                return path if os.path.exists(path) else None
        return None
