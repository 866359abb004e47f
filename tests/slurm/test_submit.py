# SPDX-License-Identifier: BSD-3-Clause
"""starmill-submit without Slurm: it counts rows, chooses nodes and time, and fills in scripts."""

import importlib.machinery
import importlib.util
import io
import shlex

from survey import *

loader = importlib.machinery.SourceFileLoader("starmill_submit", SUBMIT)
submit = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
sys.dont_write_bytecode = True
loader.exec_module(submit)

SITE = f"""
SITE_PROGRAM={shlex.quote(STARMILL)}
SITE_SBATCH=(--account=m1 "--comment=two words")
SITE_SBATCH_GPU=(--constraint=gpu) SITE_SBATCH_CPU=(--constraint=cpu)
SITE_SBATCH_ONE_GPU=(--qos=shared) SITE_SBATCH_SHORT=(--qos=preempt)
SITE_GPUS_PER_NODE=2 SITE_GPU_TYPE=a100 SITE_CPUS_PER_NODE=24
SITE_CPU_NODE_CPUS=32 SITE_CPU_NODE_RANKS=8
SITE_RATE_GPU=100 SITE_RATE_CPU=1 SITE_START_S=0 SITE_WARN_S=60
SITE_MAX_MINUTES=600 SITE_MAX_NODES=50 SITE_TARGET_MINUTES=10
"""


