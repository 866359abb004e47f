/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/star_table.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "io/catalog/places.h"
#include "io/hdf5/output_file.h"
#include "src/system/regular_file.h"

void mill_star_table_names(const mill_library *lib, int i_par, const char *name[2])
{
  name[0] = i_par == MILL_PAR_VRAD ? "VRAD" : i_par == MILL_PAR_VSINI ? "VSINI" : NULL;
  name[1] = NULL;
  if (i_par < MILL_PAR_LABEL0)
    return;
  const mill_label *label = &lib->label[i_par - MILL_PAR_LABEL0];
  name[0] = label->column;
  if (strcasecmp(label->name, label->column) != 0)
    name[1] = label->name;
}

void mill_star_table_range(const mill_library *lib, int n_lib, const mill_fit_settings *set, int j,
                           double range[2])
{
  range[0] = j == MILL_PAR_VRAD ? set->min_vel_km_s : 0.0;
  range[1] = j == MILL_PAR_VRAD ? set->max_vel_km_s : set->max_vsini_km_s;
  for (int k = 0; k < n_lib && j >= MILL_PAR_LABEL0; k++) {
    const int l = mill_library_find_label(&lib[k], lib->label[j - MILL_PAR_LABEL0].name);
    if (l < 0)
      continue;
    range[0] = k == 0 ? lib->label[l].min : fmin(range[0], lib[k].label[l].min);
    range[1] = k == 0 ? lib->label[l].max : fmax(range[1], lib[k].label[l].max);
  }
}

int mill_star_table_is_hdf5(const char *path, const char *what, int *is_hdf5)
{
  MILL_AT_END(mill_descriptor_close) int fd = -1;
  char first[4] = "";
  MILL_CHECK(mill_regular_open(path, what, MILL_ERR_CONFIG, &fd));
  *is_hdf5 =
      read(fd, first, sizeof first) == sizeof first && memcmp(first, "\x89HDF", sizeof first) == 0;
  return MILL_OK;
}

int mill_star_table_code(int err, int is_hdf5, const char *key)
{
  mill_error_kept kept;
  if (err != MILL_ERR_INPUT && !(err == MILL_ERR_OUTPUT && is_hdf5))
    return err;
  mill_error_save(err, &kept);
  return MILL_ERROR(MILL_ERR_CONFIG, "%s: %s", key, kept.message);
}

int mill_star_table_has(mill_fits_file *file, int i_hdu, const char *name)
{
  int found = 0;
  mill_fits_column column;
  return name && (mill_fits_column_find(file, i_hdu, name, &found, &column) != MILL_OK || found);
}

/* ---- the star of a row ---- */

const mill_fits_wish mill_star_column[MILL_N_STAR_COLUMN] = {
    [MILL_BY_TARGETID] = MILL_WISH("TARGETID", INT64, -1, 0),
    [MILL_BY_IDENTIFIER] = MILL_WISH("IDENTIFIER", TEXT, 0, 0),
    [MILL_BY_OBJECT] = MILL_WISH("OBJECT", TEXT, 0, 0),
    [MILL_STAR_RA] = MILL_WISH("RA", DOUBLE, NAN, 0),
    [MILL_STAR_DEC] = MILL_WISH("DEC", DOUBLE, NAN, 0),
    [MILL_STAR_RA_2] = MILL_WISH("TARGET_RA", DOUBLE, NAN, 0),
    [MILL_STAR_DEC_2] = MILL_WISH("TARGET_DEC", DOUBLE, NAN, 0)};

int mill_star_columns_wanted(const int has[MILL_N_STAR_COLUMN])
{
  for (int k = 0; k < MILL_BY_PLACE; k++)
    if (has[k])
      return MILL_BY_PLACE;
  for (int k = MILL_STAR_RA; k < MILL_N_STAR_COLUMN; k += 2)
    if (has[k] && has[k + 1])
      return MILL_N_STAR_COLUMN;
  return 0;
}

int mill_star_columns_of(mill_fits_file *file, int i_hdu)
{
  int has[MILL_N_STAR_COLUMN];
  for (int k = 0; k < MILL_N_STAR_COLUMN; k++)
    has[k] = mill_star_table_has(file, i_hdu, mill_star_column[k].name);
  return mill_star_columns_wanted(has);
}

int mill_star_columns_read(mill_fits_file *file, int i_hdu, mill_fits_values *v)
{
  return mill_fits_columns(file, i_hdu, mill_star_column, mill_star_columns_of(file, i_hdu), v);
}

