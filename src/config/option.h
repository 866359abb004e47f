/* SPDX-License-Identifier: BSD-3-Clause */
/** Table row of a setting: a key of the configuration (src/config/config_keys.c) or an option of a
 *  job (jobs/options/option_table.h).
 *
 *  A row gives the setting's name, allowed values, texts of --help and documentation, and the
 *  place of its value: offset bytes from the start of a structure, the base. */
#pragma once

#include <float.h>
#include <stddef.h>

enum mill_option_kind {
  /** a heading line of --help, not an option; without a name it ends the table */
  MILL_OPTION_HEADING = 0,
  MILL_OPTION_FLAG,    /**< int: becomes 1; takes no value */
  MILL_OPTION_TEXT,    /**< const char *: borrowed from the command line */
  MILL_OPTION_PATH,    /**< char[size] */
  MILL_OPTION_WORD,    /**< char[size]: one of words */
  MILL_OPTION_CHOICE,  /**< int: index of one of words */
  MILL_OPTION_COUNT,   /**< int, min to max */
  MILL_OPTION_INTEGER, /**< int64_t, min to max */
  MILL_OPTION_REAL,    /**< double, min to max; -inf for the word `without` */
  MILL_OPTION_PAIR,    /**< double at offset and at offset2, min to max, ascending */
  MILL_OPTION_SEED,    /**< uint64_t */
  MILL_OPTION_NAMES,   /**< char[max][size]; the number of names is an int at offset2 */
  MILL_OPTION_OTHER    /**< parsed by take; keys of this kind by src/config/config_read.c */
};

typedef struct mill_option {
  const char *name; /**< name of a key, or of an option without its dashes */
  enum mill_option_kind kind;
  char letter; /**< one-letter form of an option; 0: none */
  size_t offset, size, offset2;
  double min, max;          /**< both 0: no limits */
  const char *without;      /**< word allowed in place of a REAL's number; NULL: none */
  const char *const *words; /**< ends with NULL */
  const char *argument;     /**< name of the value in --help; its type in the documentation */
  const char *help;         /**< text of --help; NULL: the key's help */
  /** Configuration key that this option sets, with its range, words and help.  kind is TEXT or
   *  FLAG: mill_config_set reads the text later. */
  const char *key;
  /** Parser of a MILL_OPTION_OTHER: stores the value of text in base; fails with MILL_ERR_USAGE.
   *  NULL: Python parses the text, and the option may be given once. */
  int (*take)(const struct mill_option *row, const char *text, void *base);
  int may_differ; /**< 1: ranks may have different values: the option does not change results */
  int once;       /**< 1: the option may be given once */
  unsigned tasks; /**< bit mask of the job's tasks that use the option; 0: all */
  /* the members below are for keys only */
  int is_identity;     /**< 1: part of a run's identity */
  const char *section; /**< heading in the documentation, set in a section's first row */
  const char *unit;
  const char *range;     /**< text that the documentation adds to min and max */
  const char *more;      /**< text that the documentation adds to help */
  const char *elsewhere; /**< name in rvspecfit */
} mill_option;

/** Initialise a row's offset and size from a structure's member. */
#define MILL_AT(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)

/** Initialise a row's words. */
#define MILL_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

#define MILL_ABOVE_0 DBL_MIN /**< min of a REAL that must exceed 0 */

/** Read the value of an option (named without dashes) into base.  MILL_ERR_USAGE: the message names
 *  the option, its allowed values and the text. */
int mill_option_read(const mill_option *row, const char *option, const char *text, void *base);

/** Return the index of a text among words, which end with NULL; -1: none. */
int mill_option_word(const char *const *words, const char *text);

/** Write the allowed values of a row, for messages: "an integer from 1 to 24". */
const char *mill_option_takes(const mill_option *row, char out[256]);

/** Write the value in base as a text; empty for a FLAG, TEXT, PATH, NAMES or OTHER. */
const char *mill_option_text(const mill_option *row, const void *base, char out[128]);

/** Like mill_option_text, for --help: empty also if the value is 0 or unset. */
const char *mill_option_shown(const mill_option *row, const void *base, char out[128]);
