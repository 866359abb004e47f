#define _GNU_SOURCE /* memmem */
/* Mock coadds, redrock files and truth tables, read back by our reader and by CFITSIO. */
#include "tests/io/surveys/desi_rows.h"
#include "tests/mill_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <fitsio.h>

#include "io/mock/desi_write.h"
#include "io/surveys/redrock.h"
#include "kernels/base/error.h"
#include "tests/io/fits/fits_maker.h"

enum {
  N_ROW = 70,
  N_ARM = 2,
  N_MATRIX = 20, /* more than the writer keeps */
  N_THREAD = 4
};
static const int n_pix_of[N_ARM] = {37, 20011}; /* the second is longer than any buffer */
static const int n_diag_of[N_ARM] = {5, 3};
static const char *const history[] = {"seed 7", "made by a test, with a line that is longer than "
                                                "one card of a FITS header can ever hold"};
enum { N_HISTORY = sizeof history / sizeof history[0] };

static char folder[1024], path[1100];
static double *wave[N_ARM];
static float *flux[N_ARM], *ivar[N_ARM], *matrix[N_ARM][N_MATRIX];
static int32_t *mask[N_ARM];
static mill_desi_write_arm arm[N_ARM];
static mill_fibermap_row fibermap[N_ROW];

/* ---- writes that the system cuts -------------------------------------- */

static int cut_writes; /* writes of at most this many bytes, every third interrupted; 0: whole */
static int n_cut_call;

/* Stands before libc's. */
ssize_t pwritev(int fd, const struct iovec *iov, int n_iov, off_t offset)
{
  ssize_t n_done = 0;
  if (cut_writes) {
    if (n_cut_call++ % 3 == 1) {
      errno = EINTR;
      return -1;
    }
    /* the end of the first piece in one call, the beginning of the next in another */
    const size_t n = iov->iov_len < (size_t)cut_writes ? iov->iov_len : (size_t)cut_writes;
    return pwrite(fd, iov->iov_base, n, offset);
  }
  for (int i = 0; i < n_iov; i++) {
    const ssize_t n = pwrite(fd, iov[i].iov_base, iov[i].iov_len, offset + n_done);
    if (n < 0)
      return n_done > 0 ? n_done : -1;
    n_done += n;
    if ((size_t)n < iov[i].iov_len)
      break;
  }
  return n_done;
}

/* ---- what is written --------------------------------------------------- */

static float *floats(int64_t n, uint32_t seed)
{
  float *out = malloc((size_t)n * sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < n; i++) {
    /* every bit pattern, so NaN with payloads, infinities and subnormals too */
    const uint32_t bits = (uint32_t)i * 2654435761u + seed * 40503u;
    memcpy(&out[i], &bits, sizeof bits);
  }
  return out;
}

