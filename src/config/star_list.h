/* SPDX-License-Identifier: BSD-3-Clause */
/** A list of stars, each by its TARGETID, IDENTIFIER or OBJECT. */
#ifndef MILL_STAR_LIST_H
#define MILL_STAR_LIST_H

#include <stddef.h>
#include <stdint.h>

enum { MILL_STAR_NAME = 64 /* bytes of an IDENTIFIER; an OBJECT has less */ };

/** Numbers are apart: a list of TARGETIDs may be very long.  Zero it before the first star. */
typedef struct mill_star_list {
  int64_t *number, n_number, number_room; /**< sorted by mill_star_list_sort */
  char (*name)[MILL_STAR_NAME];           /**< likewise */
  int64_t n_name, name_room;
} mill_star_list;

/** Add a star; a text that is a whole number of 64 bits, as it is printed, is a number.  from: for
 *  the message.  MILL_ERR_USAGE: no row can have the name; MILL_ERR_MEMORY. */
int mill_star_list_add(mill_star_list *list, const char *from, const char *text);

/** Add the star of a row: by target_id unless it is -1, else object, else identifier. */
int mill_star_list_add_row(mill_star_list *list, int64_t target_id, const char *identifier,
                           const char *object);

/** Sort a list and drop repetitions, for mill_star_list_has. */
void mill_star_list_sort(mill_star_list *list);

/** Has the list a row's TARGETID (unless it is -1), IDENTIFIER or OBJECT?
 *  found  [n_number + n_name]  in, out  1: the row has this star's name; NULL: not wanted */
int mill_star_list_has(const mill_star_list *list, int64_t target_id, const char *identifier,
                       const char *object, unsigned char *found);

/** Number of stars that are not marked in found.  The first of them, for a message, goes to text.
 */
int64_t mill_star_list_missing(const mill_star_list *list, const unsigned char *found,
                               char text[MILL_STAR_NAME]);

void mill_star_list_free(mill_star_list *list); /* NULL is allowed */

#endif
