/* SPDX-License-Identifier: BSD-3-Clause */
/** Spectra of any survey behind one interface: formats, channels, arms.
 *
 *  A FORMAT (one table of functions per survey: desi.c, sdss.c, lamost.c, weave.c, fourmost.c
 *  and generic.c of this folder) knows where things are in its files.  It delivers CHANNELS: one
 *  spectrum of one exposure with its own wavelengths, as in the file except for vacuum wavelengths
 *  and ivar.  This module recognises the format, gives each channel to the library's arms and
 *  keeps the pixels of a batch.
 *
 *  A channel whose name is that of an arm of the library goes to that arm whole, or where the
 *  configuration gives the arm a range, what of it is in the range and in the templates' reach.
 *  Any other channel is cut by wavelength: each pixel goes to the arm whose usable
 *  range (its templates' range less the Doppler shift at the velocity limits) holds
 *  it; where two arms overlap the cut is in the middle of the overlap; pixels
 *  beyond all arms are left out.  `arms` of the configuration may narrow an arm's
 *  range or name the channels it takes.
 *
 *  Velocities are in the frame of the file's wavelengths.  Every format says what
 *  that is (heliocentric, barycentric, topocentric); nothing is corrected silently.
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

/** One spectrum as a format delivers it.  All pointers borrowed for the call.
 *
 *  sigma_aa [n_pix]  Gaussian sigma in A of the line-spread function, pixel included;
 *                    NULL: the format does not know it
 *  resolution        as mill_raw_segment has it; NULL: none
 */
typedef struct mill_channel {
  char name[MILL_MAX_NAME]; /**< lower case: b, r, z, coadd, blue, red */
  int n_pix, n_diag;
  const double *wave_aa; /**< [n_pix] ascending; vacuum unless air is set */
  int air;               /**< 1: air wavelengths, to be converted */
  const float *flux, *ivar;
  const int32_t *mask;
  const float *resolution;
  const float *sigma_aa;
} mill_channel;

/** Result of mill_spectra_read; its memory is reused by the next call.  Zero it before, but for the
 *  arena's backend. */
typedef struct mill_read_batch {
  int n_segment;
  mill_raw_segment *segment; /**< [n_segment], ordered by exposure, then arm; exposure: index
                              *   into the request, i_file means nothing */
  int64_t segment_room;
  mill_arena arena; /**< the memory behind all pointers of segments */
} mill_read_batch;

void mill_read_batch_clear(mill_read_batch *batch); /* NULL is allowed */

/** Bytes of memory behind it. */
size_t mill_read_batch_bytes(const mill_read_batch *batch);

typedef struct mill_spectra mill_spectra;

/** Arguments for opening; borrowed until close. */
typedef struct mill_spectra_settings {
  const mill_library *lib;
  const mill_config *config; /**< bound to lib; format, exposures, arms, lsf, ... */
  int arm_wanted[MILL_MAX_ARM];
  mill_open_limits limits;
} mill_spectra_settings;

/** 1: several threads may read at once, each its own files.  It depends on how CFITSIO was built.
 */
int mill_spectra_threads(void);

/** Open, check and recognise.  A file belongs to one thread at a time, and several may be open,
 *  in several threads if mill_spectra_threads().
 *  MILL_ERR_INPUT names file, HDU and what to do (a file of no known format: which
 *  ones there are, and that --format forces one); MILL_ERR_OUTPUT as mill_desi_open. */
int mill_spectra_open(const char *path, const mill_spectra_settings *settings, mill_spectra **out);
void mill_spectra_close(mill_spectra *spectra); /* NULL is allowed */

const char *mill_spectra_format_name(const mill_spectra *spectra);
int mill_spectra_frame(const mill_spectra *spectra); /**< enum mill_frame */

/** Select rows, as mill_desi_index.  index->exposure_row holds the format's own
 *  numbers of exposures: a FITS row, an HDU, ... */
int mill_spectra_index(mill_spectra *spectra, const mill_selection *select, mill_file_index *index);

/** Read n exposures (numbers from the index).  An arm that an exposure lacks has no
 *  segment; one with several channels in an arm has several.  MILL_ERR_INPUT. */
int mill_spectra_read(mill_spectra *spectra, const int64_t *exposure, int n,
                      mill_read_batch *batch);

/** The same without pixels: segments have wavelengths only. */
int mill_spectra_waves(mill_spectra *spectra, const int64_t *exposure, int n,
                       mill_read_batch *batch);

