# SPDX-License-Identifier: BSD-3-Clause
"""Command line of `starmill simulate`."""

from starmill.cli.options import Job


def simulate():
    job = Job("simulate", "mocks.survey", "--output DIR [options]", """\
Make a mock survey: coadd files in DESI's layout and a table of the truth.  Repeat the
same command to continue an interrupted survey; a complete one is left alone.""",
              "numpy scipy h5py astropy cffi", """\

SIGTERM, SIGINT and SIGUSR1 drop the files under way and stop.
Exit status: 0: done; 2: usage or library; 4: output or disk; 70: internal error;
75: stopped in good order.""", (0, 0, "no files"))
    job.is_shared = True
    job.heading("files")
    job.add("output", "folder of the survey; made if it is not there", "DIR", needed=True)
    job.number("stars", 1, 10**9, "rows of the survey", 1000)
    job.number("per-file", 1, 100000, "rows per file", 500)
    job.flag("redrock", "also write redrock files")
    job.flag("overwrite", "remove the existing survey and start over")
    job.heading("stars")
    job.number("seed", 0, 2**64 - 1, "same seed, same bytes", 1, metavar="S")
    job.add("library", "library to draw the stars from: arms b, r and z, or one arm that covers "
            "them (default: the shipped library)")
    job.choice("model-error", ("false", "true", "correlated"), "true",
               "add a draw of the library's model error to each star, as a fit assumes it; "
               "correlated: the part outside the components is correlated, as measured (default "
               "true)")
    job.pair("sn", "MIN,MAX", "median signal-to-noise of a pixel of arm r (default 5,100)",
             (5.0, 100.0), 0.1, 1e5)
    job.number("vel-sigma", 0, 900, "standard deviation of the velocities, km/s", 200.0, float)
    job.pair("vsini", "MIN,MAX",
             "v sin i, km/s, log-uniform (default: most below 10, a tail to 150)", None, 0.01, 500)
    job.heading("instrument")
    job.number("distortion", 0, 0.1, "rms of the smooth calibration error", 0.03, float)
    job.flag("noiseless", "no noise, cosmics and calibration error")
    job.number("pathological", 0, 1000, "rows per 1000 with a defect", 0)
    job.heading("running")
    job.number("threads", 0, 4096,
               "processes that share the rows; 0: as many as cores are available", 0)
    job.flag("quiet", "no progress and no summary")
    return job
