/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/scripts/script.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobs/options/job_steps.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/shipped_file.h"

/* As the launchers of Open MPI, MPICH and Slurm tell their processes. */
int mill_script_is_other_rank(void)
{
  static const char *const name[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                     "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    const char *rank = getenv(name[i]);
    if (rank && strcmp(rank, "0") != 0)
      return 1;
  }
  return 0;
}

/* name=value of the options, then --. */
static int put_options(const mill_option_table *table, const char *const *text, char **argv, int *n)
{
  for (int i = 0; table->row[i].name; i++) {
    const mill_option *row = &table->row[i];
    if (row->kind == MILL_OPTION_HEADING)
      continue;
    const size_t size = strlen(row->name) + (text[i] ? strlen(text[i]) : 0) + 2;
    MILL_CHECK(MILL_ALLOC(size, &argv[*n]));
    snprintf(argv[(*n)++], size, "%s%s%s", row->name, text[i] ? "=" : "", text[i] ? text[i] : "");
  }
  argv[(*n)++] = (char *)"--";
  return MILL_OK;
}

static int become(const mill_script *script, const char *job, const char *const *text,
                  int n_argument, char **argument)
{
  int err = MILL_OK, n = 0;
  char starter[PATH_MAX], program[PATH_MAX];
  char **argv = NULL;
  mill_shipped_file("python/starmill/__main__.py", starter, sizeof starter);
  if (!starter[0])
    MILL_FAIL(MILL_ERR_USAGE, "python/starmill is missing: there is no share/starmill/python next "
                              "to the program's bin folder");
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
  char *python = getenv("STARMILL_PYTHON");
  if (!python || !python[0])
    python = (char *)"python3";
  /* -B: nothing is written next to the package; -E: variables for another Python stop none (it
   * reads PYTHONPATH itself); -s: as PYTHONNOUSERSITE, which -E ignores */
  const char *user_site = getenv("PYTHONNOUSERSITE");
  char *const first[] = {python,      (char *)(user_site && *user_site ? "-BEs" : "-BE"),
                         starter,     (char *)script->module,
                         (char *)job, program};
  MILL_TRY(
      MILL_ALLOC(sizeof first / sizeof *first + MILL_OPTION_MAX + (size_t)n_argument + 2, &argv));
  for (size_t i = 0; i < sizeof first / sizeof *first; i++)
    argv[n++] = first[i];
  const int n_first = n;
  err = put_options(script->help.table, text, argv, &n);
  const int n_option = n - 1; /* the last is -- */
  if (err == MILL_OK) {
    memcpy(argv + n, argument, (size_t)n_argument * sizeof *argv);
    fflush(stdout);
    execvp(python, argv);
    err = MILL_ERROR(MILL_ERR_USAGE,
                     "cannot start Python as %s: %s; install python3, or name it in the "
                     "environment variable STARMILL_PYTHON",
                     python, strerror(errno));
  }
  for (int i = n_first; i < n_option; i++)
    mill_free(argv[i]);
done:
  mill_free(argv);
  return err;
}

static int start(const mill_script *script, int argc, char **argv)
{
  int first = 0;
  const char *text[MILL_OPTION_MAX];
  const mill_option_table *table = script->help.table;
  MILL_CHECK(mill_option_parse_texts(table, argc, argv, text, &first));
  for (int i = 0; table->row[i].name; i++)
    if (text[i] &&
        mill_option_helped(strcmp(table->row[i].name, "help") == 0, 0, table, script->help.usual))
      return MILL_OK;
  const int n = argc - first;
  if (n < script->n_least || n > script->n_most)
    return MILL_ERROR(MILL_ERR_USAGE, "give %s, not %d argument%s; see %s --help", script->takes, n,
                      n == 1 ? "" : "s", table->command);
  return become(script, table->command + strlen("starmill "), text, n, argv + first);
}

int mill_script_run(const mill_script *script, int argc, char **argv)
{
  if (mill_script_is_other_rank())
    return 0;
  return mill_job_end(script->help.table->command + strlen("starmill "), start(script, argc, argv));
}
