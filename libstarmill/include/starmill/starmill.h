/* SPDX-License-Identifier: BSD-3-Clause */
/** libstarmill: templates, likelihoods and fits of stellar spectra, for your own programs.
 *
 *  It computes what `starmill fit` computes, bit for bit (docs/use/library-c-python.md).
 *
 *  A library handle holds a template library, the settings of a fit and the work space of both.
 *  It may be used from several threads, which then wait for each other; handles are independent,
 *  so a program that wants to work in parallel opens one for each thread, or sets `threads`.
 *  Every function that can fail returns a code, 0 for success, and fills *error unless that is
 *  NULL; what it makes is untouched then.  MPI is never called (starmill_mpi.h is for programs
 *  whose ranks share a fit).  HDF5 is not thread-safe: a program that uses it by itself does so
 *  while no other thread is in starmill_library_open or in a function of starmill_table.
 *
 *  Parameters are ordered VRAD (km/s), VSINI (km/s), the library's labels in their units
 *  (Teff in K, log g, [Fe/H], ...), and with the key velocity_offsets one offset (km/s) for
 *  each arm but the first: n_par of them.  Wavelengths are in Angstrom, ascending, in vacuum
 *  unless air is set.  Arrays are contiguous, the slowest axis named first.
 */
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

/* What follows down to the end of it is also what the Python module is made from: no macros but
   STARMILL_API. */
/* begin */

enum starmill_code {
  STARMILL_OK = 0,
  STARMILL_USAGE = 1,   /* a wrong argument */
  STARMILL_CONFIG = 2,  /* a configuration key or its value */
  STARMILL_LIBRARY = 3, /* the library file */
  STARMILL_INPUT = 4,   /* spectra, or a file of them or of results */
  STARMILL_OUTPUT = 5,
  STARMILL_RANGE = 6, /* a number out of range: wavelengths beyond the templates, ... */
  STARMILL_MEMORY = 7,
  STARMILL_BACKEND = 8, /* the CPU or GPU code cannot run here */
  STARMILL_INTERNAL = 10
};

/** What went wrong: one line that names file, key or argument and what to do. */
typedef struct starmill_error {
  int code; /* enum starmill_code */
  char message[1024];
} starmill_error;

typedef struct starmill_library starmill_library;
typedef struct starmill_star starmill_star;
typedef struct starmill_file starmill_file;
typedef struct starmill_model starmill_model;
typedef struct starmill_table starmill_table;

/** "0.1.0", and the revision that it was built from. */
STARMILL_API const char *starmill_version(void);
STARMILL_API const char *starmill_revision(void);

/* ---- template libraries --------------------------------------------------------------------- */

/** Open a library file.
 *
 *  config  keys of docs/use/configuration.md as YAML text ("npoly: 15\nmax_vel: 500\n"), NULL for
 *          the defaults.  Those of the selection are for starmill_file_open.  threads: 0, the
 *          default, is one thread here; backend: auto is the CPU, cuda a GPU where libstarmill was
 *          built with it; wave_mask: auto is the dichroic of DESI with format: desi, else none.
 *
 *  STARMILL_LIBRARY, STARMILL_CONFIG, STARMILL_BACKEND, STARMILL_MEMORY. */
STARMILL_API int starmill_library_open(const char *path, const char *config,
                                       starmill_library **library, starmill_error *error);

/** Close; NULL is allowed.  Stars and files made with it may be freed later. */
STARMILL_API void starmill_library_close(starmill_library *library);

/** Numbers of parameters, of labels among them, and of arms. */
STARMILL_API int starmill_library_n_par(const starmill_library *library);
STARMILL_API int starmill_library_n_label(const starmill_library *library);
STARMILL_API int starmill_library_n_arm(const starmill_library *library);

/** SHA-256 of what is in the library, and the backend in use. */
STARMILL_API const char *starmill_library_hash(const starmill_library *library);
STARMILL_API const char *starmill_library_backend(const starmill_library *library);

/** Name of a parameter as configuration files have it ("vrad", "vsini", "teff", ...; "offset_r" is
 *  the offset of arm r), column of it in results ("VRAD", ...), unit, and limits: those of the
 *  fit for vrad and vsini, those of the training stars for labels. */
typedef struct starmill_parameter {
  const char *name, *column, *unit;
  double min, max;
} starmill_parameter;
STARMILL_API int starmill_library_parameter(const starmill_library *library, int i_par,
                                            starmill_parameter *parameter, starmill_error *error);

/** Name of an arm and the wavelengths that spectra may have in it: those of the templates less the
 *  Doppler shift at the limits of the velocity. */
