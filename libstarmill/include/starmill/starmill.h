/* SPDX-License-Identifier: BSD-3-Clause */
/** libstarmill: templates, likelihoods and fits of stellar spectra, for your own programs.
 *
 *  Results equal those of `starmill fit` bit for bit (docs/use/library-c-python.md).
 *
 *  A library handle holds a template library, the settings of a fit and their work space. Several
 *  threads may share a handle; their calls run one at a time.  Handles are independent: to work in
 *  parallel, open one per thread, or set `threads`.  Open libraries after a fork, not before:
 *  once a library had several threads, OpenMP hangs in forks that do not exec.
 *
 *  A function that can fail returns a code, 0 for success, and fills *error unless error is NULL.
 *  On failure it leaves its output handles as they were.  A NULL pointer gives STARMILL_USAGE, or
 *  0, NaN or an empty text from functions without a code.  Functions that close or free allow NULL;
 *  another function allows NULL if its comment says so.
 *
 *  libstarmill never calls MPI; programs whose ranks share a fit use starmill_mpi.h.  HDF5 is not
 *  thread-safe: call HDF5 only while no other thread is in starmill_library_open or a
 *  starmill_table function.
 *
 *  The n_par parameters are, in this order: VRAD (km/s), VSINI (km/s), the library's labels in
 *  their units (Teff in K, log g, [Fe/H], ...) and, with the key velocity_offsets, one offset
 *  (km/s) for each arm after the first.  Wavelengths are in Angstrom, ascending, in vacuum
 *  unless air is set.  Arrays are contiguous; shapes name the slowest axis first. */
#ifndef STARMILL_STARMILL_H
#define STARMILL_STARMILL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define STARMILL_API __attribute__((visibility("default")))
#else
#define STARMILL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* cffi reads the text between begin and end (python/starmill/binding.py): use no macro there except
   STARMILL_API. */
/* begin */

enum starmill_code {
  STARMILL_OK = 0,
  STARMILL_USAGE = 1,   /* invalid argument */
  STARMILL_CONFIG = 2,  /* invalid configuration key or value */
  STARMILL_LIBRARY = 3, /* unreadable or invalid library file */
  STARMILL_INPUT = 4,   /* invalid spectra, spectra file or result file */
  STARMILL_OUTPUT = 5,
  STARMILL_RANGE = 6, /* number out of range, such as a wavelength beyond the templates */
  STARMILL_MEMORY = 7,
  STARMILL_BACKEND = 8, /* this machine cannot run the CPU or GPU backend */
  STARMILL_INTERNAL = 10
};

/** An error.  The message is one line: the file, key or argument at fault, and what to do. */
typedef struct starmill_error {
  int code; /* enum starmill_code */
  char message[1024];
} starmill_error;

typedef struct starmill_library starmill_library;
typedef struct starmill_star starmill_star;
typedef struct starmill_file starmill_file;
typedef struct starmill_model starmill_model;
typedef struct starmill_table starmill_table;
typedef struct starmill_channels starmill_channels;

/** Return the version ("0.1.0") and the git revision of this build. */
STARMILL_API const char *starmill_version(void);
STARMILL_API const char *starmill_revision(void);

/* ---- template libraries --------------------------------------------------------------------- */

/** Open a library file.
 *
 *  config  keys of docs/use/configuration.md as YAML text ("npoly: 15\nmax_vel: 500\n"); NULL: the
 *          defaults.  The row selection acts in starmill_file_open.  `threads: 0`, the default,
 *          means one thread here, and `backend: auto` the CPU; cuda needs a build with CUDA.
 *          `format` cuts the library into a survey's cameras; desi also masks the dichroic.
 *
 *  Errors: STARMILL_LIBRARY, STARMILL_CONFIG, STARMILL_BACKEND, STARMILL_MEMORY. */
STARMILL_API int starmill_library_open(const char *path, const char *config,
                                       starmill_library **library, starmill_error *error);

/** Close a library; NULL is allowed.  Its stars and files stay valid and may be freed later. */
STARMILL_API void starmill_library_close(starmill_library *library);

/** Check a library file: whether it is complete, finite, consistent and within the limits.
 *
 *  image [n_byte]  bytes of an unfinished file, with 64 zeros in place of the hash; path is then
 *                  only a name for messages.  NULL: read the file at path
 *  hash [65]       out  SHA-256 of the content, and a zero byte
 *
 *  Errors: STARMILL_LIBRARY. */
