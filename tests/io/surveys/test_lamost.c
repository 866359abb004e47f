#include "tests/io/surveys/one_format.h"

#include "io/surveys/lamost.h"

enum { N_PIX = 5 };

static one_format one;

static int begin(void **state)
{
  (void)state;
  one_begin(&one, &mill_format_lamost, 0); /* LAMOST says nothing of its resolution */
  return 0;
}

static int end(void **state)
{
  (void)state;
  one_end(&one);
  return 0;
}

/** What differs from the usual file; zero is the usual file. */
typedef struct lamost_options {
  int image;         /**< the older layout: flux, ivar, wavelength, masks as rows */
  int n_row;         /**< of the image or the table */
  int n_pix;         /**< of all columns or rows */
  int long_ivar;     /**< a column of one pixel more */
  int double_flux;   /**< float64, with a value beyond float32 */
  int other_survey;  /**< TELESCOP is another */
  int no_cards;      /**< none of the cards about the star */
  int no_name;       /**< neither DESIG nor OBSID */
  const char *leave; /**< a column that gets another name */
  const char *card;  /**< in place of HELIO */
  const char *fiber; /**< FIB_TYPE */
  float wave[N_PIX]; /**< 0: the usual */
  float mask;        /**< of pixel 2 */
} lamost_options;

static const float flux[N_PIX] = {1.5f, -2.25f, NAN, -INFINITY, 1e-42f};
static const float ivar[N_PIX] = {1.0f, 0.0f, 3.0f, -1.0f, INFINITY};
static const float wave[N_PIX] = {3699.9863f, 3700.8384f, 3701.6907f, 3702.543f, 3703.3955f};

static void cards(fits_maker *m, const lamost_options *o)
{
  maker_card(m, "TELESCOP= '%s'", o->other_survey ? "SDSS 2.5-M" : "LAMOST  ");
  maker_card(m, "%s", o->card ? o->card : "HELIO   =                    T");
  if (o->no_cards)
    return;
  maker_card(m, "FILENAME= 'spec-55877-B7708_sp03-110.fits'");
  if (!o->no_name) {
    maker_card(m, "OBSID   =              3703110");
    maker_card(m, "DESIG   = 'LAMOST J091219.42+275336.4'");
  }
  maker_card(m, "RA      =           138.080956");
  maker_card(m, "DEC     =            27.893459");
  maker_card(m, "FIBERID =                  110");
  maker_card(m, "LMJD    =                55877");
  maker_card(m, "PLANID  = 'B7708   '");
  maker_card(m, "SPID    =                    3");
  maker_card(m, "FIB_TYPE= '%s'", o->fiber ? o->fiber : "Obj");
  maker_card(m, "CLASS   = 'STAR    '");
  maker_card(m, "SUBCLASS= 'K7      '");
  maker_card(m, "Z       =          -0.00005617");
}

