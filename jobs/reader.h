/** The reader of a rank: a thread that brings its stars' pixels from disk.
 *
 *  The catalog is cut into work blocks of up to MILL_WORK_ROWS neighbouring rows
 *  of one file, counted through all files; block b belongs to rank b % size.
 *  The thread walks this rank's blocks and hands over their wanted rows in
 *  batches of a bounded size.  A fixed number of batches circulates, so the
 *  memory does not depend on the catalog: it is MILL_READER_BATCHES times the
 *  larger of MILL_BATCH_EXPOSURES exposures and the most exposures fitted jointly.
 */
#ifndef MILL_READER_H
#define MILL_READER_H

#include "io/desi.h"
#include "io/result_file.h"

enum {
  MILL_WORK_ROWS = 128,      /**< rows of a work block */
  MILL_BATCH_EXPOSURES = 16, /**< exposures of a batch, unless one row has more */
  MILL_READER_BATCHES = 3    /**< one being fitted from, two ahead */
};

/** An arm of an input file, as far as this run is concerned. */
enum mill_arm_use {
  MILL_ARM_ABSENT,   /**< not in the file, or not asked for */
  MILL_ARM_READ,     /**< its pixels are in the batches */
  MILL_ARM_NO_MATRIX /**< unusable: no resolution matrix though the library needs one */
};

/** What stays the same for all batches of a file. Owned by the reader. */
typedef struct mill_reader_file {
  int i_file; /**< of the catalog */
  struct {
    int use; /**< enum mill_arm_use */
    int n_pix, n_diag;
    double *wave_aa; /**< [n_pix] */
  } arm[MILL_MAX_ARM];
  int n_holder; /**< batches and threads that use it */
} mill_reader_file;

/** One row of a batch. */
typedef struct mill_reader_row {
  int64_t row;        /**< of /fits */
  int64_t model_row;  /**< of its first exposure among all exposures of the catalog */
  int first_exposure; /**< in the batch's blocks */
  int n_exposure;
} mill_reader_row;

/** Rows of one file with their pixels, or the reason why they cannot be had. */
typedef struct mill_batch {
  mill_reader_file *file; /**< NULL when the file cannot be opened any more */
  int i_file;             /**< of the catalog */
  int n_row;
  mill_reader_row row[MILL_WORK_ROWS];
  char error[512]; /**< not empty: these rows are unreadable, and why */
  int n_exposure;
  mill_desi_block block[MILL_MAX_ARM]; /**< [n_exposure] each, of the arms to be read */
  struct mill_batch_store {
    size_t n_flux, n_mask, n_resolution; /**< elements allocated */
    float *flux, *ivar, *resolution;
    int32_t *mask;
  } store[MILL_MAX_ARM];
} mill_batch;

/** What to read; everything is borrowed until mill_reader_stop. */
typedef struct mill_reader_plan {
  const mill_library *lib;
  const mill_config *config; /**< bound to lib */
  int arm_wanted[MILL_MAX_ARM];
  mill_open_limits limits;
  int n_file;
  const mill_input_file *file;    /**< [n_file] */
  const int64_t *exposure_start;  /**< [n_file] first model row of each file */
  const mill_result_file *result; /**< which rows are wanted */
  int rank, size;
} mill_reader_plan;

typedef struct mill_reader mill_reader;

/** Does a matrix have to come with this arm? */
int mill_reader_needs_matrix(const mill_library *lib, const mill_config *config, int arm);

/** Start the thread.  MILL_ERR_MEMORY, MILL_ERR_INTERNAL. */
int mill_reader_start(const mill_reader_plan *plan, mill_reader **out);

/** Wait for the next batch; *out NULL at the end.  A failure of the thread
 *  itself (not of a file) is returned here with its message. */
int mill_reader_next(mill_reader *reader, mill_batch **out);

/** Give a batch back for reuse; its pixels are gone. NULL is fine. */
void mill_reader_release(mill_reader *reader, mill_batch *batch);

/** Stop the thread, at once even when batches are left, and free everything.
 *  NULL is fine. */
void mill_reader_stop(mill_reader *reader);

#endif
