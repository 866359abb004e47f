#include "tests/io/surveys/one_format.h"

#include <float.h>

#include "io/surveys/generic.h"

enum { N_ROW = 3, N_PIX = 4, MAX_COLUMN = 16, MAX_HEAP = 1 << 14 };

/* A column of the table: numbers in host order, row after row.  form nP...: of variable
 * length, the numbers of all rows without gaps, length [N_ROW]. */
typedef struct column {
  const char *name, *form, *unit;
  const void *values;
  const int *length;
} column;

typedef struct layout {
  int n_column;
  column column[MAX_COLUMN];
  const char *key[4]; /* cards of SPECTRA */
  int32_t heap_shift; /* added to where vectors of variable length lie */
  const char *shared; /* a column of variable length whose rows are all the first one */
  const char *extname;
} layout;

static one_format one;

static const double wave[N_ROW * N_PIX] = {4000.0, 4001.5, 4003.25, 4004.0, 5000.0,  5000.1,
                                           5000.2, 5000.3, 4000.0,  4001.5, 4003.25, 4004.0};
static const float flux[N_ROW * N_PIX] = {1.5f, -2.25f, NAN,  INFINITY, 1e-42f, 0.0f,
                                          7.0f, 8.0f,   9.0f, 10.0f,    11.0f,  12.0f};
static const float ivar[N_ROW * N_PIX] = {1.0f, 0.0f, 3.0f, -1.0f, INFINITY, 0.5f,
                                          2.0f, 2.5f, 3.5f, 4.5f,  5.5f,     6.5f};
static const int32_t mask[N_ROW * N_PIX] = {0, 1, 0, INT32_MIN, 0, 0, 4, 0, 0, 0, 0, 2};
static const float sigma[N_ROW * N_PIX] = {0.5f, 0.6f, 0.7f, 0.8f, 1.0f, 1.1f,
                                           1.2f, 1.3f, 2.0f, 2.1f, 2.2f, 2.3f};
static const int64_t target[N_ROW] = {30, INT64_C(1) << 60, -7};
static const double ra[N_ROW] = {10.5, 20.25, 359.75}, dec[N_ROW] = {-1.0, 0.125, 89.0};

static int begin(void **state)
{
  static const char *const arm[ONE_N_ARM] = {"b", "r", MILL_GENERIC_CHANNEL};
  (void)state;
  one_begin(&one, &mill_format_generic, 1);
  for (int i = 0; i < ONE_N_ARM; i++)
    strcpy(one.lib.arm[i].name, arm[i]);
  return 0;
}

static int end(void **state)
{
  (void)state;
  one_end(&one);
  return 0;
}

/* ---- writing ---------------------------------------------------------- */

static layout usual(void)
{
  layout t = {.n_column = 5,
              .column = {{"NAME", "6A", NULL, "star_astar_bstar_c", NULL},
                         {"WAVELENGTH", "4D", "Angstrom", wave, NULL},
                         {"FLUX", "4E", NULL, flux, NULL},
                         {"IVAR", "4E", NULL, ivar, NULL},
                         {"MASK", "4J", NULL, mask, NULL}},
              .key = {"MEDIUM  = 'vacuum'"},
              .extname = "SPECTRA"};
  return t;
}

static column *find(layout *t, const char *name)
{
  for (int i = 0; i < t->n_column; i++)
    if (strcmp(t->column[i].name, name) == 0)
      return &t->column[i];
  fail_msg("no column %s", name);
  return NULL;
}

static void add(layout *t, column c)
{
  assert_true(t->n_column < MAX_COLUMN);
  t->column[t->n_column++] = c;
}

static void leave(layout *t, const char *name)
{
  column *c = find(t, name);
  memmove(c, c + 1, (size_t)(&t->column[t->n_column] - (c + 1)) * sizeof *c);
  t->n_column--;
}

static size_t element_bytes(const char *form)
{
  const char *code = form + strspn(form, "0123456789");
  code += *code == 'P' || *code == 'Q';
  return strchr("ALB", *code) ? 1 : *code == 'I' ? 2 : strchr("JE", *code) ? 4 : 8;
}

static size_t field_bytes(const column *c)
{
  return c->length ? 8 : maker_column_repeat(c->form) * element_bytes(c->form);
}

