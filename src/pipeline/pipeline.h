/* SPDX-License-Identifier: BSD-3-Clause */
/** The fit pipeline: stars in, rows out, through slots and rounds.
 *
 *  Written once over the backend table (kernels/backend.h).  Free slots are
 *  filled from a source, all slots advance in rounds, finished stars leave
 *  through a sink and their slots take the next star.  A star's result does
 *  not depend on the number of slots, threads or its neighbours.
 */
#ifndef MILL_PIPELINE_H
#define MILL_PIPELINE_H

#include "kernels/backend.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"
#include "kernels/data/settings.h"
#include "kernels/data/star.h"
#include "src/pipeline/slots.h"

typedef struct mill_pipeline mill_pipeline;

/** Give the next star: 1 and *star, 0 at the end, or -code on failure.  The pipeline has *star
 *  until it gives it to the sink, or the run fails; arrays of pixels, unless they stay, and start
 *  until the next call (or the end of the run): from then on its slot has a copy. */
typedef int (*mill_star_source)(void *context, mill_star **star);

/** For a source: wait until the pixels that stay of the stars that it gave before the last call of
 *  this may change.  MILL_ERR_BACKEND. */
int mill_pipeline_settle(mill_pipeline *pipeline);

/** Take a star that is finished, with its result and model; MILL_OK or a code, which ends the
 *  run. */
typedef int (*mill_result_sink)(void *context, mill_star *star);

/** lib and settings are borrowed until destroy; n_slot >= 1 stars at once,
 *  n_thread >= 1 OpenMP threads, want_models: enum mill_want_models.
 *  MILL_ERR_RANGE, MILL_ERR_MEMORY, MILL_ERR_BACKEND.  Not collective. */
int mill_pipeline_create(const mill_library *lib, const mill_fit_settings *settings,
                         const mill_backend *backend, int n_slot, int n_thread, int want_models,
                         mill_pipeline **out);

/** The same for stars that are fitted with the library of n_lib that suits them
 *  (src/pipeline/several.h).  settings and rows have the first library's labels.
 *  MILL_ERR_CONFIG as of mill_several_match.  A star cannot be held. */
int mill_pipeline_create_several(const mill_library *lib, int n_lib,
                                 const mill_fit_settings *settings, const mill_backend *backend,
                                 int n_slot, int n_thread, int want_models, mill_pipeline **out);
void mill_pipeline_destroy(mill_pipeline *pipeline);

/** Can a segment's wavelengths be fitted?  A source leaves out the segments that cannot: a star
 *  with one ends the run.
 *
 *  Makes their wavelength set, which stays at least until the star that the source is preparing is
 *  in its slot.  Known wavelengths take microseconds, new ones about a millisecond of CPU for each
 *  MB of the set.
 *
 *  MILL_ERR_RANGE, with the reason, for wavelengths that are not ascending, not finite, too few, or
 *  that the velocity limits carry off the arm's templates.  MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_pipeline_accepts(mill_pipeline *pipeline, const mill_raw_segment *segment);

/** Limit of the memory for wavelength sets, bytes, instead of MILL_WAVESET_CACHE_BYTES;
 *  0 keeps only the sets of the stars under way. */
void mill_pipeline_waveset_limit(mill_pipeline *pipeline, size_t bytes);
void mill_pipeline_waveset_stats(const mill_pipeline *pipeline, mill_waveset_stats *stats);

/** Other fixed parameters and priors, those of settings, for the stars that come next.  Not while
 *  mill_pipeline_run is under way.  MILL_ERR_RANGE. */
int mill_pipeline_constrain(mill_pipeline *pipeline, const mill_fit_settings *settings);

/** Load and prepare a star that stays to be evaluated, until the next call of this function,
 *  mill_pipeline_evaluate, mill_pipeline_run or mill_pipeline_drop.
 *
 *  prepared  out  S/N, counts and status after preparation; only a star that is NOT_DONE can be
 *                 asked for anything
 *
 *  Errors as of mill_pipeline_run. */
