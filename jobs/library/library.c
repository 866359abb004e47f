/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/jobs.h"

#include <stdio.h>
#include <string.h>

#include "jobs/library/library_train.h"
#include "jobs/library/train_options.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/python_job.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/ranks/mpi_context.h"
#include "src/system/stop_signal.h"

const mill_option_help mill_library_train_help = {&mill_library_train_table, NULL};

/* Go on in Python, whose arguments are name=value of each option (name alone for a flag), then --
 * and the grid file. */
static int end_in_python(int argc, char **argv)
{
  int err = MILL_OK, status = 0, first = 0, n = 2;
  const char *text[MILL_OPTION_MAX];
  char *line[MILL_OPTION_MAX + 4] = {(char *)"library", (char *)"train"};
  const mill_option_table *table = &mill_library_train_table;
  MILL_TRY(mill_option_parse_texts(table, argc, argv, text, &first));
  for (int i = 0; table->row[i].name; i++)
    if (text[i] && mill_option_helped(strcmp(table->row[i].name, "help") == 0, 0, table, NULL))
      return mill_python_is_other_rank() ? 0 : mill_error_exit_status(mill_job_flush("help"));
  for (int i = 0; table->row[i].name; i++) {
    const mill_option *row = &table->row[i];
    if (row->kind == MILL_OPTION_HEADING)
      continue;
    const size_t size = strlen(row->name) + (text[i] ? strlen(text[i]) : 0) + 2;
    MILL_TRY(MILL_ALLOC(size, &line[n]));
    snprintf(line[n++], size, "%s%s%s", row->name, text[i] ? "=" : "", text[i] ? text[i] : "");
  }
  line[n] = (char *)"--";
  line[n + 1] = argv[first];
  status = mill_python_job(n + 2, line);
done:
  for (int i = 2; i < n; i++)
    mill_free(line[i]);
  return err == MILL_OK ? status : mill_job_end("library train", err);
}

static int train(int argc, char **argv)
{
  if (mill_library_trains(argc, argv)) {
    const int status = mill_mpi_job("starmill library train", mill_library_train, argc, argv);
    if (status != 0)
      return status;
    /* keep signals pending until Python catches them */
    mill_stop_signal_hold();
    if (mill_stop_signal_seen())
      return mill_job_end("library train",
                          MILL_ERROR(MILL_ERR_STOPPED, "stopped in good order when the training "
                                                       "was done; give the same command again"));
  }
  return end_in_python(argc, argv);
}

int mill_job_library(int argc, char **argv)
{
  return argc > 1 && strcmp(argv[1], "train") == 0 ? train(argc - 1, argv + 1)
                                                   : mill_python_job(argc, argv);
}
