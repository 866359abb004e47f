/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/steps.h"

#include <stdlib.h>

#include "src/config/text.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/version.h"

#define SETTINGS "the text of the settings"

/* Print the settings that only a sample has. */
static void print_sample(const mill_fit_options *options, FILE *out)
{
  const mill_sample_settings *s = &options->sample;
  if (!options->fit)
    return;
  fprintf(out,
          "sample_max_evaluations: %d\nsample_draws: %d\nsample_ess: %.17g\nsample_seed: %llu\n",
          s->max_eval, s->n_draw, s->least_ess, (unsigned long long)s->seed);
}

int mill_fit_same_options(const mill_mpi *mpi, const mill_option_table *table,
                          const mill_fit_options *options)
{
  MILL_OWNED char *text = NULL;
  size_t n_byte = 0;
  FILE *out = open_memstream(&text, &n_byte);
  if (out) { /* what must be equal on all ranks, line by line */
    fprintf(out, "starmill %s %s\n", mill_version(), mill_version_revision());
    mill_option_print_given(table, options, out);
    print_sample(options, out);
    for (size_t i = 0; i < options->n_pattern; i++)
      fprintf(out, "--pattern %s\n", options->pattern[i]);
    for (size_t i = 0; i < options->n_object; i++)
      fprintf(out, "--object %s\n", options->object[i]);
    for (int i = 0; i < options->n_input; i++)
      fprintf(out, "input %s\n", options->input[i]);
  }
  MILL_CHECK(mill_mpi_agree(mpi, mill_text_close(out, MILL_OK, SETTINGS)));
  return mill_same_on_ranks(mpi, "command lines", text);
}

int mill_fit_same_settings(const mill_mpi *mpi, const mill_config *config, const mill_library *lib)
{
  MILL_OWNED char *text = NULL, *identity = NULL;
  size_t n_byte = 0;
  MILL_CHECK(mill_same_on_ranks(mpi, "libraries", lib->hash));
  FILE *out = open_memstream(&text, &n_byte);
  const int code = mill_config_identity(config, &identity);
  /* collective calls depend on backend, threads and gzip_limit, which are not in the identity */
  if (out && code == MILL_OK)
    fprintf(out, "%sbackend: %s\nthreads: %s\ngzip_limit: %.17g\n", identity, config->backend,
            config->n_thread > 0 ? "given" : "0", config->gzip_limit_mib);
  MILL_CHECK(mill_mpi_agree(mpi, mill_text_close(out, code, SETTINGS)));
  return mill_same_on_ranks(mpi, "settings", text);
}

int mill_fit_identity(const mill_fit_options *options, const mill_config *config, char **identity)
{
  MILL_OWNED char *text = NULL;
  size_t n_byte = 0;
  MILL_CHECK(mill_config_identity(config, identity));
  if (!options->fit)
    return MILL_OK;
  FILE *out = open_memstream(&text, &n_byte);
  if (out) {
    fputs(*identity, out);
    print_sample(options, out);
  }
  MILL_CHECK(mill_text_close(out, MILL_OK, SETTINGS));
  free(*identity);
  return MILL_GIVE(&text, identity);
}
