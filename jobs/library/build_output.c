/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/build_output.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"

enum { MAX_NAMED_BAD = 20 /* bad models that the summary names */ };

/* ---- settings ------------------------------------------------------------------------------- */

static void print_wavelengths(const mill_labelled_origin *origin, FILE *out)
{
  fprintf(out, "wavelengths: %s, %s (%s)%s\n", origin->wavelengths,
          origin->is_air ? "air" : "vacuum", origin->medium_key,
          origin->is_air ? ", converted to vacuum" : "");
}

/* Properties that distinguish it from another file of the same name. */
static int print_file(const char *what, const char *path, FILE *out)
{
  struct stat status;
  struct tm when;
  char text[32] = "";
  if (stat(path, &status) != 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: cannot be examined: %s", path, strerror(errno));
  if (gmtime_r(&status.st_mtime, &when))
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &when);
  fprintf(out, "%s: %s, %lld bytes of %s\n", what, path, (long long)status.st_size, text);
  return MILL_OK;
}

static int print_input(const mill_build_job *job, FILE *out)
{
  const mill_build_options *o = &job->options;
  const mill_labelled_request *in = &o->in.request;
  fprintf(out, "input: %s, %d models\n", job->input, mill_model_source_n(job->source));
  for (int l = 0; l < o->in.n_label; l++)
    fprintf(out, "label %s: %s\n", o->in.label[l].name, o->in.label[l].column);
  if (o->name_pattern)
    fprintf(out, "name pattern: %s\n", o->name_pattern);
  if (in->table)
    fprintf(out, "table: %s, names in %s\n", in->table, in->name_column);
  if (in->flux_column[0])
    fprintf(out, "columns: %s, %s %s\n", in->wave_column, in->flux_column, in->continuum_column);
  if (in->wave_file)
    MILL_CHECK(print_file("file of wavelengths", in->wave_file, out));
  print_wavelengths(&job->origin, out);
  if (!isnan(o->native_sigma_aa))
    fprintf(out, "native sigma: %.17g A\n", o->native_sigma_aa);
  else if (!isnan(o->native_resolving_power))
    fprintf(out, "native resolving power: %.17g\n", o->native_resolving_power);
  else
    fprintf(out, "native resolution: card FWHM, %.17g A\n", job->origin.fwhm_aa);
  return MILL_OK;
}

static void print_arm(const mill_build_job *job, int a, FILE *out)
{
  const mill_grid_arm *arm = &job->info.arm[a];
  fprintf(out, "arm %s: %d pixels, ln from %.17g by %.17g\n", arm->name, arm->n_pix, arm->ln_wave0,
          arm->ln_step);
  const mill_setup_arm *want = &job->setup.arm[a];
  static const char *const kind[] = {"as the input", "sigma", "resolving power"};
  fprintf(out, "arm %s: resolution %s%s", arm->name, kind[want->kind],
          want->at_instrument ? ", the instrument's" : "");
  for (int i = 0; i < want->n_point; i++)
    fprintf(out, want->n_point > 1 ? " %.17g at %.17g," : " %.17g", want->value[i],
            want->wave_aa[i]);
  fprintf(out, "\n");
}

int mill_build_settings(mill_build_job *job, const char *normalise)
{
  int err = MILL_OK;
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the settings");
  err = print_input(job, out);
  fprintf(out, "normalise: %s\n", normalise);
  for (int a = 0; a < job->info.n_arm; a++)
    print_arm(job, a, out);
  const int failed = ferror(out);
  if (fclose(out) != 0 || failed || size > 60000) /* the size of an attribute */
    MILL_FAIL(MILL_ERR_MEMORY, "the settings are too long");
  MILL_TRY(err);
  MILL_TRY(MILL_ALLOC(size + 1, &job->settings));
  memcpy(job->settings, text, size);
done:
  free(text); /* of the C library */
  err = mill_mpi_agree(&job->mpi, err);
  return err == MILL_OK ? mill_same_on_ranks(&job->mpi, "settings", job->settings) : err;
}

