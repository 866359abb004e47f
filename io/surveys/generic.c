/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/generic.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "io/catalog/places.h"
#include "io/surveys/selection.h"
#include "src/system/order.h"

/* An exposure: the rows of a star with the same EXPOSURE. */
typedef struct exposure {
  int64_t group;     /* lowest FITS row that is joined into the same result row */
  int64_t id;        /* EXPOSURE, -1: none */
  int64_t first_row; /* lowest FITS row, which numbers the exposure in the index */
} exposure;

/* FIRST: the first row of an exposure; FOLLOWS: a later row; APART: a row excluded by set_apart. */
enum row_kind { FOLLOWS, FIRST, APART };
enum { NAME, ARM };

typedef struct generic {
  mill_cameras cameras;
  mill_generic_table table;
  int joint;
  mill_fits_values text[2]; /* NAME and ARM by row */
  /* set by index_file */
  unsigned char *kind; /* [n_row] enum row_kind */
  /* [n_row] next row of the exposure; -1: none.  For an APART row: the row that it repeats or
   * contradicts; -1: its name is empty or too long */
  int64_t *next_row;
  int64_t n_exposure;
  exposure *exposure; /* [n_exposure] */
} generic;

/* Columns with one value per row. */
enum { ID, EXPOSURE, MJD, RA, DEC, N_WISH };
static const mill_fits_wish wish[N_WISH] = {
    [ID] = MILL_ROW_WISH("TARGETID", INT64, target_id, -1, 0),
    [EXPOSURE] = MILL_WISH("EXPOSURE", INT64, -1, 0),
    [MJD] = MILL_WISH("MJD", DOUBLE, NAN, 0),
    [RA] = MILL_ROW_WISH("RA", DOUBLE, target_ra, NAN, 0),
    [DEC] = MILL_ROW_WISH("DEC", DOUBLE, target_dec, NAN, 0)};

static int recognise(const mill_fits_guard *guard)
{
  return mill_single_find_table(guard, "SPECTRA") >= 0;
}

/* ---- rows of an exposure ------------------------------------------------ */

typedef struct row_key {
  const char *text;      /* NAME at first, later ARM */
  int64_t star, id, row; /* star: first row of its star */
} row_key;

static int compare_keys(const void *a, const void *b)
{
  const row_key *x = a, *y = b;
  if (x->star != y->star || x->id != y->id)
    return x->star != y->star ? mill_by_int64(&x->star, &y->star) : mill_by_int64(&x->id, &y->id);
  const int by_arm = strcmp(x->text, y->text);
  return by_arm != 0 ? by_arm : mill_by_int64(&x->row, &y->row);
}

static int compare_exposures(const void *a, const void *b)
{
  const exposure *x = a, *y = b;
  return x->group != y->group ? mill_by_int64(&x->group, &y->group) : mill_by_int64(&x->id, &y->id);
}

enum { MAX_NAME = sizeof((mill_catalog_row *)0)->object - 1 };

/* Check ARM, and convert it to lower case, since it names channels. */
static int check_arms(generic *g)
{
  for (int64_t i = 0; i < g->table.n_row && g->text[ARM].text; i++) { /* NULL: no column */
    char *arm = g->text[ARM].text + (size_t)i * g->text[ARM].stride;
    if (strlen(arm) >= MILL_MAX_NAME)
      return MILL_ERROR_TABLE(
          &g->table,
          "ARM of row %lld (counted from 0) is '%s'; it must not have more than %d characters",
          (long long)i, arm, MILL_MAX_NAME - 1);
    for (char *p = arm; *p; p++)
      *p = (char)tolower((unsigned char)*p);
  }
  return MILL_OK;
}

/* Exclude a row: it becomes an exposure of its own, without a name, and reading it fails.  other:
 * the row that it repeats or contradicts; -1: its name is empty or too long. */
static void set_apart(generic *g, int64_t row, int64_t id, int64_t other)
{
  g->kind[row] = APART;
  g->next_row[row] = other;
  g->exposure[g->n_exposure++] = (exposure){row, id, row};
}