static void put_table(fits_maker *m, const layout *t)
{
  fits_maker heap = {0};
  size_t row_bytes = 0, heap_bytes = 0, at[MAX_COLUMN] = {0};
  int32_t start = 0;
  for (int i = 0; i < t->n_column; i++) {
    row_bytes += field_bytes(&t->column[i]);
    const int n_row = t->shared && strcmp(t->shared, t->column[i].name) == 0 ? 1 : N_ROW;
    for (int k = 0; t->column[i].length && k < n_row; k++)
      heap_bytes += (size_t)t->column[i].length[k] * element_bytes(t->column[i].form);
  }
  maker_begin(m);
  maker_card(m, "XTENSION= 'BINTABLE'");
  maker_card(m, "BITPIX  =                    8");
  maker_card(m, "NAXIS   =                    2");
  maker_card(m, "NAXIS1  = %20zu", row_bytes);
  maker_card(m, "NAXIS2  = %20d", N_ROW);
  maker_card(m, "PCOUNT  = %20zu", heap_bytes);
  maker_card(m, "GCOUNT  =                    1");
  maker_card(m, "TFIELDS = %20d", t->n_column);
  for (int i = 0; i < t->n_column; i++) {
    maker_card(m, "TTYPE%-3d= '%s'", i + 1, t->column[i].name);
    maker_card(m, "TFORM%-3d= '%s'", i + 1, t->column[i].form);
    if (t->column[i].unit)
      maker_card(m, "TUNIT%-3d= '%s'", i + 1, t->column[i].unit);
  }
  maker_card(m, "EXTNAME = '%s'", t->extname);
  for (int i = 0; i < 4 && t->key[i]; i++)
    maker_card(m, "%s", t->key[i]);
  maker_end(m);
  for (int row = 0; row < N_ROW; row++)
    for (int i = 0; i < t->n_column; i++) {
      const column *c = &t->column[i];
      const size_t size = element_bytes(c->form), n = maker_column_repeat(c->form);
      if (!c->length) {
        maker_values(m, (const char *)c->values + (size_t)row * n * size, n, size);
        continue;
      }
      const int is_shared = t->shared && strcmp(t->shared, c->name) == 0;
      if (is_shared && row == 0)
        start = (int32_t)heap.n;
      const int32_t place[2] = {c->length[row],
                                (is_shared ? start : (int32_t)heap.n) + t->heap_shift};
      maker_values(m, place, 2, 4);
      if (is_shared && row > 0)
        continue;
      maker_values(&heap, (const char *)c->values + at[i] * size, (size_t)c->length[row], size);
      at[i] += (size_t)c->length[row];
    }
  assert_int_equal(heap.n, heap_bytes);
  maker_append(m, heap.bytes, heap.n);
  maker_clear(&heap);
  maker_pad(m, 0);
}

static void save(const layout *t)
{
  fits_maker m = {0};
  maker_primary(&m);
  put_table(&m, t);
  maker_save(&m, one.path);
  maker_clear(&m);
}

/* ---- reading ---------------------------------------------------------- */

typedef struct opened {
  mill_spectra *spectra;
  mill_file_index index;
  mill_read_batch batch;
} opened;

static opened open_all(const layout *t)
{
  opened o = {0};
  if (t)
    save(t);
  o.spectra = one_open(&one, one.path);
  one_index(&one, o.spectra, &o.index);
  one_read(o.spectra, &o.index, &o.batch);
  return o;
}

static void close_all(opened *o)
{
  mill_read_batch_clear(&o->batch);
  mill_file_index_clear(&o->index);
  mill_spectra_close(o->spectra);
}

static const double *wave_of(const opened *o, const mill_read_segment *s)
{
  return o->batch.wave[s->wave].wave_aa;
}

static void assert_usual_pixels(const opened *o)
{
  assert_int_equal(o->batch.n_segment, N_ROW);
  for (int i = 0; i < N_ROW; i++) {
    const mill_read_segment *s = &o->batch.segment[i];
    assert_int_equal(s->use, MILL_SEGMENT_FIT);
    assert_int_equal(s->exposure, i);
    assert_int_equal(s->n_pix, N_PIX);
    assert_memory_equal(s->flux, flux + i * N_PIX, sizeof flux / N_ROW);
    assert_memory_equal(s->ivar, ivar + i * N_PIX, sizeof ivar / N_ROW);
    assert_memory_equal(wave_of(o, s), wave + i * N_PIX, sizeof wave / N_ROW);
  }
}

