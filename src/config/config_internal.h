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

#define MILL_MAX_RADIUS 60  /* arcsec: visits of one object are nearer, and others get near */
#define MILL_MIN_POWER  10  /* resolving power: below, no line of a star is seen */
#define MILL_MAX_POWER  1e7 /* resolving power: beyond any spectrograph of stars */
#define MILL_MAX_FWHM   1e3 /* A */

/* In the order of the documentation and of --print-config. */
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
  double usual;       /* where it is not given; only others are printed; NAN: printed always */
  const char *needed; /* what an item lacks without it; NULL: nothing */
} mill_field;
extern const mill_field mill_arm_field[]; /* of mill_arm_choice; ends with a field without a name */

/* A key whose value is a list of such items. */
typedef struct mill_items {
  const char *key;
  size_t offset, offset2,
      size; /* in mill_config: of the list, and of the int that is their number; of
                                   an item */
  int most;
  int is_named;                     /* an item may be the value of its first field alone */
  const char *list, *item, *wanted; /* for messages: "a list of names", "an arm", "{name: NAME}" */
  const mill_field *field;
} mill_items;
/* Of a key; NULL: its value is something else. */
const mill_items *mill_config_items(const mill_option *key);

/* Index of a key, -1 when it is unknown. */
int mill_config_find_key(const char *name);

/* The key that a check found wrong, the key that it clashes with, the item of a list. */
typedef struct mill_config_fault {
  const char *key, *other;
  int item; /* 0-based; -1: the whole value */
} mill_config_fault;

/* mill_config_check, which also says where. */
int mill_config_check_where(const mill_config *config, mill_config_fault *where);

/* All keys of a YAML document into config, which is then checked; *line is where a failure was
 * found, 0: nowhere. */
struct yaml_document_s;
int mill_config_read_document(struct yaml_document_s *document, mill_config *config, int *line);

/* MILL_ERR_CONFIG: "key: item 2: what is wrong"; *where is filled. */
int mill_config_wrong(mill_config_fault *where, const char *key, const char *other, int item,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
/* May it be a resolving power, or 0, for none? */
int mill_config_is_power(double power);
/* Ranges and dependencies of the arms, whose names are checked. */
int mill_config_check_arms(const mill_config *config, mill_config_fault *where);
/* Has the library the arms, their wavelengths and a use for their line-spread functions?
 * MILL_ERR_CONFIG. */
int mill_config_bind_arms(const mill_config *config, const mill_library *lib);

#endif
