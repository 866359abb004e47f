/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mill_test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <zlib.h>

#include "io/fits/fits_file.h"
#include "io/fits/fits_guard.h"
#include "kernels/base/error.h"
#include "tests/io/fits/folder_fixture.h"

/* A primary, a table of two rows, an image of 2 x 3. */
static fits_maker small_file(void)
{
  fits_maker m = {0};
  static const int64_t id[2] = {11, 12};
  static const float flux[6] = {1, 2, 3, 4, 5, 6};
  maker_primary(&m);
  maker_table(&m, "FIBERMAP", 2, 2,
              (const maker_column[]){{"TARGETID", "K", id}, {"OBJTYPE", "3A", "TGTSKY"}});
  maker_image(&m, "B_FLUX", -32, 2, (const long[]){3, 2}, flux, NULL);
  return m;
}

static void expect_error(int code, const char *part)
{
  mill_fits_guard *guard;
  mill_error_clear();
  const int err = mill_fits_guard_open(path, NULL, &guard);
  if (err != code || guard || !strstr(mill_error_message(), part))
    fail_msg("expected code %d and '%s', got %d and '%s'", code, part, err, mill_error_message());
  assert_says(path);
}

static void expect_good(void)
{
  mill_fits_guard *guard;
  assert_ok(mill_fits_guard_open(path, NULL, &guard));
  assert_int_equal(guard->n_hdu, 3);
  assert_string_equal(guard->hdu[0].name, "");
  assert_string_equal(guard->hdu[1].name, "FIBERMAP");
  assert_int_equal(guard->hdu[1].kind, MILL_FITS_TABLE);
  assert_int_equal(guard->hdu[1].axis[0], 11);
  assert_int_equal(guard->hdu[1].axis[1], 2);
  assert_string_equal(guard->hdu[2].name, "B_FLUX");
  assert_int_equal(guard->hdu[2].kind, MILL_FITS_IMAGE);
  assert_int_equal(guard->hdu[2].axis[0], 3);
  assert_int_equal(guard->hdu[2].axis[1], 2);
  assert_int_equal(guard->hdu[2].data_bytes, 24);
  mill_fits_guard_close(guard);
}

MILL_TEST(walks_a_good_file)
{
  fits_maker m = small_file();
  maker_save(&m, path);
  expect_good();
  mill_fits_guard *guard;
  assert_int_equal(mill_fits_guard_open(path, NULL, &guard), MILL_OK);
  assert_int_equal(guard->file_size, (int64_t)m.n);
  assert_int_equal(guard->hdu[2].data_start, (int64_t)m.data_start[2]);
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_close(guard->file_mtime, (double)st.st_mtime, 1.0);
  mill_fits_guard_close(guard);
  maker_clear(&m);
}

MILL_TEST(refuses_what_is_no_fits_file)
{
  maker_save_bytes(path, "", 0);
  expect_error(MILL_ERR_INPUT, "empty");
  maker_save_bytes(path, "S", 1);
  expect_error(MILL_ERR_INPUT, "not a FITS file");
  maker_save_bytes(path, "hello, this is no FITS file", 27);
  expect_error(MILL_ERR_INPUT, "not a FITS file");
  assert_int_equal(unlink(path), 0);
  expect_error(MILL_ERR_INPUT, "No such file");
  assert_int_equal(mkfifo(path, 0600), 0);
  expect_error(MILL_ERR_INPUT, "pipe or device");
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0);
  expect_error(MILL_ERR_INPUT, "folder");
  assert_int_equal(rmdir(path), 0);
  mill_fits_guard *guard;
  assert_int_equal(mill_fits_guard_open("/dev/zero", NULL, &guard), MILL_ERR_INPUT);
  char long_path[2000];
  memset(long_path, 'a', sizeof long_path);
  long_path[sizeof long_path - 1] = '\0';
  assert_fails(mill_fits_guard_open(long_path, NULL, &guard), MILL_ERR_INPUT, "longer");
}

