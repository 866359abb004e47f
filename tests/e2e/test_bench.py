"""starmill bench: counts, times and floors of a fit that add up; no figure of a machine is asserted.

The floor is counted a second time here, from the library's file and the numbers of the
JSON output.
"""

import copy
import glob
import json
import os
import re
import signal
import time

from base import *

N_STAR, N_CONT, N_SLOT = 6, 10, 4
OPTIMIZERS = ("levenberg-marquardt", "hybrid", "nelder-mead")
STAGES = ("read", "load", "prepare", "guess", "simplex", "polish", "profile", "final", "write",
          "other")
C_KM_S = 299792.458

made = {}


def setUpModule():
    made["library"], made["file"] = coarse_survey(N_STAR)
    made["folder"] = tmp("results")
    os.mkdir(made["folder"])
    made["json"] = tmp("bench.json")
    bad = tmp("bad.fits")
    with open(bad, "wb") as f:
        f.write(content(made["file"])[:5000])
    made["done"] = starmill("bench", "fit", "--library", made["library"], "--optimizer", "all",
                            "--threads", 1, "--slots", N_SLOT, "--repeat", 2, "--output",
                            made["folder"], "--json", made["json"], bad, made["file"], timeout=900)
    if made["done"].returncode not in (0, 3):  # 3 is tested below
        raise RuntimeError(made["done"].stdout + made["done"].stderr)
    made["report"] = json.loads(content(made["json"]))


def fits_sizes():
    """Pixels and diagonals of each arm, from the file itself."""
    with pyfits.open(made["file"]) as hdus:
        return [(len(hdus[arm + "_WAVELENGTH"].data), hdus[arm + "_RESOLUTION"].data.shape[1],
                 hdus[arm + "_WAVELENGTH"].data.astype(float)) for arm in "BRZ"]


class Counts(ProgramTest):
    def test_evaluations_are_those_of_the_results(self):
        for series in made["report"]["optimizers"]:
            out = series["optimizer"] + ".h5"
            self.fit(out, "--optimizer", series["optimizer"], "--quiet", made["file"],
                     lib=made["library"])
            table = read(tmp(out))
            self.assertEqual(series["stars"], len(table["NEVAL"]))
            self.assertEqual(series["fitted"], np.sum(table["STATUS"] == FITTED))
            self.assertEqual(series["evaluations"], table["NEVAL"].sum())
            self.assertEqual(series["jacobians"], table["NJAC"].sum())
            stages = [s for s in series["stages"] if "values" in s]
            self.assertEqual(sum(s["values"] + s["jacobians"] for s in stages),
                             table["NEVAL"].sum())
            self.assertEqual(sum(s["jacobians"] for s in stages), table["NJAC"].sum())

    def test_every_optimizer_has_its_stages(self):
        report = made["report"]
        self.assertEqual([s["optimizer"] for s in report["optimizers"]], list(OPTIMIZERS))
        for series in report["optimizers"]:
            self.assertEqual([s["name"] for s in series["stages"]], list(STAGES))
            by_name = {s["name"]: s for s in series["stages"]}
            simplex = by_name["simplex"]["values"]
            # hybrid has one only where its polish goes wrong
            if series["optimizer"] != "hybrid":
                self.assertEqual(simplex > 0, series["optimizer"] == "nelder-mead")
            self.assertEqual(by_name["final"]["values"], N_STAR)
            n_profile = by_name["profile"]["values"]
            self.assertGreaterEqual(n_profile, N_STAR)
            # 5 velocities, then 41 where these are not enough; fewer only near the limits
            self.assertLessEqual(series["velocities"], 5 * N_STAR + 41 * (n_profile - N_STAR))
            self.assertGreater(series["velocities"], 2 * n_profile)

    def test_sizes_are_those_of_the_file(self):
        for series in made["report"]["optimizers"]:
            self.assertEqual(len(series["arms"]), 3)
            for arm, (n_pix, n_diag, wave) in zip(series["arms"], fits_sizes()):
                self.assertEqual(arm["stars"], N_STAR)
                self.assertEqual(arm["segments"], N_STAR)
                self.assertEqual(arm["pixels"], N_STAR * n_pix)
                self.assertEqual(arm["resolution"], N_STAR * n_pix * n_diag)
                self.assertEqual(arm["raw_bytes"], N_STAR * n_pix * (12 + 4 * n_diag))
                bins = np.floor(np.log(wave[[0, -1]]) / (60 / C_KM_S))
                self.assertEqual(arm["guess_bins"], N_STAR * (bins[1] - bins[0] + 1))

    def test_first_rows_only(self):
        path = tmp("few.json")
        done = starmill("bench", "fit", "--library", made["library"], "--threads", 1, "--repeat",
                        1, "--stars", 4, "--json", path, made["file"])
        self.assertEqual(done.returncode, 0, done.stderr)  # rows that are left are no failure
        (series,) = json.loads(content(path))["optimizers"]
        self.assertEqual((series["optimizer"], series["stars"]), ("hybrid", 4))


