/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "io/catalog/catalog_list.h"
#include "io/library/library_file.h"
#include "io/catalog/prior_table.h"
#include "io/catalog/start_table.h"
#include "src/config/config.h"
#include "tests/fuzz/targets.h"

static void name_label(mill_library *lib, const char *name, const char *column)
{
  mill_label *label = &lib->label[lib->n_label++];
  strcpy(label->name, name);
  strcpy(label->column, column);
}

static const mill_fit_settings set; /* nothing is fixed */
static mill_open_limits limits = {.gzip_limit_mib = 4};
static mill_library lib;

static void two_labels(void)
{
  memset(&lib, 0, sizeof lib);
  limits.scratch = fuzz_scratch();
  name_label(&lib, "teff", "TEFF");
  name_label(&lib, "alpha", "ALPHAFE");
  mill_error_clear();
}

static const mill_catalog_row rows[] = {{.target_id = 39, .identifier = "star"},
                                        {.target_id = -1, .object = "star"},
                                        {.target_id = -1, .target_ra = 10, .target_dec = 20}};

int fuzz_priors(const uint8_t *bytes, size_t n)
{
  static const int allowed[] = {MILL_ERR_CONFIG, -1};
  mill_prior_table *table;
  int64_t row;
  two_labels();
  const int err =
      mill_prior_table_read(fuzz_file(bytes, n), &lib, 1, &lib, &set, &limits, 0, &table);
  if (fuzz_check_code("table of priors", err, allowed) != MILL_OK)
    return FUZZ_REFUSED;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    fuzz_check_code("star of the table", mill_prior_table_find(table, &rows[i], &row), allowed);
  mill_prior_table_free(table);
  return FUZZ_ACCEPTED;
}

int fuzz_start(const uint8_t *bytes, size_t n)
{
  static const int allowed[] = {MILL_ERR_CONFIG, -1};
  mill_start_table *table;
  int64_t row;
  two_labels();
  const int err = mill_start_table_read(fuzz_file(bytes, n), &lib, 1, &set, &limits, 0, 0, &table);
  if (fuzz_check_code("start table", err, allowed) != MILL_OK)
    return FUZZ_REFUSED;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    fuzz_check_code("star of the table", mill_start_table_find(table, "", &rows[i], &row), allowed);
  mill_start_table_free(table);
  return FUZZ_ACCEPTED;
}

int fuzz_read_library(const char *path)
{
  static const int allowed[] = {MILL_ERR_LIBRARY, -1};
  memset(&lib, 0, sizeof lib);
  mill_error_clear();
  if (fuzz_check_code("library", mill_library_read(path, &lib), allowed) != MILL_OK)
    return FUZZ_REFUSED;
  mill_library_clear(&lib);
  return FUZZ_ACCEPTED;
}

int fuzz_library(const uint8_t *bytes, size_t n)
{
  return fuzz_read_library(fuzz_file(bytes, n));
}

/* A configuration that is accepted must be the same after it is printed and read again. */
int fuzz_config(const uint8_t *bytes, size_t n)
{
  static const int allowed[] = {MILL_ERR_CONFIG, -1};
  mill_config config, again;
  char *text = NULL, *text_again = NULL;
  size_t n_text = 0, n_again = 0;
  mill_config_default(&config);
  mill_error_clear();
  const int err = mill_config_read(&config, fuzz_file(bytes, n));
  if (fuzz_check_code("configuration", err, allowed) != MILL_OK) {
    mill_config_clear(&config);
    return FUZZ_REFUSED;
  }
  FILE *out = open_memstream(&text, &n_text);
  fuzz_check_code("printing", out ? mill_config_print(&config, out) : MILL_ERR_MEMORY,
                  (const int[]){-1});
  fclose(out);
  mill_config_default(&again);
  fuzz_check_code("reading what was printed",
                  mill_config_read(&again, fuzz_file((const uint8_t *)text, n_text)),
                  (const int[]){-1});
  out = open_memstream(&text_again, &n_again);
  fuzz_check_code("printing again", out ? mill_config_print(&again, out) : MILL_ERR_MEMORY,
                  (const int[]){-1});
  fclose(out);
  if (n_text != n_again || memcmp(text, text_again, n_text) != 0) {
    fprintf(stderr, "the configuration changes when it is printed and read:\n%s\n%s\n", text,
            text_again);
    abort();
  }
  free(text);
  free(text_again);
  if (!config.start[0] && !config.prior_table[0] &&
      !config.sky_components[0]) { /* else identity needs the file's hash, which its reader sets */
    fuzz_check_code("identity", mill_config_identity(&config, &text), (const int[]){-1});
    free(text);
  }
  mill_config_clear(&config);
  mill_config_clear(&again);
  return FUZZ_ACCEPTED;
}

int fuzz_catalog(const uint8_t *bytes, size_t n)
{
  static const int allowed[] = {MILL_ERR_USAGE, MILL_ERR_CONFIG, -1};
  mill_path_list list = {0};
  mill_star_list stars = {0};
  int accepted = FUZZ_REFUSED;
  const char *path = fuzz_file(bytes, n);
  mill_error_clear();
  int err = mill_catalog_list_read(path, &list);
  if (fuzz_check_code("catalog", err, allowed) == MILL_OK) {
    for (size_t i = 0; i < list.n; i++)
      if (strlen(list.path[i]) >= MILL_FITS_MAX_PATH || strchr(list.path[i], '\n'))
        abort();
    accepted = FUZZ_ACCEPTED;
  }
  mill_path_list_clear(&list);
  err = mill_star_list_read(path, &stars);
  if (fuzz_check_code("list of stars", err, allowed) == MILL_OK) {
    mill_star_list_sort(&stars);
    for (int64_t i = 1; i < stars.n_name; i++)
      if (strcmp(stars.name[i], stars.name[i - 1]) <= 0)
        abort();
    accepted = FUZZ_ACCEPTED;
  }
  MILL_FREE(stars.number, stars.name);
  return accepted;
}