static void test_values_arrive_bit_for_bit(void **state)
{
  layout t = usual();
  (void)state;
  add(&t, (column){"LSF_SIGMA", "4E", "Angstrom", sigma, NULL});
  add(&t, (column){"TARGETID", "K", NULL, target, NULL});
  add(&t, (column){"RA", "D", "deg", ra, NULL});
  add(&t, (column){"DEC", "D", "deg", dec, NULL});
  t.key[1] = "FRAME   = 'barycentric'";
  opened o = open_all(&t);
  assert_usual_pixels(&o);
  assert_int_equal(mill_spectra_frame(o.spectra), MILL_FRAME_BARYCENTRIC);
  for (int i = 0; i < N_ROW; i++) {
    assert_memory_equal(o.batch.segment[i].mask, mask + i * N_PIX, sizeof mask / N_ROW);
    assert_memory_equal(o.batch.segment[i].sigma_aa, sigma + i * N_PIX, sizeof sigma / N_ROW);
    assert_int_equal(o.batch.segment[i].arm, 2);
    const mill_catalog_row *row = &o.index.row[i];
    assert_int_equal(row->target_id, target[i]);
    assert_true(row->target_ra == ra[i] && row->target_dec == dec[i]);
    assert_int_equal(row->fits_row, i);
    assert_int_equal(row->exp_id, -1);
    assert_int_equal(strncmp(row->object, "star_", 5), 0);
    assert_int_equal(row->object[5], 'a' + i);
  }
  /* rows 0 and 2 share their wavelengths */
  assert_int_equal(o.batch.n_wave, 2);
  assert_int_equal(o.batch.segment[0].wave, o.batch.segment[2].wave);
  close_all(&o);
}

static void test_what_is_not_there_is_missing(void **state)
{
  layout t = usual();
  (void)state;
  leave(&t, "MASK");
  one.lib.arm[2].template_sigma_aa = -1.0; /* no line-spread function is wanted */
  opened o = open_all(&t);
  assert_usual_pixels(&o);
  assert_null(o.batch.segment[0].mask);
  assert_null(o.batch.segment[0].sigma_aa);
  assert_int_equal(o.index.row[0].target_id, -1);
  assert_true(isnan(o.index.row[0].target_ra));
  assert_int_equal(mill_spectra_frame(o.spectra), MILL_FRAME_UNKNOWN);
  close_all(&o);
}

static void test_vectors_of_variable_length(void **state)
{
  static const int length[N_ROW] = {5, 2, 4};
  static const double var_wave[] = {1, 2, 3, 4, 5.5, 10, 11, 20, 21, 22, 23.25};
  static const float var_flux[] = {1.5f, NAN, 3, 4, 5, 6, 7, 8, 9, 10, INFINITY};
  static const double var_ivar[] = {1, 2, 3, 1e300, 5, 6, 7, 8, 9, 10, 11};
  layout t = usual();
  (void)state;
  leave(&t, "MASK");
  *find(&t, "WAVELENGTH") = (column){"WAVELENGTH", "1PD(5)", "Angstrom", var_wave, length};
  *find(&t, "FLUX") = (column){"FLUX", "1PE(5)", NULL, var_flux, length};
  *find(&t, "IVAR") = (column){"IVAR", "1PD(5)", NULL, var_ivar, length};
  one.lib.arm[2].template_sigma_aa = -1.0;
  opened o = open_all(&t);
  assert_int_equal(o.batch.n_segment, N_ROW);
  for (int i = 0, at = 0; i < N_ROW; at += length[i++]) {
    const mill_read_segment *s = &o.batch.segment[i];
    assert_int_equal(s->n_pix, length[i]);
    assert_memory_equal(s->flux, var_flux + at, (size_t)length[i] * sizeof(float));
    assert_memory_equal(wave_of(&o, s), var_wave + at, (size_t)length[i] * sizeof(double));
    for (int k = 0; k < length[i]; k++)
      assert_true(s->ivar[k] == (at + k == 3 ? INFINITY : (float)var_ivar[at + k]));
  }
  close_all(&o);
}

static void test_units_are_converted(void **state)
{
  static const struct {
    const char *unit;
    double to_aa;
  } unit[] = {{"Angstrom", 1.0}, {"angstrom", 1.0}, {"AA", 1.0}, {"nm", 10.0}, {"um", 1e4}};
  (void)state;
  for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
    layout t = usual();
    find(&t, "WAVELENGTH")->unit = unit[u].unit;
    add(&t, (column){"LSF_SIGMA", "4E", unit[u].unit, sigma, NULL});
    opened o = open_all(&t);
    for (int i = 0; i < N_PIX; i++) {
      const mill_read_segment *s = &o.batch.segment[1];
      assert_true(wave_of(&o, s)[i] == wave[N_PIX + i] * unit[u].to_aa);
      assert_true(s->sigma_aa[i] == (float)(sigma[N_PIX + i] * unit[u].to_aa));
    }
    close_all(&o);
  }
}

