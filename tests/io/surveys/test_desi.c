#include "tests/mill_test.h"

#include <string.h>
#include <sys/stat.h>

#include <fitsio.h>

#include "io/surveys/desi.h"
#include "kernels/base/error.h"
#include "tests/io/fits/folder_fixture.h"
#include "tests/io/surveys/desi_maker.h"

static mill_library lib; /* only the arms' names matter here */
static mill_selection everything;
static int joint;

static int begin(void **state)
{
  make_folder(state);
  snprintf(path, sizeof path, "%s/coadd-x.fits", folder);
  memset(&lib, 0, sizeof lib);
  lib.n_arm = 3;
  strcpy(lib.arm[0].name, "b");
  strcpy(lib.arm[1].name, "r");
  strcpy(lib.arm[2].name, "z");
  memset(&everything, 0, sizeof everything);
  joint = 0;
  everything.fiberstatus_allowed = UINT64_MAX;
  everything.n_objtype = 3;
  strcpy(everything.objtype[0], "TGT");
  strcpy(everything.objtype[1], "SKY");
  return 0;
}

static void save(const desi_options *o)
{
  fits_maker m = desi_make(o);
  maker_save(&m, path);
  maker_clear(&m);
}

static mill_desi_file *open_good(const char *name)
{
  mill_desi_file *file;
  if (mill_desi_open(name, &lib, NULL, &file) != MILL_OK)
    fail_msg("%s", mill_error_message());
  return file;
}

static void expect_error(const desi_options *o, const char *part)
{
  mill_desi_file *file;
  save(o);
  mill_error_clear();
  const int err = mill_desi_open(path, &lib, NULL, &file);
  if (err != MILL_ERR_INPUT || file || !strstr(mill_error_message(), part))
    fail_msg("expected '%s', got %d and '%s'", part, err, mill_error_message());
  assert_non_null(strstr(mill_error_message(), path));
}

static void test_refuses_bad_structure(void **state)
{
  (void)state;
  expect_error(&(desi_options){.leave = "FIBERMAP"}, "no HDU FIBERMAP");
  expect_error(&(desi_options){.leave = "B_WAVELENGTH"}, "no HDU B_WAVELENGTH");
  expect_error(&(desi_options){.leave = "B_FLUX"}, "no HDU B_FLUX");
  expect_error(&(desi_options){.leave = "R_IVAR"}, "no HDU R_IVAR");
  expect_error(&(desi_options){.leave = "R_RESOLUTION"}, "no HDU R_RESOLUTION though");
  expect_error(&(desi_options){.leave = "B_MASK"}, "no HDU B_MASK though");
  expect_error(&(desi_options){.table = "R_FLUX"}, "(R_FLUX) is a table");
  expect_error(&(desi_options){.wide_flux = 1},
               "(B_FLUX) is an image [5][5], expected an image [5][4]");
  expect_error(&(desi_options){.short_flux = 1},
               "(B_FLUX) is an image [4][4], expected an image [5][4]");
  expect_error(&(desi_options){.diag = 4}, "(B_RESOLUTION) has 4 diagonals");
  expect_error(&(desi_options){.diag = MILL_MAX_DIAG + 2}, "diagonals");
  expect_error(&(desi_options){.bad_wave = 1}, "wavelength 2 is 4001");
  expect_error(&(desi_options){.bad_wave = 2}, "wavelength 3 is nan");
  expect_error(&(desi_options){.mask_bits = 1}, "(B_MASK) must hold integers");
  strcpy(lib.arm[0].name, "red");
  lib.n_arm = 1;
  expect_error(&(desi_options){0}, "none of the library's arms (RED_FLUX)");
}

/* A plain file cut where an HDU ends, everywhere. */
static void test_notices_cuts_between_hdus(void **state)
{
  (void)state;
  const desi_options o = {0};
  fits_maker m = desi_make(&o);
  for (int i = 1; i < m.n_hdu; i++) {
    maker_save_bytes(path, m.bytes, m.hdu_start[i]);
    mill_desi_file *file;
    const int err = mill_desi_open(path, &lib, NULL, &file);
    /* 5 to 7: all that arm b must have and nothing of r, as a file of one arm without
     * masks or matrices may be: nothing tells such a cut */
    if (i >= 5 && i <= 7 ? err != MILL_OK : err != MILL_ERR_INPUT)
      fail_msg("cut before HDU %d: code %d, '%s'", i + 1, err, mill_error_message());
    mill_desi_close(file);
  }
  maker_clear(&m);
}