static void save(const lamost_options *o)
{
  fits_maker m = {0};
  const int n_pix = o->n_pix ? o->n_pix : N_PIX;
  float row[MILL_LAMOST_N_ROW + 1][N_PIX + 1] = {{0}};
  double wide[N_PIX] = {1e300, -2.25};
  char form[16], long_form[16], double_form[16];
  for (int i = 0; i < N_PIX; i++) {
    row[MILL_LAMOST_FLUX][i] = flux[i];
    row[MILL_LAMOST_IVAR][i] = ivar[i];
    row[MILL_LAMOST_WAVELENGTH][i] = o->wave[i] != 0.0f ? o->wave[i] : wave[i];
    row[MILL_LAMOST_ANDMASK][i] = i == 2 ? o->mask : i == 4 ? 32.0f : 0.0f;
  }
  maker_begin(&m);
  maker_card(&m, "SIMPLE  =                    T");
  maker_card(&m, "BITPIX  =                  -32");
  maker_card(&m, "NAXIS   = %20d", o->image ? 2 : 0);
  if (o->image) {
    maker_card(&m, "NAXIS1  = %20d", n_pix);
    maker_card(&m, "NAXIS2  = %20d", o->n_row ? o->n_row : MILL_LAMOST_N_ROW);
  }
  maker_card(&m, "EXTEND  =                    T");
  if (!o->image) {
    /* left over from the older layout, as real files have it */
    maker_card(&m, "NAXIS1  =                 3909 /");
    maker_card(&m, "NAXIS2  =                    5 /");
  }
  cards(&m, o);
  maker_end(&m);
  if (o->image) {
    for (int i = 0; i < (o->n_row ? o->n_row : MILL_LAMOST_N_ROW); i++)
      maker_values(&m, row[i], (size_t)n_pix, sizeof(float));
    maker_pad(&m, 0);
  } else {
    snprintf(form, sizeof form, "%dE", n_pix);
    snprintf(long_form, sizeof long_form, "%dE", n_pix + 1);
    snprintf(double_form, sizeof double_form, "%dD", n_pix);
    maker_column column[] = {{"flux", o->double_flux ? double_form : form,
                              o->double_flux ? (const void *)wide : row[MILL_LAMOST_FLUX]},
                             {"IVAR", o->long_ivar ? long_form : form, row[MILL_LAMOST_IVAR]},
                             {"WAVELENGTH", form, row[MILL_LAMOST_WAVELENGTH]},
                             {"ANDMASK", form, row[MILL_LAMOST_ANDMASK]},
                             {"ORMASK", form, row[MILL_LAMOST_ORMASK]}};
    for (int i = 0; i < MILL_LAMOST_N_ROW; i++)
      if (o->leave && strcasecmp(o->leave, column[i].name) == 0)
        column[i].name = "OTHER";
    /* two rows of zeros: only how many there are matters */
    float(*twice)[2][N_PIX + 1] = calloc(MILL_LAMOST_N_ROW, sizeof *twice);
    assert_non_null(twice);
    for (int i = 0; o->n_row && i < MILL_LAMOST_N_ROW; i++)
      column[i].values = twice[i];
    maker_table(&m, "COADD", o->n_row ? o->n_row : 1, MILL_LAMOST_N_ROW, column);
    free(twice);
  }
  maker_save(&m, one.path);
  maker_clear(&m);
}

static void refuses(const lamost_options *o, const char *part, const char *other)
{
  save(o);
  one_refuses(&one, part, other);
}

static void test_refuses_malformed_tables(void **state)
{
  (void)state;
  refuses(&(lamost_options){.leave = "FLUX"}, "HDU 2 (COADD)", "no column FLUX");
  refuses(&(lamost_options){.leave = "IVAR"}, "HDU 2 (COADD)", "no column IVAR");
  refuses(&(lamost_options){.leave = "WAVELENGTH"}, "HDU 2 (COADD)", "no column WAVELENGTH");
  refuses(&(lamost_options){.leave = "ANDMASK"}, "HDU 2 (COADD)", "no column ANDMASK");
  refuses(&(lamost_options){.long_ivar = 1}, "HDU 2 (COADD)", "column IVAR has 1 rows of 6 values");
  refuses(&(lamost_options){.n_pix = 1}, "HDU 2 (COADD)", "are no spectrum");
  refuses(&(lamost_options){.wave = {[2] = NAN}}, "(COADD): column WAVELENGTH", "pixel 2 is nan");
  refuses(&(lamost_options){.wave = {[2] = 3700.0f}}, "(COADD): column WAVELENGTH",
          "pixel 2 is 3700");
  refuses(&(lamost_options){.wave = {[0] = -1.0f}}, "(COADD): column WAVELENGTH", "pixel 0 is -1");
  refuses(&(lamost_options){.mask = 0.5f}, "(COADD): column ANDMASK", "pixel 2 is 0.5");
  refuses(&(lamost_options){.mask = NAN}, "(COADD): column ANDMASK", "pixel 2 is nan");
  refuses(&(lamost_options){.mask = 1e12f}, "(COADD): column ANDMASK", "integers of 32 bits");
  refuses(&(lamost_options){.card = "HELIO   = 'yes'"}, "HDU 1: keyword HELIO", "must hold T or F");
  strcpy(one.config.format, "lamost");
  refuses(&(lamost_options){.n_row = 2}, "HDU 2 (COADD)", "2 rows with 5 values");
}

static void test_refuses_malformed_images(void **state)
{
  (void)state;
  refuses(&(lamost_options){.image = 1, .n_row = 4}, "no known format", "lamost");
  refuses(&(lamost_options){.image = 1, .other_survey = 1}, "no known format", "lamost");
  strcpy(one.config.format, "lamost");
  refuses(&(lamost_options){.image = 1, .n_row = 4}, "neither a table COADD nor", "5 rows");
  refuses(&(lamost_options){.image = 1, .n_pix = 1}, "HDU 1", "1 pixels a row");
  /* CFITSIO 4.2 aborts when it is asked for the integer in these */
  refuses(
      &(lamost_options){.no_cards = 1, .card = "FIBERID = 'a text of more than thirty characters'"},
      "HDU 1: keyword FIBERID must hold an integer of 32 bits", "");
  refuses(&(lamost_options){.no_cards = 1, .card = "FIBERID = 2147483648"},
          "HDU 1: keyword FIBERID must hold an integer of 32 bits, not 2.14748e+09", "");
  refuses(&(lamost_options){.image = 1, .wave = {[2] = NAN}}, "HDU 1: row 3 (WAVELENGTH)",
          "pixel 2 is nan");
  refuses(&(lamost_options){.image = 1, .mask = 0.5f}, "HDU 1: row 4 (ANDMASK)", "pixel 2 is 0.5");
}