/* ---- the file ------------------------------------------------------------------------------- */

int mill_build_name_output(mill_build_job *job)
{
  const size_t room = sizeof job->target - sizeof MILL_NEW_END;
  MILL_CHECK(mill_resolve_links_for_all(&job->mpi, job->options.output, job->target, room));
  memcpy(job->output, job->target, strlen(job->target) + 1);
  if (job->options.overwrite)
    strcat(job->output, MILL_NEW_END);
  return MILL_OK;
}

static int compare_settings(const mill_build_job *job, mill_grid_file *file,
                            const mill_grid_info *there, const char *help)
{
  int err = MILL_OK;
  char *settings = NULL;
  const mill_grid_info *info = &job->info;
  MILL_TRY(mill_grid_read_settings(file, &settings));
  const char *a = settings, *b = job->settings;
  size_t n_a, n_b;
  mill_first_difference(&a, &n_a, &b, &n_b);
  if (n_a > 0 || n_b > 0)
    MILL_FAIL(MILL_ERR_CONFIG, "%s was begun with other settings ('%.*s', now '%.*s'): %s",
              job->output, (int)n_a, a, (int)n_b, b, help);
  if (there->n_model != info->n_model || there->n_arm != info->n_arm ||
      there->n_label != info->n_label)
    MILL_FAIL(MILL_ERR_CONFIG, "%s was begun with %d models, now there are %d: %s", job->output,
              there->n_model, info->n_model, help);
done:
  mill_free(settings);
  return err;
}

/* Is model i what it was when the file was begun?  A bad one may have been mended meanwhile. */
static int compare_model(const mill_build_job *job, const mill_grid_info *there, int i,
                         const char *help)
{
  int same = 1;
  const mill_grid_info *info = &job->info;
  const size_t n_label = (size_t)info->n_label, at = (size_t)i * n_label;
  if (strcmp(there->name[i], info->name[i]) != 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s was begun with other models (%s, now %s): %s",
                      job->output, there->name[i], info->name[i], help);
  if (there->status[i] == MILL_GRID_BAD)
    return MILL_OK;
  for (size_t l = 0; l < n_label; l++)
    same &= there->value[at + l] == info->value[at + l];
  if (!same && info->status[i] == MILL_GRID_BAD)
    return MILL_ERROR(MILL_ERR_INPUT, "%s was begun with %s, which cannot be used now: %s",
                      job->output, info->name[i], info->why[i]);
  if (!same)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s was begun with other labels of %s: %s", job->output,
                      info->name[i], help);
  if (there->stamp && info->stamp && there->stamp[i] && info->stamp[i] &&
      there->stamp[i] != info->stamp[i])
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "the file of %s has changed since %s was begun (size, modification time or contents): %s",
        info->name[i], job->output, help);
  return MILL_OK;
}

/* Does the existing file belong to this command? */
static int compare(const mill_build_job *job, mill_grid_file *file, const mill_grid_info *there)
{
  char help[256 + MILL_MAX_PATH];
  if (job->options.overwrite)
    snprintf(help, sizeof help, "give the same options and input to continue it, or remove %s",
             job->output);
  else
    snprintf(help, sizeof help,
             "give the same options and input to continue it, another name, or "
             "--overwrite to begin again");
  MILL_CHECK(compare_settings(job, file, there, help));
  for (int i = 0; i < there->n_model; i++)
    MILL_CHECK(compare_model(job, there, i, help));
  if (job->info.stamp && !there->stamp)
    mill_log_warning("%s does not record its input files: assuming they are unchanged",
                     job->output);
  return MILL_OK;
}

/* Find the models that are done.  With --retry-bad, bad models without a known defect are to be
 * done again. */