STARMILL_API int starmill_library_check(const char *path, const void *image, size_t n_byte,
                                        char *hash, starmill_error *error);

/** Return the number of parameters, of labels and of arms. */
STARMILL_API int starmill_library_n_par(const starmill_library *library);
STARMILL_API int starmill_library_n_label(const starmill_library *library);
STARMILL_API int starmill_library_n_arm(const starmill_library *library);

/** Return the SHA-256 of the library's content, and the name of the backend in use. */
STARMILL_API const char *starmill_library_hash(const starmill_library *library);
STARMILL_API const char *starmill_library_backend(const starmill_library *library);

/** A parameter: its name in configuration files ("vrad", "vsini", "teff", ...; "offset_r" for
 *  the velocity offset of arm r), its column in results ("VRAD", ...), its unit, and its limits.
 *  A label's limits are its range over the stars that trained the library. */
typedef struct starmill_parameter {
  const char *name, *column, *unit;
  double min, max;
} starmill_parameter;
STARMILL_API int starmill_library_parameter(const starmill_library *library, int i_par,
                                            starmill_parameter *parameter, starmill_error *error);

/** An arm: its name, and the wavelength range (Angstrom) that spectra may cover: the templates'
 *  range, narrowed by the Doppler shift at the velocity limits. */
typedef struct starmill_arm {
  const char *name;
  double min_wave, max_wave;
} starmill_arm;
STARMILL_API int starmill_library_arm(const starmill_library *library, int i_arm, starmill_arm *arm,
                                      starmill_error *error);

/** Fix parameters and set Gaussian priors for all later calls.
 *
 *  fixed [n_par]              value to hold; NaN: free; fixed NULL: all are free
 *  mean, sigma [n_par]        prior of each parameter; sigma 0: none; both NULL: no priors
 *
 *  Replaces fix_param and priors of the configuration.  Velocity offsets cannot be fixed or have
 *  a prior.  Errors: STARMILL_USAGE, STARMILL_CONFIG. */
STARMILL_API int starmill_library_constrain(starmill_library *library, const double *fixed,
                                            const double *mean, const double *sigma,
                                            starmill_error *error);

/* ---- spectra --------------------------------------------------------------------------------- */

/** One spectrum: one arm in one exposure.  The caller keeps the arrays.
 *
 *  name        the arm (b, r, z); a spectrum with any other name, or NULL, is cut by wavelength
 *              into the library's arms
 *  exposure    0, 1, ...; a spectrum that is given twice counts twice, whatever its number
 *  wave        [n_pix] Angstrom, ascending; in air if air is not 0, whatever the key medium says
 *  flux, ivar  [n_pix] flux in any unit, and its inverse variance; ivar 0: a bad pixel
 *  mask        [n_pix] a set bit marks a bad pixel, except the bits of mask_ignore; NULL: none
 *  resolution  [n_diag][n_pix] resolution matrix in DESI's layout; NULL: none
 *  sigma       [n_pix] Gaussian line-spread sigma, Angstrom; lsf_factor is not applied; NULL: none
 *  systematic  [n_pix] error to add in quadrature, in the unit of flux; NULL: none
 *  flux_unit   FITS unit of a channel that was read, "" if unknown; ignored by fits */
typedef struct starmill_spectrum {
  const char *name;
  int exposure, n_pix, n_diag, air;
  const double *wave;
  const float *flux, *ivar;
  const int32_t *mask;
  const float *resolution, *sigma, *systematic;
  const char *flux_unit;
} starmill_spectrum;

/** Make a star from n spectra, which are copied; the caller frees the star.  A star without a
 *  piece that can be fitted is no error: the STATUS of its fit gives the reason. */
STARMILL_API int starmill_star_create(starmill_library *library, const starmill_spectrum *spectrum,
                                      int n, starmill_star **star, starmill_error *error);
STARMILL_API void starmill_star_free(starmill_star *star);

/** Set the star's TARGETID in result tables; -1 until set. */
STARMILL_API void starmill_star_set_target_id(starmill_star *star, int64_t target_id);

/** Return the number of the star's pieces.  A piece is the part of a spectrum in one arm; every
 *  model of the star has the same pieces in the same order. */
STARMILL_API int starmill_star_n_piece(const starmill_star *star);

/** Open a spectra file in any format of `starmill fit`, with the configuration's row selection.
 *  STARMILL_CONFIG: the file's format sets arms or a mask, and `format` does not name it. */
