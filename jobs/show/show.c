#include "jobs/show/show.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_table.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "kernels/base/error.h"
#include "kernels/data/result.h"

enum { MAX_SHOWN = 24 /* values of a column, which has hundreds where it is a density */ };

typedef struct show_job {
  int help;
  mill_result_table table;
  mill_ph5_texts file;                         /* paths of the inputs */
  char order[MILL_MAX_PAR][MILL_MAX_NAME + 8]; /* parameters of COVAR */
  int n_order;
  char *fits_row, *catalog_row, *value;
} show_job;

static const mill_option_table table = {
    "starmill show",
    "usage: starmill show OUT.h5 STAR...\n"
    "\n"
    "Print all that a result says of a star: every column with its unit and meaning, flags in\n"
    "words, the covariance.  STAR is a TARGETID, else an IDENTIFIER or OBJECT of /catalog; all\n"
    "rows of the star are printed.  Works while a fit is writing OUT.h5.\n"
    "\n",
    "\n"
    "Exit status: 0 done, 2 usage, or there is no such star, 4 OUT.h5 cannot be read.\n",
    (const mill_option[]){MILL_OPTION_HELP(show_job), {0}}};

const mill_option_help mill_show_help = {&table, NULL};

/* ---- words for codes and bits ---- */

typedef struct word {
  int64_t code;
  const char *name, *meaning;
} word;

#define WORD(symbol, code, name, meaning) {code, name, meaning},
static const word status_word[] = {MILL_STATUS_LIST(WORD){0}};
static const word warn_word[] = {MILL_WARN_LIST(WORD){0}};
static const word info_word[] = {MILL_INFO_LIST(WORD){0}};
static const word post_word[] = {MILL_POST_LIST(WORD){0}};
#undef WORD
static const word backend_word[] = {
    {MILL_ROW_BACKEND_CPU, "CPU", ""}, {MILL_ROW_BACKEND_GPU, "GPU", ""}, {0}};

static const struct {
  const char *name;
  const word *words;
  int is_bits;
} flag[] = {{"STATUS", status_word, 0},
            {"BACKEND", backend_word, 0},
            {"RVS_WARN", warn_word, 1},
            {"FIT_INFO", info_word, 1},
            {"POST_FLAG", post_word, 1}};

static void print_words(const char *name, int64_t value)
{
  for (size_t i = 0; i < sizeof flag / sizeof *flag; i++) {
    if (strcmp(flag[i].name, name) != 0)
      continue;
    int64_t left = value;
    for (const word *w = flag[i].words; w->name; w++)
      if (flag[i].is_bits ? value & w->code : value == w->code) {
        printf("  %-22s   %s%s%s\n", "", w->name, w->meaning[0] ? ": " : "", w->meaning);
        left = flag[i].is_bits ? left & ~w->code : 0;
      }
    if (left != 0 && flag[i].is_bits)
      printf("  %-22s   bits %" PRId64 " of a newer starmill\n", "", left);
  }
}

/* ---- values ---- */

static double real_of(const char *at)
{
  double value;
  memcpy(&value, at, sizeof value);
  return value;
}

static void value_text(const mill_stored_column *c, const char *at, char out[128])
{
  if (c->type == MILL_TYPE_TEXT)
    snprintf(out, 128, "%.*s", (int)(c->n_byte < 127 ? c->n_byte : 127), at);
  else if (c->type == MILL_TYPE_F64)
    snprintf(out, 128, "%.9g", real_of(at));
  else
    snprintf(out, 128, "%" PRId64, mill_stored_integer(c->type, at));
}

/* A text attribute of a column; empty where there is none. */
static void attribute(const show_job *job, const mill_stored_column *c, const char *name, char *out,
                      size_t size)
{
  if (!mill_h5_has_attr(&job->table.file, c->name, name) ||
      mill_h5_read_attr_text(&job->table.file, c->name, name, out, size) != MILL_OK)
    out[0] = '\0';
}

/* ---- a row ---- */

/* COVAR and POST_COVAR, packed as upper triangles. */
static void print_covariance(const show_job *job, const char *at)
{
  const int n = job->n_order;
  printf("  %-10s  variances on the diagonal, covariances above, correlations below it\n", "");
  printf("  %-10s", "");
  for (int j = 0; j < n; j++)
    printf(" %12s", job->order[j]);
  for (int i = 0; i < n; i++) {
    printf("\n  %-10s", job->order[i]);
    for (int j = 0; j < n; j++) {
      const int low = i < j ? i : j, high = i < j ? j : i;
      const double covar =
          real_of(at + sizeof(double) * (size_t)(low * n - low * (low - 1) / 2 + high - low));
      if (j >= i) {
        printf(" %12.5g", covar);
        continue;
      }
      const double var_i = real_of(at + sizeof(double) * (size_t)(i * n - i * (i - 1) / 2));
      const double var_j = real_of(at + sizeof(double) * (size_t)(j * n - j * (j - 1) / 2));
      printf(" %12.3f", var_i > 0 && var_j > 0 ? covar / sqrt(var_i * var_j) : NAN);
    }
  }
  putchar('\n');
}

static void print_vector(const show_job *job, const mill_stored_column *c, const char *at)
{
  const size_t size = c->n_byte / (size_t)c->n_value;
  const int is_by_parameter = c->n_value == job->n_order;
  const int64_t n = c->n_value < MAX_SHOWN ? c->n_value : MAX_SHOWN;
  char text[128];
  printf("  %-22s  ", "");
  for (int64_t k = 0; k < n; k++) {
    value_text(c, at + (size_t)k * size, text);
    printf(" %s%s%s", is_by_parameter ? job->order[k] : "", is_by_parameter ? " " : "", text);
  }
  if (n < c->n_value)
    printf(" ... (%" PRId64 " values: read them from the file)", c->n_value);
  putchar('\n');
}

