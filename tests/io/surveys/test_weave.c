#include "tests/io/surveys/one_format.h"

#include "io/surveys/weave.h"

enum { N_SPEC = 5, N_BLUE = 4, N_RED = 3, N_CHANNEL = 2 };

static one_format one;

static const float blue_data[N_SPEC * N_BLUE] = {1.5f, -2.25f, NAN, 1e-42f, 5,  6,  7,  8,  9,  10,
                                                 11,   12,     13,  14,     15, 16, 17, 18, 19, 20};
static const float blue_ivar[N_SPEC * N_BLUE] = {1,  0,  3,  -1, 5,  6,  7,  INFINITY, 9,  10,
                                                 11, 12, 13, 14, 15, 16, 17, 18,       19, 20};
static const float blue_sens[N_SPEC * N_BLUE] = {0.5f, 2, 3, 4,    0, NAN, -1,   INFINITY, 1, 1.1f,
                                                 1.2f, 1, 1, 0.1f, 1, 1,   0.7f, 1,        1, 1};
static const float red_data[N_SPEC * N_RED] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const float red_sens[N_RED] = {2e-18f, 3e-18f, 1e-17f};
static const double ra[N_SPEC] = {10.5, 11.5, 12.5, 13.5, 14.5}, dec[N_SPEC] = {-1, -2, -3, -4, -5};
static const int32_t fiber[N_SPEC] = {1001, 1002, 1003, 1004, 1005};

/* What differs from the usual file; zero is the usual file. */
typedef struct weave_options {
  const char *leave;  /* an HDU to leave out */
  const char *column; /* a column of FIBTABLE to leave out */
  const char *use, *status;
  const char *name;     /* CNAMEs of 40 characters */
  const char *blue_wcs; /* instead of the usual */
  const char *primary;  /* card of the primary header */
  int wide_ivar, cube, short_table, one_row_sensfunc;
  int int_data; /* BLUE_DATA in int16 with BLANK */
} weave_options;