/** The channel's name, as the file has it, of a segment of the last mill_spectra_read. */
const char *mill_spectra_channel(const mill_spectra *spectra, const mill_raw_segment *segment);

/** The unit of the fluxes of such a segment, as FITS writes units; "" where it is not known. */
enum { MILL_FLUX_UNIT = 96 };
int mill_spectra_flux_unit(mill_spectra *spectra, const mill_raw_segment *segment,
                           char unit[MILL_FLUX_UNIT]);

/** "barycentric", "heliocentric", "topocentric" or "unknown". */
const char *mill_frame_name(int frame);

/** The frame whose name has the same first n letters, in any case; unknown: none. */
int mill_frame_from_name(const char *text, size_t n);

/* ---- for formats, from within their read --------------------------------------------------- */

/** Give a channel to the batch under way.  Pixels are copied, unless they lie in memory of
 *  mill_spectra_alloc.  wave_aa must be ascending.  With n_diag > 0 and no resolution the
 *  channel has a matrix that is not wanted. */
int mill_spectra_add(mill_spectra *spectra, int i_exposure, const mill_channel *channel);

/** Memory of the batch under way, lasting as long as it does, not zeroed, 64-byte aligned. */
int mill_spectra_alloc(mill_spectra *spectra, size_t n_byte, void **out);

enum mill_wants {
  MILL_WANTS_CHANNEL = 1, /**< some of it concerns this run: add it */
  MILL_WANTS_PIXELS = 2,  /**< with its pixels */
  MILL_WANTS_MATRIX = 4   /**< and its resolution matrix */
};

/** Which data of a channel are wanted, before its pixels are read: name, n_pix, wave_aa and air
 *  are looked at, n_diag > 0 for "has a matrix", and sigma_aa, which must not be NULL if the
 *  channel has it. *wants: bits of enum mill_wants. A format need not ask: unwanted data are
 *  ignored. */
int mill_spectra_wants(mill_spectra *spectra, const mill_channel *channel, int *wants);

/** Properties by which a format can select rows, in addition to targets, OBJTYPE and redrock. */
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
  /** Bytes of the format's state, which begins with mill_fits_file *: the file, borrowed; the rest
   *  is zero. */
  size_t state_bytes;
  /** Check the structure of the file.  *frame: enum mill_frame, unknown before. */
  int (*open)(void *state, const mill_spectra_settings *settings, int *frame);
  /** Free what the state owns, also after a failure; NULL: nothing. */
  void (*close)(void *state);
  /** Rows and exposures of a zeroed index, and n_fits_row; at a failure it is cleared. */
  int (*index)(void *state, const mill_selection *select, mill_file_index *index);
  /** Calls mill_spectra_add for every channel of the exposures. */
  int (*read)(void *state, mill_spectra *spectra, const int64_t *exposure, int n);
  /** The unit of a channel's fluxes as they were given; "" where it is not known.  NULL: never. */
  int (*flux_unit)(void *state, const char *channel, char unit[MILL_FLUX_UNIT]);
  unsigned selects; /**< bits of enum mill_selects */
  /** Its cameras [n_camera]: the arms of a fit whose configuration names none; see
   *  mill_config_take_cameras. */
  const mill_arm_choice *camera;
  int n_camera;
  int cameras_are_channels; /**< 1: each camera has a channel of its name */
  double lsf_width_error;   /**< of its line-spread functions, as the key lsf_width_error */
} mill_format;

extern const mill_format mill_format_desi, mill_format_sdss, mill_format_lamost,
    mill_format_lamost_mrs, mill_format_weave, mill_format_fourmost, mill_format_pfs,
    mill_format_generic;

/** As mill_spectra_open, with formats [n_format] instead of all known ones. */
int mill_spectra_open_as(const char *path, const mill_spectra_settings *settings,
                         const mill_format *const *formats, int n_format, mill_spectra **out);

/** Spectra that are in memory: format has a `read` that adds them, and no more.  name: for
 * messages. Only for mill_spectra_read.  state is the caller's.  MILL_ERR_MEMORY. */
int mill_spectra_open_memory(const char *name, const mill_spectra_settings *settings,
                             const mill_format *format, void *state, mill_spectra **out);

/** Vacuum from air wavelength, A (Morton 2000, ApJS 130, 403, inverted as VALD does:
 *  Piskunov's fit); below 2000 A unchanged. */
double mill_air_to_vacuum(double wave_air_aa);

#endif