static void test_reads_rows_in_any_order(void **state)
{
  (void)state;
  const int64_t row[4] = {3, 1, 2, 4};
  float flux[16], ivar[16], resolution[4 * MAKER_N_DIAG * MAKER_N_PIX];
  int32_t mask[16];
  save(&(desi_options){0});
  mill_desi_file *file = open_good(path);
  const mill_desi_arm *info = mill_desi_arm_info(file, 1);
  assert_int_equal(info->n_pix, MAKER_N_PIX);
  assert_int_equal(info->n_diag, MAKER_N_DIAG);
  assert_int_equal(info->has_mask, 1);
  assert_close(info->wave_aa[3], 5003.0, 0.0);
  assert_int_equal(mill_desi_arm_info(file, 2)->n_pix, 0);
  mill_desi_block block = {flux, ivar, mask, resolution};
  assert_int_equal(mill_desi_read(file, 1, row, 4, &block), MILL_OK);
  for (int i = 0; i < 16; i++) {
    const int i_row = (int)row[i / 4];
    assert_close(flux[i], desi_value(1, i_row, i % 4), 0.0);
    assert_close(ivar[i], desi_value(1, i_row, i % 4), 0.0);
    assert_int_equal(mask[i], (i_row * 4 + i % 4) % 3);
    for (int j = 0; j < MAKER_N_DIAG; j++)
      assert_close(resolution[(i / 4 * MAKER_N_DIAG + j) * 4 + i % 4],
                   10000 + (i_row * MAKER_N_DIAG + j) * 4 + i % 4, 0.0);
  }
  /* NULL skips; rows and arms that are not there are refused */
  block = (mill_desi_block){.flux = flux};
  assert_int_equal(mill_desi_read(file, 0, row, 1, &block), MILL_OK);
  assert_close(flux[0], 300.0, 0.0);
  assert_int_equal(mill_desi_read(file, 0, row, 0, &block), MILL_OK);
  assert_int_equal(mill_desi_read(file, 0, (const int64_t[]){5}, 1, &block), MILL_ERR_RANGE);
  assert_int_equal(mill_desi_read(file, 0, (const int64_t[]){-1}, 1, &block), MILL_ERR_RANGE);
  assert_int_equal(mill_desi_read(file, 2, row, 1, &block), MILL_ERR_RANGE);
  mill_desi_close(file);
}

static void test_keeps_nan_and_infinity(void **state)
{
  (void)state;
  float flux[4], ivar[4];
  const int64_t row = 0;
  mill_desi_block block = {.flux = flux, .ivar = ivar};
  for (int i = 0; i < 2; i++) {
    save(&(desi_options){.double_flux = i});
    mill_desi_file *file = open_good(path);
    assert_int_equal(mill_desi_read(file, 0, &row, 1, &block), MILL_OK);
    assert_true(isnan(flux[0]));
    assert_true(flux[1] == INFINITY);
    assert_true(flux[2] == -INFINITY); /* as a double, -1e300 */
    assert_true(flux[3] == (i ? 3.0f : 1e-42f));
    assert_true(isnan(ivar[0]));
    assert_true(ivar[3] == 1e-42f);
    mill_desi_close(file);
  }
}

static void test_honours_scaling(void **state)
{
  (void)state;
  float flux[4 * MAKER_N_SPEC];
  const int64_t row[MAKER_N_SPEC] = {0, 1, 2, 3, 4};
  mill_desi_block block = {.flux = flux};
  save(&(desi_options){.scaled_flux = 1});
  mill_desi_file *file = open_good(path);
  assert_int_equal(mill_desi_read(file, 0, row, MAKER_N_SPEC, &block), MILL_OK);
  assert_true(isnan(flux[0])); /* BLANK */
  for (int i = 1; i < 4 * MAKER_N_SPEC; i++)
    assert_close(flux[i], desi_value(0, i / 4, i % 4), 1e-6);
  mill_desi_close(file);
  /* floats too, which are read as stored when they have none */
  save(&(desi_options){.scaled_flux = 2});
  file = open_good(path);
  assert_int_equal(mill_desi_read(file, 0, row, MAKER_N_SPEC, &block), MILL_OK);
  for (int i = 4; i < 4 * MAKER_N_SPEC; i++)
    assert_close(flux[i], 0.5 * desi_value(0, i / 4, i % 4) + 5, 1e-6);
  mill_desi_close(file);
}