static int make_content(void **state)
{
  (void)state;
  maker_folder(folder, sizeof folder);
  snprintf(path, sizeof path, "%s/coadd-x.fits", folder);
  for (int a = 0; a < N_ARM; a++) {
    const int64_t n = (int64_t)N_ROW * n_pix_of[a];
    wave[a] = malloc((size_t)n_pix_of[a] * sizeof(double));
    mask[a] = malloc((size_t)n * sizeof(int32_t));
    assert_non_null(wave[a]);
    assert_non_null(mask[a]);
    for (int i = 0; i < n_pix_of[a]; i++)
      wave[a][i] = 3600.0 + 2000.0 * a + 0.8 * i;
    for (int64_t i = 0; i < n; i++)
      mask[a][i] = (int32_t)((uint32_t)i * 2246822519u);
    flux[a] = floats(n, (uint32_t)a + 1);
    ivar[a] = floats(n, (uint32_t)a + 11);
    for (int m = 0; m < N_MATRIX; m++)
      matrix[a][m] = floats((int64_t)n_diag_of[a] * n_pix_of[a], (uint32_t)(100 + 10 * m + a));
    arm[a] = (mill_desi_write_arm){a == 0 ? "b" : "r", n_pix_of[a], n_diag_of[a], wave[a]};
  }
  for (int i = 0; i < N_ROW; i++) {
    fibermap[i] = (mill_fibermap_row){
        .target_id = INT64_C(39617000000000000) + 7 * i,
        .location = 1000 + i,
        .fiber = 3 * i,
        .fiber_status = i == 3   ? 2
                        : i == 4 ? 8
                                 : 0,
        .ra_deg = 0.1 * i,
        .dec_deg = -0.2 * i,
        .pm_ra = 1.5f,
        .pm_dec = -2.5f,
        .ref_epoch = 2015.5f,
        .ref_id = INT64_C(5000000000) + i,
        .desi_target = INT64_C(1) << 61,
        .bgs_target = 1,
        .mws_target = 256,
        .scnd_target = 2,
        .flux_g = 1.0f + (float)i,
        .flux_r = 2.0f + (float)i,
        .flux_z = 3.0f + (float)i,
        .median_snr = {10.0f + (float)i, 20.0f + (float)i},
    };
    strcpy(fibermap[i].ref_cat, i == 6 ? "" : "G2");
    strcpy(fibermap[i].objtype, i == 5 ? "SKY" : "TGT");
  }
  return 0;
}

static int remove_content(void **state)
{
  (void)state;
  maker_remove_folder(folder);
  for (int a = 0; a < N_ARM; a++) {
    free(wave[a]);
    free(flux[a]);
    free(ivar[a]);
    free(mask[a]);
    for (int m = 0; m < N_MATRIX; m++)
      free(matrix[a][m]);
  }
  cut_writes = 0;
  return 0;
}

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    if ((call) != MILL_OK)                                                                         \
      fail_msg("%s: %s", #call, mill_error_message());                                             \
  } while (0)

static int matrix_of(int i_row)
{
  return i_row * 7 % N_MATRIX;
}

static int write_rows(mill_desi_writer *writer, int a, int first, int n)
{
  const float *resolution[N_ROW];
  for (int i = 0; i < n; i++)
    resolution[i] = matrix[a][matrix_of(first + i)];
  const int64_t at = (int64_t)first * n_pix_of[a];
  return mill_desi_writer_rows(writer, a, first, n, flux[a] + at, ivar[a] + at, mask[a] + at,
                               resolution);
}

static mill_desi_writer *begin(const char *to, int overwrite)
{
  mill_desi_writer *writer;
  assert_ok(mill_desi_writer_open(to, overwrite, N_ROW, N_ARM, arm, N_HISTORY, history, &writer));
  return writer;
}

static void write_file(const char *to, int block)
{
  mill_desi_writer *writer = begin(to, 0);
  /* backwards: no order is needed */
  for (int first = (N_ROW - 1) / block * block; first >= 0; first -= block)
    for (int a = 0; a < N_ARM; a++)
      assert_ok(write_rows(writer, a, first, N_ROW - first < block ? N_ROW - first : block));
  assert_ok(mill_desi_writer_fibermap(writer, fibermap));
  assert_ok(mill_desi_writer_commit(writer));
  mill_desi_writer_free(writer);
}

static char *read_all(const char *from, long *n)
{
  FILE *file = fopen(from, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *n = ftell(file);
  rewind(file);
  char *bytes = malloc((size_t)*n);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, (size_t)*n, file), *n);
  fclose(file);
  return bytes;
}

static void expect_same_bytes(const char *one, const char *two)
{
  long n_one, n_two;
  char *a = read_all(one, &n_one), *b = read_all(two, &n_two);
  assert_int_equal(n_one, n_two);
  assert_int_equal(n_one % 2880, 0);
  assert_memory_equal(a, b, n_one);
  free(a);
  free(b);
}

/* Files in the folder, without . and .. */
static int count_files(void)
{
  int n = 0;
  DIR *dir = opendir(folder);
  assert_non_null(dir);
  for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
    n += entry->d_name[0] != '.';
  closedir(dir);
  return n;
}

