#include "io/surveys/generic.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/selection.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"

enum { N_KNOWN_WAVE = 8 }; /* wavelength sets remembered, to find rows that share them */

enum { WAVELENGTH, FLUX, IVAR, ERROR, MASK, LSF_SIGMA, N_VECTOR };
static const char *const vector_name[N_VECTOR] = {"WAVELENGTH", "FLUX", "IVAR",
                                                  "ERROR",      "MASK", "LSF_SIGMA"};

/* A column of vectors. */
typedef struct vector {
  int number;      /* as CFITSIO counts; 0: the table has none */
  int type;        /* CFITSIO type as stored */
  int n_byte;      /* of an element */
  int variable;    /* lengths differ from row to row */
  int64_t length;  /* of all rows when they do not */
  int is_float;    /* float32, not scaled: needs no conversion */
  int is_integer;  /* as stored: nulls have a sign of their own */
  uint64_t offset; /* of 64-bit masks, to be added */
  double to_aa;    /* of wavelengths and widths */
} vector;

/* Rows of one NAME and one EXPOSURE. */
typedef struct exposure {
  int64_t first_row; /* the lowest: its number outside */
  int64_t star_row;  /* the lowest of all rows of that NAME */
  int32_t id;        /* EXPOSURE, -1: none */
} exposure;

typedef struct known_wave {
  int n_pix;
  double *wave_aa; /* owned */
  int64_t token;
} known_wave;

typedef struct generic {
  mill_fits_file *file; /* borrowed */
  int i_hdu;
  int64_t n_row, heap_bytes;
  int air, frame, joint;
  vector vector[N_VECTOR];
  int n_shared; /* 0: every row has its own wavelengths */
  double *shared_wave_aa;
  char *name, *arm; /* by row, arm NULL: none */
  size_t name_stride, arm_stride;
  int64_t *next_row; /* [n_row] of the same exposure, -1: it was the last */
  unsigned char *is_first;
  int64_t n_exposure;
  exposure *exposure; /* in the order of the index */
  known_wave known[N_KNOWN_WAVE];
  int i_known;
  int64_t last_token;
  mill_single_spectrum spectrum;
} generic;

#define FAIL_TABLE(g, format, ...)                                                                 \
  MILL_FAIL(MILL_ERR_INPUT, "%s: HDU %d (SPECTRA): " format, (g)->file->guard->path,               \
            (g)->i_hdu + 1, __VA_ARGS__)

static int recognise(const mill_fits_guard *guard)
{
  return mill_single_find_table(guard, "SPECTRA") >= 0;
}

/* ---- units ------------------------------------------------------------ */

static int unit_to_aa(const generic *g, int i_hdu, const char *what, const char *text, double *out)
{
  int err = MILL_OK;
  static const struct {
    const char *name;
    double to_aa;
  } unit[] = {{"Angstrom", 1.0}, {"Angstroms", 1.0}, {"AA", 1.0},
              {"nm", 10.0},      {"um", 1e4},        {"micron", 1e4}};
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (strcasecmp(text, unit[i].name) == 0) {
      *out = unit[i].to_aa;
      goto done;
    }
  MILL_FAIL(MILL_ERR_INPUT, "%s: HDU %d (%s): %s %s%s%s; set its unit to Angstrom, nm or um",
            g->file->guard->path, i_hdu + 1, g->file->guard->hdu[i_hdu].name, what,
            text[0] ? "has the unit '" : "has no unit", text, text[0] ? "'" : "");
done:
  return err;
}

static int column_unit(generic *g, int i_hdu, int number, char *out, size_t size)
{
  char key[16];
  int found;
  snprintf(key, sizeof key, "TUNIT%d", number);
  out[0] = '\0';
  return mill_single_key_text(g->file, i_hdu, key, out, size, &found);
}

/* ---- columns ---------------------------------------------------------- */

/* CFITSIO 4.2 reads unsigned integers of 64 bits as signed ones out of range, so masks of
 * them are read as they are stored. */
static int take_mask64(generic *g, vector *v)
{
  int err = MILL_OK;
  double scale = 1.0, zero = 0.0;
  char key[16];
  int found;
  snprintf(key, sizeof key, "TSCAL%d", v->number);
  MILL_TRY(mill_single_key_double(g->file, g->i_hdu, key, &scale, &found));
  snprintf(key, sizeof key, "TZERO%d", v->number);
  MILL_TRY(mill_single_key_double(g->file, g->i_hdu, key, &zero, &found));
  if (scale != 1.0 || (zero != 0.0 && zero != 0x1p63))
    FAIL_TABLE(g, "column MASK holds scaled integers, which no mask has (TSCAL%d, TZERO%d)",
               v->number, v->number);
  v->offset = zero != 0.0 ? UINT64_C(1) << 63 : 0;
done:
  return err;
}

static int is_integer_type(int type)
{
  return type == TBYTE || type == TSBYTE || type == TSHORT || type == TUSHORT || type == TINT ||
         type == TUINT || type == TLONG || type == TULONG || type == TLONGLONG ||
         type == TULONGLONG;
}