static void test_error_becomes_ivar(void **state)
{
  static const double error[N_ROW * N_PIX] = {0.5, 0.0,  NAN, -1.0, INFINITY, 1e-30,
                                              3.0, 1e-9, 0.1, 0.2,  0.3,      1e30};
  static const double expected[N_ROW * N_PIX] = {4.0,
                                                 0.0,
                                                 0.0,
                                                 0.0,
                                                 0.0,
                                                 INFINITY,
                                                 1 / 9.0,
                                                 1 / (1e-9 * 1e-9),
                                                 1 / (0.1 * 0.1),
                                                 1 / (0.2 * 0.2),
                                                 1 / (0.3 * 0.3),
                                                 1 / (1e30 * 1e30)};
  layout t = usual();
  (void)state;
  *find(&t, "IVAR") = (column){"ERROR", "4D", NULL, error, NULL};
  one.lib.arm[2].template_sigma_aa = -1.0;
  opened o = open_all(&t);
  for (int i = 0; i < N_ROW * N_PIX; i++)
    assert_true(o.batch.segment[i / N_PIX].ivar[i % N_PIX] == (float)expected[i]);
  close_all(&o);
}

static void test_numbers_of_other_types(void **state)
{
  static const int16_t wave_i[N_ROW * N_PIX] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  static const double flux_d[N_ROW * N_PIX] = {0.1, 1e300, -1e300, NAN, 1, 2, 3, 4, 5, 6, 7, 8};
  static const int32_t ivar_j[N_ROW * N_PIX] = {0, 1, 2, 1 << 30, 4, 5, 6, 7, 8, 9, 10, 11};
  layout t = usual();
  (void)state;
  *find(&t, "WAVELENGTH") = (column){"wavelength", "4I", "Angstrom", wave_i, NULL};
  *find(&t, "FLUX") = (column){"Flux", "4D", NULL, flux_d, NULL};
  *find(&t, "IVAR") = (column){"ivar", "4J", NULL, ivar_j, NULL};
  one.lib.arm[2].template_sigma_aa = -1.0;
  opened o = open_all(&t);
  const float first[N_PIX] = {0.1f, INFINITY, -INFINITY, NAN};
  for (int i = 0; i < N_PIX; i++) {
    const mill_read_segment *s = &o.batch.segment[0];
    assert_true(i == 3 ? isnan(s->flux[i]) : s->flux[i] == first[i]);
    assert_true(s->ivar[i] == (float)ivar_j[i]);
    assert_true(wave_of(&o, s)[i] == wave_i[i]);
  }
  close_all(&o);
}

static void test_masks_of_all_types(void **state)
{
  static const uint8_t truth[] = "FTFFFFFFFFTF", byte[N_ROW * N_PIX] = {0, 255, 1};
  static const int16_t narrow[N_ROW * N_PIX] = {0, -1, 4};
  static const int64_t wide[N_ROW * N_PIX] = {0, INT64_C(1) << 40, 3, INT64_MIN};
  /* stored as unsigned integers are: less 2^63 and 2^15 */
  static const int64_t unsigned_wide[N_ROW * N_PIX] = {INT64_MIN, INT64_MIN + 1, -1, 0};
  static const int16_t unsigned_narrow[N_ROW * N_PIX] = {INT16_MIN, INT16_MIN + 1, INT16_MAX, 0};
  static const int32_t top = INT32_MIN;
  static const struct {
    const char *form, *zero;
    const void *values;
    int32_t first[N_PIX];
  } kind[] = {{"4L", NULL, truth, {0, 1, 0, 0}},
              {"4B", NULL, byte, {0, 255, 1, 0}},
              {"4I", NULL, narrow, {0, -1, 4, 0}},
              {"4K", NULL, wide, {0, top, 3, top}},
              {"4K", "TZERO5  =  9223372036854775808", unsigned_wide, {0, 1, -1, top}},
              {"4I", "TZERO5  =                32768", unsigned_narrow, {0, 1, 65535, 32768}}};
  (void)state;
  one.lib.arm[2].template_sigma_aa = -1.0;
  for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
    layout t = usual();
    find(&t, "MASK")->form = kind[k].form;
    find(&t, "MASK")->values = kind[k].values;
    t.key[1] = kind[k].zero;
    opened o = open_all(&t);
    for (int i = 0; i < N_PIX; i++)
      if (o.batch.segment[0].mask[i] != kind[k].first[i])
        fail_msg("mask %zu, pixel %d: %x", k, i, (unsigned)o.batch.segment[0].mask[i]);
    assert_int_not_equal(o.batch.segment[0].mask[1], 0);
    close_all(&o);
  }
}

static void test_missing_widths_mark_the_pixel(void **state)
{
  static const float bad[N_ROW * N_PIX] = {NAN, 0.6f, 0.0f, -1.0f, 1, 1, 1, 1, 2, 2, 2, INFINITY};
  static const float filled[N_PIX] = {0.6f, 0.6f, 0.6f, 0.6f};
  layout t = usual();
  (void)state;
  add(&t, (column){"LSF_SIGMA", "4E", "Angstrom", bad, NULL});
  opened o = open_all(&t);
  const mill_read_segment *s = o.batch.segment;
  assert_memory_equal(s[0].sigma_aa, filled, sizeof filled);
  assert_true(s[0].ivar[0] == 0.0f && s[0].ivar[1] == ivar[1] && s[0].ivar[2] == 0.0f);
  assert_true(s[2].ivar[2] == ivar[10] && s[2].ivar[3] == 0.0f && s[2].sigma_aa[3] == 2.0f);
  close_all(&o);
}