/* A file that is cut after it was opened: the rows that are gone are refused. */
static void test_notices_a_cut_while_reading(void **state)
{
  (void)state;
  float flux[4 * MAKER_N_SPEC];
  const int64_t row[MAKER_N_SPEC] = {0, 1, 2, 3, 4};
  mill_desi_block block = {.flux = flux};
  save(&(desi_options){0});
  mill_desi_file *file = open_good(path);
  assert_int_equal(mill_desi_read(file, 1, row, MAKER_N_SPEC, &block), MILL_OK);
  assert_close(flux[4 * MAKER_N_SPEC - 1], desi_value(1, MAKER_N_SPEC - 1, 3), 0);
  /* in the middle of the second row of R_FLUX */
  mill_fits_guard *guard;
  assert_int_equal(mill_fits_guard_open(path, NULL, &guard), MILL_OK);
  int64_t start = -1;
  for (int i = 0; i < guard->n_hdu; i++)
    if (strcmp(guard->hdu[i].name, "R_FLUX") == 0)
      start = guard->hdu[i].data_start;
  mill_fits_guard_close(guard);
  assert_true(start > 0);
  assert_int_equal(truncate(path, (off_t)(start + 4 * MAKER_N_PIX + 6)), 0);
  mill_error_clear();
  assert_int_equal(mill_desi_read(file, 1, row, MAKER_N_SPEC, &block), MILL_ERR_INPUT);
  assert_non_null(strstr(mill_error_message(), path));
  assert_non_null(strstr(mill_error_message(), "R_FLUX"));
  assert_non_null(strstr(mill_error_message(), "shorter"));
  mill_desi_close(file);
}

static void test_reads_masks_of_any_integer(void **state)
{
  (void)state;
  const int64_t row[2] = {0, 1};
  int32_t mask[8];
  mill_desi_block block = {.mask = mask};
  static const int bits[] = {32, -32, 64, -64};
  static const int32_t one[] = {1, 1, INT32_MIN, INT32_MIN};
  static const int32_t two[] = {2, INT32_MIN + 1, 2, -1};
  for (int i = 0; i < 4; i++) {
    save(&(desi_options){.mask_bits = bits[i]});
    mill_desi_file *file = open_good(path);
    if (mill_desi_read(file, 0, row, 2, &block) != MILL_OK)
      fail_msg("%s", mill_error_message());
    for (int j = 0; j < 8; j++)
      assert_int_equal(mask[j], j % 3 == 0 ? 0 : j % 3 == 1 ? one[i] : two[i]);
    mill_desi_close(file);
  }
}