int mill_pipeline_hold(mill_pipeline *pipeline, const mill_star *star, mill_fit_result *prepared);
void mill_pipeline_drop(mill_pipeline *pipeline);

/** Likelihood of a star at a point, and what a question for more has answered. */
typedef struct mill_evaluation {
  double f, grad[MILL_MAX_PAR], hess[MILL_MAX_PAR * MILL_MAX_PAR]; /**< as in mill_eval */
  double chisq[MILL_MAX_ARM], chisq_c[MILL_MAX_ARM]; /**< of models, and of a constant template */
  double negative; /**< squared significance of negative model pixels */
} mill_evaluation;

/** Evaluate the held star.
 *
 *  request              MILL_REQ_VALUES, _TANGENTS or _MODELS
 *  fix_error            1, with _TANGENTS: fixes the model error at the first point
 *  theta [n_point][n_par]  in   as of the fit: VRAD, VSINI, labels, velocity offsets
 *  eval [n_point]          out  f, gradient and curvature without hull penalty and priors
 *  penalty [n_point]       out  these
 */
int mill_pipeline_ask(mill_pipeline *pipeline, int request, int fix_error, int n_point,
                      const double *theta, mill_evaluation *eval, double *penalty);

/** Fetch the models of the held star's last MILL_REQ_MODELS, of a pipeline that was created with
 *  want_models; then give that of a segment, which lasts until the next call that fetches any. */
int mill_pipeline_models(mill_pipeline *pipeline);
void mill_pipeline_model(const mill_pipeline *pipeline, int i_segment, mill_segment_model *model);

/** Starts that the initial guess gives for the held star, the best first, n_most at most; how many.
 *  theta [n_most][n_par] and chisq [n_most] out, of which only differences have a meaning. */
int mill_pipeline_guesses(const mill_pipeline *pipeline, int n_most, double *theta, double *chisq);

/** Evaluate a star at given points instead of fitting it, for tests and checks.
 *
 *  request        MILL_REQ_VALUES, _TANGENTS or _MODELS
 *  theta [n_point][n_label + 2]  in   VRAD, VSINI, labels
 *  eval [n_point]                out  f with hull penalty and priors; gradient and
 *                                     curvature without them
 *  prepared                      out  S/N, counts and status after preparation;
 *                                     eval is untouched unless NOT_DONE
 *  Not while mill_pipeline_run is under way. */
int mill_pipeline_evaluate(mill_pipeline *pipeline, const mill_star *star, int request, int n_point,
                           const double *theta, mill_evaluation *eval, mill_fit_result *prepared);

/** Fit until the source ends.  Rows leave in the order in which they finish.  Source and sink are
 *  called by any of the pipeline's threads, one at a time.  With posteriors a wish to stop
 *  (src/system/stop_signal.h) ends it between rounds, without the stars under way. */
int mill_pipeline_run(mill_pipeline *pipeline, mill_star_source source, void *source_context,
                      mill_result_sink sink, void *sink_context);

/** Times by stage since the pipeline was created, over all threads; zeros with a backend that does
 *  not measure them (CUDA).  Not while mill_pipeline_run is under way. */
void mill_pipeline_timing(const mill_pipeline *pipeline, mill_timing *total);

/** Bytes of the backend's memory: the model (emulator, hulls), the slots with their stars, and
 *  the sets of wavelengths.  Between runs, or from a source or sink. */
typedef struct mill_pipeline_bytes {
  size_t model, slots, wavesets;
} mill_pipeline_bytes;
void mill_pipeline_memory(const mill_pipeline *pipeline, mill_pipeline_bytes *bytes);

/** Slots that take stars: the requested number, or fewer if memory was full. */
int mill_pipeline_slots(const mill_pipeline *pipeline);

/** CPU seconds that copying stars into slots has taken. */
double mill_pipeline_load_s(const mill_pipeline *pipeline);

#endif