/* What of the types is accepted for a column, and how it will be read. */
static int take_type(generic *g, int i, int type, int equivalent)
{
  int err = MILL_OK;
  vector *v = &g->vector[i];
  v->type = abs(type);
  v->variable = type < 0;
  v->is_float = v->type == TFLOAT && abs(equivalent) == TFLOAT;
  v->is_integer = is_integer_type(v->type);
  if (i == MASK) {
    if (v->type == TLONGLONG)
      MILL_TRY(take_mask64(g, v));
    else if (v->type != TLOGICAL && !(v->is_integer && is_integer_type(abs(equivalent))))
      FAIL_TABLE(g, "column %s must hold integers or truth values", vector_name[i]);
  } else if (!v->is_integer && v->type != TFLOAT && v->type != TDOUBLE) {
    FAIL_TABLE(g, "column %s must hold vectors of numbers", vector_name[i]);
  }
done:
  return err;
}

static int find_vector(generic *g, int i)
{
  int err = MILL_OK;
  vector *v = &g->vector[i];
  int status = 0, type = 0, equivalent = 0;
  LONGLONG repeat = 0, width = 0;
  char template[16];
  fitsfile *fptr = g->file->fptr;
  MILL_TRY(mill_fits_file_move(g->file, g->i_hdu));
  snprintf(template, sizeof template, "%s", vector_name[i]);
  fits_get_colnum(fptr, CASEINSEN, template, &v->number, &status);
  if (status == COL_NOT_FOUND) {
    fits_clear_errmsg();
    v->number = 0;
    goto done;
  }
  if (status == COL_NOT_UNIQUE) {
    fits_clear_errmsg();
    FAIL_TABLE(g, "two columns have the name %s", vector_name[i]);
  }
  if (status == 0)
    fits_get_coltypell(fptr, v->number, &type, &repeat, &width, &status);
  if (status == 0)
    fits_get_eqcoltypell(fptr, v->number, &equivalent, NULL, NULL, &status);
  if (status != 0) {
    char what[64];
    snprintf(what, sizeof what, "column %s cannot be found", vector_name[i]);
    err = mill_fits_file_error(g->file, g->i_hdu, what, status);
    goto done;
  }
  MILL_TRY(take_type(g, i, type, equivalent));
  v->n_byte = v->type == TLOGICAL || v->type == TBYTE || v->type == TSBYTE ? 1
              : v->type == TSHORT                                          ? 2
              : v->type == TLONGLONG || v->type == TDOUBLE                 ? 8
                                                                           : 4;
  v->length = repeat;
  if (!v->variable && (repeat < 2 || repeat > MILL_SINGLE_MAX_PIX))
    FAIL_TABLE(g, "column %s holds %lld values a row, expected 2 to %d: a row is one spectrum",
               vector_name[i], (long long)repeat, MILL_SINGLE_MAX_PIX);
done:
  return err;
}

/* Rows may share their wavelengths in the heap, but not their fluxes: a few bytes would be any
 * number of pixels. */
static int check_heap(generic *g)
{
  int err = MILL_OK;
  const vector *flux = &g->vector[FLUX];
  LONGLONG *length = NULL, *start = NULL;
  int64_t left = g->heap_bytes / flux->n_byte;
  int status = 0;
  if (!flux->variable || g->n_row == 0)
    goto done;
  MILL_TRY(MILL_ALLOC(g->n_row, &length));
  MILL_TRY(MILL_ALLOC(g->n_row, &start));
  if (fits_read_descriptsll(g->file->fptr, flux->number, 1, g->n_row, length, start, &status)) {
    err = mill_fits_file_error(g->file, g->i_hdu, "column FLUX cannot be read", status);
    goto done;
  }
  for (int64_t i = 0; i < g->n_row; i++) {
    /* what no row can have is refused with its row */
    if (length[i] < 0 || length[i] > g->heap_bytes / flux->n_byte)
      continue;
    left -= length[i];
    if (left < 0)
      FAIL_TABLE(g,
                 "by row %lld (counted from 0) column FLUX has more values than its table holds; "
                 "fetch or make the file again",
                 (long long)i);
  }
done:
  mill_free(length);
  mill_free(start);
  return err;
}