/* Every length short of the whole file but those that end an HDU. */
MILL_TEST(refuses_every_cut)
{
  fits_maker m = small_file();
  for (size_t n = 1; n < m.n; n += n % 2880 == 2879 || n % 2880 == 0 ? 1 : 719) {
    int boundary = 0;
    for (int i = 0; i < m.n_hdu; i++)
      boundary |= n == m.hdu_start[i];
    maker_save_bytes(path, m.bytes, n);
    mill_fits_guard *guard;
    const int err = mill_fits_guard_open(path, NULL, &guard);
    if (boundary ? err != MILL_OK : err != MILL_ERR_INPUT)
      fail_msg("cut at %zu of %zu: code %d", n, m.n, err);
    mill_fits_guard_close(guard);
  }
  maker_save_bytes(path, m.bytes, m.hdu_start[2] + 100);
  expect_error(MILL_ERR_INPUT, "ends inside this header");
  maker_save_bytes(path, m.bytes, m.data_start[1] + 4);
  expect_error(MILL_ERR_INPUT, "HDU 2 (FIBERMAP): needs 22 bytes");
  maker_clear(&m);
}

/* One card of an otherwise good file replaced. */
static void expect_card_error(int i_hdu, int i_card, const char *card, const char *part)
{
  fits_maker m = small_file();
  char text[81];
  memset(text, ' ', sizeof text);
  memcpy(text, card, strlen(card) > 80 ? 80 : strlen(card));
  memcpy(m.bytes + m.hdu_start[i_hdu] + 80 * (size_t)i_card, text, 80);
  maker_save(&m, path);
  maker_clear(&m);
  if (part)
    expect_error(MILL_ERR_INPUT, part);
  else
    expect_good();
}

MILL_TEST(refuses_malformed_cards)
{
  /* aborts the process inside CFITSIO 4.2 */
  expect_card_error(
      1, 8, "TTYPE1  = xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
      "HDU 2 (FIBERMAP): card 9 (TTYPE1) must be a string");
  expect_card_error(1, 8, "TTYPE1  = 'TARGETID", "card 9 (TTYPE1) is a string without its closing");
  expect_card_error(1, 8, "TTYPE1  = 'TARGETID' x", "text after its closing quote");
  expect_card_error(1, 8, "TTYPE1  ='TARGETID'", "(TTYPE1) has no value");
  expect_card_error(1, 8, "TTYPE1  =", "(TTYPE1) must be a string");
  expect_card_error(1, 8, "ttype1  = 'TARGETID'", "bad keyword");
  expect_card_error(1, 8, "TTY PE1 = 'TARGETID'", "bad keyword");
  expect_card_error(1, 8, "TTYPE1  = 'TARG\x01TID'", "not printable");
  expect_card_error(1, 8, "TTYPE1  = 'TARG\xc3\xa9TID'", "not printable");
  expect_card_error(1, 9, "TFORM1  = 8", "must be a string");
  expect_card_error(1, 9, "TFORM1  = 'Y'", "must be a column format");
  expect_card_error(1, 9, "TFORM1  = '99999999999K'", "must be a column format");
  expect_card_error(1, 9, "TFORM1  = 'J'", "columns are 7 bytes wide, its rows 11");
  expect_card_error(1, 9, "TFORM1  = '3PE(5)'", "must be a column format");
  expect_card_error(1, 9, "TFORM2  = '3A'", "TFORM2 stands twice");
  expect_card_error(1, 12, "TFORM01 = '3A'", "TFORM01 stands twice"); /* CFITSIO's TFORM1 */
  expect_card_error(1, 9, "COMMENT no format here", "TFORM1 is missing");
  expect_card_error(1, 7, "TFIELDS = 1000", "TFIELDS = '1000' is out of range");
  expect_card_error(1, 7, "TFIELDS = 2x", "must be an integer");
  expect_card_error(1, 7, "TFIELD  = 2", "not the mandatory TFIELDS");
  expect_card_error(1, 12, "TFIELDS = 2", "does not belong there");
  expect_card_error(1, 12, "PCOUNT  = 0", "does not belong there");
  expect_card_error(1, 12, "NAXIS2  = 1", "does not belong there");
  expect_card_error(1, 12, "TSCAL1  = nan", "must be a finite number");
  expect_card_error(1, 3, "NAXIS1  = -11", "NAXIS1 = '-11' is out of range");
  expect_card_error(1, 3, "NAXIS1  = 9223372036854775807", "more than a file can hold");
  expect_card_error(1, 3, "NAXIS1  = 99999999999999999999", "must be an integer");
  expect_card_error(1, 4, "NAXIS2  = 1000", "needs 11000 bytes");
  expect_card_error(1, 5, "PCOUNT  = 9223372036854775807", "more than a file can hold");
  expect_card_error(1, 6, "GCOUNT  = 2", "GCOUNT = '2' is out of range");
  expect_card_error(1, 1, "BITPIX  = 16", "a table with BITPIX 16");
  expect_card_error(1, 0, "XTENSION= BINTABLE", "must be a string");
  expect_card_error(1, 0, "SIMPLE  = T", "not the mandatory XTENSION");
  expect_card_error(2, 1, "BITPIX  = 7", "expected 8, 16");
  expect_card_error(2, 2, "NAXIS   = 999", "out of range");
  expect_card_error(2, 2, "NAXIS   = 'a'", "must be an integer");
  expect_card_error(2, 3, "NAXIS1  = 4611686018427387905", "more than a file can hold");
  expect_card_error(2, 7, "BSCALE  = one", "must be a finite number");
  expect_card_error(2, 8, "END     x", "text follows END");
  expect_card_error(2, 8, "NOEND   = 1",
                    "card 37 of the header holds a byte that is not printable");
  expect_card_error(0, 0, "SIMPLE  = F", "SIMPLE is not T");
  expect_card_error(0, 3, "GROUPS  = T", "does not belong there");
  /* and these are fine */
  expect_card_error(0, 3, "HISTORY anything = 'goes", NULL);
  expect_card_error(0, 3, "HIERARCH long name = 'it''s fine' / comment", NULL);
  expect_card_error(0, 3, "WITHSLAS= 'a / b'", NULL);
  expect_card_error(0, 3, "UNDEFIN =", NULL);
  expect_card_error(0, 3, "        a blank keyword", NULL);
  expect_card_error(1, 8, "TTYPE1  = 'TARGETID' / comment", NULL);
}

