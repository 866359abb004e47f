#include "tests/io/surveys/one_format.h"

#include "io/surveys/sdss.h"

enum { N_COADD = 6, N_B = 4, N_R = 5 };

static one_format one;

static int begin(void **state)
{
  (void)state;
  one_begin(&one, &mill_format_sdss, 1);
  return 0;
}

static int end(void **state)
{
  (void)state;
  one_end(&one);
  return 0;
}

/** What differs from the usual file; zero is the usual file. */
typedef struct sdss_options {
  const char *leave;  /**< an HDU to leave out */
  const char *rename; /**< a column of COADD that gets another name */
  const char *form;   /**< of a column of COADD, "flux 2E" */
  const char *card;   /**< added to the primary */
  const char *r_card; /**< added to the red exposures */
  const char *spall;  /**< name of the object's table, NULL: SPECOBJ */
  const char *objtype;
  int n_object, n_pix;
  float loglam[N_COADD]; /**< 0: the usual */
  int twice;             /**< a second blue camera of exposure 7 */
  int no_frame;
} sdss_options;

static const float flux[N_COADD] = {1.5f, -2.25f, NAN, INFINITY, 1e-42f, 7.0f};
static const float ivar[N_COADD] = {1.0f, 0.0f, 3.0f, -1.0f, INFINITY, 0.5f};
static const float loglam[N_COADD] = {3.6000f, 3.6001f, 3.6002f, 3.6003f, 3.6004f, 3.6005f};
static const int32_t and_mask[N_COADD] = {
    0, MILL_SDSS_BRIGHTSKY | 1 << 16, 1 << 24 | 1 << 19, MILL_SDSS_NOPLUG, INT32_MIN, 1 << 9};
static const float wdisp[N_COADD] = {1.25f, 0.0f, NAN, 2.0f, 11.0f, -3.0f};

/* Columns whose form differs must not run out of these values. */
static void pixels(fits_maker *m, const char *name, const char *mask, int n_pix, const float *wave,
                   const sdss_options *o)
{
  float twice[2 * N_COADD] = {0};
  maker_column column[] = {{"flux", "E", flux},        {"LogLam", "E", wave},
                           {"ivar", "E", ivar},        {mask, "J", and_mask},
                           {"or_mask", "J", and_mask}, {"wdisp", "E", wdisp}};
  for (int i = 0; o && i < 6; i++) {
    const size_t n = strlen(column[i].name);
    if (o->rename && strcasecmp(o->rename, column[i].name) == 0)
      column[i].name = "other";
    if (o->form && strncmp(o->form, column[i].name, n) == 0 && o->form[n] == ' ') {
      column[i].form = o->form + n + 1;
      column[i].values = twice;
    }
  }
  maker_table(m, name, n_pix, 6, column);
}