/* Columns that must be there, and lengths that must agree before any row is looked at. */
static int find_vectors(generic *g)
{
  int err = MILL_OK;
  char flux_unit[FLEN_VALUE] = "", error_unit[FLEN_VALUE] = "", unit[FLEN_VALUE];
  for (int i = 0; i < N_VECTOR; i++)
    MILL_TRY(find_vector(g, i));
  const vector *flux = &g->vector[FLUX];
  if (flux->number == 0)
    FAIL_TABLE(g, "has no column %s, which is needed", vector_name[FLUX]);
  if ((g->vector[IVAR].number > 0) + (g->vector[ERROR].number > 0) != 1)
    FAIL_TABLE(g, "has %s the columns IVAR and ERROR; give one of them",
               g->vector[IVAR].number > 0 ? "both of" : "neither of");
  for (int i = 0; i < N_VECTOR; i++)
    if (g->vector[i].number > 0 && !g->vector[i].variable && !flux->variable &&
        g->vector[i].length != flux->length)
      FAIL_TABLE(g, "column %s has %lld values a row, but FLUX %lld", vector_name[i],
                 (long long)g->vector[i].length, (long long)flux->length);
  for (int i = WAVELENGTH; i <= LSF_SIGMA; i += LSF_SIGMA - WAVELENGTH)
    if (g->vector[i].number > 0) {
      char what[32];
      snprintf(what, sizeof what, "column %s", vector_name[i]);
      MILL_TRY(column_unit(g, g->i_hdu, g->vector[i].number, unit, sizeof unit));
      MILL_TRY(unit_to_aa(g, g->i_hdu, what, unit, &g->vector[i].to_aa));
    }
  MILL_TRY(column_unit(g, g->i_hdu, flux->number, flux_unit, sizeof flux_unit));
  if (g->vector[ERROR].number > 0)
    MILL_TRY(column_unit(g, g->i_hdu, g->vector[ERROR].number, error_unit, sizeof error_unit));
  if (flux_unit[0] && error_unit[0] && strcmp(flux_unit, error_unit) != 0)
    FAIL_TABLE(g, "column ERROR has the unit '%s', but FLUX '%s'", error_unit, flux_unit);
done:
  return err;
}

/* ---- wavelengths of all rows ------------------------------------------- */

static int read_shared_wave(generic *g, int i_hdu)
{
  int err = MILL_OK;
  const mill_fits_hdu *hdu = &g->file->guard->hdu[i_hdu];
  const char *name = vector_name[WAVELENGTH];
  char unit[FLEN_VALUE] = "", template[16];
  double to_aa = 0.0;
  int found, number = 0, status = 0;
  long first[1] = {1};
  if (hdu->kind == MILL_FITS_TABLE) {
    MILL_TRY(mill_single_check_columns(g->file, i_hdu, &name, 1, &g->n_shared));
    MILL_TRY(MILL_ALLOC(g->n_shared, &g->shared_wave_aa));
    MILL_TRY(mill_single_column(g->file, i_hdu, name, g->n_shared, g->shared_wave_aa));
    snprintf(template, sizeof template, "%s", name);
    fits_get_colnum(g->file->fptr, CASEINSEN, template, &number, &status);
    if (status == 0)
      MILL_TRY(column_unit(g, i_hdu, number, unit, sizeof unit));
  } else {
    if (hdu->kind != MILL_FITS_IMAGE || hdu->n_axis != 1 || hdu->axis[0] < 2 ||
        hdu->axis[0] > MILL_SINGLE_MAX_PIX)
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: HDU %d (%s) must be an image of one axis with 2 to %d wavelengths, or a table "
                "with a column of them",
                g->file->guard->path, i_hdu + 1, hdu->name, MILL_SINGLE_MAX_PIX);
    g->n_shared = (int)hdu->axis[0];
    MILL_TRY(MILL_ALLOC(g->n_shared, &g->shared_wave_aa));
    MILL_TRY(mill_fits_file_move(g->file, i_hdu));
    fits_read_pix(g->file->fptr, TDOUBLE, first, g->n_shared, NULL, g->shared_wave_aa, NULL,
                  &status);
    if (status == 0)
      MILL_TRY(mill_single_key_text(g->file, i_hdu, "BUNIT", unit, sizeof unit, &found));
  }
  if (status != 0) {
    err = mill_fits_file_error(g->file, i_hdu, "its wavelengths cannot be read", status);
    goto done;
  }
  MILL_TRY(unit_to_aa(g, i_hdu, "the wavelength", unit, &to_aa));
  for (int i = 0; i < g->n_shared; i++)
    g->shared_wave_aa[i] *= to_aa;
  MILL_TRY(mill_single_check_wave(g->file, i_hdu, "all rows", g->n_shared, g->shared_wave_aa));
done:
  return err;
}

static int find_wavelengths(generic *g)
{
  int err = MILL_OK;
  int i_hdu;
  MILL_TRY(mill_fits_file_find(g->file, vector_name[WAVELENGTH], &i_hdu));
  const int has_column = g->vector[WAVELENGTH].number > 0;
  if (has_column == (i_hdu >= 0))
    FAIL_TABLE(g, "%s",
               has_column ? "there are a column and an HDU WAVELENGTH; leave one of them"
                          : "has no column WAVELENGTH, nor has the file an HDU of that "
                            "name");
  if (i_hdu >= 0)
    MILL_TRY(read_shared_wave(g, i_hdu));
  const vector *flux = &g->vector[FLUX];
  if (g->n_shared > 0 && !flux->variable && flux->length != g->n_shared)
    FAIL_TABLE(g, "column FLUX has %lld values a row, but HDU WAVELENGTH %d",
               (long long)flux->length, g->n_shared);
done:
  return err;
}