/* Append the rows with a valid name to key, which has *n elements; exclude the other rows. */
static int list_named(generic *g, const int64_t *id, row_key *key, int64_t *n)
{
  for (int64_t i = 0; i < g->table.n_row; i++) {
    const char *name = mill_fits_text_at(&g->text[NAME], i);
    if (id[i] < INT32_MIN || id[i] > INT32_MAX)
      return MILL_ERROR_TABLE(&g->table,
                              "EXPOSURE of row %lld (counted from 0) is %lld, beyond 32 bits",
                              (long long)i, (long long)id[i]);
    if (name[0] && strlen(name) <= MAX_NAME)
      key[(*n)++] = (row_key){.text = name, .row = i};
    else
      set_apart(g, i, id[i], -1); /* -1: for its name */
  }
  if (*n == 0 && g->table.n_row > 0)
    return MILL_ERROR_TABLE(&g->table, "give each row a NAME of 1 to %d characters", MAX_NAME);
  return MILL_OK;
}

/* Find the star of each row in key [n] by the row's NAME (key.text) and position.  Then fill key
 * for sorting by exposure: key.text becomes the row's ARM.  star [n]: work space. */
static void find_stars(const generic *g, const mill_fits_values *v, row_key *key, mill_keyed *star,
                       int64_t n, const char **warning)
{
  qsort(key, (size_t)n, sizeof *key, mill_by_text_at);
  for (int64_t i = 0; i < n; i++) {
    const int is_same = i > 0 && strcmp(key[i].text, key[i - 1].text) == 0;
    star[i] = (mill_keyed){is_same ? star[i - 1].key : i, key[i].row}; /* name, row */
  }
  if (mill_places_group(star, n, v[RA].f64, v[DEC].f64)) /* sets .key to the star's first row */
    *warning = MILL_TOLD_PLACES;
  for (int64_t i = 0; i < n; i++) {
    const int64_t row = star[i].place;
    key[i] =
        (row_key){mill_fits_text_at(&g->text[ARM], row), star[i].key, v[EXPOSURE].i64[row], row};
  }
}

/* Exclude rows that repeat star, EXPOSURE and ARM of an earlier row or have another TARGETID than
 * their star's first row.  Returns the number of rows left in key, sorted by exposure. */
static int64_t drop_doubtful(generic *g, row_key *key, int64_t n, const int64_t *target_id)
{
  int64_t n_left = 0;
  row_key first = {0}; /* of the rows with equal star, EXPOSURE and ARM */
  qsort(key, (size_t)n, sizeof *key, compare_keys);
  for (int64_t i = 0; i < n; i++) {
    const row_key k = key[i];
    const int is_new =
        i == 0 || k.star != first.star || k.id != first.id || strcmp(k.text, first.text) != 0;
    first = is_new ? k : first;
    if (!is_new)
      set_apart(g, k.row, k.id, first.row);
    else if (target_id[k.row] != target_id[k.star])
      set_apart(g, k.row, k.id, k.star);
    else
      key[n_left++] = (row_key){"", k.star, k.id, k.row}; /* without ARM: sort by row */
  }
  qsort(key, (size_t)n_left, sizeof *key, compare_keys);
  return n_left;
}

/* Group rows into exposures, and exposures into rows of the result. */
static int group_rows(generic *g, const mill_fits_values *v, const char **warning)
{
  MILL_OWNED row_key *key = NULL;
  MILL_OWNED mill_keyed *star = NULL;
  int64_t n = 0;
  const int64_t n_row = g->table.n_row;
  MILL_FREE(g->kind, g->next_row, g->exposure); /* from an earlier index_file */
  g->kind = NULL;
  g->next_row = NULL;
  g->exposure = NULL;
  g->n_exposure = 0;
  MILL_CHECK(MILL_ALLOC(n_row, &key));
  MILL_CHECK(MILL_ALLOC(n_row, &star));
  MILL_CHECK(MILL_ALLOC(n_row, &g->next_row));
  MILL_CHECK(MILL_ALLOC(n_row, &g->kind)); /* zero: FOLLOWS */
  MILL_CHECK(MILL_ALLOC(n_row, &g->exposure));
  MILL_CHECK(list_named(g, v[EXPOSURE].i64, key, &n));
  find_stars(g, v, key, star, n, warning);
  n = drop_doubtful(g, key, n, v[ID].i64); /* sorts key by star, EXPOSURE and row */
  for (int64_t i = 0; i < n; i++) {
    const row_key *k = &key[i];
    const int is_first = i == 0 || k->star != k[-1].star || k->id != k[-1].id;
    g->next_row[k->row] = -1;
    if (is_first) {
      g->kind[k->row] = FIRST;
      g->exposure[g->n_exposure++] = (exposure){g->joint ? k->star : k->row, k->id, k->row};
    } else {
      g->next_row[k[-1].row] = k->row;
    }
  }
  qsort(g->exposure, (size_t)g->n_exposure, sizeof *g->exposure, compare_exposures);
  return MILL_OK;
}