/* B_MASK in Rice tiles, and B_FLUX in lossless gzip tiles with NaN. */
static void test_reads_compressed_images(void **state)
{
  (void)state;
  const int64_t row[MAKER_N_SPEC] = {0, 1, 2, 3, 4};
  int mask[20], mask_read[20];
  float flux[20], flux_read[20];
  for (int i = 0; i < 20; i++) {
    mask[i] = i == 7 ? INT32_MIN : 5 * i % 7;
    flux[i] = i == 3 ? NAN : 0.1f * (float)i;
  }
  for (int i = 0; i < 2; i++) {
    const char *name = i ? "B_FLUX" : "B_MASK";
    save(&(desi_options){.leave = name});
    fitsfile *fptr;
    int status = 0;
    long axis[2] = {MAKER_N_PIX, MAKER_N_SPEC}, first[2] = {1, 1}, tile[2] = {3, 2};
    fits_open_diskfile(&fptr, path, READWRITE, &status);
    fits_set_compression_type(fptr, i ? GZIP_2 : RICE_1, &status);
    fits_set_quantize_level(fptr, 0.0f, &status);
    fits_set_tile_dim(fptr, 2, tile, &status); /* tiles that do not fit the image */
    fits_create_img(fptr, i ? FLOAT_IMG : LONG_IMG, 2, axis, &status);
    fits_update_key_str(fptr, "EXTNAME", name, NULL, &status);
    fits_write_pix(fptr, i ? TFLOAT : TINT, first, 20, i ? (void *)flux : (void *)mask, &status);
    fits_close_file(fptr, &status);
    assert_int_equal(status, 0);
    mill_desi_file *file = open_good(path);
    mill_desi_block block = {.flux = flux_read, .mask = mask_read};
    if (mill_desi_read(file, 0, row, MAKER_N_SPEC, &block) != MILL_OK)
      fail_msg("%s", mill_error_message());
    mill_desi_close(file);
    for (int j = 0; j < 20; j++) {
      if (i == 0)
        assert_int_equal(mask_read[j], mask[j]);
      else if (j == 3)
        assert_true(isnan(flux_read[j]));
      else
        assert_close(flux_read[j], flux[j], 0.0);
    }
    /* decoders that do not look at the end of their input are not used */
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    char card[81] = "";
    do
      assert_int_equal(fread(card, 1, 80, stream), 80);
    while (strncmp(card, "ZCMPTYPE", 8) != 0);
    assert_int_equal(fseek(stream, -80, SEEK_CUR), 0);
    fprintf(stream, "%-80s", "ZCMPTYPE= 'PLIO_1'");
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(mill_desi_open(path, &lib, NULL, &file), MILL_ERR_INPUT);
    assert_non_null(strstr(mill_error_message(), "'PLIO_1'"));
  }
}

/* ---- selection ---- */

static mill_file_index index_of(const char *name, const mill_selection *select)
{
  mill_file_index index;
  mill_desi_file *file = open_good(name);
  if (mill_desi_index(file, select, joint, &index) != MILL_OK)
    fail_msg("%s", mill_error_message());
  mill_desi_close(file);
  return index;
}

static void test_index_has_a_row_per_row_of_a_coadd(void **state)
{
  (void)state;
  save(&(desi_options){.exp_fibermap = 1});
  joint = 1; /* means nothing here */
  mill_file_index index = index_of(path, &everything);
  assert_int_equal(index.n_row, 5);
  assert_int_equal(index.n_fits_row, 5);
  static const int32_t exp_id[5] = {202, -1, -1, 204, -1}; /* 10 has two, -5 and 40 none */
  for (int i = 0; i < 5; i++) {
    const mill_catalog_row *row = &index.row[i];
    assert_int_equal(row->target_id, desi_unique[i]);
    assert_int_equal(row->fits_row, i);
    assert_int_equal(row->n_exposure, 1);
    assert_int_equal(row->first_exposure, i);
    assert_int_equal(index.exposure_row[i], i);
    assert_int_equal(index.exposure_id[i], exp_id[i]);
    assert_int_equal(row->exp_id, exp_id[i]);
    assert_int_equal(row->fiber, 7 + i);
    assert_close(row->target_ra, 1.5 + i, 0.0);
    assert_close(row->target_dec, 1.5 + i, 0.0);
    assert_int_equal(row->ref_id, i + 1);
    assert_string_equal(row->ref_cat, i == 3 ? "" : "G2");
    assert_true(isnan(row->z));
    assert_string_equal(row->spectype, "");
    assert_string_equal(row->object, "");
  }
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(index.file_size, (int64_t)st.st_size);
  mill_file_index_clear(&index);
}

