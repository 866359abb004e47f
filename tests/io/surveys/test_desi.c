/* SPDX-License-Identifier: BSD-3-Clause */
/* DESI: images of every kind, rows of coadds and spectra files, redrock; against astropy. */
#include "tests/io/surveys/samples.h"

#include <sys/stat.h>

#include <fitsio.h>

#include "tests/io/surveys/desi_rows.h"

static const char *in_folder(const char *name)
{
  static char path[1200];
  snprintf(path, sizeof path, "%s/%s", one.folder, name);
  return path;
}

static int begin_desi(void **state)
{
  begin(state);
  snprintf(one.path, sizeof one.path, "%s/coadd-x.fits", one.folder);
  return 0;
}

/* ---- pixels -------------------------------------------------------------- */

/* Rows of five in runs and alone, with NaN and infinity, are in the test of all formats. */
MILL_TEST(images_of_other_types)
{
  static const struct {
    const char *edits;
    float first[4]; /* of B_FLUX */
  } file[] = {{"B_FLUX ~D;B_FLUX @0=nan;B_FLUX @1=inf;B_FLUX @2=-1e300;B_FLUX @3=3",
               {NAN, INFINITY, -INFINITY, 3.0f}},
              {"B_FLUX ~I;B_FLUX @0=-10;B_FLUX @1=4;B_FLUX @3=7;B_FLUX+BSCALE  = 0.5;"
               "B_FLUX+BZERO   = 5.0;B_FLUX+BLANK   = -10",
               {NAN, 7.0f, 5.0f, 8.5f}},
              /* floats too, which are read as stored when they have no scale */
              {"B_FLUX ~E;B_FLUX @1=4;B_FLUX @3=7;B_FLUX+BSCALE  = 0.5;B_FLUX+BZERO   = 5.0",
               {5.0f, 7.0f, 5.0f, 8.5f}}};
  (void)state;
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    one_file f = read_sample(DESI, file[i].edits);
    for (int k = 0; k < 4; k++)
      assert_true(f.batch.segment[0].flux[k] == file[i].first[k] ||
                  (isnan(f.batch.segment[0].flux[k]) && isnan(file[i].first[k])));
    one_file_close(&f);
  }
}

MILL_TEST(masks_of_any_integer)
{
  static const struct {
    const char *edits;
    int32_t first[4];
  } file[] = {
      {"B_MASK ~J;B_MASK @1=1;B_MASK @2=-2147483648", {0, 1, INT32_MIN, 0}},
      {"B_MASK ~B;B_MASK @1=255", {0, 255, 0, 0}},
      {"B_MASK ~I;B_MASK @1=-1;B_MASK @2=4", {0, -1, 4, 0}},
      {"B_MASK ~I;B_MASK @0=-32768;B_MASK @1=32767;B_MASK+BZERO   = 32768",
       {0, 65535, 32768, 32768}},
      {"B_MASK ~J;B_MASK @0=-2147483648;B_MASK @1=0;B_MASK @2=1;B_MASK+BZERO   = 2147483648",
       {0, INT32_MIN, INT32_MIN + 1, INT32_MIN}},
      {"B_MASK ~K;B_MASK @1=1099511627776;B_MASK @2=2", {0, INT32_MIN, 2, 0}},
      {"B_MASK ~K;B_MASK @0=-9223372036854775808;B_MASK @1=-9223372036854775807;B_MASK @2=-1;"
       "B_MASK+BZERO   = 9223372036854775808",
       {0, 1, -1, INT32_MIN}}};
  (void)state;
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    one_file f = read_sample(DESI, file[i].edits);
    for (int k = 0; k < 4; k++)
      if (f.batch.segment[0].mask[k] != file[i].first[k])
        fail_msg("%s: pixel %d is %x", file[i].edits, k, (unsigned)f.batch.segment[0].mask[k]);
    one_file_close(&f);
  }
}

