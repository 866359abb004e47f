"""tools/gpu-programme with make-believe programs, GPU and tools of NVIDIA in a bundle: what it keeps,
how it goes on, and what it reads in the tools' output (whose form is that of ncu 2025, nsys 2025 and
compute-sanitizer 2025)."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

SCRIPT = os.path.join(os.environ["MILL_SOURCE_DIR"], "tools", "gpu-programme")
TMP = tempfile.mkdtemp(prefix="starmill-e2e.")
PATIENCE = 240  # s; what takes longer hangs, also on a slow and busy machine
unittest.addModuleCleanup(shutil.rmtree, TMP, ignore_errors=True)

# each notes how it was called; a program named in $HANG hangs
HEAD = '#!/bin/bash\necho "${0##*/} $*" >>"$RECORD"\n[[ ${0##*/} != "$HANG" ]] || sleep 1000\n'
STARMILL = r'''
option() { local name=$1; shift; while (($#)); do [[ $1 != "$name" ]] || echo "$2"; shift; done; }
out=$(option --output "$@")
case $1\ $2 in
  --version*) echo starmill 1 ;;
  simulate*) mkdir -p "$out"; echo 0.fits >"$out/catalog.txt"
    echo stars >"$out/0.fits"; echo stars >"$out/coadd-0.fits" ;;
  fit\ --help) echo cuda, cuda+cpu ;;
  fit*) [[ ! -e $out || $(<"$out") != stopped ]] || { echo rows >"$out"; exit; }
    case $* in *--slots\ 16*) trap 'exit 75' TERM; echo stopped >"$out"; sleep 5 & wait ;; esac
    echo rows >"$out"; echo "time         0.5 s, 4000.0 stars/s" ;;
  bench*) printf '132 multiprocessors: float32 60.0 TFLOP/s\n\n| %s |\n|---|\n| 7 |\n' "$2"
    echo "a line of the log" >&2; echo "| 8 |" ;;
esac
'''
NCU = r'''
while [[ $1 == --* ]]; do
  case $1 in --log-file) csv=$2 ;; --metrics) metrics=$2 ;; esac
  case $1 in --csv | --force-overwrite) shift ;; *) shift 2 ;; esac
done
[[ -z $NO_COUNTERS ]] || { echo "==ERROR== ERR_NVGPUCTRPERM: no permission" >"$csv"; exit 1; }
"$@" >&2
head='"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size"'
head+=',"Grid Size","Device","CC"'
one='"1","starmill","host","void answer_arm<(int)0>(view, const int *)","1","7","(128, 1, 1)","(9, 1, 1)","0","9.0"'
two='"1","starmill","host","round_digest(view)","1","7","(32, 1, 1)","(9, 1, 1)","0","9.0"'
{
  echo "==PROF== Connected to process 1 (/b/libexec/starmill)"
  if [[ $metrics == gpu__time_duration.sum ]]; then
    # the other bundle is twice as slow in one kernel
    t=2,000,000; [[ $1 != */other/* && $* != */other/* ]] || t=4,000,000
    echo "$head,\"gpu__time_duration.sum\""
    echo '"","","","","","","","","","","","ns"'
    printf '"0",%s,"%s"\n"1",%s,"%s"\n"2",%s,"500,000"\n' "$one" "$t" "$one" "$t" "$two"
  else
    # columns in the order of the alphabet, as ncu prints them; units of their own
    echo "$head,\"dram__bytes.sum\",\"gpu__time_duration.sum\",\"lts__t_bytes.sum\",\"sm__warps_active.avg.pct_of_peak_sustained_active\",\"smsp__average_warp_latency_per_inst_issued.ratio\",\"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio\",\"smsp__issue_active.avg.pct_of_peak_sustained_active\""
    echo '"","","","","","","","","","","","Mbyte","us","byte","%","cycle","inst","%"'
    echo "\"0\",$one,\"6\",\"1,000\",\"9,000,000\",\"10\",\"8\",\"6\",\"20\""
    echo "\"1\",$one,\"2\",\"3,000\",\"3,000,000\",\"20\",\"8\",\"2\",\"40\""
  fi
  echo "==PROF== Disconnected from process 1"
} >"$csv"
'''
SANITIZER = r'''
if [[ $2 == racecheck ]]; then
  echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 9
fi
echo "========= LEAK SUMMARY: 0 bytes leaked in 0 allocations"
echo "========= ERROR SUMMARY: 0 errors"
'''
NSYS = r'''
[[ $1 == stats ]] || exit 0
cat <<'END'
Generating SQLite file nsys-plain.sqlite from nsys-plain.nsys-rep
Processing [nsys-plain.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000000,20,150000.0,150000.0,1,2,8.1,"void answer_arm<(int)0>(view, int)"
25.0,1000000,10,100000.0,100000.0,1,2,8.1,round_digest(view)
END
'''
FAKES = {
    "libexec/starmill": STARMILL,
    "libexec/orterun": 'shift 2; exec "$@"',
    "libexec/h5diff": 'cmp "$1" "$2"',
    "libexec/test_cuda_cuda_backend": 'echo "[  PASSED  ] 9 test(s)."',
    "libexec/test_cuda_device_choice": 'echo "[  PASSED  ] 9 test(s)."',
    "libexec/test_cuda_particles_cuda": 'echo "[  PASSED  ] 8 test(s)."',
    "libexec/test_cuda_whole_fits":
        '[[ ${FITS:-0} == 0 ]] || echo "SKIPPED: one"\n'
        'echo "5000 stars, 4990 fitted by both"; exit "${FITS:-0}"',
    "bin/ncu": NCU, "bin/nsys": NSYS, "bin/compute-sanitizer": SANITIZER,
}


def make_bundle(name):
    folder = os.path.join(TMP, name)
    for path, text in FAKES.items():
        path = os.path.join(folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(HEAD + text)
        os.chmod(path, 0o755)
    shutil.copy(SCRIPT, folder)
    with open(os.path.join(folder, "BUNDLE"), "w") as f:
        f.write(f"revision {name}\n")
    return folder


class GpuProgramme(unittest.TestCase):
    def setUp(self):
        self.bundle = make_bundle("bundle")
        self.folder = tempfile.mkdtemp(dir=TMP)
        self.out = os.path.join(self.folder, "out")
        self.record = os.path.join(self.folder, "record")

    def start(self, *args, **environment):
        variables = dict(os.environ, PATH=os.path.join(self.bundle, "bin") + ":" +
                         os.environ["PATH"], RECORD=self.record, HANG="", NO_COUNTERS="")
        variables.update(environment)
        return subprocess.Popen(
            [os.path.join(self.bundle, "gpu-programme"), "--out", self.out, "--work",
             os.path.join(self.folder, "work"), *args], env=variables, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def programme(self, *args, status=0, **environment):
        """What it says; self.calls are the programs that it called."""
        open(self.record, "w").close()
        process = self.start(*args, **environment)
        said = process.communicate(timeout=PATIENCE)[0]
        self.assertEqual(process.returncode, status, said)
        with open(self.record) as f:
            self.calls = f.read()
        return said

    def kept(self, name):
        with open(os.path.join(self.out, name)) as f:
            return f.read()

    def test_arguments_that_are_wrong_are_named(self):
        for args, message in (([], "no part"), (["some"], "'some'"), (["check", "--limit"], "value"),
                              (["check", "--limit", "0"], "--limit"),
                              (["check", "--budget", "1.5"], "--budget"),
                              (["against"], "--against DIR"),
                              (["all", "--against", TMP], "no bundle")):
            with self.subTest(args=args):
                self.assertIn(message, self.programme(*args, status=2))
        self.programme("check")
        with open(os.path.join(self.bundle, "BUNDLE"), "w") as f:
            f.write("revision another\n")
        self.assertIn("another bundle", self.programme("check", status=2))
        self.out = os.path.join(self.bundle, "out")
        self.assertIn("folder", self.programme("check", status=2))
        done = subprocess.run([SCRIPT, "check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is no bundle", done.stderr)

    def test_everything_once_and_a_named_part_again(self):
        other = make_bundle("other")
        said = self.programme("all", "--small", "1000", "--against", other, status=1, FITS="1")
        # by hand: 4 ms and 0.5 ms by 1000 stars
        self.assertIn("| answer_arm<0> | 2 | 4.000 | 4.000 | 88.9 |", said)
        self.assertIn("| round_digest | 1 | 0.500 | 0.500 | 11.1 |", said)
        self.assertIn("| all | 3 | 4.500 | 4.500 | 100 |", said)
        # 8 MB and 12 MB in 4 ms; a quarter of the time 10, 20 and 75 %, else 20, 40 and 25 %
        self.assertIn("| answer_arm<0> | 2 | 2000.00 | 4000.0 | 6000.0 | 2.0 | 3.0 | 17.5 | 35.0 | "
                      "37.5 |", said)
        self.assertIn("| answer_arm<0> | 4.000 | 8.000 | 0.50 |", said)
        self.assertIn("| all | 4.500 | 8.500 | 0.53 |", said)
        self.assertIn("| plain | answer_arm<0> | 20 | 3.000 | 150.0 |", said)
        self.assertIn("| fit of 12 stars | FAILED (9): ========= RACECHECK SUMMARY: 1 hazard", said)
        self.assertRegex(said, r"\| test of the kernels \| passed \| [0-9.]+ \| ERROR SUMMARY: 0")
        self.assertRegex(said, r"5000 stars \| FAILED \(1\): 5000 stars, 4990 .* \| 5000 stars, 4990")
        self.assertRegex(said, r"\| 1 \| default \| 1000 \| passed \| 0.5 \| [0-9.]+ \| 4000.0 \|")
        self.assertRegex(said, r"\| 2,one_on_the_CPU \| default \| 500 \| passed \|")
        self.assertRegex(self.kept("end/spare.txt"), r"spare_cores .* 2\n")
        self.assertRegex(said, r"stopped and continued \| passed")
        self.assertIn("132 multiprocessors: float32 60.0 TFLOP/s\n\n| slots |\n|---|\n| 7 |\n| 8 |\n",
                      self.kept("slots.md"))
        self.assertIn("| particles |\n|---|\n| 7 |\n| 8 |\n", self.kept("particles.md"))
        self.assertRegex(self.kept("particles.md"), r"GPU against CPU \| passed")
        self.assertIn("--particles 1000000,10000000", self.kept("particles/large.txt"))
        self.assertIn("==PROF== Connected", self.kept("kernels/time.csv"))
        self.assertIn("4 FAILED, 0 not", said)
        again = self.programme("all", "--small", "1000", "--against", other, status=1)
        # only the look for a GPU and for what this program can
        self.assertRegex(self.calls, r"\Astarmill bench slots.* --stars 1 .*\nstarmill fit --help\n\Z")
        self.assertIn("| all | 3 | 4.500 | 4.500 | 100 |", again)
        fits = self.programme("fits", "--small", "1000")
        self.assertRegex(fits, r"5000 stars \| passed")
        self.assertIn("test_cuda_whole_fits", self.calls)

    def test_a_profiler_without_permission_and_no_tool(self):
        said = self.programme("kernels", status=1, NO_COUNTERS="1")
        self.assertIn("(time: FAILED (1): ==ERROR== ERR_NVGPUCTRPERM: no permission)", said)
        os.remove(os.path.join(self.bundle, "bin", "compute-sanitizer"))
        if not shutil.which("compute-sanitizer"):
            self.assertIn("SKIPPED: no compute-sanitizer", self.programme("racecheck"))

    def test_what_time_cuts_off_goes_on_within_the_budget(self):
        said = self.programme("all", "--limit", "20", "--budget", "24", status=1,
                              HANG="test_cuda_cuda_backend")
        self.assertRegex(said, r"plain launches \| not finished \|")
        self.assertIn("no time is left", said)
        self.assertGreaterEqual(int(self.kept("spent")), 3)
        self.assertIn("works", self.kept("check.md"))
        # the few seconds that are left
        self.programme("all", "--limit", "500", status=1, HANG="test_cuda_cuda_backend")
        self.assertGreaterEqual(int(self.kept("spent")), 5)
        self.assertNotIn("/mpi", self.calls, "check is done")
        self.assertIn("no time is left for check", self.programme("all", status=1))
        self.assertEqual(self.calls, "")
        said = self.programme("backend", "--budget", "900")
        self.assertRegex(said, r"plain launches \| passed \|")
        self.assertRegex(said, r"of 900 s are spent")

    def test_killed_it_leaves_nothing_running_and_goes_on(self):
        for sent in (signal.SIGKILL, signal.SIGTERM):
            process = self.start("all", HANG="test_cuda_whole_fits")
            end = time.time() + PATIENCE
            while not self.running("test_cuda_whole_fits"):
                self.assertLess(time.time(), end)
                time.sleep(0.05)
            process.send_signal(sent)
            process.communicate(timeout=PATIENCE)
            end = time.time() + PATIENCE
            while self.running("test_cuda_whole_fits"):
                self.assertLess(time.time(), end, "the step has outlived the programme")
                time.sleep(0.1)
        said = self.programme("all", status=1)
        self.assertRegex(said, r"5000 stars \| passed")
        self.assertNotRegex(self.calls, r"simulate .*small|test_cuda_device_choice")

    def running(self, program):
        """Processes that are this program of the test's bundle; ldd only looks at it."""
        path = os.path.join(self.bundle, "libexec", program)
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as f:
                    if re.match(r"([^\0]*bash\0)?" + re.escape(path) + r"(\0|$)", f.read()):
                        found.append(pid)
            except OSError:
                pass
        return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