static void print_column(const show_job *job, const mill_stored_column *c, const char *at)
{
  char text[128] = "", unit[64], description[320];
  const char *name = mill_result_table_name(c);
  attribute(job, c, "unit", unit, sizeof unit);
  attribute(job, c, "description", description, sizeof description);
  const int is_vector = c->n_dim == 2 && c->type != MILL_TYPE_TEXT;
  if (!is_vector)
    value_text(c, at, text);
  const int is_covar = strcmp(name, "COVAR") == 0 || strcmp(name, "POST_COVAR") == 0;
  printf("  %-22s %15s %-12s  %s\n", name, text, is_covar ? "" : unit, description);
  if (is_vector && is_covar && c->n_value == (int64_t)job->n_order * (job->n_order + 1) / 2)
    print_covariance(job, at);
  else if (is_vector)
    print_vector(job, c, at);
  else if (c->type != MILL_TYPE_F64 && c->type != MILL_TYPE_TEXT)
    print_words(name, mill_stored_integer(c->type, at));
  if (strcmp(name, "FILE") == 0) {
    const int64_t i = mill_stored_integer(c->type, at);
    if (i >= 0 && i < job->file.n)
      printf("  %-22s   %.*s\n", "", (int)job->file.n_byte,
             job->file.text + (size_t)i * job->file.n_byte);
  }
}

static int print_row(show_job *job, int64_t row)
{
  int is_whole;
  const mill_stored_rows *fits = &job->table.fits, *catalog = &job->table.catalog;
  MILL_CHECK(mill_stored_rows_read(catalog, row, 1, job->catalog_row, job->value));
  MILL_CHECK(mill_stored_rows_read(fits, row, 1, job->fits_row, job->value));
  printf("%s, row %" PRId64 " of %" PRId64 "\n\ncatalog\n", job->table.path, row, job->table.n_row);
  for (int i = 0; i < catalog->n_column; i++)
    print_column(job, &catalog->column[i], job->catalog_row + catalog->column[i].at);
  printf("\nfits\n");
  const int32_t status = mill_stored_row_status(fits, job->fits_row, &is_whole);
  for (int i = 0; i < fits->n_column; i++)
    print_column(job, &fits->column[i], job->fits_row + fits->column[i].at);
  if (status != MILL_STATUS_NOT_DONE && !is_whole)
    printf("\nThis row is damaged: its CRC is not that of its values.\n");
  return MILL_OK;
}

/* ---- the job ---- */

static int read_order(show_job *job)
{
  int err = MILL_OK;
  hid_t attr = H5I_INVALID_HID, type = H5I_INVALID_HID, space = H5I_INVALID_HID;
  const char *path = job->table.path;
  attr = H5Aopen_by_name(job->table.file.id, "fits/COVAR", "ORDER", H5P_DEFAULT, H5P_DEFAULT);
  space = attr >= 0 ? H5Aget_space(attr) : H5I_INVALID_HID;
  type = mill_ph5_text_type(sizeof job->order[0]);
  const hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  if (n < 1 || n > MILL_MAX_PAR || type < 0 || H5Aread(attr, type, job->order) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: attribute ORDER of fits/COVAR cannot be read: %s",
              path, mill_h5_reason());
  job->n_order = (int)n;
  for (int i = 0; i < job->n_order; i++)
    job->order[i][sizeof job->order[i] - 1] = '\0';
done:
  MILL_H5_CLOSE(attr, type, space);
  return err;
}

static int show(show_job *job, const char *path, int n_star, char *const *star)
{
  int err = MILL_OK;
  int64_t *row = NULL, n = 0;
  MILL_TRY(mill_result_table_open(path, MILL_ERR_OUTPUT, &job->table));
  const mill_stored_rows *fits = &job->table.fits, *catalog = &job->table.catalog;
  MILL_TRY(read_order(job));
  MILL_TRY(mill_ph5_read_texts(job->table.file.id, path, "catalog/files/PATH", &job->file));
  MILL_TRY(MILL_ALLOC(fits->row_size, &job->fits_row));
  MILL_TRY(MILL_ALLOC(catalog->row_size, &job->catalog_row));
  MILL_TRY(
      MILL_ALLOC(fits->widest > catalog->widest ? fits->widest : catalog->widest, &job->value));
  MILL_TRY(mill_result_table_find(&job->table, n_star, star, &row, &n));
  for (int64_t i = 0; i < n; i++) {
    if (i > 0)
      putchar('\n');
    MILL_TRY(print_row(job, row[i]));
  }
  MILL_TRY(mill_job_flush("the star"));
done:
  mill_free(row);
  return err;
}

int mill_job_show(int argc, char **argv)
{
  int err = MILL_OK, first = 0;
  show_job job = {0};
  MILL_TRY(mill_option_parse(&table, argc, argv, &job, NULL, &first));
  if (mill_option_helped(job.help, 0, &table, NULL))
    goto done;
  if (argc - first < 2)
    MILL_FAIL(MILL_ERR_USAGE, "name a result and one or more stars; see starmill show --help");
  MILL_TRY(show(&job, argv[first], argc - first - 1, argv + first + 1));
done:
  err = mill_job_end("show", err);
  mill_result_table_close(&job.table);
  MILL_FREE(job.file.text, job.fits_row, job.catalog_row, job.value);
  return err;
}
