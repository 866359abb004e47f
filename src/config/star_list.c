/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/config/star_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/text.h"
#include "src/system/order.h"

/* Return 1, and set *number, if the text is an integer as printf prints it (not 007), else 0. */
static int is_number(const char *text, int64_t *number)
{
  char *end, printed[32];
  errno = 0;
  *number = strtoll(text, &end, 10);
  snprintf(printed, sizeof printed, "%lld", (long long)*number);
  return errno == 0 && strcmp(text, printed) == 0;
}

static int add_number(mill_star_list *list, int64_t number)
{
  MILL_CHECK(MILL_GROW(&list->number, &list->number_room, list->n_number + 1));
  list->number[list->n_number++] = number;
  return MILL_OK;
}

static int add(mill_star_list *list, const char *text)
{
  int64_t number;
  if (is_number(text, &number))
    return add_number(list, number);
  MILL_CHECK(MILL_GROW(&list->name, &list->name_room, list->n_name + 1));
  snprintf(list->name[list->n_name++], MILL_STAR_NAME, "%s", text);
  return MILL_OK;
}

int mill_star_list_add(mill_star_list *list, const char *from, const char *text)
{
  char shown[64];
  if (!text[0] || strlen(text) >= MILL_STAR_NAME || !mill_text_is_printable(text))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%s: '%s' is no star's name; give a TARGETID, IDENTIFIER or OBJECT, which is "
                      "a text of 1 to %d bytes",
                      from, mill_text_shown(text, shown), MILL_STAR_NAME - 1);
  return add(list, text);
}

int mill_star_list_add_row(mill_star_list *list, int64_t target_id, const char *identifier,
                           const char *object)
{
  return target_id != -1 ? add_number(list, target_id) : add(list, object[0] ? object : identifier);
}

/* Sort items and keep one of equal ones; returns the number kept. */
static int64_t sort(void *items, int64_t n, size_t size, int (*order)(const void *, const void *))
{
  char *item = items;
  int64_t n_kept = 0;
  if (n > 0)
    qsort(items, (size_t)n, size, order);
  for (int64_t i = 0; i < n; i++)
    if (i == 0 || order(item + i * (int64_t)size, item + (n_kept - 1) * (int64_t)size) != 0)
      memmove(item + n_kept++ * (int64_t)size, item + i * (int64_t)size, size);
  return n_kept;
}

void mill_star_list_sort(mill_star_list *list)
{
  list->n_number = sort(list->number, list->n_number, sizeof *list->number, mill_by_int64);
  list->n_name = sort(list->name, list->n_name, sizeof *list->name, mill_by_text);
}

/* Look up TARGETID and a numeric OBJECT as numbers, then IDENTIFIER and OBJECT as names. */
int mill_star_list_has(const mill_star_list *list, int64_t target_id, const char *identifier,
                       const char *object, unsigned char *found)
{
  const char *const name[] = {identifier, object};
  int64_t value;
  const int is_numeric = is_number(object, &value), none = -1;
  const int64_t number[] = {target_id, is_numeric ? value : none};
  int n = 0;
  for (int k = 0; k < 2 && list->n_number > 0; k++) {
    const int64_t *at =
        number[k] == none
            ? NULL
            : bsearch(&number[k], list->number, (size_t)list->n_number, sizeof *at, mill_by_int64);
    n += at != NULL;
    if (at && found)
      found[at - list->number] = 1;
  }
  for (int k = 0; k < 2 && list->n_name > 0; k++) {
    const char(*at)[MILL_STAR_NAME] =
        bsearch(name[k], list->name, (size_t)list->n_name, sizeof *list->name, mill_by_text);
    n += at != NULL;
    if (at && found)
      found[list->n_number + (at - list->name)] = 1;
  }
  return n > 0;
}

int64_t mill_star_list_missing(const mill_star_list *list, const unsigned char *found,
                               char text[MILL_STAR_NAME])
{
  int64_t n = 0;
  for (int64_t i = 0; i < list->n_number + list->n_name; i++)
    if (!found[i] && n++ == 0) {
      if (i < list->n_number)
        snprintf(text, MILL_STAR_NAME, "%lld", (long long)list->number[i]);
      else
        snprintf(text, MILL_STAR_NAME, "%s", list->name[i - list->n_number]);
    }
  return n;
}

void mill_star_list_free(mill_star_list *list)
{
  if (!list)
    return;
  MILL_FREE(list->number, list->name, list);
}
