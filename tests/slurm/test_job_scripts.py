# SPDX-License-Identifier: BSD-3-Clause
"""job.sh and the job scripts, with make-believe srun, squeue and scontrol: every way to end."""

from survey import *

BASH = shutil.which("bash") or skip("no bash")

# each notes its arguments; what they do is in variables
FAKES = {
    "srun": '''
printf '%s\\0' "$@" >>"$RECORD/srun"
n=$(cat "$RECORD/n" 2>/dev/null || echo 0)
echo $((n + 1)) >"$RECORD/n"
echo "part ${STARMILL_PART-none}" >"$RECORD/part"
set -- $FAKE_STATUS
shift $((n < $# ? n : $# - 1))
status=$1
trap 'echo got USR1 >>"$RECORD/signals"; [ -n "$FAKE_DEAF" ] || exit "$status"' USR1
: >"$RECORD/ready"
[ -z "$FAKE_MAKES" ] || : >"$FAKE_MAKES"
[ -z "$FAKE_LONG" ] || while :; do sleep 0.05; done
exit "$status"
''',
    "squeue": 'printf "%s\\n" "$*" >>"$RECORD/squeue"; echo "$FAKE_STATE"',
    # as Slurm does: all of the job
    "scontrol": 'printf "%s\\n" "$*" >>"$RECORD/scontrol"; kill -KILL 0',
    "starmill": '[ "$1" = status ] && exit "$FAKE_RESULT"; [ "$1" = merge ] && exit 42; exit 99',
    "nsys": "exit 99"}

for fake_name, fake_text in FAKES.items():
    os.makedirs(tmp("bin"), exist_ok=True)
    write_script("bin/" + fake_name, "#!/bin/bash\n" + fake_text + "\n")
put("site.conf", "SITE_WARN_S=4\nSITE_POLL_S=0.1\n"
           "site_setup() { export SITE_WAS_HERE=yes; return \"$site_status\"; }\n"
           "site_status=${FAKE_SITE_STATUS:-0}\n")


