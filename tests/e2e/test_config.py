# SPDX-License-Identifier: BSD-3-Clause
"""Configurations: what is read, printed and refused, and what makes the same run."""

from base import *  # noqa: F403
from survey_files import Reader

# {words of the message: lines that it refuses}
REFUSED = {
    "expected a whole number": ["npoly: 10.0", "npoly: 010", "mask_ignore: 0xg"],
    "got a list": ["npoly: [10]", "optimizer: [hybrid]"],
    "from 1 to 24": ["npoly: 0", "npoly: 25"],
    "too large": ["npoly: 99999999999999999999", "min_vel: 1e999", "mask_ignore: 9223372036854775808"],
    "out of range": [
        "npoly: 5000000000", "max_vel: 299793", "min_vsini: -1", "max_vsini: 1001", "guess_vel_step: 0",
        "second_start_sn: -1", "max_starts: 0", "n_simplex_round: -1", "max_eval: 0", "edge_pix: -1",
        "sigma_floor: -0.1", "bad_sigma_factor: 0", "mask_ignore: -1", "mask_ignore: 0x100000000",
        "redrock_max_vel: -1", "resolving_power: -1", "threads: -1", "slots: -1", "readers: 17",
        "write_interval: 0", "gzip_limit_mib: -1"],
    "expected a number": ["min_vel: 0x10", "min_vel: 1,5", "minsn: few"],
    "not finite": [
        "min_vel: .nan", "min_vel: nan", "min_vel: -.inf", "wave_mask: [[1, .inf]]", "minsn: .nan",
        "minsn: -.inf", "arms: [{name: b, max: .inf}]"],
    "a list of ranges": ["wave_mask: 4300", "wave_mask: none"],
    "at most 8": ["objtypes: [a, b, c, d, e, f, g, h, i]", "arms: [1, 2, 3, 4, 5, 6, 7, 8, 9]"],
    "got nothing": ["objtypes:", "template_lib: ~"],
    "from 0 to 63": ["fiberstatus_allowed_bits: [64]", "fiberstatus_allowed_bits: [-1]"],
    "control characters": ["redrock_file: \"a\\0b\"", "redrock_file: \"a\\nb\""],
    "not a range": ["arms: [{name: b, min: 3, max: 3}]", "arms: [{name: b, min: -1}]"],
    "guess_vel_step": ["vel_step0: 5"], "optimizer": ["second_minimizer: 1"], "redrock": ["zbest_select: 1"],
    "got 'ten'": ["npoly: ten"], "quoted text": ["npoly: '10'"], "not below max_vsini": ["min_vsini: 500"],
    "expected true or false": ["rbf_continuum: 1"], "expected marginal, profile or auto": ["likelihood: best"],
    "float32 or float64": ["precision: float16"], "spline or linear": ["rotation_kernel: exact"],
    "hybrid, nelder-mead or levenberg-marquardt": ["optimizer: Hybrid"],
    "item 1 is not [min, max]": ["wave_mask: [4300, 4450]"], "0 <= min < max": ["wave_mask: [[-1, 3]]"],
    "a list of items, one for each parameter, got 'vsini'": ["fix_param: vsini"],
    "expected {param: NAME, value: NUMBER}": ["fix_param: [vsini]"],
    "expected a text": ["objtypes: [TGT, [SKY]]"], "longer than 31 bytes": [f"objtypes: [{'a' * 32}]"],
    "a list of names": ["objects: {a: 1}", "arms: {name: b}"], "expected false or true": ["redrock: maybe"],
    "expected coadd, single or joint": ["exposures: all"],
    "lamost": ["format: fits"], "resolving_power or off, got": ["lsf: none"],
    "at least 10": ["resolving_power: 0.5"],
    "resolving_power of b, 0.5,": ["arms: [{name: b, resolving_power: 0.5}]"],
    "expected auto, vacuum or air": ["medium: water"],
    "'mni' is unknown in an arm": ["arms: [{name: b, mni: 3}]"],
    "twice in one arm": ["arms: [{name: b, min: 3, min: 4}]"],
    "b appears twice": ["arms: [b, {name: b, max: 9}]"],
    "resolving_power of b": ["arms: [{name: b, resolving_power: 1e9}]"],
    "the fwhm of b, -1 A, is out of range": ["arms: [{name: b, fwhm: -1}]"],
    "from 0 to 1000": ["arms: [{name: b, fwhm: 1e4}]"],
    "the sampling of b is out of range": ["arms: [{name: b, sampling: 5}]"],
    "a whole number from 0 to 4": ["arms: [{name: b, sampling: 1.5}]"],
    "give one of them": ["arms: [{name: b, fwhm: 3, resolving_power: 2000}]"],
    "expected auto, cpu, cuda or cuda+cpu": ["backend: gpu"],
    "expected error, warning, info or debug": ["log_level: loud"]}
