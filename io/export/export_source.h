/** A result that is exported: its rows in blocks, its inputs, and where it comes from. */
#ifndef MILL_EXPORT_SOURCE_H
#define MILL_EXPORT_SOURCE_H

#include <stdint.h>

#include "io/files/lock_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_table.h"

/** The columns of /catalog/files that are texts. */
enum mill_export_text {
  MILL_EXPORT_INPUT,
  MILL_EXPORT_FORMAT,
  MILL_EXPORT_FRAME,
  MILL_EXPORT_REDROCK,
  MILL_EXPORT_ERROR,
  MILL_EXPORT_N_TEXT
};

typedef struct mill_export_source {
  mill_result_table table;
  int is_finished;
  int64_t n_kept;
  uint8_t *kept; /**< [table.n_row] 1: done, and so exported */
  /** provenance */
  char run_id[64], version[64], revision[64], library[256], library_hash[80];
  char folder[MILL_MAX_PATH]; /**< from which relative paths of inputs count */
  char *command;
  /** /catalog/files */
  int n_file;
  mill_ph5_texts text[MILL_EXPORT_N_TEXT];
  int64_t *size, *row_start, *n_row_of;
  /** the rows of the last mill_export_read */
  int64_t block_rows; /**< how many it reads at most */
  char *fits_row, *catalog_row, *scratch;
} mill_export_source;

/** Names of the text columns in /catalog/files, by enum mill_export_text. */
extern const char *const mill_export_text_name[MILL_EXPORT_N_TEXT];

/** Open a result of starmill fit or sample; path is borrowed.
 *
 *  MILL_ERR_USAGE: there is none at path, or it is not finished, unless is_partial: then the rows
 *  that are done are exported.  MILL_ERR_OUTPUT: it is damaged; MILL_ERR_MEMORY. */
int mill_export_open(const char *path, int is_partial, mill_export_source **out);

/** NULL is allowed. */
void mill_export_close(mill_export_source *source);

/** Read rows [at, at + n), n at most block_rows, into fits_row and catalog_row.
 *  MILL_ERR_OUTPUT: the CRC of an exported row is wrong; MILL_ERR_STOPPED: the job is to stop. */
int mill_export_read(mill_export_source *source, int64_t at, int64_t n);

/** Text of input i into out [size]; MILL_ERR_RANGE: it is longer. */
int mill_export_get_text(const mill_export_source *source, int which, int i, char *out,
                         size_t size);

/** Where input i is: its path as given, relative to the folder of the fit.  MILL_ERR_RANGE. */
int mill_export_input(const mill_export_source *source, int i, char *out, size_t size);

/** Numbers of a column of /catalog or /catalog/exposures with n_total rows: rows row [n], or
 *  [at, at + n) where row is NULL.  type: H5T_STD_I64LE or H5T_STD_I32LE, which the column must
 *  have.  MILL_ERR_OUTPUT. */
int mill_export_numbers(const mill_export_source *source, const char *name, hid_t type,
                        int64_t n_total, const int64_t *row, int64_t at, int64_t n, void *out);

/** MILL_ERR_STOPPED when the job is to stop. */
int mill_export_go_on(void);

#endif
