/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of all keys, for reading, checks, printing, options, --help and documentation. */
#include <limits.h>
#include <string.h>

#include "src/config/config_internal.h"

#define MAX_VEL   299792.0 /* km/s: just below the speed of light */
#define MAX_VSINI 1000.0   /* km/s: faster rotation would break up any star */

/* an enumerator is the index of its word in the table below */
static_assert(MILL_OPT_HYBRID == 0 && MILL_OPT_NELDER_MEAD == 1 && MILL_OPT_LM == 2 &&
                  MILL_LIKE_PROFILE == 1 && MILL_LIKE_AUTO == 2 && MILL_CONT_RBF == 0 &&
                  MILL_CONT_CHEBYSHEV == 1 && MILL_FLOAT32 == 0 && MILL_FLOAT64 == 1 &&
                  MILL_ROT_SPLINE == 0 && MILL_ROT_LINEAR == 1 && MILL_EXPOSURES_COADD == 0 &&
                  MILL_EXPOSURES_SINGLE == 1 && MILL_EXPOSURES_JOINT == 2 &&
                  MILL_EPOCHS_NONE == 0 && MILL_EPOCHS_EXPOSURE == 1 && MILL_EPOCHS_NIGHT == 2 &&
                  MILL_LSF_AUTO == 0 && MILL_LSF_MATRIX == 1 && MILL_LSF_SIGMA == 2 &&
                  MILL_LSF_RESOLVING_POWER == 3 && MILL_LSF_OFF == 4 && MILL_SN_PIXELS == 0 &&
                  MILL_SN_SCORES == 1 && MILL_SELECT_BY_ANY == 0 && MILL_SELECT_BY_ALL == 1 &&
                  MILL_MEDIUM_AUTO == 0 && MILL_MEDIUM_VACUUM == 1 && MILL_MEDIUM_AIR == 2,
              "order of the words");

#define AT(member)             MILL_AT(mill_config, member)
#define PATH(member)           MILL_OPTION_PATH, AT(member)
#define REAL(member, low, up)  MILL_OPTION_REAL, AT(member), .min = low, .max = up
#define COUNT(member, low, up) MILL_OPTION_COUNT, AT(member), .min = low, .max = up
#define CHOICE(member, ...)    MILL_OPTION_CHOICE, AT(member), .words = MILL_WORDS(__VA_ARGS__)
#define WORD(member, ...)      MILL_OPTION_WORD, AT(member), .words = MILL_WORDS(__VA_ARGS__)
#define YES_NO(member)         CHOICE(member, "false", "true")
#define OTHER(type)            MILL_OPTION_OTHER, .argument = type
#define SCIENCE                .is_identity = 1

