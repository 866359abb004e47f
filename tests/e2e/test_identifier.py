# SPDX-License-Identifier: BSD-3-Clause
"""Every row has an identifier that lasts, in /catalog and in the models, and the snippets of the
documentation work with it."""

import re
import sys

from base import *  # noqa: F403

sys.path.insert(0, os.path.join(SOURCE, "tools"))
import make_generic  # noqa: E402

LIBRARY, SURVEY = coarse_survey(6)


def generic(name):
    """Three stars of the survey without TARGETID."""
    with pyfits.open(SURVEY) as h:
        wave = h["R_WAVELENGTH"].data.astype("f8")
        make_generic.write(tmp(name), [
            {"NAME": f"star-{i}", "WAVELENGTH": wave, "FLUX": h["R_FLUX"].data[i],
             "IVAR": h["R_IVAR"].data[i], "LSF_SIGMA": np.full(wave.size, 0.8)}
            for i in range(3)], "vacuum")
    return tmp(name)


class Identifier(ProgramTest):
    def identifiers(self, *files):
        self.fit("ids.h5", "--overwrite", "--quiet", "--models", tmp("ids-models.h5"), *files,
                 lib=LIBRARY)
        with h5py.File(self.path, "r") as f, h5py.File(tmp("ids-models.h5"), "r") as m:
            ids = list(f["catalog/IDENTIFIER"].asstr()[:])
            self.assertEqual([ids[i] for i in m["models/fits_row"]],
                             list(m["models/IDENTIFIER"].asstr()[:]))
        return ids

    def test_file_and_row(self):
        os.mkdir(tmp("elsewhere"))
        one = generic("one.fits")
        ids = self.identifiers(one)
        self.assertEqual(ids, [f"one.fits:{i}" for i in range(3)])
        # the same wherever the file lies, packed or not
        moved = os.path.join(tmp("elsewhere"), "one.fits.gz")
        with open(moved, "wb") as f:
            subprocess.run(["gzip", "-c", one], stdout=f, check=True)
        self.assertEqual(self.identifiers(moved), ids)

    def test_long_names_stay_apart(self):
        stem = "x" * 60
        ids = self.identifiers(generic(stem + "a.fits"), generic(stem + "b.fits"))
        self.assertEqual(len(set(ids)), 6)
        for name in ids:
            self.assertRegex(name, r"^x+~[0-9a-f]{8}:[0-2]$")

    def test_snippets_of_the_documentation(self):
        ids = self.identifiers(generic("docs.fits"))
        folder = tmp("docs")
        os.mkdir(folder)
        os.rename(self.path, os.path.join(folder, "OUT.h5"))
        os.rename(tmp("ids-models.h5"), os.path.join(folder, "MODELS.h5"))
        n_run = 0
        for page in ("docs/use/results.md", "README.md"):
            text = content(os.path.join(SOURCE, page), "r")
            for code in re.findall(r"```python\n(.*?)```", text, re.S):
                n_run += 1
                done = subprocess.run(
                    [sys.executable, "-c", f"import h5py\nIDENTIFIER = {ids[1]!r}\n{code}"],
                    cwd=folder, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, code + done.stderr)
        self.assertGreaterEqual(n_run, 5)
        table = pyfits.getdata(os.path.join(folder, "OUT.fits"))
        self.assertEqual(list(table["IDENTIFIER"]), ids)


if __name__ == "__main__":
    main()
