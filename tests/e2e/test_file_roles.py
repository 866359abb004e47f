# SPDX-License-Identifier: BSD-3-Clause
"""No command overwrites its own input, waits for a pipe, or shares an output by two names."""

import itertools

from base import *  # noqa: F403

LIBRARY, SURVEY = coarse_survey(2)


def fit(*args, call=starmill, **how):
    return call("fit", "--quiet", "--library", LIBRARY, *args, **how)


class OneFile(ProgramTest):
    def assertKept(self, done, *parts, kept=()):
        self.assertOneLine(done, *parts, status=2)
        for path, before in kept:
            self.assertEqual(content(path), before, path)

    def test_written_names_differ(self):
        out = tmp("written.h5")
        fit("--output", out, SURVEY, call=run)
        kept = [(out, content(out))]
        os.symlink(out, tmp("written-link.h5"))
        os.mkdir(tmp("sub"))
        os.link(out, tmp("sub/hard.h5"))
        for option, path in (("--status", out), ("--stop-file", out), ("--log", out),
                             ("--models", tmp("written-link.h5")), ("--log", out + ".lock"),
                             ("--stop-file", tmp("sub/../written.h5")), ("--models", tmp("sub/hard.h5")),
                             ("--start", out + ".tmp-12"), ("--catalog", out + ".tmp")):
            with self.subTest(option=option, path=path):
                self.assertKept(fit("--output", out, option, path, SURVEY), path, "--output", kept=kept)
        self.assertKept(fit("--output", tmp("new.h5"), "--status", tmp("new.h5"), SURVEY),
                        "--status", "--output")
        self.assertFalse(os.path.exists(tmp("new.h5")))
        # a link to a file that does not exist yet, and a link to itself
        os.symlink("later.h5", tmp("dangling.h5"))
        self.assertKept(fit("--output", tmp("dangling.h5"), "--log", tmp("later.h5"), SURVEY), "--log", "--output")
        os.symlink("circle.h5", tmp("circle.h5"))
        self.assertOneLine(fit("--output", tmp("circle.h5"), SURVEY), "circle.h5", status=4)

    def test_numbers_that_agree_by_chance(self):
        """An input of rank 1 may have the device and inode of a file on rank 0's host."""
        args = "--output", tmp("host-out.h5"), "--overwrite", *(
            shutil.copy(SURVEY, tmp(f"host-{name}.fits")) for name in ("first", "last"))
        for name in "", "first.fits", "out.h5":
            numbers = f"EIO:inode:host-{name}$:1:0:0;EIO:inode:host-last.fits$:1:0:1"
            with self.subTest(name):
                fit(*args, call=run, ranks=2, env=faults(numbers) if name else None)

    def test_what_is_read_is_not_written(self):
        """An input cannot be an output: by its own name, a symbolic link or a hard link.  Each
        input meets two of the outputs, in turn."""
        read_files = {"library": tmp("role-library.h5"), "config": tmp("role.yaml"),
                      "catalog": tmp("role.txt"), "object-file": tmp("role-ids.txt"),
                      "start": tmp("role-start.h5")}
        shutil.copy(LIBRARY, read_files["library"])
        fit("--output", read_files["start"], SURVEY)
        for option, text in (("config", "npoly: 10\n"), ("catalog", SURVEY + "\n"),
                             ("object-file", "1\n")):
            put(read_files[option], text)
        redrock = os.path.join(os.path.dirname(SURVEY),
                               os.path.basename(SURVEY).replace("coadd-", "redrock-"))
        shutil.copy(SURVEY, redrock)  # no good one; it is kept all the same
        self.addCleanup(os.unlink, redrock)
        args = [x for option, path in read_files.items() for x in ("--" + option, path)]
        kept = [(path, content(path)) for path in (*read_files.values(), SURVEY, redrock)]
        os.link(SURVEY, tmp("role-hard"))
        options = itertools.cycle(("--output", "--models", "--log", "--status", "--stop-file"))
        for path, _ in kept:
            os.symlink(path, tmp("role-link"))
            for name in (tmp("role-link"), path, *[tmp("role-hard")] * (path == SURVEY)):
                option = next(options)
                with self.subTest(option=option, name=name):
                    out = [] if option == "--output" else ["--output", tmp("role-new.h5")]
                    self.assertKept(starmill("fit", "--overwrite", *args, *out, option, name),
                                    name, kept=kept)
            os.unlink(tmp("role-link"))
        self.assertFalse(os.path.exists(tmp("role-new.h5")))


