/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/options/job_steps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"

int mill_job_flush(const char *what)
{
  if (fflush(stdout) != 0 || ferror(stdout))
    return MILL_ERROR(MILL_ERR_OUTPUT, "cannot print %s: %s", what, strerror(errno));
  return MILL_OK;
}

int mill_job_end(const char *name, int err)
{
  if (err != MILL_OK)
    fprintf(stderr, "starmill %s: %s\n", name, mill_error_message());
  return mill_error_exit_status(err);
}
