/* SPDX-License-Identifier: BSD-3-Clause */
/** Files whose spectra are rows of images or columns of tables: a format says where the numbers of
 *  each channel are, and the rest is done here. */
#ifndef MILL_CAMERAS_H
#define MILL_CAMERAS_H

#include "io/surveys/single_spectrum.h"

/** Numbers of a spectrum: rows of an image, or a column of a table. */
typedef struct mill_plane {
  const char *name;  /**< the column, or what the image's rows are; NULL: there is none */
  int i_hdu, number; /**< number: of the column, as CFITSIO counts; 0: an image */
  int64_t row;       /**< of all exposures; -1: each exposure is a row */
  int mask_type;     /**< of a mask that is read as stored: CFITSIO's type; 0: as numbers */
  uint64_t offset;   /**< to be added to a mask of 64 bits */
} mill_plane;

enum mill_plane_of {
  MILL_FLUX,
  MILL_WAVE,
  MILL_IVAR, /**< or what `noise` says */
  MILL_MASK,
  MILL_WIDTH, /**< of the line-spread function, for `finish` */
  MILL_SENS,  /**< flux of one count, by which flux and ivar are multiplied */
  MILL_N_PLANE
};

/** What the plane MILL_IVAR holds. */
enum mill_noise { MILL_NOISE_IVAR, MILL_NOISE_ERROR, MILL_NOISE_VARIANCE };

/** A channel of the file, or of one of its exposures. */
typedef struct mill_camera {
  char name[MILL_MAX_NAME];
  int i_hdu, n_pix, air;
  int first;           /**< its first pixel in vectors that several cameras share */
  int noise, is_log;   /**< enum mill_noise; log10 of wavelengths */
  int descends;        /**< the file has its pixels from red to blue; found with wave_aa */
  int32_t exposure_id; /**< EXPID, -1: none */
  int64_t exposure;    /**< number of its exposure, unless exposures are rows */
  double mjd;          /**< middle of the exposure; NaN: not known */
  double to_aa;        /**< of the plane's wavelengths; 0: 1 */
  double scale;        /**< of fluxes, as mill_camera_scale has it; 0: 1 */
  double *wave_aa;     /**< [n_pix] owned; NULL: read from its plane when first needed */
  mill_plane plane[MILL_N_PLANE];
} mill_camera;

/** State of a format, or its first member; zeroed before. */
typedef struct mill_cameras {
  mill_fits_file *file; /**< borrowed */
  int64_t n_row;        /**< exposures are rows; 0: they have numbers of their own */
  int n_camera;
  mill_camera *camera; /**< [n_camera], owned */
  int64_t camera_room;
  mill_single_spectrum spectrum;
  /** what else a format does to the spectrum that was read; NULL: nothing */
  int (*finish)(struct mill_cameras *cameras, const mill_camera *camera);
  int64_t row; /**< the exposure that is read */
} mill_cameras;

/** A new one, valid until the next. */
int mill_camera_add(mill_cameras *cameras, const char *name, int i_hdu, mill_camera **out);

/** Sort cameras by exposure_id and HDU, and number exposures by the HDU of their first camera.
 *  MILL_ERR_INPUT names file and HDUs: two cameras of one name in an exposure. */
int mill_cameras_number(mill_cameras *cameras);

/** Fill a zeroed index with the exposures of `row`'s object, of each of which the cameras are
 *  neighbours: a row each, or with is_joint one of all. */
int mill_cameras_index(const mill_cameras *cameras, const mill_catalog_row *row, int is_joint,
                       mill_file_index *index);

/** Find its columns in its HDU, name NULL: none.  is_alone: the table has one spectrum, in one row
 *  or a pixel a row; else one a row.  The first one sets n_pix where it is 0.  MILL_ERR_INPUT names
 *  file, HDU and column: missing, not numbers, another length. */
int mill_camera_columns(mill_cameras *cameras, mill_camera *camera, int is_alone,
                        const char *const name[MILL_N_PLANE]);

/** Count fluxes in units of 1e-17 where most errors, or of one count the fluxes, of the first row
 *  that has any are in physical units (erg / s / cm2 / A), which float32 could not hold; not for
 *  variances. */
int mill_camera_scale(mill_cameras *cameras, mill_camera *camera);

/** Read a plane of the exposure under way into out [n_pix]. */
int mill_camera_plane(mill_cameras *cameras, const mill_camera *camera, enum mill_plane_of plane,
                      double *out);

/** Give the camera's channel of exposure cameras->row. */
int mill_camera_give(mill_cameras *cameras, mill_spectra *spectra, int i_exposure,
                     mill_camera *camera);

/** The unit of the fluxes of a plane times `scale`, of its column or image, else of the file. */
int mill_plane_unit(mill_fits_file *file, const mill_plane *plane, double scale,
                    char unit[MILL_FLUX_UNIT]);

/** mill_format's flux_unit, read and close; state begins with mill_cameras. */
int mill_cameras_flux_unit(void *state, const char *channel, char unit[MILL_FLUX_UNIT]);
int mill_cameras_read(void *state, mill_spectra *spectra, const int64_t *exposure, int n);
void mill_cameras_close(void *state);

#endif