const mill_option mill_config_key[MILL_N_KEY] = {
    /* not in the run's identity, which has the library's hash instead */
    {"template_lib", MILL_OPTION_NAMES, .offset = offsetof(mill_config, template_lib),
     .size = sizeof((mill_config *)0)->template_lib[0], .max = MILL_MAX_LIBRARY,
     .offset2 = offsetof(mill_config, n_template_lib), .argument = "path or list of paths",
     .section = "Model", .elsewhere = "same (a folder there)",
     .help = "library file, or several: each star is then fitted with the library that suits it",
     .more = "; `--library` overrides it"},
    {"arms",
     OTHER("list of names or of `{name, min, max, channel, resolving_power, fwhm, sampling}`"),
     SCIENCE, .unit = "Angstrom, vacuum", .range = "each name once; 0 ≤ min < max",
     .elsewhere = "`--fitarm`",
     .help = "arms to fit and their settings (below); empty: all arms of the library"},
    {"min_vel", REAL(fit.min_vel_km_s, -MAX_VEL, MAX_VEL), SCIENCE, .unit = "km/s",
     .range = "below `max_vel`", .elsewhere = "same", .help = "lowest radial velocity"},
    {"max_vel", REAL(fit.max_vel_km_s, -MAX_VEL, MAX_VEL), SCIENCE, .unit = "km/s",
     .range = "above `min_vel`", .elsewhere = "same", .help = "highest radial velocity"},
    {"min_vsini", REAL(fit.min_vsini_km_s, 0, MAX_VSINI), SCIENCE, .unit = "km/s",
     .range = "below `max_vsini`", .elsewhere = "same (0.1 in its configuration files)",
     .help = "lowest v sin i"},
    {"max_vsini", REAL(fit.max_vsini_km_s, 0, MAX_VSINI), SCIENCE, .unit = "km/s",
     .range = "above `min_vsini`", .elsewhere = "same", .help = "highest v sin i"},
    {"npoly", COUNT(fit.n_cont, 1, MILL_MAX_CONT), SCIENCE, .elsewhere = "same",
     .help = "continuum functions for each spectrum and arm"},
    {"npoly_per_1000aa", REAL(fit.n_cont_per_1000aa, 0, 1000), SCIENCE, .unit = "per 1000 Angstrom",
     .help = "continuum functions per 1000 Angstrom of an arm's spectrum; their number is at least "
             "npoly, at most 24; 0: npoly everywhere"},
    {"rbf_continuum", CHOICE(fit.continuum, "true", "false"), SCIENCE, .elsewhere = "same",
     .help = "continuum of 1, x, x² and Gaussians; false: Chebyshev polynomials"},
    {"likelihood", CHOICE(fit.likelihood, "marginal", "profile", "auto"), SCIENCE,
     .elsewhere = "(marginal)",
     .help = "integrate over the continuum (marginal, with the determinant) or only maximise "
             "over it (profile); auto: profile in arms with a model error"},
    {"precision", CHOICE(fit.precision, "float32", "float64"), SCIENCE,
     .help = "arithmetic of the emulator and the templates"},
    {"rotation_kernel", CHOICE(fit.rotation, "spline", "linear"), SCIENCE, .elsewhere = "(linear)",
     .help = "how v sin i broadens a template: spline treats the template as smooth; linear "
             "interpolates between pixels, which broadens too much for v sin i below two pixels"},
    {"model_error", YES_NO(fit.model_error), SCIENCE,
     .help = "include the library's measured template errors in the likelihood; no effect "
             "for a library without them"},
    {"sky_components", PATH(sky_components), SCIENCE,
     .help = "file of residuals that sky subtraction leaves, to include in the likelihood",
     .more = " (below)"},
    {"fix_param", OTHER("list of `{param, value}`"), SCIENCE, .unit = "of the parameter",
     .range = "`vsini` and `vrad` within their limits, labels within the library's range",
     .elsewhere = "`fixParam`", .help = "parameters held at a value"},
    {"priors", OTHER("list of `{param, mean, sigma}`"), SCIENCE, .unit = "of the parameter",
     .range = "sigma above 0; mean within 5 sigma of the fit's range", .elsewhere = "`priors`",
     .help = "Gaussian priors"},
    {"prior_table", PATH(prior_table), SCIENCE,
     .help = "FITS or HDF5 table of stars' Gaussian priors, in columns such as TEFF and TEFF_ERR; "
             "a star's prior replaces the same parameter's prior in `priors`",
     .more = " (below); `--prior-table` overrides it"},
    {"element_max_err", REAL(fit.element_max_err, 0, 10), SCIENCE, .unit = "dex",
     .help = "an element with a larger error gets the bit WEAK in its flag",
     .more = " ([results.md](results.md#which-rows-to-use))"},
    {"rescale_errors", YES_NO(fit.rescale_errors), SCIENCE,
     .help = "multiply errors by the root of the reduced chi-square where that is above 1"},
    {"velocity_offsets", YES_NO(fit.velocity_offsets), SCIENCE,
     .help = "fit a velocity offset for each arm of a star except the first; no effect for a star "
             "with one arm"},
    {"velocity_offset_sigma", REAL(fit.velocity_offset_sigma_km_s, 0.001, 1000), SCIENCE,
     .unit = "km/s",
     .help = "standard deviation of the Gaussian prior, with mean 0, of a velocity offset"},

    {"format",
     WORD(format, "auto", "desi", "sdss", "lamost", "lamost-mrs", "weave", "4most", "pfs",
          "generic"),
     SCIENCE, .section = "Spectra",
     .help = "format of the input files; auto recognises it from their contents"},
    {"exposures", CHOICE(exposures, "coadd", "single", "joint"), SCIENCE,
     .help = "what to fit of a file with single exposures. coadd: its coadd if it has one; single: "
             "each exposure as a row; joint: all exposures of an object in one row"},
    {"join_by_name", YES_NO(join_by_name), SCIENCE,
     .help =
         "join all rows of an object into one, by its name, else its TARGETID, also across files"},
    {"join_radius", REAL(join_radius_arcsec, 0, MILL_MAX_RADIUS), SCIENCE, .unit = "arcsec",
     .help = "with join_by_name, also join rows this close together, whatever their names; 0: by "
             "name alone"},
    {"epochs", CHOICE(fit.epochs, "none", "exposure", "night"), SCIENCE,
     .help = "also measure a velocity for each exposure, or night, of a row with several",
     .more = " ([epochs.md](epochs.md))"},
    {"vrad_floor", REAL(fit.vrad_floor_km_s, 0, 1000), SCIENCE, .unit = "km/s",
     .help = "error of the spectra's wavelengths, added in quadrature to VRAD_ERR and VRAD_2_ERR"},
    {"epoch_floor", REAL(fit.epoch_floor_km_s, 0, 1000), SCIENCE, .unit = "km/s",
     .help = "floor added in quadrature to epochs' velocity errors for VRAD_CHI2 and VRAD_PVAL"},
    {"binaries", YES_NO(fit.binaries), SCIENCE,
     .help = "fit two stars where the residuals show the lines of a second one",
     .more = " ([binaries.md](binaries.md))"},
    {"lsf", CHOICE(lsf, "auto", "matrix", "sigma", "resolving_power", "off"), SCIENCE,
     .help = "source of the line-spread function", .more = " (below)"},
    {"resolving_power", REAL(resolving_power, 0, MILL_MAX_POWER), SCIENCE,
     .help = "wavelength over FWHM of the line-spread function, 10 or more; 0: none"},
    {"lsf_factor", REAL(lsf_factor, 0.5, 2), SCIENCE,
     .help = "multiplies the line-spread sigmas of files, which may be too small or lack the pixel "
             "width; no effect for Astra's files"},
    {"lsf_width_error", REAL(fit.lsf_width_error, 0, 0.5), .without = "auto", SCIENCE,
     .unit = "of the width",
     .help = "relative uncertainty of the line-spread function's width, independent in each arm, "
             "included in the likelihood; 0: none; auto: the value for the input's format",
     .more = " (below)"},
    {"medium", CHOICE(medium, "auto", "vacuum", "air"), SCIENCE,
     .help = "medium of files' wavelengths; auto follows the file",
     .more = "; air wavelengths are converted to vacuum"},

    {"optimizer", CHOICE(fit.optimizer, "hybrid", "nelder-mead", "levenberg-marquardt"), SCIENCE,
     .section = "Optimizer", .elsewhere = "(`second_minimizer` adds a method)",
     .help = "hybrid: Levenberg-Marquardt steps, a short simplex where one fails; nelder-mead: "
             "simplex to convergence, then steps; levenberg-marquardt: steps alone",
     .more = ". On failure levenberg-marquardt gives way to hybrid, hybrid to nelder-mead"},
    /* the run's identity has the hash of the table's contents */
    {"start", PATH(start), SCIENCE,
     .help = "table to start fits from instead of the initial guess: FITS, or a result file; stars "
             "are found by TARGETID, OBJECT, IDENTIFIER or position",
     .more = "; `--start` overrides it"},
    {"guess_vel_step", REAL(fit.guess_vel_step_km_s, 1, 1000), SCIENCE, .unit = "km/s",
     .range = "at most `max_vel - min_vel`",
     .elsewhere = "(`vel_step0`: step of rvspecfit's first velocity grid)",
     .help = "velocity step of the initial guess; refused if the guess needs over 4 GB per rank"},
    {"second_start_sn", REAL(fit.second_start_sn, 0, 1e6), SCIENCE,
     .help = "below this S/N also start from the second-best guess, above it only if the "
             "first solution is doubtful"},
    {"max_starts", COUNT(fit.max_starts, 1, MILL_MAX_GUESS_START), SCIENCE,
     .help = "largest number of starts of a fit, from the initial guess's best templates; "
             "1: only the best"},
    {"n_simplex_round", COUNT(fit.n_simplex_round, 0, 100000), SCIENCE,
     .help = "evaluations of the short simplex of `hybrid`; 0: none"},
    {"max_eval", COUNT(fit.max_eval, 1, 10000000), SCIENCE,
     .help = "largest number of likelihood evaluations per star; a simplex stops there, its best "
             "point is polished by up to 41 more evaluations, and no other method follows"},

    {"edge_pix", COUNT(fit.edge_pix, 0, 1000), SCIENCE, .section = "Pixels", .unit = "pixels",
     .elsewhere = "(5)",
     .help = "pixels dropped at each end of an arm when a resolution matrix is used"},
    {"sigma_floor", REAL(fit.sigma_floor, 0, 10), SCIENCE, .elsewhere = "(0.3)",
     .help = "floor of good pixels' flux errors, in units of these errors' median"},
    {"bad_sigma_factor", REAL(fit.bad_sigma_factor, 1, 1e6), SCIENCE, .elsewhere = "(1000)",
     .help = "flux error that bad pixels get, in units of abs(median flux)"},
    {"wave_mask", OTHER("auto, or list of `[min, max]`"), SCIENCE, .unit = "Angstrom, vacuum",
     .range = "at most 32 ranges; 0 ≤ min < max, ascending, without overlap",
     .elsewhere = "(the same range)",
     .help = "wavelengths to mask; auto: DESI's dichroic, `[[4300, 4450]]`, for DESI files, none "
             "for other formats; runs with both kinds need a list"},
    {"mask_ignore", OTHER("whole number, decimal or 0x"), SCIENCE, .unit = "bits",
     .range = "0 … 0xffffffff", .help = "mask bits to ignore"},

    {"minsn", REAL(select.min_sn, -DBL_MAX, DBL_MAX), .without = "none", SCIENCE,
     .section = "Selection", .range = "finite", .elsewhere = "`--minsn`",
     .help = "rows whose best arm has a lower S/N are not fitted"},
    {"minsn_from", CHOICE(select.sn_source, "pixels", "scores"), SCIENCE,
     .elsewhere = "(SCORES, if present)",
     .help = "source of the S/N for minsn. pixels: the spectra; scores: DESI's SCORES or 4MOST's "
             "SNR, so that rows below minsn are not read (not with join_by_name)"},
    {"objtypes", MILL_OPTION_NAMES, .offset = offsetof(mill_config, select.objtype),
     .size = sizeof((mill_selection *)0)->objtype[0], .max = 8,
     .offset2 = offsetof(mill_config, select.n_objtype), SCIENCE, .argument = "list of names",
     .range = "at most 8 of 31 bytes", .elsewhere = "(its `--objtypes` is target_classes here)",
     .help = "OBJTYPE values (any case) to fit; empty: all but SKY and BAD"},
    {"target_classes", MILL_OPTION_NAMES, .offset = offsetof(mill_config, select.target_class),
     .size = sizeof((mill_selection *)0)->target_class[0], .max = MILL_MAX_TARGET_CLASS,
     .offset2 = offsetof(mill_config, select.n_target_class), SCIENCE, .argument = "list of names",
     .range = "at most 16 of 63 bytes", .elsewhere = "`--objtypes`",
     .help = "regular expressions for the beginning of a target bit's name (DESI) or of TARGCAT "
             "(WEAVE): fit rows that match one; empty: all"},
    {"select_by", CHOICE(select.select_by, "any", "all"), SCIENCE, .elsewhere = "(any)",
     .help = "with both target_classes and redrock, fit rows selected by either (any) or by both "
             "(all)"},
    {"minexpid", COUNT(select.min_exp_id, 0, INT_MAX), SCIENCE,
     .elsewhere = "`--minexpid` (exclusive)",
     .help = "lowest EXPID to fit of a spectra file; 0: no limit"},
    {"maxexpid", COUNT(select.max_exp_id, 0, INT_MAX), SCIENCE, .elsewhere = "`--maxexpid`",
     .help = "highest EXPID to fit of a spectra file; 0: no limit"},
    {"objects", OTHER("list of names"), SCIENCE, .range = "1 to 63 bytes",
     .elsewhere = "`--targetid`",
     .help = "stars to fit, by TARGETID, IDENTIFIER or OBJECT; empty: all"},
    {"fiberstatus_allowed_bits", OTHER("list of whole numbers"), SCIENCE, .range = "0 … 63",
     .elsewhere = "(3 and 20)", .help = "bits of the fiber status that may be set"},
    {"redrock", YES_NO(select.redrock), SCIENCE, .elsewhere = "`--zbest_select`",
     .help = "fit only rows to which redrock gives the class star or a small velocity"},
    {"redrock_file", PATH(select.redrock_file), SCIENCE,
     .help = "redrock file; empty: in the input's folder, named like the input with `redrock-` for "
             "`coadd-` or `spectra-`"},
    {"redrock_max_vel", REAL(select.redrock_max_vel_km_s, 0, MAX_VEL), SCIENCE, .unit = "km/s",
     .elsewhere = "(1500)", .help = "largest absolute redrock velocity that counts as a star's"},

    /* the keys from here on may change when a run is continued */
    {"threads", COUNT(n_thread, 0, 4096), .section = "Operation",
     .range = "at most four per core of the machine, but 64 are always allowed",
     .elsewhere = "`--nthreads` (processes)",
     .help = "threads per rank; 0: all cores available to it"},
    {"readers", COUNT(n_reader, 0, MILL_MAX_READER),
     .help = "threads per rank that read spectra, in addition to those that fit; 0: the default",
     .more = ", one per 16 threads, or per two threads with a GPU; never over 8"},
    {"slots", COUNT(n_slot, 0, 1000000), .help = "stars that a rank fits at once; 0: the default",
     .more = ", on the CPU 32 per thread and library (`sample` counts two threads at most); on a "
             "GPU 4,096 or, if fewer, one per 3 MiB of the rank's share of GPU memory"},
    {"write_interval", REAL(write_interval_s, 0.1, 86400), .unit = "s",
     .help = "time between writes of finished rows"},
    {"gzip_limit_mib", REAL(gzip_limit_mib, 0, 1e9), .unit = "MiB",
     .help = "largest unpacked size of a .gz input, and of an image of compressed tiles"},
    {"scratch", PATH(scratch),
     .help = "folder where .gz inputs are unpacked; empty: TMPDIR or /tmp"},
    {"backend", WORD(backend, "auto", "cpu", "cuda", "cuda+cpu"), .help = "where the fit runs",
     .more = "; auto: the CPU until `starmill bench crossover --keep` has measured the number of "
             "stars from which the GPU is faster; cuda: needs a build with CUDA and a GPU, else "
             "exit status 2; cuda+cpu: one rank per GPU, all others on the CPU, and column BACKEND "
             "records where a row was fitted"},
    {"log_level", WORD(log_level, "error", "warning", "info", "debug"),
     .elsewhere = "`--log_level`", .help = "lowest level of lines in the log"},
};