/* ---- conventions ------------------------------------------------------ */

static int read_conventions(generic *g, int medium)
{
  int err = MILL_OK;
  static const int frames[] = {MILL_FRAME_BARYCENTRIC, MILL_FRAME_HELIOCENTRIC,
                               MILL_FRAME_TOPOCENTRIC};
  char text[FLEN_VALUE] = "";
  int found;
  MILL_TRY(mill_single_key_text(g->file, g->i_hdu, "MEDIUM", text, sizeof text, &found));
  g->air = strcasecmp(text, "air") == 0;
  if (found && !g->air && strcasecmp(text, "vacuum") != 0)
    FAIL_TABLE(g, "MEDIUM is '%s', expected 'vacuum' or 'air'", text);
  if (!found && medium == MILL_MEDIUM_AUTO)
    FAIL_TABLE(g, "keyword %s must say whether wavelengths are 'vacuum' or 'air'; or set medium",
               "MEDIUM");
  MILL_TRY(mill_single_key_text(g->file, g->i_hdu, "FRAME", text, sizeof text, &found));
  g->frame = MILL_FRAME_UNKNOWN;
  if (!found)
    goto done;
  for (size_t i = 0; i < sizeof frames / sizeof *frames; i++)
    if (strcasecmp(text, mill_frame_name(frames[i])) == 0)
      g->frame = frames[i];
  if (g->frame == MILL_FRAME_UNKNOWN)
    FAIL_TABLE(g, "FRAME is '%s', expected 'barycentric', 'heliocentric' or 'topocentric'", text);
done:
  return err;
}

/* ---- which rows belong together ---------------------------------------- */

typedef struct row_key {
  const char *name, *arm;
  int64_t row, id;
} row_key;

static int compare_keys(const void *a, const void *b)
{
  const row_key *x = a, *y = b;
  const int by_name = strcmp(x->name, y->name);
  if (by_name != 0)
    return by_name;
  if (x->id != y->id)
    return x->id < y->id ? -1 : 1;
  const int by_arm = strcmp(x->arm, y->arm);
  if (by_arm != 0)
    return by_arm;
  return (x->row > y->row) - (x->row < y->row);
}

static int compare_rows(const void *a, const void *b)
{
  const row_key *x = a, *y = b;
  return (x->row > y->row) - (x->row < y->row);
}

static int compare_exposures(const void *a, const void *b)
{
  const exposure *x = a, *y = b;
  return (x->first_row > y->first_row) - (x->first_row < y->first_row);
}

static int compare_joint(const void *a, const void *b)
{
  const exposure *x = a, *y = b;
  if (x->star_row != y->star_row)
    return x->star_row < y->star_row ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

/* Names that the result can hold, arms as names of channels. */
static int check_names(generic *g)
{
  int err = MILL_OK;
  const size_t max_name = sizeof((mill_catalog_row *)0)->object - 1;
  for (int64_t i = 0; i < g->n_row; i++) {
    const char *name = g->name + (size_t)i * g->name_stride;
    if (!name[0] || strlen(name) > max_name)
      FAIL_TABLE(g, "NAME of row %lld (counted from 0) is '%s'; it must have 1 to %zu characters",
                 (long long)i, name, max_name);
    if (!g->arm)
      continue;
    char *arm = g->arm + (size_t)i * g->arm_stride;
    if (strlen(arm) >= MILL_MAX_NAME)
      FAIL_TABLE(g,
                 "ARM of row %lld (counted from 0) is '%s'; it must not have more than %d "
                 "characters",
                 (long long)i, arm, MILL_MAX_NAME - 1);
    for (char *p = arm; *p; p++)
      *p = (char)tolower((unsigned char)*p);
  }
done:
  return err;
}

/* key [n] is sorted, all of one NAME: make its exposures. */
static int add_star(generic *g, row_key *key, int64_t n)
{
  int err = MILL_OK;
  int64_t star_row = key[0].row;
  for (int64_t i = 1; i < n; i++) {
    star_row = key[i].row < star_row ? key[i].row : star_row;
    if (key[i].id == key[i - 1].id && strcmp(key[i].arm, key[i - 1].arm) == 0)
      FAIL_TABLE(g,
                 "rows %lld and %lld (counted from 0) have the same NAME '%s' and the same "
                 "EXPOSURE and ARM, if any; tell them apart by one of these",
                 (long long)key[i - 1].row, (long long)key[i].row, key[i].name);
  }
  for (int64_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && key[end].id == key[i].id;)
      end++;
    exposure *e = &g->exposure[g->n_exposure++];
    const int64_t id = key[i].id;
    qsort(key + i, (size_t)(end - i), sizeof *key, compare_rows);
    *e = (exposure){.first_row = key[i].row, .star_row = star_row, .id = (int32_t)id};
    g->is_first[e->first_row] = 1;
    for (int64_t k = i; k < end; k++)
      g->next_row[key[k].row] = k + 1 < end ? key[k + 1].row : -1;
  }
done:
  return err;
}