/* WAVELENGTH as an HDU: an image, a table with one row a pixel. */
static void test_shared_wavelengths(void **state)
{
  (void)state;
  one.lib.arm[2].template_sigma_aa = -1.0;
  for (int is_table = 0; is_table < 2; is_table++) {
    layout t = usual();
    fits_maker m = {0};
    const long axis = N_PIX;
    leave(&t, "WAVELENGTH");
    maker_primary(&m);
    put_table(&m, &t);
    if (is_table) {
      const maker_column c = {"WAVELENGTH", "D", wave};
      maker_table(&m, "WAVELENGTH", N_PIX, 1, &c);
      one_add_card(&m, "TUNIT1  = 'nm'");
    } else {
      maker_image(&m, "WAVELENGTH", -64, 1, &axis, wave, "BUNIT   = 'nm'");
    }
    maker_save(&m, one.path);
    maker_clear(&m);
    opened o = open_all(NULL);
    assert_int_equal(o.batch.n_wave, 1);
    for (int i = 0; i < N_PIX; i++)
      assert_true(o.batch.wave[0].wave_aa[i] == wave[i] * 10.0);
    for (int i = 0; i < N_ROW; i++)
      assert_memory_equal(o.batch.segment[i].flux, flux + i * N_PIX, sizeof flux / N_ROW);
    close_all(&o);
  }
}

static void test_air_wavelengths(void **state)
{
  layout t = usual();
  (void)state;
  t.key[0] = "MEDIUM  = 'Air'";
  one.lib.arm[2].template_sigma_aa = -1.0;
  opened o = open_all(&t);
  assert_true(wave_of(&o, o.batch.segment)[0] == mill_air_to_vacuum(4000.0));
  close_all(&o);
  /* without the keyword the configuration says it */
  t.key[0] = NULL;
  one.config.medium = MILL_MEDIUM_VACUUM;
  o = open_all(&t);
  assert_true(wave_of(&o, o.batch.segment)[0] == 4000.0);
  close_all(&o);
}

/* ---- stars of several rows --------------------------------------------- */

static void test_arms_of_an_exposure_are_one_row(void **state)
{
  layout t = usual();
  (void)state;
  find(&t, "NAME")->values = "twin  lone  twin  ";
  add(&t, (column){"ARM", "1A", NULL, "RbB", NULL});
  one.lib.arm[0].template_sigma_aa = one.lib.arm[1].template_sigma_aa = -1.0;
  opened o = open_all(&t);
  assert_int_equal(o.index.n_row, 2);
  assert_string_equal(o.index.row[0].object, "twin");
  assert_string_equal(o.index.row[1].object, "lone");
  assert_int_equal(o.index.row[0].n_exposure, 1);
  assert_int_equal(o.batch.n_segment, 3);
  /* by exposure, then by arm of the library: b, r */
  assert_int_equal(o.batch.segment[0].arm, 0);
  assert_memory_equal(o.batch.segment[0].flux, flux + 2 * N_PIX, sizeof flux / N_ROW);
  assert_int_equal(o.batch.segment[1].arm, 1);
  assert_memory_equal(o.batch.segment[1].flux, flux, sizeof flux / N_ROW);
  assert_int_equal(o.batch.segment[1].exposure, 0);
  assert_int_equal(o.batch.segment[2].exposure, 1);
  close_all(&o);
}

static void test_exposures_alone_and_together(void **state)
{
  static const int32_t number[N_ROW] = {9, 5, 7};
  layout t = usual();
  (void)state;
  find(&t, "NAME")->values = "twin  lone  twin  ";
  add(&t, (column){"EXPOSURE", "J", NULL, number, NULL});
  one.lib.arm[2].template_sigma_aa = -1.0;
  opened o = open_all(&t);
  assert_int_equal(o.index.n_row, 3);
  for (int i = 0; i < N_ROW; i++) {
    assert_int_equal(o.index.row[i].fits_row, i);
    assert_int_equal(o.index.row[i].exp_id, number[i]);
  }
  close_all(&o);
  one.config.exposures = MILL_EXPOSURES_JOINT;
  o = open_all(&t);
  assert_int_equal(o.index.n_row, 2);
  assert_string_equal(o.index.row[0].object, "twin");
  assert_int_equal(o.index.row[0].n_exposure, 2);
  assert_int_equal(o.index.row[0].exp_id, -1);
  assert_int_equal(o.index.row[1].first_exposure, 2);
  /* ascending EXPOSURE */
  assert_int_equal(o.index.exposure_id[0], 7);
  assert_int_equal(o.index.exposure_row[0], 2);
  assert_int_equal(o.index.exposure_id[1], 9);
  assert_memory_equal(o.batch.segment[0].flux, flux + 2 * N_PIX, sizeof flux / N_ROW);
  assert_memory_equal(o.batch.segment[1].flux, flux, sizeof flux / N_ROW);
  close_all(&o);
}