/* ---- pixels ----------------------------------------------------------- */

/* Set *length to the number of elements of vector i in a row. */
static int vector_length(generic *g, int i, int64_t row, int64_t *length)
{
  const mill_generic_vector *v = &g->table.vector[i];
  int status = 0;
  LONGLONG n = 0, at = 0;
  *length = v->length;
  if (!v->variable)
    return MILL_OK;
  fits_read_descriptll(g->table.file->fptr, v->plane.number, row + 1, &n, &at, &status);
  MILL_CHECK_FITS(g->table.file, g->table.i_hdu, status,
                  "column %s of row %lld (counted from 0) cannot be read", v->plane.name,
                  (long long)row);
  /* checked here, as CFITSIO would read beyond the table */
  if (n < 0 || at < 0 || at > g->table.heap_bytes || n > (g->table.heap_bytes - at) / v->n_byte)
    return MILL_ERROR_TABLE(&g->table,
                            "column %s of row %lld (counted from 0) lies outside the table; fetch "
                            "or make the file again",
                            v->plane.name, (long long)row);
  *length = n;
  return MILL_OK;
}

/* Set *n_pix to a row's number of pixels.  Fail unless all vectors of the row have this length. */
static int row_length(generic *g, int64_t row, int *n_pix)
{
  int64_t length = 0, other;
  MILL_CHECK(vector_length(g, MILL_FLUX, row, &length));
  if (length < 2 || length > MILL_SINGLE_MAX_PIX)
    return MILL_ERROR_TABLE(&g->table,
                            "row %lld (counted from 0) has %lld pixels, expected 2 to %d",
                            (long long)row, (long long)length, MILL_SINGLE_MAX_PIX);
  for (int i = MILL_FLUX + 1; i < MILL_N_PLANE; i++) {
    if (!g->table.vector[i].plane.name)
      continue;
    MILL_CHECK(vector_length(g, i, row, &other));
    if (other != length)
      return MILL_ERROR_TABLE(
          &g->table, "row %lld (counted from 0) has %lld values of FLUX, but %lld of %s",
          (long long)row, (long long)length, (long long)other, g->table.vector[i].plane.name);
  }
  if (g->table.n_shared > 0 && length != g->table.n_shared)
    return MILL_ERROR_TABLE(
        &g->table, "row %lld (counted from 0) has %lld values of FLUX, but HDU WAVELENGTH has %d",
        (long long)row, (long long)length, g->table.n_shared);
  *n_pix = (int)length;
  return MILL_OK;
}

/* Describe a row as a camera; its pixels are not read yet. */
static int describe_row(generic *g, int64_t row, mill_camera *camera)
{
  const mill_generic_table *t = &g->table;
  const char *arm = mill_fits_text_at(&g->text[ARM], row);
  *camera = (mill_camera){.i_hdu = t->i_hdu,
                          .air = t->air,
                          .noise = t->is_error ? MILL_NOISE_ERROR : MILL_NOISE_IVAR,
                          .to_aa = t->vector[MILL_WAVE].to_aa,
                          .wave_aa = t->shared_wave_aa};
  snprintf(camera->name, sizeof camera->name, "%s", arm[0] ? arm : MILL_GENERIC_CHANNEL);
  for (int i = 0; i < MILL_N_PLANE; i++)
    camera->plane[i] = t->vector[i].plane;
  if (t->shared_wave_aa)
    camera->plane[MILL_WAVE] = (mill_plane){.name = "HDU WAVELENGTH", .row = -1}; /* for messages */
  MILL_CHECK(mill_fits_file_move(t->file, t->i_hdu)); /* row_length reads from this HDU */
  return row_length(g, row, &camera->n_pix);
}