static void expect_failure(int err, int code, const char *part)
{
  if (err != code || !strstr(mill_error_message(), part))
    fail_msg("expected code %d and '%s', got %d and '%s'", code, part, err, mill_error_message());
  assert_non_null(strstr(mill_error_message(), folder));
}

/* ---- coadd files ------------------------------------------------------- */

static mill_library reader_library(void)
{
  mill_library lib;
  memset(&lib, 0, sizeof lib);
  lib.n_arm = N_ARM;
  for (int a = 0; a < N_ARM; a++)
    strcpy(lib.arm[a].name, arm[a].name);
  return lib;
}

static void test_our_reader_reads_every_bit(void **state)
{
  (void)state;
  mill_library *lib = malloc(sizeof *lib);
  assert_non_null(lib);
  *lib = reader_library();
  desi_rows file;
  write_file(path, 9);
  assert_int_equal(count_files(), 1);
  assert_ok(desi_rows_open(&file, path, lib));
  for (int64_t i = 0; i < N_ROW; i++) {
    assert_ok(desi_rows_read(&file, &i, 1));
    for (int a = 0; a < N_ARM; a++) {
      const size_t n_pix = (size_t)n_pix_of[a], n_matrix = n_pix * (size_t)n_diag_of[a];
      const mill_raw_segment *s = desi_rows_of(&file, 0, a);
      assert_non_null(s);
      assert_int_equal(s->n_pix, n_pix_of[a]);
      assert_int_equal(s->n_diag, n_diag_of[a]);
      assert_memory_equal(s->wave_aa, wave[a], n_pix * sizeof(double));
      assert_memory_equal(s->flux, flux[a] + (size_t)i * n_pix, 4 * n_pix);
      assert_memory_equal(s->ivar, ivar[a] + (size_t)i * n_pix, 4 * n_pix);
      assert_memory_equal(s->mask, mask[a] + (size_t)i * n_pix, 4 * n_pix);
      assert_memory_equal(s->resolution, matrix[a][matrix_of((int)i)], 4 * n_matrix);
    }
  }
  mill_selection select;
  mill_file_index index;
  memset(&select, 0, sizeof select);
  select.min_sn = -INFINITY;
  select.fiberstatus_allowed = 8;
  assert_ok(mill_spectra_index(file.spectra, &select, &index));
  assert_int_equal(index.n_row, N_ROW - 2); /* the sky and the forbidden status */
  for (int64_t i = 0; i < index.n_row; i++) {
    const mill_catalog_row *row = &index.row[i];
    const mill_fibermap_row *truth = &fibermap[row->fits_row];
    assert_true(row->fits_row != 3 && row->fits_row != 5);
    assert_int_equal(row->target_id, truth->target_id);
    assert_true(row->target_ra == truth->ra_deg && row->target_dec == truth->dec_deg);
    assert_int_equal(row->fiber, truth->fiber);
    assert_int_equal(row->ref_id, truth->ref_id);
    assert_string_equal(row->ref_cat, truth->ref_cat);
    assert_int_equal(row->exp_id, 1); /* one exposure a target */
  }
  mill_file_index_clear(&index);
  desi_rows_close(&file);
  free(lib);
}

static fitsfile *open_hdu(const char *from, char *name)
{
  fitsfile *fptr;
  int status = 0;
  fits_open_diskfile(&fptr, from, READONLY, &status);
  fits_movnam_hdu(fptr, ANY_HDU, name, 0, &status);
  assert_int_equal(status, 0);
  return fptr;
}

static double cell(fitsfile *fptr, char *column, int i_row)
{
  int number, any, status = 0;
  double value = NAN;
  fits_get_colnum(fptr, CASESEN, column, &number, &status);
  fits_read_col(fptr, TDOUBLE, number, i_row + 1, 1, 1, NULL, &value, &any, &status);
  if (status)
    fail_msg("column %s: CFITSIO %d", column, status);
  return value;
}