static void save(const sdss_options *o)
{
  fits_maker m = {0};
  float wave[N_COADD];
  const int32_t plate[2] = {266, 266}, mjd[2] = {51602, 51602}, fiber[2] = {31, 31};
  const double ra[2] = {147.32107, 0.0}, dec[2] = {-0.0065757249, 0.0}, z[2] = {-3.5e-5, 0.0};
  for (int i = 0; i < N_COADD; i++)
    wave[i] = o->loglam[i] != 0.0f ? o->loglam[i] : loglam[i];
  maker_primary(&m);
  if (!o->no_frame)
    one_add_card(&m, "HELIO_RV=        4.97393101991");
  if (o->card)
    one_add_card(&m, o->card);
  if (!o->leave || strcmp(o->leave, "COADD") != 0)
    pixels(&m, "COADD", "AND_MASK", o->n_pix ? o->n_pix : N_COADD, wave, o);
  char objtype[33] = "";
  snprintf(objtype, sizeof objtype, "%-16s%-16s", o->objtype ? o->objtype : "QSO", "QSO");
  const maker_column object[] = {{"PLATE", "J", plate},
                                 {"MJD", "J", mjd},
                                 {"FIBERID", "J", fiber},
                                 {"PLUG_RA", "D", ra},
                                 {"PLUG_DEC", "D", dec},
                                 {"Z", "D", z},
                                 {"CLASS", "6A", "STAR  STAR  "},
                                 {"SUBCLASS", "21A", "WD                   WD                   "},
                                 {"OBJTYPE", "16A", objtype}};
  const int leave_plate = o->leave && strcmp(o->leave, "PLATE") == 0;
  if (!o->leave || strcmp(o->leave, "SPECOBJ") != 0)
    maker_table(&m, o->spall ? o->spall : "SPECOBJ", o->n_object ? o->n_object : 1, 9 - leave_plate,
                object + leave_plate);
  /* the exposures of both cameras, the later exposure first, and one without its red half */
  if (!o->leave || strcmp(o->leave, "exposures") != 0) {
    static const float shifted[N_COADD] = {3.61f, 3.62f, 3.63f, 3.64f, 3.65f, 3.66f};
    pixels(&m, "R1-00000007-00000001-00000002", "mask", N_R, shifted, NULL);
    one_add_card(&m, "HELIO_RV=        4.9");
    if (o->r_card)
      one_add_card(&m, o->r_card);
    pixels(&m, "B1-00000007-00000001-00000002", "mask", N_B, loglam, NULL);
    one_add_card(&m, "HELIO_RV=        4.9");
    pixels(&m, "B1-00000005-00000001-00000002", "mask", N_B + 1, loglam, NULL);
    one_add_card(&m, "HELIO_RV=        4.8");
    if (o->twice)
      pixels(&m, "B2-00000007-00000001-00000002", "mask", N_B, loglam, NULL);
  }
  maker_save(&m, one.path);
  maker_clear(&m);
}

static void refuses(const sdss_options *o, const char *part, const char *other)
{
  save(o);
  one_refuses(&one, part, other);
}

static void test_refuses_malformed_files(void **state)
{
  (void)state;
  refuses(&(sdss_options){.leave = "COADD"}, "no known format", "sdss");
  strcpy(one.config.format, "sdss");
  refuses(&(sdss_options){.leave = "COADD"}, "no table COADD", "");
  refuses(&(sdss_options){.leave = "SPECOBJ"}, "no table SPECOBJ or SPALL", "");
  refuses(&(sdss_options){.n_object = 2}, "HDU 3 (SPECOBJ)", "has 2 rows");
  refuses(&(sdss_options){.leave = "PLATE"}, "(SPECOBJ)", "no column PLATE");
  refuses(&(sdss_options){.rename = "flux"}, "HDU 2 (COADD)", "no column flux");
  refuses(&(sdss_options){.rename = "loglam"}, "HDU 2 (COADD)", "no column loglam");
  refuses(&(sdss_options){.rename = "ivar"}, "HDU 2 (COADD)", "no column ivar");
  refuses(&(sdss_options){.rename = "and_mask"}, "HDU 2 (COADD)", "no column and_mask");
  refuses(&(sdss_options){.rename = "wdisp"}, "HDU 2 (COADD)", "no column wdisp");
  refuses(&(sdss_options){.form = "flux 2E"}, "HDU 2 (COADD)",
          "6 rows with 2 values of column flux");
  refuses(&(sdss_options){.form = "ivar 2E"}, "HDU 2 (COADD)",
          "column ivar has 6 rows of 2 values");
  refuses(&(sdss_options){.form = "wdisp 4A"}, "HDU 2 (COADD)",
          "column wdisp must hold a fixed number");
  refuses(&(sdss_options){.n_pix = 1}, "HDU 2 (COADD)", "are no spectrum");
  refuses(&(sdss_options){.loglam = {[3] = NAN}}, "(COADD): column loglam", "pixel 3 is nan");
  refuses(&(sdss_options){.loglam = {[3] = 3.6002f}}, "(COADD): column loglam", "pixel 3 is 3982");
  refuses(&(sdss_options){.loglam = {[5] = 400.0f}}, "(COADD): column loglam", "pixel 5 is inf");
  refuses(&(sdss_options){.card = "VACUUM  = 'yes'"}, "HDU 1: keyword VACUUM", "must hold T or F");
  one.config.exposures = MILL_EXPOSURES_SINGLE;
  refuses(&(sdss_options){.leave = "exposures"}, "holds no single exposures", "exposures: coadd");
  refuses(&(sdss_options){.twice = 1}, "HDUs 5 (B1-00000007-00000001-00000002) and 7 (B2",
          "blue camera of exposure 7");
}