STARMILL_API int starmill_file_open(starmill_library *library, const char *path,
                                    starmill_file **file, starmill_error *error);
STARMILL_API void starmill_file_close(starmill_file *file);

/** Return the number of selected rows.  starmill_file_row describes a row: its name as in
 *  /catalog/IDENTIFIER, valid until the file is closed, and its TARGETID (-1: none).
 *  starmill_file_star reads a row as a star. */
STARMILL_API int64_t starmill_file_n_row(const starmill_file *file);
typedef struct starmill_row {
  const char *identifier;
  int64_t target_id;
} starmill_row;
STARMILL_API int starmill_file_row(const starmill_file *file, int64_t i_row, starmill_row *row,
                                   starmill_error *error);
STARMILL_API int starmill_file_star(starmill_file *file, int64_t i_row, starmill_star **star,
                                    starmill_error *error);

/** Open a spectra file without a library.  config: as for starmill_library_open, but only format,
 *  medium and exposures are used; NULL: the defaults. */
STARMILL_API int starmill_channels_open(const char *path, const char *config,
                                        starmill_channels **channels, starmill_error *error);
STARMILL_API void starmill_channels_close(starmill_channels *channels);

/** starmill_channels_read reads an exposure by its number (FITS_ROW of a result's
 *  /catalog/exposures), and sets *n to the number of its channels.  starmill_channels_at describes
 *  channel i: name, n_pix, wave (vacuum), flux, ivar, mask and flux_unit.  The arrays are valid
 *  until the next read, flux_unit until the next call of either function. */
STARMILL_API int starmill_channels_read(starmill_channels *channels, int64_t exposure, int *n,
                                        starmill_error *error);
STARMILL_API int starmill_channels_at(starmill_channels *channels, int i,
                                      starmill_spectrum *spectrum, starmill_error *error);

/* ---- likelihood and models ------------------------------------------------------------------- */

/** Compute -2 ln L at n points.
 *
 *  theta      [n][n_par]         in
 *  m2ll       [n]                out  -2 ln L without the penalty; inf if velocity or v sin i is
 *                                     beyond its limits or a label is not finite
 *  penalty    [n]                out  terms that a fit adds to m2ll: the penalty outside the
 *                                     library's hulls, and the priors; NULL: skip
 *  gradient   [n][n_par]         out  d m2ll / d theta; NULL: skip
 *  curvature  [n][n_par][n_par]  out  Gauss-Newton half Hessian of m2ll:
 *                                     m2ll(theta + x) ~ m2ll + gradient x + x curvature x;
 *                                     NULL: skip
 *
 *  A call with derivatives takes about five times as long.  A call with ten or more points is
 *  several times faster than single calls, and consecutive points that differ only in velocity
 *  share a template.  The star stays loaded until another is used.  Errors: STARMILL_INPUT if
 *  the star has no usable pixel. */
STARMILL_API int starmill_minus2loglike(starmill_library *library, const starmill_star *star, int n,
                                        const double *theta, double *m2ll, double *penalty,
                                        double *gradient, double *curvature, starmill_error *error);

/** Include the model errors in this star's likelihood, in all later calls.  They are the errors of
 *  templates, of line-spread widths (key lsf_width_error) and of sky subtraction (key
 *  sky_components), computed at theta [n_par].  theta NULL: leave them out (the default).
 *  A fit includes those computed near its solution: its M2LL differs by about 0.1. */
STARMILL_API int starmill_fix_model_error(starmill_library *library, starmill_star *star,
                                          const double *theta, starmill_error *error);

/** Compute the model of one star at theta [n_par], by arm and by piece; the caller frees it.  The
 *  theta of a row with SB2 1 is the brighter star's alone. */
STARMILL_API int starmill_model_create(starmill_library *library, const starmill_star *star,
                                       const double *theta, starmill_model **model,
                                       starmill_error *error);
STARMILL_API void starmill_model_free(starmill_model *model);

/** Return -2 ln L and the penalty, as starmill_minus2loglike computes them. */
STARMILL_API double starmill_model_m2ll(const starmill_model *model);
STARMILL_API double starmill_model_penalty(const starmill_model *model);

/** An arm of a model: chi-square of the model and of the continuum alone over the arm's good
 *  pixels, S/N, and number of good pixels. */
