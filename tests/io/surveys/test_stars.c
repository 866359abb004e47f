/* SPDX-License-Identifier: BSD-3-Clause */
/* SDSS, LAMOST and WEAVE: what only they have, and real files. */
#include "tests/io/surveys/samples.h"

/* ---- SDSS --------------------------------------------------------------- */

/* Where wdisp is no width: interpolated between neighbours, else the nearest, else one pixel. */
MILL_TEST(sdss_marks_missing_widths)
{
  static const double pixels_wide[] = {1.25, 1.5, 1.75, 2.0, 2.0, 2.0};
  (void)state;
  for (int any = 0; any < 2; any++) {
    draw_sample(SDSS, 1, "COADD/6;COADD wdisp~E");
    for (int i = 0; i < 6 && any; i++) {
      char edit[64];
      snprintf(edit, sizeof edit, "COADD wdisp@%d=%s", i,
               ((const char *[]){"1.25", "0", "nan", "2", "11", "-3"})[i]);
      recipe_edit(&s.file, edit);
    }
    recipe_save(&s.file, one.path);
    one_file f = one_file_open(&one, one.path);
    for (int i = 0; i < 6; i++) {
      const mill_raw_segment *got = &f.batch.segment[0];
      const double sigma = (any ? pixels_wide[i] : 1.0) * 1e-4 * log(10.0) * got->wave_aa[i];
      assert_int_equal((got->mask[i] & MILL_SDSS_NO_WDISP) != 0, !any || (i != 0 && i != 3));
      assert_close(got->sigma_aa[i], sigma, 6e-8 * sigma); /* float32's rounding */
    }
    one_file_close(&f);
  }
}

/* Exposure 5 has a blue half alone, 7 both. */
MILL_TEST(sdss_single_exposures)
{
  static const struct {
    int exposure, arm, i_sample;
  } expected[] = {{0, ONE_B, 2}, {1, ONE_B, 1}, {1, ONE_R, 0}};
  (void)state;
  for (int joint = 0; joint < 2; joint++) {
    one.config.exposures = joint ? MILL_EXPOSURES_JOINT : MILL_EXPOSURES_SINGLE;
    one_file f = read_sample(SDSS, "");
    const mill_file_index *index = &f.index;
    assert_int_equal(index->n_row, joint ? 1 : 2);
    assert_int_equal(index->n_exposure, 2);
    assert_int_equal(index->exposure_id[0], 5);
    assert_int_equal(index->exposure_id[1], 7);
    assert_int_equal(index->row[0].n_exposure, joint ? 2 : 1);
    for (int64_t i = 0; i < index->n_row; i++) {
      assert_int_equal(index->row[i].first_exposure, i);
      assert_int_equal(index->row[i].exp_id, joint ? -1 : 5 + 2 * i);
      assert_string_equal(index->row[i].object, "spec-0266-51602-0031");
    }
    assert_int_equal(f.batch.n_segment, 3);
    for (int i = 0; i < 3; i++) {
      const mill_raw_segment *got = &f.batch.segment[i];
      const sample_spectrum *p = &s.spectrum[SAMPLE_SPECTRA - 3 + expected[i].i_sample];
      assert_int_equal(got->exposure, expected[i].exposure);
      assert_int_equal(got->arm, expected[i].arm);
      assert_int_equal(got->n_pix, p->n_pix);
      assert_memory_equal(got->mask, p->mask, (size_t)p->n_pix * 4);
      assert_memory_equal(got->sigma_aa, p->sigma, (size_t)p->n_pix * 4);
    }
    one_file_close(&f);
  }
  /* two blue cameras of one exposure */
  draw_sample(SDSS, 1, "");
  strcpy(s.file.hdu[5].name, "B2-00000007-00000001-00000002");
  recipe_save(&s.file, one.path);
  one_refuses(&one, "HDUs 5 (B1-00000007-00000001-00000002) and 6 (B2",
              "blue camera of exposure 7");
}

/* ---- LAMOST ------------------------------------------------------------- */

MILL_TEST(lamost_names_without_cards)
{
  static const struct {
    const char *edits, *object;
    int exp_id, fiber;
  } file[] = {{"!DESIG", "3703110", 3703110, 110},
              {"!DESIG;!OBSID", "spec-55877-B7708_sp03-110.fits", -1, 110},
              {"!DESIG;!OBSID;!FILENAME;!FIBERID", "x.fits", -1, -1}};
  (void)state;
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    one_file f = read_sample(LAMOST, file[i].edits);
    assert_string_equal(f.index.row[0].object, file[i].object);
    assert_int_equal(f.index.row[0].exp_id, file[i].exp_id);
    assert_int_equal(f.index.row[0].fiber, file[i].fiber);
    one_file_close(&f);
  }
}