static int begin(void **state)
{
  static const char *const arm[ONE_N_ARM] = {"blue", "green", "red"};
  (void)state;
  one_begin(&one, &mill_format_weave, 0);
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

static void put(fits_maker *m, const weave_options *o, const char *name, int n_axis,
                const long *axis, const float *values, const char *cards)
{
  if (!o->leave || strcmp(o->leave, name) != 0)
    maker_image(m, name, -32, n_axis, axis, values, cards);
}

static void put_fibtable(fits_maker *m, const weave_options *o)
{
  const maker_column all[] = {{"FIBREID", "J", fiber},
                              {"CNAME", o->name ? "40A" : "20A",
                               o->name
                                   ? o->name
                                   : "WVE_00420000-0100000WVE_00460000-0200000WVE_00500000-0300000"
                                     "WVE_00540000-0400000WVE_00580000-0500000"},
                              {"TARGRA", "D", ra},
                              {"TARGDEC", "D", dec},
                              {"Status", "1A", o->status ? o->status : "AAaPA"},
                              {"TARGUSE", "1A", o->use ? o->use : "TSCTT"}};
  maker_column column[6];
  int n = 0;
  for (int i = 0; i < 6; i++)
    if (!o->column || strcmp(o->column, all[i].name) != 0)
      column[n++] = all[i];
  if (!o->leave || strcmp(o->leave, "FIBTABLE") != 0)
    maker_table(m, "FIBTABLE", o->short_table ? N_SPEC - 1 : N_SPEC, n, column);
}

static const char usual_wcs[] = "CRVAL1  =               3650.0\nCD1_1   =                 0.25\n"
                                "CRPIX1  =                  1.0\nCTYPE1  = 'AWAV'\n"
                                "CUNIT1  = 'Angstrom'";

static void save(const weave_options *o)
{
  static const char red_wcs[] = "CRVAL1  =                579.0\nCDELT1  =                 0.05\n"
                                "CRPIX1  =                  2.0\nCTYPE1  = 'WAVE'\n"
                                "CUNIT1  = 'nm'\nSPECSYS = 'BARYCENT'";
  static const int16_t int_data[N_SPEC * N_BLUE] = {1, -999, 3};
  fits_maker m = {0};
  const long blue[3] = {N_BLUE, N_SPEC, 1}, red[2] = {N_RED, N_SPEC};
  const long wide[2] = {N_BLUE + 1, N_SPEC - 1};
  const char *wcs = o->blue_wcs ? o->blue_wcs : usual_wcs;
  char blank[512];
  snprintf(blank, sizeof blank, "%s\nBLANK   =                 -999", wcs);
  maker_primary(&m);
  if (o->primary)
    one_add_card(&m, o->primary);
  if (o->int_data)
    maker_image(&m, "BLUE_DATA", 16, 2, blue, int_data, blank);
  else
    put(&m, o, "BLUE_DATA", o->cube ? 3 : 2, blue, blue_data, wcs);
  put(&m, o, "BLUE_IVAR", 2, o->wide_ivar ? wide : blue, blue_ivar, wcs);
  put(&m, o, "BLUE_DATA_NOSS", 2, blue, blue_ivar, wcs);
  put(&m, o, "BLUE_IVAR_NOSS", 2, blue, blue_data, wcs);
  put(&m, o, "BLUE_SENSFUNC", 2, blue, blue_sens, NULL);
  put(&m, o, "RED_DATA", 2, red, red_data, red_wcs);
  put(&m, o, "RED_IVAR", 2, red, red_data, red_wcs);
  put(&m, o, "RED_SENSFUNC", 1, red, red_sens, NULL);
  put_fibtable(&m, o);
  maker_save(&m, one.path);
  maker_clear(&m);
}

typedef struct opened {
  mill_spectra *spectra;
  mill_file_index index;
  mill_read_batch batch;
} opened;

static opened open_all(const weave_options *o)
{
  opened all = {0};
  save(o);
  all.spectra = one_open(&one, one.path);
  one_index(&one, all.spectra, &all.index);
  one_read(all.spectra, &all.index, &all.batch);
  return all;
}

static void close_all(opened *o)
{
  mill_read_batch_clear(&o->batch);
  mill_file_index_clear(&o->index);
  mill_spectra_close(o->spectra);
}

static void test_stars_and_calibrators_are_kept(void **state)
{
  const int kept[] = {0, 2, 4};
  (void)state;
  opened o = open_all(&(weave_options){0});
  assert_int_equal(o.index.n_row, 3);
  assert_int_equal(o.index.n_fits_row, N_SPEC);
  for (int i = 0; i < 3; i++) {
    const mill_catalog_row *row = &o.index.row[i];
    assert_int_equal(row->fits_row, kept[i]);
    assert_int_equal(row->fiber, fiber[kept[i]]);
    assert_true(row->target_ra == ra[kept[i]] && row->target_dec == dec[kept[i]]);
    assert_int_equal(row->target_id, -1);
    assert_int_equal(row->exp_id, -1);
    assert_int_equal(o.index.exposure_row[i], kept[i]);
  }
  assert_string_equal(o.index.row[1].object, "WVE_00500000-0300000");
  close_all(&o);
}

static void test_skies_when_asked_for(void **state)
{
  (void)state;
  one.config.select.n_objtype = 1;
  strcpy(one.config.select.objtype[0], "SKY");
  opened o = open_all(&(weave_options){0});
  assert_int_equal(o.index.n_row, 1);
  assert_int_equal(o.index.row[0].fits_row, 1);
  close_all(&o);
  strcpy(one.config.select.objtype[0], "C");
  o = open_all(&(weave_options){0});
  assert_int_equal(o.index.n_row, 1);
  assert_int_equal(o.index.row[0].fits_row, 2);
  close_all(&o);
}

/* The products and quotients in double, which single precision brings without loss. */
static void test_values_are_those_of_the_file(void **state)
{
  (void)state;
  one.config.select.n_objtype = 2; /* rows 0, 1, 4 */
  strcpy(one.config.select.objtype[0], "T");
  strcpy(one.config.select.objtype[1], "SKY");
  const int rows[] = {0, 1, 4};
  opened o = open_all(&(weave_options){0});
  assert_int_equal(o.batch.n_segment, 3 * N_CHANNEL);
  for (int i = 0; i < 3; i++) {
    const mill_read_segment *blue = &o.batch.segment[N_CHANNEL * i], *red = blue + 1;
    assert_int_equal(blue->arm, 0);
    assert_int_equal(red->arm, 2);
    assert_int_equal(blue->n_pix, N_BLUE);
    assert_null(blue->mask);
    for (int k = 0; k < N_BLUE; k++) {
      const int at = rows[i] * N_BLUE + k;
      const double sens = blue_sens[at];
      const int good = isfinite(sens) && sens > 0.0;
      const float flux = good ? (float)(blue_data[at] * sens) : blue_data[at];
      const float ivar = good ? (float)(blue_ivar[at] / (sens * sens)) : 0.0f;
      assert_memory_equal(&blue->ivar[k], &ivar, sizeof ivar);
      assert_true(isnan(flux) ? isnan(blue->flux[k]) : blue->flux[k] == flux);
    }
    for (int k = 0; k < N_RED; k++) {
      const int at = rows[i] * N_RED + k;
      const double sens = (double)red_sens[k] * MILL_WEAVE_SCALE;
      assert_true(red->flux[k] == (float)(red_data[at] * ((double)red_sens[k] * MILL_WEAVE_SCALE)));
      assert_true(red->ivar[k] == (float)(red_data[at] / (sens * sens)));
    }
  }
  close_all(&o);
}

static void test_wavelengths_of_the_wcs(void **state)
{
  (void)state;
  opened o = open_all(&(weave_options){0});
  assert_int_equal(o.batch.n_wave, N_CHANNEL);
  for (int w = 0; w < N_CHANNEL; w++) {
    const mill_read_wave *wave = &o.batch.wave[w];
    for (int i = 0; i < wave->n_pix; i++)
      assert_true(wave->wave_aa[i] == (wave->arm == 0 ? mill_air_to_vacuum(3650.0 + i * 0.25)
                                                      : (579.0 + (i - 1) * 0.05) * 10.0));
  }
  /* blue does not say, red is barycentric */
  assert_int_equal(mill_spectra_frame(o.spectra), MILL_FRAME_UNKNOWN);
  close_all(&o);
  o = open_all(&(weave_options){.primary = "SPECSYS = 'BARYCENT'"});
  assert_int_equal(mill_spectra_frame(o.spectra), MILL_FRAME_BARYCENTRIC);
  close_all(&o);
}

static void test_one_arm_alone(void **state)
{
  (void)state;
  one.settings.arm_wanted[2] = 0;
  opened o = open_all(&(weave_options){0});
  assert_int_equal(o.batch.n_segment, 3);
  assert_int_equal(o.batch.segment[0].arm, 0);
  close_all(&o);
}

static void test_integers_with_blank(void **state)
{
  (void)state;
  opened o = open_all(&(weave_options){.int_data = 1});
  const mill_read_segment *s = o.batch.segment;
  assert_true(s->flux[0] == 0.5f && isnan(s->flux[1]) && s->flux[2] == 9.0f);
  close_all(&o);
}

static void test_the_medium_must_be_known(void **state)
{
  const weave_options linear = {.blue_wcs = "CRVAL1  =               3650.0\n"
                                            "CDELT1  =                 0.25\n"
                                            "CTYPE1  = 'LINEAR'"};
  (void)state;
  save(&linear);
  one_refuses(&one, "HDU 2 (BLUE_DATA): CTYPE1 'LINEAR'", "set medium");
  one.config.medium = MILL_MEDIUM_VACUUM;
  opened o = open_all(&linear);
  assert_true(o.batch.wave[0].wave_aa[1] == 3650.25); /* CRPIX1 1, CUNIT1 Angstrom */
  close_all(&o);
}

static void test_files_that_are_wrong(void **state)
{
  static char name[N_SPEC * 40 + 1];
  static const struct {
    weave_options o;
    const char *part, *other;
  } wrong[] = {{{.leave = "BLUE_IVAR"}, "no HDU BLUE_IVAR", "fetch it again"},
               {{.leave = "BLUE_SENSFUNC"}, "no HDU BLUE_SENSFUNC", "fetch it again"},
               {{.leave = "RED_DATA"}, "no HDU RED_DATA", "fetch it again"},
               {{.wide_ivar = 1}, "HDU 3 (BLUE_IVAR)", "5 rows of 4 pixels of BLUE_DATA"},
               {{.cube = 1}, "HDU 2 (BLUE_DATA)", "no cube"},
               {{.short_table = 1}, "HDU 2 (BLUE_DATA)", "4 of FIBTABLE"},
               {{.column = "CNAME"}, "FIBTABLE", "CNAME"},
               {{.name = name}, "CNAME 'WWWW", "row 0"},
               {{.column = "Status"}, "FIBTABLE", "STATUS"},
               {{.column = "TARGUSE"}, "FIBTABLE", "TARGUSE"},
               {{.blue_wcs = "CD1_1   =                 0.25\nCTYPE1  = 'WAVE'"},
                "HDU 2 (BLUE_DATA)",
                "CRVAL1"},
               {{.blue_wcs = "CRVAL1  =               3650.0\nCTYPE1  = 'WAVE'"},
                "HDU 2 (BLUE_DATA)",
                "CD1_1 or CDELT1"},
               {{.blue_wcs = "CRVAL1  =               3650.0\nCD1_1   = 'x'\nCTYPE1  = 'WAVE'"},
                "HDU 2 (BLUE_DATA)",
                "CD1_1"},
               {{.blue_wcs = "CRVAL1  =               3650.0\nCD1_1   =                -0.25\n"
                             "CTYPE1  = 'WAVE'"},
                "HDU 2 (BLUE_DATA)",
                "ascending"},
               {{.blue_wcs = "CRVAL1  =                  3.5\nCD1_1   =                 0.25\n"
                             "CTYPE1  = 'AWAV-LOG'"},
                "HDU 2 (BLUE_DATA)",
                "no linear scale"},
               {{.blue_wcs = "CRVAL1  =               3650.0\nCD1_1   =                 0.25\n"
                             "CTYPE1  = 'WAVE'\nCUNIT1  = 'Hz'"},
                "HDU 2 (BLUE_DATA)",
                "CUNIT1 'Hz'"}};
  (void)state;
  memset(name, 'W', sizeof name - 1);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    save(&wrong[i].o);
    one_refuses(&one, wrong[i].part, wrong[i].other);
  }
}

static void test_recognises_its_own(void **state)
{
  (void)state;
  save(&(weave_options){0});
  assert_int_equal(one_recognises(&one, one.path), 1);
  /* a cut file is still one of WEAVE, which opening then refuses */
  save(&(weave_options){.leave = "BLUE_DATA"});
  assert_int_equal(one_recognises(&one, one.path), 1);
  save(&(weave_options){.leave = "FIBTABLE"});
  assert_int_equal(one_recognises(&one, one.path), 0);
  strcpy(one.config.format, "weave");
  one_refuses(&one, "FIBTABLE", "no cube");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(test_stars_and_calibrators_are_kept),
                                     TEST(test_skies_when_asked_for),
                                     TEST(test_values_are_those_of_the_file),
                                     TEST(test_wavelengths_of_the_wcs),
                                     TEST(test_one_arm_alone),
                                     TEST(test_integers_with_blank),
                                     TEST(test_the_medium_must_be_known),
                                     TEST(test_files_that_are_wrong),
                                     TEST(test_recognises_its_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