static void test_list_of_targets(void **state)
{
  layout t = usual();
  int64_t wanted[2] = {-7, 31};
  (void)state;
  add(&t, (column){"TARGETID", "K", NULL, target, NULL});
  one.lib.arm[2].template_sigma_aa = -1.0;
  one.config.select.target_id = wanted;
  one.config.select.n_target_id = 2;
  opened o = open_all(&t);
  assert_int_equal(o.index.n_row, 1);
  assert_int_equal(o.index.n_fits_row, N_ROW);
  assert_int_equal(o.index.exposure_row[0], 2);
  assert_memory_equal(o.batch.segment[0].flux, flux + 2 * N_PIX, sizeof flux / N_ROW);
  close_all(&o);
  one.config.select.target_id = NULL;
  one.config.select.n_target_id = 0;
}

/* ---- what is refused ---------------------------------------------------- */

static void refuse(const layout *t, const char *part, const char *other)
{
  save(t);
  one_refuses(&one, part, other);
}

static void test_columns_that_are_wrong(void **state)
{
  static const char *const needed[] = {"NAME", "WAVELENGTH", "FLUX", "IVAR"};
  static const int64_t wide_mask[N_ROW * N_PIX] = {0};
  layout t;
  (void)state;
  for (size_t i = 0; i < 4; i++) {
    t = usual();
    leave(&t, needed[i]);
    refuse(&t, "HDU 2 (SPECTRA)", needed[i]);
  }
  t = usual();
  add(&t, (column){"ERROR", "4E", NULL, ivar, NULL});
  refuse(&t, "IVAR and ERROR", "HDU 2");
  t = usual();
  add(&t, (column){"FLUX", "4E", NULL, flux, NULL});
  refuse(&t, "FLUX", "two columns");
  t = usual();
  find(&t, "FLUX")->form = "3E";
  refuse(&t, "WAVELENGTH has 4 values", "FLUX 3");
  t = usual();
  find(&t, "IVAR")->form = "1E";
  refuse(&t, "IVAR holds 1 values", "a row is one spectrum");
  t = usual();
  find(&t, "FLUX")->form = "4A";
  refuse(&t, "column FLUX", "numbers");
  t = usual();
  find(&t, "MASK")->form = "4E";
  refuse(&t, "column MASK", "integers");
  t = usual();
  t.key[1] = "TSCAL5  =                  0.5";
  refuse(&t, "column MASK", "integers");
  *find(&t, "MASK") = (column){"MASK", "4K", NULL, wide_mask, NULL};
  refuse(&t, "column MASK", "scaled integers");
  t = usual();
  find(&t, "NAME")->form = "6B";
  refuse(&t, "NAME", "HDU 2");
  t = usual();
  add(&t, (column){"EXPOSURE", "K", NULL, target, NULL});
  refuse(&t, "EXPOSURE of row 1", "beyond 32 bits");
}

static void test_units_that_are_wrong(void **state)
{
  layout t = usual();
  (void)state;
  find(&t, "WAVELENGTH")->unit = NULL;
  refuse(&t, "column WAVELENGTH has no unit", "Angstrom, nm or um");
  find(&t, "WAVELENGTH")->unit = "GHz";
  refuse(&t, "the unit 'GHz'", "column WAVELENGTH");
  t = usual();
  add(&t, (column){"LSF_SIGMA", "4E", "km/s", sigma, NULL});
  refuse(&t, "the unit 'km/s'", "column LSF_SIGMA");
  t = usual();
  *find(&t, "IVAR") = (column){"ERROR", "4E", "mJy", ivar, NULL};
  find(&t, "FLUX")->unit = "Jy";
  refuse(&t, "column ERROR has the unit 'mJy'", "FLUX 'Jy'");
}

static void test_keywords_that_are_wrong(void **state)
{
  layout t = usual();
  (void)state;
  t.key[0] = NULL;
  refuse(&t, "keyword MEDIUM", "set medium");
  t.key[0] = "MEDIUM  = 'water'";
  refuse(&t, "MEDIUM is 'water'", "'vacuum' or 'air'");
  t = usual();
  t.key[1] = "FRAME   = 'galactic'";
  refuse(&t, "FRAME is 'galactic'", "barycentric");
}