/* Nothing in the file bounds how many of them there are. */
MILL_TEST(refuses_rows_without_bytes)
{
  fits_maker m = {0};
  maker_primary(&m);
  maker_begin(&m);
  maker_card(&m, "XTENSION= 'BINTABLE'");
  maker_card(&m, "BITPIX  =                    8");
  maker_card(&m, "NAXIS   =                    2");
  maker_card(&m, "NAXIS1  =                    0");
  maker_card(&m, "NAXIS2  =  1000000000000000000");
  maker_card(&m, "PCOUNT  =                    0");
  maker_card(&m, "GCOUNT  =                    1");
  maker_card(&m, "TFIELDS =                    1");
  maker_card(&m, "TTYPE1  = 'OBJTYPE'");
  maker_card(&m, "TFORM1  = '0A'");
  maker_card(&m, "EXTNAME = 'FIBERMAP'");
  maker_end(&m);
  maker_save(&m, path);
  maker_clear(&m);
  expect_error(MILL_ERR_INPUT, "HDU 2 (FIBERMAP): its 1000000000000000000 rows have no bytes");
}

MILL_TEST(refuses_a_second_place_of_the_heap)
{
  fits_maker m = {0};
  static const int64_t id[2] = {11, 12};
  maker_primary(&m);
  maker_table(&m, "T", 2, 1, (const maker_column[]){{"TARGETID", "K", id}});
  for (int i = 0; i < 2; i++) {
    unsigned char *end = m.bytes + m.data_start[1] - 2880 + 80 * (11 + (size_t)i);
    memset(end, ' ', 160);
    memcpy(end, "THEAP   = 16", 12);
    memcpy(end + 80, "END", 3);
    maker_save(&m, path);
    if (i == 0) {
      mill_fits_guard *guard;
      assert_int_equal(mill_fits_guard_open(path, NULL, &guard), MILL_OK);
      mill_fits_guard_close(guard);
    } else {
      expect_error(MILL_ERR_INPUT, "HDU 2 (T): THEAP stands twice");
    }
  }
  maker_clear(&m);
}

/* ---- compressed images ---- */

enum { TILE_PIX = 3000, N_TILE = 2 };

/* Zeros, one tile a row, so that a tile has few bytes. */
static void save_compressed(int compression, int bitpix)
{
  static const int zero[TILE_PIX * N_TILE];
  fitsfile *fptr;
  int status = 0;
  long axis[2] = {TILE_PIX, N_TILE}, first[2] = {1, 1};
  unlink(path);
  fits_create_diskfile(&fptr, path, &status);
  fits_create_img(fptr, BYTE_IMG, 0, NULL, &status);
  fits_set_compression_type(fptr, compression, &status);
  fits_create_img(fptr, bitpix, 2, axis, &status);
  fits_update_key(fptr, TSTRING, "EXTNAME", (char[]){"B_MASK"}, NULL, &status);
  fits_write_pix(fptr, TINT, first, TILE_PIX * N_TILE, (void *)(uintptr_t)zero, &status);
  fits_close_file(fptr, &status);
  assert_int_equal(status, 0);
}

