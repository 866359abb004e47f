/* SPDX-License-Identifier: BSD-3-Clause */
/** Configuration of `starmill fit`: a YAML file, overridden by the command line.
 *
 *  Keys have rvspecfit's names where it has them.  Unknown keys, wrong types and values out of
 *  range are MILL_ERR_CONFIG, with file, line and key in the message.
 */
#ifndef MILL_CONFIG_H
#define MILL_CONFIG_H

#include <stdio.h>

#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "src/config/option.h"
#include "src/config/star_list.h"

#define MILL_FWHM_SIGMA 2.3548200450309493 /**< FWHM over sigma of a Gaussian: 2 sqrt(2 ln 2) */

/** Largest mill_arm_choice.sampling. */
enum { MILL_MAX_SAMPLING = 4 };

/** Most reader threads of a rank. */
enum { MILL_MAX_READER = 16 };

/** Source of the S/N that is compared with min_sn. */
enum mill_sn_source {
  MILL_SN_PIXELS = 0, /**< measured when the pixels are read */
  MILL_SN_SCORES      /**< the survey's own, of DESI's SCORES */
};

/** Combination of target classes and redrock where both select. */
enum mill_select_by { MILL_SELECT_BY_ANY = 0, MILL_SELECT_BY_ALL };

enum { MILL_MAX_TARGET_CLASS = 16 };

/** Selection of the input's rows. */
typedef struct mill_selection {
  mill_star_list *star; /**< sorted, owned; NULL: all */
  double min_sn;        /**< against the largest of the arms' S/N; -inf: none */
  enum mill_sn_source sn_source;
  int n_objtype; /**< OBJTYPE values kept; 0: all but SKY and BAD */
  char objtype[8][16];
  int redrock;             /**< keep only SPECTYPE STAR or |z| c < redrock_max_vel */
  char redrock_file[1024]; /**< empty: in the input's folder, coadd-/spectra- -> redrock- */
  double redrock_max_vel_km_s;
  uint64_t fiberstatus_allowed;                 /**< FIBERSTATUS bits that may be set */
  int n_target_class;                           /**< 0: nothing is selected by classes */
  char target_class[MILL_MAX_TARGET_CLASS][64]; /**< regular expressions on names of classes */
  enum mill_select_by select_by;
  int min_exp_id, max_exp_id; /**< EXPID kept; 0: no limit */
} mill_selection;

/** A fixed value or a prior, by parameter name until the library is known. */
typedef struct mill_named_value {
  char name[MILL_MAX_NAME];
  double value, sigma;
} mill_named_value;

/** How single exposures of an object are fitted. */
enum mill_exposures {
  MILL_EXPOSURES_COADD = 0, /**< the file's own coadd, where there is one */
  MILL_EXPOSURES_SINGLE,    /**< every exposure a row */
  MILL_EXPOSURES_JOINT      /**< all exposures of an object in one row */
};

/** Source of the line-spread function (LSF). */
enum mill_lsf_source {
  MILL_LSF_AUTO = 0, /**< the file's matrix, else its sigma, else the configured width, else none */
  MILL_LSF_MATRIX,
  MILL_LSF_SIGMA,
  MILL_LSF_RESOLVING_POWER, /**< sigma = wavelength / (2.3548 R), or an arm's fwhm / 2.3548 */
  MILL_LSF_OFF              /**< templates are at the instrument's resolution */
};

enum mill_medium { MILL_MEDIUM_AUTO = 0, MILL_MEDIUM_VACUUM, MILL_MEDIUM_AIR };

/** `arms` of the configuration, one entry per arm used. */
typedef struct mill_arm_choice {
  char arm[MILL_MAX_NAME];
  double min_aa, max_aa;       /**< pixels used; 0 and inf: all */
  char channel[MILL_MAX_NAME]; /**< the channel it takes; empty: by name, then by wavelength */
  double resolving_power;      /**< 0: the general one */
  double fwhm_aa;              /**< FWHM of the LSF, used instead of a resolving power; 0: none */
  int sampling;                /**< use every sampling-th grid point; 0: chosen by the program */
  double most_power; /**< of a format's camera: upper limit of the resolving power in its files; 0:
                        unknown; not a setting */
} mill_arm_choice;

