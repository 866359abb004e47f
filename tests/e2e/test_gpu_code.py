# SPDX-License-Identifier: BSD-3-Clause
"""A simulator of GPUs (CMake's MILL_PTXSIM) executes what nvcc has made of the CUDA code.  Results
agree with the CPU's, and the simulator reports no error that would stop a GPU.

`./run tests --long` executes a part, in a core-minute.  `./run tests --gpu-code` (MILL_GPU_CODE=all)
runs all tests of tests/cuda, fits of other surveys and a posterior.  The simulator then executes
PTX and machine code, looks for races, and varies the order of blocks, warps and branches."""

from base import *  # noqa: F403

SIMULATED = os.environ.get("STARMILL_SIMULATED", "")
if not os.access(SIMULATED, os.X_OK):
    skip("no CUDA, no PTX of compute_90, or no simulator of GPUs in the folder of CMake's MILL_PTXSIM")
sys.path.insert(1, os.path.join(SOURCE, "tests/cuda"))
from kernel_gates import output_of, tool  # noqa: E402
import pair_survey  # noqa: E402

BUILD = os.path.dirname(SIMULATED)
ALL = os.environ.get("MILL_GPU_CODE") == "all"
# program, its tests by default, and all tests that suit the simulator
PROGRAMS = (
    ("cuda_backend", "answers_equal_the_cpu,wide_layers_equal_the_cpu,every_branch_equals_the_cpu", None),
    ("particles_cuda", "bits_do_not_depend_on_other_problems,gridded_potentials_and_samples_are_the_cpu_s,"
     "a_step_that_leads_nowhere_is_told,densities_are_sums_of_kernels", None),
    # not the slopes: its cuBLAS does not round factors
    ("train_cuda", "parts_of_a_step", "hidden_outputs_are_the_cpu_s,trainings_are_the_cpu_s_and_repeat,"
     "principal_directions,parts_of_a_step"))
POISON = {"PTXSIM_POISON": "127"}  # unwritten memory has these bytes, too large for an index
SHORT = "slots: 5\nmax_starts: 1\nmax_eval: 40\n"
ARMS = "arms: [{name: b, min: 4950, max: 5250}, {name: r, min: 6500, max: 6650}]\n"
NARROW = "arms: [{name: b, min: 5100, max: 5250}]\n"
SAMPLE = ("--ess", 10, "--max-evaluations", 300, "--threads", 1)


def machine_code():
    """Write listings of machine code; return variables by which the simulator uses them, or {}."""
    folder = tmp("listings")
    try:
        extract, disassemble = tool("cuobjdump"), tool("nvdisasm")
    except SystemExit:
        return {}
    os.mkdir(folder)
    output_of(extract, "--extract-elf", "sm_90", os.environ["MILL_KERNELS"], cwd=folder)
    for path in glob.glob(os.path.join(folder, "*.cubin")):
        if ALL or re.search("rounds|answer_f32|digest|start", path):  # those of a fit in float32
            # without particle_move, whose machine code the simulator runs wrongly by 1e-4
            put(path[:-5] + "sass", re.sub(r"\.text\.(\S*particle_move)", r".other.\1",
                                           output_of(disassemble, "-g", "-hex", path)))
    return {"PTXSIM_SASS": folder}


