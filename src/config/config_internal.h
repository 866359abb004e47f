/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared declarations of src/config/. */
#ifndef MILL_CONFIG_INTERNAL_H
#define MILL_CONFIG_INTERNAL_H

#include "src/config/config.h"
#include "src/config/option.h"

enum {
  MILL_MAX_MASK_BIT = 64, /* of mill_selection.fiberstatus_allowed */
  MILL_N_KEY = 62
};

#define MILL_MAX_RADIUS 60  /* arcsec: visits of one object are nearer, and others get near */
#define MILL_MIN_POWER  10  /* resolving power: below, no line of a star is seen */
#define MILL_MAX_POWER  1e7 /* resolving power: beyond any spectrograph of stars */
#define MILL_MAX_FWHM   1e3 /* A */

/* In the order of the documentation and of --print-config. */
extern const mill_option mill_config_key[MILL_N_KEY];

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

/* Every factor-th grid point of an arm, after a low-pass filter over its emulator's outputs. */
int mill_config_thin_arm(int factor, mill_arm *arm);

#endif