int mill_star_texts_read(const mill_h5_file *file, const char *name, int64_t n_row,
                         mill_fits_values *out)
{
  int err = MILL_OK;
  size_t unused;
  mill_output_texts texts = {0};
  MILL_TRY(mill_h5_shape(file, name, 1, &unused)); /* refuses a shape larger than the file */
  MILL_TRY(mill_output_read_texts(file->id, file->path, name, 1, &texts));
  if (texts.n != n_row)
    MILL_FAIL(MILL_ERR_CONFIG, "%s is damaged: /%s must have one text per row; make the file again",
              file->path, name);
  out->there = 1;
  out->stride = texts.n_byte + 1;
  MILL_TRY(mill_alloc_bytes((size_t)n_row, out->stride, (void **)&out->text));
  for (int64_t i = 0; i < n_row; i++) {
    char *text = out->text + (size_t)i * out->stride;
    memcpy(text, texts.text + (size_t)i * texts.n_byte, texts.n_byte);
    for (size_t n = strlen(text); n > 0 && text[n - 1] == ' '; n--)
      text[n - 1] = '\0';
  }
done:
  mill_free(texts.text);
  return err;
}

/* The keys by which a row can be found. */
typedef struct names {
  int64_t id;
  const char *identifier, *object;
  double ra_deg, dec_deg;
} names;

/* Copy the key of this kind to `to`; 0: the row has no such key. */
static int take_key(enum mill_star_key kind, const names *of, mill_star_row *to)
{
  switch (kind) {
  case MILL_BY_TARGETID:
    to->id = of->id;
    return of->id != -1;
  case MILL_BY_PLACE:
    to->ra_deg = of->ra_deg;
    to->dec_deg = of->dec_deg;
    return mill_place_known(of->ra_deg, of->dec_deg);
  default:
    to->name = kind == MILL_BY_OBJECT ? of->object : of->identifier;
    return to->name[0] != '\0';
  }
}

static int compare_keys(const mill_star_row *x, const mill_star_row *y)
{
  if (x->rank != y->rank)
    return x->rank - y->rank;
  if (x->name)
    return strcmp(x->name, y->name);
  if (x->id != y->id)
    return mill_by_int64(&x->id, &y->id);
  const int by_dec = mill_by_double(&x->dec_deg, &y->dec_deg);
  return by_dec ? by_dec : mill_by_double(&x->ra_deg, &y->ra_deg);
}

static int compare_rows(const void *a, const void *b)
{
  const mill_star_row *x = a, *y = b;
  const int by_key = compare_keys(x, y);
  if (by_key != 0)
    return by_key;
  return x->is_last != y->is_last ? x->is_last - y->is_last : mill_by_int64(&x->row, &y->row);
}

/* Give each row the first key of rows->order that it has.  Sort by key, is_last and row.  Count in
 * n_repeated the rows with an earlier row's key; not positions: find_place fails if two match. */
int mill_star_rows_make(mill_fits_values *v, int64_t n_row, const unsigned char *is_last,
                        mill_star_rows *rows)
{
  const int pair = v[MILL_STAR_RA].there && v[MILL_STAR_DEC].there ? MILL_STAR_RA : MILL_STAR_RA_2;
  const double *ra_deg = v[pair].f64, *dec_deg = v[pair + 1].f64;
  MILL_CHECK(MILL_ALLOC(n_row, &rows->row));
  for (int64_t i = 0; i < n_row; i++) {
    const names of = {v[MILL_BY_TARGETID].i64[i], mill_fits_text_at(&v[MILL_BY_IDENTIFIER], i),
                      mill_fits_text_at(&v[MILL_BY_OBJECT], i), ra_deg ? ra_deg[i] : (double)NAN,
                      dec_deg ? dec_deg[i] : (double)NAN};
    for (int rank = 0; rank < MILL_N_STAR_KEY; rank++) {
      mill_star_row *row = &rows->row[rows->n_row];
      *row = (mill_star_row){.row = i, .rank = rank, .is_last = is_last && is_last[i]};
      if (take_key(rows->order[rank], &of, row)) {
        rows->n_row++;
        break;
      }
    }
  }
  qsort(rows->row, (size_t)rows->n_row, sizeof *rows->row, compare_rows);
  for (int64_t i = 1; i < rows->n_row; i++)
    if (rows->order[rows->row[i].rank] != MILL_BY_PLACE &&
        compare_keys(&rows->row[i], &rows->row[i - 1]) == 0) {
      rows->repeated = rows->row[i];
      rows->n_repeated++;
    }
  for (int k = 0; k < 2; k++) {
    mill_fits_values *texts = &v[k ? MILL_BY_OBJECT : MILL_BY_IDENTIFIER];
    rows->text[k] = texts->text; /* rows owns the texts from now on */
    texts->text = NULL;
  }
  return MILL_OK;
}