static void expect_text(fitsfile *fptr, char *column, int i_row, const char *expected)
{
  int number, any, status = 0;
  char text[128] = "", none[] = "", *p = text;
  fits_get_colnum(fptr, CASESEN, column, &number, &status);
  fits_read_col(fptr, TSTRING, number, i_row + 1, 1, 1, none, &p, &any, &status);
  assert_int_equal(status, 0);
  assert_string_equal(text, expected);
}

static void expect_key(fitsfile *fptr, const char *key, const char *expected)
{
  char text[FLEN_VALUE] = "";
  int status = 0;
  fits_read_key(fptr, TSTRING, key, text, NULL, &status);
  if (status)
    fail_msg("keyword %s: CFITSIO %d", key, status);
  assert_string_equal(text, expected);
}

/* Tables as they are in the file, by CFITSIO; DESI's names, order and units. */
static void test_tables_are_desi_s(void **state)
{
  (void)state;
  static char *const name[] = {"TARGETID",    "LOCATION",    "FIBER",      "COADD_FIBERSTATUS",
                               "TARGET_RA",   "TARGET_DEC",  "PMRA",       "PMDEC",
                               "REF_EPOCH",   "REF_ID",      "REF_CAT",    "OBJTYPE",
                               "BRICKID",     "DESI_TARGET", "BGS_TARGET", "MWS_TARGET",
                               "SCND_TARGET", "FLUX_G",      "FLUX_R",     "FLUX_Z"};
  write_file(path, N_ROW);
  fitsfile *fptr = open_hdu(path, "FIBERMAP");
  int status = 0, n_column = 0;
  fits_get_num_cols(fptr, &n_column, &status);
  assert_int_equal(n_column, sizeof name / sizeof name[0]);
  for (int i = 0; i < n_column; i++) {
    int number = 0;
    fits_get_colnum(fptr, CASESEN, name[i], &number, &status);
    assert_int_equal(status, 0);
    assert_int_equal(number, i + 1);
  }
  expect_key(fptr, "TUNIT5", "deg");
  expect_key(fptr, "TUNIT18", "nanomaggy");
  for (int i = 0; i < N_ROW; i += 23) {
    const mill_fibermap_row *row = &fibermap[i];
    assert_true(cell(fptr, "LOCATION", i) == (double)row->location);
    assert_true(cell(fptr, "COADD_FIBERSTATUS", i) == (double)row->fiber_status);
    assert_true(cell(fptr, "PMRA", i) == 1.5 && cell(fptr, "PMDEC", i) == -2.5);
    assert_true(cell(fptr, "REF_EPOCH", i) == 2015.5);
    /* TARGETID = release << 42 | BRICKID << 22 | object */
    assert_true(cell(fptr, "BRICKID", i) == (double)((row->target_id / (1 << 22)) % (1 << 20)));
    assert_true(cell(fptr, "DESI_TARGET", i) == 0x1p61);
    assert_true(cell(fptr, "BGS_TARGET", i) == 1.0 && cell(fptr, "MWS_TARGET", i) == 256.0);
    assert_true(cell(fptr, "SCND_TARGET", i) == 2.0);
    assert_true(cell(fptr, "FLUX_G", i) == 1.0 + i && cell(fptr, "FLUX_Z", i) == 3.0 + i);
  }
  expect_text(fptr, "OBJTYPE", 5, "SKY");
  fits_movnam_hdu(fptr, ANY_HDU, (char[]){"SCORES"}, 0, &status);
  assert_true(cell(fptr, "MEDIAN_COADD_SNR_B", 69) == 79.0);
  assert_true(cell(fptr, "MEDIAN_COADD_SNR_R", 69) == 89.0);
  fits_movnam_hdu(fptr, ANY_HDU, (char[]){"EXP_FIBERMAP"}, 0, &status);
  assert_true(cell(fptr, "FIBERSTATUS", 4) == 8.0 && cell(fptr, "FIBER", 4) == 12.0);
  fits_movnam_hdu(fptr, ANY_HDU, (char[]){"R_FLUX"}, 0, &status);
  expect_key(fptr, "BUNIT", "10**-17 erg/(s cm2 Angstrom)");
  fits_movnam_hdu(fptr, ANY_HDU, (char[]){"R_IVAR"}, 0, &status);
  expect_key(fptr, "BUNIT", "10**+34 (s2 cm4 Angstrom2) / erg2");
  fits_movabs_hdu(fptr, 1, NULL, &status);
  expect_key(fptr, "SPGRP", "healpix");
  char card[FLEN_CARD] = "";
  fits_read_card(fptr, "HISTORY", card, &status);
  assert_string_equal(card, "HISTORY seed 7");
  assert_int_equal(status, 0);
  fits_close_file(fptr, &status);
}