class Times(ProgramTest):
    def test_stages_sum_to_the_cpu_time(self):
        for series in made["report"]["optimizers"]:
            stages = {s["name"]: s for s in series["stages"]}
            total = sum(s["cpu_s"] for s in stages.values())
            self.assertAlmostEqual(total, series["star_s"], delta=1e-9)
            self.assertAlmostEqual(series["star_s"] + series["once_s"], series["cpu_s"], delta=1e-9)
            once = [v for k, v in series["once"].items() if k != "first_wall_s"]
            self.assertAlmostEqual(sum(once), series["once_s"], delta=1e-9)
            # what is measured by threads lies within what the process used; clocks are read one
            # after the other, which is worth some microseconds
            self.assertGreater(stages["other"]["cpu_s"], -1e-3)
            for name in STAGES[:-1]:
                asked = stages[name].get("values", 1) + stages[name].get("jacobians", 0) > 0
                runs_always = name in ("prepare", "guess")
                if asked or runs_always:
                    self.assertGreater(stages[name]["cpu_s"], 0, name)
                else:
                    self.assertEqual(stages[name]["cpu_s"], 0, name)
                self.assertLessEqual(stages[name].get("emulator_s", 0), stages[name]["cpu_s"])
            self.assertGreater(series["once"]["first_wall_s"], 0)
            self.assertLess(series["once"]["first_wall_s"], series["wall_s"])

    def test_the_median_run_is_shown(self):
        for series in made["report"]["optimizers"]:
            self.assertEqual(len(series["runs"]), 2)
            times = [run["star_s"] for run in series["runs"]]
            self.assertEqual(series["star_s"], min(times))  # of two the faster
            self.assertEqual(times[series["median_run"]], series["star_s"])

    def test_runs_take_turns(self):
        order = re.findall(r"^(\S+), run (\d) of 2", made["done"].stderr, re.M)
        self.assertEqual(order, [(name, run) for run in "12" for name in OPTIMIZERS])


def library_sizes():
    """Arms of a library of grids: grid pixels, width, axes, guess templates."""
    with h5py.File(made["library"], "r") as f:
        arms = []
        for i in range(f["arms"].attrs["n_arm"]):
            arm = f[f"arms/arm{i}"]
            n_pix, width = arm["layer0/weight"].shape
            arms.append(dict(n_pix=n_pix, width=width, log_flux=arm.attrs["log_flux"],
                             n_axis=arm["grid/coefficients"].ndim - 1,
                             sigma=arm.attrs["template_sigma"]))
        guess = f["guess/labels"].shape[0] * f["guess/vsini"].shape[0]
        return arms, int(f["labels"].attrs["n_label"]), guess


class Work:
    """The counts of docs/develop/performance.md for stars that all have the same three arms."""

    def __init__(self, series):
        self.arms, self.n_label, self.n_guess = library_sizes()
        self.pix = fits_sizes()
        self.n_par = self.n_label + 2
        self.half = [arm["rotation"] / series["fitted"] for arm in series["arms"]]
        self.direction = [arm["rough_directions"] for arm in series["arms"]]
        self.n_pix = sum(p for p, _, _ in self.pix)
        self.n_res = sum(p * d for p, d, _ in self.pix)
        self.n_bin = sum(arm["guess_bins"] for arm in series["arms"]) / N_STAR

    def of_arm(self, a):
        one = copy.copy(self)
        one.arms, one.pix, one.half = self.arms[a:a + 1], self.pix[a:a + 1], self.half[a:a + 1]
        one.direction = self.direction[a:a + 1]
        one.n_pix, one.n_res = self.pix[a][0], self.pix[a][0] * self.pix[a][1]
        return one

    def template(self, n_tangent, rows):
        f32 = f64 = 0.0
        for arm, half, few in zip(self.arms, self.half, self.direction):
            points = 4 ** arm["n_axis"]
            lines = points // 4
            n = arm["n_pix"]
            if rows != "stored":
                # a grid: products over lines of four points, and of the lines; the last label's
                # tangent takes both again, the others only the lines
                f64 += 2 * arm["width"] * (points + lines)
                if n_tangent:
                    f64 += 2 * arm["width"] * (points + lines + (n_tangent - 1) * lines)
                tangent = arm["width"] * n
                if rows == "rough" and few:
                    tangent = few * (arm["width"] + n)
                f32 += 2 * (arm["width"] * n + n_tangent * tangent)
            f32 += n * (1 + 2 * n_tangent) if arm["log_flux"] else n * n_tangent
            convolution = 1 + 3 * half if half > 0 else 0
            f32 += n * convolution * (1 + n_tangent)
            if n_tangent:
                # without rotation the slope has neighbours
                least = {"linear": 1, "spline": 3}[made["report"]["settings"]["rotation_kernel"]]
                f32 += n * (1 + 3 * max(half, least))
            f32 += 8 * n * (2 + n_tangent if n_tangent else 1)
        return f32, f64

    def projection(self):
        k = N_CONT
        return self.n_pix * (5 + k * (k + 1) + 2 * k) + len(self.pix) * (k**3 / 3 + 4 * k**2)

    def value(self):
        f32, f64 = self.template(0, "made")
        return f32 + 19 * self.n_pix + 2 * self.n_res, f64 + self.projection()

    def jacobian(self, rows="made"):
        k, p = N_CONT, self.n_par
        f32, f64 = self.template(self.n_label, rows)
        rows = 2 + self.n_label
        f32 += self.n_pix * (12 + 7 * rows + 12) + 2 * self.n_res * (p + 1)
        pixel = (2 * k + 2) + (p + 1) + p * (p + 1) + (p + 2 * k * p) + 2 * p + k * (k + 1) + 3 * p
        f64 += self.projection() + self.n_pix * pixel
        return f32, f64 + len(self.pix) * p * (k * k + k * (p + 1))

    def spectrum_bytes(self):
        return 8 * self.n_pix + 4 * self.n_res

    def shared_bytes(self):
        """Continuum functions; the emulators: layer, bias, and the coefficients of a place."""
        emulator = sum(4 * ((a["width"] + 1) * a["n_pix"] + 4 ** a["n_axis"] * a["width"])
                       for a in self.arms)
        return 4 * N_CONT * self.n_pix / N_SLOT, emulator / N_SLOT

    def template_bytes(self):
        return sum(4 * a["n_pix"] for a in self.arms)

    def round_bytes(self, n_row, rows):
        functions, emulator = self.shared_bytes()
        if rows == "stored":
            emulator = 0
        if rows == "rough":
            emulator += sum(4 * few * (a["width"] + a["n_pix"])
                            for a, few in zip(self.arms, self.direction)) / N_SLOT
        return self.spectrum_bytes() + functions + n_row * self.template_bytes() + emulator

    def prepare(self):
        f64 = 12 * self.n_pix
        for (n_pix, n_diag, _), arm in zip(self.pix, self.arms):
            even, odd = (n_diag + 1) // 2, n_diag // 2
            if arm["sigma"] > 0:
                f64 += n_pix * (2 * (even**2 + odd**2) + 4 * odd)
            f64 += n_pix * (n_diag + 1)
        return f64

    def guess(self):
        set_ = made["report"]["settings"]
        fastest = max(abs(set_["min_vel"]), abs(set_["max_vel"]))
        half = np.ceil(np.arctanh(fastest / C_KM_S) / (set_["guess_vel_step"] / C_KM_S))
        n = 2 ** np.ceil(np.log2(4 * (2 * half + 1)))
        n_block = self.n_bin / (n - 2 * half)
        f32 = 5 * n * np.log2(n) * (n_block + self.n_guess) + 8 * self.n_guess * n_block * n
        return f32, self.projection() + self.n_pix * (2 * N_CONT + 6)