static void test_missing_columns_have_missing_values(void **state)
{
  (void)state;
  save(&(desi_options){.no_optional = 1, .no_status = 1});
  mill_file_index index = index_of(path, &everything);
  assert_int_equal(index.n_row, 5);
  assert_int_equal(index.row[2].fiber, -1);
  assert_int_equal(index.row[2].exp_id, -1);
  assert_int_equal(index.row[2].ref_id, -1);
  assert_true(isnan(index.row[2].target_ra));
  assert_true(isnan(index.row[2].target_dec));
  assert_string_equal(index.row[2].ref_cat, "");
  mill_file_index_clear(&index);
  /* without a status bad fibers would pass unseen */
  everything.fiberstatus_allowed = 8;
  mill_desi_file *file = open_good(path);
  assert_int_equal(mill_desi_index(file, &everything, joint, &index), MILL_ERR_INPUT);
  assert_non_null(strstr(mill_error_message(), "neither FIBERSTATUS nor COADD_FIBERSTATUS"));
  assert_int_equal(index.n_row, 0);
  mill_desi_close(file);
}

static void test_selects_by_target_and_status(void **state)
{
  (void)state;
  save(&(desi_options){0});
  int64_t wanted[] = {-5, 20, 40, 99};
  everything.target_id = wanted;
  everything.n_target_id = 4;
  mill_file_index index = index_of(path, &everything);
  assert_int_equal(index.n_row, 3);
  assert_int_equal(index.row[0].target_id, -5);
  assert_int_equal(index.row[2].target_id, 40);
  assert_int_equal(index.row[2].fits_row, 4);
  mill_file_index_clear(&index);
  everything.fiberstatus_allowed = 8; /* row 2 has bit 20, row 4 both */
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 1);
  assert_int_equal(index.row[0].target_id, 20);
  mill_file_index_clear(&index);
  everything.n_target_id = 0;
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 3); /* 30, 10, 20 */
  mill_file_index_clear(&index);
  strcpy(everything.objtype[0], "XXX");
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 0);
  assert_int_equal(index.n_fits_row, 5);
  mill_file_index_clear(&index);
}

static void test_joins_exposures_of_spectra_files(void **state)
{
  (void)state;
  save(&(desi_options){.spectra = 1, .exp_fibermap = 1});
  mill_file_index index = index_of(path, &everything);
  assert_int_equal(index.n_row, 5);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(index.row[i].exp_id, 101 + i); /* of FIBERMAP, not EXP_FIBERMAP */
    assert_int_equal(index.row[i].target_id, desi_target[i]);
  }
  mill_file_index_clear(&index);

  joint = 1;
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 3);
  assert_int_equal(index.n_exposure, 5);
  static const int64_t target[3] = {30, 10, 20}, rows[5] = {0, 2, 1, 4, 3};
  static const int n_exposure[3] = {2, 2, 1}, first[3] = {0, 2, 4};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(index.row[i].target_id, target[i]);
    assert_int_equal(index.row[i].n_exposure, n_exposure[i]);
    assert_int_equal(index.row[i].first_exposure, first[i]);
    assert_int_equal(index.row[i].fits_row, rows[first[i]]);
    assert_int_equal(index.row[i].exp_id, i == 2 ? 104 : -1);
  }
  for (int i = 0; i < 5; i++) {
    assert_int_equal(index.exposure_row[i], rows[i]);
    assert_int_equal(index.exposure_id[i], 101 + rows[i]);
  }
  mill_file_index_clear(&index);

  everything.fiberstatus_allowed = 8; /* rows 2 and 4 go, so 30 and 10 have one each */
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 3);
  assert_int_equal(index.n_exposure, 3);
  assert_int_equal(index.row[0].exp_id, 101);
  mill_file_index_clear(&index);
}

static void save_redrock(const char *name, const char *hdu)
{
  static const int64_t id[5] = {40, 10, 30, 77, 10};
  static const double z[5] = {0.0004, 0.5, -0.0051, 0.0, 0.0}; /* 10 again: the first counts */
  char where[1100];
  fits_maker m = {0};
  maker_primary(&m);
  maker_table(&m, hdu, 5, 4,
              (const maker_column[]){{"TARGETID", "K", id},
                                     {"Z", "D", z},
                                     {"SPECTYPE", "6A", "GALAXYSTAR  STAR  STAR  QSO   "},
                                     {"SUBTYPE", "20A",
                                      "                    M                   "
                                      "A                   B                   "
                                      "C                   "}});
  snprintf(where, sizeof where, "%s/%s", folder, name);
  maker_save(&m, where);
  maker_clear(&m);
}