/* An empty table is cut off by the guard or by the reader, never read. */
static void test_refuses_empty_spectra(void **state)
{
  (void)state;
  fits_maker m = {0};
  const int32_t number = 1;
  maker_primary(&m);
  pixels(&m, "COADD", "and_mask", 0, loglam, NULL);
  maker_table(&m, "SPALL", 1, 1, (const maker_column[]){{"PLATE", "J", &number}});
  maker_save(&m, one.path);
  maker_clear(&m);
  one_refuses(&one, "HDU 2 (COADD)", "0 rows");
}

static void test_reads_the_coadd(void **state)
{
  (void)state;
  mill_file_index index;
  mill_read_batch batch = {0};
  save(&(sdss_options){0});
  mill_spectra *spectra = one_open(&one, one.path);
  assert_int_equal(mill_spectra_frame(spectra), MILL_FRAME_HELIOCENTRIC);
  one_index(&one, spectra, &index);
  assert_int_equal(index.n_row, 1);
  assert_int_equal(index.n_exposure, 1);
  const mill_catalog_row *row = &index.row[0];
  assert_string_equal(row->object, "spec-0266-51602-0031");
  assert_string_equal(row->identifier, "sdss 0266-51602-0031");
  assert_int_equal(row->target_id, -1);
  assert_int_equal(row->ref_id, -1);
  assert_int_equal(row->fiber, 31);
  assert_int_equal(row->exp_id, -1);
  assert_int_equal(row->n_exposure, 1);
  assert_close(row->target_ra, 147.32107, 0.0);
  assert_close(row->target_dec, -0.0065757249, 0.0);
  assert_close(row->z, -3.5e-5, 0.0);
  assert_string_equal(row->spectype, "STAR");
  assert_string_equal(row->subtype, "WD");
  one_read(spectra, &index, &batch);
  assert_int_equal(batch.n_segment, 1);
  const mill_read_segment *s = &batch.segment[0];
  assert_int_equal(s->use, MILL_SEGMENT_FIT);
  assert_int_equal(s->arm, ONE_COADD);
  assert_int_equal(s->n_pix, N_COADD);
  assert_memory_equal(s->flux, flux, sizeof flux);
  assert_memory_equal(s->ivar, ivar, sizeof ivar);
  /* bits that tell a pixel's history are gone; no width: 1, 2, 4, 5 */
  static const int32_t mask[N_COADD] = {0,
                                        MILL_SDSS_BRIGHTSKY | MILL_SDSS_NO_WDISP,
                                        MILL_SDSS_NO_WDISP,
                                        MILL_SDSS_NOPLUG,
                                        MILL_SDSS_NO_WDISP,
                                        MILL_SDSS_NO_WDISP};
  assert_memory_equal(s->mask, mask, sizeof mask);
  /* interpolated between neighbours, else the nearest */
  static const double pixels_wide[N_COADD] = {1.25, 1.5, 1.75, 2.0, 2.0, 2.0};
  for (int i = 0; i < N_COADD; i++) {
    const double wave = batch.wave[s->wave].wave_aa[i];
    /* the same function of the same double */
    assert_close(wave, pow(10.0, (double)loglam[i]), 0.0);
    /* float32's rounding */
    const double sigma = pixels_wide[i] * 1e-4 * log(10.0) * wave;
    assert_close(s->sigma_aa[i], sigma, 6e-8 * sigma);
  }
  assert_int_equal(mill_spectra_read(spectra, (const int64_t[]){2}, 1, &batch), MILL_ERR_RANGE);
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

static void test_marks_a_spectrum_without_widths(void **state)
{
  (void)state;
  mill_file_index index;
  mill_read_batch batch = {0};
  save(&(sdss_options){.form = "wdisp E"}); /* zeros */
  mill_spectra *spectra = one_open(&one, one.path);
  one_index(&one, spectra, &index);
  one_read(spectra, &index, &batch);
  for (int i = 0; i < N_COADD; i++) {
    const double one_pixel = 1e-4 * log(10.0) * batch.wave[0].wave_aa[i];
    assert_true(batch.segment[0].mask[i] & MILL_SDSS_NO_WDISP);
    assert_close(batch.segment[0].sigma_aa[i], one_pixel, 6e-8 * one_pixel);
  }
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

/* Exposure 5 has a blue half alone, 7 both; arms by number of pixels. */
static void test_reads_single_exposures(void **state)
{
  (void)state;
  save(&(sdss_options){0});
  for (int joint = 0; joint < 2; joint++) {
    mill_file_index index;
    mill_read_batch batch = {0};
    one.config.exposures = joint ? MILL_EXPOSURES_JOINT : MILL_EXPOSURES_SINGLE;
    mill_spectra *spectra = one_open(&one, one.path);
    assert_int_equal(mill_spectra_frame(spectra), MILL_FRAME_HELIOCENTRIC);
    one_index(&one, spectra, &index);
    assert_int_equal(index.n_row, joint ? 1 : 2);
    assert_int_equal(index.n_exposure, 2);
    assert_int_equal(index.exposure_id[0], 5);
    assert_int_equal(index.exposure_id[1], 7);
    assert_int_equal(index.row[0].n_exposure, joint ? 2 : 1);
    assert_int_equal(index.row[0].exp_id, joint ? -1 : 5);
    for (int64_t i = 0; i < index.n_row; i++) {
      assert_int_equal(index.row[i].first_exposure, i);
      assert_string_equal(index.row[i].object, "spec-0266-51602-0031");
    }
    if (!joint)
      assert_int_equal(index.row[1].exp_id, 7);
    one_read(spectra, &index, &batch);
    static const int expected[3][3] = {{0, ONE_B, N_B + 1}, {1, ONE_B, N_B}, {1, ONE_R, N_R}};
    assert_int_equal(batch.n_segment, 3);
    for (int i = 0; i < 3; i++) {
      const mill_read_segment *s = &batch.segment[i];
      assert_int_equal(s->exposure, expected[i][0]);
      assert_int_equal(s->arm, expected[i][1]);
      assert_int_equal(s->n_pix, expected[i][2]);
      assert_memory_equal(s->flux, flux, (size_t)s->n_pix * sizeof(float));
      const float first = s->arm == ONE_R ? 3.61f : 3.6f;
      assert_close(batch.wave[s->wave].wave_aa[0], pow(10.0, (double)first), 0.0);
    }
    /* in another order, and wavelengths alone */
    const int64_t last = index.exposure_row[1];
    assert_int_equal(mill_spectra_waves(spectra, &last, 1, &batch), MILL_OK);
    assert_int_equal(batch.n_segment, 2);
    assert_int_equal(batch.wave[batch.segment[1].wave].n_pix, N_R);
    mill_read_batch_clear(&batch);
    mill_file_index_clear(&index);
    mill_spectra_close(spectra);
  }
}

static int frame_of(const sdss_options *o)
{
  save(o);
  mill_spectra *spectra = one_open(&one, one.path);
  const int frame = mill_spectra_frame(spectra);
  mill_spectra_close(spectra);
  return frame;
}

static void test_states_frame_and_medium(void **state)
{
  (void)state;
  assert_int_equal(frame_of(&(sdss_options){.no_frame = 1}), MILL_FRAME_UNKNOWN);
  assert_int_equal(frame_of(&(sdss_options){.card = "HELIO   =                    F"}),
                   MILL_FRAME_TOPOCENTRIC);
  one.config.exposures = MILL_EXPOSURES_JOINT;
  assert_int_equal(frame_of(&(sdss_options){.no_frame = 1}), MILL_FRAME_HELIOCENTRIC);
  assert_int_equal(frame_of(&(sdss_options){.r_card = "HELIO   =                    F"}),
                   MILL_FRAME_UNKNOWN);
  /* air is converted, where the header says so */
  mill_file_index index;
  mill_read_batch batch = {0};
  one.config.exposures = MILL_EXPOSURES_COADD;
  save(&(sdss_options){.card = "VACUUM  =                    F"});
  mill_spectra *spectra = one_open(&one, one.path);
  one_index(&one, spectra, &index);
  one_read(spectra, &index, &batch);
  assert_close(batch.wave[0].wave_aa[0], mill_air_to_vacuum(pow(10.0, (double)loglam[0])), 0.0);
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

static int64_t rows_of(const sdss_options *o)
{
  mill_file_index index;
  save(o);
  mill_spectra *spectra = one_open(&one, one.path);
  one_index(&one, spectra, &index);
  const int64_t n = index.n_row;
  assert_int_equal(index.n_exposure, n);
  assert_int_equal(index.n_fits_row, 1);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
  return n;
}

static void test_selects(void **state)
{
  (void)state;
  mill_selection *select = &one.config.select;
  assert_int_equal(rows_of(&(sdss_options){0}), 1);
  assert_int_equal(rows_of(&(sdss_options){.objtype = "SKY"}), 0);
  select->n_objtype = 1;
  strcpy(select->objtype[0], "SKY");
  assert_int_equal(rows_of(&(sdss_options){.objtype = "SKY"}), 1);
  assert_int_equal(rows_of(&(sdss_options){0}), 0);
  select->n_objtype = 0;
  /* the survey's own class stands for redrock's */
  select->redrock = 1;
  assert_int_equal(rows_of(&(sdss_options){0}), 1);
  int64_t target = 30;
  select->target_id = &target;
  select->n_target_id = 1;
  assert_int_equal(rows_of(&(sdss_options){0}), 0);
  select->target_id = NULL;
  select->n_target_id = 0;
}

static void test_recognises(void **state)
{
  (void)state;
  save(&(sdss_options){0});
  assert_true(one_recognises(&one, one.path));
  save(&(sdss_options){.spall = "SPALL"});
  assert_true(one_recognises(&one, one.path));
  save(&(sdss_options){.leave = "SPECOBJ"});
  assert_false(one_recognises(&one, one.path));
  save(&(sdss_options){.leave = "COADD"});
  assert_false(one_recognises(&one, one.path));
  save(&(sdss_options){.n_pix = 1}); /* as LAMOST has it */
  assert_false(one_recognises(&one, one.path));
  assert_string_equal(mill_format_sdss.name, "sdss");
}

/* ---- real files --------------------------------------------------------- */

/* What astropy 5.2 reads, as CRC-32 of little-endian values: flux, loglam and ivar in float32,
 * and the mask (and_mask or mask) in int32 with the bits of MILL_SDSS_BAD alone. */
typedef struct real_spectrum {
  const char *name;
  int exposure, arm, n_pix;
  uint32_t flux, loglam, ivar, mask;
} real_spectrum;

static const real_spectrum real[] = {
    {"sdss/spec-0266-51602-0031", -1, 0, 3842, 0x29253d72, 0xb4334097, 0x84a19fa8, 0xd37188bc},
    {"sdss/spec-3586-55181-0500", -1, 0, 4625, 0x2673e06c, 0x107697a4, 0x13a27b88, 0xebaf46a3},
    {"sdss/spec-3586-55181-0500", 104927, 1, 2537, 0xecc40ea5, 0xe25f856c, 0x95f6f4e1, 0x7816af6c},
    {"sdss/spec-3586-55181-0500", 104928, 1, 2537, 0xdb718cad, 0x446f3f50, 0x0c489a84, 0xb32fa15b},
    {"sdss/spec-3586-55181-0500", 104929, 1, 2537, 0x44a68c35, 0x4a665a51, 0xc3e93226, 0xd2063649},
    {"sdss/spec-3586-55181-0500", 104930, 1, 2537, 0xe0afcf29, 0x7de0f043, 0x98a1d124, 0x91888723},
    {"sdss/spec-3586-55181-0500", 104931, 1, 2537, 0x67f30bae, 0x47d86546, 0xc535760f, 0x84272261},
    {"sdss/spec-3586-55181-0500", 104932, 1, 2538, 0x1642c7d2, 0x21d19b52, 0x4fd70d00, 0xa82a8757},
    {"sdss/spec-3586-55181-0500", 104933, 1, 2538, 0x66bc158e, 0xd4034cbe, 0xd1eae631, 0x1f1ccb4b},
    {"sdss/spec-3586-55181-0500", 104927, 2, 3142, 0x6ca17215, 0xf2ce20be, 0xed22ddc1, 0x65c01d73},
    {"sdss/spec-3586-55181-0500", 104928, 2, 3142, 0xa1d04f2f, 0x0eb17f40, 0x28e9081d, 0xef8e627c},
    {"sdss/spec-3586-55181-0500", 104929, 2, 3142, 0x3405aa84, 0x8fbe5b69, 0x0df1a068, 0x8ef38611},
    {"sdss/spec-3586-55181-0500", 104930, 2, 3142, 0x94040daf, 0xde71190d, 0x19335d94, 0xc5851d1e},
    {"sdss/spec-3586-55181-0500", 104931, 2, 3142, 0x8874252f, 0xfe1de452, 0x06feefde, 0x2239f443},
    {"sdss/spec-3586-55181-0500", 104932, 2, 3141, 0x86c6aafe, 0x6675906a, 0xdada2d28, 0x54ed065b},
    {"sdss/spec-3586-55181-0500", 104933, 2, 3141, 0x99a4e2bc, 0x6168da41, 0x639f78ce, 0x00b42390},
};

enum { N_REAL = sizeof real / sizeof *real };

/* Every spectrum of a file that is there must be in the table above, and agree. */
static int compare_file(const char *name, int exposures)
{
  char file_name[128];
  mill_file_index index;
  mill_read_batch batch = {0};
  snprintf(file_name, sizeof file_name, "real/%s.fits.gz", name);
  const char *path = mill_test_data_path(file_name);
  if (!path)
    skip();
  one.config.exposures = exposures;
  mill_spectra *spectra = one_open(&one, path);
  assert_int_equal(mill_spectra_frame(spectra), MILL_FRAME_HELIOCENTRIC);
  one_index(&one, spectra, &index);
  assert_string_equal(index.row[0].object, name + 5);
  assert_string_equal(index.row[0].spectype, "STAR");
  one_read(spectra, &index, &batch);
  for (int i = 0; i < batch.n_segment; i++) {
    const mill_read_segment *s = &batch.segment[i];
    const mill_read_wave *w = &batch.wave[s->wave];
    const real_spectrum *r = real;
    while (r < real + N_REAL && (strcmp(r->name, name) != 0 ||
                                 r->exposure != index.exposure_id[s->exposure] || r->arm != s->arm))
      r++;
    assert_true(r < real + N_REAL);
    assert_int_equal(s->n_pix, r->n_pix);
    assert_int_equal(w->n_pix, r->n_pix);
    int32_t *mask = calloc((size_t)s->n_pix, sizeof *mask);
    float *log_wave = calloc((size_t)s->n_pix, sizeof *log_wave);
    assert_non_null(mask);
    assert_non_null(log_wave);
    for (int j = 0; j < s->n_pix; j++) {
      mask[j] = s->mask[j] & ~MILL_SDSS_NO_WDISP;
      log_wave[j] = (float)log10(w->wave_aa[j]); /* its rounding is far below float32's */
      assert_true(s->sigma_aa[j] > 0.5f && s->sigma_aa[j] < 5.0f); /* R 1000 to 3000 */
    }
    assert_int_equal(one_crc(s->flux, s->n_pix, 0), r->flux);
    assert_int_equal(one_crc(log_wave, s->n_pix, 0), r->loglam);
    assert_int_equal(one_crc(s->ivar, s->n_pix, 0), r->ivar);
    assert_int_equal(one_crc(mask, s->n_pix, 0), r->mask);
    free(mask);
    free(log_wave);
  }
  const int n_segment = batch.n_segment;
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
  return n_segment;
}

static void test_real_files(void **state)
{
  (void)state;
  assert_int_equal(compare_file("sdss/spec-0266-51602-0031", MILL_EXPOSURES_COADD), 1);
  assert_int_equal(compare_file("sdss/spec-3586-55181-0500", MILL_EXPOSURES_COADD), 1);
  assert_int_equal(compare_file("sdss/spec-3586-55181-0500", MILL_EXPOSURES_SINGLE), 14);
  assert_int_equal(compare_file("sdss/spec-3586-55181-0500", MILL_EXPOSURES_JOINT), 14);
}

/* Columns of one table against what CFITSIO itself reads as float32. */
static void test_real_widths(void **state)
{
  (void)state;
  mill_test_data(path, "real/sdss/spec-3586-55181-0500.fits.gz");
  mill_file_index index;
  mill_read_batch batch = {0};
  mill_spectra *spectra = one_open(&one, path);
  one_index(&one, spectra, &index);
  one_read(spectra, &index, &batch);
  const mill_read_segment *s = &batch.segment[0];
  fitsfile *fits;
  int status = 0, n_bad = 0;
  float *width = calloc((size_t)s->n_pix, sizeof *width);
  assert_non_null(width);
  fits_open_diskfile(&fits, path, READONLY, &status);
  fits_movabs_hdu(fits, 2, NULL, &status);
  fits_read_col(fits, TFLOAT, 6, 1, 1, s->n_pix, NULL, width, NULL, &status);
  fits_close_file(fits, &status);
  assert_int_equal(status, 0);
  for (int i = 0; i < s->n_pix; i++) {
    const double pixel_aa = 1e-4 * log(10.0) * batch.wave[s->wave].wave_aa[i];
    n_bad += !(width[i] > 0.0f);
    assert_int_equal((s->mask[i] & MILL_SDSS_NO_WDISP) != 0, !(width[i] > 0.0f));
    if (width[i] > 0.0f) /* float32's rounding */
      assert_close(s->sigma_aa[i], width[i] * pixel_aa, 6e-8 * width[i] * pixel_aa);
  }
  assert_int_equal(n_bad, 12); /* as astropy counts them */
  free(width);
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_refuses_malformed_files, begin, end),
      cmocka_unit_test_setup_teardown(test_refuses_empty_spectra, begin, end),
      cmocka_unit_test_setup_teardown(test_reads_the_coadd, begin, end),
      cmocka_unit_test_setup_teardown(test_marks_a_spectrum_without_widths, begin, end),
      cmocka_unit_test_setup_teardown(test_reads_single_exposures, begin, end),
      cmocka_unit_test_setup_teardown(test_states_frame_and_medium, begin, end),
      cmocka_unit_test_setup_teardown(test_selects, begin, end),
      cmocka_unit_test_setup_teardown(test_recognises, begin, end),
      cmocka_unit_test_setup_teardown(test_real_files, begin, end),
      cmocka_unit_test_setup_teardown(test_real_widths, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
