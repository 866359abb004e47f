/* SPDX-License-Identifier: BSD-3-Clause */
/** Configuration of `starmill fit`: a YAML file, whose keys the command line overrides.
 *
 *  Keys shared with rvspecfit have its names.  Unknown keys, wrong types and values out of range
 *  are MILL_ERR_CONFIG, with file, line and key in the message. */
#pragma once

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
  MILL_SN_SCORES      /**< taken from the survey: DESI's SCORES or 4MOST's SNR */
};

/** Rows to fit if target_classes and redrock are both set: rows that either selects, or both. */
enum mill_select_by { MILL_SELECT_BY_ANY = 0, MILL_SELECT_BY_ALL };

enum { MILL_MAX_TARGET_CLASS = 16 };

/** Selection of the input's rows. */
typedef struct mill_selection {
  mill_star_list *star; /**< stars to fit, sorted, owned; NULL: all */
  double min_sn;        /**< least S/N of the arm with the highest S/N; -inf: no limit */
  enum mill_sn_source sn_source;
  int n_objtype; /**< OBJTYPE values kept; 0: all but SKY and BAD */
  char objtype[8][32];
  int redrock; /**< keep only SPECTYPE STAR or |z| c < redrock_max_vel */
  /** empty: the input's path with coadd- or spectra- replaced by redrock- */
  char redrock_file[1024];
  double redrock_max_vel_km_s;
  uint64_t fiberstatus_allowed; /**< FIBERSTATUS bits that may be set */
  int n_target_class;           /**< 0: no selection by class */
  /** regular expressions for the beginning of class names */
  char target_class[MILL_MAX_TARGET_CLASS][64];
  enum mill_select_by select_by;
  int min_exp_id, max_exp_id; /**< range of EXPID kept; 0: no limit */
} mill_selection;

/** Fixed value (sigma unused) or Gaussian prior of the parameter of this name. */
typedef struct mill_named_value {
  char name[MILL_MAX_NAME];
  double value, sigma;
} mill_named_value;

/** How single exposures of an object are fitted. */
enum mill_exposures {
  MILL_EXPOSURES_COADD = 0, /**< the file's coadd, if it has one */
  MILL_EXPOSURES_SINGLE,    /**< every exposure a row */
  MILL_EXPOSURES_JOINT      /**< all exposures of an object in one row */
};

/** Source of the line-spread function (LSF). */
enum mill_lsf_source {
  /** the first that exists of the file's matrix, the file's sigma and the configured width */
  MILL_LSF_AUTO = 0,
  MILL_LSF_MATRIX,
  MILL_LSF_SIGMA,
  MILL_LSF_RESOLVING_POWER, /**< sigma = wavelength / (2.3548 R), or an arm's fwhm / 2.3548 */
  MILL_LSF_OFF              /**< templates are at the instrument's resolution */
};

enum mill_medium { MILL_MEDIUM_AUTO = 0, MILL_MEDIUM_VACUUM, MILL_MEDIUM_AIR };

/** Settings of an arm: an entry of the key arms. */
typedef struct mill_arm_choice {
  char arm[MILL_MAX_NAME];
  double min_aa, max_aa; /**< wavelength range used; 0 and inf: all */
  /** spectrograph channel to fit with this arm; empty: found by name, then by wavelength */
  char channel[MILL_MAX_NAME];
  double resolving_power; /**< 0: use mill_config's */
  double fwhm_aa;         /**< FWHM of the LSF, used instead of a resolving power; 0: none */
  int sampling;           /**< use every sampling-th grid point; 0: chosen by the program */
  /** not a setting: highest resolving power that this format's files have; 0: unknown */
  double most_power;
} mill_arm_choice;