/* B_MASK in Rice tiles, and B_FLUX in lossless gzip tiles with NaN. */
MILL_TEST(compressed_images)
{
  int mask[20];
  float flux[20];
  (void)state;
  for (int i = 0; i < 20; i++) {
    mask[i] = i == 7 ? INT32_MIN : 5 * i % 7;
    flux[i] = i == 3 ? NAN : 0.1f * (float)i;
  }
  for (int is_flux = 0; is_flux < 2; is_flux++) {
    fitsfile *fptr;
    int status = 0;
    long axis[2] = {4, 5}, first[2] = {1, 1}, tile[2] = {3, 2}; /* which do not fit the image */
    write_sample(DESI, 1, is_flux ? "-B_FLUX" : "-B_MASK");
    fits_open_diskfile(&fptr, one.path, READWRITE, &status);
    fits_set_compression_type(fptr, is_flux ? GZIP_2 : RICE_1, &status);
    fits_set_quantize_level(fptr, 0.0f, &status);
    fits_set_tile_dim(fptr, 2, tile, &status);
    fits_create_img(fptr, is_flux ? FLOAT_IMG : LONG_IMG, 2, axis, &status);
    fits_update_key_str(fptr, "EXTNAME", is_flux ? "B_FLUX" : "B_MASK", NULL, &status);
    fits_write_pix(fptr, is_flux ? TFLOAT : TINT, first, 20, is_flux ? (void *)flux : (void *)mask,
                   &status);
    fits_close_file(fptr, &status);
    assert_int_equal(status, 0);
    one_file f = one_file_open(&one, one.path);
    for (int i = 0; i < 20; i++) {
      const mill_raw_segment *got = &f.batch.segment[2 * (i / 4)];
      if (is_flux)
        assert_true(i == 3 ? isnan(got->flux[3]) : got->flux[i % 4] == flux[i]);
      else
        assert_int_equal(got->mask[i % 4], mask[i]);
    }
    one_file_close(&f);
    /* decoders that do not look at the end of their input are not used */
    FILE *stream = fopen(one.path, "r+b");
    assert_non_null(stream);
    char card[81] = "";
    do
      assert_int_equal(fread(card, 1, 80, stream), 80);
    while (strncmp(card, "ZCMPTYPE", 8) != 0);
    assert_int_equal(fseek(stream, -80, SEEK_CUR), 0);
    fprintf(stream, "%-80s", "ZCMPTYPE= 'PLIO_1'");
    assert_int_equal(fclose(stream), 0);
    one_refuses(&one, "'PLIO_1'", "");
  }
}

/* A file that is cut after it was opened: the rows that are gone are refused. */
MILL_TEST(notices_a_cut_while_reading)
{
  write_sample(DESI, 1, "");
  one_file f = one_file_open(&one, one.path);
  fits_maker m = recipe_make(&s.file);
  /* in the middle of the second row of R_FLUX, HDU 9 */
  assert_int_equal(truncate(one.path, (off_t)m.data_start[8] + 4 * s.spectrum[1].n_pix + 6), 0);
  mill_error_clear();
  assert_fails(mill_spectra_read(f.spectra, f.index.exposure_row, 5, &f.batch), MILL_ERR_INPUT,
               one.path);
  assert_says("R_FLUX");
  assert_says("shorter");
  one_file_close(&f);
  maker_clear(&m);
}

MILL_TEST(a_library_of_other_arms)
{
  mill_arm *arm = &one.lib.arm[0];
  one.lib.n_arm = 1;
  one.config.fit.n_cont = 1;
  strcpy(arm->name, "optical");
  arm->n_pix = 1001;
  arm->ln_wave0 = log(3900.0);
  arm->ln_step = log(9000.0 / 3900.0) / 1000;
  one_file f = read_sample(DESI, "");
  assert_int_equal(f.batch.n_segment, 10); /* b and r of each row, both of arm 0 */
  for (int i = 0; i < 10; i++) {
    assert_int_equal(f.batch.segment[i].arm, 0);
    assert_int_equal(f.batch.segment[i].n_pix, s.spectrum[i].n_pix);
    assert_memory_equal(f.batch.segment[i].mask, s.spectrum[i].mask,
                        (size_t)s.spectrum[i].n_pix * 4);
  }
  one_file_close(&f);
}