/* A resolution is never made up: without one in the configuration there is nothing to fit. */
MILL_TEST(lamost_has_no_resolution_of_its_own)
{
  write_sample(LAMOST, 1, "");
  one.lib.arm[ONE_COADD].template_sigma_aa = 0.0;
  for (int given = 0; given < 2; given++) {
    one.config.resolving_power = given ? 1800.0 : 0.0;
    one_file f = one_file_open(&one, one.path);
    assert_int_equal(f.batch.segment[0].use, given ? MILL_SEGMENT_FIT : MILL_SEGMENT_NO_LSF);
    if (given) { /* 2.3548: FWHM of a Gaussian in sigma; float32's rounding */
      const double sigma = s.spectrum[0].wave[1] / (1800.0 * 2.0 * sqrt(2.0 * log(2.0)));
      assert_close(f.batch.segment[0].sigma_aa[1], sigma, 6e-8 * sigma);
    }
    one_file_close(&f);
  }
}

/* ---- WEAVE -------------------------------------------------------------- */

MILL_TEST(weave_integers_with_blank)
{
  one.settings.arm_wanted[ONE_RED] = 0; /* and one arm alone */
  one_file f = read_sample(WEAVE, "BLUE_DATA ~I;BLUE_DATA @0=1;BLUE_DATA @1=-999;"
                                  "BLUE_DATA+BLANK   =                 -999");
  const mill_raw_segment *got = f.batch.segment;
  assert_int_equal(f.batch.n_segment, 3);
  assert_true(got->flux[0] == 0.5f && isnan(got->flux[1]) && got->flux[2] == 0.0f);
  one_file_close(&f);
}

/* ---- real files --------------------------------------------------------- */

/* What astropy 5.2 reads, as CRC-32 of little-endian values: flux and ivar in float32; wavelengths
 * of SDSS as loglam in float32, of LAMOST in float64; masks in int32, of SDSS with the bits of
 * MILL_SDSS_BAD alone. */
typedef struct real_spectrum {
  int exposure, arm, n_pix; /* exposure -1: the coadd; of LAMOST OBSID */
  uint32_t flux, wave, ivar, mask;
} real_spectrum;

static const real_spectrum spec_0266[] = {
    {-1, ONE_COADD, 3842, 0x29253d72, 0xb4334097, 0x84a19fa8, 0xd37188bc}};
static const real_spectrum spec_3586[] = {
    {-1, ONE_COADD, 4625, 0x2673e06c, 0x107697a4, 0x13a27b88, 0xebaf46a3},
    {104927, ONE_B, 2537, 0xecc40ea5, 0xe25f856c, 0x95f6f4e1, 0x7816af6c},
    {104928, ONE_B, 2537, 0xdb718cad, 0x446f3f50, 0x0c489a84, 0xb32fa15b},
    {104929, ONE_B, 2537, 0x44a68c35, 0x4a665a51, 0xc3e93226, 0xd2063649},
    {104930, ONE_B, 2537, 0xe0afcf29, 0x7de0f043, 0x98a1d124, 0x91888723},
    {104931, ONE_B, 2537, 0x67f30bae, 0x47d86546, 0xc535760f, 0x84272261},
    {104932, ONE_B, 2538, 0x1642c7d2, 0x21d19b52, 0x4fd70d00, 0xa82a8757},
    {104933, ONE_B, 2538, 0x66bc158e, 0xd4034cbe, 0xd1eae631, 0x1f1ccb4b},
    {104927, ONE_R, 3142, 0x6ca17215, 0xf2ce20be, 0xed22ddc1, 0x65c01d73},
    {104928, ONE_R, 3142, 0xa1d04f2f, 0x0eb17f40, 0x28e9081d, 0xef8e627c},
    {104929, ONE_R, 3142, 0x3405aa84, 0x8fbe5b69, 0x0df1a068, 0x8ef38611},
    {104930, ONE_R, 3142, 0x94040daf, 0xde71190d, 0x19335d94, 0xc5851d1e},
    {104931, ONE_R, 3142, 0x8874252f, 0xfe1de452, 0x06feefde, 0x2239f443},
    {104932, ONE_R, 3141, 0x86c6aafe, 0x6675906a, 0xdada2d28, 0x54ed065b},
    {104933, ONE_R, 3141, 0x99a4e2bc, 0x6168da41, 0x639f78ce, 0x00b42390}};
