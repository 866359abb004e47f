/* SPDX-License-Identifier: BSD-3-Clause */
/** A list of stars, each by its TARGETID, IDENTIFIER or OBJECT. */
#pragma once

#include "kernels/base/memory.h"

enum { MILL_STAR_NAME = 64 /* bytes of an IDENTIFIER; an OBJECT has less */ };

/** Stars by number and by name; zero it before adding stars. */
typedef struct mill_star_list {
  int64_t *number, n_number, number_room; /**< sorted by mill_star_list_sort */
  char (*name)[MILL_STAR_NAME];           /**< names, sorted likewise */
  int64_t n_name, name_room;
} mill_star_list;

/** Add a star.  A 64-bit integer is stored as a number, any other text (also 007) as a name.
 *  from: the text's source, for messages.  MILL_ERR_MEMORY; MILL_ERR_USAGE: impossible name. */
int mill_star_list_add(mill_star_list *list, const char *from, const char *text);

/** Add a row's star by target_id (-1: none), else by object (empty: none), else by identifier. */
int mill_star_list_add_row(mill_star_list *list, int64_t target_id, const char *identifier,
                           const char *object);

/** Sort a list and drop repetitions, for mill_star_list_has. */
void mill_star_list_sort(mill_star_list *list);

/** Return 1 if the list has a row's TARGETID (unless it is -1), IDENTIFIER or OBJECT, else 0.
 *  found  [n_number + n_name]  in, out  entries of this row are set to 1; NULL: unused */
int mill_star_list_has(const mill_star_list *list, int64_t target_id, const char *identifier,
                       const char *object, unsigned char *found);

/** Return the number of stars not marked in found; text gets the name of the first such star. */
int64_t mill_star_list_missing(const mill_star_list *list, const unsigned char *found,
                               char text[MILL_STAR_NAME]);

void mill_star_list_free(mill_star_list *list); /* NULL is allowed */
MILL_CLOSER(mill_star_list, mill_star_list_free)