static void test_names_that_are_wrong(void **state)
{
  static char longest[N_ROW * 40];
  layout t = usual();
  (void)state;
  find(&t, "NAME")->values = "star_a      star_c";
  refuse(&t, "NAME of row 1", "1 to 31 characters");
  memset(longest, 'x', sizeof longest);
  *find(&t, "NAME") = (column){"NAME", "40A", NULL, longest, NULL};
  refuse(&t, "NAME of row 0", "1 to 31 characters");
  t = usual();
  add(&t, (column){"ARM", "40A", NULL, longest, NULL});
  refuse(&t, "ARM of row 0", "31 characters");
}

/* The file is good, and so are its other rows. */
static void refuse_row(const layout *t, int64_t bad, const char *part)
{
  mill_read_batch batch = {0};
  mill_file_index index;
  char row[32];
  save(t);
  mill_spectra *spectra = one_open(&one, one.path);
  one_index(&one, spectra, &index);
  assert_int_equal(index.n_row, N_ROW);
  snprintf(row, sizeof row, "row %d", (int)bad);
  for (int64_t i = 0; i < N_ROW; i++) {
    mill_error_clear();
    const int err = mill_spectra_read(spectra, &index.exposure_row[i], 1, &batch);
    if (i != bad && err != MILL_OK)
      fail_msg("row %d: %s", (int)i, mill_error_message());
    if (i == bad &&
        (err != MILL_ERR_INPUT || !strstr(mill_error_message(), part) ||
         !strstr(mill_error_message(), row) || !strstr(mill_error_message(), "HDU 2 (SPECTRA)") ||
         !strstr(mill_error_message(), one.path)))
      fail_msg("expected '%s' of %s: %d, %s", part, row, err, mill_error_message());
  }
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

static void test_a_bad_row_is_alone(void **state)
{
  static const int length[N_ROW] = {4, 4, 4}, shorter[N_ROW] = {4, 3, 4},
                   one_pixel[N_ROW] = {4, 4, 1};
  static const double bad_wave[] = {4001.5, 4001.5, 4000.0, NAN, -1.0, INFINITY};
  static const float tiny[N_ROW * N_PIX] = {1, 1, 1, 1, 1, 1, 1, 1, 1e-25f, 1e-25f, 1e-25f, 1};
  static const float no_width[N_ROW * N_PIX] = {1, 1, 1, 1, 0, NAN, -1, 0, 1, 1, 1, 1};
  static const int64_t twins[N_ROW] = {1, 2, 3};
  layout t = usual();
  (void)state;
  one.lib.arm[2].template_sigma_aa = -1.0;
  find(&t, "NAME")->values = "twin  lone  twin  ";
  refuse_row(&t, 2, "NAME 'twin' of row 0");
  one.config.exposures = MILL_EXPOSURES_JOINT;
  refuse_row(&t, 2, "NAME 'twin' of row 0");
  one.config.exposures = MILL_EXPOSURES_COADD;
  /* pieces of one exposure, but of other stars */
  add(&t, (column){"ARM", "1A", NULL, "brr", NULL});
  add(&t, (column){"TARGETID", "K", NULL, twins, NULL});
  refuse_row(&t, 2, "another TARGETID");
  t = usual();
  for (size_t k = 0; k < sizeof bad_wave / sizeof *bad_wave; k++) {
    double changed[N_ROW * N_PIX];
    memcpy(changed, wave, sizeof wave);
    changed[N_PIX + 2] = bad_wave[k]; /* too small, a duplicate of none, not finite */
    if (k == 0)
      changed[N_PIX + 2] = changed[N_PIX + 1];
    find(&t, "WAVELENGTH")->values = changed;
    refuse_row(&t, 1, "WAVELENGTH");
  }
  t = usual();
  leave(&t, "MASK");
  *find(&t, "WAVELENGTH") = (column){"WAVELENGTH", "1PD(4)", "Angstrom", wave, length};
  *find(&t, "FLUX") = (column){"FLUX", "1PE(4)", NULL, flux, length};
  *find(&t, "IVAR") = (column){"IVAR", "1PE(4)", NULL, ivar, shorter};
  refuse_row(&t, 1, "4 values of FLUX, but 3 of IVAR");
  find(&t, "WAVELENGTH")->length = find(&t, "FLUX")->length = find(&t, "IVAR")->length = one_pixel;
  refuse_row(&t, 2, "1 pixels");
  t = usual();
  *find(&t, "IVAR") = (column){"ERROR", "4E", NULL, tiny, NULL};
  refuse_row(&t, 2, "multiply FLUX and ERROR");
  t = usual();
  one.lib.arm[2].template_sigma_aa = 0.0; /* widths are wanted */
  add(&t, (column){"LSF_SIGMA", "4E", "Angstrom", no_width, NULL});
  refuse_row(&t, 1, "LSF_SIGMA");
}

static void test_rows_may_share_wavelengths_but_not_fluxes(void **state)
{
  static const int length[N_ROW] = {4, 4, 4};
  (void)state;
  layout t = usual();
  *find(&t, "WAVELENGTH") = (column){"WAVELENGTH", "1PD(4)", "Angstrom", wave, length};
  t.shared = "WAVELENGTH";
  opened o = open_all(&t);
  assert_int_equal(o.index.n_row, N_ROW);
  close_all(&o);
  /* as many pixels as one likes for the bytes of one spectrum */
  t = usual();
  *find(&t, "FLUX") = (column){"FLUX", "1PE(4)", NULL, flux, length};
  t.shared = "FLUX";
  refuse(&t, "by row 1 (counted from 0) column FLUX has more values", "HDU 2 (SPECTRA)");
}

static void test_vectors_outside_the_file(void **state)
{
  static const int length[N_ROW] = {4, 4, 4};
  (void)state;
  /* the heap has 192 bytes, the first vector 32 */
  for (int k = 0; k < 3; k++) {
    static const int32_t shift[] = {161, -1, INT32_MAX - 200};
    layout t = usual();
    leave(&t, "MASK");
    *find(&t, "WAVELENGTH") = (column){"WAVELENGTH", "1PD(4)", "Angstrom", wave, length};
    *find(&t, "FLUX") = (column){"FLUX", "1PE(4)", NULL, flux, length};
    *find(&t, "IVAR") = (column){"IVAR", "1PE(4)", NULL, ivar, length};
    t.heap_shift = shift[k];
    refuse(&t, "lies outside the table", "HDU 2 (SPECTRA)");
  }
}

static void test_shared_wavelengths_that_are_wrong(void **state)
{
  static const double descending[N_PIX] = {4, 3, 2, 1};
  static const struct {
    long n;
    const double *values;
    const char *extra, *part, *other;
    int with_column;
  } wrong[] = {{4, wave, "BUNIT   = 'nm'", "a column and an HDU", "WAVELENGTH", 1},
               {4, wave, NULL, "HDU 3 (WAVELENGTH)", "no unit", 0},
               {3, wave, "BUNIT   = 'nm'", "FLUX has 4 values", "WAVELENGTH 3", 0},
               {1, wave, "BUNIT   = 'nm'", "HDU 3 (WAVELENGTH)", "2 to", 0},
               {4, descending, "BUNIT   = 'nm'", "HDU 3 (WAVELENGTH)", "ascending", 0}};
  (void)state;
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
    layout t = usual();
    fits_maker m = {0};
    if (!wrong[k].with_column)
      leave(&t, "WAVELENGTH");
    maker_primary(&m);
    put_table(&m, &t);
    maker_image(&m, "WAVELENGTH", -64, 1, &wrong[k].n, wrong[k].values, wrong[k].extra);
    maker_save(&m, one.path);
    maker_clear(&m);
    one_refuses(&one, wrong[k].part, wrong[k].other);
  }
}