void mill_star_rows_clear(mill_star_rows *rows)
{
  MILL_FREE(rows->row, rows->text[0], rows->text[1]);
}

/* Index of the first row whose key is `key` or sorts after it. */
static int64_t first_from(const mill_star_rows *rows, const mill_star_row *key)
{
  int64_t lo = 0, hi = rows->n_row;
  while (lo < hi) {
    const int64_t middle = lo + (hi - lo) / 2;
    if (compare_keys(&rows->row[middle], key) < 0)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo;
}

/* Set *row, which is -1, to the row within MILL_SAME_STAR_ARCSEC of the key's position; fail if
 * there are two.  Rows are sorted by rank, and those of this rank by declination. */
static int find_place(const mill_star_rows *rows, const mill_star_row *key, int64_t *row)
{
  const double radius_deg = MILL_SAME_STAR_ARCSEC / 3600.0;
  mill_star_row lowest = *key;
  lowest.dec_deg -= radius_deg;
  lowest.ra_deg = -INFINITY;
  for (int64_t i = first_from(rows, &lowest); i < rows->n_row; i++) {
    const mill_star_row *r = &rows->row[i];
    if (r->rank != key->rank || r->dec_deg > key->dec_deg + radius_deg)
      break;
    if (mill_place_distance_deg(r->ra_deg, r->dec_deg, key->ra_deg, key->dec_deg) > radius_deg)
      continue;
    if (*row >= 0)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s: %s: rows %lld and %lld (counted from 0) are both within %g arcsec of "
                        "the star at RA %.6f, DEC %.6f: keep one, or add a column TARGETID, OBJECT "
                        "or IDENTIFIER",
                        rows->key, rows->path, (long long)*row, (long long)r->row,
                        MILL_SAME_STAR_ARCSEC, key->ra_deg, key->dec_deg);
    *row = r->row;
  }
  return MILL_OK;
}

int mill_star_rows_find(const mill_star_rows *rows, const mill_catalog_row *star,
                        const int64_t range[2], int64_t *row)
{
  const names of = {star->target_id, star->identifier, star->object, star->target_ra,
                    star->target_dec};
  *row = -1;
  for (int rank = 0; rank < MILL_N_STAR_KEY && *row < 0; rank++) {
    mill_star_row key = {.rank = rank};
    if (!take_key(rows->order[rank], &of, &key))
      continue;
    if (rows->order[rank] == MILL_BY_PLACE) { /* a table with positions is searched whole */
      MILL_CHECK(find_place(rows, &key, row));
      continue;
    }
    for (int64_t i = first_from(rows, &key);
         *row < 0 && i < rows->n_row && compare_keys(&rows->row[i], &key) == 0; i++)
      if (!range || (rows->row[i].row >= range[0] && rows->row[i].row < range[1]))
        *row = rows->row[i].row;
  }
  return MILL_OK;
}

int mill_star_rows_by(const mill_star_rows *rows, enum mill_star_key key)
{
  for (int64_t i = 0; i < rows->n_row; i++)
    if (rows->order[rows->row[i].rank] == key)
      return 1;
  return 0;
}

const char *mill_star_row_text(const mill_star_rows *rows, const mill_star_row *row, char text[128])
{
  const enum mill_star_key kind = rows->order[row->rank];
  if (kind == MILL_BY_TARGETID)
    snprintf(text, 128, "TARGETID %lld", (long long)row->id);
  else if (kind == MILL_BY_PLACE)
    snprintf(text, 128, "the star at RA %.6f, DEC %.6f", row->ra_deg, row->dec_deg);
  else
    snprintf(text, 128, "%s %s", mill_star_column[kind].name, row->name);
  return text;
}

void mill_star_row_hash(const mill_star_row *row, mill_sha256 *sha)
{
  const double place[] = {row->ra_deg, row->dec_deg};
  if (row->name)
    mill_sha256_update(sha, row->name, strlen(row->name) + 1);
  else {
    mill_sha256_update(sha, &row->id, sizeof row->id);
    mill_sha256_update(sha, place, sizeof place);
  }
}