static int take_status(mill_build_job *job, const mill_grid_info *there, int *complete)
{
  int n_bad = 0, n_again = 0;
  mill_grid_info *info = &job->info;
  for (int i = 0; i < info->n_model; i++) {
    const int is_bad = there->status[i] == MILL_GRID_BAD;
    n_bad += is_bad;
    if (is_bad && job->options.retry_bad)
      continue;
    info->status[i] = there->status[i];
    memcpy(info->why[i], there->why[i], MILL_GRID_WHY);
  }
  *complete = there->complete;
  if (!job->options.retry_bad || n_bad == 0)
    return MILL_OK;
  MILL_CHECK(mill_build_doubles(info));
  for (int i = 0; i < info->n_model; i++)
    n_again += there->status[i] == MILL_GRID_BAD && info->status[i] == MILL_GRID_TO_DO;
  mill_log_info("%s: %d of %d bad models are read again", job->output, n_again, n_bad);
  if (n_again > 0) {
    MILL_CHECK(mill_grid_revise(job->output, info));
    *complete = 0;
  }
  return MILL_OK;
}

/* What is done already. */
static int continue_file(mill_build_job *job, int *complete)
{
  int err = MILL_OK;
  mill_grid_file *file = NULL;
  mill_grid_info there = {0};
  MILL_TRY(mill_grid_open(job->output, &file, &there));
  MILL_TRY(compare(job, file, &there));
  mill_grid_close(file); /* it may be written now */
  file = NULL;
  MILL_TRY(take_status(job, &there, complete));
  if (!*complete)
    mill_log_info("%s is continued", job->output);
done:
  mill_grid_close(file);
  mill_grid_info_clear(&there);
  return err;
}

static int begin_file(mill_build_job *job)
{
  const double *sigma[MILL_MAX_ARM];
  for (int a = 0; a < MILL_MAX_ARM; a++)
    sigma[a] = job->sigma[a];
  return mill_grid_create(job->output, &job->info, sigma, job->settings);
}

/* Only a grid file, or nothing, may be overwritten at path; *n_byte 0: nothing. */
static int look(const char *path, int64_t *n_byte)
{
  struct stat status;
  *n_byte = 0;
  if (stat(path, &status) != 0)
    return MILL_OK;
  MILL_CHECK(mill_refuse_foreign(path, "--output", "starmill grid"));
  if (!S_ISREG(status.st_mode))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: exists and is not a regular file", path);
  *n_byte = status.st_size;
  return MILL_OK;
}

static int open_output(mill_build_job *job, int *complete)
{
  int64_t n_byte = 0;
  MILL_CHECK(mill_lock_take(job->target, &job->lock));
  mill_lock_remove_leftovers(&job->lock, job->output);
  MILL_CHECK(look(job->target, &n_byte));
  MILL_CHECK(look(job->output, &n_byte));
  if (n_byte > 0)
    MILL_CHECK(continue_file(job, complete));
  else
    MILL_CHECK(begin_file(job));
  return MILL_OK;
}

int mill_build_output(mill_build_job *job, int *complete)
{
  int err = MILL_OK;
  if (job->mpi.rank == 0)
    err = open_output(job, complete);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_MPI(MPI_Bcast(complete, 1, MPI_INT, 0, job->mpi.comm));
  MILL_MPI(MPI_Bcast(job->info.status, job->info.n_model, MPI_UNSIGNED_CHAR, 0, job->mpi.comm));
done:
  return err;
}

/* ---- summary -------------------------------------------------------------------------------- */

static void print_labels(const mill_grid_info *info)
{
  const size_t n_label = (size_t)info->n_label;
  for (size_t l = 0; l < n_label; l++) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < info->n_model; i++)
      if (info->status[i] == MILL_GRID_GOOD) {
        low = fmin(low, info->value[(size_t)i * n_label + l]);
        high = fmax(high, info->value[(size_t)i * n_label + l]);
      }
    printf("label %s: %g to %g\n", info->label[l], low, high);
  }
}