/* ---- rows ---------------------------------------------------------------- */

static mill_file_index index_of(const char *path)
{
  mill_file_index index;
  mill_spectra *spectra = one_open(&one, path);
  one_index(&one, spectra, &index);
  mill_spectra_close(spectra);
  return index;
}

static void refuse_index(const char *part)
{
  mill_file_index index;
  mill_spectra *spectra = one_open(&one, one.path);
  assert_fails(mill_spectra_index(spectra, &one.config.select, &index), MILL_ERR_INPUT, part);
  assert_int_equal(index.n_row, 0);
  mill_spectra_close(spectra);
}

MILL_TEST(exposures_of_a_coadd)
{
  static const int64_t target[4] = {10, 30, 10, 20};
  static const int32_t exp_id[4] = {201, 202, 203, 204}, night[4] = {5, 5, 6, 5};
  static const int32_t expected[5] = {202, -1, -1, 204, -1}; /* 10 has two, -5 and 40 none */
  (void)state;
  draw_sample(DESI, 1, "");
  recipe_table(&s.file, "EXP_FIBERMAP", 4);
  recipe_column_add(&s.file, "TARGETID", "K", "", target);
  recipe_column_add(&s.file, "EXPID", "J", "", exp_id);
  recipe_column_add(&s.file, "NIGHT", "J", "", night);
  recipe_save(&s.file, one.path);
  one.config.exposures = MILL_EXPOSURES_JOINT; /* means nothing here */
  mill_file_index index = index_of(one.path);
  struct stat st;
  assert_int_equal(stat(one.path, &st), 0);
  assert_int_equal(index.file_size, (int64_t)st.st_size);
  assert_int_equal(index.n_row, 5);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(index.exposure_row[i], i);
    assert_int_equal(index.exposure_id[i], expected[i]);
    assert_int_equal(index.row[i].exp_id, expected[i]);
    assert_int_equal(index.row[i].night, i == 0 || i == 3 ? 5 : -1);
    assert_true(isnan(index.row[i].z));
  }
  mill_file_index_clear(&index);
}

MILL_TEST(missing_columns_have_missing_values)
{
  write_sample(DESI, 1,
               "FIBERMAP-FIBER;FIBERMAP-TARGET_RA;FIBERMAP-REF_CAT;"
               "FIBERMAP-COADD_FIBERSTATUS");
  mill_file_index index = index_of(one.path);
  assert_int_equal(index.n_row, 5);
  assert_int_equal(index.row[2].fiber, -1);
  assert_int_equal(index.row[2].ref_id, -1);
  assert_true(isnan(index.row[2].target_ra));
  assert_string_equal(index.row[2].ref_cat, "");
  mill_file_index_clear(&index);
  /* without a status bad fibers would pass unseen */
  one.config.select.fiberstatus_allowed = 8;
  refuse_index("neither FIBERSTATUS nor COADD_FIBERSTATUS");
}