typedef struct share {
  mill_desi_writer *writer;
  int i_thread, err;
} share;

static void *write_share(void *p)
{
  share *s = p;
  for (int i = s->i_thread; i < N_ROW && s->err == MILL_OK; i += N_THREAD)
    for (int a = 0; a < N_ARM && s->err == MILL_OK; a++)
      s->err = write_rows(s->writer, a, i, 1);
  return NULL;
}

static void test_bytes_do_not_depend_on_how(void **state)
{
  (void)state;
  char other[1200];
  snprintf(other, sizeof other, "%s/coadd-y.fits", folder);
  write_file(path, N_ROW);
  write_file(other, 1);
  expect_same_bytes(path, other);
  unlink(other);

  /* pieces that end within words, and interrupted calls */
  cut_writes = 30011;
  write_file(other, 13);
  cut_writes = 0;
  assert_true(n_cut_call > 300);
  expect_same_bytes(path, other);
  unlink(other);

  share s[N_THREAD];
  pthread_t thread[N_THREAD];
  mill_desi_writer *writer = begin(other, 0);
  for (int t = 0; t < N_THREAD; t++) {
    s[t] = (share){writer, t, MILL_OK};
    assert_int_equal(pthread_create(&thread[t], NULL, write_share, &s[t]), 0);
  }
  for (int t = 0; t < N_THREAD; t++) {
    assert_int_equal(pthread_join(thread[t], NULL), 0);
    assert_int_equal(s[t].err, MILL_OK);
  }
  assert_ok(mill_desi_writer_fibermap(writer, fibermap));
  assert_ok(mill_desi_writer_commit(writer));
  mill_desi_writer_free(writer);
  expect_same_bytes(path, other);
}

static int state_of(int n_history)
{
  int64_t n_byte = 0;
  int state = -1;
  struct stat status;
  assert_ok(mill_desi_compare(path, N_ROW, N_ARM, arm, n_history, history, &n_byte, &state));
  if (state == MILL_FILE_SAME) {
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, n_byte);
  }
  return state;
}

static void test_knows_its_own_files(void **state)
{
  (void)state;
  long n;
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_ABSENT);
  write_file(path, N_ROW);
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_SAME);
  assert_int_equal(state_of(1), MILL_FILE_OTHER);
  char *bytes = read_all(path, &n);
  const char *last = "R_RESOLUTION";
  char *found = memmem(bytes, (size_t)n, last, strlen(last));
  assert_non_null(found);
  const int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, "S", 1, found - bytes), 1);
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_OTHER);
  assert_int_equal(pwrite(fd, "R", 1, found - bytes), 1);
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_SAME);
  assert_int_equal(ftruncate(fd, n - 1), 0);
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_OTHER);
  close(fd);
  free(bytes);
}

