/* SPDX-License-Identifier: BSD-3-Clause */
/** Stars fitted with the library of several that suits them: a pipeline for each.
 *
 *  A group of stars is copied and goes through the pipelines one after the other.  All libraries
 *  guess; a star is fitted with the one whose guess is best and with those that tie with it, and
 *  its row is that of the least mill_fit_result.excess, larger where the solution has HULL; the
 *  first of equal ones.  So a row depends on its star alone.  With one library this is its pipeline.
 */
#ifndef MILL_SEVERAL_H
#define MILL_SEVERAL_H

#include "src/pipeline/pipeline.h"

typedef struct mill_several mill_several;

/** Can a library be fitted along with the first?  It has the same arms, all of them with or without
 *  a resolution of its own, and no other labels.
 *
 *  label [other->n_label]  out  indices of its labels among the first's
 *
 *  MILL_ERR_CONFIG with what to do. */
int mill_several_match(const mill_library *first, const mill_library *other, int *label);

/** lib [n_lib] and settings, of the first library's parameters, are borrowed until destroy.  Rows
 *  have the first one's labels.  Else as mill_pipeline_create. */
int mill_several_create(const mill_library *lib, int n_lib, const mill_fit_settings *settings,
                        const mill_backend *backend, int n_slot, int n_thread, int want_models,
                        mill_several **out);
void mill_several_destroy(mill_several *several);

/** The first library's pipeline. */
mill_pipeline *mill_several_pipeline(const mill_several *several);

/** As mill_pipeline_run. */
int mill_several_run(mill_several *several, mill_star_source source, void *source_context,
                     mill_result_sink sink, void *sink_context);

/** Sums over the pipelines (see pipeline.h). */
void mill_several_memory(const mill_several *several, mill_pipeline_bytes *bytes);

/** Stars that are taken before any is finished. */
int mill_several_held(int n_lib, int n_slot);

#endif
