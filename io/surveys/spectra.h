/* SPDX-License-Identifier: BSD-3-Clause */
/** One interface for spectra of all surveys.
 *
 *  format   functions that read one survey's files (desi.c, sdss.c, ...)
 *  channel  spectrum of one exposure with its own wavelengths, which a format adds
 *  arm      wavelength range of the library, to which this module assigns pixels of channels
 *
 *  A channel with the name of an arm goes to this arm.  Any other channel is cut by wavelength: a
 *  pixel goes to the arm whose usable range contains it, or is dropped.  The usable range is
 *  the templates' range, less the Doppler shift at the velocity limits.  Two overlapping arms are
 *  cut in the middle of the overlap.  The key `arms` may narrow an arm's range or name its channel.
 *
 *  Wavelengths stay in the frame of the file, and velocities are in this frame. */
#pragma once

#include "io/catalog/catalog_row.h"
#include "io/fits/fits_file.h"
#include "kernels/base/memory.h"
#include "kernels/data/star.h"
#include "src/config/config.h"

/** Frame of a file's wavelengths, for the log and the provenance. */
enum mill_frame {
  MILL_FRAME_UNKNOWN,
  MILL_FRAME_BARYCENTRIC,
  MILL_FRAME_HELIOCENTRIC,
  MILL_FRAME_TOPOCENTRIC
};

/** A spectrum from a format; all pointers are borrowed for the call.
 *
 *  sigma_aa [n_pix]  Gaussian sigma (A) of the line-spread function, pixel included; NULL: unknown
 *  resolution        resolution matrix with n_diag diagonals, as in mill_raw_segment; NULL: none */
typedef struct mill_channel {
  char name[MILL_MAX_NAME]; /**< lower case: b, r, z, coadd, blue, red */
  int n_pix, n_diag;
  const double *wave_aa; /**< [n_pix] ascending; vacuum unless air is set */
  int air;               /**< 1: wavelengths in air, which this module converts */
  const float *flux, *ivar;
  const int32_t *mask;
  const float *resolution;
  const float *sigma_aa;
  int sigma_is_whole; /**< 1: sigma_aa includes the pixel width, so lsf_factor does not apply */
} mill_channel;

/** Memory that is handed out in pieces and freed as a whole. */
typedef struct mill_arena {
  const struct mill_backend *backend; /**< its `pin` allocates; NULL: ordinary memory */
  struct mill_arena_block *block;
  int64_t n_block, room;
} mill_arena;