# text of several lines, number of the wrong line, its key, words of the message
IN_LINES = (
    ("npoly: 5\nmin_vell: 3\nmax_vel: 9", 2, "min_vell", "did you mean min_vel?"),
    ("npoly: 5\n\nwhatever_it_is: 3", 3, "whatever_it_is", "unknown key"),
    ("npoly: 5\n# x\nnpoly: 5", 3, "npoly", "already set on line 1"),
    ("\nnpoly: {a: 1}", 2, "npoly", "got a mapping"), ("npoly:\nmax_vel: 5", 1, "npoly", "got nothing"),
    ("npoly: 3\nmin_vel: -300000", 2, "min_vel", "out of range"),
    ("npoly: 3\nmin_vel: 1000", 2, "min_vel", "not below max_vel"),
    ("npoly: 3\nmax_vel: -2000", 2, "min_vel", "not below max_vel"),
    ("max_vsini: 0", 1, "min_vsini", "fix vsini (fix_param)"),
    ("max_vel: 50\nmin_vel: 0\nguess_vel_step: 51", 3, "guess_vel_step", "smaller step"),
    ("wave_mask:\n - [1, 2]\n - [3]", 3, "wave_mask", "item 2 is not [min, max]"),
    ("wave_mask:\n - [1, 2]\n - [4, x]", 3, "wave_mask", "expected a number"),
    ("wave_mask:\n - [1, 2]\n - [4, 3]", 3, "wave_mask", "item 2: [4, 3] is not a range"),
    ("wave_mask:\n - [1, 2]\n - [3, 3]", 3, "wave_mask", "is not a range"),
    ("wave_mask:\n - [5, 6]\n - [1, 2]", 3, "wave_mask", "ascending"),
    ("wave_mask:\n - [1, 3]\n\n - [2, 4]", 4, "wave_mask", "join"),
    ("fix_param:\n - {param: vsini}", 2, "fix_param", "lacks value"),
    ("fix_param:\n - {value: 2}", 2, "fix_param", "lacks param"),
    ("fix_param:\n - {param: vsini, valeu: 0}", 2, "fix_param", "'valeu' is unknown"),
    ("fix_param:\n - {param: a, value: 0, param: b}", 2, "fix_param", "param appears twice"),
    ("fix_param:\n - param: vsini\n   value: x", 3, "fix_param", "expected a number"),
    ("fix_param:\n - {param: vsini, value: .nan}", 2, "fix_param", "not finite"),
    ("fix_param:\n - {param: '', value: 0}", 2, "fix_param", "not a parameter name"),
    ("fix_param:\n - {param: a2345678901234567890123456789012, value: 0}", 2, "fix_param",
     "longer than 31 bytes"),
    ("fix_param:\n - {param: a, value: 0}\n - {param: a, value: 0}", 3, "fix_param", "a appears twice"),
    ("priors:\n - {param: a, mean: 0}", 2, "priors", "lacks sigma"),
    ("priors:\n - {param: a, mean: 0, sigma: 0}", 2, "priors", "sigma of a is out of range"),
    ("priors:\n - {param: a, mean: 0, sigma: -1}", 2, "priors", "sigma of a is out of range"),
    ("priors:\n - {param: a, mean: 0, sigma: 1e-160}", 2, "priors", "give 1e-150 to 1e150"),
    ("priors:\n - {param: a, mean: .inf, sigma: 1}", 2, "priors", "not finite"),
    ("priors:\n - {param: a, mean: 0, sigma: 1}\n - {param: a, mean: 1, sigma: 1}", 3, "priors",
     "a appears twice"),
    ("fix_param: [{param: a, value: 0}]\npriors:\n - {param: a, mean: 0, sigma: 1}", 3, "priors",
     "a has a prior and a fixed value"),
    ("objtypes:\n - TGT\n - TGT", 3, "objtypes", "TGT appears twice"),
    ("objects:\n - 1\n - " + 64 * "x", 3, "objects", "longer than 63 bytes"),
    ("format: desi\njoin_radius: 1", 2, "join_radius", "needs join_by_name: true"),
    ("join_by_name: on\nminsn_from: scores", 2, "minsn_from", "before they are joined; set pixels"),
    ("epochs: night\nfix_param: [{param: vrad, value: 3}]", 1, "epochs", "fix_param holds vrad"),
    ("arms:\n - b\n - {min: 3}", 3, "arms", "lacks its name"),
    ("arms:\n - b\n - r\n - b", 4, "arms", "b appears twice"),
    ("? [a]\n: 5", 1, "expected a key", "got a list"), ("- npoly", 1, "'key: value'", "got a list"),
    ("npoly", 1, "'key: value'", "got 'npoly'"),
    ("npoly: 5\nmin_vel: [1\nmax_vel: 2", 0, "not YAML", "correct the line"),
    ("npoly: 5\n\tmin_vel: 3", 2, "not YAML", "correct the line"),
    ("npoly: 5\nmin_vel: \"x", 0, "not YAML", "correct the line"),
    ("npoly: *a", 1, "not YAML", "undefined alias"),
    ("npoly: 5\n---\nnpoly: 6", 2, "second YAML document", "keep one"),
    ("npoly: !!int 5", 1, "tag", "remove it"), ("npoly: 5\nmin_vel: \xff", 2, "UTF-8", "configuration file"),
    ("npoly: 5\n\nmin_vel: \x01", 3, "UTF-8", "control characters"))
