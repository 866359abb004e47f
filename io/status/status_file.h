/* SPDX-License-Identifier: BSD-3-Clause */
/** Text of a status file: the state of a run and of its ranks. */
#pragma once

#include <stdio.h>

#include "io/result/result_file.h"
#include "src/system/status_json.h"

enum { MILL_STATUS_PATH = 4096, MILL_STATUS_VERSION = 1 };

/** First bytes of every status file. */
#define MILL_STATUS_SIGNATURE "{\n  \"format\": \"starmill status\""

/** Stages of a rank: symbol, name, meaning. */
#define MILL_RANK_STAGE_LIST(X)                                                                    \
  X(MILL_RANK_STARTING, "starting", "loading the library, making templates")                       \
  X(MILL_RANK_FITTING, "fitting", "fitting stars")                                                 \
  X(MILL_RANK_WAITING, "waiting", "done; waits for the other ranks, and writes with them")         \
  X(MILL_RANK_FAILED, "failed", "its share failed; waits for the other ranks to stop")             \
  X(MILL_RANK_ENDED, "ended", "ended")

#define MILL_RANK_STAGE_ENUM(symbol, name, meaning) symbol,
enum mill_rank_stage { MILL_RANK_STAGE_LIST(MILL_RANK_STAGE_ENUM) MILL_N_RANK_STAGE };
#undef MILL_RANK_STAGE_ENUM

/** Uses of memory: symbol, name. */
#define MILL_PURPOSE_LIST(X)                                                                       \
  X(MILL_MEMORY_EMULATOR, "emulator")                                                              \
  X(MILL_MEMORY_SLOTS, "slots")                                                                    \
  X(MILL_MEMORY_WAVELENGTHS, "wavelength_sets")                                                    \
  X(MILL_MEMORY_READER, "reader")

#define MILL_PURPOSE_ENUM(symbol, name) symbol,
enum mill_purpose { MILL_PURPOSE_LIST(MILL_PURPOSE_ENUM) MILL_N_PURPOSE };
#undef MILL_PURPOSE_ENUM

/** State of a rank, as of the last meeting. */
typedef struct mill_rank_state {
  int32_t rank, pid;
  int32_t stage;                   /**< enum mill_rank_stage */
  int32_t code;                    /**< error code, MILL_OK: not failed */
  int32_t i_file;                  /**< file of its last star; -1: none yet */
  int32_t has_gpu, gpu_percent;    /**< gpu_percent -1: unknown */
  int64_t n_status[MILL_N_STATUS]; /**< rows of each STATUS finished in this run */
  int64_t resident, peak;          /**< memory of the process, bytes */
  int64_t bytes[MILL_N_PURPOSE];   /**< largest use so far, on the GPU if there is one */
  int64_t gpu_used, gpu_total;     /**< memory of its GPU, bytes; used: by all processes */
  double sign_s;                   /**< time of the last star taken or finished, s since 1970 */
  double failed_s;                 /**< time of its failure, s since 1970 */
  char backend[64];
  char gpu_name[96], host[64], error[512];
} mill_rank_state;

/** Facts of a run; pointers are borrowed. */
typedef struct mill_board_plan {
  const char *path;  /**< path of the status file; NULL: none is written */
  double interval_s; /**< longest time between two writes, s */
  const char *output, *models, *command;
  const char *backend, *rank_backend; /**< backend of all ranks; of this rank */
  int n_thread, n_slot;
  int64_t n_row;
  int n_file, n_unreadable;
  const mill_input_file *file; /**< [n_file] */
  int64_t base[MILL_N_STATUS]; /**< rows of each STATUS done by earlier runs */
  char gpu_bus[32];            /**< PCI address of this rank's GPU; empty: none */
} mill_board_plan;

/** End of a run, for the last status file. */
typedef struct mill_board_end {
  int code, exit_status;
  const char *message;                /**< error message, if code is a failure */
  const mill_result_summary *summary; /**< NULL: unknown */
} mill_board_end;

/** Contents of a status file. */
typedef struct mill_status_text {
  const mill_board_plan *plan;
  int n_rank;
  const mill_rank_state *rank; /**< [n_rank] */
  double start_unix_s, elapsed_s;
  int64_t n_done_here;       /**< rows finished in this run */
  double rate;               /**< recent stars/s; NaN: unknown */
  const mill_board_end *end; /**< NULL: the run has not ended */
} mill_status_text;

/** Number of rows whose STATUS is `from` or above. */
int64_t mill_status_rows(const int64_t n_status[MILL_N_STATUS], int from);

/** Print a status file as JSON.  MILL_ERR_MEMORY; MILL_ERR_OUTPUT: out cannot be written. */
int mill_status_print(const mill_status_text *what, FILE *out);

/** Print the largest, smallest and summed peak memory of the ranks, and the uses of memory in the
 *  rank with the largest peak.  With 2 to 8 ranks, print each rank's peak. */
void mill_status_print_memory(int n_rank, const mill_rank_state *rank, FILE *out);

/** Write OUTPUT.status.json to out [MILL_STATUS_PATH].  MILL_ERR_USAGE: too long. */
int mill_status_path(const char *output, char *out);