static void test_reads_both_layouts(void **state)
{
  (void)state;
  for (int image = 0; image < 2; image++) {
    mill_file_index index;
    mill_read_batch batch = {0};
    save(&(lamost_options){.image = image, .mask = 5.0f});
    mill_spectra *spectra = one_open(&one, one.path);
    assert_int_equal(mill_spectra_frame(spectra), MILL_FRAME_HELIOCENTRIC);
    one_index(&one, spectra, &index);
    assert_int_equal(index.n_row, 1);
    assert_int_equal(index.n_exposure, 1);
    assert_int_equal(index.exposure_id[0], 3703110);
    const mill_catalog_row *row = &index.row[0];
    assert_string_equal(row->object, "LAMOST J091219.42+275336.4");
    assert_string_equal(row->identifier, "lamost 55877-B7708-03-110");
    assert_int_equal(row->target_id, -1);
    assert_int_equal(row->fiber, 110);
    assert_int_equal(row->exp_id, 3703110);
    assert_int_equal(row->n_exposure, 1);
    assert_close(row->target_ra, 138.080956, 0.0);
    assert_close(row->target_dec, 27.893459, 0.0);
    assert_close(row->z, -0.00005617, 0.0);
    assert_string_equal(row->spectype, "STAR");
    assert_string_equal(row->subtype, "K7");
    one_read(spectra, &index, &batch);
    assert_int_equal(batch.n_segment, 1);
    const mill_read_segment *s = &batch.segment[0];
    assert_int_equal(s->arm, ONE_COADD);
    assert_int_equal(s->n_pix, N_PIX);
    assert_memory_equal(s->flux, flux, sizeof flux);
    assert_memory_equal(s->ivar, ivar, sizeof ivar);
    assert_memory_equal(s->mask, ((const int32_t[N_PIX]){0, 0, 5, 0, 32}), N_PIX * 4);
    assert_null(s->sigma_aa);
    for (int i = 0; i < N_PIX; i++)
      assert_close(batch.wave[s->wave].wave_aa[i], (double)wave[i], 0.0);
    assert_int_equal(mill_spectra_waves(spectra, index.exposure_row, 1, &batch), MILL_OK);
    assert_int_equal(batch.wave[0].n_pix, N_PIX);
    assert_int_equal(mill_spectra_read(spectra, (const int64_t[]){7}, 1, &batch), MILL_ERR_RANGE);
    mill_read_batch_clear(&batch);
    mill_file_index_clear(&index);
    mill_spectra_close(spectra);
  }
}

