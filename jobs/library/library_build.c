/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library_build.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "jobs/library/build_job.h"
#include "jobs/library/build_output.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/library/name_pattern.h"
#include "src/run/stop_watch.h"
#include "jobs/library/library_rows.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"

/* ---- options -------------------------------------------------------------------------------- */

static const char *const normalise_words[] = {"none", "median", "smooth-median", NULL};

/* NAME=MIN:MAX,...: a model inside all of them is dropped. */
static int take_exclude(const mill_option *row, const char *text, void *base)
{
  mill_build_options *o = base;
  const int first = o->n_exclude;
  const double group = first > 0 ? o->exclude[first - 1].length + 1 : 1;
  MILL_CHECK(mill_take_named(row, text, base));
  for (int i = first; i < o->n_exclude; i++)
    o->exclude[i].length = group;
  return MILL_OK;
}

#define AT(member)             MILL_AT(mill_build_options, member)
#define OTHER(function, shown) MILL_OPTION_OTHER, .take = function, .argument = shown

const mill_option_table mill_library_build_table = {
    "starmill library build",
    "usage: starmill library build --output GRID.h5 --setup FILE.yaml [options] "
    "FOLDER|FILE.fits...\n"
    "\n"
    "build makes a grid file from spectra with labels: FITS files with one spectrum each (a folder "
    "or\n"
    "a list of files), or one file with an image of spectra and a table, or a cube whose axes are\n"
    "labels (docs/use/libraries.md).  All ranks of mpirun share the work; the same command "
    "continues\n"
    "what was interrupted.\n"
    "\n",
    NULL,
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, AT(output), .argument = "GRID.h5",
         .help = "the grid file to write, or to continue"},
        {"overwrite", MILL_OPTION_FLAG, AT(overwrite),
         .help = "start over in GRID.h5.new, which replaces GRID.h5 when it is complete; the same "
                 "command continues it"},
        {"retry-bad", MILL_OPTION_FLAG, AT(retry_bad),
         .help = "read the bad models of GRID.h5 again, e.g. after their files were repaired"},
        {"setup", MILL_OPTION_TEXT, AT(setup), .argument = "FILE.yaml",
         .help = "wavelengths, pixels and resolution of the arms (config/templates has those of "
                 "surveys)"},
        {"labels", OTHER(mill_take_labels, "NAME=COLUMN,..."), AT(in),
         .help =
             "labels, and the cards, columns, or axes of a cube (CTYPE) that hold them (default "
             "teff=TEFF,logg=LOGG,feh=FEH; PHOENIX: "
             "teff=PHXTEFF,logg=PHXLOGG,feh=PHXM_H,alpha=PHXALPHA)"},
        {"name-pattern", MILL_OPTION_TEXT, AT(name_pattern), .argument = "PATTERN",
         .help = "labels from the files' names: t{teff}g{logg}z{feh}.fits; * is anything, "
                 "{logg/10} a number ten times the label, p and m are signs"},
        {"table", MILL_OPTION_TEXT, AT(in.request.table), .argument = "FILE",
         .help = "table with the labels of files with one spectrum"},
        MILL_LABELLED_FILE_ROWS(mill_build_options, "WAVE,FLUX[,CONTINUUM]"),
        MILL_LABELLED_WAVE_ROWS(mill_build_options),
        {"medium", OTHER(mill_take_medium, "NAME"), AT(in),
         .help = "medium of the wavelengths, air or vacuum; needed unless a header gives it"},
        {"keep", OTHER(mill_take_named, "NAME=MIN:MAX,..."), AT(in.keep),
         .offset2 = offsetof(mill_build_options, in.n_keep),
         .help = "only models with labels in these ranges, ends included"},
        {"exclude", OTHER(take_exclude, "NAME=MIN:MAX,..."), AT(exclude),
         .offset2 = offsetof(mill_build_options, n_exclude),
         .help = "drop models inside all of these ranges; may be repeated"},
        {"list", MILL_OPTION_TEXT, AT(list), .argument = "FILE",
         .help = "only models named in this text file, one per line (file name without .fits, or "
                 "\"row 7\")"},
        {"exclude-list", MILL_OPTION_TEXT, AT(exclude_list), .argument = "FILE",
         .help = "drop models named in this text file"},
        {"native-sigma", MILL_OPTION_REAL, AT(native_sigma_aa), .max = 1e4, .argument = "A",
         .help = "resolution of the input as a Gaussian sigma in Angstrom; 0: negligible (default: "
                 "card FWHM)"},
        {"native-resolving-power", MILL_OPTION_REAL, AT(native_resolving_power),
         .min = MILL_ABOVE_0, .max = DBL_MAX, .argument = "R",
         .help = "the same, as wavelength over FWHM"},
        {"normalise", MILL_OPTION_CHOICE, AT(normalise), .words = normalise_words,
         .help = "divide each arm of a model by its median, its smooth median or nothing (default "
                 "smooth-median)"},
        {"stop-file", MILL_OPTION_TEXT, AT(stop_file), .argument = "FILE",
         .help = "stop in good order, with exit status 75, when this file appears"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 1, .max = 4096,
         .help = "threads per rank (default: all cores available to it)"},
        MILL_OPTION_HELP(mill_build_options),
        {0}}};

