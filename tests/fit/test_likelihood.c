/* SPDX-License-Identifier: BSD-3-Clause */
/* -2 ln L against the float64 reference values of the test data. */
#include "tests/mill_test.h"

#include "io/library/library_file.h"
#include "kernels/math/hull.h"
#include "src/config/config.h"
#include "kernels/base/error.h"
#include "src/pipeline/pipeline.h"
#include "tests/io/surveys/desi_rows.h"

enum { MAX_POINT = 400, POINTS_PER_STAR = 7 };

typedef struct reference_point {
  int row;
  double theta[6], m2ll, outside, chisq[3];
  int n_good[3];
} reference_point;

static char *slurp(const char *path)
{
  FILE *f = fopen(path, "rb");
  if (!f)
    return NULL;
  fseek(f, 0, SEEK_END);
  const long n = ftell(f);
  rewind(f);
  char *text = malloc((size_t)n + 1);
  if (text && fread(text, 1, (size_t)n, f) == (size_t)n)
    text[n] = '\0';
  fclose(f);
  return text;
}

/** What follows "key": inside one object of the file. */
static const char *value_of(const char *object, const char *end, const char *key)
{
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char *p = strstr(object, quoted);
  if (!p || p > end)
    fail_msg("no %s in the reference file", key);
  return p + strlen(quoted);
}

static double number(const char *object, const char *end, const char *key)
{
  return strtod(value_of(object, end, key), NULL);
}

/** The three numbers of "key": [...]. */
static void triple(const char *object, const char *end, const char *key, double *out)
{
  const char *p = strchr(value_of(object, end, key), '[');
  for (int a = 0; a < 3; a++) {
    char *after;
    out[a] = strtod(p + 1, &after);
    p = after;
  }
}

static int read_points(const char *path, reference_point *point)
{
  char *text = slurp(path);
  assert_non_null(text);
  int n = 0;
  const char *p = strstr(text, "\"points\"");
  assert_non_null(p);
  for (p = strstr(p, "\"row\":"); p; p = strstr(p + 1, "\"row\":")) {
    const char *next = strstr(p + 1, "\"row\":");
    const char *end = next ? next : p + strlen(p);
    static const char *const key[6] = {"vel", "vsini", "teff", "logg", "feh", "alpha"};
    assert_true(n < MAX_POINT);
    point[n].row = (int)number(p, end, "row");
    for (int j = 0; j < 6; j++)
      point[n].theta[j] = number(p, end, key[j]);
    point[n].m2ll = number(p, end, "minus2logl");
    point[n].outside = number(p, end, "outside");
    triple(p, end, "chisq", point[n].chisq);
    double count[3];
    triple(p, end, "npix", count);
    for (int a = 0; a < 3; a++)
      point[n].n_good[a] = (int)count[a];
    n++;
  }
  free(text);
  return n;
}

static void must(int err)
{
  if (err != MILL_OK)
    fail_msg("%s", mill_error_message());
}

/* As `starmill library import` makes it. */
static void import(const char *prefix, mill_library *lib)
{
  char command[10240], path[] = "/tmp/mill-likelihood-XXXXXX";
  const int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  int n = snprintf(command, sizeof command,
                   "python3 -B '%s/python/starmill/__main__.py' library import --output '%s.h5' "
                   "--guess-templates 20",
                   MILL_SOURCE_DIR, path);
  for (int a = 0; a < 3; a++) {
    char name[64];
    snprintf(name, sizeof name, "emulator/%s_desi_%c.h5", prefix, "brz"[a]);
    const char *found = mill_test_data_path(name);
    n += snprintf(command + n, sizeof command - (size_t)n, " '%s'", found ? found : "missing");
  }
  assert_int_equal(system(command), 0);
  strcat(strcpy(command, path), ".h5");
  memset(lib, 0, sizeof *lib);
  must(mill_library_read(command, lib));
  unlink(command);
  unlink(path);
}

/** Evaluate all points; f [n] out without the hull penalty of ours and with the
 *  reference's (whose distance went through float32 labels: up to 4e-6 in d^2,
 *  times 10 N_pix per arm).  The reference's chi-squares are those of the linear kind
 *  of rotation. */
