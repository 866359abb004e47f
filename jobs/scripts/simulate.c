/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/scripts/script.h"

#define COUNT(least, most) MILL_OPTION_COUNT, .min = least, .max = most
#define REAL(most)         MILL_OPTION_REAL, .max = most
#define PAIR(least, most)                                                                          \
  MILL_OPTION_PAIR, .offset2 = sizeof(double), .min = least, .max = most, .argument = "MIN,MAX"

static const char *const error_words[] = {"false", "true", "correlated", NULL};

static const mill_option rows[] = {
    {.name = "files"},
    {"output", MILL_OPTION_TEXT, .argument = "DIR",
     .help = "folder of the survey; made if it is not there"},
    {"stars", MILL_OPTION_INTEGER, .min = 1, .max = 1000000000,
     .help = "rows of the survey (default 1000)"},
    {"per-file", COUNT(1, 100000), .help = "rows per file (default 500)"},
    {"redrock", MILL_OPTION_FLAG, .help = "also write redrock files"},
    {"overwrite", MILL_OPTION_FLAG, .help = "remove the existing survey and start over"},
    {.name = "stars"},
    {"seed", MILL_OPTION_SEED, .argument = "S", .help = "same seed, same bytes (default 1)"},
    {"library", MILL_OPTION_TEXT, .argument = "FILE",
     .help = "library to draw the stars from: arms b, r and z, or one arm that covers them "
             "(default: the shipped library)"},
    {"model-error", MILL_OPTION_CHOICE, .words = error_words,
     .help = "add a draw of the library's model error to each star, as a fit assumes it; "
             "correlated: the part outside the components is correlated, as measured "
             "(default true)"},
    {"sn", PAIR(0.1, 1e5), .help = "median signal-to-noise of a pixel of arm r (default 5,100)"},
    {"vel-sigma", REAL(900), .help = "standard deviation of the velocities, km/s (default 200)"},
    {"vsini", PAIR(0.01, 500),
     .help = "v sin i, km/s, log-uniform (default: most below 10, a tail to 150)"},
    {.name = "instrument"},
    {"distortion", REAL(0.1), .help = "rms of the smooth calibration error (default 0.03)"},
    {"noiseless", MILL_OPTION_FLAG, .help = "no noise, cosmics and calibration error"},
    {"pathological", COUNT(0, 1000), .help = "rows per 1000 with a defect (default 0)"},
    {.name = "running"},
    {"threads", COUNT(0, 4096),
     .help = "processes that share the rows; 0: as many as cores are available (default 0)"},
    {"quiet", MILL_OPTION_FLAG, .help = "no progress and no summary"},
    MILL_SCRIPT_HELP,
    {0}};

static const mill_option_table table = {
    "starmill simulate",
    "usage: starmill simulate --output DIR [options]\n"
    "\n"
    "Make a mock survey: coadd files in DESI's layout and a table of the truth.  Repeat the\n"
    "same command to continue an interrupted survey; a complete one is left alone.\n"
    "\n",
    MILL_SCRIPT_PYTHON("numpy, scipy, h5py and astropy") "\n"
                                                         "SIGTERM, SIGINT and SIGUSR1 drop the "
                                                         "files under way and stop.\n"
                                                         "Exit status: 0 done, 2 usage or library, "
                                                         "4 output or disk, 70 internal error,\n"
                                                         "75 stopped in good order.\n",
    rows};

const mill_script mill_simulate = {{&table, NULL}, "starmill.mocks.survey", "no files", 0, 0};