static int group_rows(generic *g)
{
  int err = MILL_OK;
  row_key *key = NULL;
  int64_t *id = NULL;
  int found;
  MILL_TRY(MILL_ALLOC(g->n_row, &id));
  for (int64_t i = 0; i < g->n_row; i++)
    id[i] = -1;
  MILL_TRY(mill_fits_column_int64(g->file, g->i_hdu, "EXPOSURE", id, &found));
  MILL_TRY(MILL_ALLOC(g->n_row, &key));
  MILL_TRY(MILL_ALLOC(g->n_row, &g->next_row));
  MILL_TRY(MILL_ALLOC(g->n_row, &g->is_first));
  MILL_TRY(MILL_ALLOC(g->n_row, &g->exposure));
  for (int64_t i = 0; i < g->n_row; i++) {
    if (id[i] < INT32_MIN || id[i] > INT32_MAX)
      FAIL_TABLE(g, "EXPOSURE of row %lld (counted from 0) is %lld, beyond 32 bits", (long long)i,
                 (long long)id[i]);
    key[i] = (row_key){.name = g->name + (size_t)i * g->name_stride,
                       .arm = g->arm ? g->arm + (size_t)i * g->arm_stride : "",
                       .row = i,
                       .id = id[i]};
  }
  qsort(key, (size_t)g->n_row, sizeof *key, compare_keys);
  for (int64_t i = 0, end; i < g->n_row; i = end) {
    for (end = i + 1; end < g->n_row && strcmp(key[end].name, key[i].name) == 0;)
      end++;
    MILL_TRY(add_star(g, key + i, end - i));
  }
  qsort(g->exposure, (size_t)g->n_exposure, sizeof *g->exposure,
        g->joint ? compare_joint : compare_exposures);
done:
  mill_free(key);
  mill_free(id);
  return err;
}

/* ---- opening ---------------------------------------------------------- */

static void close_file(void *state)
{
  generic *g = state;
  if (!g)
    return;
  mill_free(g->shared_wave_aa);
  mill_free(g->name);
  mill_free(g->arm);
  mill_free(g->next_row);
  mill_free(g->is_first);
  mill_free(g->exposure);
  for (int i = 0; i < N_KNOWN_WAVE; i++)
    mill_free(g->known[i].wave_aa);
  mill_single_clear(&g->spectrum);
  mill_free(g);
}

/* Bytes of the heap, where vectors of variable length lie. */
static int measure_heap(generic *g)
{
  int err = MILL_OK;
  const mill_fits_hdu *hdu = &g->file->guard->hdu[g->i_hdu];
  double start = (double)hdu->axis[0] * (double)hdu->axis[1];
  int found;
  MILL_TRY(mill_single_key_double(g->file, g->i_hdu, "THEAP", &start, &found));
  g->heap_bytes = hdu->data_bytes - (int64_t)start; /* the guard saw that it is within */
done:
  return err;
}

static int open_file(mill_fits_file *file, const mill_spectra_settings *settings, void **state)
{
  int err = MILL_OK;
  generic *g = NULL;
  int found;
  *state = NULL;
  MILL_TRY(MILL_ALLOC(1, &g));
  g->file = file;
  g->joint = settings->config->exposures == MILL_EXPOSURES_JOINT;
  MILL_TRY(mill_fits_file_find(file, "SPECTRA", &g->i_hdu));
  if (g->i_hdu < 0 || file->guard->hdu[g->i_hdu].kind != MILL_FITS_TABLE)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: has no binary table SPECTRA; docs/formats.md has the generic layout",
              file->guard->path);
  g->n_row = file->guard->hdu[g->i_hdu].axis[1];
  MILL_TRY(measure_heap(g));
  MILL_TRY(find_vectors(g));
  MILL_TRY(check_heap(g));
  MILL_TRY(find_wavelengths(g));
  MILL_TRY(read_conventions(g, settings->config->medium));
  MILL_TRY(mill_fits_column_text(file, g->i_hdu, "NAME", &g->name, &g->name_stride, NULL));
  MILL_TRY(mill_fits_column_text(file, g->i_hdu, "ARM", &g->arm, &g->arm_stride, &found));
  MILL_TRY(check_names(g));
  MILL_TRY(group_rows(g));
  *state = g;
  g = NULL;
done:
  close_file(g);
  return err;
}

static int get_frame(const void *state)
{
  return ((const generic *)state)->frame;
}

/* ---- index ------------------------------------------------------------ */

