# SPDX-License-Identifier: BSD-3-Clause
"""`starmill status` and the status file of runs that go on, end, stop, fail and die."""

import socket

from common import *  # noqa: F403

FINISHED, RUNNING, NONE, FAILED, INCOMPLETE = 0, 10, 11, 12, 75
N_STAR = 32
SLOW = ("--optimizer", "nelder-mead", "--threads", 1, "--slots", 1)
STARS = cut("stars.fits", range(N_STAR))  # over a second of fitting
OFTEN = put("often.yaml", "write_interval: 0.1\n")  # the status is written ten times a second


def status_of(path):
    """The status file of a result as JSON; None if there is none."""
    try:
        return json.loads(content(path + ".status.json").decode())
    except FileNotFoundError:
        return None


class Status(EndToEnd):
    def ask(self, path, *args, status):
        return self.ends(status, "status", path, *args).stdout

    def ask_json(self, path, *args, status):
        answer = json.loads(self.ask(path, "--json", *args, status=status))
        self.assertEqual(answer["exit_status"], status)
        return answer

    def start(self, out, *args, ranks=0):
        """Start a slow fit in the background; return the process once the status file is there."""
        self.path = tmp(out)
        process = start("fit", "--library", library(), "--output", self.path, "--config", OFTEN,
                        *SLOW, *args, STARS, ranks=ranks)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        wait_until(lambda: status_of(self.path) is not None, process)
        return process

    def test_nothing_there_wrong_use_and_foreign_files(self):
        self.assertIn("neither result nor status", self.ask(tmp("absent.h5"), status=NONE))
        self.assertEqual(self.ask_json(tmp("absent.h5"), status=NONE)["state"], "none")
        self.assertOneLine(starmill("status"), "one result", status=2)
        self.assertOneLine(starmill("status", "a.h5", "b.h5"), "not 2", status=2)
        self.assertOneLine(starmill("status", "--jsno", "a.h5"), "--jsno", status=2)
        self.assertOneLine(starmill("status", library()), "not a result of starmill", status=4)
        self.assertOneLine(starmill("status", STARS), STARS, status=4)
        put("foreign.h5.status.json", "{}")
        self.assertOneLine(starmill("status", tmp("foreign.h5")), "not a status file", status=4)
        put("cut.h5.status.json", '{\n  "format": "starmill status",\n  "ranks": [')
        self.assertOneLine(starmill("status", tmp("cut.h5")), "damaged", status=4)
        run("status", "--help")

    def test_age_and_process_tell_whether_it_runs(self):
        from starmill.products.status import Job
        here = socket.gethostname()
        for host, ago_s, pid, interval_s, runs in (
                (here, 0, os.getpid(), 5, True), (here, 0, 0, 5, False),
                (here, 3600, os.getpid(), 5, False),  # the number may be another's by now
                (here, 3600, os.getpid(), 600, True),  # ten of its intervals are not over
                ("elsewhere", 0, 0, 5, True), ("elsewhere", 3600, 0, 5, False),
                ("elsewhere", None, 0, 5, False)):
            updated = "?" if ago_s is None else time.strftime(
                "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago_s))
            job = Job.__new__(Job)
            job.run = {"state": "running", "host": host, "pid": pid, "updated": updated,
                       "interval_s": interval_s}
            self.assertEqual(job._is_running(), runs, job.run)

    def test_a_run_of_two_ranks_from_its_start_to_its_end(self):
        process = self.start("run.h5", ranks=2)
        wait_until(lambda: status_of(self.path)["done"] > 0, process)
        answer = self.ask_json(self.path, status=RUNNING)
        run = answer["run"]
        self.assertEqual((answer["state"], run["state"]), ("running", "running"))
        self.assertEqual(answer["rows"], N_STAR)
        self.assertEqual(run["done"] + run["remaining"], N_STAR)
        self.assertEqual([r["rank"] for r in run["ranks"]], [0, 1])
        for rank in run["ranks"]:
            # the process holds the library (over 10 MiB) and peaks below 8 GiB
            self.assertGreater(rank["resident_bytes"], 10 << 20)
            self.assertLess(rank["peak_bytes"], 8 << 30)
            self.assertIsNone(rank["gpu"])
        self.assertEqual(sum(r["done"] for r in run["ranks"]), run["done"])
        text = self.ask(self.path, status=RUNNING)
        self.assertIn(f"{self.path}: running", text)
        self.assertRegex(text, r"(?m)^rate +[0-9.]+ rows/s, about \w+ left$")
        self.assertIn("rank 1", text)
        out, _ = self.said_by(process, 0)
        self.assertRegex(out, r"(?m)^memory +rank peaks: sum \d+ MiB, least \d+ \(rank [01]\), most ")
        self.assertRegex(out, r"(?m)^  rank 1 +peak \d+ MiB$")
        run = status_of(self.path)
        self.assertEqual((run["state"], run["exit_status"], run["error"]), ("finished", 0, None))
        self.assertEqual((run["done"], run["fitted"], run["remaining"]), (N_STAR, N_STAR, 0))
        self.assertEqual({r["stage"] for r in run["ranks"]}, {"ended"})
        self.assertEqual(self.ask_json(self.path, status=FINISHED)["fitted"], N_STAR)
        # the result file alone says the same
        os.unlink(self.path + ".status.json")
        answer = self.ask_json(self.path, status=FINISHED)
        self.assertEqual((answer["fitted"], answer["remaining"], answer["run"]), (N_STAR, 0, None))
        self.assertIn(f"{N_STAR} of {N_STAR} done", self.ask(self.path, status=FINISHED))

    def test_stopped_and_continued(self):
        process = self.start("stop.h5", "--minsn", 30)
        wait_until(lambda: status_of(self.path)["done"] > 2, process)
        self.said_by(process, 75, signal.SIGTERM)
        part = read(self.path)["STATUS"]
        answer = self.ask_json(self.path, status=INCOMPLETE)
        self.assertEqual((answer["state"], answer["run"]["state"]), ("stopped", "stopped"))
        self.assertEqual(answer["remaining"], int((part == 0).sum()))
        self.said_by(self.start("stop.h5", "--minsn", 30), 0)
        run, table = status_of(self.path), read(self.path)["STATUS"]
        self.assertEqual(run["done_in_this_run"], int((part == 0).sum()))
        self.assertEqual(run["fitted"], int((table == FITTED).sum()))
        self.assertEqual(run["failed_by_reason"].get("LOW_SN", 0), int((table == LOW_SN).sum()))
        self.assertGreater(run["failed"], 0)
        # a run that finds all done touches nothing
        before = content(self.path + ".status.json")
        self.fit("stop.h5", "--minsn", 30, *SLOW, STARS)
        self.assertEqual(content(self.path + ".status.json"), before)

    def test_killed(self):
        process = self.start("kill.h5")
        wait_until(lambda: status_of(self.path)["done"] > 0, process)
        process.kill()
        process.communicate(timeout=PATIENCE)
        self.assertEqual(status_of(self.path)["state"], "running")
        self.assertEqual(self.ask_json(self.path, status=INCOMPLETE)["state"], "died")
        os.unlink(self.path + ".status.json")
        self.assertEqual(self.ask_json(self.path, status=INCOMPLETE)["state"], "incomplete")

    def test_the_first_error_of_a_rank_is_told_and_kept(self):
        # rank 1 gets no memory for its million slots, while rank 0 fits stars
        self.path = tmp("fail.h5")
        common_part = ["fit", "--library", library(), "--output", self.path, "--threads", 1,
                       "--config", OFTEN, "--log", tmp("fail.log")]
        done = ended([MPIRUN, "-n", "1", *command(*common_part, "--slots", 1, STARS), ":",
                      "-n", "1", "sh", "-c", 'ulimit -v 2500000; exec "$@"', "sh",
                      *command(*common_part, "--slots", 1000000, STARS)])
        self.assertEqual(done.returncode, 70, done.stdout + done.stderr)
        line = r"(?m)^20\S+Z rank 1 ERROR share\.c:\d+  this rank fails \(\S+:\d+\), .*no memory for"
        self.assertRegex(done.stderr, line)
        self.assertRegex(content(tmp("fail.log"), "r"), line)
        self.assertIn("starmill fit: no memory", done.stderr)
        run = status_of(self.path)
        self.assertEqual((run["state"], run["exit_status"]), ("failed", 70))
        self.assertEqual(run["error"]["rank"], 1)
        self.assertIn("no memory", run["error"]["message"])
        self.assertEqual(run["ranks"][1]["stage"], "failed")
        self.assertEqual(self.ask_json(self.path, status=FAILED)["state"], "failed")
        self.assertIn("first error  rank 1: no memory", self.ask(self.path, status=FAILED))
        # the same command, with the slots that fit, goes on from there
        self.fit("fail.h5", "--threads", 1, "--slots", 1, STARS)
        self.assertEqual(self.ask_json(self.path, status=FINISHED)["remaining"], 0)

    def test_ranks_that_fail_alike(self):
        # one rank prints the failure; the other prints it only at log level debug
        done = ended([MPIRUN, "-n", "2", "sh", "-c", 'ulimit -v 2500000; exec "$@"', "sh",
                      *command("fit", "--library", library(), "--output", tmp("alike.h5"), "--threads",
                               1, "--slots", 1000000, "--log-level", "debug", STARS)])
        self.assertEqual(done.returncode, 70, done.stdout + done.stderr)
        first = re.findall(r"rank (\d) ERROR share\.c:\d+  this rank fails \(", done.stderr)
        later = re.findall(r"rank (\d) DEBUG share\.c:\d+  this rank fails too \(", done.stderr)
        self.assertGreaterEqual(len(first), 1, done.stderr)
        self.assertEqual(sorted(first + later), ["0", "1"])
        errors = [r["error"] for r in status_of(tmp("alike.h5"))["ranks"]]
        self.assertTrue(all("no memory" in e for e in errors), errors)

    def test_many_unreadable_files_are_no_flood(self):
        n = 250
        names = [put("bad-%03d.fits" % i, "no spectrum\n") for i in range(n)]
        put("bad.txt", "".join(name + "\n" for name in names + [cut("good.fits", [0])]))
        for ranks, shown in ((0, 100), (2, 50)):
            # not standard error, where mpirun may mix the lines of two ranks
            log = tmp("flood-%d.log" % ranks)
            done = self.fit("flood.h5", "--overwrite", "--threads", 1, "--catalog", tmp("bad.txt"),
                            "--log", log, ranks=ranks, status=3)
            lines = content(log, "r")
            self.assertEqual(len(re.findall("bad-...[.]fits", lines)), shown * max(ranks, 1))
            left_out = re.findall(r"ERROR inputs\.c:\d+  (\d+) more lines like", lines)
            self.assertEqual(sum(map(int, left_out)), n - shown * max(ranks, 1))
            # all of them are in the result
            errors = read(self.path, "catalog/files")["ERROR"]
            self.assertEqual([e != b"" for e in errors], [True] * n + [False])
            for said in done.stdout, run("status", self.path).stdout:
                self.assertIn("unreadable   250 of 251 files", said)
            self.assertEqual(status_of(self.path)["files_unreadable"], n)
        os.unlink(self.path + ".status.json")  # the result alone says the same
        self.assertIn("unreadable   250 of 251 files", run("status", self.path).stdout)

    def test_names_of_any_bytes(self):
        folder = os.fsencode(tmp("any"))
        os.mkdir(folder)
        star = folder + b'/star "\\\xff\xc3\xa9\n%s.fits'
        os.rename(cut("any.fits", [0]), star)
        out = folder + b'/out "\\\xff\xc3\xa9\n%n.h5'
        argv = [STARMILL, "fit", "--library", library(), "--output", out, star]
        done = subprocess.run(argv, env=ENVIRONMENT, capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        run = json.loads(content(out + b".status.json").decode("utf-8"))
        shown = os.fsdecode(folder) + '/out "\\\ufffd\xe9\n%n.h5'
        self.assertEqual(run["output"], shown)
        self.assertEqual(run["ranks"][0]["file"], os.fsdecode(folder) + '/star "\\\ufffd\xe9\n%s.fits')
        done = subprocess.run([STARMILL, "status", "--json", out], env=ENVIRONMENT,
                              capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, FINISHED, done.stderr)
        self.assertEqual(json.loads(done.stdout.decode("utf-8"))["output"], shown)

    def test_options_of_the_status_file(self):
        star = cut("one.fits", [0])
        self.fit("else.h5", "--status", tmp("elsewhere.json"), star)
        self.assertIsNone(status_of(self.path))
        self.assertEqual(json.loads(content(tmp("elsewhere.json")))["output"], self.path)
        self.assertIn("elsewhere.json", self.ask(self.path, "--status", tmp("elsewhere.json"),
                                                 status=FINISHED))
        # nothing else is replaced, whatever it is
        other = shutil.copy(star, tmp("other.fits"))
        for path, says in ((star, "are one file"), (other, "not a status file")):
            before = content(path)
            done = self.fit("refused.h5", "--status", path, star, status=2)
            self.assertOneLine(done, "starmill fit: ", path, says, status=2)
            self.assertEqual(content(path), before)
        self.assertFalse(os.path.exists(self.path))
        # a status that cannot be written stops nothing
        done = self.fit("lost.h5", "--status", tmp("nowhere/status.json"), star)
        self.assertOneLine(done, "WARN", "cannot write the status", status=0)