/* Refuse fluxes whose inverse variances leave the range of float32, as in erg / s / cm2 / A.  Up to
 * half of the pixels may lie below the range.  Outliers (one pixel and 1 % of all) may lie above it
 * unless other pixels come close: less than a factor of 1000 below the range's upper limit. */
static int check_ivar(const generic *g, const mill_camera *camera, const double *ivar)
{
  int n_good = 0, n_above = 0, n_below = 0, n_near = 0;
  for (int i = 0; i < camera->n_pix; i++) {
    const int is_good = ivar[i] > 0.0 && (camera->noise == MILL_NOISE_ERROR || isfinite(ivar[i]));
    n_good += is_good;
    n_above += is_good && ivar[i] > (double)FLT_MAX;
    n_near += is_good && ivar[i] > 1e-3 * (double)FLT_MAX;
    n_below += is_good && ivar[i] < (double)FLT_MIN;
  }
  const int is_above = n_above > 0 && (n_above > 1 + n_good / 100 || n_near > n_above);
  if (is_above || n_below > n_good / 2)
    return MILL_ERROR_TABLE(&g->table,
                            "inverse variances of row %lld (counted from 0) are beyond single "
                            "precision; give its fluxes and errors in a unit 10^%d times as large",
                            (long long)g->cameras.row, n_below > n_good / 2 ? 17 : -17);
  return MILL_OK;
}

/* Check ivar, and set sigma_aa (A).  A pixel without a width becomes bad, and gets its neighbour's
 * width, since line-spread functions of good pixels extend over bad pixels. */
static int finish(mill_cameras *c, const mill_camera *camera)
{
  generic *g = (generic *)c;
  double *sigma = c->spectrum.number;
  int last_good = -1;
  MILL_CHECK(check_ivar(g, camera, c->spectrum.noise));
  if (!camera->plane[MILL_WIDTH].name)
    return MILL_OK;
  MILL_CHECK(mill_camera_plane(c, camera, MILL_WIDTH, sigma));
  for (int i = 0; i < camera->n_pix; i++) {
    sigma[i] *= g->table.vector[MILL_WIDTH].to_aa;
    if (isfinite(sigma[i]) && sigma[i] > 0.0 && sigma[i] < (double)FLT_MAX) {
      for (int k = 0; last_good < 0 && k < i; k++) /* bad pixels before the first good one */
        sigma[k] = sigma[i];
      last_good = i;
    } else {
      c->spectrum.ivar[i] = 0.0f;
      sigma[i] = last_good >= 0 ? sigma[last_good] : 0.0;
    }
  }
  if (last_good < 0)
    return MILL_ERROR_TABLE(&g->table,
                            "LSF_SIGMA of row %lld (counted from 0) has no positive number",
                            (long long)c->row);
  mill_single_narrow(sigma, camera->n_pix, c->spectrum.sigma_aa);
  return MILL_OK;
}

static int give_row(generic *g, mill_spectra *spectra, int i_exposure)
{
  mill_camera camera;
  int err = describe_row(g, g->cameras.row, &camera);
  MILL_STEP(mill_camera_give(&g->cameras, spectra, i_exposure, &camera));
  if (!g->table.shared_wave_aa)
    mill_free(camera.wave_aa);
  return err;
}

/* ---- opening and index -------------------------------------------------- */

static void close_file(void *state)
{
  generic *g = state;
  MILL_FREE(g->table.shared_wave_aa, g->text[NAME].text, g->text[ARM].text, g->next_row, g->kind,
            g->exposure);
  mill_cameras_close(g);
}