static void test_refuses_an_existing_file(void **state)
{
  (void)state;
  mill_desi_writer *writer = NULL;
  write_file(path, N_ROW);
  expect_failure(mill_desi_writer_open(path, 0, N_ROW, N_ARM, arm, 0, NULL, &writer),
                 MILL_ERR_OUTPUT, "exists; give another name or --overwrite");
  assert_null(writer);
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_SAME);
  /* the old file stays until the new one is whole */
  writer = begin(path, 1);
  assert_int_equal(count_files(), 2);
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_SAME);
  mill_desi_writer_free(writer);
  assert_int_equal(count_files(), 1);
  assert_int_equal(state_of(N_HISTORY), MILL_FILE_SAME);
  expect_failure(mill_desi_writer_open(folder, 1, N_ROW, N_ARM, arm, 0, NULL, &writer),
                 MILL_ERR_OUTPUT, "not a regular file");
}

static void test_refuses_folders_it_cannot_write(void **state)
{
  (void)state;
  mill_desi_writer *writer = NULL;
  char missing[1200];
  snprintf(missing, sizeof missing, "%s/nowhere/x.fits", folder);
  expect_failure(mill_desi_writer_open(missing, 0, N_ROW, N_ARM, arm, 0, NULL, &writer),
                 MILL_ERR_OUTPUT, "create the folder");
  assert_int_equal(chmod(folder, 0555), 0);
  /* root may write everywhere, so be nobody for a moment */
  const int is_root = geteuid() == 0;
  if (is_root)
    assert_int_equal(seteuid(65534), 0);
  const int err = mill_desi_writer_open(path, 0, N_ROW, N_ARM, arm, 0, NULL, &writer);
  if (is_root)
    assert_int_equal(seteuid(0), 0);
  assert_int_equal(chmod(folder, 0755), 0);
  expect_failure(err, MILL_ERR_OUTPUT, "make it writable");
  assert_null(writer);
  assert_int_equal(count_files(), 0);
}

