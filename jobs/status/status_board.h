/** How a fit is going on all ranks, in a file that others may read at any time.
 *
 *  Every rank notes what it does here, which costs next to nothing, and a thread of it sends
 *  the notes to rank 0 every few seconds.  Rank 0's thread writes them to the status file,
 *  under another name first, so that a reader always finds a whole one.  Nobody waits for
 *  anybody: a rank whose last message was not taken yet sends none, rank 0 takes what has
 *  come.  So a rank that hangs, or a file system that does, shows in the status and stops
 *  nothing; and a status file that cannot be written is told once in the log, no failure.
 *
 *  docs/formats.md describes the file.
 */
#ifndef MILL_STATUS_BOARD_H
#define MILL_STATUS_BOARD_H

#include "io/result/result_file.h"
#include "src/ranks/mpi_context.h"

/** What a rank is at: symbol, name, meaning. */
#define MILL_RANK_STAGE_LIST(X)                                                                    \
  X(MILL_RANK_STARTING, "starting", "loading the library, making templates")                       \
  X(MILL_RANK_FITTING, "fitting", "fitting stars")                                                 \
  X(MILL_RANK_WAITING, "waiting", "done; waits for the other ranks, and writes with them")         \
  X(MILL_RANK_FAILED, "failed", "its share failed; waits for the other ranks to stop")             \
  X(MILL_RANK_ENDED, "ended", "ended")

#define MILL_RANK_STAGE_ENUM(symbol, name, meaning) symbol,
enum mill_rank_stage { MILL_RANK_STAGE_LIST(MILL_RANK_STAGE_ENUM) MILL_N_RANK_STAGE };
#undef MILL_RANK_STAGE_ENUM

/** What memory is for: symbol, name. */
#define MILL_PURPOSE_LIST(X)                                                                       \
  X(MILL_MEMORY_EMULATOR, "emulator")                                                              \
  X(MILL_MEMORY_SLOTS, "slots")                                                                    \
  X(MILL_MEMORY_WAVELENGTHS, "wavelength_sets")                                                    \
  X(MILL_MEMORY_READER, "reader")

#define MILL_PURPOSE_ENUM(symbol, name) symbol,
enum mill_purpose { MILL_PURPOSE_LIST(MILL_PURPOSE_ENUM) MILL_N_PURPOSE };
#undef MILL_PURPOSE_ENUM

/** One rank, as its last message had it. */
typedef struct mill_rank_state {
  int32_t rank, pid;
  int32_t stage;                /**< enum mill_rank_stage */
  int32_t code;                 /**< of its failure; MILL_OK: none */
  int32_t i_file;               /**< of the catalog, that its last star came from; -1: none yet */
  int32_t has_gpu, gpu_percent; /**< percent -1: unknown */
  int64_t n_status[MILL_N_STATUS]; /**< rows that it has finished in this run */
  int64_t resident, peak;          /**< bytes of the process in memory */
  int64_t bytes[MILL_N_PURPOSE];   /**< most so far; on the device where there is one */
  int64_t gpu_used, gpu_total;     /**< bytes of its GPU, by all who use it */
  double sign_s;                   /**< when it last took or finished a star, s since 1970 */
  double sent_s;                   /**< when it said so */
  double failed_s;                 /**< when it failed */
  char gpu_name[96], host[64], error[512];
} mill_rank_state;

/** What a run is; borrowed until mill_board_free, but for base. */
typedef struct mill_board_plan {
  const char *path;  /**< of the status file; NULL: none */
  double interval_s; /**< between two writes */
  const char *output, *models, *command, *backend;
  int n_thread, n_slot;
  int64_t n_row;
  int n_file, n_unreadable;
  const mill_input_file *file; /**< [n_file] */
  int64_t base[MILL_N_STATUS]; /**< rows that earlier runs have done */
  char gpu_bus[32];            /**< PCI address of this rank's GPU; empty: it has none */
} mill_board_plan;

typedef struct mill_board mill_board;

/** Is path fit for a status file: nothing there, or a status file?  One rank alone.
 *  MILL_ERR_USAGE when something else would be replaced, or the name is too long. */
int mill_board_check_path(const char *path);

/** Collective.  Start, with the thread where there is a path.  MILL_ERR_MEMORY, MILL_ERR_MPI,
 *  MILL_ERR_INTERNAL. */
int mill_board_open(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out);

/** Notes of this rank; any thread, and board NULL is fine. */
void mill_board_took(mill_board *board, int i_file);     /**< a row from the reader */
void mill_board_finished(mill_board *board, int status); /**< a row, with its STATUS */
void mill_board_stage(mill_board *board, int stage);
void mill_board_memory(mill_board *board, int purpose, size_t bytes); /**< the largest counts */
/** A failure of this rank: it reaches the status file at once, not only when the other ranks
 *  have come to their end. */
void mill_board_failed(mill_board *board, int code, const char *message);

/** Rows without a fit on all ranks, earlier runs included, as far as this rank knows. */
int64_t mill_board_n_failed(const mill_board *board);

/** Collective.  Stop the threads and bring the last state of every rank to rank 0.  After it
 *  notes are still taken, but not sent.  MILL_ERR_MPI. */
int mill_board_settle(mill_board *board);

/** The last states [n_rank] by rank, on rank 0 after mill_board_settle. */
const mill_rank_state *mill_board_ranks(const mill_board *board, int *n_rank);

/** How it ended, for the last status file. */
typedef struct mill_board_end {
  int code, exit_status;
  const char *message;                /**< of a failure */
  const mill_result_summary *summary; /**< NULL: not known */
} mill_board_end;

/** Write the last status file (rank 0) and free; not collective, NULL is fine.  end NULL:
 *  leave the file as it is, for the ranks cannot talk to each other any more. */
void mill_board_free(mill_board *board, const mill_board_end *end);

#endif