typedef struct starmill_arm {
  const char *name;
  double min_wave, max_wave;
} starmill_arm;
STARMILL_API int starmill_library_arm(const starmill_library *library, int i_arm, starmill_arm *arm,
                                      starmill_error *error);

/** Fix parameters and set Gaussian priors for all that follows.
 *
 *  fixed [n_par]              NaN: the parameter is free; NULL: all are
 *  mean, sigma [n_par]        of the priors, sigma 0: none; NULL: no priors
 *
 *  Instead of fix_param and priors of the configuration.  Velocity offsets (beyond the labels) can
 *  have neither.  STARMILL_USAGE, STARMILL_CONFIG. */
STARMILL_API int starmill_library_constrain(starmill_library *library, const double *fixed,
                                            const double *mean, const double *sigma,
                                            starmill_error *error);

/* ---- spectra --------------------------------------------------------------------------------- */

/** One spectrum, of one arm in one exposure.
 *
 *  name        of the arm (b, r, z); a spectrum with another name, or NULL, is cut by wavelength
 *              into the library's arms
 *  exposure    0, 1, ...: spectra of one arm are exposures of their own
 *  wave        [n_pix]
 *  flux, ivar  [n_pix] in any unit; ivar 0: a bad pixel
 *  mask        [n_pix] bits that make a pixel bad, but for those of mask_ignore; NULL: none
 *  resolution  [n_diag][n_pix] resolution matrix as DESI stores it; NULL: none
 *  sigma       [n_pix] Gaussian sigma of the line-spread function in Angstrom; NULL: none
 *  systematic  [n_pix] error in the unit of the flux that is added in quadrature; NULL: none
 */
typedef struct starmill_spectrum {
  const char *name;
  int exposure, n_pix, n_diag, air;
  const double *wave;
  const float *flux, *ivar;
  const int32_t *mask;
  const float *resolution, *sigma, *systematic;
} starmill_spectrum;

/** A star of n spectra, which are copied.  A star may lack any piece that can be fitted: the STATUS
 *  of its fit says why. */
STARMILL_API int starmill_star_create(starmill_library *library, const starmill_spectrum *spectrum,
                                      int n, starmill_star **star, starmill_error *error);
STARMILL_API void starmill_star_free(starmill_star *star);

/** TARGETID of the star in tables of results; -1 until it is set. */
STARMILL_API void starmill_star_set_target_id(starmill_star *star, int64_t target_id);

/** Number of the star's pieces: parts of spectra, each in one arm, in the order in which their
 *  models come. */
STARMILL_API int starmill_star_n_piece(const starmill_star *star);

/** Open a file of spectra in any format that `starmill fit` reads, with its selection of rows. */
STARMILL_API int starmill_file_open(starmill_library *library, const char *path,
                                    starmill_file **file, starmill_error *error);
STARMILL_API void starmill_file_close(starmill_file *file);

/** Rows that are selected, and one of them: its name as /catalog/IDENTIFIER has it, and TARGETID
 *  (-1: none).  Names last until the file is closed. */
STARMILL_API int64_t starmill_file_n_row(const starmill_file *file);
typedef struct starmill_row {
  const char *identifier;
  int64_t target_id;
} starmill_row;
STARMILL_API int starmill_file_row(const starmill_file *file, int64_t i_row, starmill_row *row,
                                   starmill_error *error);
STARMILL_API int starmill_file_star(starmill_file *file, int64_t i_row, starmill_star **star,
                                    starmill_error *error);

/* ---- likelihood and models ------------------------------------------------------------------- */

/** -2 ln L at n points.
 *
 *  theta      [n][n_par]         in
 *  m2ll       [n]                out  the likelihood alone; inf where velocity or v sin i is beyond
 *                                     its limits or a label is not finite
 *  penalty    [n]                out  what a fit adds: hulls of the library and priors; NULL: not
 *                                     wanted
 *  gradient   [n][n_par]         out  d m2ll / d theta; NULL: not wanted
 *  curvature  [n][n_par][n_par]  out  half of the second derivatives by Gauss and Newton, so that
 *                                     m2ll(theta + x) ~ m2ll + gradient x + x curvature x;
 *                                     NULL: not wanted
 *
 *  Derivatives cost about five times as much.  Points of one call are computed together: ten or
 *  more are several times faster than one by one, and neighbours that differ in velocity alone
 *  share a template.  A star stays loaded until another is used.
 *  STARMILL_INPUT where no pixel of the star can be used. */