class Floor(ProgramTest):
    def assertCount(self, found, expected):
        # both are sums of some twenty products in float64
        self.assertAlmostEqual(found, expected, delta=1e-12 * max(abs(expected), 1))

    def test_second_count(self):
        self.assertEqual(made["report"]["settings"]["n_cont"], N_CONT)
        self.assertEqual(made["report"]["settings"]["slots"], N_SLOT)
        for series in made["report"]["optimizers"]:
            work = Work(series)
            stage = {s["name"]: s for s in series["stages"]}
            value = work.value()
            once = work.spectrum_bytes() + work.template_bytes()
            fits_cache = once <= made["report"]["l2_bytes"] / 2
            for name in ("simplex", "polish"):
                s = stage[name]
                n, j = s["values"], s["jacobians"]
                f32, f64 = n * value[0], n * value[1]
                moved = n * work.round_bytes(1, "made")
                # of all arms, and in the polish of one alone; of them with rows from the store
                # and with rough tangents
                parts = [(work, j, 0, 0)]
                if name == "polish":
                    alone = [[arm["jacobians_alone" + kind] for kind in ("", "_stored", "_rough")]
                             for arm in series["arms"]]
                    parts = [(work, j - sum(counts[0] for counts in alone),
                              series["jacobians_stored"], series["jacobians_rough"])]
                    parts += [(work.of_arm(a), *counts) for a, counts in enumerate(alone)]
                for part, of, of_store, of_rough in parts:
                    for rows, times in (("made", of - of_store - of_rough), ("stored", of_store),
                                        ("rough", of_rough)):
                        f32 += times * part.jacobian(rows)[0]
                        f64 += times * part.jacobian(rows)[1]
                        moved += times * part.round_bytes(1 + work.n_label, rows)
                self.assertCount(s["f32_operations"], f32)
                self.assertCount(s["f64_operations"], f64)
                self.assertCount(s["cache_bytes"], moved if fits_cache else 0)
                self.assertCount(s["memory_bytes"], 0 if fits_cache else moved)
            if series["optimizer"] != "nelder-mead":
                self.assertGreater(sum(arm["jacobians_alone"] for arm in series["arms"]), 0)
            self.assertCount(stage["guess"]["f32_operations"], N_STAR * work.guess()[0])
            self.assertCount(stage["guess"]["f64_operations"], N_STAR * work.guess()[1])
            self.assertCount(stage["prepare"]["f64_operations"], N_STAR * work.prepare())
            n = series["velocities"]
            self.assertCount(stage["profile"]["f32_operations"],
                             n * (19 * work.n_pix + 2 * work.n_res))
            self.assertCount(stage["profile"]["f64_operations"], n * work.projection())
            self.assertCount(stage["final"]["f64_operations"],
                             N_STAR * work.n_pix * 2 * (2 * N_CONT + 5))
            self.assertCount(stage["read"]["file_bytes"],
                             N_STAR * sum(n * (12 + 4 * d) for n, d, _ in work.pix))
            for name in ("load", "other"):
                self.assertEqual(stage[name]["floor_s"], 0)

    def test_seconds_follow_from_counts_and_rates(self):
        rates = made["report"]["rates"]
        self.assertEqual(rates["f32_gflop_s"], max(rates["sgemm_square"]["gflop_s"],
                                                   rates["sgemm_last"]["gflop_s"]))
        self.assertEqual(rates["f64_gflop_s"], max(rates["dgemm_square"]["gflop_s"],
                                                   rates["dgemm_hidden"]["gflop_s"]))
        for series in made["report"]["optimizers"]:
            for s in series["stages"]:
                arithmetic = (s["f32_operations"] / rates["f32_gflop_s"]
                              + s["f64_operations"] / rates["f64_gflop_s"])
                traffic = (s["file_bytes"] / rates["read_gbyte_s"]
                           + s["memory_bytes"] / rates["copy_memory_gbyte_s"]
                           + s["cache_bytes"] / rates["copy_cache_gbyte_s"])
                self.assertCount(s["floor_s"], 1e-9 * max(arithmetic, traffic))


