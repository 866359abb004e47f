/* SPDX-License-Identifier: BSD-3-Clause */
/** A FITS file as a list of HDUs that a test changes by short texts before it is written. */
#ifndef MILL_TEST_RECIPE_H
#define MILL_TEST_RECIPE_H

#include "tests/io/fits/fits_maker.h"

enum { RECIPE_HDUS = 24, RECIPE_COLUMNS = 28, RECIPE_CARDS = 24 };

/** Values in host order, [rows][repeat]; form as FITS has it (L, B, A, I, J, K, E, D).  An image is
 *  one column. */
typedef struct recipe_column {
  char name[24], form[12], unit[16];
  unsigned char *values; /**< owned */
  int n_value;
  const int *length; /**< of variable length: of each row; the values follow without gaps */
  int is_shared;     /**< all of its rows are the first one */
} recipe_column;

typedef struct recipe_hdu {
  char name[40];
  int is_table, n_axis, n_column, n_card;
  long axis[3]; /**< of an image; of a table axis[0] is its rows */
  recipe_column column[RECIPE_COLUMNS];
  char card[RECIPE_CARDS][81];
} recipe_hdu;

typedef struct recipe {
  int n_hdu; /**< hdu[0] is the primary */
  recipe_hdu hdu[RECIPE_HDUS];
  int heap_shift; /**< added to where vectors of variable length lie */
} recipe;

static inline char recipe_code(const char *form)
{
  return form[strspn(form, "0123456789PQ")];
}

static inline size_t recipe_bytes(const char *form)
{
  const char code = recipe_code(form);
  return strchr("LBA", code) ? 1 : code == 'I' ? 2 : strchr("JE", code) ? 4 : 8;
}

/** Copy n values; NULL: zeros. */
static inline void recipe_values(recipe_column *c, const void *values, int n)
{
  unsigned char *copy = calloc((size_t)n + 1, recipe_bytes(c->form));
  assert_non_null(copy);
  if (values)
    memcpy(copy, values, (size_t)n * recipe_bytes(c->form));
  free(c->values);
  c->values = copy;
  c->n_value = n;
}

static inline recipe_hdu *recipe_add(recipe *r, const char *name, int is_table)
{
  assert_true(r->n_hdu < RECIPE_HDUS);
  recipe_hdu *hdu = &r->hdu[r->n_hdu++];
  memset(hdu, 0, sizeof *hdu);
  snprintf(hdu->name, sizeof hdu->name, "%s", name);
  hdu->is_table = is_table;
  return hdu;
}

/** Cards of the last HDU, one a line. */
static inline void recipe_card(recipe *r, const char *cards)
{
  recipe_hdu *hdu = &r->hdu[r->n_hdu - 1];
  for (; *cards; cards += strcspn(cards, "\n") + (strchr(cards, '\n') != NULL)) {
    assert_true(hdu->n_card < RECIPE_CARDS);
    snprintf(hdu->card[hdu->n_card++], 81, "%.*s", (int)strcspn(cards, "\n"), cards);
  }
}

static inline recipe_column *recipe_put(recipe_hdu *hdu, const char *name, const char *form,
                                        const char *unit, const void *values, int n)
{
  assert_true(hdu->n_column < RECIPE_COLUMNS);
  recipe_column *c = &hdu->column[hdu->n_column++];
  memset(c, 0, sizeof *c);
  snprintf(c->name, sizeof c->name, "%s", name);
  snprintf(c->form, sizeof c->form, "%s", form);
  snprintf(c->unit, sizeof c->unit, "%s", unit);
  recipe_values(c, values, n);
  return c;
}

/** A column of the last HDU, a table; unit "": none. */
static inline recipe_column *recipe_column_add(recipe *r, const char *name, const char *form,
                                               const char *unit, const void *values)
{
  recipe_hdu *hdu = &r->hdu[r->n_hdu - 1];
  return recipe_put(hdu, name, form, unit, values,
                    (int)(hdu->axis[0] * (long)maker_column_repeat(form)));
}

/** One of variable length. */
static inline void recipe_vectors_add(recipe *r, const char *name, const char *form,
                                      const char *unit, const void *values, const int *length)
{
  recipe_hdu *hdu = &r->hdu[r->n_hdu - 1];
  int n = 0;
  for (long i = 0; i < hdu->axis[0]; i++)
    n += length[i];
  recipe_put(hdu, name, form, unit, values, n)->length = length;
}

static inline void recipe_table(recipe *r, const char *name, int n_row)
{
  recipe_add(r, name, 1)->axis[0] = n_row;
}

static inline void recipe_image(recipe *r, const char *name, const char *form, int n_axis,
                                const long *axis, const void *values)
{
  recipe_hdu *hdu = recipe_add(r, name, 0);
  int n = 1;
  hdu->n_axis = n_axis;
  for (int i = 0; i < n_axis; i++)
    n *= (int)(hdu->axis[i] = axis[i]);
  recipe_put(hdu, "", form, "", values, n);
}