# a value of every key, as a user may write it and as it is printed
GIVEN = (
    ("template_lib: ['a b: #c.h5', d,e]", "template_lib: [\"a b: #c.h5\", \"d\", \"e\"]"),
    ("arms: [{name: b, fwhm: 2.7, sampling: 2}, {name: z, min: 7e3, max: 9000, channel: RED}]",
     'arms: [{name: "b", fwhm: 2.7, sampling: 2}, {name: "z", min: 7000, max: 9000, channel: "RED"}]'),
    ("min_vel: -1.5e2", "min_vel: -150"), ("max_vel: +300", "max_vel: 300"),
    ("min_vsini: .5", "min_vsini: 0.5"), ("max_vsini: 80.", "max_vsini: 80"), "npoly: 7", "npoly_per_1000aa: 2",
    ("rbf_continuum: no", "rbf_continuum: false"), "likelihood: profile", "precision: float64",
    "rotation_kernel: linear", ("model_error: off", "model_error: false"),
    ("sky_components: sky.h5", "sky_components: \"sky.h5\""),
    ("fix_param: [{value: 3, param: vsini}]", "fix_param:\n  - {param: \"vsini\", value: 3}"),
    ("priors:\n  - param: teff\n    mean: 5000\n    sigma: 100",
     "priors:\n  - {param: \"teff\", mean: 5000, sigma: 100}"),
    ("rescale_errors: Yes", "rescale_errors: true"), "element_max_err: 0.1", ("velocity_offsets: TRUE", "velocity_offsets: true"),
    "velocity_offset_sigma: 5", "format: sdss", "exposures: joint", ("join_by_name: yes", "join_by_name: true"),
    ("join_by_name: on\njoin_radius: 1.5", "join_radius: 1.5"), "epochs: night",
    "epoch_floor: 2", "vrad_floor: 2", "binaries: true", "lsf: off",
    ("resolving_power: 2e3", "resolving_power: 2000"), "lsf_factor: 1.1", ("lsf_width_error: 5e-2", "lsf_width_error: 0.05"),
    "medium: air", "optimizer: levenberg-marquardt", ("start: truth.fits", "start: \"truth.fits\""),
    ("prior_table: gaia.fits", "prior_table: \"gaia.fits\""), "guess_vel_step: 20", "second_start_sn: 0",
    "max_starts: 3", "n_simplex_round: 12", "max_eval: 99", "edge_pix: 0", "sigma_floor: 0",
    "bad_sigma_factor: 10", ("wave_mask:\n  - [1, 2]\n  - [2, 3.5]", "wave_mask: [[1, 2], [2, 3.5]]"),
    "mask_ignore: 0x80000001", "minsn: -2.5", "minsn_from: scores", ("objtypes: TGT", "objtypes: [\"TGT\"]"),
    ("target_classes: [MWS_ANY, 'STD_*']", "target_classes: [\"MWS_ANY\", \"STD_*\"]"), "select_by: all",
    "minexpid: 5", "maxexpid: 7",
    ("objects: [7, b c, 07, -3, 39627000000000001, 7, 'b c']",
     'objects: [-3, 7, 39627000000000001, "07",\n  "b c"]'),
    "fiberstatus_allowed_bits: [0, 63]", ("redrock: on", "redrock: true"),
    ("redrock_file: r.fits", "redrock_file: \"r.fits\""), "redrock_max_vel: 600", "threads: 2", "readers: 3",
    "slots: 7", "write_interval: 0.5", "gzip_limit_mib: 10", ("scratch: /s", "scratch: \"/s\""), "backend: cpu",
    "log_level: debug")