class JobScripts(ProgramTest):
    def start(self, script="node", args=("--output", "out.h5"), **environment):
        self.record = tempfile.mkdtemp(dir=TMP)
        variables = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        variables.update(
            PATH=tmp("bin") + ":" + os.environ["PATH"], RECORD=self.record, FAKE_STATUS="0",
            FAKE_STATE="RUNNING", FAKE_LONG="", FAKE_DEAF="", FAKE_MAKES="", FAKE_RESULT="0", SLURM_JOB_ID="12",
            STARMILL_SLURM=SLURM, STARMILL_SITE=tmp("site.conf"))
        variables.update(environment)
        return subprocess.Popen(
            [BASH, os.path.join(SLURM, script + ".sbatch"), *args], env=variables, cwd=self.record,
            start_new_session=True, **{**PIPES, "stderr": subprocess.STDOUT})

    def run_script(self, *args, **how):
        """Exit status of the script; self.text is what it said."""
        return self.end(self.start(*args, **how))

    def end(self, process):
        self.text = process.communicate(timeout=PATIENCE)[0]
        return process.returncode

    def noted(self, name):
        path = os.path.join(self.record, name)
        return content(path, "r") if os.path.exists(path) else ""

    def wait_for(self, name):
        wait_until(lambda: os.path.exists(os.path.join(self.record, name)))

    def assertRequeued(self, status, wanted):
        """Requeued: scontrol was asked, and ended the script as Slurm does."""
        self.assertEqual(self.noted("scontrol"), "requeue %s\n" % wanted, self.text)
        self.assertEqual(status, -signal.SIGKILL)

    def test_statuses_that_end_it(self):
        for status in (0, 2, 3, 4):
            with self.subTest(status=status):
                self.assertEqual(self.run_script(FAKE_STATUS=str(status)), status, self.text)
                self.assertEqual(self.noted("n"), "1\n")
                self.assertEqual(self.noted("scontrol"), "")

    def test_new_try_after_a_crash(self):
        for first in ("70", "137", "1"):
            with self.subTest(first=first):
                self.assertEqual(self.run_script(FAKE_STATUS=first + " 0"), 0, self.text)
                self.assertEqual(self.noted("n"), "2\n")
        self.assertEqual(self.run_script(FAKE_STATUS="70"), 70, self.text)
        self.assertEqual(self.noted("n"), "2\n")
        self.assertEqual(self.noted("scontrol"), "")

    def test_stopped_and_requeued(self):
        self.assertRequeued(self.run_script(FAKE_STATUS="75"), "12")
        self.assertEqual(self.noted("squeue"), "--noheader --jobs=12 --format=%T\n")
        self.assertEqual(self.noted("part"), "part none\n")

    def test_a_launcher_that_lost_a_node_ends_with_0(self):
        output = ("--output", "out.h5")
        for result, args in (*((r, ()) for r in ("10", "75", "12", "11")), ("0", ("library", "train"))):
            with self.subTest(result=result, args=args):
                self.assertRequeued(self.run_script(args=(*args, *output), FAKE_RESULT=result), "12")
                self.assertIn("out.h5 is not finished: was a node lost?", self.text)
        for result, args in (("11", ("--skip-d", "--input-table=t")), ("12", ("--skip-done",)), ("11", ("--plan",)),
                             ("0", ("library", "train"))):  # srun makes out.h5, the library
            with self.subTest(result=result, args=args):
                self.assertEqual(self.run_script(args=(*args, *output), FAKE_RESULT=result,
                                                 FAKE_MAKES="out.h5"), 0, self.text)

    def test_a_task_is_requeued_alone(self):
        status = self.run_script("array", ("--output", "a-{part}.h5", "--catalog={part}"),
                                 FAKE_STATUS="75", SLURM_ARRAY_JOB_ID="12", SLURM_ARRAY_TASK_ID="3")
        self.assertRequeued(status, "12_3")
        self.assertIn("\0--output\0a-0003.h5\0--catalog=0003\0", self.noted("srun"))
        self.assertEqual(self.noted("part"), "part 1\n")

    def test_merge_takes_what_the_last_start_completed(self):
        """A part that refused its settings (status 4) has an earlier array's file: no merge."""
        folder = tempfile.mkdtemp(dir=TMP)
        args = ("--output", folder + "/part-{part}.h5")
        merge = ("--output", folder + "/all-0009.h5", *(folder + "/part-000%d.h5" % i for i in (3, 4)))
        for task, status, merged in (
                (3, "0", 2), (4, "3", 42), (4, "4", 2), (4, "70 0", 42), (4, "75", 2), (4, "2", 2),
                (3, "70", 2), (4, "0", 2), (3, "75 0", 2), (3, "0", 42)):
            with self.subTest(task=task, status=status):
                self.run_script("array", args, FAKE_STATUS=status, SLURM_ARRAY_TASK_ID=str(task),
                                SLURM_ARRAY_JOB_ID="12")
                self.assertEqual(self.run_script("merge", merge), merged, self.text)
        self.run_script("array", args, FAKE_SITE_STATUS="5", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual(self.run_script("merge", merge), 2, self.text)
        self.run_script("array", args, FAKE_STATUS="4", SLURM_ARRAY_TASK_ID="4")
        self.run_script("merge", merge)
        self.assertRegex(self.text, "did not complete .* %s/part-0004.h5: see .*remove" % folder)

    def test_not_requeued(self):
        for why, variables in (("state is COMPLETING", {"FAKE_STATE": "COMPLETING"}),
                               ("SITE_MAX_REQUEUES", {"SLURM_RESTART_COUNT": "100"})):
            with self.subTest(why=why):
                self.assertEqual(self.run_script(FAKE_STATUS="75", **variables), 75, self.text)
                self.assertIn(why, self.text)
                self.assertEqual(self.noted("scontrol"), "")
        self.assertEqual(self.run_script("profile", FAKE_STATUS="75"), 75)
        self.assertEqual(self.noted("scontrol"), "")

    def signalled(self, number, **how):
        process = self.start(FAKE_LONG="1", **how)
        self.wait_for("ready")
        process.send_signal(number)
        return self.end(process)

    def test_warning_before_the_limit(self):
        # 138 = 128 + SIGUSR1: the signal ended ranks that did not handle it yet
        for status in ("75", "138"):
            with self.subTest(status=status):
                self.assertRequeued(self.signalled(signal.SIGUSR1, FAKE_STATUS=status), "12")
                self.assertEqual(self.noted("signals"), "got USR1\n")
        # done all the same
        self.assertEqual(self.signalled(signal.SIGUSR1), 0, self.text)
        self.assertEqual(self.noted("scontrol"), "")

    def test_ranks_that_do_not_stop(self):
        """Requeued before Slurm would kill the job, which would not come back."""
        begin = time.time()
        self.assertRequeued(self.signalled(signal.SIGUSR1, FAKE_DEAF="1"), "12")
        self.assertIn("not stopped in time", self.text)
        self.assertGreaterEqual(time.time() - begin, 3)  # three quarters of SITE_WARN_S

    def test_sigterm_stops_for_good(self):
        self.assertEqual(self.signalled(signal.SIGTERM, FAKE_STATUS="75"), 75, self.text)
        self.assertEqual(self.noted("signals"), "got USR1\n")
        self.assertEqual(self.noted("scontrol"), "")

    def test_stop_file(self):
        for script, args, name in (
                ("node", ("--output=out.h5",), "out.h5.stop"),
                ("node", ("--output=out.h5", "--stop-file", "s t"), "s t"),
                ("node", ("--output=out.h5", "--stop-file=s t"), "s t"),
                ("node", ("--stop=a", "--output=out.h5", "--stop-f", "s t"), "s t"),
                ("node", ("--output=out.h5", "--sto=s t", "--log", "l"), "s t"),
                ("array", ("--output", "p/x{part}.h5"), "p/x0007.h5.stop"),
                ("array", ("--output", "p/x{part}.h5"), "p/stop"),
                ("array", ("--output", "x{part}.h5"), "stop")):
            with self.subTest(name=name):
                process = self.start(script, args, FAKE_LONG="1", FAKE_STATUS="75",
                                     SLURM_ARRAY_TASK_ID="7", SLURM_ARRAY_JOB_ID="12")
                self.wait_for("ready")
                path = os.path.join(self.record, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                open(path, "w").close()
                self.assertEqual(self.end(process), 75, self.text)
                self.assertIn(name, self.text)
                self.assertEqual(self.noted("signals"), "got USR1\n")
                self.assertEqual(self.noted("scontrol"), "")

    def test_stop_file_that_the_program_sees_first(self):
        # it ends by itself with 75: that is no reason to come back
        self.assertEqual(self.run_script(FAKE_STATUS="75", FAKE_MAKES="out.h5.stop"), 75)
        self.assertIn("submit the same again", self.text)
        self.assertEqual(self.noted("scontrol"), "")

    def test_stop_file_before_the_start(self):
        out = tmp("stopped.h5")
        open(out + ".stop", "w").close()
        self.assertEqual(self.run_script(args=("--output", out)), 75)
        self.assertIn("remove it", self.text)
        self.assertEqual(self.noted("n"), "")

    def test_refused(self):
        for args, script, why in (
                (("--output", "o", "--overwrite"), "node", "no place"),
                (("--output", "o", "--overw"), "node", "no place"),
                (("--outp", "o"), "node", "--output"),
                (("--output", "o"), "array", "this is a job array")):
            with self.subTest(args=args):
                self.assertEqual(self.run_script(script, args), 2)
                self.assertIn(why, self.text)
                self.assertEqual(self.noted("n"), "")
        self.assertEqual(self.run_script(FAKE_SITE_STATUS="5"), 2)
        self.assertIn("site_setup", self.text)

    def test_a_newer_result_of_overwrite(self):
        """A newer OUT.h5.new is refused: as it is unfinished, the job would be requeued for ever."""
        out = put("overwritten.h5", "")
        link = tmp("link-to-overwritten.h5")
        os.symlink(out, link)
        put("overwritten.h5.new", "")
        for age_s, status in ((10, 2), (-10, 0)):
            os.utime(out, (time.time() - age_s,) * 2)
            for args in ("--output", out), ("--output", link):
                with self.subTest(age_s=age_s, args=args):
                    self.assertEqual(self.run_script(args=args), status, self.text)
                    self.assertEqual("to keep " + args[1] in self.text, status == 2, self.text)

    def test_arguments_arrive_as_they_are(self):
        nasty = ["a b", "$(touch pwned)", "`touch pwned`", "*", "; touch pwned", "x\ny", "'", '"',
                 "\\", "", "-", "~"]
        for script, front in (
                ("gpu", ["starmill", "fit", "--backend", "cuda"]),
                ("cpu", ["starmill", "fit", "--backend", "cpu"]),
                ("profile", ["nsys", "profile", "--trace=cuda,nvtx,mpi,osrt", "--sample=none",
                             "--output=%s%%%%.h5.rank%%q{SLURM_PROCID}", "starmill", "fit",
                             "--backend", "cuda"])):
            with self.subTest(script=script):
                args = ["--output", "o%.h5" if script == "profile" else "o.h5", *nasty]
                self.assertEqual(self.run_script(script, args), 0, self.text)
                front = [w % "o" if w.startswith("--output") else w for w in front]
                self.assertEqual(self.noted("srun").split("\0")[:-1],
                                 ["--kill-on-bad-exit=1", *front, *args])
                self.assertFalse(os.path.exists(os.path.join(self.record, "pwned")))

    def test_backend_given(self):
        for option in ("--backend", "--back"):
            self.run_script("gpu", (option, "cpu", "--output", "o"))
            self.assertIn(f"fit\0{option}\0cpu\0--output\0o\0", self.noted("srun"))
        cuda = "--backend\0cuda\0"
        for text, default in (
                ("npoly: 5\nbackend: cuda+cpu\n", ""), ("{npoly: 5, 'backend' : \"cpu\"}", ""),
                ("# backend: cpu\nbackend: auto\n", cuda),
                ("template_lib: /backend/cpu.h5 # backend: cpu", cuda)):
            path = put("backend.yaml", text)
            for words in ("--config", path), ("--config=" + path,), ("--conf", path):
                with self.subTest(text=text, words=words):
                    self.run_script("gpu", (*words, "--output", "o"))
                    self.assertIn("\0".join((f"\0fit\0{default}" + words[0], *words[1:])),
                                  self.noted("srun"))

    def test_failed_rows_are_retried_once(self):
        """A restart that finds the result unfinished leaves out --retry-failed."""
        for restarts, result, retries in (("0", "75", True), ("2", "75", False), ("2", "0", True)):
            with self.subTest(restarts=restarts, result=result):
                self.run_script(args=("--retry-f", "--output", "o"), FAKE_STATUS="2",
                                SLURM_RESTART_COUNT=restarts, FAKE_RESULT=result)
                self.assertEqual("\0--retry-f\0" in self.noted("srun"), retries, self.text)

    def test_other_commands(self):
        for command in (("sample",), ("library", "train")):
            self.run_script("gpu", (*command, "--output", "o"), FAKE_MAKES="o")
            self.assertIn("\0".join(("starmill", *command, "--backend", "cuda", "--output", "o")),
                          self.noted("srun"))
        for emulator, first in (("linear", "--em"), ("network", "--backend")):
            for words in ("--emulator " + emulator, "--emulator=" + emulator, "--em " + emulator):
                self.run_script("cpu", ("library", "train", *words.split(), "--batch", "8",
                                        "--output", "o"), FAKE_MAKES="o")
                self.assertIn("\0train\0" + first, self.noted("srun"))


class Files(unittest.TestCase):
    def test_never_overwrites_and_never_truncates(self):
        scripts = sorted(glob.glob(os.path.join(SLURM, "*.sbatch")))
        self.assertEqual([os.path.basename(s)[:-7] for s in scripts],
                         ["array", "cpu", "gpu", "merge", "node", "nodes", "profile", "requeue"])
        for path in scripts:
            text = content(path, "r")
            self.assertNotIn("--overwrite", text)
            self.assertIn("#SBATCH --open-mode=append\n", text)
            self.assertIn("\nset -euo pipefail\n", text)
            merges = path.endswith("merge.sbatch")
            if not merges:
                self.assertRegex(text, r"#SBATCH --signal=B:USR1@\d+\n")
            once = merges or path.endswith("profile.sbatch")
            self.assertIn("#SBATCH --no-requeue\n" if once else "#SBATCH --requeue\n", text)

    def test_bash_reads_them(self):
        for path in glob.glob(os.path.join(SLURM, "*.*")):
            subprocess.run([BASH, "-n", path], check=True)

    @unittest.skipUnless(shutil.which("shellcheck"), "no shellcheck")
    def test_shellcheck(self):
        files = sorted(glob.glob(os.path.join(SLURM, "*.*")))
        files.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mini-slurm"))
        done = ended(["shellcheck", "-x", "-P", os.path.dirname(SLURM), *files])
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_defaults_are_those_of_the_site_file(self):
        """site.conf shows what holds without it."""
        program = 'for f; do . "$f"; done; declare -p ${!SITE_@}'
        have = [ended([BASH, "-c", program, "bash", *files], check=True).stdout
                for files in ([os.path.join(SLURM, "job.sh")],
                              [os.path.join(SLURM, "site.conf"), os.path.join(SLURM, "job.sh")])]
        self.assertEqual(*have)
        example = os.path.join(SLURM, "site-perlmutter.conf")
        known = set(re.findall(r"(SITE_\w+)=", have[0]))
        self.assertLessEqual(set(re.findall(r"^(\w+)=", content(example, "r"), re.M)), known)
