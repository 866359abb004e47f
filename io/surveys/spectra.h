/* SPDX-License-Identifier: BSD-3-Clause */
/** Spectra of any survey behind one interface: formats, channels, arms.
 *
 *  A FORMAT (a table of functions per survey: desi.c, sdss.c, ...) knows the layout of its files.
 *  It gives CHANNELS: one spectrum of one exposure, with its own wavelengths.  This module
 *  recognises the format, gives each channel's pixels to the library's ARMS, and holds the pixels
 *  of a batch.
 *
 *  A channel with the name of an arm goes to that arm, as a whole or as far as the key arms and the
 *  templates reach.  Any other channel is cut by wavelength: each pixel goes to the arm whose
 *  usable range contains it, which is the templates' range less the Doppler shift at the velocity
 *  limits. Two overlapping arms are cut in the middle of the overlap; pixels beyond all arms are
 *  dropped.  The key arms may narrow an arm's range, or name the channel that it takes.
 *
 *  Velocities are in the frame of the file's wavelengths, which every format reports; nothing is
 *  corrected silently.
 */
#ifndef MILL_SPECTRA_H
#define MILL_SPECTRA_H

#include "io/catalog/catalog_row.h"
#include "io/fits/fits_file.h"
#include "io/surveys/arena.h"
#include "kernels/data/star.h"
#include "src/config/config.h"

/** Frame of the wavelengths of a file, for the log and the provenance. */
enum mill_frame {
  MILL_FRAME_UNKNOWN,
  MILL_FRAME_BARYCENTRIC,
  MILL_FRAME_HELIOCENTRIC,
  MILL_FRAME_TOPOCENTRIC
};

/** One spectrum, as a format gives it; all pointers are borrowed for the call.
 *
 *  sigma_aa [n_pix]  Gaussian sigma of the line-spread function, A, pixel included; NULL: unknown
 *  resolution        resolution matrix, as in mill_raw_segment; NULL: none
 */
typedef struct mill_channel {
  char name[MILL_MAX_NAME]; /**< lower case: b, r, z, coadd, blue, red */
  int n_pix, n_diag;
  const double *wave_aa; /**< [n_pix] ascending; vacuum unless air is set */
  int air;               /**< 1: wavelengths in air, which are converted here */
  const float *flux, *ivar;
  const int32_t *mask;
  const float *resolution;
  const float *sigma_aa;
} mill_channel;

/** Result of mill_spectra_read; the next call reuses its memory.  Zero it first, except for
 *  arena.backend. */
typedef struct mill_read_batch {
  int n_segment;
  mill_raw_segment *segment; /**< [n_segment], sorted by exposure (index into the request), then
                              *   arm; i_file is not set */
  int64_t segment_room;
  mill_arena arena; /**< memory of the segments' arrays */
} mill_read_batch;

void mill_read_batch_clear(mill_read_batch *batch); /* NULL is allowed */

/** Bytes allocated for a batch. */
size_t mill_read_batch_bytes(const mill_read_batch *batch);

typedef struct mill_spectra mill_spectra;

/** Arguments for opening; borrowed until close. */
typedef struct mill_spectra_settings {
  const mill_library *lib;
  const mill_config *config; /**< bound to lib; format, exposures, arms, lsf, ... */
  int arm_wanted[MILL_MAX_ARM];
  mill_open_limits limits;
} mill_spectra_settings;

/** May several threads read at once, each its own files?  Depends on how CFITSIO was built. */
int mill_spectra_threads(void);

/** Open and check a file, and recognise its format.  A file belongs to one thread at a time;
 *  several may be open, in several threads if mill_spectra_threads().  MILL_ERR_INPUT names file
 *  and HDU and says what to do; MILL_ERR_OUTPUT as mill_fits_guard_open. */
int mill_spectra_open(const char *path, const mill_spectra_settings *settings, mill_spectra **out);
void mill_spectra_close(mill_spectra *spectra); /* NULL is allowed */

const char *mill_spectra_format_name(const mill_spectra *spectra);
int mill_spectra_frame(const mill_spectra *spectra); /**< enum mill_frame */

/** Select rows and list them in index.  index->exposure_row holds the format's own numbers of
 *  exposures: FITS rows, HDUs, ... */
int mill_spectra_index(mill_spectra *spectra, const mill_selection *select, mill_file_index *index);

/** Read n exposures, numbered as in the index.  An exposure has a segment for each piece of a
 *  channel in an arm: none, one or several per arm.  MILL_ERR_INPUT. */
int mill_spectra_read(mill_spectra *spectra, const int64_t *exposure, int n,
                      mill_read_batch *batch);

/** Read only the wavelengths of n exposures: segments without pixels. */
int mill_spectra_waves(mill_spectra *spectra, const int64_t *exposure, int n,
                       mill_read_batch *batch);