static int check_options(const mill_build_options *o, const unsigned char *given, int n_path)
{
  const mill_labelled_request *in = &o->in.request;
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "library build needs --output GRID.h5");
  if (n_path == 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "library build needs spectra: a folder, files of one spectrum each, "
                      "or one file of many");
  if (!o->setup)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "library build needs --setup FILE.yaml with the arms: see config/templates");
  if (o->overwrite && o->retry_bad)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--overwrite and --retry-bad exclude each other: a new grid has no "
                      "bad models yet");
  MILL_CHECK(mill_labelled_check_options(&mill_library_build_table, given, &o->in));
  if (o->name_pattern && in->table)
    return MILL_ERROR(MILL_ERR_USAGE, "--name-pattern and --table exclude each other");
  if (!isnan(o->native_sigma_aa) && !isnan(o->native_resolving_power))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--native-sigma and --native-resolving-power exclude each other");
  return mill_thread_check_number(o->n_thread);
}

static int parse(int argc, char **argv, mill_build_job *job)
{
  int first = 0;
  unsigned char given[MILL_OPTION_MAX] = {0};
  mill_build_options *o = &job->options;
  o->native_sigma_aa = o->native_resolving_power = NAN;
  o->normalise = MILL_BUILD_SMOOTH_MEDIAN;
  o->in.request.limits.gzip_limit_mib = MILL_GZIP_LIMIT_MIB;
  snprintf(o->in.request.name_column, sizeof o->in.request.name_column, "FILE");
  MILL_CHECK(mill_option_parse(&mill_library_build_table, argc, argv, o, given, &first));
  if (o->help)
    return MILL_OK;
  job->path = (const char *const *)argv + first;
  job->n_path = argc - first;
  MILL_CHECK(check_options(o, given, job->n_path));
  if (o->in.n_label == 0)
    MILL_CHECK(mill_labelled_default_labels(&o->in));
  return MILL_OK;
}

/* ---- input ---------------------------------------------------------------------------------- */

/* A folder's files, one file of many spectra, or files of one. */
static int list_input(mill_build_job *job)
{
  const mill_labelled_request *in = &job->options.in.request;
  mill_last_of_path(job->path[0], job->input, sizeof job->input);
  if (job->n_path == 1)
    MILL_CHECK(mill_labelled_files_list(job->path[0], &job->listed, &job->n_listed));
  if (job->listed) {
    job->path = (const char *const *)job->listed;
    job->n_path = job->n_listed;
  }
  job->is_many = job->n_path == 1 && !job->listed;
  if (job->is_many && (in->table || in->flux_column[0] || job->options.name_pattern))
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--table, --columns and --name-pattern are for files with one spectrum; %s is not a "
        "folder",
        job->path[0]);
  return MILL_OK;
}