static void test_selects_by_redrock(void **state)
{
  (void)state;
  save(&(desi_options){0});
  everything.redrock = 1;
  everything.redrock_max_vel_km_s = 1500.0;
  mill_file_index index;
  mill_desi_file *file = open_good(path);
  assert_int_equal(mill_desi_index(file, &everything, joint, &index), MILL_ERR_INPUT);
  assert_non_null(strstr(mill_error_message(), "no redrock file lies beside"));
  mill_desi_close(file);

  save_redrock("redrock-x.fits", "REDSHIFTS");
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 3);
  assert_int_equal(index.row[0].target_id, 30); /* a star */
  assert_close(index.row[0].z, -0.0051, 0.0);
  assert_string_equal(index.row[0].spectype, "STAR");
  assert_string_equal(index.row[0].subtype, "A");
  assert_int_equal(index.row[1].target_id, 10);
  assert_close(index.row[1].z, 0.5, 0.0);
  assert_string_equal(index.row[1].subtype, "M");
  assert_int_equal(index.row[2].target_id, 40); /* a galaxy at 120 km/s */
  assert_string_equal(index.row[2].spectype, "GALAXY");
  mill_file_index_clear(&index);
  everything.redrock_max_vel_km_s = 100.0;
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 2);
  mill_file_index_clear(&index);

  /* not asked for, it still fills the columns */
  everything.redrock = 0;
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 5);
  assert_string_equal(index.row[0].spectype, "STAR");
  assert_string_equal(index.row[3].spectype, "");
  assert_true(isnan(index.row[3].z));
  mill_file_index_clear(&index);

  /* a bad one costs nothing then, and the file's rows when it is needed */
  save_redrock("redrock-x.fits", "WRONG");
  index = index_of(path, &everything);
  assert_int_equal(index.n_row, 5);
  assert_true(isnan(index.row[0].z));
  mill_file_index_clear(&index);
  everything.redrock = 1;
  file = open_good(path);
  assert_int_equal(mill_desi_index(file, &everything, joint, &index), MILL_ERR_INPUT);
  assert_non_null(strstr(mill_error_message(), "no HDU REDSHIFTS or ZBEST"));

  /* a named one */
  everything.redrock_max_vel_km_s = 1500.0;
  save_redrock("other.fits", "ZBEST");
  snprintf(everything.redrock_file, sizeof everything.redrock_file, "%.1000s/other.fits", folder);
  assert_int_equal(mill_desi_index(file, &everything, joint, &index), MILL_OK);
  assert_int_equal(index.n_row, 3);
  mill_file_index_clear(&index);
  everything.redrock = 0;
  strcat(everything.redrock_file, "x");
  assert_int_equal(mill_desi_index(file, &everything, joint, &index), MILL_ERR_INPUT);
  assert_non_null(strstr(mill_error_message(), "other.fitsx"));
  mill_desi_close(file);
}

/* ---- against astropy ---- */

/* Write every image of each file as one raw little-endian stream, and its columns.  Status 77:
 * there is no astropy. */
static const char *const reference_script =
    "import sys\n"
    "try:\n"
    "    import numpy as np\n"
    "    from astropy.io import fits\n"
    "except ImportError:\n"
    "    sys.exit(77)\n"
    "def write(f, out):\n"
    "    m = f['FIBERMAP'].data\n"
    "    out.write(np.array([len(m)], '<i8').tobytes())\n"
    "    out.write(np.asarray(m['TARGETID']).astype('<i8').tobytes())\n"
    "    out.write(np.asarray(m['TARGET_RA']).astype('<f8').tobytes())\n"
    "    s = 'FIBERSTATUS' if 'FIBERSTATUS' in m.names else 'COADD_FIBERSTATUS'\n"
    "    o = np.char.strip(np.asarray(m['OBJTYPE']).astype(str))\n"
    "    ok = (np.asarray(m[s]) & ~(8 | 1 << 20)) == 0\n"
    "    out.write((ok & (o != 'SKY') & (o != 'BAD')).astype('<i8').tobytes())\n"
    "    for a in 'BRZ':\n"
    "        out.write(np.array(f[a + '_RESOLUTION'].data.shape[1:], '<i8').tobytes())\n"
    "        out.write(f[a + '_WAVELENGTH'].data.astype('<f8').tobytes())\n"
    "        for x in ('FLUX', 'IVAR', 'RESOLUTION'):\n"
    "            out.write(f[a + '_' + x].data.astype('<f4').tobytes())\n"
    "        out.write(f[a + '_MASK'].data.astype('<i8').astype('<i4').tobytes())\n"
    "for i, name in enumerate(sys.argv[2:]):\n"
    "    with fits.open(name) as f, open('%s%d' % (sys.argv[1], i), 'wb') as out:\n"
    "        write(f, out)\n";