static void limit_files(rlim_t n_byte)
{
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = n_byte;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* As a full disk: at the beginning, where the space is claimed, and later, where a file
 * system could not promise it. */
static void test_full_disk_leaves_nothing(void **state)
{
  (void)state;
  mill_desi_writer *writer = NULL;
  signal(SIGXFSZ, SIG_IGN);
  limit_files(100000);
  int err = mill_desi_writer_open(path, 0, N_ROW, N_ARM, arm, 0, NULL, &writer);
  limit_files(RLIM_INFINITY);
  expect_failure(err, MILL_ERR_OUTPUT, "make room or choose another output");
  assert_null(writer);
  assert_int_equal(count_files(), 0);

  writer = begin(path, 0);
  assert_ok(write_rows(writer, 0, 0, N_ROW));
  limit_files(2000000); /* within the flux of the second arm */
  err = write_rows(writer, 1, 0, N_ROW);
  limit_files(RLIM_INFINITY);
  expect_failure(err, MILL_ERR_OUTPUT, "make room or choose another output");
  mill_desi_writer_free(writer);
  assert_int_equal(count_files(), 0);
}

static void test_refuses_what_is_not_whole(void **state)
{
  (void)state;
  mill_desi_writer *writer = begin(path, 0);
  assert_ok(write_rows(writer, 0, 0, N_ROW));
  assert_ok(write_rows(writer, 1, 0, N_ROW - 1));
  assert_ok(mill_desi_writer_fibermap(writer, fibermap));
  expect_failure(write_rows(writer, 1, N_ROW - 1, 2), MILL_ERR_RANGE, "are not in it");
  const float *resolution[] = {matrix[1][0]};
  expect_failure(mill_desi_writer_rows(writer, 1, -1, 1, flux[1], ivar[1], mask[1], resolution),
                 MILL_ERR_RANGE, "are not in it");
  expect_failure(mill_desi_writer_rows(writer, N_ARM, 0, 1, flux[1], ivar[1], mask[1], resolution),
                 MILL_ERR_RANGE, "are not in it");
  expect_failure(mill_desi_writer_commit(writer), MILL_ERR_RANGE, "69 of 70 rows");
  mill_desi_writer_free(writer);
  assert_int_equal(count_files(), 0);

  writer = begin(path, 0);
  for (int a = 0; a < N_ARM; a++)
    assert_ok(write_rows(writer, a, 0, N_ROW));
  expect_failure(mill_desi_writer_commit(writer), MILL_ERR_RANGE, "no FIBERMAP");
  mill_desi_writer_free(writer);
  assert_int_equal(count_files(), 0);
  assert_int_equal(mill_desi_writer_open(path, 0, 0, N_ARM, arm, 0, NULL, &writer), MILL_ERR_RANGE);
  mill_desi_writer_free(NULL);
}

/* ---- redrock ----------------------------------------------------------- */

static void test_redrock_is_found_and_read(void **state)
{
  (void)state;
  enum { N = 3000 }; /* more than one buffer */
  char redrock[1200], beside[1200];
  mill_redrock_row *row = calloc(N, sizeof *row);
  mill_redrock read = {0};
  assert_non_null(row);
  snprintf(redrock, sizeof redrock, "%s/redrock-x.fits", folder);
  for (int i = 0; i < N; i++) {
    row[i] = (mill_redrock_row){.target_id = INT64_C(1) << 40 | (N - i),
                                .z = 1e-4 * i,
                                .zerr = 1e-5 * i,
                                .zwarn = i % 7,
                                .chi2 = 100.0 + i,
                                .delta_chi2 = 0.5 * i};
    strcpy(row[i].spectype, i % 2 ? "GALAXY" : "STAR");
    strcpy(row[i].subtype, i % 2 ? "" : "F");
  }
  assert_ok(mill_redrock_write(redrock, N, row, N_HISTORY, history));
  write_file(path, N_ROW);
  assert_int_equal(count_files(), 2);
  assert_ok(mill_redrock_beside(path, beside, sizeof beside));
  assert_string_equal(beside, redrock);
  assert_ok(mill_redrock_read(redrock, NULL, &read));
  assert_int_equal(read.n, N);
  for (int i = 0; i < N; i++) {
    const mill_redshift *found = mill_redrock_find(&read, row[i].target_id);
    assert_non_null(found);
    assert_true(found->z == row[i].z);
    assert_string_equal(found->spectype, row[i].spectype);
    assert_string_equal(found->subtype, row[i].subtype);
  }
  mill_redrock_clear(&read);
  fitsfile *fptr = open_hdu(redrock, "REDSHIFTS");
  int status = 0;
  assert_true(cell(fptr, "ZERR", 2999) == row[2999].zerr);
  assert_true(cell(fptr, "ZWARN", 2999) == (double)row[2999].zwarn);
  assert_true(cell(fptr, "CHI2", 2999) == row[2999].chi2);
  assert_true(cell(fptr, "DELTACHI2", 2999) == row[2999].delta_chi2);
  fits_close_file(fptr, &status);
  int64_t n_byte;
  int found;
  assert_ok(mill_redrock_compare(redrock, N, N_HISTORY, history, &n_byte, &found));
  assert_int_equal(found, MILL_FILE_SAME);
  assert_ok(mill_redrock_compare(redrock, N - 1, N_HISTORY, history, &n_byte, &found));
  assert_int_equal(found, MILL_FILE_OTHER);
  expect_failure(mill_redrock_write(redrock, N, row, 0, NULL), MILL_ERR_OUTPUT, "exists");
  free(row);
}

/* ---- truth ------------------------------------------------------------- */

static void test_truth_table(void **state)
{
  (void)state;
  enum { N = 5000, FIRST = 1234 };
  static const char *const column[] = {"TEFF", "LOGG", "FEH"}, *const unit[] = {"K", "", "dex"};
  static const char *const file[] = {"coadd-mock-00000.fits", "x.fits"};
  const mill_truth_shape shape = {.n_row = N,
                                  .n_label = 3,
                                  .label_column = column,
                                  .label_unit = unit,
                                  .n_file = 2,
                                  .file = file,
                                  .n_history = N_HISTORY,
                                  .history = history};
  char truth[1200];
  snprintf(truth, sizeof truth, "%s/truth.fits", folder);
  mill_truth_row *row = calloc(N, sizeof *row);
  assert_non_null(row);
  for (int i = 0; i < N; i++) {
    row[i] = (mill_truth_row){.target_id = INT64_C(1) << 50 | i,
                              .label = {4000.0 + i, 0.25 * i, -0.5 * i},
                              .vrad_km_s = -7.5 * i,
                              .vsini_km_s = 1.25 * i,
                              .sn = 3.0 + i,
                              .lsf_group = i % 5,
                              .template_index = i - 1,
                              .file = i / 2500,
                              .fits_row = i % 2500};
    strcpy(row[i].kind, i == 17 ? "a kind of 23 characters" : "star");
  }
  mill_truth_writer *writer;
  assert_ok(mill_truth_writer_open(truth, 0, &shape, &writer));
  assert_ok(mill_truth_writer_rows(writer, FIRST, N - FIRST, row + FIRST));
  expect_failure(mill_truth_writer_rows(writer, N - 1, 2, row), MILL_ERR_RANGE, "are not in it");
  assert_ok(mill_truth_writer_rows(writer, 0, FIRST, row));
  assert_ok(mill_truth_writer_commit(writer));
  mill_truth_writer_free(writer);
  assert_int_equal(count_files(), 1);
  fitsfile *fptr = open_hdu(truth, "TRUTH");
  int status = 0;
  static const int at[] = {0, 17, 1233, 1234, 4999};
  for (int k = 0; k < 5; k++) {
    const int i = at[k];
    assert_true(cell(fptr, "TARGETID", i) == 0x1p50 + i);
    assert_true(cell(fptr, "TEFF", i) == row[i].label[0] && cell(fptr, "LOGG", i) == 0.25 * i);
    assert_true(cell(fptr, "FEH", i) == row[i].label[2]);
    assert_true(cell(fptr, "VRAD", i) == -7.5 * i && cell(fptr, "VSINI", i) == 1.25 * i);
    assert_true(cell(fptr, "SN", i) == 3.0 + i && cell(fptr, "LSF_GROUP", i) == i % 5);
    assert_true(cell(fptr, "TEMPLATE", i) == i - 1 && cell(fptr, "FILE", i) == i / 2500);
    assert_true(cell(fptr, "FITS_ROW", i) == i % 2500);
    expect_text(fptr, "KIND", i, row[i].kind);
  }
  expect_key(fptr, "TUNIT2", "K");
  expect_key(fptr, "TUNIT5", "km/s");
  fits_movnam_hdu(fptr, ANY_HDU, (char[]){"FILES"}, 0, &status);
  expect_text(fptr, "FILE", 0, file[0]);
  expect_text(fptr, "FILE", 1, file[1]);
  fits_close_file(fptr, &status);
  int64_t n_byte;
  int found;
  assert_ok(mill_truth_compare(truth, &shape, &n_byte, &found));
  assert_int_equal(found, MILL_FILE_SAME);
  assert_ok(mill_truth_writer_open(truth, 1, &shape, &writer));
  assert_ok(mill_truth_writer_rows(writer, 0, FIRST, row));
  expect_failure(mill_truth_writer_commit(writer), MILL_ERR_RANGE, "1234 of 5000 rows");
  mill_truth_writer_free(writer);
  assert_int_equal(count_files(), 1);
  mill_truth_writer_free(NULL);
  free(row);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_content, remove_content)

int main(void)
{
  const struct CMUnitTest tests[] = {
      CASE(test_our_reader_reads_every_bit), CASE(test_tables_are_desi_s),
      CASE(test_bytes_do_not_depend_on_how), CASE(test_knows_its_own_files),
      CASE(test_refuses_an_existing_file),   CASE(test_refuses_folders_it_cannot_write),
      CASE(test_full_disk_leaves_nothing),   CASE(test_refuses_what_is_not_whole),
      CASE(test_redrock_is_found_and_read),  CASE(test_truth_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