/* Rows of targets 30, 10, 30, 20, 10, of which 2 and 4 have a bit of the status that is refused. */
MILL_TEST(exposures_of_a_spectra_file)
{
  static const struct {
    int joint;
    uint64_t allowed;
    int n_row, n_exposure;
    int64_t target[5], exposure_row[5];
    int count[5];
  } file[] = {{0, UINT64_MAX, 5, 5, {30, 10, 30, 20, 10}, {0, 1, 2, 3, 4}, {1, 1, 1, 1, 1}},
              {1, UINT64_MAX, 3, 5, {30, 10, 20}, {0, 2, 1, 4, 3}, {2, 2, 1}},
              {1, 8, 3, 3, {30, 10, 20}, {0, 1, 3}, {1, 1, 1}},
              {0, 8, 3, 3, {30, 10, 20}, {0, 1, 3}, {1, 1, 1}}};
  (void)state;
  draw_sample(DESI, 1, "FIBERMAP TARGETID@2=30;FIBERMAP TARGETID@4=10;FIBERMAP FIBER>EXPID");
  recipe_edit(&s.file, "FIBERMAP COADD_FIBERSTATUS>FIBERSTATUS");
  for (int i = 0; i < 5; i++) {
    char edit[64];
    snprintf(edit, sizeof edit, "FIBERMAP EXPID@%d=%d", i, 101 + i);
    recipe_edit(&s.file, edit);
  }
  recipe_save(&s.file, one.path);
  for (size_t k = 0; k < sizeof file / sizeof *file; k++) {
    one.config.exposures = file[k].joint ? MILL_EXPOSURES_JOINT : MILL_EXPOSURES_SINGLE;
    one.config.select.fiberstatus_allowed = file[k].allowed;
    mill_file_index index = index_of(one.path);
    assert_int_equal(index.n_row, file[k].n_row);
    assert_int_equal(index.n_exposure, file[k].n_exposure);
    for (int i = 0, at = 0; i < file[k].n_row; at += file[k].count[i++]) {
      assert_int_equal(index.row[i].target_id, file[k].target[i]);
      assert_int_equal(index.row[i].first_exposure, at);
      assert_int_equal(index.row[i].n_exposure, file[k].count[i]);
      assert_int_equal(index.row[i].fits_row, file[k].exposure_row[at]);
      assert_int_equal(index.row[i].exp_id,
                       file[k].count[i] == 1 ? 101 + file[k].exposure_row[at] : -1);
    }
    for (int i = 0; i < file[k].n_exposure; i++) {
      assert_int_equal(index.exposure_row[i], file[k].exposure_row[i]);
      assert_int_equal(index.exposure_id[i], 101 + file[k].exposure_row[i]);
    }
    mill_file_index_clear(&index);
  }
}

/* ---- redrock ------------------------------------------------------------- */

static void save_redrock(const char *name, const char *hdu)
{
  static const int64_t id[5] = {40, 10, 30, 77, 10};
  static const double z[5] = {0.0004, 0.5, -0.0051, 0.0, 0.0}; /* 10 again: the first counts */
  static recipe r;
  recipe_add(&r, "", 0);
  recipe_table(&r, hdu, 5);
  recipe_column_add(&r, "TARGETID", "K", "", id);
  recipe_column_add(&r, "Z", "D", "", z);
  recipe_column_add(&r, "SPECTYPE", "6A", "", "GALAXYSTAR  STAR  STAR  QSO   ");
  recipe_column_add(&r, "SUBTYPE", "1A", "", " MABC");
  recipe_save(&r, in_folder(name));
  recipe_clear(&r);
}

MILL_TEST(selects_by_redrock)
{
  mill_selection *select = &one.config.select;
  (void)state;
  write_sample(DESI, 1, "");
  select->redrock = 1;
  select->redrock_max_vel_km_s = 1500.0;
  refuse_index("no redrock file next to");

  save_redrock("redrock-x.fits", "REDSHIFTS");
  mill_file_index index = index_of(one.path);
  static const struct {
    int64_t target_id;
    double z;
    const char *spectype, *subtype;
  } kept[] = {{30, -0.0051, "STAR", "A"}, {10, 0.5, "STAR", "M"}, {40, 0.0004, "GALAXY", ""}};
  assert_int_equal(index.n_row, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(index.row[i].target_id, kept[i].target_id);
    assert_close(index.row[i].z, kept[i].z, 0.0);
    assert_string_equal(index.row[i].spectype, kept[i].spectype);
    assert_string_equal(index.row[i].subtype, kept[i].subtype);
  }
  mill_file_index_clear(&index);
  select->redrock_max_vel_km_s = 100.0; /* the galaxy has 120 km/s */
  index = index_of(one.path);
  assert_int_equal(index.n_row, 2);
  mill_file_index_clear(&index);

  /* not asked for, it still fills the columns */
  select->redrock = 0;
  index = index_of(one.path);
  assert_int_equal(index.n_row, 5);
  assert_string_equal(index.row[0].spectype, "STAR");
  assert_string_equal(index.row[3].spectype, "");
  assert_true(isnan(index.row[3].z));
  mill_file_index_clear(&index);

  /* a bad one costs nothing then, and the file's rows when it is needed */
  save_redrock("redrock-x.fits", "WRONG");
  index = index_of(one.path);
  assert_int_equal(index.n_row, 5);
  assert_true(isnan(index.row[0].z));
  mill_file_index_clear(&index);
  select->redrock = 1;
  refuse_index("no HDU REDSHIFTS or ZBEST");

  /* a named one */
  select->redrock_max_vel_km_s = 1500.0;
  save_redrock("other.fits", "ZBEST");
  snprintf(select->redrock_file, sizeof select->redrock_file, "%.1000s/other.fits", one.folder);
  index = index_of(one.path);
  assert_int_equal(index.n_row, 3);
  mill_file_index_clear(&index);
  select->redrock = 0;
  strcat(select->redrock_file, "x");
  refuse_index("other.fitsx");
}