typedef struct mill_config {
  char template_lib[MILL_MAX_LIBRARY][1024]; /**< library files */
  int n_template_lib;
  char start[1024];       /**< table that fits start from; empty: none, the guess */
  char start_hash[65];    /**< of its contents, set by the table's reader; not a setting */
  char prior_table[1024]; /**< table of priors by star; empty: none */
  char prior_hash[65];    /**< the same of prior_table */
  mill_fit_settings fit;  /**< fixed and priors only after mill_config_bind */
  mill_selection select;
  int n_fixed, n_prior;
  mill_named_value fixed[MILL_MAX_PAR], prior[MILL_MAX_PAR];
  int n_arm; /**< arms to use; 0: all of the library */
  mill_arm_choice arm[MILL_MAX_ARM];
  char cameras_of[16]; /**< format whose cameras are the arms; empty: none; not a setting */
  char format[16];     /**< auto, or a format's name */
  enum mill_exposures exposures;
  int join_by_name;          /**< rows of one object (by name) are joined */
  double join_radius_arcsec; /**< with it also rows within this distance; 0: only by name */
  enum mill_lsf_source lsf;
  double resolving_power;  /**< 0: none */
  double lsf_factor;       /**< multiplies the sigma of files */
  enum mill_medium medium; /**< overrides what the file says */
  int wave_mask_auto;      /**< 1: fit.wave_mask is the default, for DESI files only */
  /* operation: may differ between runs that continue one another */
  int n_thread; /**< per rank; 0: the cores the rank may use */
  int n_reader; /**< threads per rank that read spectra, at most MILL_MAX_READER; 0: the default */
  int n_slot;   /**< stars at once per rank; 0: the default */
  double write_interval_s;
  double gzip_limit_mib; /**< largest unpacked size of a .gz input */
  char scratch[1024];    /**< where .gz inputs are unpacked; empty: TMPDIR or /tmp */
  char backend[16];      /**< auto, cpu, cuda, cuda+cpu */
  char log_level[16];    /**< error, warning, info, debug */
} mill_config;

/** Defaults, as documented in docs/use/configuration.md. */
void mill_config_default(mill_config *config);

/** Free the configuration's memory; NULL is allowed. */
void mill_config_clear(mill_config *config);

/** Read a YAML file, whose keys replace values of config, and check the result.  Messages are
 *  "FILE:LINE: key: problem; remedy".  config is untouched on failure.  MILL_ERR_CONFIG,
 *  MILL_ERR_MEMORY. */
int mill_config_read(mill_config *config, const char *path);

/** mill_config_read of a text [n_text] in memory; messages call it name. */
int mill_config_read_text(mill_config *config, const char *name, const unsigned char *text,
                          size_t n_text);

/** Table row of a key; NULL when it is unknown. */
const mill_option *mill_config_key_of(const char *name);

/** Set a key by an option of the command line (named without dashes).  MILL_ERR_USAGE names the
 *  option, what it takes, and text. */
int mill_config_set(mill_config *config, const char *key, const char *option, const char *text);

/** Check ranges, and keys that depend on each other.  MILL_ERR_CONFIG; the message starts with the
 *  key. */
int mill_config_check(const mill_config *config);

/** Check the configuration, resolve names of fixed parameters, priors and arms in a library, and
 *  set config->fit by them (fit.min_sn too).  Parameters are vrad, vsini and the library's labels.
 *  config->fit is untouched on failure.  MILL_ERR_CONFIG. */
int mill_config_bind(mill_config *config, const mill_library *lib);

/** Print the configuration as YAML, from which mill_config_read gets the same bits.
 *  MILL_ERR_CONFIG if it fails mill_config_check, MILL_ERR_OUTPUT. */
int mill_config_print(const mill_config *config, FILE *out);

/** Print the tables of docs/use/configuration.md (Markdown).  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_config_print_keys(FILE *out);

/** Text of the keys that make the identity of a run (science and selection), for free().
 *
 *  Keys are sorted by name, lists in a fixed order where their order means nothing.  template_lib
 *  is left out: the result keeps the library's hash.  start and prior_table stand as their hashes,
 *  which must be set: else MILL_ERR_INTERNAL.  MILL_ERR_CONFIG, MILL_ERR_MEMORY. */
int mill_config_identity(const mill_config *config, char **text);

#endif