#define NAMED(member) offsetof(mill_named_value, member)
static const mill_field value_field[] = {
    {"param", MILL_FIELD_TEXT, NAMED(name), .needed = "param"},
    {"value", MILL_FIELD_REAL, NAMED(value), .usual = NAN, .needed = "value"},
    {0}};
static const mill_field prior_field[] = {
    {"param", MILL_FIELD_TEXT, NAMED(name), .needed = "param"},
    {"mean", MILL_FIELD_REAL, NAMED(value), .usual = NAN, .needed = "mean"},
    {"sigma", MILL_FIELD_REAL, NAMED(sigma), .usual = NAN, .needed = "sigma"},
    {0}};
#define LIST(member, n_member)                                                                     \
  offsetof(mill_config, member), offsetof(mill_config, n_member),                                  \
      sizeof((mill_config *)0)->member[0]
static const mill_items items[] = {
    {"arms", LIST(arm, n_arm), MILL_MAX_ARM, 1, "a list of names or of {name: NAME, ...}", "an arm",
     "NAME or {name: NAME, min: A, max: A, channel: NAME, resolving_power: R, fwhm: A, sampling: "
     "N}",
     mill_arm_field},
    {"fix_param", LIST(fixed, n_fixed), MILL_MAX_PAR, 0, "a list of items, one for each parameter",
     "an item", "{param: NAME, value: NUMBER}", value_field},
    {"priors", LIST(prior, n_prior), MILL_MAX_PAR, 0, "a list of items, one for each parameter",
     "an item", "{param: NAME, mean: NUMBER, sigma: NUMBER}", prior_field}};