class Log(ProgramTest):
    def test_lines_are_appended_to_logs_only(self):
        log = tmp("appended.log")
        args = ("--output", tmp("logged.h5"), "--overwrite", "--log-level", "debug", SURVEY)
        open(log, "w").close()
        for _ in range(2):
            before = content(log)
            self.assertEqual(fit("--log", log, *args).returncode, 0)
            self.assertTrue(content(log).startswith(before))
            self.assertGreater(len(content(log)), len(before))
        for text in (b"To do: look at star 5\n", b"2026-11-22 notes of a night of observations\n", b"x",
                     b"SIMPLE  =                    T", b"\x1f\x8b\x08 and more of a gzip file",
                     b"\x89HDF\r\n\x1a\n and more of it"):
            put(log, text)
            self.assertOneLine(fit("--log", log, *args), "--log",
                               "not that of a log of starmill", status=2)
            self.assertEqual(content(log), text)


class Names(ProgramTest):
    def test_empty_ones(self):
        for option in ("output", "models", "catalog", "start"):
            done = fit("--output", tmp("empty.h5"), "--" + option, "", SURVEY)
            self.assertOneLine(done, "--" + option, "empty", status=2)
        for args in (("library", "import", "--output", "", LIBRARY), ("merge", "--output=", LIBRARY)):
            self.assertOneLine(starmill(*args), "--output", "empty", status=2)

    def test_one_character(self):
        fit("--output", "x", "--models", "y", SURVEY, call=run, cwd=TMP)
        self.assertTrue((read(tmp("x"))["STATUS"] == FITTED).all())
        fit("--output", "x", "--models", "y", SURVEY, call=run, cwd=TMP, ranks=2)
        run("merge", "--output", "z", "x", cwd=TMP)


class Pipes(ProgramTest):
    def test_none_is_waited_for(self):
        pipe, out = tmp("pipe"), tmp("pipe.h5")
        os.mkfifo(pipe)
        for option in ("--catalog", "--config", "--start", "--object-file", "--library"):
            with self.subTest(option=option):
                for path, says in ((pipe, "pipe or device"), ("/dev/null", "pipe or device"), (TMP, "folder")):
                    self.assertOneLine(fit("--output", out, option, path, SURVEY), path, says, status=2)
        self.ends(4, "merge", "--output", out, pipe, says=[pipe, "pipe or device"])
        self.assertEqual(fit("--output", out, pipe).returncode, 3)


class Lock(ProgramTest):
    def test_links_to_the_output_share_its_lock(self):
        """An output locked under one of its names is locked under all; the link stays a link."""
        for option in ("output", "models"):
            with self.subTest(option=option):
                real, name = tmp(option + "-real.h5"), tmp(option + "-link.h5")
                os.symlink(os.path.basename(real), name)
                both = {"output": tmp("locked.h5"), "models": tmp("locked.models.h5"), option: name}
                args = [x for k, v in both.items() for x in ("--" + k, v)]
                put(real + ".lock", "host elsewhere\npid 1\njob -\nrestart 0\nstart 1\nspace -\n")
                self.assertOneLine(fit(*args, SURVEY), real, "is being written", status=4)
                os.unlink(real + ".lock")
                fit("--overwrite", *args, SURVEY, call=run)
                self.assertTrue(os.path.islink(name))
                self.assertFalse(os.path.islink(real))
                self.assertFalse(os.path.exists(real + ".lock"))
                self.ends(0 if option == "models" else 11, "status", tmp("locked.h5"))
