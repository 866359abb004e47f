/* SPDX-License-Identifier: BSD-3-Clause */
/* The generic layout: numbers of other types, stars of several rows, rows that are wrong alone. */
#include "tests/io/surveys/samples.h"

enum { N_ROW = 3, N_PIX = 4 };

static void no_lsf(void)
{
  for (int a = 0; a < ONE_N_ARM; a++)
    one.lib.arm[a].template_sigma_aa = -1.0;
}

static one_file read_plainly(const char *edits)
{
  write_sample(GENERIC, 1, edits);
  no_lsf();
  return one_file_open(&one, one.path);
}

/* Values of a column of the recipe in place of those that were drawn. */
static void set_values(const char *column, const void *values)
{
  recipe_column *c = recipe_column_of(&s.file.hdu[1], column);
  recipe_values(c, values, c->n_value);
}

MILL_TEST(what_is_not_there_is_missing)
{
  one_file f = read_plainly("SPECTRA-MASK;SPECTRA-LSF_SIGMA;SPECTRA-TARGETID;SPECTRA-RA");
  assert_null(f.batch.segment[0].mask);
  assert_null(f.batch.segment[0].sigma_aa);
  assert_int_equal(f.index.row[0].target_id, -1);
  assert_true(isnan(f.index.row[0].target_ra));
  one_file_close(&f);
}

MILL_TEST(numbers_of_other_types)
{
  static const int16_t wave[N_ROW * N_PIX] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  static const double flux[N_ROW * N_PIX] = {0.1, 1e300, -1e300, NAN, 1, 2, 3, 4, 5, 6, 7, 8};
  static const int32_t ivar[N_ROW * N_PIX] = {0, 1, 2, 1 << 30, 4, 5, 6, 7, 8, 9, 10, 11};
  static const float first[N_PIX] = {0.1f, INFINITY, -INFINITY, NAN};
  (void)state;
  draw_sample(GENERIC, 1, "SPECTRA WAVELENGTH~4I;SPECTRA FLUX~4D;SPECTRA IVAR~4J");
  set_values("WAVELENGTH", wave);
  set_values("FLUX", flux);
  set_values("IVAR", ivar);
  recipe_save(&s.file, one.path);
  no_lsf();
  one_file f = one_file_open(&one, one.path);
  for (int i = 0; i < N_PIX; i++) {
    const mill_raw_segment *got = &f.batch.segment[0];
    assert_true(i == 3 ? isnan(got->flux[i]) : got->flux[i] == first[i]);
    assert_true(got->ivar[i] == (float)ivar[i]);
    assert_true(got->wave_aa[i] == wave[i]);
  }
  one_file_close(&f);
}

/* No error, and one whose square is beyond float32. */
MILL_TEST(errors_that_are_none)
{
  static const double error[N_ROW * N_PIX] = {0.5, 0.0,  NAN, -1.0, INFINITY, 1e-30,
                                              3.0, 1e-9, 0.1, 0.2,  0.3,      1e30};
  static const double ivar[N_ROW * N_PIX] = {4.0,
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
  (void)state;
  draw_sample(GENERIC, 1, "SPECTRA IVAR>ERROR;SPECTRA ERROR~4D");
  set_values("ERROR", error);
  recipe_save(&s.file, one.path);
  no_lsf();
  one_file f = one_file_open(&one, one.path);
  for (int i = 0; i < N_ROW * N_PIX; i++)
    assert_true(f.batch.segment[i / N_PIX].ivar[i % N_PIX] == (float)ivar[i]);
  one_file_close(&f);
}

MILL_TEST(masks_of_all_types)
{
  static const uint8_t truth[] = "FTFFFFFFFFTF", byte[N_ROW * N_PIX] = {0, 255, 1};
  static const int16_t narrow[N_ROW * N_PIX] = {0, -1, 4};
  static const int64_t wide[N_ROW * N_PIX] = {0, INT64_C(1) << 40, 3, INT64_MIN};
  /* stored as unsigned integers are: less 2^63 and 2^15 */
  static const int64_t unsigned_wide[N_ROW * N_PIX] = {INT64_MIN, INT64_MIN + 1, -1, 0};
  static const int16_t unsigned_narrow[N_ROW * N_PIX] = {INT16_MIN, INT16_MIN + 1, INT16_MAX, 0};
  static const int32_t top = INT32_MIN;
  static const struct {
    const char *edits;
    const void *values;
    int32_t first[N_PIX];
  } kind[] = {
      {"SPECTRA MASK~4L", truth, {0, 1, 0, 0}},
      {"SPECTRA MASK~4B", byte, {0, 255, 1, 0}},
      {"SPECTRA MASK~4I", narrow, {0, -1, 4, 0}},
      {"SPECTRA MASK~4K", wide, {0, top, 3, top}},
      {"SPECTRA MASK~4K;SPECTRA+TZERO5  =  9223372036854775808", unsigned_wide, {0, 1, -1, top}},
      {"SPECTRA MASK~4I;SPECTRA+TZERO5  =                32768",
       unsigned_narrow,
       {0, 1, 65535, 32768}}};
  (void)state;
  for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
    draw_sample(GENERIC, 1, kind[k].edits);
    set_values("MASK", kind[k].values);
    recipe_save(&s.file, one.path);
    no_lsf();
    one_file f = one_file_open(&one, one.path);
    for (int i = 0; i < N_PIX; i++)
      if (f.batch.segment[0].mask[i] != kind[k].first[i])
        fail_msg("mask %zu, pixel %d: %x", k, i, (unsigned)f.batch.segment[0].mask[i]);
    one_file_close(&f);
  }
}