const mill_items *mill_config_items(const mill_option *key)
{
  for (size_t i = 0; i < sizeof items / sizeof *items; i++)
    if (strcmp(items[i].key, key->name) == 0)
      return &items[i];
  return NULL;
}

const mill_option *mill_config_key_of(const char *name)
{
  for (int i = 0; i < MILL_N_KEY; i++)
    if (strcmp(mill_config_key[i].name, name) == 0)
      return &mill_config_key[i];
  return NULL;
}

int mill_config_set(mill_config *config, const char *key, const char *option, const char *text)
{
  const mill_option *row = mill_config_key_of(key);
  if (!row || row->kind == MILL_OPTION_OTHER)
    return MILL_BUG("no option sets the key %s", key);
  /* --resolving-power also overrides the widths of single arms */
  for (int i = 0; i < config->n_arm && strcmp(key, "resolving_power") == 0; i++)
    config->arm[i].resolving_power = config->arm[i].fwhm_aa = 0.0;
  return mill_option_read(row, option, text, config);
}

void mill_config_default(mill_config *config)
{
  /* also clears padding and ends of names, as memcmp compares copies */
  memset(config, 0, sizeof *config);
  mill_fit_settings *fit = &config->fit;
  fit->optimizer = MILL_OPT_HYBRID;
  fit->likelihood = MILL_LIKE_AUTO;
  fit->continuum = MILL_CONT_RBF;
  fit->n_cont = 10;
  fit->precision = MILL_FLOAT32;
  fit->resolution = MILL_RES_AUTO;
  fit->rotation = MILL_ROT_SPLINE;
  fit->model_error = 1;
  fit->element_max_err = 0.2;
  fit->velocity_offset_sigma_km_s = 10.0;
  fit->lsf_width_error = -INFINITY;
  config->lsf_factor = 1.0;
  fit->min_vel_km_s = -1000.0;
  fit->max_vel_km_s = 1000.0;
  fit->min_vsini_km_s = 0.0;
  fit->max_vsini_km_s = 500.0;
  fit->guess_vel_step_km_s = 60.0;
  fit->second_start_sn = 6.0;
  fit->max_starts = MILL_MAX_GUESS_START;
  fit->n_simplex_round = 40;
  fit->min_sn = -INFINITY;
  fit->max_eval = 4000;
  fit->edge_pix = 5;
  fit->sigma_floor = 0.3;
  fit->bad_sigma_factor = 1000.0;
  config->wave_mask_auto = 1;
  fit->n_wave_mask = 1; /* the dichroic of DESI */
  fit->wave_mask[0].min_aa = 4300.0;
  fit->wave_mask[0].max_aa = 4450.0;
  config->select.min_sn = -INFINITY;
  config->select.redrock_max_vel_km_s = 1500.0;
  /* fibres of restricted reach (bit 3) and variable fibres (bit 20) */
  config->select.fiberstatus_allowed = UINT64_C(1) << 3 | UINT64_C(1) << 20;
  strcpy(config->format, "auto");
  config->write_interval_s = 5.0;
  config->gzip_limit_mib = 4096.0;
  strcpy(config->backend, "auto");
  strcpy(config->log_level, "info");
}

void mill_config_clear(mill_config *config)
{
  if (!config)
    return;
  mill_star_list_free(config->select.star);
  config->select.star = NULL;
}