static inline void recipe_clear(recipe *r)
{
  for (int i = 0; i < RECIPE_HDUS; i++)
    for (int k = 0; k < RECIPE_COLUMNS; k++)
      free(r->hdu[i].column[k].values);
  memset(r, 0, sizeof *r);
}

/* ---- changes ---- */

static inline recipe_hdu *recipe_find(recipe *r, const char *name)
{
  if (name[0] == '@')
    return &r->hdu[atoi(name + 1)];
  for (int i = 0; i < r->n_hdu; i++)
    if (strcmp(r->hdu[i].name, name) == 0)
      return &r->hdu[i];
  fail_msg("the recipe has no HDU '%s'", name);
  return NULL;
}

static inline recipe_column *recipe_column_of(recipe_hdu *hdu, const char *name)
{
  for (int i = 0; i < hdu->n_column; i++)
    if (strcmp(hdu->column[i].name, name) == 0)
      return &hdu->column[i];
  fail_msg("HDU %s has no column '%s'", hdu->name, name);
  return NULL;
}

static inline void recipe_set(recipe_column *c, int i, const char *value)
{
  const size_t size = recipe_bytes(c->form);
  unsigned char *at = c->values + (size_t)i * size;
  const char code = recipe_code(c->form);
  if (code == 'A') {
    const size_t n = maker_column_repeat(c->form);
    memset(c->values + (size_t)i * n, ' ', n);
    memcpy(c->values + (size_t)i * n, value, strlen(value) < n ? strlen(value) : n);
  } else if (code == 'E') {
    const float v = strtof(value, NULL);
    memcpy(at, &v, size);
  } else if (code == 'D') {
    const double v = strtod(value, NULL);
    memcpy(at, &v, size);
  } else {
    const int64_t v = strtoll(value, NULL, 10); /* little-endian */
    memcpy(at, &v, size);
  }
}

/** "-HDU" leaves an HDU out, "HDU-COLUMN" a column, "HDU!TEXT" cards that begin with TEXT;
 *  "HDU+CARD" adds a card, "HDU COLUMN>NAME" renames, "HDU COLUMN~FORM" changes the form (values
 *  become zeros), "HDU COLUMN#UNIT" the unit, "HDU COLUMN@i=VALUE" one value, "HDU/AXES" the axes
 *  of an image or the rows of a table (zeros fill).  HDU "" is the primary, "@5" HDU 6; COLUMN ""
 * is an image. */
static inline void recipe_edit(recipe *r, const char *edit)
{
  char name[80], rest[160] = "";
  const size_t n = strcspn(edit, "-!+ /");
  if (edit[0] == '-' && !strchr(edit + 1, '-')) {
    recipe_hdu *hdu = recipe_find(r, edit + 1);
    memset(hdu->name, 0, sizeof hdu->name);
    hdu->name[0] = '-'; /* as recipe_save leaves it out */
    return;
  }
  snprintf(name, sizeof name, "%.*s", (int)n, edit);
  snprintf(rest, sizeof rest, "%s", edit + n + 1);
  recipe_hdu *hdu = recipe_find(r, name);
  if (edit[n] == '-') {
    recipe_column *c = recipe_column_of(hdu, rest);
    free(c->values);
    memmove(c, c + 1, (size_t)(&hdu->column[hdu->n_column] - (c + 1)) * sizeof *c);
    memset(&hdu->column[--hdu->n_column], 0, sizeof *c);
  } else if (edit[n] == '!') {
    for (int i = 0; i < hdu->n_card; i++)
      if (strncmp(hdu->card[i], rest, strlen(rest)) == 0)
        strcpy(hdu->card[i], "COMMENT gone");
  } else if (edit[n] == '+') {
    assert_true(hdu->n_card < RECIPE_CARDS);
    snprintf(hdu->card[hdu->n_card++], 81, "%.80s", rest);
  } else if (edit[n] == '/') {
    long axis[3] = {1, 1, 1}, rows = 1;
    hdu->n_axis = sscanf(rest, "%ld,%ld,%ld", &axis[0], &axis[1], &axis[2]);
    memcpy(hdu->axis, axis, sizeof axis);
    rows = axis[0] * axis[1] * axis[2];
    for (int k = 0; k < hdu->n_column; k++) {
      recipe_column *c = &hdu->column[k], old = *c;
      const int now = (int)(hdu->is_table ? rows * (long)maker_column_repeat(c->form) : rows);
      c->values = NULL;
      recipe_values(c, NULL, now);
      memcpy(c->values, old.values,
             (size_t)(now < old.n_value ? now : old.n_value) * recipe_bytes(c->form));
      free(old.values);
    }
  } else {
    const size_t m = strcspn(rest, ">~#@");
    const char op = rest[m], *value = rest + m + 1;
    rest[m] = '\0';
    recipe_column *c = recipe_column_of(hdu, rest);
    if (op == '>') {
      snprintf(c->name, sizeof c->name, "%s", value);
    } else if (op == '#') {
      snprintf(c->unit, sizeof c->unit, "%s", value);
    } else if (op == '@') {
      recipe_set(c, atoi(value), strchr(value, '=') + 1);
    } else {
      const int n_row = (int)(hdu->is_table ? hdu->axis[0] : c->n_value);
      snprintf(c->form, sizeof c->form, "%s", value);
      recipe_values(c, NULL, n_row * (int)maker_column_repeat(c->form));
    }
  }
}