static int open_file(void *state, const mill_spectra_settings *settings, int *frame)
{
  static const mill_fits_wish texts[] = {
      [NAME] = MILL_WISH("NAME", TEXT, 0, 1), [ARM] = MILL_WISH("ARM", TEXT, 0, 0)};
  generic *g = state;
  mill_fits_file *file = g->cameras.file;
  g->cameras.finish = finish;
  g->joint = settings->config->exposures == MILL_EXPOSURES_JOINT;
  MILL_CHECK(mill_generic_table_open(file, settings->config->medium, &g->table));
  *frame = g->table.frame;
  MILL_CHECK(mill_fits_columns(file, g->table.i_hdu, texts, 2, g->text));
  return check_arms(g);
}

/* List each selected group of exposures as a row of the index. */
static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  generic *g = state;
  MILL_FITS_VALUES(v, N_WISH);
  MILL_CHECK(mill_selection_check(select, g->table.file->guard->path, 0, 0));
  MILL_CHECK(mill_fits_columns(g->table.file, g->table.i_hdu, wish, N_WISH, v));
  MILL_CHECK(group_rows(g, v, &index->warning));
  MILL_CHECK(mill_file_index_alloc(index, g->n_exposure, g->n_exposure));
  for (int64_t i = 0, end; i < g->n_exposure; i = end) {
    mill_catalog_row *row = &index->row[index->n_row];
    const int64_t first = g->exposure[i].first_row;
    const mill_candidate candidate = {row, NULL, 0, NAN}; /* no target type, class, S/N */
    for (end = i + 1; end < g->n_exposure && g->exposure[end].group == g->exposure[i].group;)
      end++;
    mill_catalog_row_init(row);
    mill_fits_fill(g->table.file->guard->path, wish, N_WISH, v, first, row);
    if (!mill_selection_keeps(select, &candidate))
      continue;
    if (g->kind[first] != APART) /* a row APART has no name; reading it says why it fails */
      snprintf(row->object, sizeof row->object, "%s", mill_fits_text_at(&g->text[NAME], first));
    index->n_row++;
    for (const exposure *e = g->exposure + i; e < g->exposure + end; e++)
      mill_file_index_expose(index, e->first_row, (int32_t)e->id, v[MJD].f64[e->first_row]);
  }
  index->n_fits_row = g->table.n_row;
  return MILL_OK;
}

/* Read exposures, numbered by their first row; for an excluded row, fail and say why. */
static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  generic *g = state;
  for (int i = 0; i < n; i++) {
    const int64_t first = number[i];
    const int is_row = g->kind && first >= 0 && first < g->table.n_row;
    if (!is_row || g->kind[first] == FOLLOWS)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: no exposure begins in row %lld; has the file changed?",
                        g->table.file->guard->path, (long long)first);
    const char *name = mill_fits_text_at(&g->text[NAME], first);
    if (g->kind[first] == APART && g->next_row[first] < 0)
      return MILL_ERROR_TABLE(
          &g->table, "NAME of row %lld (counted from 0) is '%s'; it must have 1 to %d characters",
          (long long)first, name, MAX_NAME);
    if (g->kind[first] == APART)
      return MILL_ERROR_TABLE(&g->table,
                              "row %lld and row %lld (counted from 0) with NAME '%s' have equal "
                              "EXPOSURE and ARM, or different TARGETIDs; change the NAME of one",
                              (long long)first, (long long)g->next_row[first], name);
    int64_t *row = &g->cameras.row;
    for (*row = first; *row >= 0; *row = g->next_row[*row])
      MILL_CHECK(give_row(g, spectra, i));
  }
  return MILL_OK;
}

static int flux_unit(void *state, const char *channel, char unit[MILL_FLUX_UNIT])
{
  const generic *g = state;
  (void)channel;
  return mill_plane_unit(g->table.file, &g->table.vector[MILL_FLUX].plane, 1.0, unit);
}

const mill_format mill_format_generic = {
    .name = "generic",
    .description = "any spectra as rows of a table SPECTRA; docs/use/formats.md has the layout",
    .recognise = recognise,
    .state_bytes = sizeof(generic),
    .open = open_file,
    .close = close_file,
    .index = index_file,
    .read = read_exposures,
    .flux_unit = flux_unit};