/* The ranks see the same files; a folder may look otherwise on another node. */
static int compare_input(const mill_build_job *job)
{
  int err = MILL_OK;
  char *text = NULL;
  size_t n = 1, at = 0;
  for (int i = 0; i < job->n_path; i++)
    n += strlen(job->path[i]) + 1;
  err = MILL_ALLOC(n, &text);
  for (int i = 0; i < job->n_path && err == MILL_OK; i++)
    at += (size_t)sprintf(text + at, "%s\n", job->path[i]);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_TRY(mill_same_on_ranks(&job->mpi, "input files", text));
done:
  mill_free(text);
  return err;
}

static int bind_labels(mill_build_job *job)
{
  const mill_build_options *o = &job->options;
  mill_model_request *request = &job->request;
  request->labelled = o->in.request;
  request->labelled.n_label = job->info.n_label = o->in.n_label;
  for (int l = 0; l < o->in.n_label; l++) {
    memcpy(request->labelled.column[l], o->in.label[l].column, MILL_MAX_NAME);
    memcpy(request->label[l], o->in.label[l].name, MILL_MAX_NAME);
    memcpy(job->info.label[l], o->in.label[l].name, MILL_MAX_NAME);
  }
  request->name_pattern = o->name_pattern;
  if (o->name_pattern)
    MILL_CHECK(mill_name_pattern_check(o->name_pattern, o->in.n_label,
                                       (const char(*)[MILL_MAX_NAME])request->label));
  return MILL_OK;
}

static int check_roles(const mill_build_job *job)
{
  const mill_build_options *o = &job->options;
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_refuse_new(job->target, "output"));
  MILL_CHECK(mill_file_roles_read(&roles, "--setup", o->setup));
  MILL_CHECK(mill_file_roles_read(&roles, "--table", o->in.request.table));
  MILL_CHECK(mill_file_roles_read(&roles, "--wave-file", o->in.request.wave_file));
  MILL_CHECK(mill_file_roles_read(&roles, "--list", o->list));
  MILL_CHECK(mill_file_roles_read(&roles, "--exclude-list", o->exclude_list));
  MILL_CHECK(mill_file_roles_read(&roles, "--stop-file", o->stop_file));
  for (int i = 0; i < job->n_path; i++)
    MILL_CHECK(mill_file_roles_read(&roles, "the input", job->path[i]));
  if (o->stop_file)
    MILL_CHECK(mill_stop_file_absent(o->stop_file));
  return MILL_OK;
}

static int open_files(mill_build_job *job)
{
  int err = bind_labels(job);
  if (err == MILL_OK)
    err = mill_arm_setup_read(job->options.setup, &job->setup);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_TRY(compare_input(job));
  err = mill_model_source_open(&job->request, job->path, job->n_path, job->is_many, &job->source);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
done:
  return err;
}

/* ---- arms ----------------------------------------------------------------------------------- */

/* Gaussian sigma of the input at a wavelength. */
static double native_sigma(const mill_build_options *o, double fwhm_aa, double wave_aa)
{
  if (!isnan(o->native_sigma_aa))
    return o->native_sigma_aa;
  if (!isnan(o->native_resolving_power))
    return wave_aa / (MILL_FWHM_PER_SIGMA * o->native_resolving_power);
  return fwhm_aa / MILL_FWHM_PER_SIGMA;
}

/* Resolution of an arm's spectra, sigma [n_pix], and the convolution that makes it, kernel [n_pix].
 */
static int arm_resolution(const mill_build_options *o, double fwhm_aa, const mill_setup_arm *want,
                          const mill_grid_arm *arm, double *sigma, double *kernel)
{
  for (int i = 0; i < arm->n_pix; i++) {
    const double wave_aa = exp(arm->ln_wave0 + i * arm->ln_step);
    const double native = native_sigma(o, fwhm_aa, wave_aa);
    sigma[i] = want->kind == MILL_SETUP_NATIVE ? native : mill_setup_arm_sigma(want, wave_aa);
    if (sigma[i] < native * (1 - 1e-9))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s: arm %s asks for sigma %.4g A at %.6g A, but the input has %.4g A "
                        "there: give a larger sigma, or sharper spectra",
                        o->setup, arm->name, sigma[i], wave_aa, native);
    kernel[i] = sqrt(fmax(0, sigma[i] * sigma[i] - native * native));
  }
  if (sigma[arm->n_pix / 2] >
      MILL_MAX_SIGMA_WIDTH * exp(arm->ln_wave0) * expm1(arm->n_pix * arm->ln_step))
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: arm %s is too narrow for sigma %.4g A", o->setup,
                      arm->name, sigma[arm->n_pix / 2]);
  return MILL_OK;
}