# in pairs: what makes the same run
SAME = (("", "threads: 3\nreaders: 2\nslots: 5\nwrite_interval: 9\ngzip_limit_mib: 3\nscratch: /x\n"
         "backend: cpu\nlog_level: debug\ntemplate_lib: a.h5"), ("arms: [b, r]", "arms: [r, b]"),
        ("arms: [{name: b}]", "arms: b"), ("wave_mask: auto", "wave_mask: [[4300, 4450]]"),
        ("exposures: coadd\nlsf: auto\nresolving_power: 0\nmedium: auto\nformat: auto", ""),
        ("objtypes: [A, B]", "objtypes: [B, A]"), ("objects: [1, a, 2, 2]", "objects: [2, 1, a]"),
        ("fiberstatus_allowed_bits: [1, 2]", "fiberstatus_allowed_bits: [2, 1]"),
        ("fix_param: [{param: a, value: 1}, {param: b, value: 2}]",
         "fix_param: [{param: b, value: 2.0}, {value: 1, param: a}]"),
        ("priors: [{param: a, mean: 1, sigma: 1}, {param: b, mean: 2, sigma: 1}]",
         "priors: [{param: b, mean: 2, sigma: 1}, {param: a, mean: 1, sigma: 1}]"))
OPERATION = ("template_lib", "threads", "readers", "slots", "write_interval", "gzip_limit_mib",
             "scratch", "backend", "log_level")