typedef struct mill_config {
  char template_lib[MILL_MAX_LIBRARY][1024]; /**< library files */
  int n_template_lib;
  char start[1024];    /**< table of start values; empty: start from the initial guess */
  char start_hash[65]; /**< SHA-256 of the start table, set by the table's reader; not a setting */
  char prior_table[1024];    /**< table of priors by star; empty: none */
  char prior_hash[65];       /**< SHA-256 of the prior table; not a setting */
  char sky_components[1024]; /**< file of the sky's components; empty: none */
  char sky_hash[65];         /**< SHA-256 of the sky's components; not a setting */
  mill_fit_settings fit;     /**< fixed values and priors are set by mill_config_bind */
  mill_selection select;
  int n_fixed, n_prior;
  mill_named_value fixed[MILL_MAX_PAR], prior[MILL_MAX_PAR];
  int n_arm; /**< arms to use; 0: all arms of the library */
  mill_arm_choice arm[MILL_MAX_ARM];
  char cameras_of[16]; /**< format whose cameras are the arms; empty: none; not a setting */
  char format[16];     /**< auto, or a format's name */
  enum mill_exposures exposures;
  int join_by_name;          /**< 1: join the rows of an object, found by name, into one fit */
  double join_radius_arcsec; /**< also join rows within this distance; 0: by name alone */
  enum mill_lsf_source lsf;
  double resolving_power;  /**< 0: none */
  double lsf_factor;       /**< factor applied to the line-spread sigma of files */
  enum mill_medium medium; /**< medium of files' wavelengths; AUTO: as each file says */
  int wave_mask_auto;      /**< 1: fit.wave_mask is the default, for DESI files only */
  /* the members below may change when a run is continued */
  int n_thread; /**< fit threads per rank; 0: all cores available to the rank */
  int n_reader; /**< threads per rank that read spectra, at most MILL_MAX_READER; 0: the default */
  int n_slot;   /**< stars that a rank fits at once; 0: the default */
  double write_interval_s;
  double gzip_limit_mib; /**< largest unpacked size of a .gz input */
  char scratch[1024];    /**< folder where .gz inputs are unpacked; empty: TMPDIR or /tmp */
  char backend[16];      /**< auto, cpu, cuda, cuda+cpu */
  char log_level[16];    /**< error, warning, info, debug */
} mill_config;

/** Defaults, as documented in docs/use/configuration.md. */
void mill_config_default(mill_config *config);

/** Free the configuration's memory; NULL is allowed. */
void mill_config_clear(mill_config *config);

/** Read a YAML file, replace values of config by its keys, and check the result.  Messages are
 *  "FILE:LINE: key: problem; remedy".  config is unchanged on failure.  MILL_ERR_CONFIG,
 *  MILL_ERR_MEMORY. */
int mill_config_read(mill_config *config, const char *path);

/** Like mill_config_read, for a text [n_text] in memory; name stands for the file in messages. */
int mill_config_read_text(mill_config *config, const char *name, const char *text, size_t n_text);

/** Return the table row of a key; NULL: unknown key. */
const mill_option *mill_config_key_of(const char *name);

/** Set a key from the text of a command-line option (named without dashes).  MILL_ERR_USAGE
 *  names the option, its allowed values and the text. */
int mill_config_set(mill_config *config, const char *key, const char *option, const char *text);

/** Check values, also against each other.  The message of MILL_ERR_CONFIG begins with the key. */
int mill_config_check(const mill_config *config);

/** Check the configuration against a library; set fixed values, priors and min_sn in config->fit.
 *  Parameter names are vrad, vsini and the library's labels.  is_first: 0 for a further library,
 *  which may lack labels of the first.  config->fit is untouched on failure.  MILL_ERR_CONFIG. */
int mill_config_bind(mill_config *config, const mill_library *lib, int is_first);

/** Print the configuration as YAML; mill_config_read restores it bit for bit.  MILL_ERR_OUTPUT;
 *  MILL_ERR_CONFIG if config fails mill_config_check. */
int mill_config_print(const mill_config *config, FILE *out);

/** Print the tables of docs/use/configuration.md (Markdown).  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_config_print_keys(FILE *out);

/** Write the keys that identify a run (science and selection) as a text, which the caller frees by
 *  free().
 *
 *  Keys are sorted by name, and so are lists whose order means nothing.  template_lib is left
 *  out, because the result keeps the library's hash.  start, prior_table and sky_components are
 *  replaced by their hashes; a missing hash is MILL_ERR_INTERNAL.  Also MILL_ERR_CONFIG,
 *  MILL_ERR_MEMORY. */
int mill_config_identity(const mill_config *config, char **text);
