/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared declarations of src/config/. */
#pragma once

#include "src/config/config.h"

enum {
  MILL_MAX_MASK_BIT = 64, /* bits of mill_selection.fiberstatus_allowed */
  MILL_N_KEY = 66
};

/* largest join_radius, arcsec: beyond it, different stars would be joined */
#define MILL_MAX_RADIUS 60
#define MILL_MIN_POWER  10  /* least resolving power: below it, no stellar line is visible */
#define MILL_MAX_POWER  1e7 /* largest resolving power: above that of any stellar spectrograph */
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
  const char *needed; /* the field's name in "lacks NAME"; NULL: the field is optional */
} mill_field;
extern const mill_field mill_arm_field[]; /* fields of mill_arm_choice; the last has no name */

/* A key whose value is a list of items, each with the fields of a mill_field table. */
typedef struct mill_items {
  const char *key;
  /* offsets in mill_config of the list and of its number of items; bytes of an item */
  size_t offset, offset2, size;
  int most;
  int is_named;                     /* 1: an item may be just the value of its first field */
  const char *list, *item, *wanted; /* for messages: "a list of names", "an arm", "{name: NAME}" */
  const mill_field *field;
} mill_items;
/* Return the item table of a key; NULL: its value is no list of items. */
const mill_items *mill_config_items(const mill_option *key);

/* A fault that a check found. */
typedef struct mill_config_fault {
  const char *key, *other; /* the wrong key; another key that contradicts it, or NULL */
  int item;                /* of the key's list, 0-based; -1: the whole value */
} mill_config_fault;

/* Like mill_config_check, but also fills *where on failure. */
int mill_config_check_where(const mill_config *config, mill_config_fault *where);

/* Read all keys of a document into config, and check it.  *line: line of a failure; 0: unknown. */
struct yaml_document_s;
int mill_config_read_document(struct yaml_document_s *document, void *config, int *line);

/* Is power 0 (none) or within the limits of a resolving power? */
int mill_config_is_power(double power);
/* Check that the library has the arms and their wavelengths, and that the key lsf suits its
 * templates.  MILL_ERR_CONFIG. */
int mill_config_bind_arms(const mill_config *config, const mill_library *lib);
/* Low-pass filter an arm's emulator along the wavelength grid and keep every factor-th grid point;
 * nothing changes if fewer than MILL_THINNED_POINTS would be left.  MILL_ERR_MEMORY. */
enum { MILL_THINNED_POINTS = 128 };
int mill_arm_thin(int factor, mill_arm *arm);