STARMILL_API int starmill_minus2loglike(starmill_library *library, const starmill_star *star, int n,
                                        const double *theta, double *m2ll, double *penalty,
                                        double *gradient, double *curvature, starmill_error *error);

/** Include the library's model error (what its templates get wrong) at theta [n_par] in all later
 *  calls for this star, as a fit does at its solution.  NULL: leave it out, the default.  No effect
 *  for a library without one. */
STARMILL_API int starmill_fix_model_error(starmill_library *library, starmill_star *star,
                                          const double *theta, starmill_error *error);

/** The model of a star at theta [n_par] with all that belongs to it. */
STARMILL_API int starmill_model_create(starmill_library *library, const starmill_star *star,
                                       const double *theta, starmill_model **model,
                                       starmill_error *error);
STARMILL_API void starmill_model_free(starmill_model *model);

/** -2 ln L and what a fit adds to it, as of starmill_minus2loglike. */
STARMILL_API double starmill_model_m2ll(const starmill_model *model);
STARMILL_API double starmill_model_penalty(const starmill_model *model);

/** Of an arm: chi-square of its good pixels, that of the continuum without a template, good pixels
 *  and S/N. */
typedef struct starmill_model_arm {
  double chisq, chisq_c, sn;
  int64_t n_pix;
} starmill_model_arm;
STARMILL_API int starmill_model_get_arm(const starmill_model *model, int i_arm,
                                        starmill_model_arm *arm, starmill_error *error);

/** One piece of the star: flux = template_flux x continuum, and with model error what the template
 *  gets wrong.  The continuum is the sum of the fit's functions (docs/science/numerics.md), each
 *  with its coefficient. */
typedef struct starmill_piece {
  int i_spectrum, i_arm, exposure; /* of the star, of the library */
  int first, n_pix;                /* pixels of the spectrum */
  int used;                        /* 0: it was dropped, and there is nothing but wave */
  int n_continuum;
  const double *wave, *continuum;    /* [n_pix], wave in vacuum */
  const float *flux, *template_flux; /* [n_pix] */
  const double *coefficient;         /* [n_continuum] */
} starmill_piece;
STARMILL_API int starmill_model_get_piece(const starmill_model *model, int i_piece,
                                          starmill_piece *piece, starmill_error *error);

/** Template at theta [n_par] on the wavelengths of a spectrum and with its line-spread function;
 *  its flux, ivar, mask and systematic are ignored.  flux [n_pix] out, NaN beyond the arms.
 */
STARMILL_API int starmill_template(starmill_library *library, const starmill_spectrum *spectrum,
                                   const double *theta, float *flux, starmill_error *error);

/** Where a fit would start: templates that match best at all velocities, the best first.
 *
 *  theta [n_most][n_par]  out
 *  chisq [n_most]         out  only differences have a meaning
 *  n                      out  how many there are */
STARMILL_API int starmill_guess(starmill_library *library, const starmill_star *star, int n_most,
                                double *theta, double *chisq, int *n, starmill_error *error);

/* ---- fits and results ------------------------------------------------------------------------ */

/** Fit stars.
 *
 *  star [n]
 *  start [n][n_start][n_label + 2]  parameters to start from; the best solution of them is kept.
 *                                   NULL: the initial guess
 *
 *  The table has a row for each star, in their order, with the columns of /fits of a result file
 *  (docs/use/formats.md); STATUS says which could not be fitted. */
STARMILL_API int starmill_fit(starmill_library *library, const starmill_star *const *star, int n,
                              const double *start, int n_start, starmill_table **table,
                              starmill_error *error);

/** Open a result file of `starmill fit`. */
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
  STARMILL_TEXT /* n_value bytes, zeros behind the text */
};

/** A column: n_row x n_value values of a type.  Everything lasts as long as the table. */
typedef struct starmill_column {
  const char *name, *unit, *description;
  int type; /* enum starmill_type */
  int n_value;
  const void *data;
} starmill_column;

/** Column by number; its data are not read: NULL in a table of a file. */
STARMILL_API int starmill_table_column_at(const starmill_table *table, int i_column,
                                          starmill_column *column, starmill_error *error);
/** Column by name: one of /fits, or of a file "catalog/IDENTIFIER". */
STARMILL_API int starmill_table_column(starmill_table *table, const char *name,
                                       starmill_column *column, starmill_error *error);

/** Parameters of a row of the library's results, theta [n_par] out: for starmill_model_create. */
STARMILL_API int starmill_table_theta(const starmill_library *library, starmill_table *table,
                                      int64_t i_row, double *theta, starmill_error *error);

/* end */

#ifdef __cplusplus
}
#endif

#endif
