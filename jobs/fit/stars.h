/* SPDX-License-Identifier: BSD-3-Clause */
/** Stars from the reader, prepared for the pipeline. */
#pragma once

#include "io/stars/reader.h"
#include "jobs/fit/complaints.h"
#include "jobs/fit/steps.h"
#include "src/pipeline/pipeline.h"

typedef struct mill_stars {
  const mill_fit_task *task;
  mill_fit_settings fit; /**< fit settings for the pipeline */
  mill_reader *reader;
  mill_pipeline *pipeline; /**< NULL until the caller has created it */
  mill_complaints complaints;
  mill_batch *batch;  /**< batch whose stars are being taken; NULL: none */
  mill_batch *before; /**< previous batch, whose pixels may still be uploading; NULL: none */
  int i_row;          /**< index of the batch's next row */
  int stops;          /**< above 0: the reason to stop is logged */
} mill_stars;

/** Start the reader.  MILL_ERR_MEMORY, MILL_ERR_INTERNAL. */
int mill_stars_begin(const mill_fit_task *task, mill_stars *stars);

/** Set *star to the next star that can be fitted; write the rows of the skipped stars.  *star NULL:
 *  no more stars, or a reason to stop.  The caller calls mill_reader_release_star. */
int mill_stars_next(mill_stars *stars, mill_star **star);

/** Report the memory of pipeline and reader to the status board. */
void mill_stars_note_memory(const mill_stars *stars);

void mill_stars_end(mill_stars *stars);
