/* SPDX-License-Identifier: BSD-3-Clause */
/** Reader of files whose spectra are rows of images or columns of tables.  A format tells where the
 *  numbers of each channel are; these functions read and calibrate them. */
#pragma once

#include "io/surveys/single_spectrum.h"

/** Where the flux, mask, ... of a camera is: in a column of a table or in an image. */
typedef struct mill_plane {
  const char *name;  /**< of column or image, for messages; NULL: the file has none */
  int i_hdu, number; /**< number: of the column, as CFITSIO counts; 0: an image */
  int64_t row;       /**< row that all exposures share; -1: row of the exposure being read */
  int mask_type;     /**< CFITSIO type of a mask read as stored; 0: read as numbers */
  uint64_t offset;   /**< added to stored 64-bit masks */
} mill_plane;

enum mill_plane_of {
  MILL_FLUX,
  MILL_WAVE,
  MILL_IVAR, /**< inverse variance, error or variance, see mill_camera.noise */
  MILL_MASK,
  MILL_WIDTH, /**< width of the line-spread function, read by mill_cameras.finish */
  MILL_SENS,  /**< flux per count; then MILL_FLUX and MILL_IVAR are in counts */
  MILL_N_PLANE
};

/** Meaning of the plane MILL_IVAR. */
enum mill_noise { MILL_NOISE_IVAR, MILL_NOISE_ERROR, MILL_NOISE_VARIANCE };

/** A channel, either of all exposures of a file or of one exposure. */
typedef struct mill_camera {
  char name[MILL_MAX_NAME];
  int i_hdu, n_pix, air;
  int first;           /**< first pixel, if several cameras share a vector */
  int noise;           /**< enum mill_noise */
  int is_log;          /**< MILL_WAVE holds log10 of wavelengths */
  int sigma_is_whole;  /**< as in mill_channel */
  int descends;        /**< pixels are stored from red to blue; set when wave_aa is read */
  int32_t exposure_id; /**< EXPID, -1: none */
  int64_t exposure;    /**< identifies the exposure, if exposures are not rows */
  double mjd;          /**< middle of the exposure; NaN: unknown */
  double to_aa;        /**< Angstroms per unit of MILL_WAVE; 0: 1 */
  double scale;        /**< factor of fluxes (mill_camera_scale); 0: 1 */
  double *wave_aa;     /**< [n_pix] owned; NULL: read from its plane when first needed */
  mill_plane plane[MILL_N_PLANE];
} mill_camera;

/** State of a format with cameras, or the first member of this state; zeroed before use. */
typedef struct mill_cameras {
  mill_fits_file *file; /**< borrowed */
  int64_t n_row;        /**< number of exposures, if each is a row; else 0 */
  int n_camera;
  mill_camera *camera; /**< [n_camera], owned */
  int64_t camera_room;
  mill_single_spectrum spectrum;
  /** Set line widths and edit the mask of the pixels just read, before holes are filled.  The
   *  pixels' wavelengths are camera->wave_aa.  NULL: pixels stay as read. */
  int (*finish)(struct mill_cameras *cameras, const mill_camera *camera);
  int64_t row; /**< row of the exposure being read */
} mill_cameras;

/** Add a camera; *out is valid until the next call. */
int mill_camera_add(mill_cameras *cameras, const char *name, int i_hdu, mill_camera **out);

/** Sort cameras by exposure_id and HDU.  Set their member `exposure` to the HDU of the first camera
 *  of their exposure.  MILL_ERR_INPUT: two cameras of an exposure have the same name. */
int mill_cameras_number(mill_cameras *cameras);

/** Fill a zeroed index with the exposures of the file's only object, if `select` keeps the object.
 *  row, objtype: as in mill_candidate.  is_joint 1: one row of all exposures; 0: a row for each.
 *  Call mill_cameras_number before.  MILL_ERR_INPUT: mill_selection_check refuses the file. */
int mill_cameras_index(const mill_cameras *cameras, const mill_selection *select,
                       const mill_catalog_row *row, const char *objtype, int is_joint,
                       mill_file_index *index);

/** Find a camera's columns in its HDU.  If camera->n_pix is 0, the first column sets it.
 *
 *  is_alone  1: the table is one spectrum (a row, or a row per pixel); 0: each row is a spectrum
 *  name      column of each plane; NULL: skip the plane
 *
 *  MILL_ERR_INPUT: a column is missing, not numeric or of bad length. */
int mill_camera_columns(mill_cameras *cameras, mill_camera *camera, int is_alone,
                        const char *const name[MILL_N_PLANE]);

/** Set camera->scale to 1e17 for fluxes in erg / s / cm2 / A, whose inverse variances exceed
 *  the range of float32; else to 1.  Fluxes have this unit if most errors of the first valid row
 *  are < 1e-10; with a plane MILL_SENS, if most of its values are.  Not for MILL_NOISE_VARIANCE. */
int mill_camera_scale(mill_cameras *cameras, mill_camera *camera);

/** Read a plane of the exposure cameras->row into out [n_pix]. */
int mill_camera_plane(mill_cameras *cameras, const mill_camera *camera, enum mill_plane_of plane,
                      double *out);

/** Read the camera's channel of the exposure cameras->row, and add it to spectra. */
int mill_camera_give(mill_cameras *cameras, mill_spectra *spectra, int i_exposure,
                     mill_camera *camera);

/** Find the unit of a plane's scaled fluxes from its column or image, else the primary header. */
int mill_plane_unit(mill_fits_file *file, const mill_plane *plane, double scale,
                    char unit[MILL_FLUX_UNIT]);

/** Functions of a mill_format whose state begins with mill_cameras. */
int mill_cameras_flux_unit(void *state, const char *channel, char unit[MILL_FLUX_UNIT]);
int mill_cameras_read(void *state, mill_spectra *spectra, const int64_t *exposure, int n);
void mill_cameras_close(void *state);

/** Members of a mill_format whose state begins with mill_cameras. */
#define MILL_CAMERAS_FORMAT                                                                        \
  .close = mill_cameras_close, .read = mill_cameras_read, .flux_unit = mill_cameras_flux_unit
