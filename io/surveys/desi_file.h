/** What the parts of the DESI reader share: desi.c opens a file, desi_index.c selects its rows,
 *  desi_pixels.c reads its images. */
#ifndef MILL_DESI_FILE_H
#define MILL_DESI_FILE_H

#include "io/surveys/desi.h"
#include "io/surveys/spectra.h"

/** How the pixels of an image are stored. */
typedef struct mill_desi_image {
  int i_hdu;       /**< -1: the file has none */
  int direct;      /**< CFITSIO type that needs no conversion of ours; 0: by way of convert */
  int convert;     /**< CFITSIO type read before our conversion */
  uint64_t offset; /**< number to be added to stored values of 64 bits */
  int fill_null;   /**< integers or compressed: nulls become NaN through CFITSIO */
  int plain;       /**< stored as we keep it but for the order of bytes: read without CFITSIO */
} mill_desi_image;

typedef struct mill_desi_file_arm {
  mill_desi_arm info;
  double *wave_aa;
  char prefix[MILL_MAX_NAME]; /**< of its HDUs, upper case */
  mill_desi_image flux, ivar, mask, resolution;
  int is_unwanted; /**< not fitted */
} mill_desi_file_arm;

struct mill_desi_file {
  mill_fits_file *fits;
  int owns_fits;
  mill_open_limits limits; /**< for the redrock file */
  int joint;               /**< all exposures of a target are one row */
  int i_fibermap, i_exp_fibermap;
  int64_t n_spec;
  int n_arm;
  mill_desi_file_arm arm[MILL_MAX_ARM];
  void *convert; /**< buffer of mill_desi_read, made when first needed */
};

/* What desi_selection.c reads of a file, one value a row; NULL: not asked for. */
typedef struct mill_desi_choice {
  int *in_class; /**< the row is of a target class that is wanted */
  double *sn;    /**< the largest of the arms' S/N by SCORES; -inf where no arm has one */
} mill_desi_choice;

/** MILL_ERR_INPUT: what rows are to be selected by is not in the file. */
int mill_desi_choice_read(mill_desi_file *file, const mill_selection *select,
                          mill_desi_choice *choice);
void mill_desi_choice_clear(mill_desi_choice *choice);

/** Decide how the pixels of an image are to be read. */
int mill_desi_take_image(mill_desi_file *file, int i_hdu, int is_mask, mill_desi_image *out);

#endif
