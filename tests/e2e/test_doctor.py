# SPDX-License-Identifier: BSD-3-Clause
"""What `starmill doctor` says of this machine, against what Python sees of it."""

import re
import socket

from base import *  # noqa: F403

# Two GPUs, as NVIDIA's management library tells of them; the second has a broken memory.
DRIVER = r"""
#include <stdio.h>
#include <string.h>
typedef struct { char legacy[16]; unsigned number[5]; char bus[32]; } pci_info;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { snprintf(text, n, "570.1"); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, unsigned long *device) { *device = i + 1; return 0; }
int nvmlDeviceGetName(unsigned long device, char *text, unsigned n)
{ snprintf(text, n, "Make-believe %lu", device); return 0; }
int nvmlDeviceGetPciInfo_v3(unsigned long device, pci_info *pci)
{ memset(pci, 0, sizeof *pci); snprintf(pci->bus, 32, "00000000:%02lX:00.0", device); return 0; }
int nvmlDeviceGetMemoryInfo(unsigned long device, unsigned long long *memory)
{ memory[0] = 80000000000; memory[2] = device == 1 ? 20000000000 : 50000000000;
  memory[1] = memory[0] - memory[2]; return 0; }
int nvmlDeviceGetUtilizationRates(unsigned long device, unsigned *percent)
{ percent[0] = percent[1] = 7; return 0; }
int nvmlDeviceGetEccMode(unsigned long device, int *now, int *later) { *now = *later = 1; return 0; }
int nvmlDeviceGetTotalEccErrors(unsigned long device, int type, int counter, unsigned long long *n)
{ *n = device == 2 && type == 1 && counter == 0 ? 3 : 0; return 0; }
"""


class Doctor(ProgramTest):
    def ask(self, *args, status=0, ranks=0, env=None):
        """{"topic.name": (value, mark)} of all lines."""
        done = starmill("doctor", *args, ranks=ranks, cwd=TMP, env=env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        found, topic, key = {}, "", ""
        *lines, last = done.stdout.splitlines()
        for line in lines:
            if line.startswith("    "):
                found[key] = (found[key][0], line.strip())
            elif line.startswith("  "):
                name, value = re.fullmatch(r"  (\S+) +(.*)", line).groups()
                key = f"{topic}.{name}"
                found[key] = (value, "")
            else:
                topic = line
        marks = [mark for _, mark in found.values()]
        n_failure, n_warning = (sum(mark.startswith(kind) for mark in marks)
                                for kind in ("failure", "warning"))
        self.assertRegex(last, rf"^{'ready' if status == 0 else 'not ready'}: {n_failure} failures?, "
                               rf"{n_warning} warnings?$")
        return found

    def test_this_machine(self):
        os.mkdir(tmp("out"))
        found = self.ask("--output", tmp("out"), "--library", os.path.join(SOURCE, "libraries", "fgk.h5"))
        self.assertEqual(os.listdir(tmp("out")), [])
        self.assertEqual(found["machine.host"][0], socket.gethostname())
        self.assertIn(f"{len(os.sched_getaffinity(0))} of them for rank 0", found["machine.cores"][0])
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertAlmostEqual(float(found["machine.memory"][0].split()[0]) / (memory / 1e9), 1,
                               places=3)
        disk = os.statvfs(tmp("out"))
        # others write to this disk too
        self.assertAlmostEqual(float(found["output.free"][0].split()[0]),
                               disk.f_bavail * disk.f_frsize / 1e9, delta=2)
        self.assertIn("yes", found["ranks.threads_of_mpi"][0])
        self.assertRegex(found["fit.backend"][0], "^(cpu x86-64-v|cuda )")
        self.assertRegex(found["fit.crossover"][0], "^none, so the CPU: .|measured 2")
        self.assertRegex(found["library.read"][0], r"^\d+ labels, \d+ arms?$")
        version = starmill("--version").stdout
        self.assertIn(found["program.HDF5"][0], version)
        if "built without CUDA" in version:
            self.assertEqual(found["cuda.devices"][0], "built without CUDA")

    def test_two_ranks_write_together(self):
        found = self.ask("--output", TMP, ranks=2)
        self.assertEqual(found["ranks.count"][0], "2")
        self.assertEqual(found["ranks.hosts"][0], "1, at most 2 ranks on one")
        self.assertIn("read back by all ranks", found["output.collective_write"][0])
        self.assertEqual([n for n in os.listdir(TMP) if "doctor" in n], [])

    def test_folders_that_cannot_be_used(self):
        mark = self.ask("--output", tmp("absent"), status=4)["output.writable"][1]
        self.assertRegex(mark, "^failure: .*" + re.escape(tmp("absent")))
        self.ask("--output", "/proc", status=4, ranks=2)

    def test_gpus_that_only_the_driver_knows(self):
        cc = shutil.which("cc")
        if not cc:
            self.skipTest("no C compiler")
        os.mkdir(tmp("driver"))
        subprocess.run([cc, "-shared", "-fPIC", "-x", "c", "-", "-o",
                        tmp("driver/libnvidia-ml.so.1")], input=DRIVER, text=True, check=True)
        found = self.ask("--backend", "cpu", env={"LD_LIBRARY_PATH": tmp("driver")})
        self.assertEqual(found["gpu.driver"][0], "570.1")
        self.assertEqual(found["gpu.0"],
                         ("Make-believe 1, 80 GB (20 in use), ECC on, 00000000:01:00.0", ""))
        self.assertIn("3 uncorrected memory errors", found["gpu.1"][1])
        # and this program has no use for them
        self.assertIn("warning", found["cuda.devices"][1])

    def test_a_launcher_of_another_mpi(self):
        found = self.ask(status=70, env={"SLURM_STEP_NUM_TASKS": "4"})
        self.assertRegex(found["ranks.count"][1], "^failure: .*4 tasks")

    def test_a_backend_that_is_not_there(self):
        if "built without CUDA" not in starmill("--version").stdout:
            self.skipTest("built with CUDA")
        found = self.ask("--backend", "cuda", status=2)
        self.assertIn("without CUDA", found["fit.backend"][1])

    def test_usage(self):
        for args, part in ((["--outputt"], "--outputt"), (["here"], "here"),
                           (["--limit", "0"], "--limit"), (["--backend", "gpu"], "gpu"),
                           (["--library", tmp("absent.h5")], tmp("absent.h5"))):
            done = starmill("doctor", *args)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"\Astarmill doctor: .*" + re.escape(part) + r".*\n\Z")