typedef struct starmill_model_arm {
  double chisq, chisq_c, sn;
  int64_t n_pix;
} starmill_model_arm;
STARMILL_API int starmill_model_get_arm(const starmill_model *model, int i_arm,
                                        starmill_model_arm *arm, starmill_error *error);

/** A piece of the star: flux = template_flux x continuum, corrected by the model error if that
 *  is included.  The continuum is the sum of coefficient x basis function
 *  (docs/science/numerics.md).  The model owns the arrays. */
typedef struct starmill_piece {
  /* index of the star's spectrum, of the library's arm, exposure number */
  int i_spectrum, i_arm, exposure;
  int first, n_pix; /* first pixel in the spectrum, and number of pixels */
  int used;         /* 0: dropped, only wave is valid */
  int n_continuum;
  const double *wave, *continuum;    /* [n_pix], wave in vacuum */
  const float *flux, *template_flux; /* [n_pix] */
  const float *data, *ivar;  /* [n_pix] observed flux, inverse variance; 0: does not count */
  const double *coefficient; /* [n_continuum] */
} starmill_piece;
STARMILL_API int starmill_model_get_piece(const starmill_model *model, int i_piece,
                                          starmill_piece *piece, starmill_error *error);

/** Compute the template at theta [n_par] for a spectrum's wavelengths and line-spread function.
 *  The spectrum's flux, ivar, mask and systematic are ignored.  The output flux [n_pix] is NaN
 *  outside the arms and in pieces (starmill_star_n_piece) below 2 npoly pixels.  The function
 *  fails if no piece is left or wave_mask masks all pixels. */
STARMILL_API int starmill_template(starmill_library *library, const starmill_spectrum *spectrum,
                                   const double *theta, float *flux, starmill_error *error);

/** Find the candidate starts of a fit: the templates and velocities that match best, best first.
 *
 *  theta [n_most][n_par]  out
 *  chisq [n_most]         out  up to a constant: compare differences
 *  n                      out  number of candidate starts found, at most n_most */
STARMILL_API int starmill_guess(starmill_library *library, const starmill_star *star, int n_most,
                                double *theta, double *chisq, int *n, starmill_error *error);

/* ---- fits and results ------------------------------------------------------------------------ */

/** Fit stars.
 *
 *  star [n]
 *  start [n][n_start][n_label + 2]  start points; the best of the n_start solutions is kept.  NULL:
 *                                   start from the initial guess
 *
 *  The table has one row per star, in the same order, with the columns of /fits in a result file
 *  (docs/use/formats.md); STATUS says why a star was not fitted.  The caller frees the table. */
STARMILL_API int starmill_fit(starmill_library *library, const starmill_star *const *star, int n,
                              const double *start, int n_start, starmill_table **table,
                              starmill_error *error);

/** Open a result file of `starmill fit`.  Damaged rows, whose CRC or STATUS is wrong, are kept. */
STARMILL_API int starmill_table_open(const char *path, starmill_table **table,
                                     starmill_error *error);
STARMILL_API void starmill_table_free(starmill_table *table);

STARMILL_API int64_t starmill_table_n_row(const starmill_table *table);
STARMILL_API int starmill_table_n_column(const starmill_table *table);

enum starmill_type {
  STARMILL_F64,
  STARMILL_I64,
  STARMILL_I32,
  STARMILL_U32,
  STARMILL_U8,
  STARMILL_TEXT /* n_value bytes, padded with zeros */
};

/** A column: data [n_row][n_value] of one type.  The table owns all pointers. */
typedef struct starmill_column {
  const char *name, *unit, *description;
  int type; /* enum starmill_type */
  int n_value;
  const void *data;
} starmill_column;

/** Describe a column by number.  In a table of a file, data is NULL until the column is read. */
STARMILL_API int starmill_table_column_at(const starmill_table *table, int i_column,
                                          starmill_column *column, starmill_error *error);
/** Read a column of /fits by name or, in a file's table, by a path like "catalog/IDENTIFIER". */
STARMILL_API int starmill_table_column(starmill_table *table, const char *name,
                                       starmill_column *column, starmill_error *error);

/** Read a row's parameters into theta [n_par]; the velocity offset of an arm without data is 0. */
STARMILL_API int starmill_table_theta(const starmill_library *library, starmill_table *table,
                                      int64_t i_row, double *theta, starmill_error *error);

/* end */

#ifdef __cplusplus
}
#endif

#endif
