/** Writing DESI-like coadd files, redrock-like files and the truth table of a mock survey.
 *
 *  Each file is written under a temporary name in its folder and renamed when it
 *  is complete.  The bytes depend on the content alone: no dates, no hosts.
 *  Failures are MILL_ERR_OUTPUT and name the file and what to do; also MILL_ERR_MEMORY,
 *  and MILL_ERR_RANGE for rows that the file has not, or were not all written.
 */
#ifndef MILL_DESI_WRITE_H
#define MILL_DESI_WRITE_H

#include <stdint.h>

#include "io/fits/fits_stream.h"
#include "kernels/data/library.h"

/** One row of FIBERMAP. */
typedef struct mill_fibermap_row {
  int64_t target_id;
  int64_t location;
  int32_t fiber, fiber_status;
  double ra_deg, dec_deg;
  float pm_ra, pm_dec, ref_epoch; /**< mas/yr, yr */
  int64_t ref_id;
  char ref_cat[3];
  char objtype[4];
  int64_t desi_target, bgs_target, mws_target, scnd_target;
  float flux_g, flux_r, flux_z;   /**< nanomaggies */
  float median_snr[MILL_MAX_ARM]; /**< SCORES: MEDIAN_COADD_SNR_<ARM> */
} mill_fibermap_row;

/** Arms of a file. */
typedef struct mill_desi_write_arm {
  const char *name; /**< b, r, z */
  int n_pix, n_diag;
  const double *wave_aa; /**< [n_pix] vacuum A */
} mill_desi_write_arm;

typedef struct mill_desi_writer mill_desi_writer;

/** Begin a file of n_row rows; history [n_history] says what made it, as HISTORY
 *  cards.  The arms' names are at most 15 bytes; wave_aa may go when this returns. */
int mill_desi_writer_open(const char *path, int overwrite, int64_t n_row, int n_arm,
                          const mill_desi_write_arm *arm, int n_history, const char *const *history,
                          mill_desi_writer **out);

/** Rows first .. first + n - 1 of one arm; any order, every row once.  Threads may write
 *  different rows at once.
 *  flux, ivar [n][n_pix]; mask [n][n_pix]; resolution [n] pointers to [n_diag][n_pix],
 *  which must hold the same values until close wherever a pointer comes again: a matrix
 *  is turned into the file's byte order only once. */
int mill_desi_writer_rows(mill_desi_writer *writer, int i_arm, int64_t first, int n,
                          const float *flux, const float *ivar, const int32_t *mask,
                          const float *const *resolution);

/** FIBERMAP, EXP_FIBERMAP and SCORES; [n_row].  BRICKID is taken from the TARGETID, where
 *  DESI packs it. */
int mill_desi_writer_fibermap(mill_desi_writer *writer, const mill_fibermap_row *row);

/** Complete and rename. */
int mill_desi_writer_commit(mill_desi_writer *writer);

/** Remove what was not committed; NULL is allowed. */
void mill_desi_writer_free(mill_desi_writer *writer);

/** What such a file takes, and whether it is there already: *n_byte its size, *state (enum
 *  mill_file_state) from its size and all headers.  path NULL: only the size. */
int mill_desi_compare(const char *path, int64_t n_row, int n_arm, const mill_desi_write_arm *arm,
                      int n_history, const char *const *history, int64_t *n_byte, int *state);

/** One row of a redrock-like file (HDU REDSHIFTS). */
typedef struct mill_redrock_row {
  int64_t target_id;
  double z, zerr;
  int64_t zwarn;
  double chi2, delta_chi2;
  char spectype[7], subtype[21];
} mill_redrock_row;

int mill_redrock_write(const char *path, int64_t n_row, const mill_redrock_row *row, int n_history,
                       const char *const *history);
/** As mill_desi_compare. */
int mill_redrock_compare(const char *path, int64_t n_row, int n_history, const char *const *history,
                         int64_t *n_byte, int *state);

/** One row of the truth table. */
typedef struct mill_truth_row {
  int64_t target_id;
  double label[MILL_MAX_LABEL];
  double vrad_km_s, vsini_km_s, sn;
  int32_t lsf_group, template_index;
  int32_t file;     /**< number of the coadd file */
  int64_t fits_row; /**< 0-based row in it */
  char kind[24];
} mill_truth_row;

typedef struct mill_truth_writer mill_truth_writer;

/** Shape of a truth table: HDU TRUTH of n_row rows, one column per label, named and with
 *  units as given (empty: none); HDU FILES lists the n_file names.  Borrowed. */
typedef struct mill_truth_shape {
  int64_t n_row;
  int n_label;
  const char *const *label_column, *const *label_unit; /**< [n_label] */
  int n_file;
  const char *const *file; /**< [n_file] */
  int n_history;
  const char *const *history;
} mill_truth_shape;

int mill_truth_writer_open(const char *path, int overwrite, const mill_truth_shape *shape,
                           mill_truth_writer **out);
int mill_truth_writer_rows(mill_truth_writer *writer, int64_t first, int n,
                           const mill_truth_row *row);
int mill_truth_writer_commit(mill_truth_writer *writer);
void mill_truth_writer_free(mill_truth_writer *writer);
/** As mill_desi_compare. */
int mill_truth_compare(const char *path, const mill_truth_shape *shape, int64_t *n_byte,
                       int *state);

#endif
