/* Random damage to a small file must never crash or abort the process: CFITSIO
 * does on some of it when it is not guarded. */
#include "tests/mill_test.h"

#include <string.h>

#include <fitsio.h>

#include "io/surveys/redrock.h"
#include "kernels/base/error.h"
#include "tests/io/surveys/desi_rows.h"
#include "tests/io/surveys/samples.h"

enum { N_PIX = 4 /* of arm b of a sample */ };

static uint64_t random_state;

/* splitmix64 */
static uint64_t random_bits(void)
{
  uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static size_t random_below(size_t n)
{
  return (size_t)(random_bits() % n);
}

/* The usual small file with its B_MASK compressed by CFITSIO; returns its bytes. */
static unsigned char *make_original(const char *path, int compression, size_t *n)
{
  static sample s;
  sample_draw(&s, DESI, 1);
  recipe_edit(&s.file, "-B_MASK");
  recipe_table(&s.file, "EXP_FIBERMAP", SAMPLE_ROWS);
  recipe_column_add(&s.file, "TARGETID", "K", "", NULL);
  recipe_save(&s.file, path);
  recipe_clear(&s.file);
  fitsfile *fptr;
  int status = 0;
  long axis[2] = {N_PIX, SAMPLE_ROWS}, first[2] = {1, 1};
  int mask[N_PIX * SAMPLE_ROWS];
  for (int i = 0; i < N_PIX * SAMPLE_ROWS; i++)
    mask[i] = i % 3;
  fits_open_diskfile(&fptr, path, READWRITE, &status);
  fits_set_compression_type(fptr, compression, &status);
  fits_create_img(fptr, LONG_IMG, 2, axis, &status);
  fits_update_key(fptr, TSTRING, "EXTNAME", (char[]){"B_MASK"}, NULL, &status);
  fits_write_pix(fptr, TINT, first, N_PIX * SAMPLE_ROWS, mask, &status);
  fits_close_file(fptr, &status);
  assert_int_equal(status, 0);
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  unsigned char *bytes = malloc(1 << 20);
  assert_non_null(bytes);
  *n = fread(bytes, 1, 1 << 20, stream);
  fclose(stream);
  assert_true(*n > 0 && *n < 1 << 20);
  return bytes;
}

/* Does a card begin at this byte?  Headers are text, data here hardly ever is. */
static int is_card(const unsigned char *p)
{
  for (int i = 0; i < 80; i++)
    if (p[i] < ' ' || p[i] > '~')
      return 0;
  return p[0] != ' ';
}

static void mutate(unsigned char *bytes, size_t *n)
{
  static const char *const value[] = {
      "-1",    "0", "1",        "999", "2147483648", "9223372036854775807",
      "1E400", "T", "'PE(99)'", "'",   "''",         "'65535A'",
      "'1QJ'", "",  "'1X'",     "'0K'"};
  size_t card;
  do
    card = random_below(*n / 80) * 80;
  while (!is_card(bytes + card));
  switch (random_below(8)) {
  case 0: /* a byte of a header */
    bytes[card + random_below(80)] = (unsigned char)(' ' + random_below(95));
    break;
  case 1:
    bytes[card + random_below(80)] = (unsigned char)random_bits();
    break;
  case 2: /* a byte anywhere */
    bytes[random_below(*n)] = (unsigned char)random_bits();
    break;
  case 3: { /* one card over another */
    const size_t from = random_below(*n / 80) * 80;
    memmove(bytes + card, bytes + from, 80);
    break;
  }
  case 4: { /* another value */
    const char *text = value[random_below(sizeof value / sizeof *value)];
    memset(bytes + card + 10, ' ', 70);
    memcpy(bytes + card + 10, text, strlen(text));
    break;
  }
  case 5: /* a value without end */
    memset(bytes + card + 10, random_below(2) ? 'x' : '\'', 70);
    break;
  case 6: /* another digit */
    for (int i = 10; i < 80; i++)
      if (bytes[card + (size_t)i] >= '0' && bytes[card + (size_t)i] <= '9') {
        bytes[card + (size_t)i] = (unsigned char)('0' + random_below(10));
        break;
      }
    break;
  default:
    if (random_below(4) == 0)
      *n -= random_below(*n / 2);
  }
}

/* Use the file as a run would; 1 when everything could be read. */
static int use(const char *path, const mill_library *lib)
{
  desi_rows file;
  mill_redrock redrock = {0};
  mill_file_index index = {0};
  if (mill_redrock_read(path, NULL, &redrock) == MILL_OK)
    mill_redrock_clear(&redrock);
  int good = desi_rows_open(&file, path, lib) == MILL_OK;
  good = good && mill_spectra_index(file.spectra, &file.config.select, &index) == MILL_OK;
  for (int64_t i = 0; good && i < index.n_exposure; i++)
    good = desi_rows_read(&file, &index.exposure_row[i], 1) == MILL_OK;
  mill_file_index_clear(&index);
  desi_rows_close(&file);
  return good;
}

static void survive(int compression)
{
  char folder[1024], path[1100];
  maker_folder(folder, sizeof folder);
  snprintf(path, sizeof path, "%s/spectra-x.fits", folder);
  mill_library lib = {.n_arm = 2};
  strcpy(lib.arm[0].name, "b");
  strcpy(lib.arm[1].name, "r");
  size_t n;
  unsigned char *original = make_original(path, compression, &n), *bytes = malloc(n);
  assert_non_null(bytes);
  assert_int_equal(use(path, &lib), 1);

  const char *text = getenv("STARMILL_TEST_MUTATIONS");
  const int n_trial = text ? atoi(text) : 1500;
  const uint64_t seed = 20261121;
  printf("seed %llu, %d damaged files\n", (unsigned long long)seed, n_trial);
  int n_good = 0;
  for (int i = 0; i < n_trial; i++) {
    random_state = seed + (uint64_t)i * 1000003;
    memcpy(bytes, original, n);
    size_t n_bytes = n;
    mutate(bytes, &n_bytes);
    if (random_below(3) == 0)
      mutate(bytes, &n_bytes);
    maker_save_bytes(path, bytes, n_bytes);
    n_good += use(path, &lib);
  }
  /* harmless damage passes, and most is found */
  assert_true(n_good > n_trial / 20);
  assert_true(n_good < n_trial);
  free(original);
  free(bytes);
  maker_remove_folder(folder);
}

static void test_survives_damage_with_rice(void **state)
{
  (void)state;
  survive(RICE_1);
}

static void test_survives_damage_with_gzip(void **state)
{
  (void)state;
  survive(GZIP_1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_survives_damage_with_rice),
                                     cmocka_unit_test(test_survives_damage_with_gzip)};
  return cmocka_run_group_tests_name("io/fits_mutations", tests, NULL, NULL);
}