static void take(FILE *stream, void *out, size_t n, size_t size)
{
  assert_int_equal(fread(out, size, n, stream), n);
}

static void compare_bytes(FILE *stream, const void *ours, size_t n, const char *what)
{
  void *theirs = malloc(n);
  assert_non_null(theirs);
  take(stream, theirs, n, 1);
  if (memcmp(ours, theirs, n) != 0)
    fail_msg("%s differs from astropy", what);
  free(theirs);
}

/* Everything in blocks of rows from the last backwards, bit for bit. */
static void compare_with_stream(const char *name, const char *reference)
{
  FILE *stream = fopen(reference, "rb");
  assert_non_null(stream);
  mill_desi_file *file = open_good(name);
  int64_t n;
  take(stream, &n, 1, 8);
  assert_true(n > 0 && n <= 200);
  int64_t target[200], kept[200];
  double ra[200];
  take(stream, target, (size_t)n, 8);
  take(stream, ra, (size_t)n, 8);
  take(stream, kept, (size_t)n, 8);
  mill_selection usual = {.fiberstatus_allowed = 8 | 1 << 20};
  mill_file_index index;
  assert_int_equal(mill_desi_index(file, &usual, joint, &index), MILL_OK);
  assert_int_equal(index.n_fits_row, n);
  int64_t i_row = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!kept[i])
      continue;
    assert_true(i_row < index.n_row);
    assert_int_equal(index.row[i_row].fits_row, i);
    assert_int_equal(index.row[i_row].target_id, target[i]);
    assert_true(target[i] > 0); /* stuck fibers and skies are gone */
    assert_close(index.row[i_row].target_ra, ra[i], 0.0);
    i_row++;
  }
  assert_int_equal(index.n_row, i_row);
  mill_file_index_clear(&index);
  for (int arm = 0; arm < 3; arm++) {
    const mill_desi_arm *info = mill_desi_arm_info(file, arm);
    int64_t shape[2];
    take(stream, shape, 2, 8);
    assert_int_equal(info->n_diag, shape[0]);
    assert_int_equal(info->n_pix, shape[1]);
    assert_int_equal(info->has_mask, 1);
    compare_bytes(stream, info->wave_aa, (size_t)info->n_pix * 8, "WAVELENGTH");
    const size_t row_pix = (size_t)info->n_pix, cube_pix = row_pix * (size_t)info->n_diag;
    mill_desi_block all = {.flux = malloc((size_t)n * row_pix * 4),
                           .ivar = malloc((size_t)n * row_pix * 4),
                           .mask = malloc((size_t)n * row_pix * 4),
                           .resolution = malloc((size_t)n * cube_pix * 4)};
    for (int64_t end = n; end > 0;) {
      const int64_t start = end > 3 ? end - 3 : 0;
      const int64_t row[3] = {start, start + 1, start + 2};
      mill_desi_block part = {
          all.flux + (size_t)start * row_pix, all.ivar + (size_t)start * row_pix,
          all.mask + (size_t)start * row_pix, all.resolution + (size_t)start * cube_pix};
      if (mill_desi_read(file, arm, row, (int)(end - start), &part) != MILL_OK)
        fail_msg("%s", mill_error_message());
      end = start;
    }
    compare_bytes(stream, all.flux, (size_t)n * row_pix * 4, "FLUX");
    compare_bytes(stream, all.ivar, (size_t)n * row_pix * 4, "IVAR");
    compare_bytes(stream, all.resolution, (size_t)n * cube_pix * 4, "RESOLUTION");
    compare_bytes(stream, all.mask, (size_t)n * row_pix * 4, "MASK");
    free(all.flux);
    free(all.ivar);
    free(all.mask);
    free(all.resolution);
  }
  assert_int_equal(fgetc(stream), EOF);
  fclose(stream);
  mill_desi_close(file);
}