/* ---- against astropy ----------------------------------------------------- */

/* What astropy 5.2 reads, as CRC-32 of little-endian values: TARGETID and TARGET_RA of the rows that
 * are kept; of all rows of arms b, r, z wavelengths in float64, then in float32 flux, ivar and
 * resolution, and masks in int32. */
static const struct {
  const char *name;
  int n_row, n_kept;
  uint32_t target, ra;
  struct {
    int n_pix, n_diag;
    uint32_t wave, flux, ivar, resolution, mask;
  } arm[3];
} real[] = {{"real/desi/coadd-4-80613-thru20210324",
             1,
             1,
             0x57849037,
             0x0d678999,
             {{2751, 11, 0x509406de, 0x36264403, 0x18f64b4b, 0xed9681e3, 0x6dfd3a2a},
              {2326, 11, 0x4450153c, 0xe7eb44aa, 0x88cfd8d5, 0x97aa981a, 0x6be5c5ad},
              {2881, 11, 0xd560c252, 0x1a74a84e, 0x5dc05592, 0xf7fc1cb8, 0x37a72385}}},
            {"real/desi/coadd-special-dark-27247",
             1,
             1,
             0x765f0b35,
             0x28deff5f,
             {{2751, 11, 0x509406de, 0xfd38b734, 0x02714d66, 0x30d39eac, 0x6dfd3a2a},
              {2326, 11, 0x4450153c, 0xa82c9e99, 0xcdf9e41a, 0x7fc72850, 0x6be5c5ad},
              {2881, 11, 0xd560c252, 0x87ddcc16, 0xf5212cfb, 0xf0cf7f30, 0x37a72385}}},
            {"real/desi/coadd-sv3-dark-26065",
             5,
             2,
             0x4c79e9b1,
             0xe21eedaf,
             {{2751, 11, 0x509406de, 0xcd545e1b, 0x46e941bd, 0xa5fc7103, 0x3d7f0fa6},
              {2326, 11, 0x4450153c, 0x2f1c4b52, 0x28297450, 0x9bda65df, 0xb8bb9ac0},
              {2881, 11, 0xd560c252, 0x009ffa1b, 0xeaa60178, 0xc5441337, 0x7ac348b3}}},
            {"real/desi/spectra-sv3-dark-26065",
             5,
             1,
             0xc86cd65f,
             0x5f11980e,
             {{2751, 11, 0x509406de, 0x116cde99, 0x9165e49c, 0x44f1b6e6, 0xb5513f84},
              {2326, 11, 0x4450153c, 0xe67982a0, 0x5881874b, 0x88d66fc4, 0x7a9cc387},
              {2881, 11, 0xd560c252, 0x9b4380e8, 0x4c16642d, 0xd8113aa0, 0xb0c0dbb7}}},
            {"sim/coadd-dev",
             200,
             200,
             0xa9572d8d,
             0xbabef2b4,
             {{2751, 11, 0x27f948e1, 0x07feb850, 0x09c5874e, 0xae4d0b59, 0x7a5f7843},
              {2326, 11, 0x6386f9e0, 0xa8e7d48b, 0x06b053d3, 0x13a11089, 0xec80cb6c},
              {2881, 11, 0xaa54baa3, 0x4c4410e4, 0x162d146c, 0x2775875e, 0xd58bb7d0}}},
            {"sim/coadd-dev-patho",
             17,
             15,
             0x8881774e,
             0xc60e6537,
             {{2751, 11, 0x27f948e1, 0x00719e1a, 0x993d5058, 0xf45be2d1, 0x953fb251},
              {2326, 11, 0x6386f9e0, 0xad692341, 0x2f007c03, 0x98c6c6a1, 0xe4abfa5e},
              {2881, 11, 0xaa54baa3, 0x2b8505cc, 0xf8c77f7c, 0xd1806cca, 0x511c8552}}}};