static void test_recognises_its_own(void **state)
{
  layout t = usual();
  (void)state;
  save(&t);
  assert_int_equal(one_recognises(&one, one.path), 1);
  assert_int_equal(mill_format_desi.recognise == one.format->recognise, 0);
  t.extname = "OTHER";
  save(&t);
  assert_int_equal(one_recognises(&one, one.path), 0);
  strcpy(one.config.format, "generic"); /* forced on a file that is none */
  one_refuses(&one, "no binary table SPECTRA", "docs/use/formats.md");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(test_values_arrive_bit_for_bit),
                                     TEST(test_rows_may_share_wavelengths_but_not_fluxes),
                                     TEST(test_what_is_not_there_is_missing),
                                     TEST(test_vectors_of_variable_length),
                                     TEST(test_units_are_converted),
                                     TEST(test_error_becomes_ivar),
                                     TEST(test_numbers_of_other_types),
                                     TEST(test_masks_of_all_types),
                                     TEST(test_missing_widths_mark_the_pixel),
                                     TEST(test_shared_wavelengths),
                                     TEST(test_air_wavelengths),
                                     TEST(test_arms_of_an_exposure_are_one_row),
                                     TEST(test_exposures_alone_and_together),
                                     TEST(test_list_of_targets),
                                     TEST(test_columns_that_are_wrong),
                                     TEST(test_units_that_are_wrong),
                                     TEST(test_keywords_that_are_wrong),
                                     TEST(test_names_that_are_wrong),
                                     TEST(test_a_bad_row_is_alone),
                                     TEST(test_vectors_outside_the_file),
                                     TEST(test_shared_wavelengths_that_are_wrong),
                                     TEST(test_recognises_its_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