static void evaluate(const mill_library *lib, const char *coadd, int rotation, int precision, int n,
                     const reference_point *point, double *f)
{
  mill_config config;
  mill_pipeline *pipeline = NULL;
  desi_rows rows;
  int64_t row[MAX_POINT];
  int n_row = 0, n_pix = 0;
  for (int i = 0; i < n; i++)
    n_row = point[i].row >= n_row ? point[i].row + 1 : n_row;
  for (int i = 0; i < n_row; i++)
    row[i] = i;
  mill_config_default(&config);
  must(mill_config_bind(&config, lib));
  config.fit.rotation = rotation;
  config.fit.precision = precision;
  config.fit.n_cont = 10;
  must(mill_pipeline_create(lib, &config.fit, mill_backend_cpu(NULL), 1, 1, 0, &pipeline));
  must(desi_rows_open(&rows, coadd, lib));
  must(desi_rows_read(&rows, row, n_row));
  for (int a = 0; a < 3; a++)
    n_pix += desi_rows_of(&rows, 0, a)->n_pix;
  for (int i = 0; i < n; i++) {
    mill_raw_segment segment[3];
    mill_evaluation eval;
    mill_fit_result prepared;
    for (int a = 0; a < 3; a++) {
      segment[a] = *desi_rows_of(&rows, point[i].row, a);
      segment[a].exposure = 0;
    }
    const mill_star star = {.row = point[i].row, .n_segment = 3, .segment = segment};
    must(mill_pipeline_evaluate(pipeline, &star, MILL_REQ_MODELS, 1, point[i].theta, &eval,
                                &prepared));
    assert_int_equal(prepared.status, MILL_STATUS_NOT_DONE);
    double mapped[4];
    for (int l = 0; l < 4; l++)
      mapped[l] = mill_label_map(&lib->label[l], point[i].theta[2 + l]);
    const double d = mill_hull_distance(lib->n_hull, lib->hull, mapped);
    /* 1e-5: the reference's distance is that of labels rounded to float32 */
    assert_close(d * d, point[i].outside, 1e-5 * (1.0 + point[i].outside));
    const double weight = 10.0 * 3.0 * n_pix;
    f[i] = eval.f - weight * (d * d - point[i].outside);
    for (int a = 0; a < 3; a++) {
      assert_int_equal(prepared.n_pix[a], point[i].n_good[a]);
      /* 1e-6: the data's float32; far away chi-square is large */
      if (rotation == MILL_ROT_LINEAR)
        assert_close(eval.chisq[a], point[i].chisq[a], 0.05 + 3e-6 * point[i].chisq[a]);
    }
  }
  desi_rows_close(&rows);
  mill_pipeline_destroy(pipeline);
  mill_config_clear(&config);
}

static void print_worst(const char *prefix, const char *what, int n, const double *a,
                        const double *b)
{
  printf("%s %s: largest difference at point", prefix, what);
  for (int k = 0; k < POINTS_PER_STAR; k++) {
    double worst = 0.0;
    for (int i = k; i < n; i += POINTS_PER_STAR)
      if (!(fabs(a[i] - b[i]) <= worst))
        worst = fabs(a[i] - b[i]);
    printf(" %d: %.2g", k + 1, worst);
  }
  printf("\n");
}

/** strict: float32 within 1e-3 of float64 at the first two points of each star. */
static void compare(const char *prefix, const char *json, int strict)
{
  mill_test_data(reference, json);
  mill_test_data(found, "sim/coadd-dev.fits.gz");
  char coadd[2200]; /* found's buffer is used again */
  snprintf(coadd, sizeof coadd, "%s", found);
  static reference_point point[MAX_POINT];
  static double f64[MAX_POINT], f32[MAX_POINT], expected[MAX_POINT];
  const int n = read_points(reference, point);
  mill_library lib;
  import(prefix, &lib); /* which uses the buffers of the paths again */
  assert_int_equal(n, 24 * POINTS_PER_STAR);
  for (int i = 0; i < n; i++) {
    expected[i] = point[i].m2ll;
    assert_true(i % POINTS_PER_STAR == 0 || point[i].row == point[i - 1].row);
  }
  evaluate(&lib, coadd, MILL_ROT_LINEAR, MILL_FLOAT64, n, point, f64);
  evaluate(&lib, coadd, MILL_ROT_LINEAR, MILL_FLOAT32, n, point, f32);
  print_worst(prefix, "float64 - reference", n, f64, expected);
  print_worst(prefix, "float32 - reference", n, f32, expected);
  print_worst(prefix, "float32 - float64", n, f32, f64);
  /* data/README.md: 1e-2 + 1e-7 |value| with a float64 emulator, 1e-3 more for
   * float32 templates near the optimum (the first two points of each star) */
  for (int i = 0; i < n; i++) {
    const double tolerance = 1e-2 + 1e-7 * fabs(expected[i]);
    assert_close(f64[i], expected[i], tolerance);
    if (i % POINTS_PER_STAR >= 2)
      continue;
    assert_close(f32[i], expected[i], tolerance + 1e-3);
    if (strict)
      assert_close(f32[i], f64[i], 1e-3);
  }
  if (strict) {
    /* The smooth kind of rotation, for which there is no reference: float32 against float64.
     * 1e-3 is asked for near the optimum; the first two points, chosen for the linear kind, are
     * up to 90 above that of the smooth one, and 2e-3 is what was measured there, rounded up.  It
     * must differ from the linear kind, or the setting went nowhere. */
    double change = 0;
    evaluate(&lib, coadd, MILL_ROT_SPLINE, MILL_FLOAT64, n, point, expected);
    evaluate(&lib, coadd, MILL_ROT_SPLINE, MILL_FLOAT32, n, point, f32);
    print_worst(prefix, "smooth rotation, float32 - float64", n, f32, expected);
    print_worst(prefix, "smooth - linear rotation", n, expected, f64);
    for (int i = 0; i < n; i++) {
      if (i % POINTS_PER_STAR < 2)
        assert_close(f32[i], expected[i], 2e-3);
      change = fmax(change, fabs(expected[i] - f64[i]));
    }
    assert_true(change > 1);
  }
  mill_library_clear(&lib);
}

MILL_TEST(likelihood_with_resolution_matrix)
{
  compare("nnrm", "sim/likelihood-rm.json", 1);
}

MILL_TEST(likelihood_at_instrument_resolution)
{
  /* not strict: one star at S/N 100 has 2.1e-3, float32 sums of the last layer */
  compare("nn", "sim/likelihood-nn.json", 0);
}

MILL_TEST_MAIN(NULL, NULL)