/* The card of that keyword replaced; a NULL card: only the file as it is. */
static void expect_compressed(const char *keyword, const char *card, const char *part)
{
  static unsigned char bytes[1 << 16];
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  const size_t n = fread(bytes, 1, sizeof bytes, stream);
  fclose(stream);
  size_t at = 0;
  char text[81];
  while (card && at < n && memcmp(bytes + at, keyword, strlen(keyword)) != 0)
    at += 80;
  assert_true(at < n);
  if (card) {
    snprintf(text, sizeof text, "%-80s", card);
    memcpy(bytes + at, text, 80);
    maker_save_bytes(path, bytes, n);
  }
  if (part)
    expect_error(MILL_ERR_INPUT, part);
  mill_fits_guard *guard;
  assert_ok(!part && mill_fits_guard_open(path, NULL, &guard));
  if (!part)
    mill_fits_guard_close(guard);
}

static void expect_damaged(int compression, int bitpix, const char *keyword, const char *card,
                           const char *part)
{
  save_compressed(compression, bitpix);
  expect_compressed(NULL, NULL, NULL);
  expect_compressed(keyword, card, part);
}

MILL_TEST(refuses_malformed_compression)
{
  expect_damaged(RICE_1, LONG_IMG, "ZNAME1  ", "ZNAME1  = 'OTHER'", "parameter 1 of RICE");
  expect_damaged(RICE_1, LONG_IMG, "ZVAL1   ", "ZVAL1   = 0", "BLOCKSIZE = 0");
  expect_damaged(RICE_1, LONG_IMG, "ZVAL1   ", "ZVAL1   = 'a text of more than thirty characters'",
                 "parameter 1 of RICE");
  expect_damaged(RICE_1, LONG_IMG, "ZVAL1   ", "COMMENT gone", "parameter 1 of RICE");
  expect_damaged(RICE_1, LONG_IMG, "ZVAL2   ", "ZVAL2   = 8", "BYTEPIX 8 for ZBITPIX 32");
  expect_damaged(RICE_1, LONG_IMG, "ZVAL2   ", "COMMENT gone", NULL); /* 4 */
  expect_damaged(RICE_1, LONG_IMG, "ZNAME2  ", "ZNAXIS1 = 3000", "ZNAXIS1 stands twice");
  expect_damaged(RICE_1, LONG_IMG, "ZNAME2  ", "ZTILE1  = 3000", "ZTILE1 stands twice");
  expect_damaged(RICE_1, LONG_IMG, "ZNAME2  ", "ZBITPIX = 32", "ZBITPIX stands twice");
  expect_damaged(RICE_1, LONG_IMG, "EXTNAME ", "ZDITHER0= 0", "ZDITHER0 = '0', expected 1 to");
  expect_damaged(RICE_1, LONG_IMG, "EXTNAME ", "ZDITHER0= 'x'", "ZDITHER0) must be an integer");
  expect_damaged(RICE_1, LONG_IMG, "EXTNAME ", "ZDITHER0= 1", NULL);
  expect_damaged(GZIP_1, LONG_IMG, "ZCMPTYPE", "ZCMPTYPE= 'HCOMPRESS_1'", "only RICE_1, GZIP_1");
  expect_damaged(GZIP_1, LONG_IMG, "ZNAXIS2 ", "ZNAXIS2 = 3", "2 compressed tiles instead of 3");
}

MILL_TEST(bounds_compressed_images)
{
  save_compressed(GZIP_1, LONG_IMG);
  mill_fits_guard *guard;
  mill_open_limits limits = {0.02, folder}; /* the image has 0.023 MiB */
  assert_fails(mill_fits_guard_open(path, &limits, &guard), MILL_ERR_INPUT,
               "HDU 2 (B_MASK): the compressed image unpacks to");
  assert_says("gzip_limit_mib");
  limits.gzip_limit_mib = 0.03;
  assert_int_equal(mill_fits_guard_open(path, &limits, &guard), MILL_OK);
  mill_fits_guard_close(guard);
  /* a tile of 800 MB for some fifty bytes of the file */
  expect_compressed("ZTILE1  ", "ZTILE1  = 200000000", "in tiles of");
  save_compressed(GZIP_1, LONG_IMG);
  expect_compressed("ZTILE1  ", "ZTILE1  = 200000000", "in tiles of");
  expect_compressed("ZNAXIS1 ", "ZNAXIS1 = 200000000", "tile 1 has too few bytes");
}