class Output(ProgramTest):
    def test_table_has_the_numbers_of_the_json(self):
        text = made["done"].stdout
        report = made["report"]
        self.assertIn(report["revision"], text)
        self.assertIn(report["cpu"], text)
        self.assertIn(report["backend"], text)
        self.assertIn(report["command"], text)
        self.assertIn(made["file"], report["command"])
        self.assertTrue(report["date"].startswith(re.search(r"Measured on (\S+)", text)[1]))
        for series in report["optimizers"]:
            part = text[text.index(f"\n{series['optimizer']}, a star:"):]
            rows = [[cell.strip() for cell in line.split("|")[1:-1]]
                    for line in part.splitlines() if line.startswith("|")]
            rows = {row[0]: row for row in rows[2:2 + len(STAGES) + 1]}
            self.assertEqual(list(rows), list(STAGES) + ["total"])
            for s in series["stages"]:
                self.assertAlmostEqual(float(rows[s["name"]][4]), 1e3 * s["cpu_s"] / N_STAR,
                                       delta=6e-4)
                # what takes less than a microsecond is no floor
                if s["floor_s"] < 1e-6 * N_STAR:
                    self.assertEqual(rows[s["name"]][6:], ["", "", "–"])
                else:
                    self.assertAlmostEqual(float(rows[s["name"]][6]),
                                           1e3 * s["floor_s"] / N_STAR, delta=6e-5)
            self.assertEqual(rows["write"][8], "–")
            total = sum(s["floor_s"] for s in series["stages"])
            self.assertAlmostEqual(float(rows["total"][6]), 1e3 * total / N_STAR, delta=6e-5)
            self.assertAlmostEqual(float(rows["total"][8]), series["star_s"] / total, delta=0.06)

    def test_nothing_is_left_behind(self):
        self.assertEqual(os.listdir(made["folder"]), [])

    def test_a_signal_ends_it_and_leaves_nothing(self):
        folder, path = tmp("stopped"), tmp("stopped.json")
        os.mkdir(folder)
        process = subprocess.Popen(
            command("bench", "fit", "--library", made["library"], "--optimizer", "nelder-mead",
                    "--repeat", 1000, "--output", folder, "--json", path, made["file"]),
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not glob.glob(os.path.join(folder, "*", "result.h5")):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 75, err)
        self.assertEqual(os.listdir(folder), [])
        self.assertFalse(os.path.exists(path))

    def test_rates_alone(self):
        path = tmp("rates.json")
        done = starmill("bench", "rates", "--library", made["library"], "--json", path,
                        made["file"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("a star", done.stdout)
        report = json.loads(content(path))
        self.assertEqual(report["optimizers"], [])
        for name in ("sgemm_square", "sgemm_last", "dgemm_square", "dgemm_hidden"):
            self.assertGreater(report["rates"][name]["gflop_s"], 0)
        for name in ("copy_cache_gbyte_s", "copy_memory_gbyte_s", "read_gbyte_s"):
            self.assertGreater(report["rates"][name], 0)
        arm = max(library_sizes()[0], key=lambda a: a["n_pix"] * a["width"])
        last = report["rates"]["sgemm_last"]
        self.assertEqual((last["k"], last["n"]), (arm["width"], arm["n_pix"]))


class Device(ProgramTest):
    def test_crossover(self):
        path, kept = tmp("crossover.json"), tmp("kept")
        done = subprocess.run(
            command("bench", "crossover", "--library", made["library"], "--threads", 1, "--most", 20,
                    "--repeat", 1, "--keep", "--json", path, made["file"]),
            env=dict(ENVIRONMENT, STARMILL_CROSSOVER=kept), timeout=PATIENCE, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(content(path))
        self.assertEqual([b["stars"] for b in report["batches"]], [1, 4, 16])
        rows = [[cell.strip() for cell in line.split("|")[1:-1]]
                for line in done.stdout.splitlines() if re.match(r"\| \d", line)]
        self.assertEqual(len(rows), 3)
        for row, batch in zip(rows, report["batches"]):
            self.assertEqual(row[0], str(batch["stars"]))
            self.assertGreater(batch["cpu_s"], 0)
            self.assertAlmostEqual(float(row[1]), batch["cpu_s"], delta=6e-4)
        if report["gpu"]:
            self.assertIn(report["gpu"], content(kept, "r"))
            return
        self.assertIn(f"GPU: SKIPPED: {report['no_gpu']}", done.stdout)
        self.assertEqual({row[2] for row in rows}, {"SKIPPED"})
        self.assertEqual({b["gpu_s"] for b in report["batches"]}, {None})
        self.assertEqual(report["crossover"], 0)
        self.assertIn("auto takes the CPU", done.stdout)
        self.assertFalse(os.path.exists(kept), "nothing was measured, so nothing is kept")

    def test_slots(self):
        path = tmp("slots.json")
        done = starmill("bench", "slots", "--library", made["library"], "--backend", "cpu",
                        "--threads", 1, "--slots", 4, "--stars", 9, "--json", path, made["file"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (row,) = [[cell.strip() for cell in line.split("|")[1:-1]]
                  for line in done.stdout.splitlines() if re.match(r"\| \d", line)]
        self.assertEqual(row[:2], ["4", "9"])
        rate, run_s = float(row[4]), float(row[3])
        self.assertAlmostEqual(rate * run_s / 9, 1, delta=0.02)
        # both printed with few digits
        self.assertAlmostEqual(float(row[10]) * rate * float(row[8]) / 1e6, 1, delta=0.02)
        # 6 different stars, of which the first three come twice
        table = self.evaluations()
        n_eval = table.sum() + table[:3].sum()
        self.assertAlmostEqual(float(row[6]), n_eval / 9, delta=0.006)
        report = json.loads(content(path))
        self.assertTrue(report["backend"].startswith("cpu "), report["backend"])
        (kept,) = report["rows"]
        self.assertEqual((kept["slots"], kept["slots_asked"], kept["stars"], kept["evaluations"]),
                         (4, 4, 9, n_eval))
        self.assertAlmostEqual(kept["run_s"], run_s, delta=6e-4)
        self.assertAlmostEqual(1e6 * kept["floor_s_a_star"], float(row[8]), delta=6e-3)

    def test_reading_with_the_library_that_comes(self):
        """By a copy of the program, first without and then with a library beside it."""
        program, there = tmp("alone/bin/starmill"), tmp("alone/share/starmill/libraries/fgk.h5")
        for path in (program, there):
            os.makedirs(os.path.dirname(path))
        shutil.copy(STARMILL, program)

        def read():
            return subprocess.run([program, "bench", "read", "--readers", "1", "--repeat", "1",
                                   "--stars", "2", made["file"]], env=ENVIRONMENT,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=240, check=False)
        self.assertOneLine(read(), "starmill bench: ", "no library", "--library", status=2)
        shutil.copy(made["library"], there)
        done = read()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^\| 1 \| 2 ")

    def test_slots_with_a_number_of_stars_without_end(self):
        done = starmill("bench", "slots", "--library", made["library"], "--threads", 1, "--slots",
                        2, "--stars", 99999999999, "--limit", 5, made["file"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 slots would take over 5 s", done.stdout)

    def test_slots_with_another_optimizer(self):
        path = tmp("slots-simplex.json")
        done = starmill("bench", "slots", "--library", made["library"], "--threads", 1, "--slots",
                        2, "--stars", N_STAR, "--optimizer", "nelder-mead", "--json", path,
                        made["file"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (row,) = json.loads(content(path))["rows"]
        self.assertEqual(row["evaluations"],
                         self.evaluations("--optimizer", "nelder-mead").sum())
        self.assertNotEqual(row["evaluations"], self.evaluations().sum())

    def test_reading(self):
        done = starmill("bench", "read", "--library", made["library"], "--readers", 3, "--repeat", 1,
                        made["file"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [[float(cell) for cell in line.split("|")[1:-1]]
                for line in done.stdout.splitlines() if re.match(r"\| \d", line)]
        self.assertEqual([row[:2] for row in rows], [[n, N_STAR] for n in (1, 2, 3)])
        with pyfits.open(made["file"]) as hdus:
            n_byte = sum(hdus[arm + part].data.nbytes for arm in ("B_", "R_", "Z_")
                         for part in ("FLUX", "IVAR", "MASK", "RESOLUTION"))
        for n_reader, n_row, wall_s, rate, mbyte_s, cpu_ms in rows:
            self.assertGreater(cpu_ms, 0)
            if wall_s >= 0.02:  # printed with three digits
                self.assertAlmostEqual(rate * wall_s / n_row, 1, delta=0.06)
            # MB/s and rows/s are printed as whole numbers
            self.assertAlmostEqual(mbyte_s / rate / (1e-6 * n_byte / n_row), 1, delta=0.05)
        done = starmill("bench", "read", "--library", made["library"], "--stars", 2, "--readers", 1,
                        "--repeat", 1, made["file"])
        self.assertEqual(re.findall(r"^\| (\d+) \| (\d+) ", done.stdout, re.M), [("1", "2")])

    def test_host(self):
        """A device that is done at once: all rows come, and nothing stays behind."""
        folder = tmp("host")
        os.mkdir(folder)
        command_line = ("bench", "host", "--library", made["library"], "--readers", 3, "--repeat", 1,
                        "--threads", 1, "--slots", 2, "--output", folder, made["file"])
        done = starmill(*command_line)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 thread copies stars", done.stdout)
        rows = [[float(cell) for cell in line.split("|")[1:-1]]
                for line in done.stdout.splitlines() if re.match(r"\| \d", line)]
        self.assertEqual([row[:2] for row in rows], [[n, N_STAR] for n in (1, 2, 3)])
        for _, n_star, wall_s, rate, main, load, put, rest, clock, read_us, _ in rows:
            if wall_s >= 0.02:  # printed with three digits
                self.assertAlmostEqual(rate * wall_s / n_star, 1, delta=0.06)
            for part in (load, put, rest, clock, read_us):
                self.assertGreater(part, 0)
            # one thread has no more CPU time than the clock says; printed with 0.1 us and 1 ms
            self.assertLess(main, 1e6 * (wall_s + 0.0006) / n_star + 0.1)
        self.assertEqual(os.listdir(folder), [])
        # neither the configuration nor a GPU matters for the device that there is none of
        config = tmp("host.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write("backend: cuda\nreaders: 1\nthreads: 1\n")
        done = starmill("bench", "host", "--library", made["library"], "--config", config,
                        "--repeat", 1, "--output", folder, made["file"],
                        env={"MILL_CUDA_COPIERS": "3"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("3 threads copy stars", done.stdout)
        self.assertEqual(re.findall(r"^\| (\d+) \| (\d+) ", done.stdout, re.M), [("1", str(N_STAR))])
        self.assertOneLine(starmill(*command_line, env={"MILL_CUDA_COPIERS": "0"}),
                           "MILL_CUDA_COPIERS", status=2)

    def evaluations(self, *args):
        self.fit("evaluations.h5", "--quiet", "--overwrite", *args, made["file"],
                 lib=made["library"])
        return read(self.path)["NEVAL"]

    def gpu(self):
        """What bench says of the GPU: a table, or SKIPPED and why."""
        done = starmill("bench", "slots", "--library", made["library"], "--backend", "cuda",
                        "--stars", 2, "--slots", 2, made["file"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_no_gpu_is_said(self):
        self.assertRegex(self.gpu(), r"SKIPPED: .+|\| 2 \| 2 \|")

    def test_auto_says_what_it_takes_and_continues_on_it(self):
        args = ["--log-level", "debug", "--quiet", made["file"]]
        environment = dict(ENVIRONMENT, STARMILL_CROSSOVER=tmp("nothing-measured"))
        path = tmp("auto.h5")
        words = command("fit", "--library", made["library"], "--output", path, *args)
        def run():
            return subprocess.run(words, env=environment, timeout=PATIENCE, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False)
        done = run()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("backend auto: the CPU, as ", done.stderr)
        with h5py.File(path, "r+") as f:
            self.assertTrue(f["provenance"].attrs["DEVICE"].decode().startswith("cpu"))
            f["fits/STATUS"][1:] = 0
            f["provenance/FINISHED"][...] = 0
        done = run()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("backend auto: as " + path, done.stderr)
        # begun on a GPU that is not here, it is not continued on the CPU
        with h5py.File(path, "r+") as f:
            f["fits/STATUS"][1:] = 0
            f["provenance/FINISHED"][...] = 0
            f["provenance"].attrs["DEVICE"] = np.bytes_("cuda NVIDIA Nothing sm_99")
        done = run()
        # with a GPU here, it is one of another kind
        self.assertOneLine(done, path, "overwrite", "was begun on a GPU" if "SKIPPED" in self.gpu()
                           else "was begun on another device", status=4)
        self.assertNotIn("--backend cpu", done.stderr)
        # a plan needs no GPU
        for args in ([], ["--backend", "cuda"]):
            plan = subprocess.run(words + ["--plan", *args], env=environment, timeout=PATIENCE,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  check=False)
            self.assertEqual(plan.returncode, 0, plan.stderr)
            self.assertRegex(plan.stdout, r"(?m)^ranks +.* cuda$")
            self.assertRegex(plan.stdout, r"(?m)^time +not known for cuda")
        # started over, it is as if it had not been there
        words.append("--overwrite")
        done = run()
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(path, "r") as f:
            self.assertTrue(f["provenance"].attrs["DEVICE"].decode().startswith("cpu"))

    def test_a_damaged_result_is_left_to_its_reader(self):
        path = tmp("damaged.h5")
        words = ["fit", "--library", made["library"], "--output", path, "--quiet", made["file"]]
        self.assertEqual(starmill(*words).returncode, 0)
        with open(path, "r+b") as f:
            f.truncate(3000)
        done = starmill(*words)
        self.assertOneLine(done, path, "damaged", status=4)


class Schedule(ProgramTest):
    """The code that makes the chunks of rows, in a simulated run; tests/src/ranks/test_schedule.c has the rest."""

    def table(self, *args):
        done = starmill("bench", "schedule", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
        names = [name.strip() for name in lines[0].strip("|").split("|")]
        return [dict(zip(names, map(float, line.strip("|").split("|")))) for line in lines[2:]]

    def test_ranks_end_together(self):
        rows = self.table("--ranks", "2,64,1024", "--rows", "1000,5000", "--gzip", 0)
        self.assertEqual([(r["rows a rank"], r["ranks"]) for r in rows],
                         [(n, p) for n in (1000, 5000) for p in (2, 64, 1024)])
        for r in rows:
            self.assertLessEqual(r["idle tail, %"], 2.0, r)
            self.assertGreaterEqual(r["efficiency, %"], 97.0, r)
            # a run of 1000 rows takes as long as the rate says
            self.assertAlmostEqual(r["s"] * 127, r["rows a rank"], delta=0.03 * r["rows a rank"])
        self.assertEqual(self.table("--ranks", "8", "--rows", "300"),
                         self.table("--ranks", "8", "--rows", "300"))

    def test_costs_of_rows_from_a_file(self):
        path = tmp("costs.txt")
        with open(path, "w") as f:
            f.write("# seconds\n" + "0.001\n" * 99 + "2.0\n")  # one in a hundred is most of all
        args = ["--ranks", "16", "--rows", "300", "--gzip", 0, "--spread", 0]
        even, hard = self.table(*args)[0], self.table(*args, "--costs", path)[0]
        self.assertGreater(hard["idle tail, %"], 3 * even["idle tail, %"])

    def test_mistakes(self):
        bad = tmp("bad-costs.txt")
        with open(bad, "w") as f:
            f.write("1\n-1\n")
        for args, parts in (
            (["--ranks", "0"], ["--ranks", "'0'"]),
            (["--rows", ""], ["--rows"]),
            (["--rate", "fast"], ["--rate", "'fast'"]),
            (["--device", "tpu"], ["--device", "'tpu'"]),
            (["--costs", tmp("no-costs.txt")], ["no-costs.txt"]),
            (["--costs", bad], ["bad-costs.txt", "number 2"]),
            (["--ranks", "65536", "--rows", "100000"], ["too many"]),
            (["surplus"], ["'surplus'"]),
            (["--bogus"], ["unknown", "--bogus"]),
        ):
            self.assertOneLine(starmill("bench", "schedule", *args), "starmill bench: ", *parts,
                               status=2)
        self.assertIn("--per-file", starmill("bench", "schedule", "--help").stdout)


class Train(ProgramTest):
    N_PIX, N_COMPONENT, N_LABEL = 600, 7, 4
    ARGS = ("--pixels", 600, "--components", 7, "--spectra", "40,90", "--batch", "8,32", "--hidden",
            "64,32/48", "--threads", 1, "--seconds", 0)

    def tables(self, done):
        """Rows of both tables as texts."""
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"An arm of 600 pixels; 1 thread of the CPU")
        return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines()
                 if line.startswith("|")][2:]
                for part in done.stdout.split("\nGradients,")]

    def gflop(self, trained, hidden):
        """Products of a model: value, slopes of weights and, but for the labels, of inputs."""
        n_out = self.N_PIX if trained == "pixels" else self.N_COMPONENT
        sizes = [self.N_LABEL] + [int(n) for n in hidden.split(",")] + [n_out]
        pairs = [a * b for a, b in zip(sizes, sizes[1:])]
        return 1e-9 * (6 * sum(pairs) - 2 * pairs[0])

    def check(self, done, lasts):
        statistics, gradients = self.tables(done)
        self.assertEqual([row[:2] for row in statistics],
                         [[n, str(self.N_COMPONENT)] for n in ("40", "90")])
        self.assertEqual([row[:4] for row in gradients],
                         [[last, hidden, n, batch] for last in lasts for hidden in ("64,32", "48")
                          for n in ("40", "90") for batch in ("8", "32")])
        sgemm = float(re.search(r"sgemm of \d+ × \d+ matrices: ([0-9.]+) GFLOP/s", done.stdout)[1])
        for row in gradients:
            gflop = self.gflop(*row[:2])
            for rate, gflop_s in [row[4:6]] + ([row[7:9]] if len(row) > 7 else []):
                # printed as whole numbers and with two digits
                self.assertAlmostEqual(float(gflop_s), gflop * float(rate),
                                       delta=0.0051 + 0.51 * gflop)
            # the rate of sgemm is printed with one digit
            self.assertAlmostEqual(float(row[6]) * sgemm, float(row[5]),
                                   delta=0.0051 + 0.00051 * sgemm + 0.051 * float(row[6]))
        return gradients

    def test_counts_and_rates(self):
        done = starmill("bench", "train", "--backend", "cpu", *self.ARGS)
        rows = self.check(done, ("components", "pixels"))
        self.assertEqual({len(row) for row in rows}, {7})
        self.assertNotIn("GPU", done.stdout)

    def test_gpu_or_a_line(self):
        done = starmill("bench", "train", "--last", "components", *self.ARGS)
        rows = self.check(done, ("components",))
        has_gpu = "GPU: SKIPPED: " not in done.stdout
        self.assertEqual({len(row) for row in rows}, {10 if has_gpu else 7})
        self.assertEqual("The GPU pays" in done.stdout, has_gpu)
        failed = starmill("bench", "train", "--last", "components", "--backend", "cuda", *self.ARGS)
        self.assertEqual(failed.returncode == 0, has_gpu, failed.stderr)

    @unittest.skipUnless(os.access(os.environ.get("STARMILL_EMULATED", ""), os.X_OK),
                         "only a build without CUDA has a starmill with emulated GPUs")
    def test_gpu_beside_the_cpu(self):
        done = subprocess.run(
            [os.environ["STARMILL_EMULATED"], "bench", "train", "--last", "pixels", "--backend", "cuda",
             *map(str, self.ARGS)], env=dict(ENVIRONMENT, MILL_EMULATED_GPUS="1"), timeout=PATIENCE,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        rows = self.check(done, ("pixels",))
        pays = dict(re.findall(r"^- pixels, (\S+, \d+) spectra: (?:from batches of (\d+) on|the CPU)",
                               done.stdout, re.M))
        self.assertEqual(len(pays), 4)
        for small, large in zip(rows[::2], rows[1::2]):
            first = None
            for row in (large, small):
                # both rates are printed as whole numbers, their ratio with two digits
                self.assertAlmostEqual(float(row[9]) * float(row[4]), float(row[7]),
                                       delta=0.51 + 0.0051 * float(row[4]) + 0.51 * float(row[9]))
                if float(row[7]) <= float(row[4]):
                    break
                first = row[3]
            self.assertEqual(pays[f"{small[1]}, {small[2]}"], first or "")

    def test_mistakes(self):
        for args, parts in (
            (["--spectra", "90,40"], ["--spectra", "ascending"]),
            (["--spectra", "5,90", "--components", 5], ["--spectra", "6"]),
            (["--batch", "8,8"], ["--batch", "ascending"]),
            (["--batch", ","], ["--batch"]),
            (["--hidden", "64,0"], ["--hidden", "64,0"]),
            (["--hidden", "64//32"], ["--hidden"]),
            (["--hidden", "/".join(["8"] * 9)], ["--hidden", "8 networks"]),
            (["--last", "bits"], ["--last", "'bits'"]),
            (["--backend", "cpu", "--products", "tf32"], ["--products", "tf32"]),
            (["surplus"], ["'surplus'"]),
        ):
            self.assertOneLine(starmill("bench", "train", *args), "starmill bench: ", *parts,
                               status=2)
        self.assertIn("--hidden", starmill("bench", "train", "--help").stdout)
        done = starmill("bench", "train", ranks=2)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("one rank", done.stderr)


class Particles(ProgramTest):
    def test_a_row_for_each_evolution(self):
        done = starmill("bench", "particles", "--grids", "10,20", "--steps", 2, "--particles",
                        "100,300", "--threads", 2, "--backend", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()
                if re.match(r"\| \d", line)]
        self.assertEqual([tuple(map(int, row[:3])) for row in rows],
                         [(g, 2, n) for g in (10, 20) for n in (100, 300)])
        for row in rows:
            self.assertTrue(all(float(cell) >= 0 for cell in row[3:7]))
            # 1024 nodes over 10 + 18 h, h = 0.5 n^(-1/5): a bound far below the peak, 0.8
            self.assertTrue(0 < float(row[7]) < 1e-3)
        self.assertOneLine(starmill("bench", "particles", "--particles", "300,100"),
                           "starmill bench: ", "ascending", status=2)
        self.assertOneLine(starmill("bench", "particles", "--steps", 0), "starmill bench: ",
                           "--steps", status=2)
        self.assertOneLine(starmill("bench", "particles", "x"), "starmill bench: ", "'x'", status=2)

    @unittest.skipUnless(os.access(os.environ.get("STARMILL_EMULATED", ""), os.X_OK),
                         "no starmill with emulated GPUs: only a build without CUDA has one")
    def test_a_gpu_has_its_columns(self):
        few = [os.environ["STARMILL_EMULATED"], "bench", "particles", "--grids", "10", "--steps",
               "2", "--particles", "100,300", "--threads", "1"]
        none, done = (subprocess.run(few, env=dict(ENVIRONMENT, MILL_EMULATED_GPUS=n), text=True,
                                     timeout=PATIENCE, capture_output=True) for n in "01")
        self.assertEqual((none.returncode, done.returncode), (0, 0), none.stderr + done.stderr)
        self.assertIn("\nNo GPU: backend cuda: ", none.stdout)
        self.assertNotIn("GPU - CPU", none.stdout)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]]
                for line in done.stdout.splitlines() if re.match(r"\| \d", line)]
        self.assertEqual([len(row) for row in rows], [12, 12, 4])
        for row in rows[:2]:
            # float32 random numbers, rounded differently
            self.assertTrue(all(0 <= float(row[i]) < 1e-5 for i in (6, 10)), row)
        self.assertEqual(rows[2][:2], ["10", "2"])
        self.assertIn("Transfers of an evolution: 1 up, 1 down.\n", done.stdout)


class Usage(ProgramTest):
    def test_help(self):
        done = starmill("bench", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(starmill("help", "bench").stdout, done.stdout)
        for option in ("library config catalog optimizer backend threads slots stars repeat "
                       "output json most limit keep").split():
            self.assertIn(f"--{option} ", done.stdout)
        self.assertIn("bench", starmill("--help").stdout)

    def test_mistakes(self):
        fit = ["fit", "--library", made["library"]]
        here = [made["file"]]
        for args, parts, status in (
            ([], ["'fit', 'rates', 'crossover', 'slots', 'read', 'host', 'train', "
                  "'particles' or 'schedule'"], 2),
            (["fits"], ["'fits'"], 2),
            (fit, ["no input"], 2),
            (fit + ["--optimizer", "newton"] + here, ["--optimizer", "newton"], 2),
            (fit + ["--repeat", "0"] + here, ["--repeat", "0"], 2),
            (fit + ["--stars", "many"] + here, ["--stars", "many"], 2),
            (fit + ["--threads", "-1"] + here, ["--threads", "-1"], 2),
            (fit + ["--npoly", "3"] + here, ["unknown", "--npoly"], 2),
            (fit + ["--json"], ["--json", "value"], 2),
            (fit + ["--output", tmp("nowhere")] + here, [tmp("nowhere"), "--output"], 4),
            (["rates", "--library", tmp("none.h5")], [tmp("none.h5")], 2),
            (["crossover", "--library", made["library"]], ["no input"], 2),
            (["crossover", "--most", "0"] + here, ["--most", "0"], 2),
            (["slots", "--limit", "soon"] + here, ["--limit", "soon"], 2),
            (["rates", tmp("none.fits")], [tmp("none.fits")], 3),
            (fit + ["--keep"] + here, ["--keep", "'fit'"], 2),
            (fit + ["--most", "4"] + here, ["--most", "'fit'"], 2),
            (fit + ["--limit", "4"] + here, ["--limit", "'fit'"], 2),
            (["rates", "--stars", "4"] + here, ["--stars", "'rates'"], 2),
            (["crossover", "--backend", "cpu"] + here, ["--backend", "'crossover'"], 2),
            (["crossover", "--stars", "4"] + here, ["--stars", "'crossover'"], 2),
            (["crossover", "--output", TMP] + here, ["--output", "'crossover'"], 2),
            (["crossover", "--optimizer", "all"] + here, ["--optimizer all", "'crossover'"], 2),
            (["slots", "--repeat", "2"] + here, ["--repeat", "'slots'"], 2),
            (["read", "--slots", "2"] + here, ["--slots", "'read'"], 2),
            (["host", "--backend", "cpu"] + here, ["--backend", "'host'"], 2),
            (["--keep", "slots"] + here, ["--keep", "'slots'"], 2),
        ):
            self.assertOneLine(starmill("bench", *args), "starmill bench: ", *parts, status=status)

    def test_json_that_cannot_be_written(self):
        path = os.path.join(tmp("nowhere"), "bench.json")
        done = starmill("bench", "fit", "--library", made["library"], "--json", path, made["file"])
        self.assertOneLine(done, path, tmp("nowhere") + " cannot be used", status=4)
        self.assertNotIn("run 1", done.stderr)  # it is told before the work

    def test_unreadable_file_beside_a_good_one(self):
        self.assertEqual(made["done"].returncode, 3, made["done"].stdout + made["done"].stderr)
        self.assertEqual({s["stars"] for s in made["report"]["optimizers"]}, {N_STAR})

    def test_one_rank_only(self):
        done = starmill("bench", "fit", "--library", made["library"], made["file"], ranks=2)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("one rank", done.stderr)


if __name__ == "__main__":
    main()