static int check_targets(const generic *g, const int64_t *target_id)
{
  int err = MILL_OK;
  for (int64_t i = 0; i < g->n_exposure; i++) {
    const int64_t star = g->exposure[i].star_row;
    for (int64_t row = g->exposure[i].first_row; row >= 0; row = g->next_row[row])
      if (target_id[row] != target_id[star])
        FAIL_TABLE(g,
                   "rows %lld and %lld (counted from 0) are both NAME '%s', but TARGETID %lld "
                   "and %lld",
                   (long long)star, (long long)row, g->name + (size_t)row * g->name_stride,
                   (long long)target_id[star], (long long)target_id[row]);
  }
done:
  return err;
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  generic *g = state;
  int64_t *target_id = NULL;
  double *ra = NULL, *dec = NULL;
  int found;
  memset(index, 0, sizeof *index);
  MILL_TRY(MILL_ALLOC(g->n_row, &target_id));
  MILL_TRY(MILL_ALLOC(g->n_row, &ra));
  MILL_TRY(MILL_ALLOC(g->n_row, &dec));
  for (int64_t i = 0; i < g->n_row; i++) {
    target_id[i] = -1;
    ra[i] = dec[i] = NAN;
  }
  MILL_TRY(mill_fits_column_int64(g->file, g->i_hdu, "TARGETID", target_id, &found));
  MILL_TRY(mill_fits_column_double(g->file, g->i_hdu, "RA", ra, &found));
  MILL_TRY(mill_fits_column_double(g->file, g->i_hdu, "DEC", dec, &found));
  MILL_TRY(check_targets(g, target_id));
  MILL_TRY(MILL_ALLOC(g->n_exposure, &index->row));
  MILL_TRY(MILL_ALLOC(g->n_exposure, &index->exposure_row));
  MILL_TRY(MILL_ALLOC(g->n_exposure, &index->exposure_id));
  for (int64_t i = 0, end; i < g->n_exposure; i = end) {
    const int64_t first = g->exposure[i].first_row;
    mill_catalog_row *row = &index->row[index->n_row];
    for (end = i + 1;
         g->joint && end < g->n_exposure && g->exposure[end].star_row == g->exposure[i].star_row;)
      end++;
    mill_single_row_init(row);
    row->target_id = target_id[first];
    if (!mill_selection_keeps_target(select, row->target_id) ||
        !mill_selection_keeps_redrock(select, row->z, row->spectype))
      continue;
    if (end - i > INT32_MAX)
      FAIL_TABLE(g, "NAME '%s' has too many exposures", g->name + (size_t)first * g->name_stride);
    snprintf(row->object, sizeof row->object, "%s", g->name + (size_t)first * g->name_stride);
    row->target_ra = ra[first];
    row->target_dec = dec[first];
    row->fits_row = first;
    row->n_exposure = (int32_t)(end - i);
    row->exp_id = row->n_exposure == 1 ? g->exposure[i].id : -1;
    row->first_exposure = index->n_exposure;
    for (int64_t k = i; k < end; k++) {
      index->exposure_row[index->n_exposure] = g->exposure[k].first_row;
      index->exposure_id[index->n_exposure++] = g->exposure[k].id;
    }
    index->n_row++;
  }
  index->n_fits_row = g->n_row;
  index->file_size = g->file->guard->file_size;
  index->file_mtime = g->file->guard->file_mtime;
done:
  mill_free(target_id);
  mill_free(ra);
  mill_free(dec);
  if (err != MILL_OK)
    mill_file_index_clear(index);
  return err;
}

/* ---- pixels ----------------------------------------------------------- */

static int column_error(generic *g, int i, int64_t row, int status)
{
  char what[96];
  snprintf(what, sizeof what, "column %s of row %lld (counted from 0) cannot be read",
           vector_name[i], (long long)row);
  return mill_fits_file_error(g->file, g->i_hdu, what, status);
}

static int vector_length(generic *g, int i, int64_t row, int64_t *length)
{
  int err = MILL_OK;
  const vector *v = &g->vector[i];
  int status = 0;
  LONGLONG n = 0, at = 0;
  *length = v->length;
  if (!v->variable)
    goto done;
  if (fits_read_descriptll(g->file->fptr, v->number, row + 1, &n, &at, &status)) {
    err = column_error(g, i, row, status);
    goto done;
  }
  /* CFITSIO would read what lies behind the table */
  if (n < 0 || at < 0 || at > g->heap_bytes || n > (g->heap_bytes - at) / v->n_byte)
    FAIL_TABLE(g,
               "column %s of row %lld (counted from 0) lies outside the table; fetch or make "
               "the file again",
               vector_name[i], (long long)row);
  *length = n;
done:
  return err;
}

/* Pixels of a row, which all of its columns must have. */
static int row_length(generic *g, int64_t row, int *n_pix)
{
  int err = MILL_OK;
  int64_t length = 0, other;
  MILL_TRY(vector_length(g, FLUX, row, &length));
  if (length < 2 || length > MILL_SINGLE_MAX_PIX)
    FAIL_TABLE(g, "row %lld (counted from 0) has %lld pixels, expected 2 to %d", (long long)row,
               (long long)length, MILL_SINGLE_MAX_PIX);
  for (int i = 0; i < N_VECTOR; i++) {
    if (g->vector[i].number == 0)
      continue;
    MILL_TRY(vector_length(g, i, row, &other));
    if (other != length)
      FAIL_TABLE(g, "row %lld (counted from 0) has %lld values of FLUX, but %lld of %s",
                 (long long)row, (long long)length, (long long)other, vector_name[i]);
  }
  if (g->n_shared > 0 && length != g->n_shared)
    FAIL_TABLE(g, "row %lld (counted from 0) has %lld values of FLUX, but HDU WAVELENGTH %d",
               (long long)row, (long long)length, g->n_shared);
  *n_pix = (int)length;
done:
  return err;
}

