/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/steps.h"

#include <time.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

int mill_fit_watch_stops(const mill_fit_call *call, mill_fit_setup *setup)
{
  int err = MILL_OK;
  const int is_fit = !call->observer && !call->options->plan;
  if (is_fit && call->mpi->rank == 0)
    err = mill_stop_file_absent(setup->stop_file);
  MILL_STEP(mill_stop_watch_start(call->mpi, is_fit ? setup->stop_file : NULL,
                                  setup->running.time_limit_s, call->start_wall_s, &setup->stop));
  return mill_mpi_agree(call->mpi, err);
}

int mill_fit_agree_to_go_on(const mill_fit_call *call, const mill_fit_setup *setup,
                            const char *step)
{
  int err = MILL_OK;
  char why[MILL_STATUS_PATH + 64];
  if (mill_stop_reason() != MILL_STOP_NONE) {
    mill_stop_watch_text(setup->stop, why, sizeof why);
    err = MILL_ERROR(MILL_ERR_STOPPED,
                     "stopped %s (%s): nothing was fitted; give the same command again", step, why);
  }
  return mill_mpi_agree(call->mpi, err);
}

/* Has another rank asked to stop?  Rank r waits r * 20 ms, at most 1 s, for the request: of ranks
 * that fail alike, only the lowest reports its failure. */
static int hear_lower_rank(mill_mpi *mpi)
{
  const struct timespec ms = {.tv_nsec = 1000000};
  const double end_s = mill_wall_s() + 0.02 * (mpi->rank < 50 ? mpi->rank : 50);
  while (!mill_mpi_stop_asked(mpi)) {
    if (mill_wall_s() >= end_s)
      return 0;
    nanosleep(&ms, NULL);
  }
  return 1;
}

void mill_fit_tell_failure(const mill_fit_call *call, int err)
{
  mill_error_kept kept;
  mill_error_save(err, &kept);
  /* a failure to write is common to all ranks and reported once, at the end */
  if (call->mpi->size > 1 && err != MILL_ERR_OUTPUT) {
    if (hear_lower_rank(call->mpi))
      mill_log_debug("this rank fails too (%s): %s", kept.place, kept.message);
    else
      mill_log_error("this rank fails (%s), all others stop: %s", kept.place, kept.message);
    (void)mill_mpi_stop_others(call->mpi);
  }
  mill_error_restore(&kept);
}

void mill_fit_stop_others(const mill_fit_call *call, int err)
{
  mill_error_kept kept;
  mill_error_save(err, &kept);
  /* if all ranks stop together, one rank's messages are enough */
  if (call->mpi->size == 1 || !hear_lower_rank(call->mpi))
    (void)mill_mpi_stop_others(call->mpi);
  mill_error_restore(&kept);
}

int mill_fit_settle_stop(const mill_fit_call *call, mill_fit_setup *setup, int err)
{
  mill_error_kept kept;
  int settled = MILL_OK;
  mill_error_save(err, &kept);
  mill_stop_watch_end(setup->stop);
  setup->stop = NULL;
  if (err != MILL_ERR_MPI)
    settled = mill_mpi_stop_settle(call->mpi);
  return err == MILL_OK ? settled : mill_error_restore(&kept);
}