MILL_TEST(missing_widths_mark_the_pixel)
{
  static const float bad[N_ROW * N_PIX] = {NAN, 0.6f, 0.0f, -1.0f, 1, 1, 1, 1, 2, 2, 2, INFINITY};
  static const float filled[N_PIX] = {0.6f, 0.6f, 0.6f, 0.6f};
  (void)state;
  draw_sample(GENERIC, 1, "SPECTRA LSF_SIGMA~4E;SPECTRA IVAR~4E");
  set_values("LSF_SIGMA", bad);
  recipe_edit(&s.file, "SPECTRA IVAR@1=7");
  recipe_edit(&s.file, "SPECTRA IVAR@10=8");
  recipe_save(&s.file, one.path);
  one_file f = one_file_open(&one, one.path);
  const mill_raw_segment *got = f.batch.segment;
  assert_memory_equal(got[0].sigma_aa, filled, sizeof filled);
  assert_true(got[0].ivar[0] == 0.0f && got[0].ivar[1] == 7.0f && got[0].ivar[2] == 0.0f);
  assert_true(got[2].ivar[2] == 8.0f && got[2].ivar[3] == 0.0f && got[2].sigma_aa[3] == 2.0f);
  one_file_close(&f);
}

/* WAVELENGTH as an HDU: an image, a table with one row a pixel. */
MILL_TEST(shared_wavelengths)
{
  static const double wave[N_PIX] = {400.0, 400.5, 401.25, 402.0}, descending[N_PIX] = {4, 3, 2, 1};
  static const long axis[] = {N_PIX, 3, 1};
  static const struct {
    int with_column, i_axis;
    const double *values;
    const char *unit, *part, *other;
  } wrong[] = {{1, 0, wave, "BUNIT   = 'nm'", "a column and an HDU", "WAVELENGTH"},
               {0, 0, wave, "COMMENT", "HDU 3 (WAVELENGTH)", "no unit"},
               {0, 1, wave, "BUNIT   = 'nm'", "FLUX has 4 values", "WAVELENGTH 3"},
               {0, 2, wave, "BUNIT   = 'nm'", "HDU 3 (WAVELENGTH)", "2 to"},
               {0, 0, descending, "BUNIT   = 'nm'", "HDU 3 (WAVELENGTH)", "ascending"}};
  (void)state;
  for (int is_table = 0; is_table < 2; is_table++) {
    draw_sample(GENERIC, 1, "SPECTRA-WAVELENGTH");
    if (is_table) {
      recipe_table(&s.file, "WAVELENGTH", N_PIX);
      recipe_column_add(&s.file, "WAVELENGTH", "D", "nm", wave);
    } else {
      recipe_image(&s.file, "WAVELENGTH", "D", 1, axis, wave);
      recipe_card(&s.file, "BUNIT   = 'nm'");
    }
    recipe_save(&s.file, one.path);
    no_lsf();
    one_file f = one_file_open(&one, one.path);
    assert_int_equal(one_n_wave(&f.batch), 1);
    for (int i = 0; i < N_PIX; i++)
      assert_true(f.batch.segment[0].wave_aa[i] == wave[i] * 10.0);
    one_file_close(&f);
  }
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
    draw_sample(GENERIC, 1, wrong[k].with_column ? "" : "SPECTRA-WAVELENGTH");
    recipe_image(&s.file, "WAVELENGTH", "D", 1, &axis[wrong[k].i_axis], wrong[k].values);
    recipe_card(&s.file, wrong[k].unit);
    recipe_save(&s.file, one.path);
    one_refuses(&one, wrong[k].part, wrong[k].other);
  }
}

/* ---- stars of several rows --------------------------------------------- */