static int read_doubles(generic *g, int i, int64_t row, int n_pix, double *out)
{
  double nan_value = NAN;
  int status = 0, any_null;
  if (fits_read_col(g->file->fptr, TDOUBLE, g->vector[i].number, row + 1, 1, n_pix,
                    g->vector[i].is_integer ? &nan_value : NULL, out, &any_null, &status))
    return column_error(g, i, row, status);
  return MILL_OK;
}

static int read_floats(generic *g, int i, int64_t row, int n_pix, float *out)
{
  int err = MILL_OK;
  int status = 0, any_null;
  if (!g->vector[i].is_float) { /* CFITSIO refuses what float32 cannot hold */
    MILL_TRY(read_doubles(g, i, row, n_pix, g->spectrum.number));
    mill_single_narrow(g->spectrum.number, n_pix, out);
  } else if (fits_read_col(g->file->fptr, TFLOAT, g->vector[i].number, row + 1, 1, n_pix, NULL, out,
                           &any_null, &status)) {
    err = column_error(g, i, row, status);
  }
done:
  return err;
}

static int32_t fold_mask(uint64_t value)
{
  /* bits that an int32 lacks must still mark the pixel */
  return (int32_t)((uint32_t)value | (value >> 32 != 0 ? UINT32_C(1) << 31 : 0));
}

static int read_mask(generic *g, int64_t row, int n_pix)
{
  int err = MILL_OK;
  const vector *v = &g->vector[MASK];
  int status = 0, any_null;
  fitsfile *fptr = g->file->fptr;
  int32_t *mask = g->spectrum.mask;
  static_assert(sizeof(double) == sizeof(LONGLONG), "number holds masks of 64 bits too");
  LONGLONG *wide = (LONGLONG *)(void *)g->spectrum.number;
  if (v->type == TLOGICAL) {
    char *truth = (char *)g->spectrum.number;
    fits_read_col(fptr, TLOGICAL, v->number, row + 1, 1, n_pix, NULL, truth, &any_null, &status);
    for (int i = 0; status == 0 && i < n_pix; i++)
      mask[i] = truth[i] != 0;
  } else {
    if (v->type == TLONGLONG)
      fits_set_tscale(fptr, v->number, 1.0, 0.0, &status);
    fits_read_col(fptr, TLONGLONG, v->number, row + 1, 1, n_pix, NULL, wide, &any_null, &status);
    for (int i = 0; status == 0 && i < n_pix; i++)
      mask[i] = fold_mask((uint64_t)wide[i] + v->offset);
  }
  if (status != 0)
    err = column_error(g, MASK, row, status);
  return err;
}

/* ivar = 1 / ERROR^2, 0 where ERROR is no error.  Fluxes in a unit so large that this is
 * beyond float32 nearly everywhere (a spectrum in erg / s / cm2 / A may be) are refused. */
static int read_errors(generic *g, int64_t row, int n_pix, float *ivar)
{
  int err = MILL_OK;
  double *error = g->spectrum.number;
  int n_good = 0, n_beyond = 0;
  MILL_TRY(read_doubles(g, ERROR, row, n_pix, error));
  for (int i = 0; i < n_pix; i++) {
    const int is_good = isfinite(error[i]) && error[i] > 0.0;
    error[i] = is_good ? 1.0 / (error[i] * error[i]) : 0.0;
    n_good += is_good;
    n_beyond += error[i] > (double)FLT_MAX;
  }
  if (2 * n_beyond > n_good)
    FAIL_TABLE(g,
               "ERROR of row %lld (counted from 0) is so small that its inverse square is "
               "beyond single precision; multiply FLUX and ERROR by a power of ten",
               (long long)row);
  mill_single_narrow(error, n_pix, ivar);
done:
  return err;
}

/* Widths in A.  A pixel without one is bad and takes its neighbour's, since the pixels
 * around it are convolved all the same. */
static int read_sigma(generic *g, int64_t row, int n_pix, float *ivar)
{
  int err = MILL_OK;
  double *sigma = g->spectrum.number;
  int last = -1;
  MILL_TRY(read_doubles(g, LSF_SIGMA, row, n_pix, sigma));
  for (int i = 0; i < n_pix; i++) {
    sigma[i] *= g->vector[LSF_SIGMA].to_aa;
    if (isfinite(sigma[i]) && sigma[i] > 0.0 && sigma[i] < (double)FLT_MAX) {
      for (int k = 0; last < 0 && k < i; k++)
        sigma[k] = sigma[i];
      last = i;
    } else {
      ivar[i] = 0.0f;
      sigma[i] = last >= 0 ? sigma[last] : 0.0;
    }
  }
  if (last < 0)
    FAIL_TABLE(g, "LSF_SIGMA of row %lld (counted from 0) has no positive number", (long long)row);
  mill_single_narrow(sigma, n_pix, g->spectrum.sigma_aa);
done:
  return err;
}

