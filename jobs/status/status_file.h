/** The text of a status file, and what is read from one. */
#ifndef MILL_STATUS_FILE_H
#define MILL_STATUS_FILE_H

#include <stdio.h>

#include "jobs/status/status_board.h"
#include "src/system/status_json.h"

enum { MILL_STATUS_PATH = 4096, MILL_STATUS_VERSION = 1 };

/** How every status file begins. */
#define MILL_STATUS_SIGNATURE "{\n  \"format\": \"starmill status\""

/** What a status file says. */
typedef struct mill_status_text {
  const mill_board_plan *plan;
  int n_rank;
  const mill_rank_state *rank; /**< [n_rank] */
  double start_unix_s, elapsed_s;
  int64_t n_done_here;       /**< rows that this run has finished */
  double rate;               /**< stars a second of the last minute; NaN: not known yet */
  const mill_board_end *end; /**< NULL: it runs */
} mill_status_text;

/** MILL_ERR_MEMORY, or MILL_ERR_OUTPUT when out does not take it all. */
int mill_status_print(const mill_status_text *what, FILE *out);

/** The end of a run's summary: peak of every rank (or the extremes of many), and of the largest
 *  the bytes by purpose, which lie on the device or in the process. */
void mill_status_print_memory(int n_rank, const mill_rank_state *rank, int on_device, FILE *out);

/** A status file beside an output: PATH.status.json into out [MILL_STATUS_PATH].
 *  MILL_ERR_USAGE when the name is too long. */
int mill_status_path(const char *output, char *out);

/** Does an open file begin as a status file?  It is read from its start. */
int mill_status_has_signature(FILE *file);

/** Read a status file; free with json_decref.  *doc is NULL when there is none, and after
 *  MILL_ERR_INPUT, when it cannot be read or is no status file. */
int mill_status_read(const char *path, json_t **doc);

/** Is the run that wrote it still there?  It is when the file is young enough and, on this
 *  host, its process lives; *age_s: of the file's content. */
int mill_status_alive(const json_t *doc, double *age_s);

#endif