static const char twins[] = "SPECTRA NAME@0=twin;SPECTRA NAME@1=lone;SPECTRA NAME@2=twin;"
                            "SPECTRA TARGETID@0=5;SPECTRA TARGETID@1=5;SPECTRA TARGETID@2=5;";

static one_file read_twins(const char *more)
{
  char edits[512];
  snprintf(edits, sizeof edits, "%s%s", twins, more);
  return read_plainly(edits);
}

static void same_flux(const mill_raw_segment *got, int row)
{
  for (int i = 0; i < N_PIX; i++)
    assert_true(got->flux[i] == s.spectrum[row].flux[i] ||
                (isnan(got->flux[i]) && isnan(s.spectrum[row].flux[i])));
}

MILL_TEST(arms_of_an_exposure_are_one_row)
{
  one_file f = read_twins("SPECTRA RA>ARM;SPECTRA ARM~1A;SPECTRA ARM@0=R;SPECTRA ARM@1=b;"
                          "SPECTRA ARM@2=B");
  assert_int_equal(f.index.n_row, 2);
  assert_string_equal(f.index.row[0].object, "twin");
  assert_string_equal(f.index.row[1].object, "lone");
  assert_int_equal(f.index.row[0].n_exposure, 1);
  assert_int_equal(f.batch.n_segment, 3);
  /* by exposure, then by arm of the library: b, r */
  static const int arm[] = {ONE_B, ONE_R, ONE_B}, row[] = {2, 0, 1}, exposure[] = {0, 0, 1};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(f.batch.segment[i].arm, arm[i]);
    assert_int_equal(f.batch.segment[i].exposure, exposure[i]);
    same_flux(&f.batch.segment[i], row[i]);
  }
  one_file_close(&f);
}

MILL_TEST(exposures_alone_and_together)
{
  static const int number[N_ROW] = {9, 5, 7};
  static const char more[] = "SPECTRA RA>EXPOSURE;SPECTRA EXPOSURE~J;SPECTRA EXPOSURE@0=9;"
                             "SPECTRA EXPOSURE@1=5;SPECTRA EXPOSURE@2=7";
  (void)state;
  one_file f = read_twins(more);
  assert_int_equal(f.index.n_row, 3);
  for (int i = 0; i < N_ROW; i++) {
    assert_int_equal(f.index.row[i].fits_row, i);
    assert_int_equal(f.index.row[i].exp_id, number[i]);
  }
  one_file_close(&f);
  one.config.exposures = MILL_EXPOSURES_JOINT;
  f = read_twins(more);
  assert_int_equal(f.index.n_row, 2);
  assert_string_equal(f.index.row[0].object, "twin");
  assert_int_equal(f.index.row[0].n_exposure, 2);
  assert_int_equal(f.index.row[0].exp_id, -1);
  assert_int_equal(f.index.row[1].first_exposure, 2);
  /* ascending EXPOSURE */
  static const int row[] = {2, 0, 1};
  for (int i = 0; i < N_ROW; i++) {
    assert_int_equal(f.index.exposure_id[i], number[row[i]]);
    assert_int_equal(f.index.exposure_row[i], row[i]);
    same_flux(&f.batch.segment[i], row[i]);
  }
  one_file_close(&f);
}