class Submit(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=TMP)
        self.site = self.write("site.conf", SITE)
        self.write("lib.h5", "")

    def write(self, name, text):
        return put(os.path.join(self.folder, name), text)

    def call(self, *args, status=0, says="", **environment):
        """Run starmill-submit's main() in the folder; self.said is its standard error."""
        here, out, errors = os.getcwd(), io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        os.chdir(self.folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), \
                unittest.mock.patch.dict(os.environ, environment), unittest.mock.patch.object(
                    sys, "argv", [SUBMIT, "--site", self.site, *map(str, args)]):
            try:
                ended_with = submit.main()
            except SystemExit as end:  # of argparse
                ended_with = end.code
            finally:
                os.chdir(here)
        out.flush()
        said, self.said = out.buffer.getvalue().decode(), errors.getvalue()
        self.assertEqual(ended_with, status, said + self.said)
        self.assertIn(says, self.said)
        return said

    def dry(self, kind, *options, fit=(), out="out.h5", rows=1000):
        if rows:
            options += ("--rows", rows)
        return self.call("--dry-run", *options, kind, "--library", "lib.h5", "--output", out,
                         *fit, *(() if "--catalog" in fit else ("x.fits",)))

    def asked(self, text):
        """The #SBATCH lines as {name: value}, none of them twice."""
        lines = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", text.split("\nset -e")[0], re.M)
        self.assertEqual(len(lines), len(dict(lines)), lines)
        return dict(lines)

    def assertRefused(self, *args, says):
        self.call(*args, status=2, says=says)

    def test_one_gpu(self):
        self.assertEqual(self.asked(self.dry("gpu", rows=30000)), {  # 300 s of work
            "nodes": "1", "ntasks-per-node": "1", "cpus-per-task": "12", "gpus-per-node": "a100:1",
            "account": "m1", "comment": '"two words"', "constraint": "gpu", "qos": "shared",
            "signal": "B:USR1@60", "open-mode": "append", "requeue": "",
            # 1.5 x 300 s, the warning, and 2 min
            "time": "11", "output": os.path.join(self.folder, "out.h5.log"),
            "job-name": "starmill-gpu"})

    def test_kinds(self):
        node = self.asked(self.dry("node"))
        self.assertEqual([node[k] for k in ("ntasks-per-node", "gpus-per-node", "cpus-per-task")],
                         ["2", "a100:2", "12"])
        self.assertNotIn("qos", node)
        self.assertIn("exclusive", node)
        cpu = self.asked(self.dry("cpu"))
        self.assertEqual([cpu[k] for k in ("ntasks-per-node", "cpus-per-task", "constraint")],
                         ["8", "4", "cpu"])
        self.assertNotIn("gpus-per-node", cpu)
        requeue = self.asked(self.dry("requeue"))
        self.assertEqual([requeue["qos"], requeue["time-min"]], ["preempt", requeue["time"]])
        profile = self.asked(self.dry("profile"))
        self.assertIn("no-requeue", profile)
        self.assertNotIn("requeue", profile)

    def test_nodes_by_the_work(self):
        # 10 min at 200 stars/s a node are 120,000 stars
        for rows, nodes in ((100000, "1"), (120001, "2"), (1200000, "10"), (10**9, "50")):
            self.assertEqual(self.asked(self.dry("nodes", rows=rows))["nodes"], nodes)
        self.assertIn("requeued until it is done", self.said)
        self.assertEqual(self.asked(self.dry("nodes", "--nodes", 7))["nodes"], "7")
        self.assertEqual(self.asked(self.dry("nodes", "--minutes", 5, rows=120000))["nodes"], "2")
        self.assertEqual(self.asked(self.dry("nodes", "--rate", 50, rows=120000))["nodes"], "2")
        self.assertEqual(self.asked(self.dry("cpu", rows=40000))["nodes"], "3")
        for rows, kind in ((60000, "gpu"), (60001, "node"), (120001, "nodes")):
            self.assertEqual(self.asked(self.dry("auto", rows=rows))["job-name"],
                             "starmill-" + kind)

    def test_time_limit(self):
        self.assertEqual(self.asked(self.dry("gpu", "--time", 5))["time"], "5")
        self.assertEqual(self.asked(self.dry("gpu", rows=10**8))["time"], "600")
        # short work too must be further from the limit than the warning
        self.assertGreaterEqual(int(self.asked(self.dry("gpu", rows=1))["time"]), 3)
        self.assertRefused("--time", 1, "--rows", 1, "gpu", "--output", "o.h5", "a.fits",
                           says="ends before SITE_WARN_S")

    def test_options_of_sbatch(self):
        ask = self.asked(self.dry("gpu", "--sbatch=--qos=debug", "--sbatch=--exclusive",
                                  "--log", "a%j.log"))
        self.assertEqual([ask["qos"], ask["exclusive"], ask["output"]], ["debug", "", "a%j.log"])
        self.assertRefused("--sbatch=-A x", "gpu", "--output", "o.h5", "a.fits", says="--name")
        ask = self.asked(self.dry("gpu", out="100%.h5"))
        self.assertEqual(ask["output"], os.path.join(self.folder, "100%%.h5.log"))

    def test_cut(self):
        for weights, n, ends in (
                ([1] * 8, 3, [3, 5, 8]), ([5, 1, 1, 1, 1, 1], 2, [1, 6]), ([0, 0, 0], 3, [1, 2, 3]),
                ([1, 1, 1, 9], 2, [3, 4]), ([1], 1, [1]), ([9, 1, 1], 3, [1, 2, 3])):
            self.assertEqual(submit.cut(weights, n), ends, (weights, n))
        rng = np.random.default_rng(1)
        for _ in range(200):
            weights = list(rng.integers(0, 50, rng.integers(1, 60)))
            n = int(rng.integers(1, len(weights) + 1))
            ends = submit.cut(weights, n)
            self.assertEqual(len(ends), n)
            self.assertEqual(ends[-1], len(weights))
            self.assertTrue(all(a < b for a, b in zip([0] + ends, ends)))

    def array(self, *options, fit=(), **how):
        return self.call(
            *options, "--rows", 80, "array", "--library", "lib.h5", "--output", "out.h5",
            "--catalog=list.txt", *fit, **how, PATH=self.bin + ":" + os.environ["PATH"])

    def test_parts(self):
        names = ["f%d.fits" % i for i in range(8)]
        # comments, blank lines, Windows ends, relative to the list's folder
        os.makedirs(os.path.join(self.folder, "lists"))
        self.write("lists/list.txt", "# all\n\n" + "\r\n".join("../" + name for name in names) + "\n")
        self.dry("gpu", fit=("--catalog", "lists/list.txt"))
        self.assertIn("1000 rows in 8 files;", self.said)
        self.write("list.txt", "\n".join(names) + "\n")
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        calls = self.write("bin/calls", "")
        write_script(os.path.join(self.bin, "sbatch"),
                     '#!/bin/sh\necho "$*" >> "${0%sbatch}calls"; echo "77;cluster"\n')
        folder = os.path.join(self.folder, "out.parts")
        text = self.array("--parts", 3, "--at-once", 2, "--dry-run",
                          fit=("--models", "m.h5", "--stat=s.json", "--log", "{part}.log"))
        self.assertFalse(os.path.exists(folder))
        self.assertEqual(self.asked(text)["array"], "0-2%2")
        self.assertEqual(self.asked(text)["output"], folder + "/part-%4a.log")
        for name in ("part-{part}.txt", "part-{part}.h5", "part-{part}.models.h5",
                     "part-{part}.h5.status.json"):
            self.assertIn(shlex.quote(os.path.join(folder, name)), text)
        self.assertIn("--log \\\n  '{part}.log'", text)
        self.assertNotIn("list.txt", text.rpartition("set --")[2])
        self.assertEqual(self.array("--parts", 3), 2 * "Submitted batch job 77\n")
        script, merge = (os.path.join(self.folder, "out.h5" + end)
                         for end in (".sbatch", ".merge.sbatch"))
        self.assertEqual(content(calls, "r").splitlines(),
                         ["--parsable " + script, "--parsable --dependency=afterany:77 " + merge])
        self.assertRegex(content(merge, "r"), r"(?s)--output \\\n +\S+/out.h5 .*/part-0000.h5 .*"
                         r"/part-0002.h5\n.*job_merge")
        parts = [content(os.path.join(folder, "part-%04d.txt" % i), "r") for i in range(3)]
        self.assertEqual("".join(parts).split(), [os.path.join(self.folder, n) for n in names])
        os.remove(os.path.join(folder, "part-0001.txt"))  # for which there was no room
        mark = put(os.path.join(folder, "part-0002.ok"), "")  # by a task of an earlier array
        self.array("--parts", 3, "--test-only")
        self.assertTrue(os.path.exists(mark))
        self.array("--parts", 3, "--no-merge")  # to continue
        self.assertEqual(content(calls, "r").count("dependency"), 1)
        self.assertEqual(len(os.listdir(folder)), 3)
        self.array("--parts", 4, status=2, says="another cut")
        self.array("--parts", 9, status=2)
        self.array(status=2, fit=("--join-by-name",))
        self.array(status=2, fit=("more.fits",))
        for text, fit, says in (
                ("join_by_name: true", (), "cut objects apart"), ("npoly: 10", (), "named twice"),
                ("{npoly: 10, join_by_name: yes}", (), "cut objects apart"),
                ("join_by_name: no", ("--join-b",), "cut objects apart"),
                ("join_by_name: no", ("--back", "auto"), "which cannot be merged"),
                ("", ("--backend", "auto"), "which cannot be merged")):
            self.write("fit.yaml", text + "\n")
            self.write("list.txt", "\ufeff" + " \n".join(names + names[:1]) + "\n")
            self.array(status=2, fit=("--config", "fit.yaml", *fit), says=says)
        self.write("list.txt", "\n".join(names) + "\n")
        self.write("out.h5", "")
        self.array("--parts", 3, status=2, says="--no-merge")
        os.remove(os.path.join(self.folder, "out.h5"))
        open(os.path.join(folder, "stop"), "w").close()
        self.array("--parts", 3, status=2, says="remove it first")

    def test_links_are_followed_before_dots(self):
        """The parts, like starmill fit, start a list's ../ at the target of the list's link."""
        os.makedirs(os.path.join(self.folder, "real", "deep"))
        os.symlink("real/deep", os.path.join(self.folder, "lists"))
        for name in ("real/in", "in"):
            os.mkdir(os.path.join(self.folder, name))
            for i in "01":
                self.write(name + "/%s.fits" % i, name)
        self.write("lists/list.txt", "../in/0.fits\n../in/1.fits\n")
        os.symlink("/bin/true", os.path.join(self.folder, "sbatch"))
        self.bin = self.folder
        self.array("--parts", 2, fit=("--catalog=lists/list.txt",))
        for i in range(2):
            listed = content(os.path.join(self.folder, "out.parts", "part-%04d.txt" % i), "r").strip()
            self.assertEqual(content(listed, "r"), "real/in")

    def test_the_mark_of_parts_is_not_for_the_output(self):
        """With {part} in --output the job would look for the lists of inputs in other folders."""
        self.write("list.txt", "a.fits\nb.fits\n")
        self.bin = self.folder
        os.mkdir(os.path.join(self.folder, "d-{part}"))
        for output in ("d-{part}/out.h5", "out-{part}.h5"):
            self.array("--parts", 2, status=2, fit=("--output", output), says="{part} has no place")
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["d-{part}", "lib.h5", "list.txt", "site.conf"])

    def test_script_stands_alone(self):
        """A job reads nothing from slurm/, and each of its arguments is one word."""
        nasty = ["--log=a b", "$(touch pwned)", "; touch pwned", "it's", "x\n#SBATCH --hold", "*"]
        text = self.dry("node", fit=nasty)
        self.assertNotIn("STARMILL_SLURM", text)
        self.assertIn("job_main()", text)
        self.assertIn("SITE_SBATCH_GPU=(--constraint=gpu)", text)
        self.assertNotIn("hold", self.asked(text))
        front, mark, back = text.rpartition("\njob_fit gpu \"$@\"\n")
        self.assertEqual(back, "")
        shown = subprocess.run(["bash", "-c", front + "\nprintf '%s\\0' \"$PWD\" \"$@\""],
                               stdout=subprocess.PIPE, text=True, check=True, cwd="/").stdout
        self.assertEqual(shown.split("\0")[:-1], [
            self.folder, "--library", "lib.h5", "--output", "out.h5", *nasty, "x.fits"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["lib.h5", "site.conf"])

    def test_refused(self):
        for args, says in (
                (("gpu", "--output", "o.h5", "--overwrite", "a.fits"), "no place"),
                (("gpu", "--output", "o.h5", "--overw", "a.fits"), "no place"),
                (("gpu", "--output", "o.h5", "--bogus", "a.fits"), "has no options that begin"),
                (("gpu", "--output", "o.h5", "--re", "a.fits"), "has 4 options that begin"),
                (("gpu", "a.fits"), "--output"),
                (("gpu", "--output", "no/o.h5", "a.fits"), "create it first"),
                (("gpu", "--output", "a\nb.h5", "a.fits"), "control characters"),
                (("gpu", "--output", "o.h5"), "no input"),
                (("gpu", "--output", "o.h5", "--catalog", "none.txt"), "no such file"),
                (("gpu", "--output", "o.h5", "--library"), "needs a value"),
                (("gpu", "--output", "o.h5", "--pattern", "*.fits"), "list the files"),
                (("--parts", 2, "array", "--output", "o.h5", "--input-table", "t", "a.fits",
                  "b.fits"), "at once"),
                (("--nodes", 2, "gpu", "--output", "o.h5", "a.fits"), "--nodes goes with"),
                (("--parts", 2, "gpu", "--output", "o.h5", "a.fits"), "--parts goes with"),
                (("--rows", 0, "gpu", "--output", "o.h5", "a.fits"), "positive"),
                (("other", "--output", "o.h5"), "invalid choice")):
            with self.subTest(args=args):
                if "--rows" not in args:
                    args = ("--rows", 5) + args
                self.assertRefused(*args, says=says)
        open(os.path.join(self.folder, "o.h5.stop"), "w").close()
        self.assertRefused("--rows", 5, "gpu", "--output", "o.h5", "a.fits", says="remove it")

    def test_nothing_is_replaced_but_a_script(self):
        star, notes = self.write("star.fits", "SIMPLE  = "), self.write("notes", "mine\n")
        self.write("list.txt", star + "\n")
        link = os.path.join(self.folder, "link")
        os.symlink(star, link)
        for args, says in (
                (("--script", star), "file of data"), (("--script", link), "file of data"),
                (("--script", "lib.h5"), "are one file"), (("--script", "out.h5"), "are one file"),
                (("--script", "list.txt"), "are one file"), (("--script", notes), "is no script"),
                (("--script", self.site), "are one file"), (("--log", link), "file of data"),
                (("--log", "out.h5"), "are one file"), (("--log", "s", "--script", "s"), "one file")):
            with self.subTest(args=args):
                before = [content(p) for p in (star, notes, self.site)]
                self.assertRefused(*args, "--rows", 5, "gpu", "--library", "lib.h5", "--output",
                                   "out.h5", "--catalog", "list.txt", says=says)
                self.assertEqual([content(p) for p in (star, notes, self.site)], before)

    def test_a_full_disk_leaves_no_script(self):
        before = sorted(os.listdir(self.folder))
        done = ended([sys.executable, "-B", SUBMIT, "--site", self.site, "--rows", 5, "gpu",
                      "--output", "out.h5", "a.fits"], cwd=self.folder,
                     preexec_fn=small_files(1000))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("out.h5.sbatch cannot be written", done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_full_names(self):
        """job.sh reads full names only."""
        text = self.call("--dry-run", "--rows", 5, "cpu", "--outp", "o.h5", "--backe=cuda", "--li",
                         "lib.h5", "x.fits")
        self.assertIn("set -- \\\n  --output \\\n  o.h5 \\\n  --backend=cuda \\\n  --library", text)

    def test_other_commands(self):
        self.write("fit.h5", "")
        text = self.call("--dry-run", "--rows", 1000, "cpu", "sample", "--fit", "fit.h5", "--output",
                         "post.h5", "x.fits")
        self.assertIn("set -- \\\n  sample \\\n  --fit", text)
        self.assertEqual(self.asked(text)["nodes"], "16")  # 1000 stars of 300 s on 32 CPUs each
        self.assertRefused("--rows", 5, "gpu", "sample", "--fit", "no.h5", "--output", "post.h5",
                           "x.fits", says="no such file")
        text = self.call("--dry-run", "gpu", "library", "train", "--linear-flux", "--output",
                         "new.h5", "grid.h5")
        self.assertIn("set -- \\\n  library \\\n  train", text)
        self.assertEqual(self.asked(text)["time"], "10")
        self.assertRefused("array", "library", "train", "--output", "new.h5", "grid.h5",
                           says="one job")

    def test_inputs_that_are_done(self):
        """Inputs done before are not counted; if all are done, nothing is submitted."""
        library, star = coarse_survey(1)
        files = [shutil.copy(star, os.path.join(self.folder, name)) for name in ("0.fits", "1.fits")]
        fit = ("--library", library, "--input-table", os.path.join(self.folder, "t"))
        options = ("--dry-run", "--count", 1, "cpu", *fit, "--skip-done", "--output", "new.h5")
        for i, says in ((0, " 1 rows in 2 files;"), (1, "all 2 inputs are done")):
            run("fit", *fit, "--output", os.path.join(self.folder, "%d.h5" % i), files[i])
            for more in (), ("--quiet",):
                script = self.call(*options, *more, *files, says=says)
                self.assertEqual("job_fit" in script, i == 0)

    def test_bad_site_files(self):
        for text, says in (
                ("SITE_WARN_S=soon", "not a number"), ("SITE_MAX_NODES=-1", "makes no sense"),
                ("SITE_SBATCH=(-A m1)", "of the form"), ("if", "bash cannot read it"),
                ("exit 3", "status 3"), ("SITE_GPUS_PER_NODE=0", "take the kind cpu")):
            with self.subTest(text=text):
                self.site = self.write("bad.conf", f"{SITE}{text}\n")
                self.assertRefused("--rows", 5, "gpu", "--output", "o.h5", "a.fits", says=says)
        self.site = os.path.join(self.folder, "absent.conf")
        self.assertRefused("--rows", 5, "gpu", "--output", "o.h5", "a.fits", says="cannot be read")

    def test_no_slurm(self):
        path = os.path.join(self.folder, "bin")
        os.mkdir(path)
        os.symlink(shutil.which("bash"), os.path.join(path, "bash"))
        self.call("--rows", 5, "gpu", "--output", "o.h5", "a.fits", status=2, PATH=path,
                  says="there is no sbatch here")
