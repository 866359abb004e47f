"""What `starmill doctor` says of this machine, against what Python sees of it."""

import json
import os
import resource
import shutil
import socket

from base import *  # noqa: F403


def limit_files(n_byte):
    """For a child: no file larger than that, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_byte, n_byte))


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
    def ask(self, *args, status=0, ranks=0, **how):
        """All findings by key."""
        done = subprocess.run(command("doctor", "--json", *args, ranks=ranks),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False,
                              **{"env": ENVIRONMENT, "cwd": TMP, **how})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["ready"], answer["exit_status"]), (status == 0, status))
        found = {f["key"]: f for f in answer["findings"]}
        self.assertEqual(answer["failures"], sum(f["level"] == "failure" for f in found.values()))
        self.assertEqual(answer["warnings"], sum(f["level"] == "warning" for f in found.values()))
        for finding in found.values():
            self.assertEqual(finding["fix"] is None, finding["level"] == "ok", finding)
        return found

    def test_this_machine(self):
        os.mkdir(tmp("out"))
        found = self.ask("--output", tmp("out"))
        self.assertEqual(os.listdir(tmp("out")), [])
        self.assertEqual(found["machine.host"]["value"], socket.gethostname())
        self.assertEqual(found["machine.cores_of_rank_0"]["value"], len(os.sched_getaffinity(0)))
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertAlmostEqual(found["machine.memory"]["value"], memory / 1e9, places=6)
        disk = os.statvfs(tmp("out"))
        # others write to this disk too
        self.assertAlmostEqual(found["output.free"]["value"], disk.f_bavail * disk.f_frsize / 1e9,
                               delta=2)
        self.assertIn("yes", found["ranks.threads_of_mpi"]["value"])
        self.assertTrue(found["fit.backend"]["value"].startswith("cpu x86-64-v")
                        or found["fit.backend"]["value"].startswith("cuda "))
        self.assertRegex(found["fit.crossover"]["value"], "^none, so the CPU: .|measured 2")
        # a rate is a positive number; no machine that runs this test is slower or faster
        for key, least, most in (("rates.products_float32", 0.1, 1e4),
                                 ("rates.products_float64", 0.05, 1e4),
                                 ("rates.copy", 0.05, 1e4), ("output.write_rate", 0.01, 1e6),
                                 ("output.read_rate", 0.01, 1e6),
                                 ("output.small_files", 0.1, 1e7),
                                 ("output.collective_write", 0.01, 1e5)):
            self.assertGreater(found[key]["value"], least, key)
            self.assertLess(found[key]["value"], most, key)
        version = starmill("--version").stdout
        self.assertIn(found["program.HDF5"]["value"], version)
        self.assertIn(found["program.BLAS"]["value"], version)
        if "built without CUDA" in version:
            self.assertEqual(found["cuda.devices"]["value"], "built without CUDA")

    def test_two_ranks_write_together(self):
        found = self.ask("--quick", "--output", TMP, ranks=2)
        self.assertEqual(found["ranks.count"]["value"], 2)
        self.assertEqual(found["ranks.hosts"]["value"], 1)
        self.assertEqual(found["ranks.on_one_host"]["value"], 2)
        self.assertEqual(found["output.collective_write"]["level"], "ok")
        self.assertNotIn("rates.copy", found)
        self.assertEqual([n for n in os.listdir(TMP) if "doctor" in n], [])

    def test_folders_that_cannot_be_used(self):
        found = self.ask("--quick", "--output", tmp("absent"), status=4)
        self.assertEqual(found["output.writable"]["level"], "failure")
        self.assertIn(tmp("absent"), found["output.writable"]["fix"])
        self.ask("--quick", "--output", "/proc", status=4, ranks=2)

    def test_a_full_disk(self):
        # less than the 64 MiB that are tried, more than MPI needs
        found = self.ask("--output", TMP, status=4, preexec_fn=limit_files(32 << 20))
        self.assertEqual(found["output.write_rate"]["level"], "failure")
        self.assertIn("File too large", found["output.write_rate"]["fix"])
        self.assertEqual(found["output.collective_write"]["level"], "ok")
        self.assertEqual([n for n in os.listdir(TMP) if "doctor" in n], [])

    def test_gpus_that_only_the_driver_knows(self):
        cc = shutil.which("cc")
        if not cc:
            self.skipTest("no C compiler")
        os.mkdir(tmp("driver"))
        subprocess.run([cc, "-shared", "-fPIC", "-x", "c", "-", "-o",
                        tmp("driver/libnvidia-ml.so.1")], input=DRIVER, text=True, check=True)
        found = self.ask("--quick", "--backend", "cpu",
                         env=dict(ENVIRONMENT, LD_LIBRARY_PATH=tmp("driver")))
        self.assertEqual((found["gpu.driver"]["value"], found["gpu.count"]["value"]), ("570.1", 2))
        self.assertEqual(found["gpu.0"]["value"],
                         "Make-believe 1, 80 GB (20 in use), ECC on, 00000000:01:00.0")
        self.assertEqual(found["gpu.0"]["level"], "ok")
        self.assertIn("3 errors of its memory", found["gpu.1"]["fix"])
        # and this program has no use for them
        self.assertEqual(found["cuda.devices"]["level"], "warning")

    def test_a_launcher_of_another_mpi(self):
        found = self.ask("--quick", status=70, env=dict(ENVIRONMENT, SLURM_STEP_NUM_TASKS="4"))
        self.assertEqual(found["ranks.count"]["level"], "failure")
        self.assertIn("4 ranks", found["ranks.count"]["fix"])

    def test_a_backend_that_is_not_there(self):
        if "built without CUDA" not in starmill("--version").stdout:
            self.skipTest("built with CUDA")
        found = self.ask("--quick", "--backend", "cuda", status=2)
        self.assertIn("without CUDA", found["fit.backend"]["fix"])
        self.assertTrue(self.ask("--quick", "--backend", "cpu")["fit.backend"]["value"]
                        .endswith("(asked for: cpu)"))

    def test_text(self):
        done = starmill("doctor", "--quick", "--output", TMP)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^output$")
        self.assertRegex(done.stdout, r"(?m)^  folder +" + TMP)
        self.assertRegex(done.stdout, r"(?m)^ready: 0 failures, \d+ warnings?$")

    def test_usage(self):
        self.assertOneLine(starmill("doctor", "--quik"), "--quik", status=2)
        self.assertOneLine(starmill("doctor", "here"), "here", status=2)
        self.assertOneLine(starmill("doctor", "--limit", "0"), "--limit", status=2)
        self.assertOneLine(starmill("doctor", "--backend", "gpu"), "gpu", status=2)
        self.assertOneLine(starmill("doctor", "--quick", "--library", tmp("absent.h5")),
                           "starmill doctor: ", tmp("absent.h5"), status=2)
        self.assertEqual(starmill("doctor", "--help").returncode, 0)


if __name__ == "__main__":
    main()