/* The file at one.path is good, and so are its other rows. */
static void refuse_row(int64_t bad, const char *part)
{
  mill_read_batch batch = {0};
  mill_file_index index;
  char row[32];
  mill_spectra *spectra = one_open(&one, one.path);
  one_index(&one, spectra, &index);
  assert_int_equal(index.n_row, N_ROW);
  snprintf(row, sizeof row, "row %d", (int)bad);
  for (int64_t i = 0; i < N_ROW; i++) {
    mill_error_clear();
    const int err = mill_spectra_read(spectra, &index.exposure_row[i], 1, &batch);
    const char *said = mill_error_message();
    if (i == bad ? err != MILL_ERR_INPUT || !strstr(said, part) || !strstr(said, row) ||
                       !strstr(said, "HDU 2 (SPECTRA)") || !strstr(said, one.path)
                 : err != MILL_OK)
      fail_msg("row %d, expected '%s' of %s: %d, %s", (int)i, part, row, err, said);
  }
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

MILL_TEST(a_bad_row_is_alone)
{
  static const struct {
    const char *edits;
    int is_twins, exposures, bad, has_lsf;
    const char *part;
  } file[] = {
      {"", 1, 0, 2, 0, "NAME 'twin' of row 0"},
      {"", 1, MILL_EXPOSURES_JOINT, 2, 0, "NAME 'twin' of row 0"},
      /* pieces of one exposure, but of other stars */
      {"SPECTRA RA>ARM;SPECTRA ARM~1A;SPECTRA ARM@0=b;SPECTRA ARM@1=r;SPECTRA ARM@2=r;"
       "SPECTRA TARGETID@2=6",
       1, 0, 2, 0, "another TARGETID"},
      {"SPECTRA WAVELENGTH@6=4000", 0, 0, 1, 0, "WAVELENGTH"},
      {"SPECTRA WAVELENGTH@6=nan", 0, 0, 1, 0, "WAVELENGTH"},
      {"SPECTRA WAVELENGTH@4=-1", 0, 0, 1, 0, "WAVELENGTH"},
      {"SPECTRA WAVELENGTH@7=inf", 0, 0, 1, 0, "WAVELENGTH"},
      {"SPECTRA IVAR>ERROR;SPECTRA ERROR@8=1e-25;SPECTRA ERROR@9=1e-25;SPECTRA ERROR@10=1e-25", 0,
       0, 2, 0, "multiply FLUX and ERROR"},
      {"SPECTRA LSF_SIGMA@4=0;SPECTRA LSF_SIGMA@5=nan;SPECTRA LSF_SIGMA@6=-1;"
       "SPECTRA LSF_SIGMA@7=0",
       0, 0, 1, 1, "LSF_SIGMA"}};
  static const int length[N_ROW] = {4, 4, 4}, shorter[N_ROW] = {4, 3, 4},
                   one_pixel[N_ROW] = {4, 4, 1};
  (void)state;
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    char edits[512];
    snprintf(edits, sizeof edits, "%s%s", file[i].is_twins ? twins : "", file[i].edits);
    one.config.exposures = file[i].exposures;
    write_sample(GENERIC, 1, edits);
    if (!file[i].has_lsf)
      no_lsf();
    refuse_row(file[i].bad, file[i].part);
  }
  for (int k = 0; k < 2; k++) {
    static const char *const vector[] = {"WAVELENGTH", "FLUX", "IVAR"};
    draw_sample(GENERIC, 1, "SPECTRA-MASK;SPECTRA-LSF_SIGMA");
    for (int i = 0; i < 3; i++) {
      recipe_column *c = recipe_column_of(&s.file.hdu[1], vector[i]);
      snprintf(c->form, sizeof c->form, i == 0 ? "1PD(4)" : "1PE(4)");
      c->length = k == 1 ? one_pixel : i == 2 ? shorter : length;
    }
    recipe_save(&s.file, one.path);
    no_lsf();
    refuse_row(k == 1 ? 2 : 1, k == 1 ? "1 pixels" : "4 values of FLUX, but 3 of IVAR");
  }
}

/* Vectors of variable length: rows may share wavelengths, but not fluxes, and all lie in the heap.
 */
MILL_TEST(vectors_in_the_heap)
{
  static const int length[N_ROW] = {4, 4, 4};
  static const struct {
    const char *shared, *part;
    int shift;
  } file[] = {{"WAVELENGTH", NULL, 0},
              /* as many pixels as one likes for the bytes of one spectrum */
              {"FLUX", "by row 1 (counted from 0) column FLUX has more values", 0},
              /* the heap has 192 bytes, the first vector 32 */
              {"", "lies outside the table", 161},
              {"", "lies outside the table", -1},
              {"", "lies outside the table", INT32_MAX - 200}};
  (void)state;
  for (size_t k = 0; k < sizeof file / sizeof *file; k++) {
    static const char *const vector[] = {"WAVELENGTH", "FLUX", "IVAR"};
    draw_sample(GENERIC, 1, "SPECTRA-MASK;SPECTRA-LSF_SIGMA");
    s.file.heap_shift = file[k].shift;
    /* of the shared one alone, or of all three */
    for (int i = 0; i < 3; i++) {
      recipe_column *c = recipe_column_of(&s.file.hdu[1], vector[i]);
      if (file[k].shared[0] && strcmp(vector[i], file[k].shared) != 0)
        continue;
      snprintf(c->form, sizeof c->form, i == 0 ? "1PD(4)" : "1PE(4)");
      c->length = length;
      c->is_shared = file[k].shared[0] != '\0';
    }
    recipe_save(&s.file, one.path);
    no_lsf();
    if (file[k].part) {
      one_refuses(&one, file[k].part, "HDU 2 (SPECTRA)");
      continue;
    }
    one_file f = one_file_open(&one, one.path);
    assert_int_equal(f.index.n_row, N_ROW);
    assert_int_equal(one_n_wave(&f.batch), 1);
    one_file_close(&f);
  }
}

MILL_EACH_TEST_MAIN(begin, end)