static void print_arms(const mill_grid_info *info)
{
  for (int a = 0; a < info->n_arm; a++) {
    const mill_grid_arm *arm = &info->arm[a];
    printf("arm %s: %.2f to %.2f A, %d pixels of %.3f km/s, ", arm->name, exp(arm->ln_wave0),
           exp(arm->ln_wave0 + (arm->n_pix - 1) * arm->ln_step), arm->n_pix,
           MILL_C_KM_S * arm->ln_step);
    if (arm->template_sigma_aa < 0)
      printf("at the instrument's resolution (%s)\n", arm->sigma_origin);
    else
      printf("sigma %.4g A (%s)\n", arm->template_sigma_aa, arm->sigma_origin);
  }
}

static void print_bad(const mill_grid_info *info, int n_bad)
{
  int n_named = 0;
  for (int i = 0; i < info->n_model && n_named < MAX_NAMED_BAD; i++)
    if (info->status[i] == MILL_GRID_BAD && ++n_named)
      printf("  %s: %s\n", info->name[i], info->why[i]);
  if (n_bad > n_named)
    printf("  and %d more (dataset /models/why)\n", n_bad - n_named);
  if (n_bad > 0)
    printf("  (the same command with --retry-bad reads bad models again)\n");
}

/* Print arms, labels, and the outcome of the models. */
static void print_grid(const mill_grid_info *info)
{
  int n[3] = {0};
  for (int i = 0; i < info->n_model; i++)
    n[info->status[i]]++;
  print_arms(info);
  print_labels(info);
  printf("models: %d good, %d bad", n[MILL_GRID_GOOD], n[MILL_GRID_BAD]);
  if (n[MILL_GRID_TO_DO] > 0)
    printf(", %d still to do", n[MILL_GRID_TO_DO]);
  printf("\n");
  print_bad(info, n[MILL_GRID_BAD]);
}

int mill_build_print(const char *path)
{
  int err = MILL_OK;
  char *settings = NULL;
  mill_grid_file *file = NULL;
  mill_grid_info info = {0};
  MILL_TRY(mill_grid_open(path, &file, &info));
  MILL_TRY(mill_grid_read_settings(file, &settings));
  printf("%s: grid file, %s\n%s", path, info.complete ? "complete" : "not complete", settings);
  print_grid(&info);
done:
  mill_free(settings);
  mill_grid_close(file);
  mill_grid_info_clear(&info);
  return err;
}

/* With --overwrite the new file replaces the old one, if it has a good model. */
static int replace_old(const mill_build_job *job, const mill_grid_info *info, int n_bad)
{
  const char *kept = "";
  if (n_bad == info->n_model && job->options.overwrite) {
    unlink(job->output);
    kept = "; nothing was overwritten";
  }
  if (n_bad == info->n_model)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: no model is good; %s: %s%s", job->target, info->name[0],
                      info->why[0], kept);
  if (job->options.overwrite)
    MILL_CHECK(mill_ph5_rename(job->output, job->target));
  return MILL_OK;
}

int mill_build_finish(const mill_build_job *job, int was_complete, double wall_s)
{
  int err = MILL_OK, n_bad = 0;
  mill_grid_file *file = NULL;
  mill_grid_info info = {0};
  if (!was_complete)
    MILL_TRY(mill_grid_finish(job->output));
  MILL_TRY(mill_grid_open(job->output, &file, &info));
  mill_grid_close(file);
  for (int i = 0; i < info.n_model; i++)
    n_bad += info.status[i] == MILL_GRID_BAD;
  if (was_complete)
    printf("%s is complete already; nothing was done\n", job->output);
  print_wavelengths(&job->origin, stdout);
  print_grid(&info);
  MILL_TRY(replace_old(job, &info, n_bad));
  if (!was_complete)
    printf("%s: %.1f s, %d %s of %d %s\n", job->target, wall_s, job->mpi.size,
           job->mpi.size == 1 ? "rank" : "ranks", job->options.n_thread,
           job->options.n_thread == 1 ? "thread" : "threads");
done:
  mill_grid_info_clear(&info);
  return err;
}