static int frame_arm(mill_build_job *job, int a)
{
  int err = MILL_OK, varies = 0;
  double *kernel = NULL, *sigma = NULL;
  const mill_setup_arm *want = &job->setup.arm[a];
  mill_grid_arm *arm = &job->info.arm[a];
  memcpy(arm->name, want->name, sizeof arm->name);
  arm->n_pix = mill_setup_arm_n_pix(want);
  arm->ln_wave0 = log(want->min_aa);
  arm->ln_step = want->ln_step;
  arm->has_continuum = job->options.in.request.continuum_column[0] != '\0';
  MILL_TRY(MILL_ALLOC(arm->n_pix, &sigma));
  MILL_TRY(MILL_ALLOC(arm->n_pix, &kernel));
  MILL_TRY(arm_resolution(&job->options, job->origin.fwhm_aa, want, arm, sigma, kernel));
  MILL_TRY(mill_arm_cut_create(arm->n_pix, arm->ln_wave0, arm->ln_step, kernel, &job->cut[a]));
  for (int i = 1; i < arm->n_pix; i++)
    varies |= fabs(sigma[i] - sigma[0]) > 1e-9 * sigma[0];
  const double middle = sigma[arm->n_pix / 2];
  arm->template_sigma_aa = want->at_instrument ? -1 : middle;
  if (want->at_instrument)
    snprintf(arm->sigma_origin, sizeof arm->sigma_origin,
             "at_instrument: convolved to the instrument's resolution");
  else
    snprintf(arm->sigma_origin, sizeof arm->sigma_origin, "%s%s",
             want->kind == MILL_SETUP_NATIVE  ? "as the input"
             : want->kind == MILL_SETUP_SIGMA ? "convolved to this sigma"
                                              : "convolved to a resolving power",
             varies ? "; that of the middle of the arm, it varies" : "");
  if (varies) {
    job->sigma[a] = sigma;
    sigma = NULL;
  }
done:
  MILL_FREE(sigma, kernel);
  return err;
}

/* Properties of the first readable one of three models, above all its card FWHM. */
static int find_origin(mill_build_job *job)
{
  int err = MILL_OK, n_tried = 0;
  mill_error_kept kept = {.code = MILL_OK};
  for (int i = 0; i < job->info.n_model && n_tried < 3; i++) {
    mill_model_spectrum spectrum = {0};
    if (job->info.status[i] != MILL_GRID_TO_DO)
      continue;
    err = mill_model_source_read(job->source, job->index[i], &spectrum);
    mill_model_spectrum_clear(&spectrum);
    if (err != MILL_ERR_INPUT)
      break;
    if (n_tried++ == 0)
      mill_error_save(err, &kept);
  }
  if (err == MILL_ERR_INPUT)
    return mill_error_restore(&kept);
  MILL_TRY(err);
  job->origin = *mill_model_source_origin(job->source);
  const mill_build_options *o = &job->options;
  if (isnan(o->native_sigma_aa) && isnan(o->native_resolving_power) && !(job->origin.fwhm_aa > 0))
    MILL_FAIL(MILL_ERR_USAGE,
              "%s does not give its resolution (no card FWHM); give --native-sigma A or "
              "--native-resolving-power R",
              job->path[0]);
done:
  return err;
}