class Config(ProgramTest):
    def read(self, *texts):
        """Read one or two YAML texts, the second over the first; return read_spectra.c's answer."""
        paths = [text if text.startswith(SOURCE) else put(f"{i}.yaml", text.encode("latin-1"))
                 for i, text in enumerate(texts)]
        return Reader.ask("config", *paths)

    def accepted(self, *texts):
        answer = self.read(*texts)
        self.assertNotIn("error", answer, answer.get("message"))
        return answer

    def printed(self, *texts):
        return self.accepted(*texts)["printed"]

    def identity(self, text):
        return self.accepted(text)["identity"]

    def refused(self, text, start, *parts):
        answer = self.read("objects: [5, a]\n", text)
        self.assertEqual((answer.get("error"), answer.get("untouched")), (2, True), text[:99])
        self.assertTrue(answer["message"].startswith(tmp("1.yaml:") + start), text[:99])
        for part in parts:
            self.assertIn(part, answer["message"])
        self.assertNotIn("\n", answer["message"])

    def test_defaults(self):
        usual = self.printed("")
        for text in "\n\n", "# only a remark\n", "---\n", "{}\n":
            self.assertEqual(self.printed(text), usual)
        example = os.path.join(SOURCE, "config", "desi.yaml")
        self.assertEqual(self.printed("npoly: 3\n", example), usual)
        for line in usual.splitlines():
            key = line.partition(":")[0]
            self.assertRegex(content(example, "r"), rf"(?m)^{key}:")
        for line in ("sigma_floor: 0.30000000000000004", "write_interval: 0.1", "min_vel: -1000",
        "minsn: none"):
            self.assertIn(f"\n{line}\n", self.printed("sigma_floor: 0.30000000000000004\nwrite_interval: .1"))

    def test_shipped_configurations(self):
        for name, power, join in (("sdss", 0, "false"), ("lamost", 1800, "false"),
                                  ("lamost-mrs", 7500, "false"), ("weave", 5000, "true"), ("4most", 0, "true")):
            printed = self.printed(os.path.join(SOURCE, "config", name + ".yaml")).splitlines()
            for line in f"format: {name}", f"resolving_power: {power}", f"join_by_name: {join}":
                self.assertIn(line, printed)
            self.assertNotIn("wave_mask: auto", printed)  # never DESI's dichroic

    def test_documentation(self):
        """The documentation has the tables and keys of `starmill help config`, and no more."""
        documented = content(os.path.join(SOURCE, "docs", "use", "configuration.md"), "r").splitlines()
        at, lines = 0, [line for line in run("help", "config").stdout.splitlines() if line.startswith("| `")]
        self.assertEqual(len(lines), len(GIVEN))
        for line in lines:
            at = documented.index(line, at)
        self.assertEqual(sum(line.startswith("| `") and line.count("|") == 7 for line in documented),
        len(GIVEN))

    def test_every_key(self):
        """All keys change the identity of a run, except those in OPERATION."""
        usual = self.printed("")
        for of in GIVEN:
            text, printed = (of, of) if isinstance(of, str) else of
            with self.subTest(text=text):
                self.assertIn(f"\n{printed}\n", "\n" + self.printed(text))
                self.assertNotIn(f"\n{printed}\n", "\n" + usual)
                is_same = self.identity(text) == self.identity("")
                self.assertEqual(is_same, printed.partition(":")[0] in OPERATION)
        self.assertEqual(len(GIVEN), len(set(re.findall(r"(?m)^(\w+):", usual))))

    def test_identity(self):
        for a, b in SAME:
            self.assertEqual(self.identity(a), self.identity(b), a)
        arms = [self.identity(f"arms: [{{name: b{more}}}]") for more in (
            "", ", min: 4000", ", max: 4000", ", channel: blue", ", resolving_power: 2000", ", fwhm: 2.7")]
        self.assertEqual(len({*arms, self.identity("")}), 7)
        keys = [line.partition(":")[0] for line in self.identity("").splitlines()]
        self.assertEqual(keys, sorted(keys))

    def test_a_second_file_goes_over_the_first(self):
        self.assertEqual(
            self.printed("objects: [7, a]\nminsn: 5\nnpoly: 7\nwave_mask: []\nlsf: matrix\nexposures: joint\n"
                         "backend: cpu\n", "objects: []\nminsn: none\nnpoly: 8\nwave_mask: auto\nlsf: auto\n"
                         "exposures: coadd\n"), self.printed("npoly: 8\nbackend: cpu\n"))

    def test_options_say_the_same(self):
        """Options give what a configuration with the same values gives, also over an earlier file."""
        for words, text, *before in (
                ("--library l.h5 --library m,n.h5 --threads 3 --slots 7 --readers 2 --npoly 12 --minsn -2.5 --redrock",
                 "{template_lib: [l.h5, 'm,n.h5'], threads: 3, slots: 7, readers: 2, npoly: 12, minsn: -2.5, "
                 "redrock: true}"),
                ("--objtype SPECTROPHOTO_STD,SKY --target-class MWS_ANY,STD_* --select-by all --minexpid 3 "
                 "--maxexpid 2147483647 --minsn-from scores",
                 "{objtypes: [SPECTROPHOTO_STD, SKY], target_classes: [MWS_ANY, STD_*], select_by: all, minexpid: 3, "
                 "maxexpid: 2147483647, minsn_from: scores}"),
                ("--exposures joint --format weave --lsf off --medium air --join-by-name --join-radius 2 --epochs night",
                 "{exposures: joint, format: weave, lsf: off, medium: air, join_by_name: true, join_radius: 2, "
                 "epochs: night}"),
                ("--optimizer levenberg-marquardt --precision float64 --start t.h5 --backend cpu --log-level debug",
                 "{optimizer: levenberg-marquardt, precision: float64, start: t.h5, backend: cpu, log_level: debug}"),
                ("--object 39627 --object -12 --object J0123+45", "objects: [-12, 39627, J0123+45]", "objects: 5"),
                ("--exposures coadd", "exposures: coadd", "exposures: single"),
                ("--resolving-power 1500", "{resolving_power: 1500, arms: [b, r]}",
                 "arms: [{name: b, fwhm: 2.7}, {name: r, resolving_power: 1650}]"),
                ("--arms z,r", "arms: [z, {name: r, max: 7000, channel: red}]",
                 "arms: [{name: b, min: 4000, max: 5000}, {name: r, max: 7000, channel: red}]"),
                ("", "arms: [{name: b, min: 4000}]", "arms: [{name: b, min: 4000}]"), ("", "{}")):
            with self.subTest(words=words):
                given = [word for of in before for word in ("--config", put("before.yaml", of))]
                self.assertEqual(run("fit", "--print-config", *given, *words.split()).stdout, self.printed(text))
        for words, *parts in (
                ("--nploy 3", "unknown", "--nploy"), ("--re", "ambiguous", "--re"), ("--output", "needs a value"),
                ("--config sdss.yaml --config binaries.yaml", "--config is given twice"),
                ("--npoly 25", "--npoly", "25"), ("--minsn inf", "--minsn", "inf"), ("--object " + 64 * "x", "--object", "xxx"),
                ("--objtype A,,B", "--objtype", "A,,B"), ("--target-class A,", "--target-class", "A,"),
                ("--minexpid -1", "--minexpid", "-1"), ("--numbers 5", "--numbers", "--pattern"),
                ("--objtype " + "0" * 32, "--objtype", "0" * 32),
                ("--objtype a,b,c,d,e,f,g,h,i", "--objtype", "8"), ("--optimizer nelder", "--optimizer", "nelder-mead")):
            self.assertOneLine(starmill("fit", "--print-config", *words.split()), *parts, status=2)

    def test_what_is_printed_is_read(self):
        """Values are texts that YAML would read as something else, and the most extreme numbers."""
        number = ("-1.7976931348623157e+308", "-0.0", "5e-324", "0.30000000000000004", "0.1", "1e22",
                  "1.7976931348623157e+308")
        for i, text in enumerate(("~", "null", "'", "a: b", "#", "- a", "{a}", "%", " a ", '"\\"',
                                  "\u00e9", "\x85", "\u2028", "\ufeff", "\U0001f31f")):
            of = json.dumps(text, ensure_ascii=text < "\uffff")
            given = "\n".join((
                f"template_lib: [{of}]", f"scratch: {of}", f"objtypes: [{of}]", f"minsn: {number[i % 7]}",
                f"fix_param: [{{param: {of}, value: {number[1 + i % 5]}}}]", f"arms: [{{name: {of}, channel: {of}}}]",
                "mask_ignore: 0xffffffff", f"objects: [{-2**63}, -1, {2**63 - 1}, {of}]")).encode().decode("latin-1")
            once = self.read(given)["printed"]
            self.assertEqual(self.read(once.encode().decode("latin-1"))["printed"], once)
            (minsn,) = re.findall("(?m)^minsn: (.*)", once)
            self.assertEqual((float(minsn), minsn[0] == "-"), (float(number[i % 7]), number[i % 7][0] == "-"))

    def test_refusals_name_file_line_and_key(self):
        for said, texts in REFUSED.items():
            for text in texts:
                self.refused(text, "1: " + text.partition(":")[0], said)
        for text, line, key, said in IN_LINES:
            self.refused(text, f"{line}: {key}" if "_" in key else f"{line or ''}", key, said)

    def test_what_would_take_long_is_refused_at_once(self):
        """libyaml's time grows as the square of the number of brackets: 200 kB took a minute."""
        for part in "[", "{a: ", "[[":
            self.refused("npoly: 5\narms: " + part * (200000 // len(part)), "2: ", "no key needs more than 16")
        self.refused("npoly: 5\n" + "- " * 100000, "")
        self.refused("objtypes: [" + ",\n".join(f"&a{i} X" for i in range(20000)) + "]\n",
        "65: more than 64 anchors")
        self.assertIn("more than 16 MiB", self.read("#" * ((16 << 20) + 1))["message"])
        self.printed("&a npoly: &b 5\narms: [{name: r, min: 5000}]\nwave_mask: [[4000, 4100]]\n")

    def test_files_that_are_none(self):
        for text in "\x1f\x8b\x08\0\0\0\0\0", "npoly: 5\0\0", "\xff\xfen\0p\0o\0l\0y\0":
            self.refused(text, "")
        self.assertIn("\nnpoly: 5\n", self.printed("\xef\xbb\xbfnpoly: 5\n"))  # a mark of UTF-8
        for path, said in (tmp("none.yaml"), "No such file"), (TMP, "a folder"):
            message = Reader.ask("config", path)["message"]
            self.assertIn(path, message)
            self.assertIn(said, message)
