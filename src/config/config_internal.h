/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared declarations of src/config/. */
#ifndef MILL_CONFIG_INTERNAL_H
#define MILL_CONFIG_INTERNAL_H

#include "src/config/config.h"
#include "src/config/option.h"

enum {
  MILL_MAX_MASK_BIT = 64, /* of mill_selection.fiberstatus_allowed */
  MILL_N_KEY = 64
};

#define MILL_MAX_RADIUS 60  /* arcsec: larger radii would join different stars */
#define MILL_MIN_POWER  10  /* resolving power: below, no stellar line is seen */
#define MILL_MAX_POWER  1e7 /* resolving power: above any stellar spectrograph */
#define MILL_MAX_FWHM   1e3 /* A: largest fwhm of an arm */

/* All keys, in the order of the documentation and of --print-config. */
extern const mill_option mill_config_key[MILL_N_KEY];

/* A field of an item of a list: {name: value, ...}. */
typedef struct mill_field {
  const char *name;
  enum {
    MILL_FIELD_TEXT,
    MILL_FIELD_REAL,
    MILL_FIELD_WHOLE
  } kind; /* char[MILL_MAX_NAME], double, int */
  size_t offset;
  double usual;       /* default, not printed; NAN: no default, always printed */
  const char *needed; /* for the message if the field is missing; NULL: it may be missing */
} mill_field;
extern const mill_field mill_arm_field[]; /* of mill_arm_choice; ends with a field without a name */

/* A key whose value is a list of such items. */
typedef struct mill_items {
  const char *key;
  size_t offset, offset2, size; /* places of list and number of items in mill_config; item's size */
  int most;
  int is_named;                     /* 1: an item may be just the value of its first field */
  const char *list, *item, *wanted; /* for messages: "a list of names", "an arm", "{name: NAME}" */
  const mill_field *field;
} mill_items;
/* The items of a key; NULL: its value is not a list of items. */
const mill_items *mill_config_items(const mill_option *key);

/* Index of a key, -1 when it is unknown. */
int mill_config_find_key(const char *name);

/* What a check found wrong: a key, the key that it clashes with (NULL: none), an item of its
 * list. */
typedef struct mill_config_fault {
  const char *key, *other;
  int item; /* 0-based; -1: the whole value */
} mill_config_fault;

/* mill_config_check; on failure where is filled. */
int mill_config_check_where(const mill_config *config, mill_config_fault *where);

/* Read all keys of a YAML document into config and check it.  *line: line of a failure; 0:
 * unknown. */
struct yaml_document_s;
int mill_config_read_document(struct yaml_document_s *document, mill_config *config, int *line);

/* Fill *where and return MILL_ERR_CONFIG with "key: item 2: message" (item -1: without item). */
int mill_config_wrong(mill_config_fault *where, const char *key, const char *other, int item,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Is it a resolving power in range, or 0 for none? */
int mill_config_is_power(double power);
/* Check that the library has the arms and their wavelengths, and that the key lsf suits its
 * templates.  MILL_ERR_CONFIG. */
int mill_config_bind_arms(const mill_config *config, const mill_library *lib);
/* Thin an arm to every factor-th grid point, of which at least MILL_THINNED_POINTS must be left, else
 * it stays; the emulator's last layer is low-pass filtered.  MILL_ERR_MEMORY. */
enum { MILL_THINNED_POINTS = 128 };
int mill_arm_thin(int factor, mill_arm *arm);

#endif
