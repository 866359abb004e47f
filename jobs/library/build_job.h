/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared declarations of the steps of `starmill library build` (see library_build.c). */
#ifndef MILL_BUILD_JOB_H
#define MILL_BUILD_JOB_H

#include "io/files/lock_file.h"
#include "io/library/grid_file.h"
#include "io/library/model_source.h"
#include "jobs/library/labelled_options.h"
#include "src/config/arm_setup.h"
#include "src/libraries/arm_cut.h"
#include "src/ranks/mpi_context.h"

/** Of each arm of a model: none, its median, or the smooth median of ln flux. */
enum mill_build_normalise { MILL_BUILD_AS_IT_IS, MILL_BUILD_MEDIAN, MILL_BUILD_SMOOTH_MEDIAN };

typedef struct mill_build_options {
  const char *output, *setup, *name_pattern, *list, *exclude_list, *stop_file;
  int overwrite, retry_bad, help;
  mill_labelled_options in;
  int n_exclude; /**< ranges; length says to which --exclude each belongs, from 1 */
  mill_named exclude[MILL_MAX_NAMED];
  double native_sigma_aa, native_resolving_power; /**< NAN: not given */
  enum mill_build_normalise normalise;
  int n_thread;
} mill_build_options;

typedef struct mill_build_job {
  mill_mpi mpi;
  mill_build_options options;
  mill_lock lock;             /**< rank 0 */
  char target[MILL_MAX_PATH]; /**< --output, links followed */
  char output[MILL_MAX_PATH]; /**< what is written: target, or with --overwrite target.new */
  /* where models come from */
  const char *const *path;
  int n_path, n_listed, is_many;
  char **listed;   /**< of a folder, owned */
  char input[128]; /**< name of the folder or the first file, for people */
  mill_model_request request;
  mill_model_source *source;
  /* which models, and onto which arms */
  mill_grid_info info;
  int *index; /**< [info.n_model] of the source's models, owned */
  mill_arm_setup setup;
  double *sigma[MILL_MAX_ARM]; /**< [n_pix] of the spectra, A, where it varies; owned */
  mill_arm_cut *cut[MILL_MAX_ARM];
  mill_labelled_origin origin; /**< properties of the first model */
  char *settings;              /**< settings that runs which continue one another must share,
   *  owned */
  double start_s;
} mill_build_job;

/** Index all models: labels and names; the selected ones go into job->info with their known
 *  defects.  Collective; the same code on every rank. */
int mill_build_models(mill_build_job *job);

/** Of models with the same labels one is good: a good one where there is one already, else the
 * first; the others that are not bad become so. */
int mill_build_doubles(mill_grid_info *info);

/** Models still to do: read, cut and written, in rounds; may be stopped.  Collective; the same
 *  code on every rank. */
int mill_build_spectra(mill_build_job *job);

/** One model's arms: flux and, where the input has one, continuum, [n_arm] of [n_pix], both divided
 *  by the level of the flux.  MILL_ERR_INPUT says what is wrong with it. */
int mill_build_cut(mill_build_job *job, int model, float *const *flux, float *const *continuum);

#endif
