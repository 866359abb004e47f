# SPDX-License-Identifier: BSD-3-Clause
"""Man pages and bash completion say what --help says, of every job."""

from base import *  # noqa: F403

JOBS = re.findall(r"^  ([a-z]+) +\S", run("--help").stdout, re.M)
# sub-commands that have options of their own
SUB = {"library": ("build", "import", "spectra", "train", "correct", "model-error", "sky", "info")}

COMPLETE = r"""
compopt() { [[ "$*" == "-o default" ]] && asked_for_files=1; }
. "$1"
shift
while IFS= read -r line; do
  read -ra COMP_WORDS <<<"$line"
  [[ $line == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) asked_for_files=0
  _starmill || exit
  ((asked_for_files)) && COMPREPLY+=(FILES)
  echo "${COMPREPLY[*]}"
done
"""


def options_of(text):
    return set(re.findall(r"^  (--[a-z0-9-]+)", text, re.M))


# (words of a command, its --help).  `library` alone has no options, only its sub-commands have.
# --help must not start MPI, so MPI is set up here to fail.
COMMANDS = [(words, run(*words, "--help", env={"OMPI_MCA_pml": "none-such"}).stdout) for job in JOBS
            for words in [(job,)] + [(job, sub) for sub in SUB.get(job, ())] if words != ("library",)]


class Completion(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.script = put("starmill.bash", run("help", "completion").stdout)

    def complete(self, *lines):
        """The set of completions of each command line, which is split as readline does."""
        done = ended(["bash", "-c", COMPLETE, "bash", self.script], stdin=None,
                     env={"PATH": f"{os.path.dirname(STARMILL)}:{os.environ['PATH']}"},
                     input="".join(line.replace("=", " = ") + "\n" for line in lines))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = [set(line.split()) for line in done.stdout.split("\n")[:-1]]
        self.assertEqual(len(found), len(lines))
        return found

    def test_jobs(self):
        self.assertGreaterEqual(set(JOBS), {"fit", "library", "merge", "bench"})
        all_jobs, some, of_help = self.complete("starmill ", "starmill s", "starmill help ")
        self.assertEqual(all_jobs, {*JOBS, "help", "--help", "--version"})
        self.assertEqual(some, {job for job in JOBS if job.startswith("s")})
        self.assertEqual(of_help, {*JOBS, "config", "man", "completion"})

    def test_every_option_of_every_command(self):
        found = self.complete(*(f"starmill {' '.join(words)} --" for words, _ in COMMANDS))
        for (words, said), options in zip(COMMANDS, found):
            with self.subTest(words=words):
                self.assertIn("--help", options)
                self.assertEqual(options_of(said), options)

    def test_no_paragraph_is_cut(self):
        """Help cuts a paragraph at MOST_SAYS - 1 bytes (option_table.c); all are shorter."""
        for words, said in COMMANDS:
            for paragraph in re.split(r"\n(?=\S|\n|  --)", said):
                text = " ".join(re.sub(r"^  --\S+( \S+)?  +", "", paragraph).split())
                self.assertLess(len(text.encode()), 1023, words)
            self.assertNotIn("(below)", said, words)  # allowed in the manual's page of keys alone

    def test_fit_names_every_survey(self):
        said = dict(COMMANDS)[("fit",)]
        for name in re.search(r"--format NAME.*?\(([^)]*);", said, re.S)[1].replace("or", ",").split(","):
            if name.split() not in (["auto"], ["lamost-mrs"], ["generic"]):
                self.assertIn(name.strip().upper(), said.split("\n\n")[1])

    def test_sub_commands(self):
        library, bench, fit, behind = self.complete(
            "starmill library ", "starmill bench ", "starmill fit ", "starmill library train ")
        self.assertEqual(library, set(SUB["library"]))
        self.assertEqual(bench, {"fit", "crossover", "write"})
        self.assertEqual((fit, behind), ({"FILES"}, {"FILES"}))
        self.assertIn("--repeat", self.complete("starmill bench fit --")[0])

    def test_values(self):
        words = {"hybrid", "nelder-mead", "levenberg-marquardt"}
        for line, expected in (
            ("starmill fit --optimizer ", words),
            ("starmill fit --quiet --optimizer n", {"nelder-mead"}),
            ("starmill fit --optimizer=", words),
            ("starmill fit --optimizer=l", {"levenberg-marquardt"}),
            ("starmill fit --exposures ", {"coadd", "single", "joint"}),
            ("starmill library train --emulator ", {"network", "radial", "splines", "linear"}),
            ("starmill bench crossover --work ", {"all", "fit", "train", "particles"}),
            *((f"starmill {words}", {"FILES"}) for words in (
                "fit --library ", "fit --output=x", "doctor --output ", "fit --quiet ")),
            ("starmill fit --threads ", set()), ("starmill fit --object ", set())):
            with self.subTest(line=line):
                self.assertEqual(self.complete(line), [expected])


class Keys(ProgramTest):
    def test_keys_of_particles(self):
        """The help names the command that lists the keys, and that list is documented."""
        page = "help config particles"
        self.assertIn(f"starmill {page}", dict(COMMANDS)[("particles",)])
        done = starmill(*page.split())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = content(os.path.join(SOURCE, "docs/use/particles.md"), "r").split("## Keys")[1].split("\n## ")[0]
        keys, documented = (re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*?\|", text, re.M)))
                            for text in (done.stdout, said))
        self.assertEqual(sorted(keys), sorted(documented))


@functools.lru_cache(None)
def page_of(*job):
    done = run("help", "man", *job)
    assert not done.stderr, done.stderr
    return done.stdout


class ManPages(ProgramTest):
    def test_a_job_that_is_not_there(self):
        self.assertOneLine(starmill("help", "man", "fiit"), "fiit", status=2)

    def test_full_disk(self):
        for page in (("man",), ("man", "fit"), ("completion",), ("config", "particles")):
            with open("/dev/full", "w") as full:
                done = starmill("help", *page, stdout=full)
            done.stdout = ""
            self.assertOneLine(done, "cannot print the page: No space left", status=4)

    @unittest.skipUnless(shutil.which("man"), "no man (Debian: man-db)")
    def test_man_shows_them(self):
        for job in [()] + [(job,) for job in JOBS]:
            path = put("page.1", page_of(*job))
            done = ended(["man", "--warnings=mac,el,missing,font", "-l", path],
                         {"MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), job)
            self.assertIn("-".join(("starmill",) + job) + " - ", " ".join(done.stdout.split()))
            for words, said in COMMANDS:
                if words[:1] == job:
                    for line in said.rstrip("\n").split("\n"):
                        self.assertIn(line.rstrip() + "\n", done.stdout)