/** Result of mill_spectra_read, which reuses its memory.  Zero all but arena.backend before use. */
typedef struct mill_read_batch {
  int n_segment;
  mill_raw_segment *segment; /**< [n_segment] sorted by exposure and arm; i_file is not set */
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

/** Why arms take a channel: an arm's key `channel`, an arm's name, else its wavelengths. */
enum mill_channel_rule { MILL_BY_CHOICE, MILL_BY_NAME, MILL_BY_WAVE };

/** Return the arms that take a channel, as bits; *rule: the rule that decided.  If the channel
 *  has the name of an arm that is not fitted, no other arm takes it: the bits are 0. */
unsigned mill_spectra_takers(const mill_spectra_settings *settings, const char *channel,
                             enum mill_channel_rule *rule);

/** May several threads read different files at once?  Depends on how CFITSIO was built. */
int mill_spectra_threads(void);

/** Open and check a file, and recognise its format.  One thread at a time may use a file; several
 *  threads may use different files if mill_spectra_threads() is 1.
 *  MILL_ERR_INPUT: unreadable; MILL_ERR_OUTPUT: the folder for unpacked files cannot be written. */
int mill_spectra_open(const char *path, const mill_spectra_settings *settings, mill_spectra **out);
void mill_spectra_close(mill_spectra *spectra); /* NULL is allowed */
MILL_CLOSER(mill_spectra, mill_spectra_close)

const char *mill_spectra_format_name(const mill_spectra *spectra);
int mill_spectra_frame(const mill_spectra *spectra); /**< enum mill_frame */

/** List the selected rows in index.  index->exposure_row is a FITS row, or an HDU in some formats.
 *  With join_by_name, mill_join_make applies select->star later. */
int mill_spectra_index(mill_spectra *spectra, const mill_selection *select, mill_file_index *index);

/** Read n exposures, numbered as in the index, into segments.  A segment has neighbouring pixels of
 *  one channel in one arm; an exposure has none, one or several in an arm.  MILL_ERR_INPUT. */
int mill_spectra_read(mill_spectra *spectra, const int64_t *exposure, int n,
                      mill_read_batch *batch);

/** Read only the wavelengths of n exposures; their segments have no pixels. */
int mill_spectra_waves(mill_spectra *spectra, const int64_t *exposure, int n,
                       mill_read_batch *batch);

/** Channel name, as in the file, of a segment of the last mill_spectra_read. */
const char *mill_spectra_channel(const mill_spectra *spectra, const mill_raw_segment *segment);

/** FITS unit of such a segment's fluxes; "" if unknown. */
enum { MILL_FLUX_UNIT = 96 };
int mill_spectra_flux_unit(mill_spectra *spectra, const mill_raw_segment *segment,
                           char unit[MILL_FLUX_UNIT]);

/** "barycentric", "heliocentric", "topocentric" or "unknown". */
const char *mill_frame_name(int frame);

/** Return the frame whose name begins with n letters of text, any case; else MILL_FRAME_UNKNOWN. */
int mill_frame_from_name(const char *text, size_t n);

/* ---- called by formats while they read ------------------------------------------------------- */

/** Add a channel, whose wavelengths must ascend, to the batch being read.  Pixels are copied unless
 *  they lie in memory of mill_spectra_alloc.  A resolution matrix that mill_spectra_wants did not
 *  ask for may be left out: resolution NULL, n_diag above 0. */
int mill_spectra_add(mill_spectra *spectra, int i_exposure, const mill_channel *channel);

/** Get memory that lasts as long as the batch being read; not zeroed, 64-byte aligned. */
int mill_spectra_alloc(mill_spectra *spectra, size_t n_byte, void **out);

enum mill_wants {
  MILL_WANTS_CHANNEL = 1, /**< add the channel */
  MILL_WANTS_PIXELS = 2,  /**< with its pixels */
  MILL_WANTS_MATRIX = 4   /**< with its resolution matrix */
};

/** Set *wants (bits of enum mill_wants) to the data of a channel that the run needs.  A format need
 *  not ask: unwanted data are ignored.  The format must have set the channel's name, n_pix,
 *  wave_aa, air, n_diag (0: no matrix) and sigma_aa (NULL: no widths). */
int mill_spectra_wants(mill_spectra *spectra, const mill_channel *channel, int *wants);

/** Selections that only some formats support. */
enum mill_selects {
  MILL_SELECTS_CLASSES = 1, /**< select->target_class */
  MILL_SELECTS_SCORES = 2,  /**< select->sn_source */
  MILL_SELECTS_EXP_ID = 4,  /**< select->min_exp_id, max_exp_id */
  MILL_SELECTS_REDROCK = 8  /**< select->redrock_file */
};

/** A format: a constant table. */
typedef struct mill_format {
  const char *name;        /**< name for --format */
  const char *description; /**< one line for --help and messages */
  /** 1 if the checked file, by its headers alone, looks like this format */
  int (*recognise)(const mill_fits_guard *guard);
  /** Bytes of the format's state: a borrowed mill_fits_file *, then zeros before `open`. */
  size_t state_bytes;
  /** Check the structure of the file; set *frame (enum mill_frame) if known. */
  int (*open)(void *state, const mill_spectra_settings *settings, int *frame);
  /** Free the state's memory; called also after a failure.  NULL: nothing to free. */
  void (*close)(void *state);
  /** Fill a zeroed index: rows, exposures, n_fits_row.  The caller clears it after a failure. */
  int (*index)(void *state, const mill_selection *select, mill_file_index *index);
  /** Call mill_spectra_add for every channel of the exposures. */
  int (*read)(void *state, mill_spectra *spectra, const int64_t *exposure, int n);
  /** Write the FITS unit of the fluxes that `read` gives; "" if unknown.  NULL: always unknown. */
  int (*flux_unit)(void *state, const char *channel, char unit[MILL_FLUX_UNIT]);
  unsigned selects; /**< bits of enum mill_selects */
  /** [n_camera] used as arms if the configuration names none (mill_config_take_cameras) */
  const mill_arm_choice *camera;
  int n_camera;
  int cameras_are_channels; /**< 1: each camera is a channel of the same name */
  double lsf_width_error;   /**< default of the key lsf_width_error */
} mill_format;

extern const mill_format mill_format_desi, mill_format_sdss, mill_format_lamost,
    mill_format_lamost_mrs, mill_format_weave, mill_format_fourmost, mill_format_pfs,
    mill_format_generic;

/** Like mill_spectra_open, but try only formats [n_format]. */
int mill_spectra_open_as(const char *path, const mill_spectra_settings *settings,
                         const mill_format *const *formats, int n_format, mill_spectra **out);

/** Make a source of spectra in memory for mill_spectra_read, which calls format->read.
 *  name: for messages.  The caller owns state.  The key medium has no effect.  MILL_ERR_MEMORY. */
int mill_spectra_open_memory(const char *name, const mill_spectra_settings *settings,
                             const mill_format *format, void *state, mill_spectra **out);
