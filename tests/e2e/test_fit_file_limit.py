"""A limit on file sizes (ulimit -f, a batch system's) stops a run with a message."""

import resource

from common import *  # noqa: F403

BYTES = 20_000


class FileLimit(EndToEnd):
    def test_output_over_the_limit(self):
        path = tmp("limited.h5")
        # PMIx and UCX make shared files of some megabytes, which is not what is tested
        environment = dict(ENVIRONMENT, PMIX_MCA_gds="hash", UCX_TLS="self,sysv")
        run = subprocess.run(
            command("fit", "--library", library(), "--output", path, cut("few.fits", range(2))),
            env=environment, capture_output=True, text=True, timeout=PATIENCE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES)))
        self.assertEqual(run.returncode, 4, run.stdout + run.stderr)
        self.assertIn(path, run.stderr)
        self.assertIn("make room", run.stderr)
        self.assertEqual([f for f in os.listdir(TMP) if f.startswith("limited.h5")], [])


if __name__ == "__main__":
    main()