MILL_TEST(files_equal_astropy)
{
  for (size_t k = 0; k < sizeof real / sizeof *real; k++) {
    mill_library lib = {.n_arm = 3, .arm = {{.name = "b"}, {.name = "r"}, {.name = "z"}}};
    char name[128];
    desi_rows file;
    mill_file_index index;
    uLong target = 0, ra = 0;
    int64_t row[200];
    snprintf(name, sizeof name, "%s.fits.gz", real[k].name);
    mill_test_data(path, name);
    assert_ok(desi_rows_open(&file, path, &lib));
    file.config.select.fiberstatus_allowed = 8 | 1 << 20;
    assert_ok(mill_spectra_index(file.spectra, &file.config.select, &index));
    assert_int_equal(index.n_fits_row, real[k].n_row);
    assert_int_equal(index.n_row, real[k].n_kept);
    for (int64_t i = 0; i < index.n_row; i++) {
      target = crc32(target, (const Bytef *)&index.row[i].target_id, 8);
      ra = crc32(ra, (const Bytef *)&index.row[i].target_ra, 8);
    }
    assert_int_equal(target, real[k].target);
    assert_int_equal(ra, real[k].ra);
    mill_file_index_clear(&index);
    for (int i = 0; i < real[k].n_row; i++)
      row[i] = i;
    assert_ok(desi_rows_read(&file, row, real[k].n_row));
    for (int a = 0; a < 3; a++) {
      uLong flux = 0, ivar = 0, resolution = 0, mask = 0;
      for (int i = 0; i < real[k].n_row; i++) {
        const mill_raw_segment *got = desi_rows_of(&file, i, a);
        assert_non_null(got);
        assert_int_equal(got->n_pix, real[k].arm[a].n_pix);
        assert_int_equal(got->n_diag, real[k].arm[a].n_diag);
        assert_int_equal(one_crc(got->wave_aa, got->n_pix, 1), real[k].arm[a].wave);
        const uInt n = 4 * (uInt)got->n_pix;
        flux = crc32(flux, (const Bytef *)got->flux, n);
        ivar = crc32(ivar, (const Bytef *)got->ivar, n);
        resolution = crc32(resolution, (const Bytef *)got->resolution, n * (uInt)got->n_diag);
        mask = crc32(mask, (const Bytef *)got->mask, n);
      }
      assert_int_equal(flux, real[k].arm[a].flux);
      assert_int_equal(ivar, real[k].arm[a].ivar);
      assert_int_equal(resolution, real[k].arm[a].resolution);
      assert_int_equal(mask, real[k].arm[a].mask);
    }
    desi_rows_close(&file);
  }
}

MILL_TEST(real_redrock_is_found)
{
  mill_test_data(data, "real/desi/coadd-4-80613-thru20210324.fits.gz");
  draw_sample(DESI, 1, "");
  one.config.select.fiberstatus_allowed = 8 | 1 << 20;
  for (int by_redrock = 0; by_redrock < 2; by_redrock++) {
    one.config.select.redrock = by_redrock;
    one.config.select.redrock_max_vel_km_s = 1500.0;
    mill_file_index index = index_of(data);
    assert_int_equal(index.n_row, !by_redrock); /* a galaxy */
    if (!by_redrock) {
      assert_close(index.row[0].z, 0.36874355163716493, 0.0);
      assert_string_equal(index.row[0].spectype, "GALAXY");
    }
    mill_file_index_clear(&index);
  }
}

MILL_EACH_TEST_MAIN(begin_desi, end)