MILL_TEST(refuses_bytes_after_the_last_hdu)
{
  fits_maker m = small_file();
  maker_append(&m, "junk", 4);
  maker_pad(&m, 'j');
  maker_save(&m, path);
  maker_clear(&m);
  expect_error(MILL_ERR_INPUT, "HDU 4");
}

MILL_TEST(brackets_in_a_path_mean_nothing)
{
  fits_maker m = small_file();
  char keep[sizeof path];
  memcpy(keep, path, sizeof keep);
  snprintf(path, sizeof path, "%s/a[1][TARGETID > 1].fits", folder);
  maker_save(&m, path);
  mill_fits_file *file;
  assert_int_equal(mill_fits_file_open(path, NULL, &file), MILL_OK);
  int n_hdu = 0, status = 0;
  fits_get_num_hdus(file->fptr, &n_hdu, &status);
  assert_int_equal(status, 0);
  assert_int_equal(n_hdu, 3);
  mill_fits_file_close(file);
  /* and the part before the bracket is not taken for the file */
  memcpy(path, keep, sizeof keep);
  maker_save(&m, path);
  strcat(path, "[1]");
  expect_error(MILL_ERR_INPUT, "No such file");
  memcpy(path, keep, sizeof keep);
  maker_clear(&m);
}

/* ---- gzip ---- */

static size_t pack(const void *bytes, size_t n, unsigned char *out, size_t size)
{
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (unsigned char *)(uintptr_t)bytes;
  z.avail_in = (uInt)n;
  z.next_out = out;
  z.avail_out = (uInt)size;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  const size_t packed = size - z.avail_out;
  deflateEnd(&z);
  return packed;
}

static int count_entries(const char *name)
{
  int n = 0;
  DIR *dir = opendir(name);
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));)
    n += entry->d_name[0] != '.';
  closedir(dir);
  return n;
}

MILL_TEST(reads_gzip_by_content)
{
  fits_maker m = small_file();
  unsigned char packed[65536];
  /* the name says nothing; two members and padding are one file */
  size_t n = pack(m.bytes, 4000, packed, sizeof packed);
  n += pack(m.bytes + 4000, m.n - 4000, packed + n, sizeof packed - n);
  maker_save_bytes(path, packed, n);
  expect_good();
  memset(packed + n, 0, 100);
  maker_save_bytes(path, packed, n + 100);
  expect_good();
  mill_fits_file *file;
  assert_int_equal(mill_fits_file_open(path, NULL, &file), MILL_OK);
  assert_int_equal(file->guard->file_size, (int64_t)n + 100);
  int64_t id[2];
  assert_int_equal(mill_fits_column_int64(file, 1, "TARGETID", id, NULL), MILL_OK);
  assert_int_equal(id[1], 12);
  mill_fits_file_close(file);

  memset(packed + n, 'x', 100);
  maker_save_bytes(path, packed, n + 100);
  expect_error(MILL_ERR_INPUT, "gzip stream");
  for (size_t cut = 2; cut < n; cut += 37) {
    maker_save_bytes(path, packed, cut);
    expect_error(MILL_ERR_INPUT, "gzip stream");
  }
  packed[n / 2] ^= 0x55;
  maker_save_bytes(path, packed, n);
  expect_error(MILL_ERR_INPUT, "gzip stream");
  n = pack("", 0, packed, sizeof packed);
  maker_save_bytes(path, packed, n);
  expect_error(MILL_ERR_INPUT, "empty");
  maker_clear(&m);
}

/* Two rows of a table with one column of integers, with cards added to its header. */
static int read_scaled(const char *form, const void *values, const char *cards, int64_t id[2])
{
  fits_maker m = {0};
  maker_primary(&m);
  maker_table(&m, "T", 2, 1, (const maker_column[]){{"TARGETID", form, values}});
  /* over the END of the header and what follows */
  char *end = (char *)m.bytes + m.hdu_start[1];
  while (memcmp(end, "END     ", 8) != 0)
    end += 80;
  for (; *cards; cards += strcspn(cards, "\n") + 1, end += 80) {
    const size_t n = strcspn(cards, "\n");
    memset(end, ' ', 80);
    memcpy(end, cards, n);
  }
  memset(end, ' ', 80);
  memcpy(end, "END", 3);
  maker_save_bytes(path, m.bytes, m.n);
  maker_clear(&m);
  mill_fits_file *file = NULL;
  assert_int_equal(mill_fits_file_open(path, NULL, &file), MILL_OK);
  const int err = mill_fits_column_int64(file, 1, "TARGETID", id, NULL);
  mill_fits_file_close(file);
  return err;
}