static const real_spectrum lamost[] = {
    {3703110, ONE_COADD, 3909, 0x893a169c, 0x423685ea, 0x9d4e7bb8, 0xb8ae9b96},
    {3706009, ONE_COADD, 3909, 0x2577f397, 0x423685ea, 0x542a4423, 0xb8ae9b96},
    {3709013, ONE_COADD, 3902, 0x542cc0fa, 0x82654bc1, 0xceab617c, 0x553d890d},
    {3709130, ONE_COADD, 3902, 0x03551f1c, 0x82654bc1, 0x0ff8dd18, 0x553d890d},
    {3712166, ONE_COADD, 3906, 0x66a49043, 0xaa8d9107, 0x1d636ffb, 0xd58d5e55},
    {3713226, ONE_COADD, 3902, 0xf982554a, 0x82654bc1, 0x6d877f20, 0x553d890d},
    {3715155, ONE_COADD, 3909, 0x08de7864, 0x423685ea, 0x77071308, 0xb8ae9b96}};
#define N(a) ((int)(sizeof(a) / sizeof *(a)))

/* Every spectrum of the file is in the table, and agrees. */
static void same_as_astropy(int kind, const char *name, int exposures, const real_spectrum *real,
                            int n_real, int n_segment)
{
  char file_name[128];
  snprintf(file_name, sizeof file_name, "real/%s.fits.gz", name);
  mill_test_data(path, file_name);
  write_sample(kind, 1, ""); /* its format and line-spread function */
  one.config.exposures = exposures;
  one_file f = one_file_open(&one, path);
  assert_int_equal(mill_spectra_frame(f.spectra), MILL_FRAME_HELIOCENTRIC);
  assert_string_equal(f.index.row[0].spectype, "STAR");
  assert_int_equal(f.batch.n_segment, n_segment);
  for (int i = 0; i < n_segment; i++) {
    const mill_raw_segment *got = &f.batch.segment[i];
    const double *wave = got->wave_aa;
    const real_spectrum *r = real;
    while (r < real + n_real &&
           (r->exposure != f.index.exposure_id[got->exposure] || r->arm != got->arm))
      r++;
    assert_true(r < real + n_real);
    assert_int_equal(got->n_pix, r->n_pix);
    int32_t *mask = calloc((size_t)got->n_pix, sizeof *mask);
    float *log_wave = calloc((size_t)got->n_pix, sizeof *log_wave);
    assert_true(mask && log_wave);
    for (int j = 0; j < got->n_pix; j++) {
      mask[j] = got->mask[j] & (kind == SDSS ? ~MILL_SDSS_NO_WDISP : ~0);
      log_wave[j] = (float)log10(wave[j]); /* its rounding is far below float32's */
      if (kind == SDSS)
        assert_true(got->sigma_aa[j] > 0.5f && got->sigma_aa[j] < 5.0f); /* R 1000 to 3000 */
    }
    assert_int_equal(one_crc(got->flux, got->n_pix, 0), r->flux);
    assert_int_equal(one_crc(got->ivar, got->n_pix, 0), r->ivar);
    assert_int_equal(one_crc(mask, got->n_pix, 0), r->mask);
    assert_int_equal(kind == SDSS ? one_crc(log_wave, got->n_pix, 0) : one_crc(wave, got->n_pix, 1),
                     r->wave);
    free(mask);
    free(log_wave);
  }
  one_file_close(&f);
}

MILL_TEST(real_files)
{
  static const char older[] = "sdss/spec-0266-51602-0031", boss[] = "sdss/spec-3586-55181-0500";
  (void)state;
  same_as_astropy(SDSS, older, MILL_EXPOSURES_COADD, spec_0266, N(spec_0266), 1);
  same_as_astropy(SDSS, boss, MILL_EXPOSURES_COADD, spec_3586, N(spec_3586), 1);
  same_as_astropy(SDSS, boss, MILL_EXPOSURES_SINGLE, spec_3586, N(spec_3586), 14);
  same_as_astropy(SDSS, boss, MILL_EXPOSURES_JOINT, spec_3586, N(spec_3586), 14);
  for (int i = 0; i < N(lamost); i++) {
    char name[64];
    snprintf(name, sizeof name, "lamost/%d", lamost[i].exposure);
    same_as_astropy(LAMOST, name, MILL_EXPOSURES_COADD, lamost, N(lamost), 1);
  }
}

MILL_EACH_TEST_MAIN(begin, end)
