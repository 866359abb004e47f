# SPDX-License-Identifier: BSD-3-Clause
"""Tests of packaging/gpu-programme, with stand-ins for programs, GPU and NVIDIA tools: what results
it keeps, how it continues, and what it reads in ncu's output (in the form of ncu 2025)."""

from base import *  # noqa: F403

SCRIPT = os.path.join(SOURCE, "packaging", "gpu-programme")

# each stand-in records its call; the program named in $HANG hangs, the one in $FAIL fails
HEAD = ('#!/bin/bash\necho "${0##*/} $*" >>"$RECORD"\n[[ ${0##*/} != "$HANG" ]] || exec sleep 1000\n'
        '[[ ${0##*/} != "$FAIL" ]] || { echo broken; exit 3; }\n')
FAKE = r'''
option() { local name=$1; shift; while (($#)); do [[ $1 != "$name" ]] || echo "$2"; shift; done; }
out=$(option --output "$@")
case $1 in
  simulate) mkdir -p "$out"; echo 0.fits >"$out/catalog.txt" ;;
  fit) echo rows >"$out"; echo "time         0.5 s, 4000.0 stars/s" ;;
  *) printf '| %s |\n' "$2" ;;
esac
'''
NCU = r'''
while [[ $1 == --* ]]; do
  case $1 in --log-file) csv=$2 ;; esac
  case $1 in --csv | --force-overwrite) shift ;; *) shift 2 ;; esac
done
one='"1","starmill","host","void answer_arm_f32(view, const int *)","1","7"'
{
  echo "==PROF== Connected to process 1"
  echo '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","dram__bytes.sum","gpu__time_duration.sum"'
  echo '"","","","","","","","byte","ns"'
  printf '"0",%s,"6,000,000","2,000,000"\n"1",%s,"2,000,000","2,000,000"\n' "$one" "$one"
  echo '"2","1","starmill","host","round_digest(view)","1","7","100,000","500,000"'
} >"$csv"
'''
TESTS = ("cuda_backend", "without_gpu", "train_cuda", "particles_cuda", "whole_fits")
FAKES = {"libexec/starmill": FAKE, "libexec/orterun": 'shift 2; exec "$@"',
         "libexec/h5diff": 'cmp "$1" "$2"', "bin/ncu": NCU, "share/library.h5": "",
         "bin/compute-sanitizer": 'echo "========= ERROR SUMMARY: 0 errors"'}
FAKES.update({f"libexec/test_cuda_{name}": 'echo "9 stars, 9 fitted by both"' for name in TESTS})


class GpuProgramme(unittest.TestCase):
    def setUp(self):
        self.bundle = tempfile.mkdtemp(dir=TMP)
        for path, text in FAKES.items():
            path = os.path.join(self.bundle, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.chmod(put(path, HEAD + text), 0o755)
        shutil.copy(SCRIPT, self.bundle)
        put(os.path.join(self.bundle, "BUNDLE"), "revision abc\n")
        self.folder = tempfile.mkdtemp(dir=TMP)

    def programme(self, *args, status=0, **environment):
        """Run gpu-programme; return its output.  self.calls: the programs that it called."""
        record = put(os.path.join(self.folder, "record"), "")
        env = {"PATH": os.path.join(self.bundle, "bin") + ":" + os.environ["PATH"],
               "RECORD": record, "HANG": "", "FAIL": "", **environment}
        done = ended([os.path.join(self.bundle, "gpu-programme"), "--out", self.folder + "/out",
                      "--work", self.folder + "/work", *args], env, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, status, done.stdout)
        self.calls = content(record, "r")
        return done.stdout

    def test_everything_once_and_a_named_part_again(self):
        said = self.programme("--expect", put(os.path.join(self.folder, "expect"), "answer_arm_f32 1.0\n"))
        self.assertEqual(re.findall(r"^## (\w+)$", said, re.M), [
            "check", "plain", "graph", "fits", "end", "profile", "crossover", "sanitize"])
        # calculated by hand: 4 ms / 10,000 stars, 0.5 ms / 10,000 stars, 8 MB / 4 ms
        self.assertIn("| answer_arm_f32 | 2 | 0.400 | 2 | 1.0 | 0.40 |", said)
        self.assertIn("| round_digest | 1 | 0.050 | 0 |  |  |", said)
        self.assertIn("| all | | 0.450 |", said)
        self.assertIn("| particles_cuda | passed |", said)
        self.assertIn("| 4 | yes | 0.5 s, 4000.0 stars/s |", said)
        self.assertIn("9 fitted by both", said)
        self.assertIn("| racecheck | ERROR SUMMARY: 0 errors", said)
        again = self.programme()
        self.assertEqual((self.calls, again), ("", said))
        self.assertIn("9 fitted", self.programme("fits"))
        self.assertIn("test_cuda_whole_fits", self.calls)

    def test_failures(self):
        said = self.programme(status=1, FAIL="test_cuda_cuda_backend")
        self.assertIn("| cuda_backend | FAILED (3) |", said)
        said = self.programme("fits", status=1, FAIL="test_cuda_whole_fits")
        self.assertIn("FAILED (3): broken", said)
        os.remove(os.path.join(self.bundle, "bin", "ncu"))
        if not shutil.which("ncu"):
            self.assertIn("SKIPPED: no ncu", self.programme("profile"))

    def test_what_time_cuts_off_goes_on(self):
        said = self.programme("--limit", "4", status=1, HANG="test_cuda_cuda_backend")
        self.assertEqual(said.count("not finished"), 7)
        said = self.programme()
        self.assertNotIn("doctor", self.calls, "check is done")
        self.assertIn("| cuda_backend | passed |", said)