MILL_TEST(scaled_integers_are_read_exactly)
{
  const int64_t large[2] = {(INT64_C(1) << 60) + 1, (INT64_C(1) << 60) + 2};
  const int64_t stored[2] = {large[0] - INT64_MAX - 1, large[1] - INT64_MAX - 1};
  const int32_t word[2] = {INT32_MIN, INT32_MAX};
  int64_t id[2];
  assert_int_equal(read_scaled("K", large, "", id), MILL_OK);
  assert_true(id[0] == large[0] && id[1] == large[1]);
  /* unsigned ones of 64 bits, in the ways that programs write the offset */
  static const char *const unsigned64[] = {"TSCAL1  = 1.0\nTZERO1  = 9223372036854775808\n",
                                           "TSCAL1  = 1\nTZERO1  = 9.223372036854775808D18\n",
                                           "TZERO1  = 9.2233720368547758E+18\n"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(read_scaled("K", stored, unsigned64[i], id), MILL_OK);
    assert_true(id[0] == large[0] && id[1] == large[1]);
  }
  assert_int_equal(read_scaled("K", large, "TZERO1  = -9007199254740993\n", id), MILL_OK);
  assert_true(id[1] == large[1] - INT64_C(9007199254740993));
  assert_int_equal(read_scaled("J", word, "TZERO1  = 2147483648\n", id), MILL_OK);
  assert_true(id[0] == 0 && id[1] == UINT32_MAX);
  /* what cannot be had exactly */
  assert_fails(read_scaled("K", large, unsigned64[0], id), MILL_ERR_INPUT,
               "column TARGETID, row 0");
  static const char *const bad[] = {"TSCAL1  = 2\n", "TZERO1  = 0.5\n", "TZERO1  = 1E40\n"};
  for (int i = 0; i < 3; i++) {
    assert_fails(read_scaled("K", large, bad[i], id), MILL_ERR_INPUT, "column TARGETID has TSCAL");
  }
}

MILL_TEST(bounds_what_gzip_unpacks_to)
{
  fits_maker m = small_file();
  static unsigned char zeros[3 << 20], packed[65536];
  memcpy(zeros, m.bytes, m.n);
  maker_clear(&m);
  maker_save_bytes(path, packed, pack(zeros, sizeof zeros, packed, sizeof packed));
  mill_fits_guard *guard;
  mill_open_limits limits = {2.0, folder};
  assert_fails(mill_fits_guard_open(path, &limits, &guard), MILL_ERR_INPUT,
               "gunzip it, or raise gzip_limit_mib");
  assert_says("2 MiB");
  limits.gzip_limit_mib = 3.0; /* then only the zeros at the end are wrong */
  assert_fails(mill_fits_guard_open(path, &limits, &guard), MILL_ERR_INPUT, "HDU 4");
  assert_int_equal(count_entries(folder), 1);
}

MILL_TEST(names_a_bad_scratch_folder)
{
  fits_maker m = small_file();
  unsigned char packed[65536];
  maker_save_bytes(path, packed, pack(m.bytes, m.n, packed, sizeof packed));
  mill_fits_guard *guard;
  mill_open_limits limits = {100.0, path}; /* a file, no folder */
  assert_fails(mill_fits_guard_open(path, &limits, &guard), MILL_ERR_OUTPUT, "scratch");
  assert_says(path);

  /* a full disk, in the shape of a limit on file sizes */
  struct rlimit before, small = {4096, RLIM_INFINITY};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  limits.scratch = folder;
  const int err = mill_fits_guard_open(path, &limits, &guard);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  char needs[64];
  snprintf(needs, sizeof needs, "needs %.1f MiB unpacked", (double)m.n / 1048576.0);
  assert_int_equal(err, MILL_ERR_INPUT); /* it costs this file only */
  assert_says(path);
  assert_says(needs);
  assert_says("set scratch");
  assert_says(folder);
  assert_int_equal(count_entries(folder), 1);

  /* and a good one is left empty while the file is open */
  assert_int_equal(mill_fits_guard_open(path, &limits, &guard), MILL_OK);
  assert_int_equal(count_entries(folder), 1);
  mill_fits_guard_close(guard);
  maker_clear(&m);
}

MILL_EACH_TEST_MAIN(make_folder, remove_folder)