/** Name, as in the file, of the channel of a segment of the last mill_spectra_read. */
const char *mill_spectra_channel(const mill_spectra *spectra, const mill_raw_segment *segment);

/** The unit of the fluxes of such a segment, as FITS writes units; "" where it is not known. */
enum { MILL_FLUX_UNIT = 96 };
int mill_spectra_flux_unit(mill_spectra *spectra, const mill_raw_segment *segment,
                           char unit[MILL_FLUX_UNIT]);

/** "barycentric", "heliocentric", "topocentric" or "unknown". */
const char *mill_frame_name(int frame);

/** Enum mill_frame whose name agrees in the first n letters, ignoring case; unknown if none
 *  does. */
int mill_frame_from_name(const char *text, size_t n);

/* ---- for formats, during their read ---------------------------------------------------------- */

/** Add a channel to the batch being read.  Pixels are copied, unless they lie in memory of
 *  mill_spectra_alloc.  wave_aa must ascend.  n_diag > 0 with resolution NULL: the channel has a
 *  resolution matrix, which was not wanted. */
int mill_spectra_add(mill_spectra *spectra, int i_exposure, const mill_channel *channel);

/** Memory that lasts as long as the batch being read: not zeroed, 64-byte aligned. */
int mill_spectra_alloc(mill_spectra *spectra, size_t n_byte, void **out);

enum mill_wants {
  MILL_WANTS_CHANNEL = 1, /**< add the channel */
  MILL_WANTS_PIXELS = 2,  /**< with its pixels */
  MILL_WANTS_MATRIX = 4   /**< with its resolution matrix */
};

/** Which data of a channel are wanted?  *wants: bits of enum mill_wants.  Set name, n_pix, wave_aa,
 *  air, n_diag (above 0: it has a matrix) and sigma_aa (not NULL: it has widths); pixels need not
 *  be read yet.  A format need not ask: unwanted data are ignored. */
int mill_spectra_wants(mill_spectra *spectra, const mill_channel *channel, int *wants);

/** Properties by which only some formats can select rows. */
enum mill_selects {
  MILL_SELECTS_CLASSES = 1, /**< select->target_class */
  MILL_SELECTS_SCORES = 2,  /**< select->sn_source */
  MILL_SELECTS_EXP_ID = 4,  /**< select->min_exp_id, max_exp_id */
  MILL_SELECTS_REDROCK = 8  /**< select->redrock_file */
};

/** A format: one constant table. */
typedef struct mill_format {
  const char *name;        /**< as --format takes it */
  const char *description; /**< one line for --help and messages */
  /** 1 when the checked file looks like this format; headers only. */
  int (*recognise)(const mill_fits_guard *guard);
  /** Bytes of the format's state.  It begins with mill_fits_file *, set to the borrowed file; the
   *  rest is zero before open. */
  size_t state_bytes;
  /** Check the structure of the file; set *frame (enum mill_frame) if it is known. */
  int (*open)(void *state, const mill_spectra_settings *settings, int *frame);
  /** Free what the state owns; called also after a failure.  NULL: it owns nothing. */
  void (*close)(void *state);
  /** Fill a zeroed index: rows, exposures, n_fits_row.  The caller clears it after a failure. */
  int (*index)(void *state, const mill_selection *select, mill_file_index *index);
  /** Call mill_spectra_add for every channel of the exposures. */
  int (*read)(void *state, mill_spectra *spectra, const int64_t *exposure, int n);
  /** The unit of a channel's fluxes as they were given; "" where it is not known.  NULL: never. */
  int (*flux_unit)(void *state, const char *channel, char unit[MILL_FLUX_UNIT]);
  unsigned selects; /**< bits of enum mill_selects */
  /** Its cameras [n_camera], which become the arms if the configuration names none; see
   *  mill_config_take_cameras. */
  const mill_arm_choice *camera;
  int n_camera;
  int cameras_are_channels; /**< 1: each camera has a channel of its name */
  double lsf_width_error;   /**< default of the key lsf_width_error */
} mill_format;

extern const mill_format mill_format_desi, mill_format_sdss, mill_format_lamost,
    mill_format_lamost_mrs, mill_format_weave, mill_format_fourmost, mill_format_pfs,
    mill_format_generic;

/** As mill_spectra_open, but only with these formats [n_format]. */
int mill_spectra_open_as(const char *path, const mill_spectra_settings *settings,
                         const mill_format *const *formats, int n_format, mill_spectra **out);

/** Make a source of spectra in memory, for mill_spectra_read alone.  format: only `read` is needed.
 *  name: for messages.  The caller owns state.  MILL_ERR_MEMORY. */
int mill_spectra_open_memory(const char *name, const mill_spectra_settings *settings,
                             const mill_format *format, void *state, mill_spectra **out);

#endif
