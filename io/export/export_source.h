/** A result that is exported: its rows in blocks, its inputs, and where it comes from. */
#ifndef MILL_EXPORT_SOURCE_H
#define MILL_EXPORT_SOURCE_H

#include <stdint.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/stored_rows.h"

enum { MILL_EXPORT_PATH = 4096 };

typedef struct mill_export_source {
  mill_h5_file file;
  const char *path; /**< borrowed */
  int is_finished;
  int64_t n_row, n_kept;
  uint8_t *kept; /**< [n_row] 1: done, and so exported */
  /** provenance */
  char run_id[64], version[64], revision[64], library[256], library_hash[80];
  char folder[MILL_EXPORT_PATH]; /**< from which relative paths of inputs count */
  char *command;
  /** of /catalog/files */
  int n_file;
  mill_ph5_texts input, redrock, format, error;
  int64_t *size, *row_start, *n_row_of;
  /** the rows of the last mill_export_read */
  mill_stored_rows fits, catalog;
  int64_t block_rows; /**< how many it reads at most */
  char *fits_row, *catalog_row, *scratch;
} mill_export_source;

/** Open a result of starmill fit or sample.
 *
 *  MILL_ERR_USAGE: there is none at path, or it is not finished, unless is_partial: then the rows
 *  that are done are exported.  MILL_ERR_OUTPUT: it is damaged; MILL_ERR_MEMORY. */
int mill_export_open(const char *path, int is_partial, mill_export_source **out);

/** NULL is allowed. */
void mill_export_close(mill_export_source *source);

/** Read rows [at, at + n), n at most block_rows, into fits_row and catalog_row.
 *  MILL_ERR_OUTPUT: a row that is exported has another CRC than its values;
 *  MILL_ERR_STOPPED: the job is to stop. */
int mill_export_read(mill_export_source *source, int64_t at, int64_t n);

/** Text i of a column of /catalog/files into out [size]; MILL_ERR_RANGE: it is longer. */
int mill_export_text(const mill_ph5_texts *texts, int i, char *out, size_t size);

/** Where input i is: as it was given, relative to the folder of the fit.  MILL_ERR_RANGE. */
int mill_export_input(const mill_export_source *source, int i, char *out, size_t size);

/** A number column of /catalog or /catalog/exposures, rows [at, at + n).  type: H5T_STD_I64LE or
 *  H5T_STD_I32LE, which the column must have.  MILL_ERR_OUTPUT. */
int mill_export_numbers(const mill_export_source *source, const char *name, hid_t type,
                        int64_t n_total, int64_t at, int64_t n, void *out);

/** MILL_ERR_STOPPED when the job is to stop. */
int mill_export_go_on(void);

#endif