/* n files of the test data; one Python, as its start costs more than its work. */
static void compare_with_astropy(int n, const char *const *name)
{
  const char *data[4]; /* so many paths does mill_test_data keep */
  char script[1100], reference[1200], command[16000];
  assert_true(n <= 4);
  snprintf(script, sizeof script, "%s/reference.py", folder);
  maker_save_bytes(script, reference_script, strlen(reference_script));
  int at = snprintf(command, sizeof command, "/usr/bin/python3 -B -W ignore '%s' '%s/reference'",
                    script, folder);
  for (int i = 0; i < n; i++) {
    mill_test_data(path_of_data, name[i]);
    data[i] = path_of_data;
    at += snprintf(command + at, sizeof command - (size_t)at, " '%s'", data[i]);
  }
  const int status = system(command);
  mill_test_needs(status != 77 << 8 && status != 127 << 8, "no /usr/bin/python3 with astropy");
  assert_int_equal(status, 0);
  for (int i = 0; i < n; i++) {
    snprintf(reference, sizeof reference, "%s/reference%d", folder, i);
    compare_with_stream(data[i], reference);
  }
}

static void test_real_coadds_equal_astropy(void **state)
{
  (void)state;
  compare_with_astropy(4, (const char *const[]){"real/desi/coadd-4-80613-thru20210324.fits.gz",
                                                "real/desi/coadd-5-169-thru20210419.fits.gz",
                                                "real/desi/coadd-special-dark-27247.fits.gz",
                                                "real/desi/coadd-sv3-dark-26065.fits.gz"});
}

static void test_real_compressed_masks_equal_astropy(void **state)
{
  (void)state;
  compare_with_astropy(1, (const char *const[]){"real/desi/spectra-sv3-dark-26065.fits.gz"});
}

static void test_real_redrock_is_found(void **state)
{
  (void)state;
  mill_test_data(data, "real/desi/coadd-4-80613-thru20210324.fits.gz");
  mill_selection usual = {.fiberstatus_allowed = 8 | 1 << 20};
  mill_file_index index = index_of(data, &usual);
  assert_int_equal(index.n_row, 1);
  assert_close(index.row[0].z, 0.36874355163716493, 0.0);
  assert_string_equal(index.row[0].spectype, "GALAXY");
  mill_file_index_clear(&index);
  usual.redrock = 1;
  usual.redrock_max_vel_km_s = 1500.0;
  index = index_of(data, &usual);
  assert_int_equal(index.n_row, 0); /* a galaxy */
  mill_file_index_clear(&index);
}

static void test_simulated_coadds_equal_astropy(void **state)
{
  (void)state;
  compare_with_astropy(3,
                       (const char *const[]){"sim/coadd-dev.fits.gz", "sim/coadd-dev-patho.fits.gz",
                                             "sim/coadd-dev-nogood.fits.gz"});
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, remove_folder)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(test_refuses_bad_structure),
      TEST(test_notices_cuts_between_hdus),
      TEST(test_reads_rows_in_any_order),
      TEST(test_keeps_nan_and_infinity),
      TEST(test_honours_scaling),
      TEST(test_notices_a_cut_while_reading),
      TEST(test_reads_masks_of_any_integer),
      TEST(test_reads_compressed_images),
      TEST(test_index_has_a_row_per_row_of_a_coadd),
      TEST(test_missing_columns_have_missing_values),
      TEST(test_selects_by_target_and_status),
      TEST(test_joins_exposures_of_spectra_files),
      TEST(test_selects_by_redrock),
      TEST(test_real_coadds_equal_astropy),
      TEST(test_real_compressed_masks_equal_astropy),
      TEST(test_real_redrock_is_found),
      TEST(test_simulated_coadds_equal_astropy),
  };
  return cmocka_run_group_tests_name("io/desi", tests, NULL, NULL);
}