static void test_narrows_doubles(void **state)
{
  (void)state;
  mill_file_index index;
  mill_read_batch batch = {0};
  save(&(lamost_options){.double_flux = 1});
  mill_spectra *spectra = one_open(&one, one.path);
  one_index(&one, spectra, &index);
  one_read(spectra, &index, &batch);
  assert_true(isinf(batch.segment[0].flux[0]));
  assert_close(batch.segment[0].flux[1], -2.25, 0.0);
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

/* A resolution is never made up: without one in the configuration there is nothing to fit. */
static void test_has_no_resolution_of_its_own(void **state)
{
  (void)state;
  save(&(lamost_options){0});
  one.lib.arm[ONE_COADD].template_sigma_aa = 0.0;
  for (int given = 0; given < 2; given++) {
    mill_file_index index;
    mill_read_batch batch = {0};
    one.config.resolving_power = given ? 1800.0 : 0.0;
    mill_spectra *spectra = one_open(&one, one.path);
    one_index(&one, spectra, &index);
    one_read(spectra, &index, &batch);
    assert_int_equal(batch.segment[0].use, given ? MILL_SEGMENT_FIT : MILL_SEGMENT_NO_LSF);
    if (given) { /* 2.3548: FWHM of a Gaussian in sigma; float32's rounding */
      const double sigma = (double)wave[1] / (1800.0 * 2.0 * sqrt(2.0 * log(2.0)));
      assert_close(batch.segment[0].sigma_aa[1], sigma, 6e-8 * sigma);
    }
    mill_read_batch_clear(&batch);
    mill_file_index_clear(&index);
    mill_spectra_close(spectra);
  }
}

static void test_states_the_frame(void **state)
{
  (void)state;
  static const struct {
    const char *card;
    int frame;
  } known[] = {{"HELIO   =                    F", MILL_FRAME_TOPOCENTRIC},
               {"HELIO_RV=            -29.28083", MILL_FRAME_HELIOCENTRIC},
               {"COMMENT nothing", MILL_FRAME_UNKNOWN}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    save(&(lamost_options){.card = known[i].card});
    mill_spectra *spectra = one_open(&one, one.path);
    assert_int_equal(mill_spectra_frame(spectra), known[i].frame);
    mill_spectra_close(spectra);
  }
}

static mill_file_index index_of(const lamost_options *o)
{
  mill_file_index index;
  save(o);
  mill_spectra *spectra = one_open(&one, one.path);
  one_index(&one, spectra, &index);
  mill_spectra_close(spectra);
  return index;
}

static void test_names_without_cards(void **state)
{
  (void)state;
  mill_file_index index = index_of(&(lamost_options){.no_name = 1});
  assert_string_equal(index.row[0].object, "spec-55877-B7708_sp03-110.fits");
  assert_int_equal(index.row[0].exp_id, -1);
  mill_file_index_clear(&index);
  index = index_of(&(lamost_options){.no_cards = 1});
  const mill_catalog_row *row = &index.row[0];
  assert_string_equal(row->object, "x.fits");
  assert_int_equal(row->fiber, -1);
  assert_true(isnan(row->target_ra) && isnan(row->target_dec) && isnan(row->z));
  assert_string_equal(row->spectype, "");
  mill_file_index_clear(&index);
}

static int64_t rows_of(const lamost_options *o)
{
  mill_file_index index = index_of(o);
  const int64_t n = index.n_row;
  mill_file_index_clear(&index);
  return n;
}

static void test_selects_by_fibre(void **state)
{
  (void)state;
  mill_selection *select = &one.config.select;
  assert_int_equal(rows_of(&(lamost_options){.fiber = "F-std"}), 1);
  assert_int_equal(rows_of(&(lamost_options){.fiber = "Sky"}), 0);
  assert_int_equal(rows_of(&(lamost_options){.fiber = "Unused"}), 0);
  assert_int_equal(rows_of(&(lamost_options){.fiber = "PosErr"}), 0);
  assert_int_equal(rows_of(&(lamost_options){.fiber = "Dead"}), 0);
  select->n_objtype = 1;
  strcpy(select->objtype[0], "F-STD");
  assert_int_equal(rows_of(&(lamost_options){.fiber = "F-std"}), 1);
  assert_int_equal(rows_of(&(lamost_options){0}), 0);
}

static void test_recognises(void **state)
{
  (void)state;
  save(&(lamost_options){0});
  assert_true(one_recognises(&one, one.path));
  save(&(lamost_options){.image = 1});
  assert_true(one_recognises(&one, one.path));
  save(&(lamost_options){.n_row = 2});
  assert_false(one_recognises(&one, one.path));
  save(&(lamost_options){.image = 1, .other_survey = 1});
  assert_false(one_recognises(&one, one.path));
}

/* ---- real files --------------------------------------------------------- */

/* What astropy 5.2 reads, as CRC-32 of little-endian values: WAVELENGTH in float64, FLUX and IVAR
 * in float32, ANDMASK in int32. */
static const struct {
  int obsid, n_pix;
  uint32_t wave, flux, ivar, mask;
} real[] = {
    {3703110, 3909, 0x423685ea, 0x893a169c, 0x9d4e7bb8, 0xb8ae9b96},
    {3706009, 3909, 0x423685ea, 0x2577f397, 0x542a4423, 0xb8ae9b96},
    {3706011, 3909, 0x423685ea, 0x111771d4, 0xf0af9f97, 0xb8ae9b96},
    {3706103, 3909, 0x423685ea, 0xde32cd1c, 0x7d8ceb0a, 0xb8ae9b96},
    {3706125, 3909, 0x423685ea, 0x82b6d3f8, 0xf2405e4a, 0xb8ae9b96},
    {3709013, 3902, 0x82654bc1, 0x542cc0fa, 0xceab617c, 0x553d890d},
    {3709130, 3902, 0x82654bc1, 0x03551f1c, 0x0ff8dd18, 0x553d890d},
    {3709131, 3902, 0x82654bc1, 0x0bfb6c3d, 0xf2742674, 0x553d890d},
    {3709137, 3902, 0x82654bc1, 0xa8aae6ef, 0xe37670d0, 0x553d890d},
    {3709139, 3902, 0x82654bc1, 0x2b928a9e, 0x5cdbf0d4, 0x553d890d},
    {3709176, 3902, 0x82654bc1, 0xab06fa63, 0x567bf604, 0x553d890d},
    {3709196, 3902, 0x82654bc1, 0x846daf14, 0x952a0b25, 0x553d890d},
    {3709197, 3902, 0x82654bc1, 0x06c3efd3, 0x87466ce7, 0x553d890d},
    {3709237, 3902, 0x82654bc1, 0x7a4f7546, 0x810b1aca, 0x553d890d},
    {3712166, 3906, 0xaa8d9107, 0x66a49043, 0x1d636ffb, 0xd58d5e55},
    {3713013, 3902, 0x82654bc1, 0xfcd6aeba, 0xe1feea96, 0x553d890d},
    {3713073, 3902, 0x82654bc1, 0xb3937dd8, 0xe2e5945c, 0x553d890d},
    {3713134, 3902, 0x82654bc1, 0xc6f4e91b, 0x25884f98, 0x553d890d},
    {3713139, 3902, 0x82654bc1, 0x9fe6f296, 0xc6b54155, 0x553d890d},
    {3713158, 3902, 0x82654bc1, 0x8b5f8cf2, 0x3cea40d6, 0x553d890d},
    {3713167, 3902, 0x82654bc1, 0xbacd7701, 0xee438f74, 0x553d890d},
    {3713169, 3902, 0x82654bc1, 0x7e9aef55, 0x3da26871, 0x553d890d},
    {3713226, 3902, 0x82654bc1, 0xf982554a, 0x6d877f20, 0x553d890d},
    {3713238, 3902, 0x82654bc1, 0xeee7a33c, 0xbff929fc, 0x553d890d},
    {3715155, 3909, 0x423685ea, 0x08de7864, 0x77071308, 0xb8ae9b96},
};

static void test_real_files(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
    char name[64];
    mill_file_index index;
    mill_read_batch batch = {0};
    snprintf(name, sizeof name, "real/lamost/%d.fits.gz", real[i].obsid);
    mill_test_data(path, name);
    mill_spectra *spectra = one_open(&one, path);
    assert_int_equal(mill_spectra_frame(spectra), MILL_FRAME_HELIOCENTRIC);
    one_index(&one, spectra, &index);
    assert_int_equal(index.row[0].exp_id, real[i].obsid);
    assert_int_equal(strncmp(index.row[0].object, "LAMOST J09", 10), 0);
    assert_string_equal(index.row[0].spectype, "STAR");
    one_read(spectra, &index, &batch);
    assert_int_equal(batch.n_segment, 1);
    const mill_read_segment *s = &batch.segment[0];
    assert_int_equal(s->n_pix, real[i].n_pix);
    assert_int_equal(one_crc(batch.wave[s->wave].wave_aa, s->n_pix, 1), real[i].wave);
    assert_int_equal(one_crc(s->flux, s->n_pix, 0), real[i].flux);
    assert_int_equal(one_crc(s->ivar, s->n_pix, 0), real[i].ivar);
    assert_int_equal(one_crc(s->mask, s->n_pix, 0), real[i].mask);
    mill_read_batch_clear(&batch);
    mill_file_index_clear(&index);
    mill_spectra_close(spectra);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_refuses_malformed_tables, begin, end),
      cmocka_unit_test_setup_teardown(test_refuses_malformed_images, begin, end),
      cmocka_unit_test_setup_teardown(test_reads_both_layouts, begin, end),
      cmocka_unit_test_setup_teardown(test_narrows_doubles, begin, end),
      cmocka_unit_test_setup_teardown(test_has_no_resolution_of_its_own, begin, end),
      cmocka_unit_test_setup_teardown(test_states_the_frame, begin, end),
      cmocka_unit_test_setup_teardown(test_names_without_cards, begin, end),
      cmocka_unit_test_setup_teardown(test_selects_by_fibre, begin, end),
      cmocka_unit_test_setup_teardown(test_recognises, begin, end),
      cmocka_unit_test_setup_teardown(test_real_files, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