/* Number that says which rows share their wavelengths. */
static int64_t find_token(generic *g, int n_pix, const double *wave_aa, int *err)
{
  const size_t n_byte = (size_t)n_pix * sizeof *wave_aa;
  for (int i = 0; i < N_KNOWN_WAVE; i++)
    if (g->known[i].n_pix == n_pix && memcmp(g->known[i].wave_aa, wave_aa, n_byte) == 0)
      return g->known[i].token;
  known_wave *known = &g->known[g->i_known];
  g->i_known = (g->i_known + 1) % N_KNOWN_WAVE;
  mill_free(known->wave_aa);
  memset(known, 0, sizeof *known);
  *err = MILL_ALLOC(n_pix, &known->wave_aa);
  if (*err != MILL_OK)
    return 0;
  memcpy(known->wave_aa, wave_aa, n_byte);
  known->n_pix = n_pix;
  known->token = ++g->last_token;
  return known->token;
}

static int describe_row(generic *g, int64_t row, mill_channel *channel)
{
  int err = MILL_OK;
  int n_pix = 0;
  mill_single_spectrum *spectrum = &g->spectrum;
  *channel = (mill_channel){.air = g->air};
  MILL_TRY(mill_fits_file_move(g->file, g->i_hdu));
  MILL_TRY(row_length(g, row, &n_pix));
  MILL_TRY(mill_single_resize(spectrum, n_pix));
  const char *arm = g->arm ? g->arm + (size_t)row * g->arm_stride : "";
  snprintf(channel->name, sizeof channel->name, "%s", arm[0] ? arm : MILL_GENERIC_CHANNEL);
  channel->n_pix = n_pix;
  channel->sigma_aa = g->vector[LSF_SIGMA].number > 0 ? spectrum->sigma_aa : NULL;
  if (g->n_shared > 0) {
    channel->wave_aa = g->shared_wave_aa;
    channel->wave_token = 1;
    goto done;
  }
  MILL_TRY(read_doubles(g, WAVELENGTH, row, n_pix, spectrum->wave_aa));
  for (int i = 0; i < n_pix; i++)
    spectrum->wave_aa[i] *= g->vector[WAVELENGTH].to_aa;
  char what[64];
  snprintf(what, sizeof what, "column WAVELENGTH of row %lld (counted from 0)", (long long)row);
  MILL_TRY(mill_single_check_wave(g->file, g->i_hdu, what, n_pix, spectrum->wave_aa));
  channel->wave_aa = spectrum->wave_aa;
  channel->wave_token = find_token(g, n_pix, spectrum->wave_aa, &err);
done:
  return err;
}

static int read_pixels(generic *g, int64_t row, mill_channel *channel)
{
  int err = MILL_OK;
  mill_single_spectrum *spectrum = &g->spectrum;
  const int n_pix = channel->n_pix;
  MILL_TRY(read_floats(g, FLUX, row, n_pix, spectrum->flux));
  if (g->vector[ERROR].number > 0)
    MILL_TRY(read_errors(g, row, n_pix, spectrum->ivar));
  else
    MILL_TRY(read_floats(g, IVAR, row, n_pix, spectrum->ivar));
  if (g->vector[LSF_SIGMA].number > 0)
    MILL_TRY(read_sigma(g, row, n_pix, spectrum->ivar));
  if (g->vector[MASK].number > 0) {
    MILL_TRY(read_mask(g, row, n_pix));
    channel->mask = spectrum->mask;
  }
  channel->flux = spectrum->flux;
  channel->ivar = spectrum->ivar;
done:
  return err;
}

static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  int err = MILL_OK;
  generic *g = state;
  for (int i = 0; i < n; i++) {
    if (number[i] < 0 || number[i] >= g->n_row || !g->is_first[number[i]])
      MILL_FAIL(MILL_ERR_RANGE, "%s: no exposure begins in row %lld", g->file->guard->path,
                (long long)number[i]);
    for (int64_t row = number[i]; row >= 0; row = g->next_row[row]) {
      mill_channel channel;
      int wants;
      MILL_TRY(describe_row(g, row, &channel));
      MILL_TRY(mill_spectra_wants(spectra, &channel, &wants));
      if (wants & MILL_WANTS_PIXELS)
        MILL_TRY(read_pixels(g, row, &channel));
      MILL_TRY(mill_spectra_add(spectra, i, &channel));
    }
  }
done:
  return err;
}

const mill_format mill_format_generic = {
    .name = "generic",
    .description = "any spectra as rows of a table SPECTRA; docs/formats.md has the layout",
    .recognise = recognise,
    .open = open_file,
    .close = close_file,
    .frame = get_frame,
    .index = index_file,
    .read = read_exposures};