/* ---- writing ---- */

static inline size_t recipe_field(const recipe_column *c)
{
  return c->length ? 8 : maker_column_repeat(c->form) * recipe_bytes(c->form);
}

/* Vectors of variable length go to the heap, and their descriptors here. */
static inline void recipe_rows(const recipe *r, const recipe_hdu *hdu, fits_maker *m)
{
  fits_maker heap = {0};
  size_t at[RECIPE_COLUMNS] = {0};
  int32_t shared[RECIPE_COLUMNS] = {0};
  for (long row = 0; row < hdu->axis[0]; row++)
    for (int i = 0; i < hdu->n_column; i++) {
      const recipe_column *c = &hdu->column[i];
      const size_t size = recipe_bytes(c->form), n = maker_column_repeat(c->form);
      if (!c->length) {
        maker_values(m, c->values + (size_t)row * n * size, n, size);
        continue;
      }
      const int is_new = !c->is_shared || row == 0;
      const int32_t start = is_new ? (int32_t)heap.n : shared[i];
      const int32_t place[2] = {c->length[row], start + r->heap_shift};
      shared[i] = start;
      maker_values(m, place, 2, 4);
      if (is_new)
        maker_values(&heap, c->values + at[i] * size, (size_t)c->length[row], size);
      at[i] += (size_t)c->length[row];
    }
  maker_append(m, heap.bytes, heap.n);
  maker_clear(&heap);
}

static inline void recipe_hdu_save(const recipe *r, const recipe_hdu *hdu, fits_maker *m)
{
  static const char codes[] = "BIJKED";
  static const int bitpix[] = {8, 16, 32, 64, -32, -64};
  const int is_primary = hdu == &r->hdu[0];
  size_t row_bytes = 0, heap_bytes = 0;
  for (int i = 0; i < hdu->n_column && hdu->is_table; i++) {
    const recipe_column *c = &hdu->column[i];
    row_bytes += recipe_field(c);
    for (long k = 0; c->length && k < (c->is_shared ? 1 : hdu->axis[0]); k++)
      heap_bytes += (size_t)c->length[k] * recipe_bytes(c->form);
  }
  maker_begin(m);
  maker_card(m, is_primary      ? "SIMPLE  =                    T"
                : hdu->is_table ? "XTENSION= 'BINTABLE'"
                                : "XTENSION= 'IMAGE   '");
  maker_card(m, "BITPIX  = %20d",
             hdu->n_column == 0 || hdu->is_table
                 ? 8
                 : bitpix[strchr(codes, recipe_code(hdu->column[0].form)) - codes]);
  maker_card(m, "NAXIS   = %20d", hdu->is_table ? 2 : hdu->n_axis);
  if (hdu->is_table) {
    maker_card(m, "NAXIS1  = %20zu", row_bytes);
    maker_card(m, "NAXIS2  = %20ld", hdu->axis[0]);
  }
  for (int i = 0; i < hdu->n_axis && !hdu->is_table; i++)
    maker_card(m, "NAXIS%d  = %20ld", i + 1, hdu->axis[i]);
  if (!is_primary) {
    maker_card(m, "PCOUNT  = %20zu", heap_bytes);
    maker_card(m, "GCOUNT  =                    1");
  }
  if (hdu->is_table)
    maker_card(m, "TFIELDS = %20d", hdu->n_column);
  for (int i = 0; i < hdu->n_column && hdu->is_table; i++) {
    maker_card(m, "TTYPE%-3d= '%s'", i + 1, hdu->column[i].name);
    maker_card(m, "TFORM%-3d= '%s'", i + 1, hdu->column[i].form);
    if (hdu->column[i].unit[0])
      maker_card(m, "TUNIT%-3d= '%s'", i + 1, hdu->column[i].unit);
  }
  if (hdu->name[0])
    maker_card(m, "EXTNAME = '%s'", hdu->name);
  for (int i = 0; i < hdu->n_card; i++)
    maker_card(m, "%s", hdu->card[i]);
  maker_end(m);
  if (hdu->is_table)
    recipe_rows(r, hdu, m);
  else if (hdu->n_column > 0)
    maker_values(m, hdu->column[0].values, (size_t)hdu->column[0].n_value,
                 recipe_bytes(hdu->column[0].form));
  maker_pad(m, 0);
}

static inline fits_maker recipe_make(const recipe *r)
{
  fits_maker m = {0};
  for (int i = 0; i < r->n_hdu; i++)
    if (r->hdu[i].name[0] != '-')
      recipe_hdu_save(r, &r->hdu[i], &m);
  return m;
}

static inline void recipe_save(const recipe *r, const char *path)
{
  fits_maker m = recipe_make(r);
  maker_save(&m, path);
  maker_clear(&m);
}

#endif
