/* SPDX-License-Identifier: BSD-3-Clause */
/** Parts of the DESI reader: desi.c opens files and gives channels, desi_index.c selects rows. */
#pragma once

#include "io/surveys/spectra.h"

/** Images of an arm. */
enum { DESI_FLUX, DESI_IVAR, DESI_MASK, DESI_RESOLUTION, DESI_N_IMAGE };
enum { DESI_MAX_CHANNEL = 2 * MILL_MAX_ARM };

/** How the pixels of an image are stored. */
typedef struct mill_desi_image {
  int i_hdu;            /**< -1: the file lacks the image */
  int is_mask, is_wide; /**< is_wide: the mask has 64 bits */
  int plain;            /**< unscaled float32, or int32 masks: read without CFITSIO */
  uint64_t offset;      /**< added to stored 64-bit masks */
} mill_desi_image;

typedef struct mill_desi_arm {
  char prefix[MILL_MAX_NAME]; /**< prefix of its HDUs' names, upper case */
  int n_pix;                  /**< 0: the file lacks the arm */
  int n_diag;                 /**< 0: no resolution matrix */
  int air;                    /**< wavelengths are in air */
  double *wave_aa;            /**< [n_pix], owned */
  mill_desi_image image[DESI_N_IMAGE];
  int is_unwanted; /**< not fitted, so its S/N does not select rows */
} mill_desi_arm;

typedef struct mill_desi_file {
  mill_fits_file *fits;           /**< borrowed */
  mill_open_limits limits;        /**< limits of opening the redrock file */
  int joint;                      /**< all exposures of a target become one row */
  int frame;                      /**< of SPECSYS, enum mill_frame */
  int i_fibermap, i_exp_fibermap; /**< -1: the file lacks the table */
  int64_t n_spec;
  int n_arm, n_fitted;                 /**< n_fitted: channels that go to fitted arms */
  mill_desi_arm arm[DESI_MAX_CHANNEL]; /**< the file's channels, then the library's other arms */
  double *convert;                     /**< [convert_room] buffer for a row that is not plain */
  size_t convert_room;
} mill_desi_file;

/** The `index` of mill_format; state: a mill_desi_file. */
int mill_desi_index(void *state, const mill_selection *select, mill_file_index *index);