/* Report settings that no model can satisfy before a file is made. */
static int try_models(mill_build_job *job)
{
  int err = MILL_OK, n_tried = 0;
  float *flux[MILL_MAX_ARM] = {NULL}, *continuum[MILL_MAX_ARM] = {NULL};
  mill_error_kept kept = {.code = MILL_OK};
  for (int a = 0; a < job->info.n_arm; a++) {
    MILL_TRY(MILL_ALLOC(job->info.arm[a].n_pix, &flux[a]));
    MILL_TRY(MILL_ALLOC(job->info.arm[a].n_pix, &continuum[a]));
  }
  for (int i = 0; i < job->info.n_model && n_tried < 3; i++) {
    if (job->info.status[i] != MILL_GRID_TO_DO)
      continue;
    err = mill_build_cut(job, i, flux, continuum);
    if (err != MILL_ERR_INPUT)
      break;
    if (n_tried++ == 0)
      mill_error_save(MILL_ERROR(err, "%s: %s", job->info.name[i], mill_error_message()), &kept);
  }
  if (err == MILL_ERR_INPUT)
    err = mill_error_restore(&kept);
done:
  for (int a = 0; a < job->info.n_arm; a++)
    MILL_FREE(flux[a], continuum[a]);
  return err;
}

static int frame_arms(mill_build_job *job)
{
  int err = MILL_OK;
  if (job->mpi.rank == 0)
    err = find_origin(job);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_MPI(MPI_Bcast(&job->origin, (int)sizeof job->origin, MPI_BYTE, 0, job->mpi.comm));
  job->info.n_arm = job->setup.n_arm;
  for (int a = 0; a < job->info.n_arm && err == MILL_OK; a++)
    err = frame_arm(job, a);
  if (err == MILL_OK && job->mpi.rank == 0)
    err = try_models(job);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
done:
  return err;
}

/* ---- job ------------------------------------------------------------------------------------ */

static int set_up(mill_build_job *job)
{
  int err = MILL_OK;
  MILL_TRY(mill_job_begin(&job->mpi));
  MILL_TRY(mill_build_name_output(job));
  if (job->options.n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &job->options.n_thread));
  err = list_input(job);
  if (err == MILL_OK && job->mpi.rank == 0)
    err = check_roles(job);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_TRY(open_files(job));
  MILL_TRY(mill_build_models(job));
  MILL_TRY(frame_arms(job));
done:
  return err;
}

static int run(mill_build_job *job)
{
  int err = MILL_OK, complete = 0;
  const double start_s = mill_wall_s();
  MILL_TRY(set_up(job));
  MILL_TRY(mill_build_settings(job, normalise_words[job->options.normalise]));
  MILL_TRY(mill_build_output(job, &complete));
  if (!complete)
    MILL_TRY(mill_build_spectra(job));
  if (job->mpi.rank == 0)
    err = mill_build_finish(job, complete, mill_wall_s() - start_s);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
done:
  return err;
}

static void clear(mill_build_job *job)
{
  mill_model_source_close(job->source);
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    mill_arm_cut_destroy(job->cut[a]);
    mill_free(job->sigma[a]);
  }
  mill_grid_info_clear(&job->info);
  mill_labelled_files_free(job->listed, job->n_listed);
  MILL_FREE(job->index, job->settings);
  mill_lock_release(&job->lock);
}

int mill_job_library_build(int argc, char **argv)
{
  mill_mpi mpi;
  mill_build_job *job = NULL;
  int err = mill_mpi_dup(MPI_COMM_WORLD, &mpi);
  if (err == MILL_OK)
    err = mill_mpi_agree(&mpi, MILL_ALLOC(1, &job));
  if (err == MILL_OK) {
    job->mpi = mpi;
    err = mill_mpi_agree(&mpi, parse(argc, argv, job));
  }
  if (err == MILL_OK && job->options.help) {
    if (mpi.rank == 0)
      mill_option_print_help(&mill_library_build_table, NULL, stdout);
  } else if (err == MILL_OK) {
    err = run(job);
  }
  const int status = mill_mpi_tell(&mpi, "starmill library", err);
  mill_log_close();
  if (job)
    clear(job);
  mill_free(job);
  mill_ph5_leave_if_broken(&mpi, err, status);
  if (mpi.comm != MPI_COMM_NULL)
    MPI_Comm_free(&mpi.comm);
  fflush(stdout);
  return status;
}
