/* SPDX-License-Identifier: BSD-3-Clause */
/** The fit pipeline: stars in, rows out, on any backend (kernels/backend.h).
 *
 *  Free slots take stars from a source; the stars of all slots advance in rounds; a finished star
 *  goes to a sink, and its slot takes the next star.  A star's row does not depend on the number of
 *  slots or threads, nor on the stars fitted at the same time. */
#pragma once

#include "kernels/base/memory.h"
#include "src/pipeline/slots.h"

typedef struct mill_pipeline mill_pipeline;

/** Give the next star: returns 1 and *star, 0 at the end, -code on failure.
 *
 *  *star must stay valid until the sink gets it or the run ends.  A slot copies star->start and,
 *  unless star->stays, the pixels; the source may change these in its next call. */
typedef int (*mill_star_source)(void *context, mill_star **star);

/** Wait until all pixels are copied that the source gave before the previous call of this function.
 *  The source may then overwrite these pixels, even of a star with star->stays.  It must not yet
 *  overwrite pixels given since that call.  MILL_ERR_BACKEND. */
int mill_pipeline_settle(mill_pipeline *pipeline);

/** Take a finished star with its result and models.  A code other than MILL_OK ends the run. */
typedef int (*mill_result_sink)(void *context, mill_star *star);

/** Create a pipeline.
 *
 *  lib [n_lib]    borrowed until destroy, as are the settings
 *  n_slot         stars at once, 1 or more
 *  n_thread       OpenMP threads, 1 or more
 *  want_models    enum mill_want_models
 *
 *  With several libraries (src/pipeline/several.h) settings and rows have the first library's
 *  labels, and mill_pipeline_hold must not be called.  MILL_ERR_CONFIG (also from
 *  mill_several_match), MILL_ERR_LIBRARY, MILL_ERR_MEMORY, MILL_ERR_BACKEND.  Not collective. */
int mill_pipeline_create(const mill_library *lib, int n_lib, const mill_fit_settings *settings,
                         const mill_backend *backend, int n_slot, int n_thread, int want_models,
                         mill_pipeline **out);
void mill_pipeline_destroy(mill_pipeline *pipeline);
MILL_CLOSER(mill_pipeline, mill_pipeline_destroy)

/** Begin a star.  Wavelength sets of earlier stars may be freed from now on, except the sets that a
 *  slot holds.  mill_pipeline_hold and mill_pipeline_run call this function themselves. */
void mill_pipeline_begin_star(mill_pipeline *pipeline);

/** Can a segment's wavelengths be fitted?  If not, the source must leave the segment out.
 *
 *  Makes the segment's wavelength set, which stays until the star is in its slot.  Takes
 *  microseconds for known wavelengths, else about 1 ms of CPU for each MB of the set.
 *
 *  MILL_ERR_RANGE, with the reason, for wavelengths that are not ascending, not finite, too few, or
 *  outside the arm's templates at the velocity limits.  MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_pipeline_accepts(mill_pipeline *pipeline, const mill_raw_segment *segment);

void mill_pipeline_waveset_stats(const mill_pipeline *pipeline, mill_waveset_stats *stats);

/** Take over fixed parameters and priors of settings, for the next stars.  Do not call it during
 *  mill_pipeline_run.  MILL_ERR_CONFIG. */
int mill_pipeline_constrain(mill_pipeline *pipeline, const mill_fit_settings *settings);

/** Load and prepare a star for mill_pipeline_ask.  It is held until the next call of this function,
 *  mill_pipeline_run or mill_pipeline_drop.
 *
 *  prepared  out  S/N, counts and status after preparation; if the status is not NOT_DONE, the star
 *                 cannot be evaluated
 *
 *  Fails as mill_pipeline_run does. */
int mill_pipeline_hold(mill_pipeline *pipeline, const mill_star *star, mill_fit_result *prepared);
void mill_pipeline_drop(mill_pipeline *pipeline);

/** A star's likelihood at a point; also derivatives with _TANGENTS, chi-squares with _MODELS. */
typedef struct mill_evaluation {
  double f, grad[MILL_MAX_PAR], hess[MILL_MAX_PAR * MILL_MAX_PAR]; /**< as in mill_eval */
  double chisq[MILL_MAX_ARM];                                      /**< chi-square of the model */
  double chisq_c[MILL_MAX_ARM]; /**< chi-square of the continuum with a constant template */
  double negative;              /**< squared significance of negative model pixels */
} mill_evaluation;

/** Evaluate the held star.
 *
 *  request                 MILL_REQ_VALUES, _TANGENTS or _MODELS
 *  fix_error               1, with _TANGENTS: fix the model error at the first point
 *  theta [n_point][n_par]  in   parameters of a fit: VRAD, VSINI, labels, velocity offsets
 *  eval [n_point]          out  F, derivatives, chi-squares; without hull penalty and priors
 *  penalty [n_point]       out  hull penalty and priors, to be added to eval.f */
int mill_pipeline_ask(mill_pipeline *pipeline, int request, int fix_error, int n_point,
                      const double *theta, mill_evaluation *eval, double *penalty);

/** Fetch the models that MILL_REQ_MODELS computed for the held star; needs want_models.
 *  mill_pipeline_model then gives a segment's model, valid until the next fetch. */
int mill_pipeline_models(mill_pipeline *pipeline);
void mill_pipeline_model(const mill_pipeline *pipeline, int i_segment, mill_segment_model *model);

/** Get which pixels of segment i_segment of the held star count in the likelihood.  good [n_pix]
 *  out: 1 if the pixel counts, else 0.  MILL_ERR_BACKEND. */
int mill_pipeline_good(const mill_pipeline *pipeline, int i_segment, unsigned char *good);

/** Get the candidate starts that the initial guess found for the held star, the best first, at most
 *  n_most; returns their number.  theta [n_most][n_par] out; chisq [n_most] out: chi-square less a
 *  constant, the same for all starts. */
int mill_pipeline_guesses(const mill_pipeline *pipeline, int n_most, double *theta, double *chisq);

/** Fit until the source ends.  Rows go to the sink in the order in which they finish.  Source and
 *  sink are called by any of the pipeline's threads, one at a time.  When posteriors are sampled, a
 *  request to stop (src/system/stop_signal.h) ends the run between rounds and drops its stars. */
int mill_pipeline_run(mill_pipeline *pipeline, mill_star_source source, void *source_context,
                      mill_result_sink sink, void *sink_context);

/** Get the times by stage since the pipeline was created, summed over threads; zeros on backends
 *  that do not measure them (CUDA).  Do not call it during mill_pipeline_run. */
void mill_pipeline_timing(const mill_pipeline *pipeline, mill_timing *total);

/** Bytes of backend memory: model (emulator, hulls), slots with their stars, wavelength sets. */
typedef struct mill_pipeline_bytes {
  size_t model, slots, wavesets;
} mill_pipeline_bytes;

/** Get the bytes of backend memory.  Call this between runs, or from a source or sink. */
void mill_pipeline_memory(const mill_pipeline *pipeline, mill_pipeline_bytes *bytes);

/** CPU seconds that copying stars into slots has taken. */
double mill_pipeline_load_s(const mill_pipeline *pipeline);
