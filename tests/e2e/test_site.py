# SPDX-License-Identifier: BSD-3-Clause
"""The notebooks, run cell by cell, and the site, whose warnings are errors."""

from base import *  # noqa: F403

sys.path.insert(1, os.path.join(SOURCE, "docs"))
DOCS = os.path.join(SOURCE, "docs")
os.environ.update(ENVIRONMENT, PATH=f"{os.path.dirname(STARMILL)}:{os.environ['PATH']}",
                  OMP_NUM_THREADS="1", MPLBACKEND="agg")
os.chdir(TMP)


class Site(ProgramTest):
    def test_notebooks(self):
        """Each notebook gives the numbers that it promises; none holds outputs."""
        for module in ("matplotlib", "PIL", "scipy", "cffi"):
            if not importlib.util.find_spec(module):
                self.skipTest(f"no {module}")
        import conf
        for name, n_picture, said in (
                ("one_star", 2, r"VRAD +-12\d\.\d+ \+- +1\.\d+ km/s +true -120"),
                ("survey", 2, r"60 rows, of them without a warning: [45]\d\n"),
                ("own_library", 1, r"TEFF +5[67]\d\d\.\d+ \+- +\d\d\.\d+, true 5700")):
            with self.subTest(name):
                path = os.path.join(DOCS, "notebooks", name + ".ipynb")
                self.assertFalse([1 for cell in json.loads(content(path))["cells"]
                                  if cell.get("outputs")])
                page = conf.run_notebook(path)
                self.assertEqual(page.count("![](data:image/png"), n_picture)
                self.assertRegex(page, said)

    def test_site(self):
        python = os.environ.get("STARMILL_PYTHON", sys.executable)
        if ended([python, "-c", "import sphinx, myst_parser"]).returncode != 0:
            self.skipTest("no Sphinx (Debian: python3-sphinx python3-myst-parser)")
        done = ended([python, "-B", "-m", "sphinx", "-qW", "--keep-going", "-D", "run_notebooks=0",
                      "-c", DOCS, SOURCE, tmp("site")])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for page, words in (("index", "docs/notebooks/survey.html"),
                            ("docs/reference/python", "starmill.Result.select"),
                            ("docs/reference/starmill-h", "starmill_library_constrain"),
                            ("docs/use/formats", "VRAD_ERR_FORMAL")):
            self.assertIn(words, content(tmp(f"site/{page}.html"), "r"))