class GpuCode(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.machine_code = machine_code()

    def simulated(self, *line, **variables):
        """Run a program to its end, without a report."""
        libraries = [os.path.join(BUILD, "tests/ptxsim"), os.environ.get("LD_LIBRARY_PATH")]
        env = {"PTXSIM_STATS": "0", "LD_LIBRARY_PATH": ":".join(filter(None, libraries)), **variables}
        before = os.times().children_user
        done = ended(line, env, stderr=subprocess.STDOUT, timeout=None if ALL else 600)
        print(os.path.basename(line[0]), variables, f"CPU {os.times().children_user - before:.0f} s",
              flush=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("ptxsim: 0 reports", done.stdout)

    def same_fits(self, config, *inputs, lib, **variables):
        """CPU and simulated GPU fit alike: within 0.05 errors and 5e-3 of -2 ln L."""
        put("fit.yaml", config)
        rows = []
        for backend, program in ("cpu", STARMILL), ("cuda", SIMULATED):
            out = tmp(backend + ".h5")
            line = ["fit", "--library", lib, "--output", out, "--overwrite", "--backend", backend, "--threads",
                    1, "--config", tmp("fit.yaml"), *inputs]
            self.simulated(program, *line, **variables) if program == SIMULATED else run(*line)
            rows.append(read(out))
        cpu, gpu = rows
        self.assertTrue((cpu["STATUS"] == FITTED).all())
        np.testing.assert_array_equal(gpu["STATUS"], FITTED)
        self.assertNotEqual(gpu["M2LL"].tobytes(), cpu["M2LL"].tobytes())  # it was another backend
        np.testing.assert_allclose(gpu["M2LL"], cpu["M2LL"], rtol=0, atol=5e-3)
        for name in ("VRAD", "TEFF", "LOGG", "FEH"):
            self.assertLess((abs(gpu[name] - cpu[name]) / cpu[name + "_ERR"]).max(), 0.05, name)

    def test_programs(self):
        variants = [{"PTXSIM_ORDER": "5", **POISON}]
        if ALL:
            races = {"PTXSIM_RACE": "2", "PTXSIM_INIT": "1"}
            variants = [races, {**races, **self.machine_code},
                        *({"PTXSIM_ORDER": str(n), **POISON, **(self.machine_code if n % 2 == 0 else {})}
                          for n in range(1, 11))]
        for variables in variants:
            for name, part, whole in PROGRAMS:
                only = whole if ALL else part
                with self.subTest(name, **variables):
                    self.simulated(os.path.join(BUILD, f"tests/test_cuda_{name}_simulated"),
                                   **variables, **({"MILL_TEST_ONLY": only} if only else {}))

    def test_whole_fit(self):
        lib, stars = coarse_survey(12, narrow_library("narrow.h5", 16))
        self.same_fits(SHORT + ARMS, stars, lib=lib, **self.machine_code)

    @unittest.skipUnless(ALL, "only ./run tests --gpu-code")
    def test_surveys(self):
        """The GPU's code fits as the CPU does: line-spread functions, exposures one by one and
        jointly, model errors, velocity offsets of arms, posteriors, two stars in one spectrum."""
        fgk = os.path.join(SOURCE, "libraries", "fgk.h5")
        sdss = os.path.join(DATA, "real/sdss/spec-3586-55181-0500.fits.gz")
        lamost = sorted(glob.glob(os.path.join(DATA, "real/lamost/*.gz")))[:2]
        if not lamost:
            self.skipTest("no test data of SDSS and LAMOST")
        cameras = re.sub("name: (.)", r"name: \1, channel: \1", ARMS)
        offsets = content(os.path.join(SOURCE, "config/lamost.yaml"), "r")
        pair_survey.make(tmp("pairs.fits"), STARMILL, np.array([250.0, -200]), np.array([0.9, 0.5]),
                         library=coarse_library(), sn="30,60", vsini="1,8", seed=3)
        for variables in {}, self.machine_code:
            for config, *inputs in ((SHORT + ARMS, sdss), (SHORT + cameras + "exposures: joint\n", sdss),
                                    (SHORT + cameras + "exposures: single\n", sdss),
                                    (SHORT + offsets, *lamost)):
                with self.subTest(config, **variables):
                    self.same_fits(config, *inputs, lib=fgk, **variables)
            self.same_fits(SHORT + NARROW, sdss, lib=fgk, **variables)
            line = ["sample", "--fit", tmp("cpu.h5"), "--library", fgk, "--overwrite", *SAMPLE, sdss]
            run(*line, "--backend", "cpu", "--output", tmp("cpu-sample.h5"))
            self.simulated(SIMULATED, *line, "--backend", "cuda", "--output", tmp("gpu-sample.h5"),
                           **variables)
            cpu, gpu = read(tmp("cpu-sample.h5")), read(tmp("gpu-sample.h5"))
            np.testing.assert_array_equal(gpu["STATUS"], cpu["STATUS"])
            # rounding moves a mean by some 1e-5 of the posterior's width
            width = 0.5 * (cpu["POST_P84"] - cpu["POST_P16"])
            np.testing.assert_allclose((gpu["POST_MEAN"] - cpu["POST_MEAN"]) / width, 0, atol=1e-4)
            self.same_fits("slots: 2\nbinaries: true\n", tmp("pairs.fits"), lib=coarse_library(),
                           **variables)
            np.testing.assert_array_equal(read(tmp("cuda.h5"))["SB2"], 1)
